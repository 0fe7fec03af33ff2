//! Sealed secrets at rest: credentials of accounts, entries of the vault. Only who knows the owner can open one.

use formation_core::{Scope, Secret, SecretId};

use crate::{
    db::{Db, Reads, Tx},
    error::StoreError,
    seal::{CannotOpen, KeyId, MasterKeys, Place, Sealed},
};

/// The kind of a vendor account's credential.
pub const VENDOR_KEY: &str = "vendor_key";

/// Why a secret cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The owner has no such secret of this kind.
    #[error("no such secret")]
    Absent,
    /// It does not open.
    #[error(transparent)]
    Sealed(#[from] CannotOpen),
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Seals `value` and stores it as revision 1.
pub async fn put(
    tx: &mut Tx,
    keys: &MasterKeys,
    owner: Scope,
    kind: &'static str,
    value: &Secret,
) -> Result<SecretId, StoreError> {
    let now = tx.now().await?;
    let id = SecretId::mint(now, tx.entropy());
    let (owner, row) = (owner.to_string(), id.to_string());
    let place = Place { owner: &owner, kind, row: &row, revision: 1 };
    let sealed = keys.seal(tx.entropy(), &place, value.expose());
    let vals = [
        id.into(),
        (&owner).into(),
        kind.into(),
        1.into(),
        sealed.key_id.as_str().into(),
        (&sealed.wrapped_key).into(),
        (&sealed.sealed).into(),
        now.into(),
    ];
    tx.exec(sql::PUT, &vals).await?;
    Ok(id)
}

/// Replaces the value; the revision rises, so that the old bytes do not open in the new row. `false`: no such secret.
pub async fn replace(
    tx: &mut Tx,
    keys: &MasterKeys,
    owner: Scope,
    kind: &'static str,
    id: SecretId,
    value: &Secret,
) -> Result<bool, StoreError> {
    let (owner, row) = (owner.to_string(), id.to_string());
    let Some(found) = tx.row(sql::REVISION, &[id.into(), (&owner).into(), kind.into()]).await? else { return Ok(false) };
    let revision = found.at::<i64>(0)? + 1;
    let place = Place { owner: &owner, kind, row: &row, revision };
    let sealed = keys.seal(tx.entropy(), &place, value.expose());
    let vals = [
        id.into(),
        revision.into(),
        sealed.key_id.as_str().into(),
        (&sealed.wrapped_key).into(),
        (&sealed.sealed).into(),
    ];
    Ok(tx.exec(sql::REPLACE, &vals).await? == 1)
}

/// A secret as it lies in the database, with the place it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    owner: Scope,
    kind: &'static str,
    id: SecretId,
    revision: i64,
    sealed: Sealed,
}

impl SealedSecret {
    /// Opens it, for one request.
    pub fn open(&self, keys: &MasterKeys) -> Result<Secret, CannotOpen> {
        let (owner, row) = (self.owner.to_string(), self.id.to_string());
        keys.open(&Place { owner: &owner, kind: self.kind, row: &row, revision: self.revision }, &self.sealed)
    }
}

/// The secret of this owner, kind and id, still sealed.
pub(crate) async fn read(
    reads: &mut impl Reads,
    owner: Scope,
    kind: &'static str,
    id: SecretId,
) -> Result<Option<SealedSecret>, StoreError> {
    let rows = reads.fetch(sql::OPEN, &[id.into(), owner.into(), kind.into()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let sealed = Sealed { key_id: KeyId::stored(row.at::<String>(1)?), wrapped_key: row.at(2)?, sealed: row.at(3)? };
    Ok(Some(SealedSecret { owner, kind, id, revision: row.at(0)?, sealed }))
}

/// Opens the secret of this owner, kind and id.
pub async fn open(db: &Db, keys: &MasterKeys, owner: Scope, kind: &'static str, id: SecretId) -> Result<Secret, SecretError> {
    let mut reads = db;
    let sealed = read(&mut reads, owner, kind, id).await?.ok_or(SecretError::Absent)?;
    Ok(sealed.open(keys)?)
}

pub(crate) mod sql {
    crate::db::statements! {
        PUT = "INSERT INTO secrets (id, owner, kind, revision, key_id, wrapped_key, sealed, created_at) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        REVISION = "SELECT revision FROM secrets WHERE id = $1 AND owner = $2 AND kind = $3"
            => "SELECT revision FROM secrets WHERE id = $1 AND owner = $2 AND kind = $3 FOR NO KEY UPDATE";
        REPLACE = "UPDATE secrets SET revision = $2, key_id = $3, wrapped_key = $4, sealed = $5 WHERE id = $1";
        OPEN = "SELECT revision, key_id, wrapped_key, sealed FROM secrets WHERE id = $1 AND owner = $2 AND kind = $3";
    }
}
