//! Reading the ledger. Each reader names the owner: an agent, or a run that it was let into.

use formation_core::{AgentId, ArtifactId, CallId, Class, OfferId, RunId, Timestamp, call::Finding, refusal::RefusalReason};
use serde_json::Value;

use super::{StoredCall, read_call};
use crate::{
    db::{Db, Row},
    error::StoreError,
};

/// A call of this agent.
pub async fn call(db: &Db, agent: AgentId, id: CallId) -> Result<Option<StoredCall>, StoreError> {
    db.row(sql::OF_AGENT, &[id.into(), agent.into()]).await?.map(|row| read_call(&row)).transpose()
}

/// A call of this run.
pub async fn call_of_run(db: &Db, run: RunId, id: CallId) -> Result<Option<StoredCall>, StoreError> {
    db.row(sql::OF_RUN, &[id.into(), run.into()]).await?.map(|row| read_call(&row)).transpose()
}

/// The call this agent's key stands for, in whatever run it was made.
pub async fn by_key(db: &Db, agent: AgentId, key: &str) -> Result<Option<StoredCall>, StoreError> {
    db.row(sql::BY_KEY, &[agent.into(), key.into()]).await?.map(|row| read_call(&row)).transpose()
}

/// One line of a run's trace.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceEntry {
    /// Its place in the run, from 1.
    pub number: u64,
    /// The call.
    pub call: StoredCall,
    /// Whether it can have changed something outside.
    pub class: Class,
    /// The caller's key.
    pub key: Option<String>,
    /// The offer it was admitted on.
    pub offer: Option<OfferId>,
    /// As they came.
    pub arguments: Value,
    /// When it came.
    pub created_at: Timestamp,
    /// When it was admitted.
    pub admitted_at: Option<Timestamp>,
    /// When its first byte was about to leave.
    pub dispatched_at: Option<Timestamp>,
    /// When it ended.
    pub settled_at: Option<Timestamp>,
    /// What an operator found out.
    pub finding: Option<Finding>,
    /// When.
    pub found_at: Option<Timestamp>,
    /// Who did.
    pub found_by: Option<String>,
    /// What they wrote.
    pub note: Option<String>,
    /// Its picture and until when that is kept.
    pub artifact: Option<(ArtifactId, Timestamp)>,
    /// Refused with `needs_reconciliation`: the number of the call that nobody had settled.
    pub caused_by: Option<u64>,
}

/// Up to 500 calls of a run in order, after the first `skip`.
pub async fn trace(db: &Db, run: RunId, skip: u64, limit: u32) -> Result<Vec<TraceEntry>, StoreError> {
    let offset = i64::try_from(skip).unwrap_or(i64::MAX);
    let rows = db.rows(sql::TRACE, &[run.into(), i64::from(limit.min(500)).into(), offset.into()]).await?;
    let mut entries = rows.iter().zip(skip + 1..).map(|(row, number)| entry(row, number)).collect::<Result<Vec<_>, _>>()?;
    if entries.iter().any(waits_for_reconciliation) {
        name_causes(db, run, &mut entries).await?;
    }
    Ok(entries)
}

/// One line of it.
pub async fn traced(db: &Db, run: RunId, call: CallId) -> Result<Option<TraceEntry>, StoreError> {
    let Some(row) = db.row(sql::TRACED, &[run.into(), call.into()]).await? else { return Ok(None) };
    let mut entry = entry(&row, u64::try_from(row.at::<i64>(21)?).unwrap_or_default())?;
    if waits_for_reconciliation(&entry) {
        name_causes(db, run, std::slice::from_mut(&mut entry)).await?;
    }
    Ok(Some(entry))
}

fn waits_for_reconciliation(entry: &TraceEntry) -> bool {
    let refusal = entry.call.observation.as_ref().and_then(|observation| observation.field("refusal"));
    refusal.is_some_and(|refusal| refusal["reason"] == RefusalReason::NeedsReconciliation.as_str())
}

/// Effects of one browser follow one another, and none is sent while one is in doubt: the newest that was in doubt is the one.
async fn name_causes(db: &Db, run: RunId, entries: &mut [TraceEntry]) -> Result<(), StoreError> {
    let mut doubts: Vec<(u64, Timestamp, Option<Timestamp>)> = Vec::new();
    for row in db.rows(sql::DOUBTS, &[run.into()]).await? {
        let number = u64::try_from(row.at::<i64>(0)?).unwrap_or_default();
        doubts.push((number, row.at(1)?, row.at(2)?));
    }
    for entry in entries.iter_mut().filter(|entry| waits_for_reconciliation(entry)) {
        let refused_at = entry.settled_at.unwrap_or(entry.created_at);
        let was_open = |doubt: &&(u64, Timestamp, Option<Timestamp>)| {
            doubt.0 != entry.number && doubt.1 <= refused_at && doubt.2.is_none_or(|found_at| found_at >= entry.created_at)
        };
        entry.caused_by = doubts.iter().rfind(was_open).map(|(number, ..)| *number);
    }
    Ok(())
}

fn entry(row: &Row, number: u64) -> Result<TraceEntry, StoreError> {
    let arguments =
        serde_json::from_str(&row.at::<String>(10)?).map_err(|_| StoreError::internal("stored arguments cannot be read"))?;
    Ok(TraceEntry {
        number,
        call: read_call(row)?,
        class: row.at(7)?,
        key: row.at(8)?,
        offer: row.at(9)?,
        arguments,
        created_at: row.at(11)?,
        admitted_at: row.at(12)?,
        dispatched_at: row.at(13)?,
        settled_at: row.at(14)?,
        finding: row.at(15)?,
        found_at: row.at(16)?,
        found_by: row.at(17)?,
        note: row.at(18)?,
        artifact: row.at::<Option<ArtifactId>>(19)?.zip(row.at::<Option<Timestamp>>(20)?),
        caused_by: None,
    })
}

pub(crate) mod sql {
    macro_rules! call {
        ($rest:literal) => {
            concat!("SELECT c.id, c.run_id, c.tool, c.execution, c.outcome, c.observation, c.problem", $rest)
        };
    }

    macro_rules! number {
        () => {
            "(SELECT count(*) FROM tool_calls p WHERE p.run_id = c.run_id AND (p.created_at, p.id) <= (c.created_at, c.id))"
        };
    }
    macro_rules! traced {
        ($($rest:expr),+) => {
            concat!(
                "SELECT c.id, c.run_id, c.tool, c.execution, c.outcome, c.observation, c.problem, c.class, c.key, c.offer_id, \
                 c.arguments, c.created_at, c.admitted_at, c.dispatched_at, c.settled_at, c.finding, c.found_at, c.found_by, c.note, \
                 (SELECT a.id FROM artifacts a WHERE a.run_id = c.run_id AND a.call_id = c.id ORDER BY a.id LIMIT 1), \
                 (SELECT a.expires_at FROM artifacts a WHERE a.run_id = c.run_id AND a.call_id = c.id ORDER BY a.id LIMIT 1)",
                $($rest),+
            )
        };
    }

    crate::db::statements! {
        OF_AGENT = call!(" FROM tool_calls c WHERE c.id = $1 AND c.agent_id = $2");
        OF_RUN = call!(" FROM tool_calls c WHERE c.id = $1 AND c.run_id = $2");
        BY_KEY = call!(" FROM tool_calls c WHERE c.agent_id = $1 AND c.key = $2");
        TRACE = traced!(" FROM tool_calls c WHERE c.run_id = $1 ORDER BY c.created_at, c.id LIMIT $2 OFFSET $3");
        TRACED = traced!(", ", number!(), " FROM tool_calls c WHERE c.run_id = $1 AND c.id = $2");
        DOUBTS = concat!("SELECT ", number!(), ", c.dispatched_at, c.found_at FROM tool_calls c WHERE c.run_id = $1 AND c.outcome = 'uncertain' AND c.session_id IS NOT NULL \
            ORDER BY c.dispatched_at, c.id LIMIT 1000");
    }
}
