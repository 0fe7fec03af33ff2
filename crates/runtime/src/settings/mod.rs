//! Settings of the install and of agents: vendor accounts, capability connections, the install's own (contract.md 2, "Web settings").
//!
//! Every write takes its owner's lock, compares the version it was made on, changes, writes its line of the audit trail and tells the
//! news, all in one transaction (R-20, W17). What it returns is in force: it waits for no call in flight and no remote service (W21),
//! undoes nothing that was sent and revokes no key at its issuer (W24).
//!
//! Whether the caller may write for this owner is decided before: the doors make a scope out of an authorization.

mod accounts;
mod connections;
mod install;
mod listing;
mod usage;

use formation_core::{Scope, VendorId, people::Actor, refusal::Code, settings::Invalid};
use formation_store::{Changed, News, StoreError, Tx, accounts::lock_owner, audit};
use serde_json::Value;

pub use accounts::PutAccount;
pub use connections::PutConnection;
pub use formation_store::{
    agents::RunDefaults,
    install::InstallConfig,
    usage::{Bucket, Counts, Key as UsageKey, Minute, Span},
};
pub use formation_vendors::{Credential, Entry, Field, FieldKind, Link, Provider};
pub use install::InstallSettings;
pub use listing::{CapabilityState, InEffect, Listing, Reason, VendorState};
pub use usage::{Usage, UsageQuery};

use crate::RuntimeError;

/// Why settings were not changed. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No such vendor, account or agent.
    #[error("not found")]
    NotFound,
    /// The environment of the process brings this vendor's account.
    #[error("managed by the environment")]
    ManagedByEnvironment,
    /// Somebody else changed it meanwhile.
    #[error("version {} is stored", .0.version)]
    Stale(Changed),
    /// A new account came without its credential.
    #[error("a credential is required")]
    CredentialRequired,
    /// The owner has no account of the vendor it wants to use.
    #[error("an account is required")]
    AccountRequired,
    /// A value that can't be stored.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The database.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl From<StoreError> for SettingsError {
    fn from(error: StoreError) -> Self {
        Self::Runtime(error.into())
    }
}

/// Takes the owner's lock; an agent that was deleted meanwhile is not found.
async fn lock(tx: &mut Tx, owner: Scope) -> Result<(), SettingsError> {
    if lock_owner(tx, owner).await? { Ok(()) } else { Err(SettingsError::NotFound) }
}

/// Whether the writer saw what is stored.
fn compare(seen: i64, stored: Changed) -> Result<(), SettingsError> {
    if seen == stored.version { Ok(()) } else { Err(SettingsError::Stale(stored)) }
}

/// The end of every change: its line in the audit trail, and the news. `action` goes on after the owner's word, as the routes' ids do.
async fn done(tx: &mut Tx, actor: &Actor, owner: Scope, action: &str, subject: &str, detail: Value) -> Result<(), SettingsError> {
    let action = &format!("{}.{action}", owner.owner_word());
    audit::done(tx, actor, owner.agent(), action, subject, detail).await?;
    tx.tell(News::Settings(owner));
    Ok(())
}

/// The catalog's entry of the vendor with this word.
fn vendor(word: &str) -> Result<&'static Entry, SettingsError> {
    formation_vendors::entry(&VendorId::named(word)).ok_or(SettingsError::NotFound)
}
