//! A plain HTTP client of the server under test: what was answered, whole, whatever the status.

use std::time::Duration;

use anyhow::{Context, ensure};
use http::{HeaderMap, Method};
use serde_json::{Value, json};

/// Longest wait for an answer: one operation from its turn and the turn itself, and a busy machine.
const ANSWER: Duration = Duration::from_mins(2);

/// A client with one bearer token, or none.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

impl Client {
    /// A client of the server at `url` that has no token. Each request has a connection of its own.
    pub fn new(url: &str) -> Self {
        Self::pooled(url, 0)
    }

    /// The same with connections that are kept, as clients of the product do.
    pub fn kept_alive(url: &str) -> Self {
        Self::pooled(url, 64)
    }

    fn pooled(url: &str, idle: usize) -> Self {
        formation_wire::install_tls_provider();
        #[expect(clippy::disallowed_methods, reason = "the test is the client, and its server is on loopback")]
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER)
            .pool_max_idle_per_host(idle)
            .build()
            .expect("a client without options of the machine can be made");
        Self { http, url: url.trim_end_matches('/').to_owned(), token: None }
    }

    /// The same client with a bearer token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Its token.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The server's address, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A request that the caller finishes and gives to [`send`].
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> anyhow::Result<Reply> {
        send(self.request(Method::GET, path)).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> anyhow::Result<Reply> {
        send(self.request(Method::DELETE, path)).await
    }

    /// POST of a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Reply> {
        send(self.request(Method::POST, path).json(body)).await
    }

    /// Opens a run with `body` and answers a client with the run's token.
    pub async fn open_run(&self, body: &Value) -> anyhow::Result<Run> {
        let opened = self.post("/v1/runs", body).await?;
        ensure!(opened.status == 200, "no run was opened: {opened:?}");
        let opened = opened.json();
        let id = opened["run_id"].as_str().context("a run has an id")?.to_owned();
        let token = opened["run_token"].as_str().context("a run has a token")?;
        Ok(Run { id, client: self.with_token(token) })
    }
}

/// Sends a request and reads the answer whole.
pub async fn send(request: reqwest::RequestBuilder) -> anyhow::Result<Reply> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let body = response.bytes().await?.to_vec();
    Ok(Reply { status, headers, body })
}

/// An answer.
#[derive(Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The body, as it came.
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as JSON; null when it isn't.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// A problem's `code`; empty without one.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// A header as text; empty without it.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {}", self.status, body.chars().take(2_000).collect::<String>())
    }
}

/// A run of the run API, by its own token.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its id.
    pub id: String,
    /// A client with the run's token.
    pub client: Client,
}

impl Run {
    /// One call and its answer; `key` is the caller's own id for it.
    pub async fn call(&self, key: Option<&str>, tool: &str, arguments: &Value) -> anyhow::Result<Reply> {
        let mut body = json!({"tool": tool, "arguments": arguments});
        if let Some(key) = key {
            body["id"] = json!(key);
        }
        self.client.post("/v1/run/tool-calls", &body).await
    }

    /// A call that must be answered 200 with outcome `ok`; its observation.
    pub async fn does(&self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        let reply = self.call(None, tool, arguments).await?;
        let mut settled = reply.json();
        ensure!(reply.status == 200 && settled["outcome"] == "ok", "{tool} {arguments}: {reply:?}");
        Ok(settled["observation"].take())
    }

    /// Ends the run.
    pub async fn finish(&self) -> anyhow::Result<()> {
        let reply = self.client.post("/v1/run/finish", &json!({})).await?;
        ensure!(reply.status == 204, "the run does not end: {reply:?}");
        Ok(())
    }
}

/// The ref of the control called `name` in an observation.
pub fn reference(observation: &Value, name: &str) -> anyhow::Result<String> {
    let controls = observation["controls"].as_array().context("an observation has controls")?;
    let control = controls.iter().find(|control| control["name"] == name);
    let control = control.with_context(|| format!("no control is called `{name}`: {controls:?}"))?;
    Ok(control["ref"].as_str().context("a control has a ref")?.to_owned())
}
