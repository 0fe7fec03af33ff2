//! The sweeps: what nobody came to end is ended here. Only `serve` sweeps, never the command line.

use crate::{
    admission, artifacts, browser_sessions, db::Db, error::StoreError, instances, login_attempts, mcp_sessions, operator_sessions,
    recovery, runs,
};

/// What one sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Calls whose holder was gone.
    pub calls: u64,
    /// Runs past their deadline, or idle.
    pub runs: u64,
    /// Browsers of runs that are over and weren't marked yet.
    pub left_over: u64,
    /// Browsers whose process was gone.
    pub homeless: u64,
    /// Pictures whose day was over.
    pub artifacts: u64,
    /// MCP sessions nobody used for 30 days.
    pub mcp_sessions: u64,
}

/// One round over everything, each list bounded; leftovers come next time. Closing the remote side of browsers is the runtime's
/// (`browser_sessions::to_close`).
pub async fn round(db: &Db) -> Result<Swept, StoreError> {
    let calls = recovery::round(db).await?;
    let runs = runs::sweep(db).await?;
    let homeless = browser_sessions::sweep_homeless(db).await?;
    let (left_over, artifacts, mcp_sessions) = db
        .write(|tx| {
            Box::pin(async move {
                let now = tx.now().await?;
                let left_over = tx.exec(sql::LEFT_OVER, &[now.into()]).await?;
                let erased = artifacts::sweep(tx).await?;
                let forgotten = mcp_sessions::sweep(tx).await?;
                instances::sweep(tx).await?;
                admission::sweep_meters(tx).await?;
                operator_sessions::sweep(tx).await?;
                login_attempts::sweep(tx).await?;
                Ok::<_, StoreError>((left_over, erased, forgotten))
            })
        })
        .await?;
    Ok(Swept { calls, runs, left_over, homeless, artifacts, mcp_sessions })
}

pub(crate) mod sql {
    crate::db::statements! {
        LEFT_OVER = "UPDATE browser_sessions SET state = 'closing', end_reason = 'run_over', next_close_at = $1 WHERE id IN \
            (SELECT s.id FROM browser_sessions s JOIN runs r ON r.id = s.run_id WHERE s.state IN ('opening', 'open') AND r.state = 'over' \
            ORDER BY s.id LIMIT 100)";
    }
}
