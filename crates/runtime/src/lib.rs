//! The one execution path: offers, admission, the ledger, the run's browser, recovery and sweeps.
//!
//! `api` sees only this crate, so no route can skip admission or open a secret.

mod call;
mod caller;
mod offers;

use std::sync::Arc;

use formation_core::{AgentId, ArtifactId, CallId, McpSessionId};

pub use call::{Answer, ArtifactRead, CallRequest, Door, ExecuteError, Image, StoredCall};
pub use caller::{Caller, OpenRun, OpenedRun, Purpose, RunRef, Which};
pub use offers::Offer;

/// The database did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// It does not answer; nothing was changed.
    #[error("the database does not answer")]
    Unavailable,
    /// It refused what should have been right; logged where it happened.
    #[error("an internal error")]
    Internal,
}

/// Everything between the doors and the parts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime(Arc<Inner>);

#[derive(Debug)]
struct Inner {}

impl Runtime {
    /// Whose token this is; `None` for anything that is not a good one.
    pub async fn authenticate(&self, token: &str) -> Result<Option<Caller>, RuntimeError> {
        todo!()
    }

    /// Opens a run for an agent, with a token of its own.
    pub async fn open_run(&self, agent: AgentId, token: formation_core::TokenId, open: OpenRun) -> Result<OpenedRun, RuntimeError> {
        todo!()
    }

    /// Ends a run on its own wish: its calls are refused from now on and its browser is closed.
    pub async fn finish_run(&self, run: &RunRef) -> Result<(), RuntimeError> {
        todo!()
    }

    /// The run a call belongs to; opens an implicit one where the contract says so. `conversation` is the header
    /// `Formation-Conversation`, used only when a run is opened.
    pub async fn run_of(
        &self,
        caller: &Caller,
        which: &Which,
        conversation: Option<&str>,
        purpose: Purpose,
    ) -> Result<RunRef, RuntimeError> {
        todo!()
    }

    /// What the run is offered now, in fixed order; records what is new.
    pub async fn offers(&self, run: &RunRef) -> Result<Vec<Offer>, RuntimeError> {
        todo!()
    }

    /// Ends when what `agent` is offered changes.
    pub async fn offers_changed(&self, agent: AgentId) {
        todo!()
    }

    /// Runs one call to its end, in a task of its own: a caller that hangs up changes nothing.
    pub async fn execute(&self, run: RunRef, request: CallRequest) -> Result<Answer, ExecuteError> {
        todo!()
    }

    /// A call of this run; `None`: absent, or another run's.
    pub async fn call(&self, run: &RunRef, id: CallId) -> Result<Option<Answer>, RuntimeError> {
        todo!()
    }

    /// A screenshot of this run.
    pub async fn artifact(&self, run: &RunRef, id: ArtifactId) -> Result<ArtifactRead, RuntimeError> {
        todo!()
    }

    /// Opens a session for a legacy MCP client.
    pub async fn open_mcp_session(&self, caller: &Caller) -> Result<McpSessionId, RuntimeError> {
        todo!()
    }

    /// Whether the session is open and this token's own.
    pub async fn has_mcp_session(&self, caller: &Caller, id: McpSessionId) -> Result<bool, RuntimeError> {
        todo!()
    }

    /// Ends the session and its run.
    pub async fn end_mcp_session(&self, caller: &Caller, id: McpSessionId) -> Result<(), RuntimeError> {
        todo!()
    }

    /// Whether the database answers and is migrated.
    pub async fn is_ready(&self) -> bool {
        todo!()
    }
}
