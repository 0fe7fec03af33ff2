//! What stands in front of rmcp: the token, the body guard, the session row, and the methods rmcp doesn't have.
//!
//! | | legacy | 2026-07-28 |
//! |---|---|---|
//! | `initialize` | opens a session, `Mcp-Session-Id` goes back | – |
//! | POST | the session's row, else 400 or 404; a run token needs none | `Formation-Run` or the token's current run |
//! | GET | the stream of notices | 405 |
//! | DELETE | ends the session and its run, 204 (the Python client takes 202 for a failure) | 405 |

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use formation_core::{McpSessionId, limits, refusal::Code};
use formation_runtime::{Caller, OfferWatch, Runtime, Which};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use rmcp::{
    model::{ErrorCode, RequestId},
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    era::{self, Era},
    handler::{DATABASE_CLOSED, Handler},
    inflight::{InFlight, Key},
    notices, patient,
    seats::Seats,
};
use crate::{
    auth::AnyCaller,
    door::Door,
    guard,
    problem::{Document, Problem},
    routes::Doors,
    run_api::is_caller_word,
    server::{ServerConfig, Timers},
};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const RUN: HeaderName = HeaderName::from_static("formation-run");
const CONVERSATION: HeaderName = HeaderName::from_static("formation-conversation");

/// rmcp behind what is ours. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    service: StreamableHttpService<Handler, NeverSessionManager>,
    calls: InFlight,
    seats: Seats,
    closing: CancellationToken,
    timers: Timers,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

/// What the gate found out about a request; the handler reads it from the request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Entered {
    pub(super) caller: Caller,
    pub(super) era: Era,
    /// Which of an agent token's runs; of no meaning with a run token.
    pub(super) which: Which,
    pub(super) conversation: Option<String>,
    /// Set by `initialize`, told in the answer's header.
    pub(super) opened: Arc<OnceLock<McpSessionId>>,
    /// What a subscription watches: made before it is acknowledged, so that no change in between is missed.
    pub(super) watch: Option<OfferWatch>,
}

impl Entered {
    /// Names a request of this caller, for a cancel that comes in another request.
    pub(super) fn key(&self, request: RequestId) -> Key {
        let session = if let Which::Session(id) = &self.which { id.to_string() } else { String::new() };
        Key { token: self.caller.token(), session, request }
    }
}

impl Gate {
    /// Streams end when `closing` is cancelled.
    pub(crate) fn new(runtime: Runtime, config: &ServerConfig, closing: CancellationToken) -> Self {
        let door = Door::new(config);
        let (calls, seats) = (InFlight::default(), Seats::default());
        let handler = Handler::new(runtime, calls.clone(), seats.clone(), closing.clone());
        let settings = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_keep_alive(Some(config.timers.keep_alive))
            .with_max_request_body_bytes(limits::BODY_BYTES)
            // The door has judged both already; this is the second fence.
            .with_allowed_hosts(door.host_names())
            .with_allowed_origins(door.origins())
            .enforce_origin_validation();
        let service = StreamableHttpService::new(move || Ok(handler.clone()), Arc::default(), settings);
        Self { service, calls, seats, closing, timers: config.timers }
    }

    async fn ask(self, request: Request) -> Response {
        let asked = tower::ServiceExt::oneshot(self.service, request);
        let answered: Result<_, Infallible> = asked.await;
        match answered {
            Ok(response) => plain_errors_as_problems(response.map(Body::new)),
            Err(never) => match never {},
        }
    }
}

/// One JSON-RPC message, in either revision.
///
/// Answers with JSON, or with an event stream when the call takes long.
#[utoipa::path(post, path = "/mcp", tag = "mcp", security(("agent_token" = []), ("run_token" = [])), request_body = Object, params(
    ("Mcp-Session-Id" = Option<String>, Header, description = "Legacy revisions: what `initialize` answered with"),
    ("Formation-Run" = Option<String>, Header, description = "2026-07-28: the client's own word for its run, at most 64 of `A-Za-z0-9._-`"),
    ("Formation-Conversation" = Option<String>, Header, description = "The conversation of a run that this request opens, at most 128 of `A-Za-z0-9._:-`"),
), responses(
    (status = 200, description = "A JSON-RPC answer, or a stream that ends with one; a database that does not answer is −32603", content_type = "application/json"),
    (status = 202, description = "A notification was taken"),
    (status = 404, description = "The session is over: initialize anew", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`: nothing was sent", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn post(
    caller: Result<AnyCaller, Problem>,
    State(doors): State<Doors>,
    request: Request,
) -> Result<Response, Problem> {
    let gate = doors.mcp;
    let caller = caller.map(|AnyCaller(caller)| caller);
    if let Err(problem) = &caller
        && problem.code() != Code::StoreUnavailable
    {
        return Err(problem.clone());
    }
    let (mut parts, bytes, message) = taken_apart(request, gate.timers).await?;
    if !message.is_object() {
        return Err(Problem::new(Code::InvalidBody).detail("Send one JSON-RPC message, an object; batches do not exist."));
    }
    let entered = match enter(&doors.runtime, caller, &parts.headers, &message).await {
        Ok(entered) => entered,
        Err(problem) if problem.code() == Code::StoreUnavailable => return closed(problem, &message),
        Err(problem) => return Err(problem),
    };
    if message["method"] == "notifications/cancelled" {
        // rmcp takes every notification and drops it: a request has a handler of its own, and this one isn't it.
        if let Ok(request) = serde_json::from_value(message["params"]["requestId"].clone()) {
            gate.calls.cancel(&entered.key(request));
        }
    }
    let opened = Arc::clone(&entered.opened);
    parts.extensions.insert(entered);
    let timers = gate.timers;
    let asked = gate.ask(Request::from_parts(parts, Body::from(bytes)));
    if message["method"] != "initialize" {
        return Ok(patient::answer(Box::pin(asked), timers).await);
    }
    // Its answer is waited for: the session's id goes in a header.
    let mut response = asked.await;
    if let Some(session) = opened.get()
        && let Ok(value) = HeaderValue::from_str(&session.to_string())
    {
        response.headers_mut().insert(SESSION, value);
    }
    Ok(response)
}

/// The stream of notices of a legacy session.
#[utoipa::path(get, path = "/mcp", tag = "mcp", security(("agent_token" = []), ("run_token" = [])), params(
    ("Mcp-Session-Id" = Option<String>, Header, description = "What `initialize` answered with; a run token needs none"),
), responses(
    (status = 200, description = "`notifications/tools/list_changed` each time the grants change", content_type = "text/event-stream"),
    (status = 405, description = "The revision 2026-07-28 has no such stream: `subscriptions/listen`", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn get(AnyCaller(caller): AnyCaller, State(doors): State<Doors>, headers: HeaderMap) -> Result<Response, Problem> {
    if era::of_headers(&headers) == Era::Modern {
        return Err(post_only());
    }
    let session = session_of(&doors.runtime, &caller, &headers).await?;
    if !accepts_events(&headers) {
        let problem = Problem::new(Code::UnsupportedMediaType).with_status(StatusCode::NOT_ACCEPTABLE);
        return Err(problem.detail("This is a stream: accept `text/event-stream`."));
    }
    let seat = doors.mcp.seats.take(caller.token()).ok_or_else(|| {
        Problem::new(Code::RateLimited).detail(format!("A token holds at most {} streams at once.", Seats::PER_TOKEN))
    })?;
    let watch = doors.runtime.watch_offers(caller.clone()).await?;
    Ok(notices::stream(doors.runtime, caller, watch, session, doors.mcp.closing, doors.mcp.timers.keep_alive, seat))
}

/// Ends a legacy session and its run. A run token has no session to end.
#[utoipa::path(delete, path = "/mcp", tag = "mcp", security(("agent_token" = []), ("run_token" = [])), params(
    ("Mcp-Session-Id" = Option<String>, Header, description = "What `initialize` answered with"),
), responses(
    (status = 204, description = "It is over"),
    (status = 405, description = "The revision 2026-07-28 has no sessions", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn delete(
    AnyCaller(caller): AnyCaller,
    State(doors): State<Doors>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    if era::of_headers(&headers) == Era::Modern {
        return Err(post_only());
    }
    if let Some(session) = session_of(&doors.runtime, &caller, &headers).await? {
        doors.runtime.end_mcp_session(&caller, session).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Finds out which run a message is for.
async fn enter(
    runtime: &Runtime,
    caller: Result<Caller, Problem>,
    headers: &HeaderMap,
    message: &Value,
) -> Result<Entered, Problem> {
    let caller = caller?;
    let era = era::of_message(headers, message);
    let which = match (&caller, era) {
        (Caller::Run { .. }, _) => Which::Current,
        (Caller::Agent { .. }, Era::Modern) => named_run(headers)?,
        (Caller::Agent { .. }, Era::Legacy) if message["method"] == "initialize" => Which::Current,
        (Caller::Agent { .. }, Era::Legacy) => Which::Session(known_session(runtime, &caller, headers).await?),
    };
    let watch = match message["method"].as_str() {
        Some("subscriptions/listen") => Some(runtime.watch_offers(caller.clone()).await?),
        _ => None,
    };
    Ok(Entered { caller, era, which, conversation: conversation(headers)?, opened: Arc::default(), watch })
}

/// A request on a closed database gets its answer in JSON-RPC, which clients show; what has no answer gets the problem.
fn closed(problem: Problem, message: &Value) -> Result<Response, Problem> {
    let id = &message["id"];
    if !(id.is_string() || id.is_number()) {
        return Err(problem);
    }
    let error = json!({"code": ErrorCode::INTERNAL_ERROR.0, "message": DATABASE_CLOSED});
    Ok(Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response())
}

async fn taken_apart(request: Request, timers: Timers) -> Result<(Parts, bytes::Bytes, Value), Problem> {
    let (parts, body) = request.into_parts();
    let mut carrier = http::Request::new(body);
    carrier.headers_mut().clone_from(&parts.headers);
    let (bytes, message) = guard::json(carrier, timers.body, limits::BODY_BYTES).await?;
    Ok((parts, bytes, message))
}

/// A session of the agent's token, or none with a run token.
async fn session_of(runtime: &Runtime, caller: &Caller, headers: &HeaderMap) -> Result<Option<McpSessionId>, Problem> {
    match caller {
        Caller::Run { .. } => Ok(None),
        Caller::Agent { .. } => known_session(runtime, caller, headers).await.map(Some),
    }
}

/// The session of the header. Foreign, unknown, ended and nonsense are one 404, upon which a client initializes anew.
async fn known_session(runtime: &Runtime, caller: &Caller, headers: &HeaderMap) -> Result<McpSessionId, Problem> {
    let Some(value) = headers.get(SESSION) else {
        let problem = Problem::new(Code::MalformedId);
        return Err(problem.detail("Send `Mcp-Session-Id` as `initialize` answered it, or speak 2026-07-28."));
    };
    let over = || Problem::new(Code::NotFound).detail("This session is over: initialize anew.");
    let id = value.to_str().ok().and_then(|text| McpSessionId::parse(text).ok()).ok_or_else(over)?;
    if runtime.has_mcp_session(caller, id).await? { Ok(id) } else { Err(over()) }
}

/// The client's own word for its run, or the token's current one.
fn named_run(headers: &HeaderMap) -> Result<Which, Problem> {
    let Some(word) = one_word(headers, &RUN)? else { return Ok(Which::Current) };
    let is_word = (1..=limits::RUN_WORD_BYTES).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if is_word { Ok(Which::Named(word)) } else { Err(not_a_word(&RUN)) }
}

/// The caller's word for the conversation of a run it may open.
fn conversation(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    match one_word(headers, &CONVERSATION)? {
        Some(word) if !is_caller_word(&word) => Err(not_a_word(&CONVERSATION)),
        word => Ok(word),
    }
}

fn one_word(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(|word| Some(word.to_owned())).map_err(|_| not_a_word(name)),
        (Some(_), Some(_)) => Err(not_a_word(name)),
    }
}

fn not_a_word(name: &HeaderName) -> Problem {
    Problem::new(Code::InvalidValue)
        .field(name.as_str())
        .detail("Letters, digits and a few marks, not too long: see the API's description.")
}

fn accepts_events(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).any(|text| text.contains("text/event-stream"))
}

fn post_only() -> Problem {
    Problem::new(Code::MethodNotAllowed).detail("The revision 2026-07-28 has POST only.").allowing("POST")
}

/// rmcp words some refusals in plain text; ours keep one shape. JSON-RPC answers and streams pass as they are.
fn plain_errors_as_problems(response: Response) -> Response {
    let status = response.status();
    let is_protocol = patient::has_media(&response, b"application/json") || patient::has_media(&response, b"text/event-stream");
    if is_protocol || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let problem = match status {
        StatusCode::NOT_ACCEPTABLE => Problem::new(Code::UnsupportedMediaType)
            .with_status(status)
            .detail("Accept both `application/json` and `text/event-stream`."),
        StatusCode::BAD_REQUEST => {
            Problem::new(Code::InvalidValue).with_status(status).detail("`MCP-Protocol-Version` names no revision known here.")
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Problem::new(Code::InvalidBody).detail("This is not a JSON-RPC message of MCP."),
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(Code::TooLarge),
        StatusCode::FORBIDDEN => Problem::new(Code::Forbidden),
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(Code::MethodNotAllowed),
        _ => Problem::new(Code::Internal),
    };
    problem.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), HeaderValue::from_str(value).expect("a header value"));
        }
        headers
    }

    #[test]
    fn the_client_s_words_are_bounded() {
        assert_eq!(named_run(&HeaderMap::new()).expect("none is fine"), Which::Current);
        assert_eq!(named_run(&headers(&RUN, &["a.B-1_"])).expect("a word"), Which::Named("a.B-1_".into()));
        let long = "a".repeat(65);
        for bad in [&[""][..], &["a b"], &["a:b"], &[&long], &["a", "a"]] {
            assert!(named_run(&headers(&RUN, bad)).is_err(), "{bad:?}");
        }
        assert_eq!(conversation(&headers(&CONVERSATION, &["a:b"])).expect("a word").as_deref(), Some("a:b"));
        assert!(conversation(&headers(&CONVERSATION, &["a/b"])).is_err());
    }
}
