//! The audit trail: one row a mutating request, written in the change's own transaction; what was turned away leaves its row in one
//! of its own. Rows are never changed.

use formation_core::{AgentId, AuditId, Timestamp, people::Actor, words};
use serde_json::Value;

use crate::{
    db::{Tx, stored_words},
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
    tx.exec(sql::INSERT, &vals).await?;
    Ok(id)
}

pub(crate) mod sql {
    crate::db::statements! {
        INSERT = "INSERT INTO audit (id, at, actor_kind, actor_id, actor_name, agent_id, action, subject, outcome, detail, request_id) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    }
}
