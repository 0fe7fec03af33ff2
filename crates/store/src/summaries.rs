//! Runs as people look through them: each with its agent, its counts and its browser, filtered, in pages.

use std::collections::BTreeMap;

use formation_core::{AgentId, CallId, RunId, people::Reach};

use crate::{
    Page,
    browser_sessions::SessionState,
    db::{Db, Row},
    error::StoreError,
    runs::{Run, RunState, run},
};

/// A run with what people ask first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The run.
    pub run: Run,
    /// Its agent's word.
    pub agent_slug: String,
    /// The caller's word for its conversation.
    pub conversation_name: Option<String>,
    /// Calls on record, refused ones over the limit included.
    pub calls: i64,
    /// Of them refused.
    pub refused: i64,
    /// Uncertain ones that nobody has settled.
    pub uncertain: i64,
    /// Its newest browser session.
    pub browser: Option<SessionState>,
}

/// Which runs; what is left out bounds nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this agent.
    pub agent: Option<AgentId>,
    /// In this state.
    pub state: Option<RunState>,
    /// Only those with an uncertain call that nobody has settled.
    pub is_unsettled: bool,
    /// Before this one.
    pub after: Option<RunId>,
}

/// Runs within reach, newest first; at most `limit` and 100.
pub async fn list(db: &Db, reach: Reach, filter: Filter, limit: u32) -> Result<Page<RunSummary>, StoreError> {
    let limit = limit.clamp(1, 100);
    let state = filter.state.map(RunState::as_str);
    let vals = [reach.bound().into(), filter.agent.into(), state.into(), filter.after.into(), i64::from(limit + 1).into()];
    let sql = if filter.is_unsettled { sql::UNSETTLED } else { sql::LIST };
    let mut items = db.rows(sql, &vals).await?.iter().map(summary).collect::<Result<Vec<_>, _>>()?;
    let has_more = items.len() > limit as usize;
    items.truncate(limit as usize);
    Ok(Page { items, has_more })
}

/// One run within reach.
pub async fn one(db: &Db, reach: Reach, run: RunId) -> Result<Option<RunSummary>, StoreError> {
    db.row(sql::ONE, &[reach.bound().into(), run.into()]).await?.map(|row| summary(&row)).transpose()
}

/// The uncertain calls of a run that nobody has settled, oldest first, at most 100.
pub async fn uncertain_calls(db: &Db, run: RunId) -> Result<Vec<CallId>, StoreError> {
    db.rows(sql::UNCERTAIN, &[run.into()]).await?.iter().map(|row| row.at(0)).collect()
}

/// How many calls of these agents are uncertain and unsettled; who has none isn't in it.
pub async fn unsettled(db: &Db, agents: &[AgentId]) -> Result<BTreeMap<AgentId, i64>, StoreError> {
    let agents = serde_json::to_string(agents).map_err(|_| StoreError::internal("an id is no JSON"))?;
    let rows = db.rows(sql::UNSETTLED_OF, &[(&agents).into()]).await?;
    rows.iter().map(|row| Ok((row.at(0)?, row.at(1)?))).collect()
}

fn summary(row: &Row) -> Result<RunSummary, StoreError> {
    Ok(RunSummary {
        run: run(row)?,
        agent_slug: row.at(13)?,
        conversation_name: row.at(14)?,
        calls: row.at(15)?,
        refused: row.at(16)?,
        uncertain: row.at(17)?,
        browser: row.at(18)?,
    })
}

pub(crate) mod sql {
    use crate::runs::sql::columns;

    macro_rules! summary {
        ($($rest:literal),+) => {
            concat!(
                "SELECT ",
                columns!(),
                ", a.slug, v.name, (SELECT count(*) FROM tool_calls c WHERE c.run_id = r.id), \
                 (SELECT count(*) FROM tool_calls c WHERE c.run_id = r.id AND c.execution = 'refused'), \
                 (SELECT count(*) FROM tool_calls c WHERE c.run_id = r.id AND c.outcome = 'uncertain' AND c.finding IS NULL), \
                 (SELECT s.state FROM browser_sessions s WHERE s.run_id = r.id ORDER BY s.id DESC LIMIT 1) \
                 FROM runs r JOIN agents a ON a.id = r.agent_id JOIN conversations v ON v.id = r.conversation_id \
                 WHERE (CAST($1 AS TEXT) IS NULL OR r.agent_id IN (SELECT agent_id FROM agent_access WHERE operator_id = $1)) AND ",
                $($rest),+
            )
        };
    }
    macro_rules! page {
        ($which:literal) => {
            summary!(
                $which,
                "(CAST($2 AS TEXT) IS NULL OR r.agent_id = $2) AND (CAST($3 AS TEXT) IS NULL OR r.state = $3) \
                 AND (CAST($4 AS TEXT) IS NULL OR r.id < $4) ORDER BY r.id DESC LIMIT $5"
            )
        };
    }

    crate::db::statements! {
        LIST = page!("");
        // Few calls are uncertain, many runs are not: from the calls to their runs.
        UNSETTLED = page!("r.id IN (SELECT u.run_id FROM tool_calls u WHERE u.outcome = 'uncertain' AND u.finding IS NULL) AND ");
        ONE = summary!("r.id = $2");
        UNSETTLED_OF = "SELECT agent_id, count(*) FROM tool_calls WHERE outcome = 'uncertain' AND finding IS NULL \
            AND agent_id IN (SELECT value FROM json_each($1)) GROUP BY agent_id"
            => "SELECT agent_id, count(*) FROM tool_calls WHERE outcome = 'uncertain' AND finding IS NULL \
            AND agent_id IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb))) GROUP BY agent_id";
        UNCERTAIN = "SELECT id FROM tool_calls WHERE run_id = $1 AND outcome = 'uncertain' AND finding IS NULL \
            ORDER BY created_at, id LIMIT 100";
    }
}
