//! Failed sign-ins, counted per account and per source address, durable and shared by replicas.
//!
//! A subject is a keyed hash made by the caller: what somebody typed into the name field may be a password. The delays are the
//! caller's rule, too; here they are only kept.

use std::time::Duration;

use formation_core::Timestamp;

use crate::{
    db::{Db, Tx},
    error::StoreError,
};

/// Failures older than this are forgotten.
pub const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);

/// Until when this subject has to wait; `None`: it needn't.
pub async fn blocked_until(db: &Db, subject: &str) -> Result<Option<Timestamp>, StoreError> {
    let now = db.now().await?;
    db.row(sql::BLOCKED, &[subject.into(), now.into()]).await?.map(|row| row.at(0)).transpose()
}

/// Whether somebody has signed in under this subject before: a remembered pair of account and source.
pub async fn is_known(db: &Db, subject: &str) -> Result<bool, StoreError> {
    Ok(db.row(sql::KNOWN, &[subject.into()]).await?.is_some())
}

/// Counts a failure; `delay` says how long the subject waits after its nth in a row.
pub async fn failed(tx: &mut Tx, subject: &str, delay: fn(i64) -> Duration) -> Result<(), StoreError> {
    let now = tx.now().await?;
    let horizon = now.before(FORGOTTEN_AFTER);
    let row = tx.row(sql::FAILED, &[subject.into(), now.into(), horizon.into()]).await?;
    let failures: i64 = row.ok_or(StoreError::internal("a failure was not counted"))?.at(0)?;
    tx.exec(sql::BLOCK, &[subject.into(), now.after(delay(failures)).into()]).await.map(|_| ())
}

/// Forgets the failures of a subject.
pub async fn forgive(tx: &mut Tx, subject: &str) -> Result<(), StoreError> {
    tx.exec(sql::FORGIVE, &[subject.into()]).await.map(|_| ())
}

/// Remembers a subject that signed in.
pub async fn remember(tx: &mut Tx, subject: &str) -> Result<(), StoreError> {
    let now = tx.now().await?;
    tx.exec(sql::REMEMBER, &[subject.into(), now.into()]).await.map(|_| ())
}

/// Forgets up to 100 subjects: failures after a day, remembered pairs after 90 days.
pub(crate) async fn sweep(tx: &mut Tx) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    let remembered = now.before(Duration::from_hours(90 * 24));
    tx.exec(sql::SWEEP, &[now.before(FORGOTTEN_AFTER).into(), remembered.into()]).await
}

pub(crate) mod sql {
    crate::db::statements! {
        BLOCKED = "SELECT blocked_until FROM login_attempts WHERE subject = $1 AND blocked_until > $2";
        KNOWN = "SELECT subject FROM login_attempts WHERE subject = $1 AND failures = 0";
        FAILED = "INSERT INTO login_attempts (subject, failures, last_at, blocked_until) VALUES ($1, 1, $2, 0) \
            ON CONFLICT (subject) DO UPDATE SET last_at = $2, failures = CASE WHEN login_attempts.last_at > $3 \
            THEN login_attempts.failures + 1 ELSE 1 END RETURNING failures";
        BLOCK = "UPDATE login_attempts SET blocked_until = $2 WHERE subject = $1";
        FORGIVE = "DELETE FROM login_attempts WHERE subject = $1";
        REMEMBER = "INSERT INTO login_attempts (subject, failures, last_at, blocked_until) VALUES ($1, 0, $2, 0) \
            ON CONFLICT (subject) DO UPDATE SET last_at = $2, failures = 0, blocked_until = 0";
        SWEEP = "DELETE FROM login_attempts WHERE subject IN (SELECT subject FROM login_attempts \
            WHERE (failures > 0 AND last_at <= $1) OR last_at <= $2 ORDER BY last_at LIMIT 100)";
    }
}
