//! What a run reads back: its calls and its pictures.

use formation_core::{ArtifactId, CallId};
use formation_store::{artifacts, ledger};

use crate::{Answer, ArtifactRead, RunRef, Runtime, RuntimeError, StoredCall};

impl Runtime {
    /// A call of this run; `None`: absent, or another run's.
    pub async fn call(&self, run: &RunRef, id: CallId) -> Result<Option<Answer>, RuntimeError> {
        let Some(call) = ledger::call_of_run(&self.0.db, run.run, id).await? else { return Ok(None) };
        if !call.execution.is_settled() {
            return Ok(Some(Answer::Running { id }));
        }
        let image = self.0.image_of(&call, None).await;
        Ok(Some(Answer::Settled { call: Box::new(StoredCall::from(call)), image }))
    }

    /// A screenshot of this run.
    pub async fn artifact(&self, run: &RunRef, id: ArtifactId) -> Result<ArtifactRead, RuntimeError> {
        match artifacts::read(&self.0.db, &self.0.keys, run.run, id).await {
            Ok(Some(artifacts::Artifact::Jpeg(jpeg))) => Ok(ArtifactRead::Jpeg(jpeg)),
            Ok(Some(artifacts::Artifact::Expired)) => Ok(ArtifactRead::Expired),
            Ok(None) => Ok(ArtifactRead::Missing),
            Err(artifacts::ArtifactError::Store(error)) => Err(error.into()),
            Err(artifacts::ArtifactError::Sealed(error)) => {
                tracing::error!(%error, "a screenshot does not open");
                Err(RuntimeError::Internal)
            }
        }
    }
}
