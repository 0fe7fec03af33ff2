//! Agents, as operators manage them.

use axum::{Json, extract::State};
use formation_core::{AgentId, Timestamp, limits, refusal::Code};
use formation_runtime::people::{Agent, AgentChange, NewAgent, RunDefaults};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Nothing, name};
use crate::{
    auth::{AgentManager, AgentOwner, InstallOwner, Operator},
    guard::Body,
    list::{After, List, Query},
    problem::{Document, Problem},
    routes::Doors,
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
    run_defaults: Bounds,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// Bounds of implicit runs; what is left out is the default.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = RunDefaults)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    /// How long a run may last.
    #[serde(default = "six_hours")]
    #[schema(minimum = 1, maximum = 21600)]
    deadline_seconds: u64,
    /// How many calls it may record, refused ones included.
    #[serde(default = "implicit_calls")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    max_tool_calls: i64,
    /// Whether it loads and saves the agent's browser profile.
    #[serde(default = "yes")]
    browser_profile: bool,
}

const fn six_hours() -> u64 {
    limits::RUN_DEADLINE.as_secs()
}

const fn implicit_calls() -> i64 {
    limits::MAX_TOOL_CALLS_IMPLICIT
}

const fn yes() -> bool {
    true
}

impl Bounds {
    fn checked(self) -> Result<RunDefaults, Problem> {
        let Self { deadline_seconds, max_tool_calls, browser_profile } = self;
        let is_good = (1..=six_hours()).contains(&deadline_seconds) && (1..=limits::MAX_TOOL_CALLS).contains(&max_tool_calls);
        if is_good {
            return Ok(RunDefaults { deadline_seconds, max_tool_calls, browser_profile });
        }
        let detail = "`deadline_seconds` is 1 to 21,600, `max_tool_calls` 1 to 1,000,000.";
        Err(Problem::new(Code::InvalidValue).field("run_defaults").detail(detail))
    }
}

impl From<RunDefaults> for Bounds {
    fn from(defaults: RunDefaults) -> Self {
        let RunDefaults { deadline_seconds, max_tool_calls, browser_profile } = defaults;
        Self { deadline_seconds, max_tool_calls, browser_profile }
    }
}

impl From<Agent> for Shown {
    fn from(agent: Agent) -> Self {
        let Agent { id, slug, name, run_defaults, created_at } = agent;
        Self { id, slug, name, run_defaults: run_defaults.into(), created_at }
    }
}

/// A new agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeAgent {
    /// Its word in addresses.
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    slug: String,
    /// Its name, for people; the slug without one.
    #[serde(default)]
    name: Option<String>,
    /// Bounds of its implicit runs.
    #[serde(default)]
    run_defaults: Option<Bounds>,
}

/// What to change of an agent; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeAgent {
    /// Its name, for people.
    #[serde(default)]
    name: Option<String>,
    /// Bounds of its implicit runs, whole.
    #[serde(default)]
    run_defaults: Option<Bounds>,
}

/// The agents one manages, newest first.
#[utoipa::path(get, path = "/api/agents", tag = "people", operation_id = "agent.list", params(After),
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 200, description = "A page of them", body = List<Shown>),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    Operator { person, .. }: Operator,
    State(doors): State<Doors>,
    Query(query): Query<After>,
) -> Result<Json<List<Shown>>, Problem> {
    let page = doors.runtime.agents(&person, query.id(AgentId::parse)?).await?;
    Ok(Json(List::of(page, |agent| agent.id.to_string())))
}

/// Makes an agent.
#[utoipa::path(post, path = "/api/agents", tag = "people", operation_id = "agent.create", request_body = MakeAgent,
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 201, description = "The agent", body = Shown),
    (status = 409, description = "`slug_taken`", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn create(
    InstallOwner { actor }: InstallOwner,
    State(doors): State<Doors>,
    Body(body): Body<MakeAgent>,
) -> Result<(StatusCode, Json<Shown>), Problem> {
    let name = name("name", body.name.unwrap_or_else(|| body.slug.clone()))?;
    let run_defaults = body.run_defaults.map(Bounds::checked).transpose()?;
    let made = doors.runtime.make_agent(&actor, NewAgent { slug: body.slug, name, run_defaults }).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
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
pub(crate) async fn read(AgentManager { agent, .. }: AgentManager) -> Json<Shown> {
    Json(Shown::from(agent))
}

/// Changes an agent's name or bounds; runs that are open keep theirs.
#[utoipa::path(patch, path = "/api/agents/{slug}", tag = "people", operation_id = "agent.change", request_body = ChangeAgent,
    params(("slug" = String, Path, description = "Its word in addresses")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "As it is now", body = Shown),
    (status = 404, description = "Absent, or not yours", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn change(
    AgentManager { actor, agent }: AgentManager,
    State(doors): State<Doors>,
    Body(body): Body<ChangeAgent>,
) -> Result<Json<Shown>, Problem> {
    let name = body.name.map(|text| name("name", text)).transpose()?;
    let change = AgentChange { name, run_defaults: body.run_defaults.map(Bounds::checked).transpose()? };
    Ok(Json(doors.runtime.change_agent(&actor, &agent, change).await?.into()))
}

/// Deletes an agent: its tokens are dead and its open runs over at once. Its ledger stays for owners to read.
#[utoipa::path(delete, path = "/api/agents/{slug}", tag = "people", operation_id = "agent.delete", request_body = Option<Nothing>,
    params(("slug" = String, Path, description = "Its word in addresses")),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "Absent", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn delete(
    AgentOwner { actor, agent }: AgentOwner,
    State(doors): State<Doors>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<StatusCode, Problem> {
    doors.runtime.delete_agent(&actor, &agent).await?;
    Ok(StatusCode::NO_CONTENT)
}
