//! `/api/settings/web` and `/api/agents/{slug}/web`: the same routes for the install, whose owners alone reach it, and for an agent
//! (O11). Every write answers with the listing.
//!
//! Saving an account tests nothing yet, and there are no test routes: verification comes with the vendors that need it.

use axum::{
    Json,
    extract::{Path, State},
};
use formation_core::{
    Capability, Scope, VendorId,
    people::Actor,
    refusal::Code,
    settings::{AskedLimits, Mode, Proposal},
};
use formation_runtime::settings::{PutAccount, PutConnection};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    Key,
    listing::Listing,
    usage::{Asked, Usage},
};
use crate::{
    auth::{AgentManager, InstallOwner},
    guard::Body,
    list::Query,
    problem::{Document, Problem},
    routes::Doors,
};

/// An account as it should be.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PutVendorAccount)]
#[serde(deny_unknown_fields)]
pub(crate) struct Account {
    /// The version from the listing; 0 for a new account.
    version: i64,
    /// One line of at most 4 KiB. Left out, the stored one is kept. No route ever returns it.
    #[serde(default)]
    #[schema(value_type = Option<String>, write_only)]
    api_key: Option<Key>,
    /// All vendor-level settings; what is left out is cleared.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    config: Option<Map<String, Value>>,
}

/// Which account is to go.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = RemoveVendorAccount)]
#[serde(deny_unknown_fields)]
pub(crate) struct Removal {
    /// The version from the listing.
    version: i64,
}

/// A connection as it should be: a full replacement.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PutWebConnection)]
#[serde(deny_unknown_fields)]
pub(crate) struct Connection {
    /// The version from the listing; 0 where there is no row.
    version: i64,
    /// The install: `auto`, `own`, `disabled`. An agent: `inherit`, `own`, `disabled`.
    #[schema(value_type = String)]
    mode: Mode,
    /// The provider to pin, with `own` and only with it.
    #[serde(default)]
    provider: Option<String>,
    /// Its settings, with `own` only. A browser's must name `allowed_hosts`: an array, or one text with commas; an empty list allows
    /// any website.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    config: Option<Map<String, Value>>,
    /// What it may cost; without it the defaults. The browser takes none, and `inherit` takes `requests_per_run` alone, at most the
    /// install's.
    #[serde(default)]
    limits: Option<Limits>,
}

/// How many provider requests.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PutWebLimits)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// Over all agents of the connection.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 6000, default = 60)]
    requests_per_minute: Option<i64>,
    /// Of one run.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 10000, default = 50)]
    requests_per_run: Option<i64>,
}

impl From<Account> for PutAccount {
    fn from(body: Account) -> Self {
        Self { version: body.version, key: body.api_key.map(|key| key.0), config: body.config.unwrap_or_default() }
    }
}

impl From<Connection> for PutConnection {
    fn from(body: Connection) -> Self {
        let limits = body.limits.map(|limits| AskedLimits {
            requests_per_minute: limits.requests_per_minute,
            requests_per_run: limits.requests_per_run,
        });
        let provider = body.provider.filter(|provider| !provider.is_empty()).map(VendorId::named);
        let settings = Proposal { mode: body.mode, provider, config: body.config.unwrap_or_default(), limits };
        Self { version: body.version, settings }
    }
}

type Answer<T> = Result<Json<T>, Problem>;

async fn save_account(doors: &Doors, actor: &Actor, owner: Scope, vendor: &str, body: Account) -> Answer<Listing> {
    Ok(Json(doors.runtime.put_account(actor, owner, vendor, body.into()).await?.into()))
}

async fn remove_account(doors: &Doors, actor: &Actor, owner: Scope, vendor: &str, body: &Removal) -> Answer<Listing> {
    Ok(Json(doors.runtime.delete_account(actor, owner, vendor, body.version).await?.into()))
}

async fn save_connection(doors: &Doors, actor: &Actor, owner: Scope, word: &str, body: Connection) -> Answer<Listing> {
    let capability = Capability::parse(word).ok_or_else(|| Problem::new(Code::NotFound))?;
    Ok(Json(doors.runtime.put_connection(actor, owner, capability, body.into()).await?.into()))
}

async fn list_usage(doors: &Doors, owner: Scope, asked: Asked) -> Answer<Usage> {
    Ok(Json(doors.runtime.usage(owner, asked.into()).await?.into()))
}

/// What the install has set, and what is in effect.
#[utoipa::path(get, path = "/api/settings/web", tag = "settings", operation_id = "install.web.list",
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "The listing", body = Listing),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn install_list(_: InstallOwner, State(doors): State<Doors>) -> Answer<Listing> {
    Ok(Json(doors.runtime.web_listing(Scope::Install).await?.into()))
}

/// Stores the install's account at a vendor, or replaces its settings and, where one is sent, its key.
///
/// In force when it answers: what was offered on the old account is refused from then on, and calls in flight are cancelled within a
/// second. It waits for none of them: a request already sent may still use the provider's quota. Nothing remote is undone, and no key
/// is revoked at its issuer.
#[utoipa::path(put, path = "/api/settings/web/vendors/{vendor}", tag = "settings", operation_id = "install.web.account.save",
    request_body = Account,
    params(("vendor" = String, Path, description = "Its word")),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "The listing", body = Listing),
    (status = 409, description = "`stale_version`, with the stored version in `fields`; `managed_by_environment`", body = Document,
        content_type = "application/problem+json"),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn install_save_account(
    InstallOwner { actor }: InstallOwner,
    State(doors): State<Doors>,
    Path(vendor): Path<String>,
    Body(body): Body<Account>,
) -> Answer<Listing> {
    save_account(&doors, &actor, Scope::Install, &vendor, body).await
}

/// Removes the install's account at a vendor, its key and settings with it. Connections that pointed at it are unavailable from then on.
///
/// In force when it answers: what was offered on the old account is refused from then on, and calls in flight are cancelled within a
/// second. It waits for none of them: a request already sent may still use the provider's quota. Nothing remote is undone, and no key
/// is revoked at its issuer.
#[utoipa::path(delete, path = "/api/settings/web/vendors/{vendor}", tag = "settings", operation_id = "install.web.account.remove",
    request_body = Removal,
    params(("vendor" = String, Path, description = "Its word")),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "The listing", body = Listing),
    (status = 409, description = "`stale_version`, with the stored version in `fields`; `managed_by_environment`", body = Document,
        content_type = "application/problem+json"),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn install_remove_account(
    InstallOwner { actor }: InstallOwner,
    State(doors): State<Doors>,
    Path(vendor): Path<String>,
    Body(body): Body<Removal>,
) -> Answer<Listing> {
    remove_account(&doors, &actor, Scope::Install, &vendor, &body).await
}

/// Replaces the install's connection of a capability.
///
/// In force when it answers: what was offered on the old account is refused from then on, and calls in flight are cancelled within a
/// second. It waits for none of them: a request already sent may still use the provider's quota. Nothing remote is undone, and no key
/// is revoked at its issuer.
#[utoipa::path(put, path = "/api/settings/web/{capability}", tag = "settings", operation_id = "install.web.connection.save",
    request_body = Connection,
    params(("capability" = String, Path, description = "`search`, `read` or `browser`")),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "The listing", body = Listing),
    (status = 409, description = "`stale_version`, with the stored version in `fields`", body = Document,
        content_type = "application/problem+json"),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn install_save_connection(
    InstallOwner { actor }: InstallOwner,
    State(doors): State<Doors>,
    Path(capability): Path<String>,
    Body(body): Body<Connection>,
) -> Answer<Listing> {
    save_connection(&doors, &actor, Scope::Install, &capability, body).await
}

/// What all agents used over time: admitted attempts, not amounts on an invoice.
#[utoipa::path(get, path = "/api/settings/web/usage", tag = "settings", operation_id = "install.web.usage",
    params(Asked),
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "Counts by bucket", body = Usage),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn install_usage(_: InstallOwner, State(doors): State<Doors>, Query(asked): Query<Asked>) -> Answer<Usage> {
    list_usage(&doors, Scope::Install, asked).await
}

/// What the agent has set, and what is in effect.
#[utoipa::path(get, path = "/api/agents/{slug}/web", tag = "settings", operation_id = "agent.web.list",
    params(("slug" = String, Path, description = "The agent's word")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "The listing", body = Listing),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn agent_list(AgentManager { agent, .. }: AgentManager, State(doors): State<Doors>) -> Answer<Listing> {
    Ok(Json(doors.runtime.web_listing(Scope::Agent(agent.id)).await?.into()))
}

/// Stores the agent's account at a vendor, or replaces its settings and, where one is sent, its key.
///
/// In force when it answers: what was offered on the old account is refused from then on, and calls in flight are cancelled within a
/// second. It waits for none of them: a request already sent may still use the provider's quota. Nothing remote is undone, and no key
/// is revoked at its issuer.
#[utoipa::path(put, path = "/api/agents/{slug}/web/vendors/{vendor}", tag = "settings", operation_id = "agent.web.account.save",
    request_body = Account,
    params(("slug" = String, Path, description = "The agent's word"), ("vendor" = String, Path, description = "Its word")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "The listing", body = Listing),
    (status = 409, description = "`stale_version`, with the stored version in `fields`; `managed_by_environment`", body = Document,
        content_type = "application/problem+json"),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn agent_save_account(
    AgentManager { actor, agent }: AgentManager,
    State(doors): State<Doors>,
    Path((_, vendor)): Path<(String, String)>,
    Body(body): Body<Account>,
) -> Answer<Listing> {
    save_account(&doors, &actor, Scope::Agent(agent.id), &vendor, body).await
}

/// Removes the agent's account at a vendor, its key and settings with it. Connections that pointed at it are unavailable from then on.
///
/// In force when it answers: what was offered on the old account is refused from then on, and calls in flight are cancelled within a
/// second. It waits for none of them: a request already sent may still use the provider's quota. Nothing remote is undone, and no key
/// is revoked at its issuer.
#[utoipa::path(delete, path = "/api/agents/{slug}/web/vendors/{vendor}", tag = "settings", operation_id = "agent.web.account.remove",
    request_body = Removal,
    params(("slug" = String, Path, description = "The agent's word"), ("vendor" = String, Path, description = "Its word")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "The listing", body = Listing),
    (status = 409, description = "`stale_version`, with the stored version in `fields`; `managed_by_environment`", body = Document,
        content_type = "application/problem+json"),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn agent_remove_account(
    AgentManager { actor, agent }: AgentManager,
    State(doors): State<Doors>,
    Path((_, vendor)): Path<(String, String)>,
    Body(body): Body<Removal>,
) -> Answer<Listing> {
    remove_account(&doors, &actor, Scope::Agent(agent.id), &vendor, &body).await
}

/// Replaces the agent's connection of a capability.
///
/// In force when it answers: what was offered on the old account is refused from then on, and calls in flight are cancelled within a
/// second. It waits for none of them: a request already sent may still use the provider's quota. Nothing remote is undone, and no key
/// is revoked at its issuer.
#[utoipa::path(put, path = "/api/agents/{slug}/web/{capability}", tag = "settings", operation_id = "agent.web.connection.save",
    request_body = Connection,
    params(("slug" = String, Path, description = "The agent's word"), ("capability" = String, Path, description = "`search`, `read` or `browser`")),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "The listing", body = Listing),
    (status = 409, description = "`stale_version`, with the stored version in `fields`", body = Document,
        content_type = "application/problem+json"),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn agent_save_connection(
    AgentManager { actor, agent }: AgentManager,
    State(doors): State<Doors>,
    Path((_, capability)): Path<(String, String)>,
    Body(body): Body<Connection>,
) -> Answer<Listing> {
    save_connection(&doors, &actor, Scope::Agent(agent.id), &capability, body).await
}

/// What the agent used over time: admitted attempts, not amounts on an invoice.
#[utoipa::path(get, path = "/api/agents/{slug}/web/usage", tag = "settings", operation_id = "agent.web.usage",
    params(("slug" = String, Path, description = "The agent's word"), Asked),
    security(("operator_token" = ["manager"]), ("session" = ["manager"])), responses(
    (status = 200, description = "Counts by bucket", body = Usage),
    (status = "4XX", description = "Why not; nothing was stored", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn agent_usage(
    AgentManager { agent, .. }: AgentManager,
    State(doors): State<Doors>,
    Query(asked): Query<Asked>,
) -> Answer<Usage> {
    list_usage(&doors, Scope::Agent(agent.id), asked).await
}
