//! Which members manage an agent. Owners manage all of them.

use axum::{Json, extract::State};
use formation_core::{OperatorId, refusal::Code};
use formation_runtime::people::OperatorRow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::operators::Shown;
use crate::{
    auth::{AgentManager, AgentOwner},
    guard::Body,
    problem::{Document, Problem},
    routes::Doors,
};

/// More than that is a mistake.
const MOST: usize = 1_000;

/// Who manages an agent, owners aside.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Access {
    /// By name.
    operators: Vec<Shown>,
}

impl From<Vec<OperatorRow>> for Access {
    fn from(rows: Vec<OperatorRow>) -> Self {
        Self { operators: rows.into_iter().map(Shown::from).collect() }
    }
}

/// Who is to manage an agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAccess {
    /// Their ids; whoever isn't named manages it no longer.
    operators: Vec<String>,
}

/// The members who manage the agent.
#[utoipa::path(get, path = "/api/agents/{slug}/access", tag = "people", operation_id = "agent.access.read",
    params(("slug" = String, Path, description = "The agent")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "They", body = Access),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn read(AgentManager { agent, .. }: AgentManager, State(doors): State<Doors>) -> Result<Json<Access>, Problem> {
    Ok(Json(doors.runtime.access(&agent).await?.into()))
}

/// Says who manages the agent. Taking it from somebody holds for their next request.
#[utoipa::path(put, path = "/api/agents/{slug}/access", tag = "people", operation_id = "agent.access", request_body = NewAccess,
    params(("slug" = String, Path, description = "The agent")),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "They", body = Access),
    (status = 404, description = "Absent", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn replace(
    AgentOwner { actor, agent }: AgentOwner,
    State(doors): State<Doors>,
    Body(body): Body<NewAccess>,
) -> Result<Json<Access>, Problem> {
    if body.operators.len() > MOST {
        return Err(Problem::new(Code::InvalidValue).field("operators").detail("At most 1,000."));
    }
    let ids: Result<Vec<_>, _> = body.operators.iter().map(|id| OperatorId::parse(id)).collect();
    let ids = ids.map_err(|_| Problem::new(Code::MalformedId).field("operators"))?;
    Ok(Json(doors.runtime.set_access(&actor, &agent, ids).await?.into()))
}
