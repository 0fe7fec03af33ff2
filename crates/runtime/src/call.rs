//! A call as the doors see it: asked for, settled, running.

use formation_core::{ArtifactId, CallId, Execution, Observation, OfferId, Outcome, Tool, refusal::Code};
use formation_store::{StoreError, ledger};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Which door the call came through: they differ in how a used key is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// `/v1/run/*`: a key used for another call is [`ExecuteError::IdReused`]; a repeat of a running call is [`Answer::Running`].
    Run,
    /// `/mcp`: a key used for another call is a refusal on record; a repeat waits for the first to settle.
    Mcp,
}

/// One tool call.
#[derive(Debug)]
pub struct CallRequest {
    /// The caller's idempotency key, at most 128 of `A-Za-z0-9._:-`, unique per agent.
    pub key: Option<String>,
    /// The tool.
    pub tool: Tool,
    /// Its arguments, not yet checked.
    pub arguments: Value,
    /// The offer it stands on; the run's newest of that tool without one.
    pub offer: Option<OfferId>,
    /// Where it came in.
    pub door: Door,
    /// The caller gave up; counts until admission.
    pub cancel: CancellationToken,
}

/// A call in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    /// Our id.
    pub id: CallId,
    /// How far the handler came.
    pub execution: Execution,
    /// What became of it, once settled and not refused.
    pub outcome: Option<Outcome>,
    /// What the tool answered.
    pub observation: Option<Observation>,
    /// Why nobody finished it.
    pub problem: Option<Code>,
}

/// A screenshot beside an observation.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    /// Where it is kept.
    pub artifact: ArtifactId,
    /// The bytes.
    pub jpeg: Vec<u8>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}, {} bytes)", self.artifact, self.jpeg.len())
    }
}

/// What a call is answered with.
#[derive(Debug)]
pub enum Answer {
    /// It has ended.
    Settled {
        /// The row.
        call: Box<StoredCall>,
        /// Its screenshot, while that lives.
        image: Option<Image>,
    },
    /// It runs; ask again with the same key or for this id.
    Running {
        /// Our id.
        id: CallId,
    },
}

/// A call that could not be answered from the ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// The key stands for another tool or other arguments (door [`Door::Run`] only).
    #[error("the key was used for another call")]
    IdReused,
    /// It could not even be recorded; nothing was sent.
    #[error("the database does not answer")]
    Unavailable,
    /// It is on record, and its end could not be written: it may have been sent. Ask again with the same key, or for this id;
    /// recovery writes the truth.
    #[error("the end of the call could not be written")]
    Unsettled {
        /// Our id.
        id: CallId,
    },
    /// The database refused what should have been right; logged with the request's id.
    #[error("an internal error")]
    Internal,
}

impl From<StoreError> for ExecuteError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the database failed");
        if error.is_unavailable() { Self::Unavailable } else { Self::Internal }
    }
}

impl From<ledger::StoredCall> for StoredCall {
    fn from(call: ledger::StoredCall) -> Self {
        let ledger::StoredCall { id, execution, outcome, observation, problem, .. } = call;
        Self { id, execution, outcome, observation, problem }
    }
}

/// A read of a screenshot.
#[derive(Debug)]
pub enum ArtifactRead {
    /// `image/jpeg`.
    Jpeg(Vec<u8>),
    /// It was there, and its 24 hours are over.
    Expired,
    /// Absent, or not this run's.
    Missing,
}
