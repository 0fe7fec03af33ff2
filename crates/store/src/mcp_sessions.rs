//! Sessions of legacy MCP clients: the key under which implicit runs follow one another. A row of ours, bound to a token, so that
//! any replica serves it after any restart (spine.md 8).

use std::time::Duration;

use formation_core::{McpSessionId, Timestamp, TokenId};

use crate::{
    db::{Db, Tx},
    error::StoreError,
    runs::{self, Door, EndReason},
    tokens,
};

/// A session nobody used for this long is forgotten.
pub const FORGOTTEN_AFTER: Duration = Duration::from_hours(30 * 24);

/// Opens a session for this token: `initialize` does. `None`: it isn't good any more.
pub async fn open(tx: &mut Tx, token: TokenId) -> Result<Option<McpSessionId>, StoreError> {
    if !tokens::hold(tx, token).await? {
        return Ok(None);
    }
    let now = tx.now().await?;
    let id = McpSessionId::mint(now, tx.entropy());
    tx.exec(sql::OPEN, &[id.into(), token.into(), now.into()]).await?;
    Ok(Some(id))
}

/// Whether this session is this token's and not ended. A foreign, an unknown and an ended one are the same.
pub async fn is_open(db: &Db, token: TokenId, session: McpSessionId) -> Result<bool, StoreError> {
    Ok(db.row(sql::FIND, &[session.into(), token.into()]).await?.is_some())
}

/// Ends the session and the run behind it: DELETE does. `false`: this token has no such open session.
pub async fn end(tx: &mut Tx, token: TokenId, session: McpSessionId) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    if tx.exec(sql::END, &[session.into(), token.into(), now.into()]).await? == 0 {
        return Ok(false);
    }
    if let Some(run) = runs::open_behind(tx, token, &Door::Session(session)).await? {
        runs::end(tx, run, EndReason::SessionEnded).await?;
    }
    Ok(true)
}

/// Forgets up to 100 sessions whose last run is 30 days old; how many.
pub async fn sweep(tx: &mut Tx) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    let horizon = Timestamp::from_micros(
        now.micros().saturating_sub(i64::try_from(FORGOTTEN_AFTER.as_micros()).unwrap_or(i64::MAX)),
    );
    tx.exec(sql::SWEEP, &[horizon.into()]).await
}

pub(crate) mod sql {
    crate::db::statements! {
        OPEN = "INSERT INTO mcp_sessions (id, token_id, created_at) VALUES ($1, $2, $3)";
        FIND = "SELECT id FROM mcp_sessions WHERE id = $1 AND token_id = $2 AND ended_at IS NULL";
        END = "UPDATE mcp_sessions SET ended_at = $3 WHERE id = $1 AND token_id = $2 AND ended_at IS NULL";
        SWEEP = "DELETE FROM mcp_sessions WHERE id IN (SELECT s.id FROM mcp_sessions s WHERE s.created_at < $1 AND NOT EXISTS \
            (SELECT 1 FROM runs r WHERE r.opened_by = s.token_id AND r.origin = 'session' AND r.client_key = s.id AND r.last_call_at >= $1) \
            LIMIT 100)";
    }
}
