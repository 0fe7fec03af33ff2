//! The listing: what an owner has set, who pays now, and what could be set (O1). It holds no secret and no part of one (O2).

use formation_core::{
    AccountRef, Capability, Scope, SecretId, VendorId,
    settings::{Limits, Mode, ScopeState, Settings, StoredAccount, Unavailable, installed, limits, resolve},
    words,
};
use formation_store::{
    secrets::{self, SecretError, VENDOR_KEY},
    settings::Stored,
    usage::{self, Minute},
};
use formation_vendors::{ENTRIES, Entry, Provider};
use serde_json::Value;

use crate::{Inner, Runtime, RuntimeError};

words! {
    /// Why a capability can't be used.
    pub enum Reason {
        /// Turned off.
        Disabled = "disabled",
        /// Automatic found no account.
        NoAccount = "no_account",
        /// The pinned vendor has none.
        AccountMissing = "account_missing",
        /// There is an account, and its stored credential doesn't open.
        CredentialUnreadable = "credential_unreadable",
    }
}

impl From<Unavailable> for Reason {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable {
            Unavailable::Disabled => Self::Disabled,
            Unavailable::NoAccount => Self::NoAccount,
            Unavailable::AccountMissing => Self::AccountMissing,
        }
    }
}

/// Everything an owner's settings page shows.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Whose it is.
    pub owner: Scope,
    /// All three, in fixed order.
    pub capabilities: Vec<CapabilityState>,
    /// Every vendor, in catalog order.
    pub vendors: Vec<VendorState>,
}

/// One capability.
#[derive(Debug, Clone)]
pub struct CapabilityState {
    /// Which.
    pub capability: Capability,
    /// Who implements it, in catalog order.
    pub providers: Vec<(&'static Entry, &'static Provider)>,
    /// As stored, or the owner's default at version 0.
    pub settings: Settings,
    /// Who pays now; `None` where nobody can.
    pub effective: Option<InEffect>,
    /// Why it can't be used, if it can't. An account whose credential doesn't open is in effect all the same: nothing falls back.
    pub reason: Option<Reason>,
    /// The running minute of whoever meters; `None` where nothing is metered.
    pub meter: Option<(Minute, Limits)>,
}

/// The connection in effect.
#[derive(Debug, Clone, PartialEq)]
pub struct InEffect {
    /// Who serves it.
    pub vendor: VendorId,
    /// Whose account pays.
    pub owner: Scope,
    /// Which account.
    pub account: AccountRef,
    secret: Option<SecretId>,
    limits: Limits,
}

/// One vendor.
#[derive(Debug, Clone)]
pub struct VendorState {
    /// What the catalog says.
    pub entry: &'static Entry,
    /// The owner's stored account.
    pub account: Option<StoredAccount>,
    /// Whether the environment brings an account for the install, in use or not.
    pub has_environment_account: bool,
    /// Whether the owner's calls could be paid with it: agents never use the environment's for a provider of their own (W15).
    pub is_environment_account_usable: bool,
}

impl Runtime {
    /// What the owner has set and what is in effect now.
    pub async fn web_listing(&self, owner: Scope) -> Result<Listing, RuntimeError> {
        let inner = &self.0;
        let stored = Stored::now(&inner.db, owner).await?;
        let environment = inner.catalog.environment_accounts();
        let mut capabilities = Vec::with_capacity(Capability::ALL.len());
        for capability in Capability::ALL {
            capabilities.push(inner.capability_state(owner, *capability, &stored).await?);
        }
        let own = stored.state(owner, Capability::Search).accounts;
        let vendors = ENTRIES.iter().map(|entry| {
            let has_environment_account = environment.iter().any(|account| account.vendor == entry.vendor);
            VendorState {
                entry,
                account: own.iter().find(|account| account.vendor == entry.vendor).cloned(),
                has_environment_account,
                is_environment_account_usable: has_environment_account && owner == Scope::Install,
            }
        });
        Ok(Listing { owner, capabilities, vendors: vendors.collect() })
    }
}

impl Inner {
    async fn capability_state(
        &self,
        owner: Scope,
        capability: Capability,
        stored: &Stored,
    ) -> Result<CapabilityState, RuntimeError> {
        let install = stored.state(Scope::Install, capability);
        let own = stored.state(owner, capability);
        let providers = ENTRIES.iter().filter_map(|entry| entry.provider(capability).map(|provider| (entry, provider)));
        let resolved = self.in_effect(owner, capability, &install, &own);
        let (effective, mut reason) = match resolved {
            Ok(effective) => (Some(effective), None),
            Err(unavailable) => (None, Some(Reason::from(unavailable))),
        };
        let mut meter = None;
        if let Some(effective) = &effective {
            if !self.opens(effective).await? {
                reason = Some(Reason::CredentialUnreadable);
            }
            if capability.is_metered() {
                meter = Some((usage::minute(&self.db, effective.owner, capability).await?, effective.limits));
            }
        }
        let settings = shown(owner, own.settings);
        Ok(CapabilityState { capability, providers: providers.collect(), settings, effective, reason, meter })
    }

    fn in_effect(
        &self,
        owner: Scope,
        capability: Capability,
        install: &ScopeState,
        own: &ScopeState,
    ) -> Result<InEffect, Unavailable> {
        let (order, environment) = (self.catalog.order(capability), self.catalog.environment_accounts());
        match owner {
            Scope::Install => installed(&order, install, &environment).map(|found| InEffect {
                vendor: found.vendor,
                owner,
                account: found.account.name,
                secret: found.account.secret,
                limits: found.limits,
            }),
            Scope::Agent(agent) => resolve(capability, agent, &order, install, own, &environment).map(|found| InEffect {
                vendor: found.binding.vendor,
                owner: found.binding.owner,
                account: found.binding.account,
                secret: found.secret,
                limits: found.limits,
            }),
        }
    }

    /// Whether the stored credential opens; the environment's isn't stored.
    async fn opens(&self, effective: &InEffect) -> Result<bool, RuntimeError> {
        let Some(secret) = effective.secret else { return Ok(true) };
        match secrets::open(&self.db, &self.keys, effective.owner, VENDOR_KEY, secret).await {
            Ok(_) => Ok(true),
            Err(SecretError::Store(error)) => Err(error.into()),
            Err(SecretError::Absent | SecretError::Sealed(_)) => Ok(false),
        }
    }
}

/// The stored row with its limits as they count, or what counts without one (W6, W8). An agent that inherits has no minute of its
/// own, and an allowance for a run only if it lowered the install's.
fn shown(owner: Scope, stored: Option<Settings>) -> Settings {
    let mut settings = stored.unwrap_or_else(|| Settings {
        mode: if owner == Scope::Install { Mode::Auto } else { Mode::Inherit },
        vendor: None,
        config: Value::Object(serde_json::Map::new()),
        requests_per_minute: None,
        requests_per_run: None,
        version: 0,
    });
    if settings.mode != Mode::Inherit {
        let counting = limits(Some(&settings));
        settings.requests_per_minute = Some(counting.requests_per_minute);
        settings.requests_per_run = Some(counting.requests_per_run);
    }
    settings
}
