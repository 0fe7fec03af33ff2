//! Capability connections: which vendor an owner uses for a capability, and what that may cost (W3, W7, L8). A row is made at
//! version 1, its version rises by one with each write, and it is never deleted, so that no old offer fits again.

use formation_core::{Capability, Scope, VendorId, settings::Mode};
use serde_json::Value;

use crate::{Changed, db::Tx, error::StoreError};

/// All of a connection's settings, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSettings {
    /// How the vendor is chosen.
    pub mode: Mode,
    /// The pinned vendor, with `own` and only with it.
    pub vendor: Option<VendorId>,
    /// Capability-level settings, a JSON object.
    pub config: Value,
    /// `None`: the default.
    pub requests_per_minute: Option<i64>,
    /// Likewise.
    pub requests_per_run: Option<i64>,
}

/// Which version is stored, and since when. The caller holds the owner's lock (`accounts::lock_owner`).
pub async fn changed(tx: &mut Tx, owner: Scope, capability: Capability) -> Result<Changed, StoreError> {
    let Some(row) = tx.row(sql::CHANGED, &[owner.into(), capability.into()]).await? else { return Ok(Changed::default()) };
    Ok(Changed { version: row.at(0)?, by: Some(row.at(1)?), at: Some(row.at(2)?) })
}

/// Replaces the settings; the new version.
pub async fn write(
    tx: &mut Tx,
    owner: Scope,
    capability: Capability,
    new: &NewSettings,
    by: &str,
) -> Result<i64, StoreError> {
    let now = tx.now().await?;
    let config = new.config.to_string();
    let vals = [
        owner.into(),
        owner.agent().into(),
        capability.into(),
        new.mode.into(),
        new.vendor.as_ref().map(VendorId::as_str).into(),
        (&config).into(),
        new.requests_per_minute.into(),
        new.requests_per_run.into(),
        now.into(),
        by.into(),
    ];
    tx.row(sql::WRITE, &vals).await?.ok_or(StoreError::internal("a settings row was not written"))?.at(0)
}

pub(crate) mod sql {
    crate::db::statements! {
        CHANGED = "SELECT version, updated_by, updated_at FROM capability_settings WHERE scope = $1 AND capability = $2";
        WRITE = "INSERT INTO capability_settings \
            (scope, agent_id, capability, mode, vendor, config, requests_per_minute, requests_per_run, version, updated_at, updated_by) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10) ON CONFLICT (scope, capability) DO UPDATE SET mode = excluded.mode, \
            vendor = excluded.vendor, config = excluded.config, requests_per_minute = excluded.requests_per_minute, \
            requests_per_run = excluded.requests_per_run, version = capability_settings.version + 1, \
            updated_at = excluded.updated_at, updated_by = excluded.updated_by RETURNING version";
    }
}
