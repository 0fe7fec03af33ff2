//! What anybody may ask: what this is, whether it lives, whether it can work, and what it speaks. And what an owner may: what was
//! tried, and what to do about what doesn't work.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use axum::{
    Json, extract,
    response::{IntoResponse, Response},
};
use formation_core::{refusal::Code, words};
use futures::future::BoxFuture;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use crate::{
    auth::InstallOwner,
    problem::{Document, Problem},
    routes::{self, Doors},
};

/// A state in one word.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// `ok`.
    status: &'static str,
}

/// Says what runs here and where its doors are.
#[utoipa::path(get, path = "/", tag = "server", responses((status = 200, description = "A few lines of text", content_type = "text/plain")))]
pub(crate) async fn front_page() -> &'static str {
    concat!(
        "Formation ",
        env!("CARGO_PKG_VERSION"),
        "\n\nA server between AI agents and the outside: one ledger, one browser a run.\n\n\
         /mcp               MCP over streamable HTTP, with an agent or run token as Bearer\n\
         /v1/runs           runs and tool calls for a harness of one's own\n\
         /api/openapi.json  both, described\n\
         /healthz, /readyz  whether it lives, whether it can work\n"
    )
}

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, description = "It does", body = Status)))]
pub(crate) async fn alive() -> Json<Status> {
    Json(Status { status: "ok" })
}

/// Whether it can work: the database answers and is migrated.
#[utoipa::path(get, path = "/readyz", tag = "server", responses(
    (status = 200, description = "It can", body = Status),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn ready(extract::State(doors): extract::State<Doors>) -> Result<Json<Status>, Problem> {
    if doors.runtime.is_ready().await {
        Ok(Json(Status { status: "ok" }))
    } else {
        Err(Problem::new(Code::StoreUnavailable).retry_after(5))
    }
}

/// This document.
#[utoipa::path(get, path = "/api/openapi.json", tag = "server", responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub(crate) async fn openapi_document() -> Response {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| routes::openapi().to_json().expect("the document is made of strings and can be written"));
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], TEXT.as_str()).into_response()
}

words! {
    /// How a thing stands.
    pub enum State {
        /// Works.
        Ok = "ok",
        /// Works, and could be better.
        Note = "note",
        /// Keeps the server, or a part of it, from working.
        Broken = "broken",
    }
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = HealthCheck)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// `ok`, `note` (works, and could be better) or `broken`.
    #[schema(value_type = String)]
    pub state: State,
    /// What was found, in a sentence of ours.
    pub says: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Health)]
pub struct Report {
    /// Nothing is broken.
    pub ok: bool,
    /// Each thing.
    pub checks: Vec<Check>,
}

impl Report {
    /// Of these checks.
    pub fn of(checks: Vec<Check>) -> Self {
        Self { ok: checks.iter().all(|check| check.state != State::Broken), checks }
    }
}

/// What can be tried: the binary's to say, which alone knows the machine. One at a time: some of it starts a program.
#[derive(Clone)]
pub struct Checks(Arc<Mutex<Try>>);

type Try = Box<dyn Fn() -> BoxFuture<'static, Report> + Send + Sync>;

impl Checks {
    /// Runs `each` when an owner asks.
    pub fn new(each: impl Fn() -> BoxFuture<'static, Report> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(each))))
    }

    /// Nothing to try.
    pub fn none() -> Self {
        Self::new(|| Box::pin(async { Report::of(Vec::new()) }))
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checks")
    }
}

/// What `formation doctor` prints: what works, tried now, and what to do about what doesn't. It may take some seconds.
#[utoipa::path(get, path = "/api/health", tag = "server", operation_id = "health.read",
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "What was tried; `ok` says whether all of it works", body = Report),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn checked(_: InstallOwner, extract::State(doors): extract::State<Doors>) -> Json<Report> {
    let each = doors.checks.0.lock().await;
    Json(each().await)
}
