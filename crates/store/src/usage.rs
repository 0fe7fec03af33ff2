//! What was used: counts over time for a page, and what is left of a connection's minute.
//!
//! Counted are admitted attempts, not amounts on an invoice (L5). Admitted calls count when they were admitted, whatever became of
//! them; refused ones when they were refused, and consumed nothing.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use formation_core::{AgentId, Binding, Capability, Scope, Timestamp, Tool, VendorId, words};

use crate::{
    admission::minute_of,
    db::{Db, Row},
    error::StoreError,
};

words! {
    /// How wide one bucket is; buckets start at whole multiples since 1970, UTC.
    pub enum Bucket {
        /// 60 seconds.
        Minute = "minute",
        /// 60 minutes.
        Hour = "hour",
        /// A quarter of a day.
        SixHours = "six_hours",
        /// 24 hours.
        Day = "day",
    }
}

impl Bucket {
    /// Its width.
    pub const fn micros(self) -> i64 {
        let seconds = match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::SixHours => 21_600,
            Self::Day => 86_400,
        };
        seconds * 1_000_000
    }
}

/// The most rows one answer has.
pub const MAX_ROWS: usize = 10_000;

/// What is counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// When its bucket starts.
    pub starts: Timestamp,
    /// What was used.
    pub capability: Capability,
    /// Who served it; `None` where a refused call had no offer.
    pub provider: Option<VendorId>,
    /// The agent's slug.
    pub agent: String,
}

/// How many calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted, whatever became of them.
    pub admitted: i64,
    /// Turned away before anything was consumed.
    pub refused: i64,
    /// Of the admitted ones, those that ended otherwise than well, uncertain ones aside.
    pub failed: i64,
    /// Of the admitted ones, effects of which nobody knew whether they were sent.
    pub uncertain: i64,
}

/// What to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// From this moment on.
    pub from: Timestamp,
    /// Up to and without this one.
    pub to: Timestamp,
    /// By which buckets.
    pub bucket: Bucket,
}

/// The usage of one agent or, without one, of all, newest bucket first. `None`: more than [`MAX_ROWS`].
pub async fn of(db: &Db, agent: Option<AgentId>, span: Span) -> Result<Option<Vec<(Key, Counts)>>, StoreError> {
    let agent = agent.map(|agent| agent.to_string()).unwrap_or_default();
    let most = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX) + 1;
    let vals =
        [span.from.into(), span.to.into(), span.bucket.micros().into(), agent.as_str().into(), most.into()];
    let mut counted: BTreeMap<Key, Counts> = BTreeMap::new();
    let (admitted, refused) = (db.rows(sql::ADMITTED, &vals).await?, db.rows(sql::REFUSED, &vals).await?);
    if admitted.len() > MAX_ROWS || refused.len() > MAX_ROWS {
        return Ok(None);
    }
    for row in admitted {
        let key = Key { starts: starts(&row, span)?, capability: row.at(1)?, provider: Some(row.at(2)?), agent: row.at(3)? };
        let counts = counted.entry(key).or_default();
        (counts.admitted, counts.failed, counts.uncertain) = (row.at(4)?, row.at(5)?, row.at(6)?);
    }
    for row in refused {
        let provider = row.at::<Option<String>>(2)?.map(|binding| served_by(&binding)).transpose()?;
        let capability = row.at::<Tool>(1)?.capability();
        let key = Key { starts: starts(&row, span)?, capability, provider, agent: row.at(3)? };
        counted.entry(key).or_default().refused += row.at::<i64>(4)?;
    }
    if counted.len() > MAX_ROWS {
        return Ok(None);
    }
    let mut rows: Vec<_> = counted.into_iter().collect();
    rows.sort_by_key(|(key, _)| Reverse(key.starts));
    Ok(Some(rows))
}

fn starts(row: &Row, span: Span) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_micros(row.at::<i64>(0)? * span.bucket.micros()))
}

fn served_by(binding: &str) -> Result<VendorId, StoreError> {
    serde_json::from_str::<Binding>(binding)
        .map(|binding| binding.vendor)
        .map_err(|_| StoreError::internal("a stored offer cannot be read"))
}

/// A connection's minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minute {
    /// Units taken from it.
    pub used: i64,
    /// When the next one begins.
    pub ends: Timestamp,
}

/// The running minute of the connection that meters: a window of 60 seconds of database time.
pub async fn minute(db: &Db, meter: Scope, capability: Capability) -> Result<Minute, StoreError> {
    let minute = minute_of(db.now().await?);
    let row = db.row(sql::MINUTE, &[meter.into(), capability.into(), minute.into()]).await?;
    let used = row.map(|row| row.at(0)).transpose()?.unwrap_or(0);
    Ok(Minute { used, ends: Timestamp::from_micros((minute + 1) * Bucket::Minute.micros()) })
}

/// The running minute of many connections: what was taken, and when the next one begins.
pub async fn minutes(
    db: &Db,
    meters: &BTreeSet<Scope>,
) -> Result<(BTreeMap<(Scope, Capability), i64>, Timestamp), StoreError> {
    let minute = minute_of(db.now().await?);
    let scopes = serde_json::to_string(meters).map_err(|_| StoreError::internal("a scope is no JSON"))?;
    let rows = db.rows(sql::MINUTES, &[minute.into(), (&scopes).into()]).await?;
    let used = rows.iter().map(|row| Ok(((row.at(0)?, row.at(1)?), row.at(2)?))).collect::<Result<_, StoreError>>()?;
    Ok((used, Timestamp::from_micros((minute + 1) * Bucket::Minute.micros())))
}

pub(crate) mod sql {
    crate::db::statements! {
        MINUTES = "SELECT meter_scope, capability, used FROM rate_windows WHERE minute = $1 \
            AND meter_scope IN (SELECT value FROM json_each($2))"
            => "SELECT meter_scope, capability, used FROM rate_windows WHERE minute = $1 \
            AND meter_scope IN (SELECT jsonb_array_elements_text(CAST($2 AS jsonb)))";
        ADMITTED = "SELECT e.admitted_at / $3, e.capability, e.vendor, a.slug, count(*), \
            count(CASE WHEN c.outcome NOT IN ('ok', 'uncertain') THEN 1 END), count(CASE WHEN c.outcome = 'uncertain' THEN 1 END) \
            FROM evidence e JOIN tool_calls c ON c.id = e.call_id JOIN agents a ON a.id = e.agent_id \
            WHERE e.admitted_at >= $1 AND e.admitted_at < $2 AND ($4 = '' OR e.agent_id = $4) \
            GROUP BY 1, 2, 3, 4 ORDER BY 1 DESC LIMIT $5";
        // A refused call consumed nothing and has no evidence: its provider is the one of the newest offer it could stand on.
        REFUSED = "SELECT r.bucket, r.tool, r.binding, r.slug, count(*) FROM (SELECT c.settled_at / $3 AS bucket, c.tool, a.slug, \
            (SELECT o.binding FROM offers o WHERE o.run_id = c.run_id AND o.tool = c.tool AND o.created_at <= c.created_at \
            ORDER BY o.created_at DESC, o.id DESC LIMIT 1) AS binding \
            FROM tool_calls c JOIN agents a ON a.id = c.agent_id WHERE c.execution = 'refused' \
            AND c.settled_at >= $1 AND c.settled_at < $2 AND ($4 = '' OR c.agent_id = $4)) r \
            GROUP BY r.bucket, r.tool, r.binding, r.slug ORDER BY r.bucket DESC LIMIT $5";
        MINUTE = "SELECT used FROM rate_windows WHERE meter_scope = $1 AND capability = $2 AND minute = $3";
    }
}
