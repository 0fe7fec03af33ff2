//! Settings of the install that belong to no capability.

use formation_core::{Scope, Timestamp, limits, networks, people::Actor};
use formation_store::install::{self, InstallConfig};
use serde_json::json;

use super::{Invalid, RunDefaults, SettingsError, compare, done, lock};
use crate::{Runtime, RuntimeError};

/// The longest `result_retention_days`.
const RETENTION_DAYS: i64 = 3_650;

/// What is set, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallSettings {
    /// 0 before the first write.
    pub version: i64,
    /// The settings.
    pub config: InstallConfig,
    /// By whom.
    pub changed_by: Option<String>,
    /// When.
    pub changed_at: Option<Timestamp>,
}

impl Runtime {
    /// What is set now.
    pub async fn install_settings(&self) -> Result<InstallSettings, RuntimeError> {
        let (config, changed) = install::read(&self.0.db).await?;
        Ok(InstallSettings { version: changed.version, config, changed_by: changed.by, changed_at: changed.at })
    }

    /// Replaces them all.
    pub async fn put_install_settings(
        &self,
        actor: &Actor,
        version: i64,
        mut config: InstallConfig,
    ) -> Result<InstallSettings, SettingsError> {
        check(&mut config)?;
        let actor = actor.clone();
        self.0
            .db
            .write(move |tx| {
                Box::pin(async move {
                    lock(tx, Scope::Install).await?;
                    let (_, changed) = install::locked(tx).await?;
                    compare(version, changed)?;
                    let version = install::write(tx, &config, &actor.name).await?;
                    let detail = json!({"version": version, "settings": config});
                    done(tx, &actor, Scope::Install, "settings.save", "install", detail).await
                })
            })
            .await?;
        Ok(self.install_settings().await?)
    }
}

/// Checks the values and brings networks into their normal form.
fn check(config: &mut InstallConfig) -> Result<(), Invalid> {
    if !(1..=RETENTION_DAYS).contains(&config.result_retention_days) {
        return Err(Invalid::value("result_retention_days", format!("1 to {RETENTION_DAYS} days.")));
    }
    if config.private_networks.len() > networks::MOST {
        return Err(Invalid::value("private_networks", format!("At most {} networks.", networks::MOST)));
    }
    let mut normal: Vec<String> = Vec::with_capacity(config.private_networks.len());
    for text in &config.private_networks {
        let network = networks::parse(text).map_err(|error| Invalid::value("private_networks", error.to_string()))?.to_string();
        if !normal.contains(&network) {
            normal.push(network);
        }
    }
    config.private_networks = normal;
    check_run_defaults(&config.run_defaults)
}

/// Bounds of implicit runs, the install's and an agent's.
pub(crate) fn check_run_defaults(defaults: &RunDefaults) -> Result<(), Invalid> {
    let longest = limits::RUN_DEADLINE.as_secs();
    if !(1..=longest).contains(&defaults.deadline_seconds) {
        return Err(Invalid::value("run_defaults.deadline_seconds", format!("1 to {longest} seconds.")));
    }
    if !(1..=limits::MAX_TOOL_CALLS).contains(&defaults.max_tool_calls) {
        return Err(Invalid::value("run_defaults.max_tool_calls", format!("1 to {}.", limits::MAX_TOOL_CALLS)));
    }
    Ok(())
}
