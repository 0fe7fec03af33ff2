//! The ledger: every call on record before anything leaves, and what became of it (contract.md 3).
//!
//! `queue` puts a call on record or finds it there, `dispatching` puts an effect on record before its first byte, `settle` writes
//! the end. No statement here changes a settled row. Between `queue` and `dispatching` stands admission, after a crash recovery.

mod queue;
mod read;
mod reconcile;
mod settle;

use std::time::{Duration, Instant};

use formation_core::{
    AgentId, Binding, CallId, Execution, InstanceId, Observation, Outcome, Permit, RunId, Tool, refusal::Code, view::RefNonce,
};
use serde_json::Value;

pub(crate) use self::{
    queue::run_over,
    queue::sql as queue_sql,
    read::sql as read_sql,
    reconcile::sql as reconcile_sql,
    settle::{free_lapsed, sql as settle_sql},
};
pub use self::{
    queue::{Queued, queue},
    read::{TraceEntry, by_key, call, call_of_run, trace, traced},
    reconcile::{Reconciled, reconcile},
    settle::{Settle, Settled, ViewMark, settle},
};
use crate::{
    artifacts::SealedArtifact,
    browser_sessions::SessionGrant,
    db::{Db, Row, Tx},
    error::StoreError,
};

/// How long a permit is good for, on the monotonic clock.
const PERMIT: Duration = Duration::from_secs(5);

/// A call to be put on record.
#[derive(Debug, Clone)]
pub struct NewCall {
    /// Whose.
    pub agent: AgentId,
    /// In which run.
    pub run: RunId,
    /// The caller's idempotency key, ≤ 128 of `A-Za-z0-9._:-`, checked by the caller.
    pub key: Option<String>,
    /// Which tool.
    pub tool: Tool,
    /// As they came.
    pub arguments: Value,
    /// The process that handles it.
    pub holder: InstanceId,
    /// How long it may stay unadmitted: its turn and its own bound.
    pub bound: Duration,
}

/// A call as the ledger has it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    /// Our id.
    pub id: CallId,
    /// In which run it was made, which is where its pictures are.
    pub run: RunId,
    /// Which tool.
    pub tool: Tool,
    /// How far its handler came.
    pub execution: Execution,
    /// What became of the thing wanted.
    pub outcome: Option<Outcome>,
    /// What was answered.
    pub observation: Option<Observation>,
    /// Why nobody finished it.
    pub problem: Option<Code>,
}

/// Puts the effect on record and ends the session's refs and view. `None`: the call was settled meanwhile, our lease or its bound
/// has passed, or the session is to close; nothing may be sent, and nothing was changed.
pub async fn dispatching(db: &Db, call: CallId, holder: InstanceId, session: &SessionGrant) -> Result<Option<Permit>, StoreError> {
    // Taken before the transaction: a process that is stopped right after the commit wakes with a stale permit.
    let send_before = Instant::now() + PERMIT;
    let (id, operation) = (session.id, session.operation);
    let recorded = db
        .write(move |tx| {
            Box::pin(async move {
                let now = tx.now().await?;
                if tx.exec(own::END_REFS, &[id.into(), operation.into(), call.into()]).await? == 0 {
                    return Err(NotRecorded::Lapsed);
                }
                let vals = [call.into(), holder.into(), id.into(), operation.into(), now.into()];
                if tx.exec(own::DISPATCHING, &vals).await? == 0 {
                    return Err(NotRecorded::Lapsed);
                }
                Ok(())
            })
        })
        .await;
    match recorded {
        Ok(()) => Ok(Some(Permit::recorded(call, send_before))),
        Err(NotRecorded::Lapsed) => Ok(None),
        Err(NotRecorded::Store(error)) => Err(error),
    }
}

/// Rolls the refs back with it.
enum NotRecorded {
    Lapsed,
    Store(StoreError),
}

impl From<StoreError> for NotRecorded {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Turns a queued call away: nothing was consumed. `Already`: it isn't queued any more, or isn't this holder's.
pub async fn refuse(db: &Db, call: CallId, holder: InstanceId, observation: Observation) -> Result<Settled, StoreError> {
    db.write(move |tx| {
        Box::pin(async move {
            let now = tx.now().await?;
            let text = observation.text();
            let done = tx.exec(own::REFUSE, &[call.into(), holder.into(), (&text).into(), now.into()]).await? == 1;
            let stored = stored_call(tx, call).await?;
            Ok(if done { Settled::Stored(stored) } else { Settled::Already(stored) })
        })
    })
    .await
}

/// The call must exist: the caller got its id from the ledger.
pub(crate) async fn stored_call(tx: &mut Tx, call: CallId) -> Result<StoredCall, StoreError> {
    let row = tx.row(own::ONE, &[call.into()]).await?.ok_or(StoreError::internal("no such call in the ledger"))?;
    read_call(&row)
}

fn read_call(row: &Row) -> Result<StoredCall, StoreError> {
    let observation = row
        .at::<Option<String>>(5)?
        .map(|text| Observation::stored(&text).ok_or(StoreError::internal("a stored observation cannot be read")))
        .transpose()?;
    Ok(StoredCall {
        id: row.at(0)?,
        run: row.at(1)?,
        tool: row.at(2)?,
        execution: row.at(3)?,
        outcome: row.at(4)?,
        observation,
        problem: row.at(6)?,
    })
}

pub(crate) mod own {
    crate::db::statements! {
        ONE = "SELECT id, run_id, tool, execution, outcome, observation, problem FROM tool_calls WHERE id = $1";
        END_REFS = "UPDATE browser_sessions SET refs = NULL, view = NULL, view_expires_at = NULL \
            WHERE id = $1 AND operation = $2 AND busy_call = $3 AND state IN ('opening', 'open')";
        DISPATCHING = "UPDATE tool_calls SET execution = 'dispatched', dispatched_at = $5 \
            WHERE id = $1 AND execution = 'admitted' AND class = 'external_effect' AND holder = $2 AND session_id = $3 \
            AND session_operation = $4 AND must_end_by > $5 \
            AND EXISTS (SELECT 1 FROM instances i WHERE i.id = $2 AND i.lease_until > $5)";
        REFUSE = "UPDATE tool_calls SET execution = 'refused', observation = $3, settled_at = $4 \
            WHERE id = $1 AND holder = $2 AND execution = 'queued'";
    }
}
