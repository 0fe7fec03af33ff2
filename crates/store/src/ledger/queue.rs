//! On record before anything else, once per caller's key.

use formation_core::{
    CallId, Observation,
    refusal::{Refusal, RefusalReason},
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{NewCall, StoredCall, stored_call};
use crate::{db::Tx, error::StoreError, runs::EndReason};

/// What became of a call that came in.
#[derive(Debug, Clone, PartialEq)]
pub enum Queued {
    /// It is on record and counted; go on.
    Fresh(CallId),
    /// The key stands for this very call: this is what became of it so far.
    Known(StoredCall),
    /// The key stands for another call. Nothing was recorded.
    OtherArguments,
    /// It is on record and turned away: the run is over or has used its calls. It wasn't counted.
    Refused(StoredCall),
}

/// Puts a call on record, mints our id and counts it against the run's `max_tool_calls`. The caller's key is one per agent, over
/// all its runs.
pub async fn queue(tx: &mut Tx, new: &NewCall) -> Result<Queued, StoreError> {
    let now = tx.now().await?;
    let id = CallId::mint(now, tx.entropy());
    let arguments = new.arguments.to_string();
    let hash = hash_of(&new.arguments);
    let vals = [
        id.into(),
        new.agent.into(),
        new.run.into(),
        new.key.as_deref().into(),
        new.tool.into(),
        new.tool.class().into(),
        (&arguments).into(),
        (&hash).into(),
        new.holder.into(),
        now.after(new.bound).into(),
        now.into(),
    ];
    if tx.exec(sql::QUEUE, &vals).await? == 0 {
        return known(tx, new, &hash).await;
    }
    if tx.exec(sql::COUNT, &[new.run.into(), now.into()]).await? == 1 {
        return Ok(Queued::Fresh(id));
    }
    let refusal = why_not_counted(tx, new).await?;
    let text = Observation::refusal(new.tool, &refusal).text();
    tx.exec(sql::REFUSE_UNCOUNTED, &[id.into(), (&text).into(), now.into()]).await?;
    stored_call(tx, id).await.map(Queued::Refused)
}

async fn known(tx: &mut Tx, new: &NewCall, hash: &[u8; 32]) -> Result<Queued, StoreError> {
    let found = match new.key.as_deref() {
        Some(key) => tx.row(sql::KNOWN, &[new.agent.into(), key.into()]).await?,
        None => None,
    };
    let row = found.ok_or(StoreError::internal("a call for a run that isn't the agent's"))?;
    let same = row.at::<formation_core::Tool>(1)? == new.tool && row.at::<Vec<u8>>(2)? == hash;
    if same { stored_call(tx, row.at(0)?).await.map(Queued::Known) } else { Ok(Queued::OtherArguments) }
}

/// The run's row said no: over, past its time, or full.
async fn why_not_counted(tx: &mut Tx, new: &NewCall) -> Result<Refusal, StoreError> {
    let now = tx.now().await?;
    let row = tx.row(sql::RUN, &[new.run.into()]).await?.ok_or(StoreError::internal("a call's run is gone"))?;
    let is_open: bool = row.at(0)?;
    let end_reason: Option<EndReason> = row.at(1)?;
    let deadline: formation_core::Timestamp = row.at(2)?;
    let max_calls: i64 = row.at(3)?;
    if !is_open || deadline <= now {
        // This call hears it, so no extra `run_over` follows behind an implicit run's door.
        tx.exec(sql::TOLD, &[new.run.into(), now.into()]).await?;
        return Ok(run_over(if is_open { EndReason::Deadline } else { end_reason.unwrap_or(EndReason::Finished) }));
    }
    Ok(Refusal::new(RefusalReason::CallLimit, format!("This run has used its {max_calls} tool calls; open a new run to go on.")))
}

/// The refusal of a run that is over, with its cause.
pub(crate) fn run_over(reason: EndReason) -> Refusal {
    let cause = match reason {
        EndReason::Finished => "it was finished",
        EndReason::Deadline => "its deadline has passed",
        EndReason::Idle => "no call came for too long",
        EndReason::Cancelled => "an operator ended it",
        EndReason::SessionEnded => "its MCP session was ended",
        EndReason::SessionLost => "its browser was lost",
    };
    let next = "with an agent token the next call starts a new run, with a run token a new run has to be opened";
    Refusal::new(RefusalReason::RunOver, format!("This run is over: {cause}. Nothing was sent; {next}."))
}

/// The same arguments have the same hash, in whatever order their fields came.
pub(super) fn hash_of(arguments: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    feed(&mut hash, arguments);
    hash.finalize().into()
}

fn feed(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.iter().collect();
            names.sort_by_key(|(name, _)| *name);
            hash.update(b"{");
            for (name, value) in names {
                feed(hash, &Value::String(name.clone()));
                feed(hash, value);
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            for item in items {
                feed(hash, item);
            }
            hash.update(b"]");
        }
        plain => {
            hash.update(plain.to_string());
            hash.update(b",");
        }
    }
}

pub(crate) mod sql {
    crate::db::statements! {
        QUEUE = "INSERT INTO tool_calls (id, agent_id, run_id, key, tool, class, execution, arguments, arguments_hash, holder, \
            must_end_by, created_at) SELECT $1, $2, r.id, $4, $5, $6, 'queued', $7, $8, $9, $10, $11 FROM runs r \
            WHERE r.id = $3 AND r.agent_id = $2 ON CONFLICT (agent_id, key) WHERE key IS NOT NULL DO NOTHING";
        COUNT = "UPDATE runs SET calls_used = calls_used + 1, last_call_at = $2 \
            WHERE id = $1 AND state = 'open' AND deadline_at > $2 AND calls_used < max_calls";
        RUN = "SELECT CAST(CASE WHEN state = 'open' THEN 1 ELSE 0 END AS BIGINT), end_reason, deadline_at, max_calls FROM runs WHERE id = $1";
        TOLD = "UPDATE runs SET told_at = $2 WHERE id = $1 AND state = 'over' AND told_at IS NULL";
        REFUSE_UNCOUNTED = "UPDATE tool_calls SET execution = 'refused', observation = $2, settled_at = $3 \
            WHERE id = $1 AND execution = 'queued'";
        KNOWN = "SELECT id, tool, arguments_hash FROM tool_calls WHERE agent_id = $1 AND key = $2";
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_the_same_in_any_order_and_not_otherwise() {
        let same = |a: Value, b: Value| hash_of(&a) == hash_of(&b);
        let other_order: Value = serde_json::from_str(r#"{"b":[1,2],"a":"x"}"#).expect("JSON");
        assert!(same(json!({"a": "x", "b": [1, 2]}), other_order));
        assert!(!same(json!({"a": "x", "b": [1, 2]}), json!({"a": "x", "b": [2, 1]})));
        assert!(!same(json!({"a": 12}), json!({"a": [1, 2]})));
        assert!(!same(json!([[1], 2]), json!([[1, 2]])));
        assert!(!same(json!({"a": "1"}), json!({"a": 1})));
        assert!(!same(json!({"a": null}), json!({})));
    }
}
