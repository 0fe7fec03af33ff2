//! `/api/settings/install`.

use axum::{Json, extract::State};
use formation_core::Timestamp;
use formation_runtime::settings::{InstallConfig, InstallSettings, RunDefaults};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    auth::InstallOwner,
    guard::Body,
    problem::{Document, Problem},
    routes::Doors,
};

/// The install's settings that belong to no capability.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InstallSettings)]
pub(crate) struct Shown {
    /// 0 before the first write; a write names it.
    version: i64,
    /// How long results are kept in the ledger.
    result_retention_days: i64,
    /// Networks that MCP, REST and OAuth may reach beside the internet.
    private_networks: Vec<String>,
    /// Bounds of the implicit runs of agents that have none of their own.
    run_defaults: Bounds,
    /// Who wrote it last.
    #[schema(required)]
    changed_by: Option<String>,
    /// When.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    changed_at: Option<Timestamp>,
}

/// Bounds of implicit runs.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = InstallRunDefaults)]
pub(crate) struct Bounds {
    /// How long a run may last.
    deadline_seconds: u64,
    /// How many calls it may record, refused ones included.
    max_tool_calls: i64,
    /// Whether it loads and saves the agent's browser profile.
    browser_profile: bool,
}

impl From<InstallSettings> for Shown {
    fn from(settings: InstallSettings) -> Self {
        let InstallConfig { result_retention_days, private_networks, run_defaults } = settings.config;
        let RunDefaults { deadline_seconds, max_tool_calls, browser_profile } = run_defaults;
        Self {
            version: settings.version,
            result_retention_days,
            private_networks,
            run_defaults: Bounds { deadline_seconds, max_tool_calls, browser_profile },
            changed_by: settings.changed_by,
            changed_at: settings.changed_at,
        }
    }
}

/// A full replacement: what is left out has its default again.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PutInstallSettings)]
#[serde(deny_unknown_fields)]
pub(crate) struct Put {
    /// The version that was read.
    version: i64,
    /// 1 to 3,650.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3650, default = 30)]
    result_retention_days: Option<i64>,
    /// Each as its first address and prefix length, at most 64. Link-local addresses and metadata services are never reached.
    #[serde(default)]
    private_networks: Option<Vec<String>>,
    /// Bounds of implicit runs.
    #[serde(default)]
    run_defaults: Option<PutBounds>,
}

/// Bounds of implicit runs.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = PutRunDefaults)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutBounds {
    /// At most six hours.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 21600, default = 21600)]
    deadline_seconds: Option<u64>,
    /// 1 to 1,000,000.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000, default = 5000)]
    max_tool_calls: Option<i64>,
    /// Whether runs load and save the agent's browser profile.
    #[serde(default)]
    #[schema(default = true)]
    browser_profile: Option<bool>,
}

impl Put {
    fn config(self) -> InstallConfig {
        let (usual, bounds) = (InstallConfig::default(), self.run_defaults.unwrap_or_default());
        InstallConfig {
            result_retention_days: self.result_retention_days.unwrap_or(usual.result_retention_days),
            private_networks: self.private_networks.unwrap_or_default(),
            run_defaults: RunDefaults {
                deadline_seconds: bounds.deadline_seconds.unwrap_or(usual.run_defaults.deadline_seconds),
                max_tool_calls: bounds.max_tool_calls.unwrap_or(usual.run_defaults.max_tool_calls),
                browser_profile: bounds.browser_profile.unwrap_or(usual.run_defaults.browser_profile),
            },
        }
    }
}

/// The install's settings that belong to no capability.
#[utoipa::path(get, path = "/api/settings/install", tag = "settings", operation_id = "install.settings.read",
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "What is set, or the defaults at version 0", body = Shown),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn read(_: InstallOwner, State(doors): State<Doors>) -> Result<Json<Shown>, Problem> {
    Ok(Json(doors.runtime.install_settings().await?.into()))
}

/// Replaces them.
#[utoipa::path(put, path = "/api/settings/install", tag = "settings", operation_id = "install.settings.save", request_body = Put,
    security(("operator_token" = ["owner"]), ("session" = ["owner"])), responses(
    (status = 200, description = "What is set now", body = Shown),
    (status = 409, description = "`stale_version`", body = Document, content_type = "application/problem+json"),
    (status = "4XX", description = "Why not", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "`store_unavailable`", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn save(
    InstallOwner { actor }: InstallOwner,
    State(doors): State<Doors>,
    Body(put): Body<Put>,
) -> Result<Json<Shown>, Problem> {
    let version = put.version;
    Ok(Json(doors.runtime.put_install_settings(&actor, version, put.config()).await?.into()))
}
