//! The audit trail, to be searched.

use axum::{Json, extract::State};
use formation_core::{AgentId, AuditId, Timestamp, people::ActorKind, refusal::Code};
use formation_runtime::people::{AuditEntry, AuditFilter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{
    auth::Operator,
    list::{List, Query, optional_id},
    oversight::agent_named,
    problem::{Document, Problem},
    routes::Doors,
};

/// A line of the trail.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct Shown {
    /// Its id.
    #[schema(value_type = String)]
    id: AuditId,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who.
    actor: ShownActor,
    /// The agent it concerns.
    #[schema(value_type = Option<String>, required)]
    agent: Option<AgentId>,
    /// What was asked, as `noun.verb`.
    action: String,
    /// On what: an id, a word, or the path of what was turned away.
    subject: String,
    /// `done`, `denied` (not theirs), `stale` (somebody was faster) or `refused` (for what it asked).
    outcome: &'static str,
    /// Plain facts of the change, or the code of the refusal.
    #[schema(value_type = Object)]
    detail: Value,
    /// The request, as it stands in the log.
    #[schema(required)]
    request_id: Option<String>,
}

/// Who acted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ShownActor {
    /// `operator`, `operator_token`, `agent`, `run`, `host` or `anonymous`.
    #[schema(value_type = String)]
    kind: ActorKind,
    /// The id of the operator, agent or run.
    #[schema(required)]
    id: Option<String>,
    /// Their name at that time.
    name: String,
}

impl From<AuditEntry> for Shown {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { id, at, actor, agent, action, subject, outcome, detail } = entry;
        let request_id = actor.request;
        let actor = ShownActor { kind: actor.kind, id: actor.id, name: actor.name };
        Self { id, at, actor, agent, action, subject, outcome: outcome.as_str(), detail, request_id }
    }
}

/// Which lines; what is left out bounds nothing.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    /// Concerning this agent: its slug, or its id once it is deleted.
    agent: Option<String>,
    /// Of this action.
    action: Option<String>,
    /// By this actor: an id or a name.
    actor: Option<String>,
    /// The last page's `next`.
    after: Option<String>,
}

/// Who did what, newest first. An owner sees everything, a member what concerns the agents they manage.
#[utoipa::path(get, path = "/api/audit", tag = "people", operation_id = "audit.list", params(Search),
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 200, description = "A page of lines", body = List<Shown>),
    (status = 404, description = "No such agent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    Operator { person, .. }: Operator,
    State(doors): State<Doors>,
    Query(search): Query<Search>,
) -> Result<Json<List<Shown>>, Problem> {
    let agent = agent_named(&doors, &person, search.agent.as_deref()).await?;
    let after = optional_id(search.after.as_deref(), AuditId::parse)?;
    let filter = AuditFilter { agent, action: plain(search.action)?, actor: plain(search.actor)?, after };
    Ok(Json(List::of(doors.runtime.audit(&person, &filter).await?, |entry| entry.id.to_string())))
}

/// A word to look for; what no line can hold is refused before the database sees it.
fn plain(word: Option<String>) -> Result<Option<String>, Problem> {
    match word {
        Some(word) if word.len() > 128 || word.chars().any(char::is_control) => {
            Err(Problem::new(Code::InvalidValue).detail("A word to look for has at most 128 bytes and no control characters."))
        }
        word => Ok(word),
    }
}
