//! The audit trail: what was turned away is written here; what was done is written by whoever did it, in the change's transaction.

use formation_core::{AgentId, people::Actor};
use formation_store::{
    Page,
    audit::{self, AuditOutcome, NewEntry},
};
use serde_json::json;

use super::Operator;
use crate::{Runtime, RuntimeError};

/// A mutating request that changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnedAway {
    /// Who asked.
    pub actor: Actor,
    /// The agent it concerned, where that is known.
    pub agent: Option<AgentId>,
    /// What was asked, as `noun.verb`.
    pub action: String,
    /// On what: the path, without anything that may be a secret.
    pub subject: String,
    /// The answer's status.
    pub status: u16,
    /// The answer's code.
    pub code: String,
}

impl Runtime {
    /// Lines of the audit trail that an operator may see, newest first; 100 a page. An owner sees all of them, a member those of the
    /// agents they were given.
    pub async fn audit(&self, operator: &Operator, filter: &audit::Filter) -> Result<Page<audit::Entry>, RuntimeError> {
        Ok(audit::list(&self.0.db, operator.reach(), filter).await?)
    }

    /// Writes the one row of a request that was turned away, in a transaction of its own.
    pub async fn record_turned_away(&self, turned: TurnedAway) -> Result<(), RuntimeError> {
        let outcome = match (turned.status, turned.code.as_str()) {
            (_, "stale_version") => AuditOutcome::Stale,
            (401 | 403 | 404, _) => AuditOutcome::Denied,
            _ => AuditOutcome::Refused,
        };
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let entry = NewEntry {
                    actor: &turned.actor,
                    agent: turned.agent,
                    action: &turned.action,
                    subject: &turned.subject,
                    outcome,
                    detail: json!({ "code": turned.code }),
                };
                audit::insert(tx, &entry).await
            })
        });
        write.await?;
        Ok(())
    }
}
