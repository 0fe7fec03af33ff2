//! Settings, over HTTP (contract.md 2): the install's for owners, an agent's for whoever manages it. The rules are the runtime's.

pub(crate) mod install;
mod listing;
mod usage;
pub(crate) mod web;

use std::fmt;

use formation_core::{Secret, refusal::Code};
use formation_runtime::settings::SettingsError;
use serde::{Deserialize, Deserializer};

use crate::problem::Problem;

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::NotFound => Self::new(Code::NotFound),
            SettingsError::ManagedByEnvironment => Self::new(Code::ManagedByEnvironment)
                .detail("This vendor needs no account here: the way the server is started decides about it."),
            SettingsError::Stale(changed) => Self::stale(changed.version, changed.by, changed.at),
            SettingsError::CredentialRequired => {
                Self::new(Code::CredentialRequired).field("api_key").detail("A new account comes with its credential.")
            }
            SettingsError::AccountRequired => Self::new(Code::AccountRequired)
                .field("provider")
                .detail("Connect an account of this vendor for this owner first; no other owner's is used."),
            SettingsError::Invalid(invalid) => Self::new(invalid.code).field(&invalid.field).detail(invalid.says),
            SettingsError::Runtime(error) => error.into(),
        }
    }
}

/// A credential in a body: it prints as `****`, and what doesn't fit is never told.
pub(crate) struct Key(Secret);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Secret::new(text.into_bytes())))
    }
}
