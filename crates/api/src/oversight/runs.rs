//! Runs, as operators see and end them.

use axum::{Json, extract::State};
use formation_core::{AgentId, ConversationId, RunId, Timestamp, refusal::Code};
use formation_runtime::oversight::{EndReason, Origin, RunFilter, RunState, RunSummary, SessionState};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::agent_named;
use crate::{
    auth::{Operator, RunManager},
    guard::Body,
    list::{List, Query, optional_id},
    people::Nothing,
    problem::{Document, Problem},
    routes::Doors,
};

/// A run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct Shown {
    /// Its id.
    #[schema(value_type = String)]
    id: RunId,
    /// Whose it is.
    agent: ShownAgent,
    /// What it belongs to.
    conversation: ShownConversation,
    /// `opened` by a harness, or `implicit` behind an MCP client's door.
    origin: &'static str,
    /// `running` or `over`.
    state: &'static str,
    /// `finished`, `deadline`, `idle`, `cancelled`, `session_ended` or `session_lost`.
    #[schema(value_type = Option<String>, required)]
    ended_by: Option<EndReason>,
    /// When it was opened.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When its last call came, or when it was opened.
    #[schema(value_type = String, format = DateTime)]
    last_call_at: Timestamp,
    /// When it ends by itself.
    #[schema(value_type = String, format = DateTime)]
    deadline_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    ended_at: Option<Timestamp>,
    /// How many calls it has.
    calls: Calls,
    /// Its newest browser: `opening`, `open`, `closing` or `closed`.
    #[schema(value_type = Option<String>, required)]
    browser_session: Option<SessionState>,
}

/// An agent, in few words.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunAgent)]
pub(crate) struct ShownAgent {
    /// Its id.
    #[schema(value_type = String)]
    id: AgentId,
    /// Its word; another agent may have it since this one was deleted.
    slug: String,
}

/// A conversation, in few words.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunConversation)]
pub(crate) struct ShownConversation {
    /// Its id.
    #[schema(value_type = String)]
    id: ConversationId,
    /// The caller's word for it; null when it is this run's own.
    #[schema(required)]
    name: Option<String>,
}

/// Calls of a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunCalls)]
pub(crate) struct Calls {
    /// On record.
    recorded: i64,
    /// Of them counted against `limit`.
    counted: i64,
    /// How many may be.
    limit: i64,
    /// Of the recorded, refused.
    refused: i64,
    /// Of the recorded, uncertain, and nobody has said what became of them.
    uncertain: i64,
}

impl From<RunSummary> for Shown {
    fn from(summary: RunSummary) -> Self {
        let RunSummary { run, agent_slug, conversation_name, calls, refused, uncertain, browser } = summary;
        Self {
            id: run.id,
            agent: ShownAgent { id: run.agent, slug: agent_slug },
            conversation: ShownConversation { id: run.conversation, name: conversation_name },
            origin: if run.origin == Origin::Api { "opened" } else { "implicit" },
            state: if run.state == RunState::Open { RUNNING } else { OVER },
            ended_by: run.end_reason,
            created_at: run.created_at,
            last_call_at: run.last_call_at,
            deadline_at: run.deadline_at,
            ended_at: run.ended_at,
            calls: Calls { recorded: calls, counted: run.calls_used, limit: run.max_calls, refused, uncertain },
            browser_session: browser,
        }
    }
}

const RUNNING: &str = "running";
const OVER: &str = "over";

/// Which runs; what is left out bounds nothing.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    /// Of this agent: its slug, or its id once it is deleted.
    agent: Option<String>,
    /// `running` or `over`.
    state: Option<String>,
    /// `true`: only those with an uncertain call that waits for somebody to settle it.
    settle: Option<bool>,
    /// The last page's `next`.
    after: Option<String>,
}

/// Runs of the agents you manage, newest first.
#[utoipa::path(get, path = "/api/runs", tag = "oversight", operation_id = "run.list", params(Search),
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 200, description = "A page of them", body = List<Shown>),
    (status = 404, description = "No such agent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    Operator { person, .. }: Operator,
    State(doors): State<Doors>,
    Query(search): Query<Search>,
) -> Result<Json<List<Shown>>, Problem> {
    let state = match search.state.as_deref() {
        None => None,
        Some(RUNNING) => Some(RunState::Open),
        Some(OVER) => Some(RunState::Over),
        Some(_) => return Err(Problem::new(Code::InvalidValue).field("state").detail("`running` or `over`.")),
    };
    let filter = RunFilter {
        agent: agent_named(&doors, &person, search.agent.as_deref()).await?,
        state,
        is_unsettled: search.settle.unwrap_or(false),
        after: optional_id(search.after.as_deref(), RunId::parse)?,
    };
    Ok(Json(List::of(doors.runtime.runs(&person, filter).await?, |summary| summary.run.id.to_string())))
}

/// One run.
#[utoipa::path(get, path = "/api/runs/{id}", tag = "oversight", operation_id = "run.read",
    params(("id" = String, Path, description = "The run's id")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "The run", body = Shown),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn read(RunManager { run, .. }: RunManager, State(doors): State<Doors>) -> Result<Json<Shown>, Problem> {
    shown(&doors, run).await
}

/// Ends a run: its calls are refused from now on, those in flight are cut where they can be, and its browser is closed. One that is
/// over stays as it ended.
#[utoipa::path(post, path = "/api/runs/{id}/cancel", tag = "oversight", operation_id = "run.cancel", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "The run's id")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "The run, which is over", body = Shown),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`: it goes on", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn cancel(
    RunManager { actor, run, agent }: RunManager,
    State(doors): State<Doors>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Shown>, Problem> {
    doors.runtime.cancel_run(&actor, agent, run).await?;
    shown(&doors, run).await
}

async fn shown(doors: &Doors, run: RunId) -> Result<Json<Shown>, Problem> {
    let summary = doors.runtime.run(run).await?;
    summary.map(|summary| Json(Shown::from(summary))).ok_or_else(|| Problem::new(Code::NotFound))
}
