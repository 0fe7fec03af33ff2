//! Vendor accounts: one credential a vendor and owner, with the vendor-level settings beside it (W2, W3).
//!
//! A change and its comparison of versions happen under [`lock_owner`]. The credential lies sealed in `secrets`, comes with the
//! account and goes with it (O4).

use formation_core::{AccountId, Scope, Secret, VendorId, settings::StoredAccount};
use serde_json::Value;

use crate::{
    Changed,
    db::{Hold, Tx},
    error::StoreError,
    seal::MasterKeys,
    secrets::{self, VENDOR_KEY},
};

/// Takes the locks under which an owner's settings and accounts may be changed (spine.md 5): no admission decides meanwhile.
/// `false`: the agent is gone.
pub async fn lock_owner(tx: &mut Tx, owner: Scope) -> Result<bool, StoreError> {
    match owner {
        Scope::Install => {
            tx.lock_scope(Scope::Install, Hold::Exclusive).await?;
            Ok(true)
        }
        Scope::Agent(agent) => {
            tx.lock_scope(Scope::Install, Hold::Shared).await?;
            tx.lock_scope(owner, Hold::Exclusive).await?;
            Ok(tx.row(sql::AGENT_LIVES, &[agent.into()]).await?.is_some())
        }
    }
}

/// The owner's account at this vendor, with who changed it last.
pub async fn find(tx: &mut Tx, owner: Scope, vendor: &VendorId) -> Result<Option<(StoredAccount, Changed)>, StoreError> {
    let Some(row) = tx.row(sql::FIND, &[owner.into(), vendor.into()]).await? else { return Ok(None) };
    let config = serde_json::from_str(&row.at::<String>(1)?).map_err(|_| StoreError::internal("an account holds no JSON"))?;
    let (secret, version) = (row.at(2)?, row.at(3)?);
    let account = StoredAccount { id: row.at(0)?, vendor: vendor.clone(), config, secret, version };
    Ok(Some((account, Changed { version, by: Some(row.at(4)?), at: Some(row.at(5)?) })))
}

/// Makes an account at version 1, under an id that no account had before. The caller has looked that the owner has none.
pub async fn create(
    tx: &mut Tx,
    keys: &MasterKeys,
    owner: Scope,
    vendor: &VendorId,
    config: &Value,
    key: &Secret,
    by: &str,
) -> Result<AccountId, StoreError> {
    let secret = secrets::put(tx, keys, owner, VENDOR_KEY, key).await?;
    let now = tx.now().await?;
    let id = AccountId::mint(now, tx.entropy());
    let config = config.to_string();
    let vals = [
        id.into(),
        owner.into(),
        owner.agent().into(),
        vendor.into(),
        (&config).into(),
        secret.into(),
        now.into(),
        by.into(),
    ];
    tx.exec(sql::CREATE, &vals).await?;
    Ok(id)
}

/// Replaces settings and, where one is given, the credential; the new version. `account` is what [`find`] just told.
pub async fn update(
    tx: &mut Tx,
    keys: &MasterKeys,
    owner: Scope,
    account: &StoredAccount,
    config: &Value,
    key: Option<&Secret>,
    by: &str,
) -> Result<i64, StoreError> {
    if let Some(key) = key
        && !secrets::replace(tx, keys, owner, VENDOR_KEY, account.secret, key).await?
    {
        return Err(StoreError::internal("an account's credential is gone"));
    }
    let (now, config, version) = (tx.now().await?, config.to_string(), account.version + 1);
    tx.exec(sql::UPDATE, &[account.id.into(), (&config).into(), version.into(), now.into(), by.into()]).await?;
    Ok(version)
}

/// Takes an account away, settings and credential with it.
pub async fn remove(tx: &mut Tx, account: &StoredAccount) -> Result<(), StoreError> {
    tx.exec(sql::REMOVE, &[account.id.into()]).await?;
    tx.exec(sql::REMOVE_SECRET, &[account.secret.into()]).await?;
    Ok(())
}

/// Takes all of an owner's accounts away, likewise.
pub(crate) async fn remove_all(tx: &mut Tx, owner: Scope) -> Result<(), StoreError> {
    tx.exec(sql::REMOVE_ALL, &[owner.into()]).await?;
    tx.exec(sql::REMOVE_SECRETS, &[owner.into(), VENDOR_KEY.into()]).await?;
    Ok(())
}

pub(crate) mod sql {
    crate::db::statements! {
        AGENT_LIVES = "SELECT 1 FROM agents WHERE id = $1 AND deleted_at IS NULL";
        FIND = "SELECT id, config, secret_id, version, updated_by, updated_at FROM vendor_accounts WHERE scope = $1 AND vendor = $2";
        CREATE = "INSERT INTO vendor_accounts \
            (id, scope, agent_id, vendor, config, secret_id, version, created_at, updated_at, updated_by) \
            VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $7, $8)";
        UPDATE = "UPDATE vendor_accounts SET config = $2, version = $3, updated_at = $4, updated_by = $5 WHERE id = $1";
        REMOVE = "DELETE FROM vendor_accounts WHERE id = $1";
        REMOVE_ALL = "DELETE FROM vendor_accounts WHERE scope = $1";
        REMOVE_SECRETS = "DELETE FROM secrets WHERE owner = $1 AND kind = $2";
        REMOVE_SECRET = "DELETE FROM secrets WHERE id = $1";
    }
}
