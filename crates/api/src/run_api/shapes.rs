//! Bodies of the run API.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use formation_core::{
    ArtifactId, CallId, Class, Execution, Observation, OfferId, Outcome, RunId, Timestamp, Tool, limits, refusal::Code,
};
use formation_runtime::{Image, Offer, OpenRun, OpenedRun, StoredCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::DEADLINE_SECONDS;
use crate::problem::{self, Problem};

/// No fields.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// What a run is opened with; all of it may be left out.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OpenRun)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenRunBody {
    /// The caller's own word for the conversation, per agent, made at first use; without it the run has one of its own.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$")]
    conversation_id: Option<String>,
    /// How long the run may last.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 21600, default = 3600)]
    deadline_seconds: Option<u64>,
    /// How many calls it may record, refused ones included.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000, default = 200)]
    max_tool_calls: Option<i64>,
    /// `false` loads and saves no browser profile.
    #[serde(default)]
    #[schema(default = true)]
    browser_profile: Option<bool>,
}

impl TryFrom<OpenRunBody> for OpenRun {
    type Error = Problem;

    fn try_from(body: OpenRunBody) -> Result<Self, Problem> {
        if let Some(word) = &body.conversation_id {
            caller_word("conversation_id", word)?;
        }
        let seconds = body.deadline_seconds.unwrap_or(limits::RUN_DEADLINE_DEFAULT.as_secs());
        if !(1..=DEADLINE_SECONDS).contains(&seconds) {
            return Err(out_of_bounds("deadline_seconds", format!("1 to {DEADLINE_SECONDS} seconds.")));
        }
        let calls = body.max_tool_calls.unwrap_or(limits::MAX_TOOL_CALLS_DEFAULT);
        if !(1..=limits::MAX_TOOL_CALLS).contains(&calls) {
            return Err(out_of_bounds("max_tool_calls", format!("1 to {}.", limits::MAX_TOOL_CALLS)));
        }
        Ok(Self {
            conversation: body.conversation_id,
            deadline: Duration::from_secs(seconds),
            max_tool_calls: calls,
            browser_profile: body.browser_profile.unwrap_or(true),
        })
    }
}

/// A run that was opened.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Opened {
    /// Its id.
    #[schema(value_type = String)]
    run_id: RunId,
    /// Its token, shown this once.
    run_token: String,
    /// When it ends at the latest.
    #[schema(value_type = String, format = DateTime)]
    deadline: Timestamp,
}

impl From<OpenedRun> for Opened {
    fn from(opened: OpenedRun) -> Self {
        // The one place where a run's token is shown: to who opened the run.
        let run_token = String::from_utf8_lossy(opened.token.expose()).into_owned();
        Self { run_id: opened.run, run_token, deadline: opened.deadline }
    }
}

/// One tool on offer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OfferedTool)]
pub(crate) struct Listed {
    /// Its name.
    #[schema(value_type = String, example = "browser_read")]
    name: Tool,
    /// What it does, for the model.
    description: &'static str,
    /// JSON Schema of its arguments.
    #[schema(value_type = Object)]
    input_schema: Value,
    /// What it does to the world.
    annotations: Annotations,
    /// Name it in a call to be told when it has gone stale; absent once the run is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    offer: Option<OfferId>,
}

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = ToolAnnotations)]
pub(crate) struct Annotations {
    /// It changes nothing outside.
    pub(crate) read_only: bool,
    /// It can change something that can't be taken back.
    pub(crate) destructive: bool,
    /// It meets what nobody here wrote.
    pub(crate) open_world: bool,
}

impl Annotations {
    /// From the tool's class: all of today's tools meet the open web.
    pub(crate) const fn of(tool: Tool) -> Self {
        let read_only = matches!(tool.class(), Class::Read);
        Self { read_only, destructive: !read_only, open_world: true }
    }
}

impl From<&Offer> for Listed {
    fn from(offer: &Offer) -> Self {
        Self {
            name: offer.tool,
            description: offer.description(),
            input_schema: offer.input_schema(),
            annotations: Annotations::of(offer.tool),
            offer: offer.offer,
        }
    }
}

/// A call of a tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallTool {
    /// The caller's own word for this call, unique per agent: repeating it sends nothing twice.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._:-]+$")]
    pub(crate) id: Option<String>,
    /// The tool's name.
    #[schema(example = "browser_navigate")]
    pub(crate) tool: String,
    /// Its arguments.
    #[schema(value_type = Object)]
    pub(crate) arguments: Value,
    /// The offer it stands on; the run's newest of that tool without one.
    #[serde(default)]
    pub(crate) offer: Option<String>,
}

/// A call that has ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolCall)]
pub(crate) struct Settled {
    /// Our id of the call.
    #[schema(value_type = String)]
    id: CallId,
    /// How far its handler came: `succeeded`, `failed` or `refused`.
    #[schema(value_type = String)]
    execution: Execution,
    /// What became of the thing wanted; null for a refused call.
    #[schema(value_type = Option<String>)]
    outcome: Option<Outcome>,
    /// What the tool answered.
    #[schema(value_type = Option<Object>)]
    observation: Option<Observation>,
    /// Why nobody finished it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<CallProblem>,
    /// Its screenshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<[Picture; 1]>,
}

/// Why nobody finished a call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallProblem {
    /// The stable word: `cancelled`, `holder_gone`, `store_unavailable`.
    #[schema(value_type = String)]
    code: Code,
    /// What it means.
    title: &'static str,
}

impl CallProblem {
    /// With the sentence that belongs to the code.
    pub(crate) const fn of(code: Code) -> Self {
        Self { code, title: problem::title(code) }
    }
}

/// A screenshot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Picture {
    /// Where it can be read again for 24 hours.
    #[schema(value_type = String)]
    artifact: ArtifactId,
    /// `image/jpeg`.
    mime: &'static str,
    /// Base64.
    data: String,
}

impl Settled {
    /// The row and its picture.
    pub(crate) fn new(call: &StoredCall, image: Option<&Image>) -> Self {
        Self {
            id: call.id,
            execution: call.execution,
            outcome: call.outcome,
            observation: call.observation.clone(),
            problem: call.problem.map(CallProblem::of),
            images: image
                .map(|image| [Picture { artifact: image.artifact, mime: "image/jpeg", data: STANDARD.encode(&image.jpeg) }]),
        }
    }
}

/// A call that still runs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunningToolCall)]
pub(crate) struct Pending {
    /// Our id of the call.
    #[schema(value_type = String)]
    id: CallId,
}

impl Pending {
    /// By its id.
    pub(crate) const fn of(id: CallId) -> Self {
        Self { id }
    }
}

/// Whether `word` is one a caller may choose: 1 to 128 of `A-Za-z0-9._:-`.
pub(crate) fn is_caller_word(word: &str) -> bool {
    (1..=limits::CALLER_WORD_BYTES).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
}

/// The problem of a word that isn't.
pub(crate) fn caller_word(field: &str, word: &str) -> Result<(), Problem> {
    if is_caller_word(word) {
        return Ok(());
    }
    Err(out_of_bounds(field, format!("1 to {} of `A-Za-z0-9._:-`.", limits::CALLER_WORD_BYTES)))
}

fn out_of_bounds(field: &str, bounds: String) -> Problem {
    Problem::new(Code::InvalidValue).field(field).detail(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_field(body: &str) -> Option<Code> {
        let body: OpenRunBody = serde_json::from_str(body).expect("the shape fits");
        OpenRun::try_from(body).err().map(|problem| problem.code())
    }

    #[test]
    fn a_run_opens_with_the_contract_s_defaults_and_bounds() {
        let defaults = OpenRun::try_from(serde_json::from_str::<OpenRunBody>("{}").expect("JSON")).expect("defaults are good");
        let expected =
            OpenRun { conversation: None, deadline: Duration::from_hours(1), max_tool_calls: 200, browser_profile: true };
        assert_eq!(defaults, expected);
        for good in [r#"{"deadline_seconds":21600,"max_tool_calls":1000000}"#, r#"{"conversation_id":"a.B_c:1-2"}"#] {
            assert_eq!(refused_field(good), None, "{good}");
        }
        for bad in [
            r#"{"deadline_seconds":0}"#,
            r#"{"deadline_seconds":21601}"#,
            r#"{"max_tool_calls":0}"#,
            r#"{"max_tool_calls":1000001}"#,
            r#"{"conversation_id":""}"#,
            r#"{"conversation_id":"a b"}"#,
            r#"{"conversation_id":"é"}"#,
        ] {
            assert_eq!(refused_field(bad), Some(Code::InvalidValue), "{bad}");
        }
        assert!(is_caller_word(&"a".repeat(128)) && !is_caller_word(&"a".repeat(129)));
    }
}
