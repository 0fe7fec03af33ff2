//! Settings of the whole installation that belong to no capability: one row, or the defaults.

use serde::{Deserialize, Serialize};

use crate::{
    Changed,
    agents::RunDefaults,
    db::{Db, Row, Tx},
    error::StoreError,
};

/// What an owner may set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstallConfig {
    /// How long results are kept in the ledger: 1–3650, by default 30.
    pub result_retention_days: i64,
    /// Networks that MCP, REST and OAuth may reach beside the internet, in CIDR form; by default none.
    pub private_networks: Vec<String>,
    /// Bounds of the implicit runs of agents that have none of their own.
    pub run_defaults: RunDefaults,
}

impl Default for InstallConfig {
    fn default() -> Self {
        Self { result_retention_days: 30, private_networks: Vec::new(), run_defaults: RunDefaults::default() }
    }
}

/// What is set now, or the defaults at version 0.
pub async fn read(db: &Db) -> Result<(InstallConfig, Changed), StoreError> {
    stored(db.row(sql::READ, &[]).await?.as_ref())
}

/// The same for a write, under the install's exclusive lock.
pub async fn locked(tx: &mut Tx) -> Result<(InstallConfig, Changed), StoreError> {
    stored(tx.row(sql::READ, &[]).await?.as_ref())
}

/// Replaces them all; the new version.
pub async fn write(tx: &mut Tx, config: &InstallConfig, by: &str) -> Result<i64, StoreError> {
    let now = tx.now().await?;
    let config = serde_json::to_string(config).map_err(|_| StoreError::internal("settings cannot be written down"))?;
    let row = tx.row(sql::WRITE, &[(&config).into(), now.into(), by.into()]).await?;
    row.ok_or(StoreError::internal("the install's settings were not written"))?.at(0)
}

fn stored(row: Option<&Row>) -> Result<(InstallConfig, Changed), StoreError> {
    let Some(row) = row else { return Ok((InstallConfig::default(), Changed::default())) };
    let changed = Changed { version: row.at(1)?, by: Some(row.at(2)?), at: Some(row.at(3)?) };
    Ok((config(&row.at::<String>(0)?)?, changed))
}

/// Reads the stored form.
pub(crate) fn config(text: &str) -> Result<InstallConfig, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::internal("the install's stored settings cannot be read"))
}

pub(crate) mod sql {
    crate::db::statements! {
        READ = "SELECT config, version, updated_by, updated_at FROM install_settings WHERE id = 1";
        WRITE = "INSERT INTO install_settings (id, version, config, updated_at, updated_by) VALUES (1, 1, $1, $2, $3) \
            ON CONFLICT (id) DO UPDATE SET version = install_settings.version + 1, config = excluded.config, \
            updated_at = excluded.updated_at, updated_by = excluded.updated_by RETURNING version";
    }
}
