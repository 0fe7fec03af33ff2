//! Agents, as operators manage them.

use axum::Json;
use formation_core::{AgentId, Timestamp};
use formation_runtime::people::Agent;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::AgentManager,
    problem::{Document, Problem},
};

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Agent)]
pub(crate) struct Shown {
    /// Its id.
    #[schema(value_type = String)]
    id: AgentId,
    /// Its word in addresses.
    slug: String,
    /// Its name, for people.
    name: String,
    /// Bounds of its implicit runs.
    run_defaults: RunDefaults,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// Bounds of implicit runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunDefaults {
    /// How long a run may last.
    deadline_seconds: u64,
    /// How many calls it may record, refused ones included.
    max_tool_calls: i64,
    /// Whether it loads and saves the agent's browser profile.
    browser_profile: bool,
}

impl From<Agent> for Shown {
    fn from(agent: Agent) -> Self {
        let defaults = agent.run_defaults;
        let run_defaults = RunDefaults {
            deadline_seconds: defaults.deadline_seconds,
            max_tool_calls: defaults.max_tool_calls,
            browser_profile: defaults.browser_profile,
        };
        Self { id: agent.id, slug: agent.slug, name: agent.name, run_defaults, created_at: agent.created_at }
    }
}

/// One agent.
#[utoipa::path(get, path = "/api/agents/{slug}", tag = "people", operation_id = "agent.read",
    params(("slug" = String, Path, description = "Its word in addresses")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "The agent", body = Shown),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn read(AgentManager { agent, .. }: AgentManager) -> Result<Json<Shown>, Problem> {
    Ok(Json(Shown::from(agent)))
}
