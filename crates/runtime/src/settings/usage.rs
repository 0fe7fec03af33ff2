//! Usage over time, for a page. What it counts are admitted attempts, not amounts on an invoice (L5).

use formation_core::{Scope, Timestamp};
use formation_store::usage;

use super::{Bucket, Counts, Invalid, SettingsError, Span, UsageKey};
use crate::Runtime;

/// The most buckets of one answer.
const BUCKETS: i64 = 1_500;

/// Which part of the past is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// Without it, some buckets before `to`.
    pub from: Option<Timestamp>,
    /// Without it, now.
    pub to: Option<Timestamp>,
    /// Days without it.
    pub bucket: Option<Bucket>,
}

/// What was used, and over which time.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    /// The time, with both ends.
    pub span: Span,
    /// Newest bucket first; what counted nothing isn't there.
    pub rows: Vec<(UsageKey, Counts)>,
}

impl Runtime {
    /// The usage of one agent, or of all agents for the install.
    pub async fn usage(&self, owner: Scope, query: UsageQuery) -> Result<Usage, SettingsError> {
        let bucket = query.bucket.unwrap_or(Bucket::Day);
        let to = match query.to {
            Some(to) => to,
            // What was written a moment ago counts, on a clock that stands still too.
            None => Timestamp::from_micros(self.0.db.now().await?.micros() + 1),
        };
        let from = query.from.unwrap_or(Timestamp::from_micros(to.micros().saturating_sub(usual(bucket) * bucket.micros())));
        let length = to.micros().saturating_sub(from.micros());
        if from.micros() < 0 || length <= 0 {
            return Err(Invalid::value("from", "A moment before `to`, 1970 or later.").into());
        }
        if length > BUCKETS * bucket.micros() {
            return Err(Invalid::value("from", format!("At most {BUCKETS} buckets: ask for less or for wider ones.")).into());
        }
        let span = Span { from, to, bucket };
        let rows = usage::of(&self.0.db, owner.agent(), span).await?.ok_or_else(|| {
            Invalid::value("from", format!("More than {} rows: ask for less or for wider buckets.", usage::MAX_ROWS))
        })?;
        Ok(Usage { span, rows })
    }
}

/// How many buckets somebody sees who names no start.
const fn usual(bucket: Bucket) -> i64 {
    match bucket {
        Bucket::Minute => 60,
        Bucket::Hour => 24,
        Bucket::SixHours => 28,
        Bucket::Day => 30,
    }
}
