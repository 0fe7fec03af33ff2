//! `formation call`: one tool call over HTTP, as a harness would make it.
//!
//! Every call carries a key of its own. When the answer is lost on the way, the message names the key, and the same command with
//! `--key` gets the stored outcome without anything being sent to the website again.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::Engine as _;
use formation_core::{Environment, RunId, Secret};
use formation_wire::{Client, ClientError, Reply, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use crate::{
    cli::CallFlags,
    data::create_private,
    output::{Failure, Output, shown, table},
    wiring::Wiring,
};

/// A call's turn, its operation and something for the way.
const WAIT: Duration = Duration::from_secs(110);
/// How often a call that still runs is asked for.
const POLL: Duration = Duration::from_millis(500);
/// Observation, escaping, and a screenshot in Base64.
const REPLY_BYTES: usize = 4 * 1024 * 1024;
/// Arguments from standard input: the server takes no larger body.
const ARGUMENT_BYTES: u64 = 64 * 1024;

pub(crate) async fn call(flags: &CallFlags, server: Url, wiring: &Wiring, output: Output) -> Result<(), Failure> {
    let arguments = arguments(&flags.arguments)?;
    let client = Client::new(&server).map_err(|error| Failure::usage(format!("`{server}` can't be called: {error}")))?;
    let caller = Caller { client: &client, server: &server };
    let states = StateFolder::of(&wiring.environment);
    let token = match flags.run {
        Some(run) => match wiring.environment.variable("FORMATION_RUN_TOKEN") {
            Some(token) => secret(token),
            None => states?.token(run, &server)?,
        },
        None => match wiring.environment.variable("FORMATION_RUN_TOKEN") {
            Some(token) => secret(token),
            None => caller.open_run(&wiring.environment, &states?, output).await?,
        },
    };
    let key = flags.key.clone().unwrap_or_else(|| format!("cli-{}", hex(&wiring.entropy.bytes::<10>())));
    let body = json!({"id": key, "tool": flags.tool, "arguments": arguments});
    let answer = caller.call(&body, &token).await.map_err(|failure| match failure {
        Lost::Known(failure) => failure,
        Lost::Unknown(error) => Failure::failed(format!("the answer of the call was lost: {error}"))
            .hint(format!("the same command with `--run` and `--key {key}` gets its outcome; nothing is sent twice")),
    })?;
    let images = Images { file: flags.image.as_deref(), folder: wiring.temporary_folder() };
    print(&answer, &images, output)
}

/// What a call is answered with (contract.md 3).
#[derive(Debug, Deserialize, Serialize)]
struct Answered {
    id: String,
    execution: String,
    outcome: Option<String>,
    observation: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    images: Vec<Image>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Image {
    artifact: String,
    mime: String,
    #[serde(skip_serializing)]
    data: String,
    #[serde(default)]
    file: Option<PathBuf>,
}

#[derive(Deserialize)]
struct OpenedRun {
    run_id: String,
    run_token: String,
}

/// Why there is no answer.
enum Lost {
    /// Nothing happened, or what happened was said.
    Known(Failure),
    /// The call may have been made.
    Unknown(ClientError),
}

struct Caller<'a> {
    client: &'a Client,
    server: &'a Url,
}

impl Caller<'_> {
    async fn open_run(&self, environment: &Environment, states: &StateFolder, output: Output) -> Result<Secret, Failure> {
        let token = environment.variable("FORMATION_TOKEN").map(secret).ok_or_else(|| {
            Failure::usage("`FORMATION_TOKEN` holds no agent token").hint("`formation agent token SLUG` makes one")
        })?;
        let body = json!({});
        let request = Request::post("/v1/runs", &body).with_token(&token);
        let reply = self.client.send(request, REPLY_BYTES, WAIT).await.map_err(|error| self.unreachable(error))?;
        if !(200..300).contains(&reply.status) {
            return Err(self.problem(&reply));
        }
        let opened: OpenedRun = reply.json().map_err(|error| Failure::failed(format!("`{}`: {error}", self.server)))?;
        let run = RunId::parse(&opened.run_id).map_err(|_| Failure::failed(format!("`{}` answered no run id", self.server)))?;
        states.keep(run, self.server, &opened.run_token)?;
        output.remark(&format!("run {run}"));
        Ok(secret(opened.run_token))
    }

    async fn call(&self, body: &Value, token: &Secret) -> Result<Answered, Lost> {
        let until = Instant::now() + WAIT;
        let mut sent = self.client.send(Request::post("/v1/run/tool-calls", body).with_token(token), REPLY_BYTES, WAIT).await;
        loop {
            let reply = match sent {
                Ok(reply) => reply,
                Err(error @ ClientError::NotConnected) => return Err(Lost::Known(self.unreachable(error))),
                Err(error) => return Err(Lost::Unknown(error)),
            };
            match reply.status {
                200 => return reply.json().map_err(Lost::Unknown),
                202 if Instant::now() < until => {
                    tokio::time::sleep(POLL).await;
                    // The key is on record, so this asks for the outcome and starts nothing.
                    sent = self.client.send(Request::post("/v1/run/tool-calls", body).with_token(token), REPLY_BYTES, WAIT).await;
                }
                202 => return Err(Lost::Unknown(ClientError::Late)),
                _ => return Err(Lost::Known(self.problem(&reply))),
            }
        }
    }

    fn unreachable(&self, error: ClientError) -> Failure {
        Failure::failed(format!("`{}` can't be called: {error}", self.server))
            .hint("is a server running there? `formation serve` starts one, `--server` names another")
    }

    /// A problem document of ours, or whatever else is listening there.
    fn problem(&self, reply: &Reply) -> Failure {
        #[derive(Deserialize)]
        struct Problem {
            code: String,
            title: String,
            #[serde(default)]
            detail: Option<String>,
        }
        let Ok(problem) = reply.json::<Problem>() else {
            return Failure::failed(format!("`{}` answered with status {}", self.server, reply.status));
        };
        let detail = problem.detail.map(|detail| format!(": {}", shown(&detail, 300))).unwrap_or_default();
        let failure = Failure::failed(format!("{}{detail} (`{}`)", shown(&problem.title, 100), shown(&problem.code, 40)));
        match problem.code.as_str() {
            "unauthenticated" => failure.hint("`formation agent token SLUG` makes an agent token for `FORMATION_TOKEN`"),
            "store_unavailable" => failure.hint("nothing was sent; try again when the database answers"),
            _ => failure,
        }
    }
}

/// Where run tokens wait for the next command with `--run`.
struct StateFolder(PathBuf);

#[derive(Serialize, Deserialize)]
struct KeptRun {
    server: Url,
    token: String,
}

impl StateFolder {
    fn of(environment: &Environment) -> Result<Self, Failure> {
        let state = environment.variable("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.or_else(|| environment.variable("HOME").map(|home| Path::new(&home).join(".local/state")));
        match state.filter(|path| path.is_absolute()) {
            Some(path) => Ok(Self(path.join("formation/runs"))),
            None => Err(Failure::failed("there is no folder for run tokens: neither `XDG_STATE_HOME` nor `HOME` names one")
                .hint("give the run's token in `FORMATION_RUN_TOKEN`")),
        }
    }

    fn keep(&self, run: RunId, server: &Url, token: &str) -> Result<(), Failure> {
        let kept = json!(KeptRun { server: server.clone(), token: token.to_owned() }).to_string();
        let written = fs::create_dir_all(&self.0).and_then(|()| create_private(&self.0.join(run.to_string()), kept.as_bytes()));
        written.map_err(|error| Failure::failed(format!("the run's token can't be kept in `{}`: {error}", self.0.display())))
    }

    /// A token goes to the server that made it and to no other.
    fn token(&self, run: RunId, server: &Url) -> Result<Secret, Failure> {
        let kept = fs::read(self.0.join(run.to_string())).ok().and_then(|bytes| serde_json::from_slice::<KeptRun>(&bytes).ok());
        let kept = kept.ok_or_else(|| {
            Failure::failed(format!("no token of run `{run}` is kept here")).hint("give it in `FORMATION_RUN_TOKEN`")
        })?;
        if kept.server != *server {
            return Err(Failure::usage(format!("run `{run}` belongs to `{}`", kept.server))
                .hint(format!("name it with `--server {}`", kept.server)));
        }
        Ok(secret(kept.token))
    }
}

fn arguments(text: &str) -> Result<Value, Failure> {
    let mut input = String::new();
    let text = if text == "-" {
        let read = io::stdin().lock().take(ARGUMENT_BYTES + 1).read_to_string(&mut input);
        read.map_err(|error| Failure::failed(format!("standard input can't be read: {error}")))?;
        if input.len() as u64 > ARGUMENT_BYTES {
            return Err(Failure::usage("the arguments are larger than the 64 KiB a server takes"));
        }
        &input
    } else {
        text
    };
    match serde_json::from_str(text) {
        Ok(arguments @ Value::Object(_)) => Ok(arguments),
        _ => Err(Failure::usage("the arguments are a JSON object, such as `{\"url\":\"http://hello.formation.test/\"}`")),
    }
}

fn print(answer: &Answered, images: &Images<'_>, output: Output) -> Result<(), Failure> {
    let mut saved = Vec::new();
    for image in &answer.images {
        saved.push(Image {
            artifact: image.artifact.clone(),
            mime: image.mime.clone(),
            data: String::new(),
            file: Some(images.save(image)?),
        });
    }
    let shown = Answered {
        id: answer.id.clone(),
        execution: answer.execution.clone(),
        outcome: answer.outcome.clone(),
        observation: answer.observation.clone(),
        problem: answer.problem.clone(),
        images: saved,
    };
    output.answer(&shown, || readable(&shown))?;
    let is_error = answer.observation.as_ref().is_none_or(|observation| observation["is_error"] == Value::Bool(true));
    if is_error { Err(Failure::Answered) } else { Ok(()) }
}

/// Where screenshots go.
struct Images<'a> {
    file: Option<&'a Path>,
    folder: PathBuf,
}

impl Images<'_> {
    /// In a new file that nobody else can read; a repeated call finds its own picture there already.
    fn save(&self, image: &Image) -> Result<PathBuf, Failure> {
        let name: String = image.artifact.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
        let path = self.file.map_or_else(|| self.folder.join(format!("formation-{name}.jpg")), Path::to_owned);
        let bytes = base64(&image.data).ok_or_else(|| Failure::failed("the screenshot is not in Base64"))?;
        match create_private(&path, &bytes) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::read(&path).is_ok_and(|there| there == bytes) => {
                Ok(path)
            }
            Err(error) => Err(Failure::failed(format!("the screenshot can't be saved as `{}`: {error}", path.display()))
                .hint("name a new file with `--image`")),
            Ok(()) => Ok(path),
        }
    }
}

/// What a person wants to see: how it ended, the page, its text, its controls.
fn readable(answer: &Answered) -> String {
    let outcome = answer.outcome.as_deref().map(|outcome| format!(", {outcome}")).unwrap_or_default();
    let mut lines = vec![format!("call {}: {}{outcome}", answer.id, answer.execution)];
    lines.extend(answer.problem.as_ref().map(|problem| format!("problem: {}", word(problem))));
    if let Some(observation) = &answer.observation {
        describe(observation, &mut lines);
    }
    let files = answer.images.iter().filter_map(|image| image.file.as_deref());
    lines.extend(files.map(|file| format!("screenshot: {}", file.display())));
    lines.join("\n")
}

fn describe(observation: &Value, lines: &mut Vec<String>) {
    if let Some(refusal) = observation.get("refusal") {
        lines.push(format!("refused: {} (`{}`)", word(&refusal["explanation"]), word(&refusal["reason"])));
    }
    if let Some(failure) = observation.get("browser_failure") {
        let [stage, phase, reason, recovery] = ["stage", "phase", "reason", "recovery"].map(|name| word(&failure[name]));
        lines.push(format!("failed: `{reason}` at {stage}/{phase}; recovery: {recovery}"));
    }
    if let Some(page) = observation.get("page") {
        lines.extend([String::new(), word(&page["title"]), word(&page["url"])]);
    }
    if let Some(content) = observation.get("text").and_then(Value::as_str).filter(|content| !content.is_empty()) {
        lines.push(String::new());
        lines.extend(content.lines().map(|line| shown(line, usize::MAX)));
    }
    if let Some(controls) = observation.get("controls").and_then(Value::as_array).filter(|controls| !controls.is_empty()) {
        let row = |control: &Value| vec![word(&control["ref"]), word(&control["role"]), word(&control["name"])];
        let rows: Vec<_> = controls.iter().map(row).collect();
        lines.extend([String::new(), table(&["REF", "ROLE", "NAME"], &rows).trim_end().to_owned()]);
    }
}

/// A value of an answer on one line.
fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => shown(text, 300),
        other => shown(&other.to_string(), 300),
    }
}

fn secret(text: String) -> Secret {
    Secret::new(text.into_bytes())
}

fn base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
