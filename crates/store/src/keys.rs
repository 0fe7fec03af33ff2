//! The table of master keys: which ones this data needs, so that a wrong one is noticed at the start and not at the first secret
//! (S-16).

use formation_core::Timestamp;
use subtle::ConstantTimeEq as _;

use crate::{
    db::{Db, Tx},
    error::StoreError,
    seal::{KeyId, MasterKeys},
};

/// Why the keys at hand do not fit this database. The sentences are for the person at the terminal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Data is sealed under a key that is not at hand.
    #[error(
        "this data is sealed with master key {0}, and that key was not given; put it into FORMATION_MASTER_KEY or the key file \
         it was written to, or add it to FORMATION_MASTER_KEYS"
    )]
    Missing(String),
    /// The table holds something else under this key's name.
    #[error("master key {0} does not fit this database; give the key this data was sealed with, or restore the right backup")]
    Wrong(String),
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MasterKeys {
    /// Compares the keys at hand with the ones this data needs. Changes nothing.
    pub async fn check(&self, db: &Db) -> Result<(), KeyError> {
        let known = db.rows(sql::NEEDED, &[]).await?;
        for row in &known {
            let id: String = row.at(0)?;
            let stored: Vec<u8> = row.at(1)?;
            let check = self.check_value(&KeyId::stored(id.clone())).ok_or_else(|| KeyError::Missing(id.clone()))?;
            if !bool::from(check.as_slice().ct_eq(&stored)) {
                return Err(KeyError::Wrong(id));
            }
        }
        Ok(())
    }

    /// Checks the keys at hand, and enters the current one if it is new.
    pub async fn fit(&self, db: &Db) -> Result<(), KeyError> {
        self.check(db).await?;
        let current = self.current().as_str().to_owned();
        let check = self.check_value(self.current()).ok_or(StoreError::internal("the current key is at hand"))?;
        db.write(move |tx| Box::pin(async move { enter(tx, &current, &check).await.map_err(KeyError::Store) })).await
    }
}

async fn enter(tx: &mut Tx, id: &str, check: &[u8; 32]) -> Result<(), StoreError> {
    let now: Timestamp = tx.now().await?;
    tx.exec(sql::ENTER, &[id.into(), check.into(), now.into()]).await.map(|_| ())
}

pub(crate) mod sql {
    crate::db::statements! {
        NEEDED = "SELECT id, check_value FROM master_keys WHERE retired_at IS NULL ORDER BY created_at, id";
        ENTER = "INSERT INTO master_keys (id, check_value, created_at) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING";
    }
}
