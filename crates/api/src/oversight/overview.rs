//! All agents at a glance.

use axum::{Json, extract::State};
use formation_core::{AccountRef, AgentId, Capability, Timestamp};
use formation_runtime::oversight::{AgentState, InUse};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::Operator,
    list::{After, List, Query},
    problem::{Document, Problem},
    routes::Doors,
};

/// An agent and what it can do now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AgentOverview)]
pub(crate) struct Shown {
    /// Its id.
    #[schema(value_type = String)]
    id: AgentId,
    /// Its word in addresses.
    slug: String,
    /// Its name, for people.
    name: String,
    /// Search, reading and browsing.
    capabilities: Vec<ShownCapability>,
    /// Calls that nobody can be sure of, each waiting for somebody to settle it.
    uncertain_calls: i64,
}

/// What an agent has of one capability.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapabilityOverview)]
pub(crate) struct ShownCapability {
    /// `search`, `read` or `browser`.
    #[schema(value_type = String)]
    capability: Capability,
    /// Whether its tools are offered.
    available: bool,
    /// Why not: `disabled`, `no_account`, `account_missing` or `credential_unreadable`; empty when it is.
    unavailable_reason: &'static str,
    /// Who serves it; empty for nobody.
    effective_provider: String,
    /// On whose account: `install`, `agent`, or empty.
    credential_source: &'static str,
    /// `owner` for a stored account, `environment` for the server's, or empty.
    account_source: &'static str,
    /// Requests a run may make; null where nothing is counted.
    #[schema(required)]
    requests_per_run: Option<i64>,
    /// The running minute of the connection that meters; null where nothing is counted.
    #[schema(required)]
    meter: Option<ShownMinute>,
}

/// What is left of a minute.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MinuteOverview)]
pub(crate) struct ShownMinute {
    /// Requests it has.
    minute_limit: i64,
    /// Of them made.
    minute_used: i64,
    /// When the next one begins.
    #[schema(value_type = String, format = DateTime)]
    window_ends: Timestamp,
}

impl From<AgentState> for Shown {
    fn from(state: AgentState) -> Self {
        let AgentState { agent, capabilities, uncertain_calls } = state;
        let capabilities = capabilities.into_iter().map(ShownCapability::from).collect();
        Self { id: agent.id, slug: agent.slug, name: agent.name, capabilities, uncertain_calls }
    }
}

impl From<InUse> for ShownCapability {
    fn from(in_use: InUse) -> Self {
        let InUse { capability, effective, reason, minute } = in_use;
        let limits = effective.as_ref().map(|effective| effective.limits);
        let meter = minute.zip(limits).map(|(minute, limits)| ShownMinute {
            minute_limit: limits.requests_per_minute,
            minute_used: minute.used,
            window_ends: minute.ends,
        });
        Self {
            capability,
            available: effective.is_some() && reason.is_none(),
            unavailable_reason: reason.map_or("", |reason| reason.as_str()),
            credential_source: effective.as_ref().map_or("", |effective| effective.binding.owner.owner_word()),
            account_source: effective.as_ref().map_or("", |effective| match effective.binding.account {
                AccountRef::Stored { .. } => "owner",
                AccountRef::Environment { .. } => "environment",
            }),
            requests_per_run: limits.filter(|_| capability.is_metered()).map(|limits| limits.requests_per_run),
            meter,
            effective_provider: effective.map_or_else(String::new, |effective| effective.binding.vendor.to_string()),
        }
    }
}

/// The agents you manage, newest first: what each can do now, on whose account, what is left of the minute, and what waits for you.
#[utoipa::path(get, path = "/api/overview", tag = "oversight", operation_id = "overview.read", params(After),
    security(("operator_token" = ["operator"]), ("session" = ["operator"])), responses(
    (status = 200, description = "A page of agents", body = List<Shown>),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn read(
    Operator { person, .. }: Operator,
    State(doors): State<Doors>,
    Query(query): Query<After>,
) -> Result<Json<List<Shown>>, Problem> {
    let page = doors.runtime.overview(&person, query.id(AgentId::parse)?).await?;
    Ok(Json(List::of(page, |state| state.agent.id.to_string())))
}
