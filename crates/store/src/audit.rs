//! The audit trail: one row a mutating request, written in the change's own transaction; what was turned away leaves its row in one
//! of its own. Rows are never changed.

use formation_core::{
    AgentId, AuditId, Timestamp,
    people::{Actor, Reach},
    words,
};
use serde_json::Value;

use crate::{
    Page,
    db::{Db, Row, Tx, stored_words},
    error::StoreError,
};

words! {
    /// What became of a mutating request.
    pub enum AuditOutcome {
        /// The change is in force.
        Done = "done",
        /// Not theirs to change.
        Denied = "denied",
        /// Somebody else had changed it meanwhile.
        Stale = "stale",
        /// Turned away for what it asked.
        Refused = "refused",
    }
}
stored_words!(AuditOutcome);

/// One line to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEntry<'a> {
    /// Who.
    pub actor: &'a Actor,
    /// The agent it concerns, if one: its managers see the row.
    pub agent: Option<AgentId>,
    /// What was done, as `noun.verb`: `agent.create`, `web.account.save`, …
    pub action: &'a str,
    /// On what: a slug, an id, a vendor's word; never a value.
    pub subject: &'a str,
    /// What became of it.
    pub outcome: AuditOutcome,
    /// Plain facts of the change, a JSON object without a secret in it.
    pub detail: Value,
}

/// Writes one line.
pub async fn insert(tx: &mut Tx, entry: &NewEntry<'_>) -> Result<AuditId, StoreError> {
    let now: Timestamp = tx.now().await?;
    let id = AuditId::mint(now, tx.entropy());
    let detail = entry.detail.to_string();
    let vals = [
        id.into(),
        now.into(),
        entry.actor.kind.into(),
        entry.actor.id.as_deref().into(),
        (&entry.actor.name).into(),
        entry.agent.into(),
        entry.action.into(),
        entry.subject.into(),
        entry.outcome.into(),
        (&detail).into(),
        entry.actor.request.as_deref().into(),
    ];
    match tx.exec(sql::INSERT, &vals).await {
        Ok(_) => Ok(id),
        Err(error) if error.is_conflict() => Err(error),
        // Whatever keeps it from being written, nothing is done that leaves no trace: 503, not a fault of the request's.
        Err(error) => {
            tracing::error!(%error, "the audit trail took no row");
            Err(StoreError::unavailable("the audit trail can't be written"))
        }
    }
}

/// Writes the line of a change that is being made, in its own transaction.
pub async fn done(
    tx: &mut Tx,
    actor: &Actor,
    agent: Option<AgentId>,
    action: &str,
    subject: &str,
    detail: Value,
) -> Result<(), StoreError> {
    insert(tx, &NewEntry { actor, agent, action, subject, outcome: AuditOutcome::Done, detail }).await.map(|_| ())
}

/// One line, as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its id; later ones sort later.
    pub id: AuditId,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// The agent it concerns.
    pub agent: Option<AgentId>,
    /// What, as `noun.verb`.
    pub action: String,
    /// On what.
    pub subject: String,
    /// What became of it.
    pub outcome: AuditOutcome,
    /// Plain facts.
    pub detail: Value,
}

/// Which lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Concerning this agent.
    pub agent: Option<AgentId>,
    /// Of this action.
    pub action: Option<String>,
    /// By this actor: an id or a name.
    pub actor: Option<String>,
    /// Before this line.
    pub after: Option<AuditId>,
}

/// Lines within reach, newest first, 100 a page. A member sees those of the agents they were given.
pub async fn list(db: &Db, reach: Reach, filter: &Filter) -> Result<Page<Entry>, StoreError> {
    let vals = [
        reach.bound().into(),
        filter.agent.into(),
        filter.action.as_deref().into(),
        filter.actor.as_deref().into(),
        filter.after.into(),
    ];
    let rows = db.rows(sql::LIST, &vals).await?;
    let items = rows.iter().take(100).map(entry).collect::<Result<Vec<_>, _>>()?;
    Ok(Page { items, has_more: rows.len() > 100 })
}

fn entry(row: &Row) -> Result<Entry, StoreError> {
    let detail: String = row.at(9)?;
    Ok(Entry {
        id: row.at(0)?,
        at: row.at(1)?,
        actor: Actor { kind: row.at(2)?, id: row.at(3)?, name: row.at(4)?, request: row.at(10)? },
        agent: row.at(5)?,
        action: row.at(6)?,
        subject: row.at(7)?,
        outcome: row.at(8)?,
        detail: serde_json::from_str(&detail).map_err(|_| StoreError::internal("a line of the audit trail can't be read"))?,
    })
}

pub(crate) mod sql {
    crate::db::statements! {
        INSERT = "INSERT INTO audit (id, at, actor_kind, actor_id, actor_name, agent_id, action, subject, outcome, detail, request_id) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
        LIST = "SELECT id, at, actor_kind, actor_id, actor_name, agent_id, action, subject, outcome, detail, request_id FROM audit \
            WHERE (CAST($1 AS TEXT) IS NULL OR agent_id IN (SELECT agent_id FROM agent_access WHERE operator_id = $1)) \
            AND (CAST($2 AS TEXT) IS NULL OR agent_id = $2) AND (CAST($3 AS TEXT) IS NULL OR action = $3) \
            AND (CAST($4 AS TEXT) IS NULL OR actor_id = $4 OR actor_name = $4) AND (CAST($5 AS TEXT) IS NULL OR id < $5) \
            ORDER BY id DESC LIMIT 101";
    }
}
