//! Settings in effect: reads what each owner has for a capability and resolves it (W5–W10).
//!
//! Admission and settle read under the shared scope locks; a listing reads without, since what it offers is compared later.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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

/// Who pays for what, or why nobody does.
pub type Resolved = BTreeMap<(AgentId, Capability), Result<Effective, Unavailable>>;

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

    /// The same for many at once.
    pub async fn resolve_many_now(&self, db: &Db, pairs: &BTreeSet<(AgentId, Capability)>) -> Result<Resolved, StoreError> {
        let mut reads = db;
        self.resolve_all(&mut reads, pairs).await
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
        let resolved = self.resolve_all(reads, &BTreeSet::from([(agent, capability)])).await?;
        resolved.into_values().next().ok_or(StoreError::internal("a resolution is missing"))
    }

    /// The same for many, in two statements.
    pub(crate) async fn resolve_all(
        &self,
        reads: &mut impl Reads,
        pairs: &BTreeSet<(AgentId, Capability)>,
    ) -> Result<Resolved, StoreError> {
        let stored = Stored::read(reads, pairs.iter().map(|(agent, _)| *agent)).await?;
        let environment = (self.environment)();
        let resolved = pairs.iter().map(|(agent, capability)| {
            let (install, own) = (stored.state(Scope::Install, *capability), stored.state(Scope::Agent(*agent), *capability));
            let order = (self.order)(*capability);
            ((*agent, *capability), resolve(*capability, *agent, &order, &install, &own, &environment))
        });
        Ok(resolved.collect())
    }
}

/// What the install and some agents have stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    settings: BTreeMap<(Scope, Capability), Settings>,
    accounts: BTreeMap<Scope, Vec<StoredAccount>>,
}

impl Stored {
    /// What this owner and the install have now, for a listing: no locks.
    pub async fn now(db: &Db, owner: Scope) -> Result<Self, StoreError> {
        let mut reads = db;
        Self::read(&mut reads, owner.agent().into_iter()).await
    }

    /// The same for a write, which holds the owner's lock.
    pub async fn locked(tx: &mut Tx, owner: Scope) -> Result<Self, StoreError> {
        Self::read(tx, owner.agent().into_iter()).await
    }

    async fn read(reads: &mut impl Reads, agents: impl Iterator<Item = AgentId>) -> Result<Self, StoreError> {
        let scopes: BTreeSet<Scope> = agents.map(Scope::Agent).chain([Scope::Install]).collect();
        let scopes = serde_json::to_string(&scopes).map_err(|_| StoreError::internal("a scope is no JSON"))?;
        let mut settings = BTreeMap::new();
        for row in reads.fetch(sql::SETTINGS, &[(&scopes).into()]).await? {
            let read = Settings {
                mode: row.at(2)?,
                vendor: row.at(3)?,
                config: object(&row.at::<String>(4)?)?,
                requests_per_minute: row.at(5)?,
                requests_per_run: row.at(6)?,
                version: row.at(7)?,
            };
            settings.insert((row.at(0)?, row.at(1)?), read);
        }
        let mut accounts: BTreeMap<Scope, Vec<StoredAccount>> = BTreeMap::new();
        for row in reads.fetch(sql::ACCOUNTS, &[(&scopes).into()]).await? {
            accounts.entry(row.at(0)?).or_default().push(StoredAccount {
                id: row.at(1)?,
                vendor: row.at(2)?,
                config: object(&row.at::<String>(3)?)?,
                secret: row.at(4)?,
                version: row.at(5)?,
            });
        }
        Ok(Self { settings, accounts })
    }

    /// What one of them has for a capability.
    pub fn state(&self, scope: Scope, capability: Capability) -> ScopeState {
        ScopeState {
            settings: self.settings.get(&(scope, capability)).cloned(),
            accounts: self.accounts.get(&scope).cloned().unwrap_or_default(),
        }
    }
}

fn object(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::internal("a settings row holds no JSON object"))
}

pub(crate) mod sql {
    crate::db::statements! {
        SETTINGS = "SELECT scope, capability, mode, vendor, config, requests_per_minute, requests_per_run, version \
            FROM capability_settings WHERE scope IN (SELECT value FROM json_each($1))"
            => "SELECT scope, capability, mode, vendor, config, requests_per_minute, requests_per_run, version \
            FROM capability_settings WHERE scope IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))";
        ACCOUNTS = "SELECT scope, id, vendor, config, secret_id, version FROM vendor_accounts \
            WHERE scope IN (SELECT value FROM json_each($1))"
            => "SELECT scope, id, vendor, config, secret_id, version FROM vendor_accounts \
            WHERE scope IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))";
    }
}
