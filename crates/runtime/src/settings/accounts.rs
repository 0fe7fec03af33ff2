//! Storing, rotating and removing vendor accounts (O3, O4).

use std::sync::Arc;

use formation_core::{Scope, Secret, VendorId, people::Actor};
use formation_store::{Changed, accounts};
use serde_json::{Map, Value, json};

use super::{Code, Invalid, Listing, SettingsError, compare, done, lock, vendor};
use crate::{Runtime, RuntimeError};

/// The longest credential, in bytes.
const KEY_BYTES: usize = 4 * 1024;

/// An account as it should be.
#[derive(Debug)]
pub struct PutAccount {
    /// The version that was seen; 0 makes a new account.
    pub version: i64,
    /// Absent keeps the stored credential.
    pub key: Option<Secret>,
    /// All vendor-level settings.
    pub config: Map<String, Value>,
}

impl Runtime {
    /// Stores a new account, or replaces the settings and, where one is given, the credential of the stored one.
    pub async fn put_account(&self, actor: &Actor, owner: Scope, word: &str, put: PutAccount) -> Result<Listing, SettingsError> {
        let entry = vendor(word)?;
        if entry.credential.is_none() {
            return Err(SettingsError::ManagedByEnvironment);
        }
        put.key.as_ref().map_or(Ok(()), check_key)?;
        let config = formation_vendors::config::read(entry.fields, &put.config)?;
        let (keys, actor, vendor) = (Arc::clone(&self.0.keys), actor.clone(), entry.vendor.clone());
        let PutAccount { version, key, .. } = put;
        self.0
            .db
            .write(move |tx| {
                Box::pin(async move {
                    lock(tx, owner).await?;
                    let by = actor.name.as_str();
                    let credential = if key.is_some() { "new" } else { "kept" };
                    let version = if let Some((account, changed)) = accounts::find(tx, owner, &vendor).await? {
                        compare(version, changed)?;
                        accounts::update(tx, &keys, owner, &account, &config, key.as_ref(), by).await?
                    } else {
                        compare(version, Changed::default())?;
                        let key = key.ok_or(SettingsError::CredentialRequired)?;
                        accounts::create(tx, &keys, owner, &vendor, &config, &key, by).await?;
                        1
                    };
                    let detail = json!({"version": version, "credential": credential});
                    done(tx, &actor, owner, "web.account.save", vendor.as_str(), detail).await
                })
            })
            .await?;
        self.changed_listing(owner).await
    }

    /// Removes an account with its credential and settings. For the install this is also the way back to the environment's account.
    pub async fn delete_account(&self, actor: &Actor, owner: Scope, word: &str, version: i64) -> Result<Listing, SettingsError> {
        let entry = vendor(word)?;
        if entry.credential.is_none() {
            return Err(SettingsError::ManagedByEnvironment);
        }
        let (actor, vendor): (Actor, VendorId) = (actor.clone(), entry.vendor.clone());
        self.0
            .db
            .write(move |tx| {
                Box::pin(async move {
                    lock(tx, owner).await?;
                    let Some((account, changed)) = accounts::find(tx, owner, &vendor).await? else {
                        compare(version, Changed::default())?;
                        return Err(SettingsError::NotFound);
                    };
                    compare(version, changed)?;
                    accounts::remove(tx, &account).await?;
                    let detail = json!({"version": account.version});
                    done(tx, &actor, owner, "web.account.remove", vendor.as_str(), detail).await
                })
            })
            .await?;
        self.changed_listing(owner).await
    }

    /// What every write answers with. Browsers that stand on other terms now are closed at once, not at the next sweep.
    pub(super) async fn changed_listing(&self, owner: Scope) -> Result<Listing, SettingsError> {
        self.0.wake_sweeper();
        self.web_listing(owner).await.map_err(|error: RuntimeError| error.into())
    }
}

/// A key that could be one. Says nothing about the key itself.
fn check_key(key: &Secret) -> Result<(), Invalid> {
    // Bytes, so that nothing is copied: a text in, a text here.
    let text = std::str::from_utf8(key.expose()).map_err(|_| Invalid::value("api_key", "A text."))?;
    if text.trim().is_empty() {
        return Err(Invalid::of(Code::BlankCredential, "api_key", "Leave `api_key` out to keep the stored one."));
    }
    if text.len() > KEY_BYTES || text.chars().any(char::is_control) {
        return Err(Invalid::value("api_key", format!("One line of at most {KEY_BYTES} bytes.")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o3_a_key_is_one_line_with_something_on_it() {
        let code = |text: &str| check_key(&Secret::new(text.as_bytes())).err().map(|invalid| invalid.code);
        for good in ["k", "a key with spaces", &"k".repeat(KEY_BYTES)] {
            assert_eq!(code(good), None);
        }
        for blank in ["", " ", "\u{a0}\u{2003}", "\n\t"] {
            assert_eq!(code(blank), Some(Code::BlankCredential), "{blank:?}");
        }
        for bad in ["key\n", "k\0y", "k\u{85}y", &"k".repeat(KEY_BYTES + 1)] {
            assert_eq!(code(bad), Some(Code::InvalidValue));
        }
    }
}
