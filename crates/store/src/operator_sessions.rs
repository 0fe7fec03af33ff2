//! Sign-ins of operators: 256 random bits in a cookie, stored as SHA-256. A session ends after 12 hours without use, after seven days
//! whatever happens, at its sign-out, and when its operator is disabled or deleted.
//!
//! The token against forged requests (CSRF) is an HMAC under the session's own text: nothing of it is stored, and no two sessions
//! share one.

use std::time::Duration;

use formation_core::{OperatorId, Secret, people::Role};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::{
    db::{Db, News, Tx},
    error::StoreError,
    seal::to_hex,
    tokens::{TokenOperator, digits, hash_of, is_digits, is_same},
};

/// Without use for this long, it is over.
pub const IDLE: Duration = Duration::from_hours(12);
/// It is over then, used or not.
pub const LIFE: Duration = Duration::from_hours(7 * 24);
/// Its last use is written at most this often.
const USE_NOTED_EVERY: Duration = Duration::from_mins(1);

/// Opens a session for this operator; its text, which is nowhere else.
pub async fn open(tx: &mut Tx, operator: OperatorId) -> Result<Secret, StoreError> {
    let now = tx.now().await?;
    let text = digits(tx.entropy());
    let hash = hash_of(text.as_bytes());
    let vals = [(&hash).into(), operator.into(), now.into(), now.after(LIFE).into()];
    tx.exec(sql::OPEN, &vals).await?;
    Ok(Secret::new(text.into_bytes()))
}

/// Whose session this is; `None`: nobody's, over, or of somebody who is disabled.
pub async fn lookup(db: &Db, presented: &str) -> Result<Option<TokenOperator>, StoreError> {
    if !is_digits(presented) {
        return Ok(None);
    }
    let hash = hash_of(presented.as_bytes());
    let now = db.now().await?;
    let Some(row) = db.row(sql::LOOKUP, &[(&hash).into(), now.into()]).await? else { return Ok(None) };
    let stored: Vec<u8> = row.at(0)?;
    let seen = row.at(4)?;
    if !is_same(&stored, &hash) || now.since(seen) >= IDLE {
        return Ok(None);
    }
    if now.since(seen) >= USE_NOTED_EVERY {
        db.write(move |tx| Box::pin(async move { tx.exec(sql::SEEN, &[(&hash).into(), now.into()]).await.map(|_| ()) })).await?;
    }
    let role: Role = row.at(3)?;
    Ok(Some(TokenOperator { token: None, operator: row.at(1)?, name: row.at(2)?, role }))
}

/// Ends one session. `false`: there was none.
pub async fn end(tx: &mut Tx, presented: &str) -> Result<bool, StoreError> {
    let hash = hash_of(presented.as_bytes());
    tx.tell(News::People);
    Ok(tx.exec(sql::END, &[(&hash).into()]).await? == 1)
}

/// What a page of this session sends along with a change.
pub fn csrf_of(session: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(session.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(b"formation csrf");
    to_hex(&mac.finalize().into_bytes())
}

/// Whether `presented` is this session's, in constant time.
pub fn is_csrf_of(session: &str, presented: &str) -> bool {
    is_same(csrf_of(session).as_bytes(), presented.as_bytes())
}

/// Forgets up to 100 sessions that are over.
pub(crate) async fn sweep(tx: &mut Tx) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    tx.exec(sql::SWEEP, &[now.into(), now.before(IDLE).into()]).await
}

pub(crate) mod sql {
    crate::db::statements! {
        OPEN = "INSERT INTO operator_sessions (token_hash, operator_id, created_at, last_seen_at, expires_at) VALUES ($1, $2, $3, $3, $4)";
        LOOKUP = "SELECT s.token_hash, o.id, o.name, o.role, s.last_seen_at FROM operator_sessions s JOIN operators o ON o.id = s.operator_id \
            WHERE s.token_hash = $1 AND s.expires_at > $2 AND o.disabled_at IS NULL";
        SEEN = "UPDATE operator_sessions SET last_seen_at = $2 WHERE token_hash = $1 AND last_seen_at < $2";
        END = "DELETE FROM operator_sessions WHERE token_hash = $1";
        SWEEP = "DELETE FROM operator_sessions WHERE token_hash IN \
            (SELECT token_hash FROM operator_sessions WHERE expires_at <= $1 OR last_seen_at <= $2 LIMIT 100)";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_its_own_word_against_forgery() {
        let (one, two) = ("a".repeat(64), "b".repeat(64));
        assert!(is_csrf_of(&one, &csrf_of(&one)));
        for wrong in ["", &csrf_of(&two), &csrf_of(&one)[..63], &one] {
            assert!(!is_csrf_of(&one, wrong), "{wrong}");
        }
    }
}
