//! A small MCP client over plain HTTP, both families of revisions, so that tests see headers and answers as they are.

use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::http::{Client, Reply, send};

/// The newest revision with sessions.
pub const LEGACY: &str = "2025-11-25";
/// The first one without.
pub const MODERN: &str = "2026-07-28";

/// Who is asking, and under which revision.
#[derive(Debug, Clone)]
pub struct Mcp {
    client: Client,
    kind: Kind,
    conversation: Option<String>,
}

#[derive(Debug, Clone)]
enum Kind {
    Legacy { session: Option<String> },
    Modern { run: Option<String> },
}

impl Mcp {
    /// `initialize` and `notifications/initialized` of revision 2025-11-25. A run token is given no session.
    pub async fn legacy(client: &Client) -> anyhow::Result<Self> {
        let mut this = Self { client: client.clone(), kind: Kind::Legacy { session: None }, conversation: None };
        let parameters = json!({
            "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "testkit", "version": "1"},
        });
        let reply = this.post("initialize", &parameters).await?;
        ensure!(reply.status == 200, "`initialize` was refused: {reply:?}");
        let session = Some(reply.header("mcp-session-id").to_owned()).filter(|session| !session.is_empty());
        this.kind = Kind::Legacy { session };
        let reply = this.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        ensure!(reply.status == 202, "`initialized` was refused: {reply:?}");
        Ok(this)
    }

    /// A client of revision 2026-07-28, with its own word for its run or without.
    pub fn modern(client: &Client, run: Option<&str>) -> Self {
        Self { client: client.clone(), kind: Kind::Modern { run: run.map(str::to_owned) }, conversation: None }
    }

    /// The same session or run, asked for with another token or on another server.
    pub fn through(&self, client: &Client) -> Self {
        Self { client: client.clone(), ..self.clone() }
    }

    /// The same, in a conversation by the caller's word.
    pub fn in_conversation(&self, word: &str) -> Self {
        Self { conversation: Some(word.to_owned()), ..self.clone() }
    }

    /// The session of a legacy client.
    pub fn session(&self) -> Option<&str> {
        match &self.kind {
            Kind::Legacy { session } => session.as_deref(),
            Kind::Modern { .. } => None,
        }
    }

    /// A request with id 1, answered as it is.
    pub async fn post(&self, method: &str, parameters: &Value) -> anyhow::Result<Reply> {
        let mut message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
        if matches!(self.kind, Kind::Modern { .. }) {
            let meta = &mut message["params"]["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "testkit", "version": "1"});
        }
        self.send(&message).await
    }

    /// One message, with the headers its revision asks for.
    pub async fn send(&self, message: &Value) -> anyhow::Result<Reply> {
        let request = self.request(Method::POST).header("accept", "application/json, text/event-stream");
        let request = match (&self.kind, message["method"].as_str()) {
            (Kind::Modern { .. }, Some(method)) => match message["params"]["name"].as_str() {
                Some(name) => request.header("mcp-method", method).header("mcp-name", name),
                None => request.header("mcp-method", method),
            },
            _ => request,
        };
        send(request.json(message)).await
    }

    /// A request to `/mcp` with everything but its body.
    pub fn request(&self, method: Method) -> reqwest::RequestBuilder {
        let mut request = self.client.request(method, "/mcp");
        let (version, header, word) = match &self.kind {
            Kind::Legacy { session } => (LEGACY, "mcp-session-id", session),
            Kind::Modern { run } => (MODERN, "formation-run", run),
        };
        request = request.header("mcp-protocol-version", version);
        if let Some(word) = word {
            request = request.header(header, word);
        }
        if let Some(word) = &self.conversation {
            request = request.header("formation-conversation", word);
        }
        request
    }

    /// `tools/list`: the names.
    pub async fn tools(&self) -> anyhow::Result<Vec<String>> {
        let reply = self.post("tools/list", &json!({})).await?;
        let message = message(&reply)?;
        let tools = message["result"]["tools"].as_array().with_context(|| format!("a list of tools: {message}"))?;
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect())
    }

    /// `tools/call`: the JSON of the result's text block.
    pub async fn call(&self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        self.call_as(None, tool, arguments).await
    }

    /// The same under the caller's own key.
    pub async fn call_as(&self, key: Option<&str>, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        let mut parameters = json!({"name": tool, "arguments": arguments});
        if let Some(key) = key {
            parameters["_meta"] = json!({"formation/tool_call_id": key});
        }
        let reply = self.post("tools/call", &parameters).await?;
        let message = message(&reply)?;
        let text = message["result"]["content"][0]["text"].as_str().with_context(|| format!("a result with a text: {message}"))?;
        let observation: Value = serde_json::from_str(text)?;
        ensure!(message["result"]["isError"] == observation["is_error"], "`isError` and `is_error` differ: {message}");
        Ok(observation)
    }

    /// Ends a legacy session.
    pub async fn delete(&self) -> anyhow::Result<Reply> {
        send(self.request(Method::DELETE)).await
    }
}

/// The JSON-RPC message of an answer: its body, or the last event of its stream.
pub fn message(reply: &Reply) -> anyhow::Result<Value> {
    if reply.header("content-type").starts_with("text/event-stream") {
        let text = std::str::from_utf8(&reply.body)?;
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).context("a stream with an event")?;
        return Ok(serde_json::from_str(last)?);
    }
    ensure!(reply.status == 200, "not a JSON-RPC answer: {reply:?}");
    Ok(serde_json::from_slice(&reply.body)?)
}
