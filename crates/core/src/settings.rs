//! Which account pays for one capability of one agent, or why nobody does (W5–W10). Pure: the caller brings every row.

mod check;
#[cfg(test)]
mod table;

use serde_json::Value;

pub use check::{AskedLimits, Invalid, Proposal, check, check_against_install};

use crate::{
    binding::{AccountRef, Binding, Scope, VendorId},
    ids::{AccountId, AgentId, SecretId},
    tool::Capability,
    words,
};

words! {
    /// How a connection is chosen.
    pub enum Mode {
        /// The first vendor in catalog order that has an account; the install's default.
        Auto = "auto",
        /// The install's effective connection, live; an agent's default (W8).
        Inherit = "inherit",
        /// One pinned vendor.
        Own = "own",
        /// Off (W9).
        Disabled = "disabled",
    }
}

words! {
    /// Why a capability has nobody to pay for it.
    pub enum Unavailable {
        /// Turned off.
        Disabled = "disabled",
        /// Automatic found no account.
        NoAccount = "no_account",
        /// The pinned vendor has none.
        AccountMissing = "account_missing",
    }
}

/// How many provider requests a connection may make (L8). They count admitted attempts, not amounts on an invoice (L5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// 1 to 6,000, over all agents of the connection.
    pub requests_per_minute: i64,
    /// 1 to 10,000.
    pub requests_per_run: i64,
}

impl Limits {
    /// Largest `requests_per_minute`.
    pub const MAX_PER_MINUTE: i64 = 6_000;
    /// Largest `requests_per_run`.
    pub const MAX_PER_RUN: i64 = 10_000;
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests_per_minute: 60, requests_per_run: 50 }
    }
}

/// A stored settings row of one capability.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How the connection is chosen.
    pub mode: Mode,
    /// The pinned vendor, with `own` only.
    pub vendor: Option<VendorId>,
    /// Capability-level settings, a JSON object.
    pub config: Value,
    /// As stored; absent means the default, with `inherit` the install's.
    pub requests_per_minute: Option<i64>,
    /// Likewise.
    pub requests_per_run: Option<i64>,
    /// Rises with each write; a row is never deleted.
    pub version: i64,
}

/// A stored vendor account, without its credential.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredAccount {
    /// New at each creation.
    pub id: AccountId,
    /// Whose it is.
    pub vendor: VendorId,
    /// Vendor-level settings, a JSON object.
    pub config: Value,
    /// Where its credential lies.
    pub secret: SecretId,
    /// Rises with each change.
    pub version: i64,
}

/// What one owner has for one capability.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScopeState {
    /// Its settings row, if any.
    pub settings: Option<Settings>,
    /// Its accounts, of whatever vendor.
    pub accounts: Vec<StoredAccount>,
}

/// An account the environment of the process brings; it belongs to the install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentAccount {
    /// Of which vendor.
    pub vendor: VendorId,
    /// A keyed hash of what it consists of.
    pub fingerprint: String,
}

/// A vendor that implements the capability, in catalog order.
pub type CatalogOrder = [VendorId];

/// Who pays, on which terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// What an offer captures.
    pub binding: Binding,
    /// Capability-level settings in effect: those of the owner's row, or an empty object.
    pub config: Value,
    /// The account's own settings, or an empty object.
    pub account_config: Value,
    /// Where the account's credential lies; the environment's accounts have none stored.
    pub secret: Option<SecretId>,
    /// What its calls may cost.
    pub limits: Limits,
    /// Whose minute it counts in: the install's for an agent that inherits (L8).
    pub meter_scope: Scope,
}

/// Decides. `order` lists the vendors that implement `capability`; `environment` holds the accounts of this process.
pub fn resolve(
    capability: Capability,
    agent: AgentId,
    order: &CatalogOrder,
    install: &ScopeState,
    own: &ScopeState,
    environment: &[EnvironmentAccount],
) -> Result<Effective, Unavailable> {
    let agent_version = own.settings.as_ref().map_or(0, |row| row.version);
    match own.settings.as_ref().map(|row| (row.mode, row)) {
        Some((Mode::Disabled, _)) => return Err(Unavailable::Disabled),
        Some((Mode::Own, row)) => {
            // The agent's own override never falls back to the install's account (W10), nor to the environment's (W15).
            let vendor = row.vendor.clone().filter(|vendor| order.contains(vendor)).ok_or(Unavailable::AccountMissing)?;
            let account = stored(own, &vendor).ok_or(Unavailable::AccountMissing)?;
            let meter_scope = Scope::Agent(agent);
            let binding = Binding {
                agent,
                capability,
                vendor,
                owner: meter_scope,
                account: account.name,
                install_version: None,
                agent_version,
            };
            let (config, limits) = (row.config.clone(), limits(Some(row)));
            return Ok(Effective { binding, config, account_config: account.config, secret: account.secret, limits, meter_scope });
        }
        Some((Mode::Inherit | Mode::Auto, _)) | None => {}
    }
    let Installed { vendor, account, config, mut limits } = installed(order, install, environment)?;
    // An inheriting agent can lower the install's allowance for a run, never raise it (L8).
    if let Some(lowered) = own.settings.as_ref().and_then(|row| row.requests_per_run) {
        limits.requests_per_run = limits.requests_per_run.min(lowered);
    }
    let install_version = Some(install.settings.as_ref().map_or(0, |row| row.version));
    let owner = Scope::Install;
    let binding = Binding { agent, capability, vendor, owner, account: account.name, install_version, agent_version };
    Ok(Effective { binding, config, account_config: account.config, secret: account.secret, limits, meter_scope: owner })
}

/// What the install itself uses for a capability: what its own page shows, and what agents inherit.
#[derive(Debug, Clone, PartialEq)]
pub struct Installed {
    /// Who serves it.
    pub vendor: VendorId,
    /// On which account.
    pub account: Paying,
    /// Capability-level settings in effect.
    pub config: Value,
    /// The install's limits.
    pub limits: Limits,
}

/// An account that pays.
#[derive(Debug, Clone, PartialEq)]
pub struct Paying {
    /// As a binding names it.
    pub name: AccountRef,
    /// Its own settings, or an empty object.
    pub config: Value,
    /// Where its credential lies.
    pub secret: Option<SecretId>,
}

/// The install's effective connection, its automatic choice included (W6, W7, W14).
pub fn installed(order: &CatalogOrder, install: &ScopeState, environment: &[EnvironmentAccount]) -> Result<Installed, Unavailable> {
    let account = |vendor: &VendorId| {
        // A stored account takes precedence over the environment's (W14).
        stored(install, vendor).or_else(|| {
            environment.iter().find(|account| account.vendor == *vendor).map(|account| Paying {
                name: AccountRef::Environment { fingerprint: account.fingerprint.clone() },
                config: empty(),
                secret: None,
            })
        })
    };
    let limits = limits(install.settings.as_ref());
    match install.settings.as_ref() {
        Some(row) if row.mode == Mode::Disabled => Err(Unavailable::Disabled),
        Some(row) if row.mode == Mode::Own => {
            let vendor = row.vendor.clone().filter(|vendor| order.contains(vendor)).ok_or(Unavailable::AccountMissing)?;
            let account = account(&vendor).ok_or(Unavailable::AccountMissing)?;
            Ok(Installed { vendor, account, config: row.config.clone(), limits })
        }
        _ => order
            .iter()
            .find_map(|vendor| {
                account(vendor).map(|account| Installed { vendor: vendor.clone(), account, config: empty(), limits })
            })
            .ok_or(Unavailable::NoAccount),
    }
}

fn stored(state: &ScopeState, vendor: &VendorId) -> Option<Paying> {
    let account = state.accounts.iter().find(|account| account.vendor == *vendor)?;
    let name = AccountRef::Stored { id: account.id, version: account.version };
    Some(Paying { name, config: account.config.clone(), secret: Some(account.secret) })
}

/// What a row that meters by itself allows: as stored, or the defaults.
pub fn limits(row: Option<&Settings>) -> Limits {
    let default = Limits::default();
    Limits {
        requests_per_minute: row.and_then(|row| row.requests_per_minute).unwrap_or(default.requests_per_minute),
        requests_per_run: row.and_then(|row| row.requests_per_run).unwrap_or(default.requests_per_run),
    }
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const FIRST: VendorId = VendorId::known("first");
    const LAST: VendorId = VendorId::known("last");

    fn agent() -> AgentId {
        AgentId::fixed(1)
    }

    fn row(mode: Mode, vendor: Option<VendorId>) -> Settings {
        Settings {
            mode,
            vendor,
            config: json!({"of": mode.as_str()}),
            requests_per_minute: None,
            requests_per_run: None,
            version: 3,
        }
    }

    fn account(number: u64, vendor: VendorId) -> StoredAccount {
        let (config, secret) = (json!({"number": number}), SecretId::fixed(number));
        StoredAccount { id: AccountId::fixed(number), vendor, config, secret, version: 2 }
    }

    fn scope(number: u64) -> impl Strategy<Value = ScopeState> {
        let mode = proptest::sample::select(Mode::ALL);
        let vendor = proptest::sample::select(vec![FIRST, LAST]);
        let settings =
            proptest::option::of((mode, vendor).prop_map(|(mode, vendor)| row(mode, (mode == Mode::Own).then_some(vendor))));
        (settings, any::<bool>(), any::<bool>()).prop_map(move |(settings, first, last)| {
            let mut accounts = Vec::new();
            if first {
                accounts.push(account(number, FIRST));
            }
            if last {
                accounts.push(account(number + 1, LAST));
            }
            ScopeState { settings, accounts }
        })
    }

    fn environment() -> impl Strategy<Value = Vec<EnvironmentAccount>> {
        any::<bool>().prop_map(|there| {
            there.then(|| EnvironmentAccount { vendor: LAST, fingerprint: "0011223344556677".into() }).into_iter().collect()
        })
    }

    proptest! {
        /// W10, W15: an agent's own provider is paid by the agent's own stored account, or by nobody.
        #[test]
        fn an_own_override_never_borrows(install in scope(10), own in scope(20), environment in environment()) {
            let resolved = resolve(Capability::Browser, agent(), &[FIRST, LAST], &install, &own, &environment);
            let pinned = own.settings.as_ref().filter(|row| row.mode == Mode::Own);
            if let (Some(row), Ok(effective)) = (pinned, &resolved) {
                prop_assert_eq!(effective.binding.owner, Scope::Agent(agent()));
                prop_assert_eq!(Some(&effective.binding.vendor), row.vendor.as_ref());
                let is_own = matches!(&effective.binding.account, AccountRef::Stored { id, .. }
                    if own.accounts.iter().any(|account| account.id == *id));
                prop_assert!(is_own);
            }
            if pinned.is_none() && let Ok(effective) = &resolved {
                prop_assert_eq!(effective.binding.owner, Scope::Install);
            }
        }

        /// W9: disabled offers nothing, whoever has accounts.
        #[test]
        fn disabled_is_off(mut install in scope(10), mut own in scope(20), environment in environment(), which in any::<bool>()) {
            if which {
                own.settings = Some(row(Mode::Disabled, None));
            } else {
                own.settings = None;
                install.settings = Some(row(Mode::Disabled, None));
            }
            let resolved = resolve(Capability::Browser, agent(), &[FIRST, LAST], &install, &own, &environment);
            prop_assert_eq!(resolved.map(|effective| effective.binding), Err(Unavailable::Disabled));
        }

        /// W6, W14: automatic takes the first in catalog order, a stored account before the environment's.
        #[test]
        fn automatic_takes_the_first(mut install in scope(10), environment in environment()) {
            install.settings = None;
            let resolved = resolve(Capability::Browser, agent(), &[FIRST, LAST], &install, &ScopeState::default(), &environment);
            let has = |vendor: &VendorId| install.accounts.iter().any(|account| account.vendor == *vendor);
            match resolved {
                Ok(effective) if effective.binding.vendor == FIRST => prop_assert!(has(&FIRST)),
                Ok(effective) => {
                    prop_assert!(!has(&FIRST));
                    let is_stored = matches!(effective.binding.account, AccountRef::Stored { .. });
                    prop_assert_eq!(is_stored, has(&LAST));
                }
                Err(reason) => {
                    prop_assert_eq!(reason, Unavailable::NoAccount);
                    prop_assert!(!has(&FIRST) && !has(&LAST) && environment.is_empty());
                }
            }
        }
    }

    /// W11: every version that could change who pays is in the binding.
    #[test]
    fn a_binding_holds_the_versions_it_hangs_on() {
        let install = ScopeState { settings: Some(row(Mode::Own, Some(FIRST))), accounts: vec![account(1, FIRST)] };
        let effective = resolve(Capability::Browser, agent(), &[FIRST], &install, &ScopeState::default(), &[]).expect("resolves");
        assert_eq!(effective.binding.install_version, Some(3));
        assert_eq!(effective.binding.agent_version, 0);
        assert_eq!(effective.binding.account, AccountRef::Stored { id: AccountId::fixed(1), version: 2 });
        assert_eq!(effective.config, json!({"of": "own"}));
    }
}
