//! Usage over time: admitted attempts, not amounts on an invoice (L5).

use formation_core::{Capability, Timestamp};
use formation_runtime::settings::{self as runtime, Bucket};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which part of the past.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// From this moment on; without it an hour by minutes, a day by hours, a week by quarter days, 30 days by days before `to`.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Up to and without this one; without it now.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
    /// `minute`, `hour`, `six_hours` or `day`; days without it. At most 1,500 buckets.
    #[param(value_type = Option<String>)]
    bucket: Option<Bucket>,
}

impl From<Asked> for runtime::UsageQuery {
    fn from(asked: Asked) -> Self {
        Self { from: asked.from, to: asked.to, bucket: asked.bucket }
    }
}

/// What was used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebUsage)]
pub(crate) struct Usage {
    /// From this moment on.
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    /// Up to and without this one.
    #[schema(value_type = String, format = DateTime)]
    to: Timestamp,
    /// How wide one bucket is; buckets start at whole multiples, UTC.
    #[schema(value_type = String)]
    bucket: Bucket,
    /// Newest bucket first, at most 10,000; what counted nothing isn't there.
    items: Vec<Row>,
}

/// What is counted together.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebUsageRow)]
pub(crate) struct Row {
    /// When its bucket starts.
    #[schema(value_type = String, format = DateTime)]
    starts: Timestamp,
    /// What was used.
    #[schema(value_type = String)]
    capability: Capability,
    /// Who served it; empty where a refused call was never offered the tool.
    provider: String,
    /// The agent's slug.
    agent: String,
    /// Admitted calls, whatever became of them.
    admitted: i64,
    /// Calls turned away before anything was consumed.
    refused: i64,
    /// Of the admitted ones, those that ended otherwise than well; uncertain ones aside.
    failed: i64,
    /// Of the admitted ones, effects of which nobody knew whether they were sent.
    uncertain: i64,
}

impl From<runtime::Usage> for Usage {
    fn from(usage: runtime::Usage) -> Self {
        let rows = usage.rows.into_iter().map(|(key, counts)| Row {
            starts: key.starts,
            capability: key.capability,
            provider: key.provider.map(|vendor| vendor.to_string()).unwrap_or_default(),
            agent: key.agent,
            admitted: counts.admitted,
            refused: counts.refused,
            failed: counts.failed,
            uncertain: counts.uncertain,
        });
        Self { from: usage.span.from, to: usage.span.to, bucket: usage.span.bucket, items: rows.collect() }
    }
}
