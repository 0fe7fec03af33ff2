//! What anybody may ask: what this is, whether it lives, whether it can work, and what it speaks.

use std::sync::LazyLock;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use formation_core::refusal::Code;
use http::{HeaderValue, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
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
pub(crate) async fn ready(State(doors): State<Doors>) -> Result<Json<Status>, Problem> {
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
