//! An operator's finding about an uncertain effect. It stands beside `uncertain`, which stays; only then do further effects of
//! that session go on.

use formation_core::{BrowserSessionId, CallId, Outcome, RunId, call::Finding};

use super::{StoredCall, stored_call};
use crate::{db::Tx, error::StoreError};

/// What became of a finding.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconciled {
    /// It is on record, and the session takes effects again.
    Done(StoredCall),
    /// There was one; nothing was changed.
    AlreadySettled,
    /// The call isn't uncertain: there is nothing to find out.
    NotUncertain,
    /// The run has no such call.
    NotFound,
}

/// Records a finding about a call of this run. `by` names the actor; `note` is for people, bounded by the caller.
pub async fn reconcile(
    tx: &mut Tx,
    run: RunId,
    call: CallId,
    finding: Finding,
    note: &str,
    by: &str,
) -> Result<Reconciled, StoreError> {
    let Some(row) = tx.row(sql::FIND, &[call.into(), run.into()]).await? else { return Ok(Reconciled::NotFound) };
    if row.at::<Option<Outcome>>(0)? != Some(Outcome::Uncertain) {
        return Ok(Reconciled::NotUncertain);
    }
    // The session before the call, as everywhere.
    if let Some(session) = row.at::<Option<BrowserSessionId>>(1)? {
        tx.exec(sql::CLEAR, &[session.into(), call.into()]).await?;
    }
    let now = tx.now().await?;
    let vals = [call.into(), finding.into(), now.into(), by.into(), note.into()];
    if tx.exec(sql::FINDING, &vals).await? == 0 {
        return Ok(Reconciled::AlreadySettled);
    }
    stored_call(tx, call).await.map(Reconciled::Done)
}

pub(crate) mod sql {
    crate::db::statements! {
        FIND = "SELECT outcome, session_id FROM tool_calls WHERE id = $1 AND run_id = $2";
        CLEAR = "UPDATE browser_sessions SET uncertain_call = NULL WHERE id = $1 AND uncertain_call = $2";
        FINDING = "UPDATE tool_calls SET finding = $2, found_at = $3, found_by = $4, note = $5 \
            WHERE id = $1 AND outcome = 'uncertain' AND finding IS NULL";
    }
}
