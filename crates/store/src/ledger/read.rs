//! Reading the ledger. Each reader names the owner: an agent, or a run that it was let into.

use formation_core::{AgentId, ArtifactId, CallId, Class, OfferId, RunId, Timestamp, call::Finding};
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
    /// Who did.
    pub found_by: Option<String>,
    /// What they wrote.
    pub note: Option<String>,
    /// Its picture and until when that is kept.
    pub artifact: Option<(ArtifactId, Timestamp)>,
}

/// Up to 500 calls of a run in order, after the first `skip`.
pub async fn trace(db: &Db, run: RunId, skip: u64, limit: u32) -> Result<Vec<TraceEntry>, StoreError> {
    let offset = i64::try_from(skip).unwrap_or(i64::MAX);
    let rows = db.rows(sql::TRACE, &[run.into(), i64::from(limit.min(500)).into(), offset.into()]).await?;
    rows.iter().zip(skip + 1..).map(|(row, number)| entry(row, number)).collect()
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
        found_by: row.at(16)?,
        note: row.at(17)?,
        artifact: row.at::<Option<ArtifactId>>(18)?.zip(row.at::<Option<Timestamp>>(19)?),
    })
}

pub(crate) mod sql {
    macro_rules! call {
        ($rest:literal) => {
            concat!("SELECT c.id, c.run_id, c.tool, c.execution, c.outcome, c.observation, c.problem", $rest)
        };
    }

    crate::db::statements! {
        OF_AGENT = call!(" FROM tool_calls c WHERE c.id = $1 AND c.agent_id = $2");
        OF_RUN = call!(" FROM tool_calls c WHERE c.id = $1 AND c.run_id = $2");
        BY_KEY = call!(" FROM tool_calls c WHERE c.agent_id = $1 AND c.key = $2");
        TRACE = call!(", c.class, c.key, c.offer_id, c.arguments, c.created_at, c.admitted_at, c.dispatched_at, c.settled_at, \
            c.finding, c.found_by, c.note, (SELECT a.id FROM artifacts a WHERE a.run_id = c.run_id AND a.call_id = c.id ORDER BY a.id LIMIT 1), \
            (SELECT a.expires_at FROM artifacts a WHERE a.run_id = c.run_id AND a.call_id = c.id ORDER BY a.id LIMIT 1) \
            FROM tool_calls c WHERE c.run_id = $1 ORDER BY c.created_at, c.id LIMIT $2 OFFSET $3");
    }
}
