//! The one way in before there is an owner: a link that works once, for 24 hours. Each replica that starts without an owner makes one;
//! the first that is used ends them all.

use std::time::Duration;

use formation_core::Secret;

use crate::{
    db::{Db, Tx},
    error::StoreError,
    tokens::{digits, hash_of, is_digits},
};

/// How long a link is good.
pub const LIFE: Duration = Duration::from_hours(24);

/// Makes a link; its text, which is nowhere else.
pub async fn make(tx: &mut Tx) -> Result<Secret, StoreError> {
    let now = tx.now().await?;
    tx.exec(sql::END_OLD, &[now.into()]).await?;
    let text = digits(tx.entropy());
    let hash = hash_of(text.as_bytes());
    tx.exec(sql::MAKE, &[(&hash).into(), now.into(), now.after(LIFE).into()]).await?;
    Ok(Secret::new(text.into_bytes()))
}

/// Whether this link would work now.
pub async fn is_good(db: &Db, presented: &str) -> Result<bool, StoreError> {
    if !is_digits(presented) {
        return Ok(false);
    }
    let hash = hash_of(presented.as_bytes());
    let now = db.now().await?;
    Ok(db.row(sql::FIND, &[(&hash).into(), now.into()]).await?.is_some())
}

/// Uses the link up, and with it every other one. `false`: it isn't good.
pub async fn use_up(tx: &mut Tx, presented: &str) -> Result<bool, StoreError> {
    if !is_digits(presented) {
        return Ok(false);
    }
    let hash = hash_of(presented.as_bytes());
    let now = tx.now().await?;
    let is_good = tx.exec(sql::USE, &[(&hash).into(), now.into()]).await? == 1;
    if is_good {
        tx.exec(sql::END_ALL, &[]).await?;
    }
    Ok(is_good)
}

pub(crate) mod sql {
    crate::db::statements! {
        END_ALL = "DELETE FROM setup_links";
        END_OLD = "DELETE FROM setup_links WHERE expires_at <= $1";
        MAKE = "INSERT INTO setup_links (token_hash, created_at, expires_at) VALUES ($1, $2, $3)";
        FIND = "SELECT token_hash FROM setup_links WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2";
        USE = "UPDATE setup_links SET used_at = $2 WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2";
    }
}
