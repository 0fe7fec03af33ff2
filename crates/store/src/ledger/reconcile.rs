//! An operator's finding about an uncertain effect. It stands beside `uncertain`, which stays; only then do further effects of
//! that session go on.

use formation_core::{BrowserSessionId, CallId, Outcome, RunId, call::Finding, people::Actor};
use serde_json::json;

use super::{StoredCall, stored_call};
use crate::{
    audit,
    db::{News, Tx},
    error::StoreError,
};

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

/// Records a finding about a call of this run, with its line in the audit trail. `note` is for people: `call::is_note`, checked by
/// the caller, who also saw to it that the run is the actor's to look after.
pub async fn reconcile(
    tx: &mut Tx,
    actor: &Actor,
    run: RunId,
    call: CallId,
    finding: Finding,
    note: &str,
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
    let vals = [call.into(), finding.into(), now.into(), (&actor.name).into(), note.into()];
    if tx.exec(sql::FINDING, &vals).await? == 0 {
        return Ok(Reconciled::AlreadySettled);
    }
    let detail = json!({"run": run, "finding": finding});
    audit::done(tx, actor, Some(row.at(2)?), "call.reconcile", &call.to_string(), detail).await?;
    tx.tell(News::Run(run));
    stored_call(tx, call).await.map(Reconciled::Done)
}

pub(crate) mod sql {
    crate::db::statements! {
        FIND = "SELECT outcome, session_id, agent_id FROM tool_calls WHERE id = $1 AND run_id = $2";
        CLEAR = "UPDATE browser_sessions SET uncertain_call = NULL WHERE id = $1 AND uncertain_call = $2";
        FINDING = "UPDATE tool_calls SET finding = $2, found_at = $3, found_by = $4, note = $5 \
            WHERE id = $1 AND outcome = 'uncertain' AND finding IS NULL";
    }
}
