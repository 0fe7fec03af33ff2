//! Settings in effect: reads what each owner has for a capability and resolves it (W5–W10).
//!
//! Admission and settle read under the shared scope locks; a listing reads without, since what it offers is compared later.

use std::sync::Arc;

use formation_core::{
    AgentId, Capability, Scope, VendorId,
    settings::{Effective, EnvironmentAccount, ScopeState, Settings, StoredAccount, Unavailable, resolve},
};
use serde_json::Value;

use crate::{
    db::{Db, Hold, Reads, Tx},
    error::StoreError,
};

/// What a resolution needs beside the rows: the catalog's order and the accounts of the environment, read at each use (W16).
#[derive(Clone)]
pub struct Rules {
    order: Arc<dyn Fn(Capability) -> Vec<VendorId> + Send + Sync>,
    environment: Arc<dyn Fn() -> Vec<EnvironmentAccount> + Send + Sync>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rules")
    }
}

impl Rules {
    /// `order` lists the vendors that implement a capability, in catalog order; `environment` the accounts this process brings.
    pub fn new(
        order: impl Fn(Capability) -> Vec<VendorId> + Send + Sync + 'static,
        environment: impl Fn() -> Vec<EnvironmentAccount> + Send + Sync + 'static,
    ) -> Self {
        Self { order: Arc::new(order), environment: Arc::new(environment) }
    }

    /// Who pays now, for a listing: no locks.
    pub async fn resolve_now(
        &self,
        db: &Db,
        agent: AgentId,
        capability: Capability,
    ) -> Result<Result<Effective, Unavailable>, StoreError> {
        let mut reads = db;
        self.resolve(&mut reads, agent, capability).await
    }

    /// Who pays, under the shared locks of both owners: no settings write commits before this transaction ends.
    pub async fn resolve_locked(
        &self,
        tx: &mut Tx,
        agent: AgentId,
        capability: Capability,
    ) -> Result<Result<Effective, Unavailable>, StoreError> {
        tx.lock_scope(Scope::Install, Hold::Shared).await?;
        tx.lock_scope(Scope::Agent(agent), Hold::Shared).await?;
        self.resolve(tx, agent, capability).await
    }

    /// The caller holds the locks, or does without.
    pub(crate) async fn resolve(
        &self,
        reads: &mut impl Reads,
        agent: AgentId,
        capability: Capability,
    ) -> Result<Result<Effective, Unavailable>, StoreError> {
        let (install, own) = states(reads, agent, capability).await?;
        Ok(resolve(capability, agent, &(self.order)(capability), &install, &own, &(self.environment)()))
    }
}

/// What the install and the agent have for one capability.
async fn states(
    reads: &mut impl Reads,
    agent: AgentId,
    capability: Capability,
) -> Result<(ScopeState, ScopeState), StoreError> {
    let own_scope = Scope::Agent(agent);
    let (mut install, mut own) = (ScopeState::default(), ScopeState::default());
    for row in reads.fetch(sql::BOTH, &[capability.into(), own_scope.into()]).await? {
        let state = if row.at::<Scope>(0)? == Scope::Install { &mut install } else { &mut own };
        state.settings = Some(Settings {
            mode: row.at(1)?,
            vendor: row.at(2)?,
            config: object(&row.at::<String>(3)?)?,
            requests_per_minute: row.at(4)?,
            requests_per_run: row.at(5)?,
            version: row.at(6)?,
        });
    }
    for row in reads.fetch(sql::ACCOUNTS, &[own_scope.into()]).await? {
        let state = if row.at::<Scope>(0)? == Scope::Install { &mut install } else { &mut own };
        state.accounts.push(StoredAccount {
            id: row.at(1)?,
            vendor: row.at(2)?,
            config: object(&row.at::<String>(3)?)?,
            secret: row.at(4)?,
            version: row.at(5)?,
        });
    }
    Ok((install, own))
}

fn object(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::internal("a settings row holds no JSON object"))
}

pub(crate) mod sql {
    crate::db::statements! {
        BOTH = "SELECT scope, mode, vendor, config, requests_per_minute, requests_per_run, version FROM capability_settings \
            WHERE capability = $1 AND scope IN ('install', $2)";
        ACCOUNTS = "SELECT scope, id, vendor, config, secret_id, version FROM vendor_accounts WHERE scope IN ('install', $1)";
    }
}
