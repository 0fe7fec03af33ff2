//! A run's trace: the ledger in order, and what an operator says about a call nobody can be sure of.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use formation_core::{
    ArtifactId, CallId, Class, Execution, Observation, OfferId, Outcome, Timestamp, Tool,
    call::{self, Finding},
    refusal::Code,
};
use formation_runtime::oversight::{NotReconciled, TraceEntry};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{
    auth::RunManager,
    guard::Body,
    list::{List, Query},
    problem::{Document, Problem},
    routes::Doors,
};

/// A call, as the ledger has it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TracedCall)]
pub(crate) struct Shown {
    /// Its place in the run, from 1.
    number: u64,
    /// Its id.
    #[schema(value_type = String)]
    id: CallId,
    /// The caller's own word for it.
    #[schema(required)]
    key: Option<String>,
    /// The tool.
    #[schema(value_type = String)]
    tool: Tool,
    /// `read` or `external_effect`.
    #[schema(value_type = String)]
    class: Class,
    /// The offer it stood on.
    #[schema(value_type = Option<String>, required)]
    offer: Option<OfferId>,
    /// As they came.
    #[schema(value_type = Object)]
    arguments: Value,
    /// `queued`, `admitted`, `dispatched`, `succeeded`, `failed` or `refused`.
    #[schema(value_type = String)]
    execution: Execution,
    /// `ok`, `failed`, `not_dispatched`, `input_dispatched`, `uncertain`, `interrupted` or `withheld`.
    #[schema(value_type = Option<String>, required)]
    outcome: Option<Outcome>,
    /// Why nobody finished it.
    #[schema(value_type = Option<String>, required)]
    problem: Option<Code>,
    /// What was answered.
    #[schema(value_type = Option<Object>, required)]
    observation: Option<Observation>,
    /// Refused with `needs_reconciliation`: the number of the call that nobody had settled.
    #[schema(required)]
    caused_by: Option<u64>,
    /// When it came.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was admitted.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    admitted_at: Option<Timestamp>,
    /// When the first byte of an effect was about to leave.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    dispatched_at: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    settled_at: Option<Timestamp>,
    /// What an operator found out about an uncertain one: `took_effect` or `had_no_effect`.
    #[schema(value_type = Option<String>, required)]
    finding: Option<Finding>,
    /// When.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    found_at: Option<Timestamp>,
    /// Who.
    #[schema(required)]
    found_by: Option<String>,
    /// And what they wrote about it.
    #[schema(required)]
    note: Option<String>,
    /// Its screenshots.
    artifacts: Vec<Artifact>,
}

/// A screenshot.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TracedArtifact)]
pub(crate) struct Artifact {
    /// Its id.
    #[schema(value_type = String)]
    id: ArtifactId,
    /// Until when it is kept.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

impl From<TraceEntry> for Shown {
    fn from(entry: TraceEntry) -> Self {
        let artifacts = entry.artifact.into_iter().map(|(id, expires_at)| Artifact { id, expires_at });
        Self {
            number: entry.number,
            id: entry.call.id,
            key: entry.key,
            tool: entry.call.tool,
            class: entry.class,
            offer: entry.offer,
            arguments: entry.arguments,
            execution: entry.call.execution,
            outcome: entry.call.outcome,
            problem: entry.call.problem,
            observation: entry.call.observation,
            caused_by: entry.caused_by,
            created_at: entry.created_at,
            admitted_at: entry.admitted_at,
            dispatched_at: entry.dispatched_at,
            settled_at: entry.settled_at,
            finding: entry.finding,
            found_at: entry.found_at,
            found_by: entry.found_by,
            note: entry.note,
            artifacts: artifacts.collect(),
        }
    }
}

/// Where a page of a trace begins.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AfterCall {
    /// The last page's `next`: the number of a call.
    after: Option<u64>,
}

/// The run's calls in order, the first one first: what was asked, what became of it, when.
#[utoipa::path(get, path = "/api/runs/{id}/trace", tag = "oversight", operation_id = "run.trace", params(
    ("id" = String, Path, description = "The run's id"), AfterCall),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "A page of calls", body = List<Shown>),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn read(
    RunManager { run, .. }: RunManager,
    State(doors): State<Doors>,
    Query(query): Query<AfterCall>,
) -> Result<Json<List<Shown>>, Problem> {
    let page = doors.runtime.trace(run, query.after.unwrap_or(0)).await?;
    Ok(Json(List::of(page, |entry| entry.number.to_string())))
}

/// What became of an uncertain call.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Finding)]
#[serde(deny_unknown_fields)]
pub(crate) struct Found {
    /// `took_effect` or `had_no_effect`.
    finding: String,
    /// How you know: 1 to 2,000 bytes, no control characters but line breaks and tabs.
    #[schema(min_length = 1, max_length = 2000)]
    note: String,
}

/// Says what became of an uncertain call, once. Its outcome stays `uncertain`; the browser takes effects again.
#[utoipa::path(post, path = "/api/runs/{id}/tool-calls/{call}/reconcile", tag = "oversight", operation_id = "call.reconcile",
    request_body = Found, params(
    ("id" = String, Path, description = "The run's id"),
    ("call" = String, Path, description = "The call's id")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "The call with its finding", body = Shown),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = 409, description = "`already_settled`: what became of it is on record", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn reconcile(
    RunManager { actor, run, .. }: RunManager,
    State(doors): State<Doors>,
    path: Result<Path<(String, String)>, PathRejection>,
    Body(body): Body<Found>,
) -> Result<Json<Shown>, Problem> {
    let invalid = |field, detail: &'static str| Problem::new(Code::InvalidValue).field(field).detail(detail);
    let finding = Finding::parse(&body.finding).ok_or_else(|| invalid("finding", "`took_effect` or `had_no_effect`."))?;
    if !call::is_note(&body.note) {
        return Err(invalid("note", "1 to 2,000 bytes, no control characters but line breaks and tabs."));
    }
    let id = path.ok().and_then(|Path((_, call))| CallId::parse(&call).ok());
    let id = id.ok_or_else(|| Problem::new(Code::MalformedId))?;
    let reconciled = doors.runtime.reconcile(&actor, run, id, finding, body.note).await?;
    reconciled.map(|entry| Json(Shown::from(entry))).map_err(|reason| match reason {
        NotReconciled::NotFound => Problem::new(Code::NotFound),
        NotReconciled::AlreadySettled => Problem::new(Code::AlreadySettled).detail("There is a finding; the trace shows it."),
        NotReconciled::NotUncertain => {
            Problem::new(Code::AlreadySettled).detail("Only a call whose outcome is `uncertain` takes a finding.")
        }
    })
}
