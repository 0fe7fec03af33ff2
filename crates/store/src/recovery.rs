//! Recovery: calls whose holder is gone, or whose bound has passed, get their true end (spine.md 10). Never a second attempt.
//!
//! At start and every few seconds the same function runs. On SQLite the other processes' leases were ended at start, so everything
//! they left is found at once; on PostgreSQL leases run out.

use formation_core::{BrowserSessionId, CallId, Class, Execution, refusal::Code};

use crate::{
    db::{Db, Tx},
    error::StoreError,
    ledger,
};

/// One round: how many calls got their end. At most 100; a full round means there may be more.
pub async fn round(db: &Db) -> Result<u64, StoreError> {
    let now = db.now().await?;
    let mut ended = 0;
    for row in db.rows(sql::LAPSED, &[now.into()]).await? {
        let lapsed = Lapsed {
            call: row.at(0)?,
            execution: row.at(1)?,
            class: row.at(2)?,
            session: row.at::<Option<_>>(3)?.zip(row.at::<Option<i64>>(4)?),
        };
        ended += u64::from(db.write(move |tx| Box::pin(async move { lapsed.end(tx).await })).await?);
    }
    Ok(ended)
}

/// Rounds until nothing is left: before a process listens.
pub async fn run(db: &Db) -> Result<u64, StoreError> {
    let mut ended = 0;
    // Each round ends what it lists, so this stops; the bound is for a database somebody else keeps filling.
    for _ in 0..10_000 {
        match round(db).await? {
            0 => break,
            some => ended += some,
        }
    }
    Ok(ended)
}

struct Lapsed {
    call: CallId,
    execution: Execution,
    class: Class,
    session: Option<(BrowserSessionId, i64)>,
}

impl Lapsed {
    async fn end(self, tx: &mut Tx) -> Result<bool, StoreError> {
        let outcome =
            self.execution.after_crash(self.class).ok_or(StoreError::internal("a settled call was listed as lapsed"))?;
        let now = tx.now().await?;
        if let Some((session, _)) = self.session {
            tx.exec(sql::LOCK_SESSION, &[session.into()]).await?;
        }
        let vals =
            [self.call.into(), self.execution.into(), outcome.into(), Code::HolderGone.into(), now.into()];
        if tx.exec(sql::END, &vals).await? == 0 {
            return Ok(false);
        }
        if let Some((session, operation)) = self.session {
            ledger::free_lapsed(tx, self.call, session, operation, outcome).await?;
        }
        tracing::info!(call.id = %self.call, %outcome, "a call whose holder is gone was ended");
        Ok(true)
    }
}

pub(crate) mod sql {
    macro_rules! lapsed {
        ($now:literal) => {
            concat!(
                "(c.must_end_by < ", $now, " OR NOT EXISTS (SELECT 1 FROM instances i WHERE i.id = c.holder AND i.lease_until > ", $now, "))"
            )
        };
    }

    crate::db::statements! {
        LAPSED = concat!("SELECT c.id, c.execution, c.class, c.session_id, c.session_operation FROM tool_calls c \
            WHERE c.execution IN ('queued', 'admitted', 'dispatched') AND ", lapsed!("$1"), " ORDER BY c.created_at LIMIT 100");
        LOCK_SESSION = "SELECT id FROM browser_sessions WHERE id = $1"
            => "SELECT id FROM browser_sessions WHERE id = $1 FOR NO KEY UPDATE";
        // As it was seen, and still lapsed: a heartbeat may have come since.
        END = concat!("UPDATE tool_calls AS c SET execution = 'failed', outcome = $3, problem = $4, settled_at = $5 \
            WHERE c.id = $1 AND c.execution = $2 AND ", lapsed!("$5"));
    }
}
