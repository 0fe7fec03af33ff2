//! Runs, as operators look after them: lists, traces, ending one, and saying what became of an uncertain call.
//!
//! Whose run it is was decided before, by the extractor that let the operator in; lists take the operator and bound themselves.

use formation_core::{
    AgentId, CallId, ConversationId, RunId,
    call::Finding,
    people::{Actor, Reach},
};
use formation_store::{
    StoreError, audit, conversations,
    ledger::{self, Reconciled},
    runs, summaries,
};
use serde_json::json;

use crate::{
    Page, Runtime, RuntimeError,
    people::{Agent, Operator},
};

pub use crate::overview::{AgentState, InUse};
pub use formation_store::{
    browser_sessions::SessionState,
    conversations::Conversation,
    ledger::TraceEntry,
    runs::{EndReason, Origin, RunState},
    summaries::{Filter as RunFilter, RunSummary},
};

/// Calls of one page of a trace.
const CALLS: u32 = 100;

impl Runtime {
    /// Runs of the agents that this operator manages, newest first; 100 a page.
    pub async fn runs(&self, operator: &Operator, filter: RunFilter) -> Result<Page<RunSummary>, RuntimeError> {
        Ok(summaries::list(&self.0.db, operator.reach(), filter, 100).await?)
    }

    /// A run that the operator was let into.
    pub async fn run(&self, run: RunId) -> Result<Option<RunSummary>, RuntimeError> {
        Ok(summaries::one(&self.0.db, Reach::Everything, run).await?)
    }

    /// Ends a run, with its line in the audit trail: its calls are refused from now on, those in flight are cut where they can be, and
    /// its browser is closed. One that is over stays as it ended.
    pub async fn cancel_run(&self, actor: &Actor, agent: AgentId, run: RunId) -> Result<(), RuntimeError> {
        let actor = actor.clone();
        let write = self.0.db.write(move |tx| {
            Box::pin(async move {
                let ended = runs::end(tx, run, EndReason::Cancelled).await?;
                let detail = json!({ "was_over": !ended });
                audit::done(tx, &actor, Some(agent), "run.cancel", &run.to_string(), detail).await
            })
        });
        write.await?;
        self.0.wake_sweeper();
        Ok(())
    }

    /// The calls of a run in order, after the first `skip`; 100 a page.
    pub async fn trace(&self, run: RunId, skip: u64) -> Result<Page<TraceEntry>, RuntimeError> {
        let mut items = ledger::trace(&self.0.db, run, skip, CALLS + 1).await?;
        let has_more = items.len() > CALLS as usize;
        items.truncate(CALLS as usize);
        Ok(Page { items, has_more })
    }

    /// Records what an operator found out about an uncertain call of the run, with its line in the audit trail. The note is one
    /// (`call::is_note`), checked by the caller.
    pub async fn reconcile(
        &self,
        actor: &Actor,
        run: RunId,
        call: CallId,
        finding: Finding,
        note: String,
    ) -> Result<Result<TraceEntry, NotReconciled>, RuntimeError> {
        let actor = actor.clone();
        let write =
            self.0.db.write(move |tx| Box::pin(async move { ledger::reconcile(tx, &actor, run, call, finding, &note).await }));
        match write.await? {
            Reconciled::Done(_) => {
                let entry = ledger::traced(&self.0.db, run, call).await?;
                Ok(Ok(entry.ok_or(StoreError::internal("a call that was there is gone"))?))
            }
            Reconciled::AlreadySettled => Ok(Err(NotReconciled::AlreadySettled)),
            Reconciled::NotUncertain => Ok(Err(NotReconciled::NotUncertain)),
            Reconciled::NotFound => Ok(Err(NotReconciled::NotFound)),
        }
    }

    /// The agent's conversations, newest first; 100 a page.
    pub async fn conversations(&self, agent: &Agent, after: Option<ConversationId>) -> Result<Page<Conversation>, RuntimeError> {
        Ok(conversations::list(&self.0.db, agent.id, after).await?)
    }
}

/// Why no finding was recorded. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReconciled {
    /// There is one.
    AlreadySettled,
    /// What became of the call is known, or will be.
    NotUncertain,
    /// The run has no such call.
    NotFound,
}
