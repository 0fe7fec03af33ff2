//! Artifacts: screenshots, sealed at rest and gone after a day (B13, B14). Their metadata stays in the trace.

use std::time::Duration;

use formation_core::{AgentId, ArtifactId, CallId, Entropy, RunId, Scope, limits};

use crate::{
    db::{Db, Tx},
    error::StoreError,
    seal::{CannotOpen, KeyId, MasterKeys, Place, Sealed},
};

const KIND: &str = "artifact";

/// A sealed screenshot on its way into the ledger.
#[derive(Debug, Clone)]
pub struct SealedArtifact {
    /// Its id.
    pub id: ArtifactId,
    /// Whose it is sealed for.
    agent: AgentId,
    width: u32,
    height: u32,
    byte_count: usize,
    life: Duration,
    sealed: Sealed,
}

/// A picture as it was taken.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// JPEG, at most 2 MiB, checked by the caller.
    pub jpeg: &'a [u8],
    /// In CSS pixels.
    pub width: u32,
    /// In CSS pixels.
    pub height: u32,
}

/// Seals a screenshot for this agent. It takes milliseconds: not inside a transaction.
pub fn seal(keys: &MasterKeys, entropy: &Entropy, id: ArtifactId, agent: AgentId, picture: Picture<'_>) -> SealedArtifact {
    let (owner, row) = (Scope::Agent(agent).to_string(), id.to_string());
    let place = Place { owner: &owner, kind: KIND, row: &row, revision: 1 };
    SealedArtifact {
        id,
        agent,
        width: picture.width,
        height: picture.height,
        byte_count: picture.jpeg.len(),
        life: limits::ARTIFACT_LIFE,
        sealed: keys.seal(entropy, &place, picture.jpeg),
    }
}

/// With the settle of its call.
pub(crate) async fn insert(
    tx: &mut Tx,
    agent: AgentId,
    run: RunId,
    call: CallId,
    artifact: &SealedArtifact,
) -> Result<(), StoreError> {
    if artifact.agent != agent {
        return Err(StoreError::internal("an artifact was sealed for another agent"));
    }
    let now = tx.now().await?;
    let vals = [
        artifact.id.into(),
        agent.into(),
        run.into(),
        call.into(),
        i64::from(artifact.width).into(),
        i64::from(artifact.height).into(),
        i64::try_from(artifact.byte_count).unwrap_or(i64::MAX).into(),
        artifact.sealed.key_id.as_str().into(),
        (&artifact.sealed.wrapped_key).into(),
        (&artifact.sealed.sealed).into(),
        now.into(),
        now.after(artifact.life).into(),
    ];
    tx.exec(sql::INSERT, &vals).await.map(|_| ())
}

/// What an artifact's id leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Artifact {
    /// The picture.
    Jpeg(Vec<u8>),
    /// It was there; 24 hours have passed.
    Expired,
}

/// Why a picture that is there cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// It does not open.
    #[error(transparent)]
    Sealed(#[from] CannotOpen),
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A picture of this run. `None`: the run has no such artifact; another run's is not found.
pub async fn read(db: &Db, keys: &MasterKeys, run: RunId, id: ArtifactId) -> Result<Option<Artifact>, ArtifactError> {
    let now = db.now().await?;
    let Some(row) = db.row(sql::READ, &[id.into(), run.into(), now.into()]).await? else { return Ok(None) };
    let Some(sealed) = row.at::<Option<Vec<u8>>>(3)? else { return Ok(Some(Artifact::Expired)) };
    let sealed = Sealed { key_id: KeyId::stored(row.at::<String>(1)?), wrapped_key: row.at(2)?, sealed };
    let (owner, row_id) = (Scope::Agent(row.at(0)?).to_string(), id.to_string());
    let jpeg = keys.open(&Place { owner: &owner, kind: KIND, row: &row_id, revision: 1 }, &sealed)?;
    Ok(Some(Artifact::Jpeg(jpeg.expose().to_vec())))
}

/// The picture a call took, by the call's own run.
pub async fn of_call(db: &Db, run: RunId, call: CallId) -> Result<Option<ArtifactId>, StoreError> {
    db.row(sql::OF_CALL, &[run.into(), call.into()]).await?.map(|row| row.at(0)).transpose()
}

/// Erases up to 100 pictures whose day is over; how many.
pub(crate) async fn sweep(tx: &mut Tx) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    tx.exec(sql::ERASE, &[now.into()]).await
}

pub(crate) mod sql {
    crate::db::statements! {
        INSERT = "INSERT INTO artifacts (id, agent_id, run_id, call_id, width, height, byte_count, key_id, wrapped_key, sealed, \
            created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        READ = "SELECT agent_id, key_id, wrapped_key, CASE WHEN expires_at > $3 THEN sealed END FROM artifacts \
            WHERE id = $1 AND run_id = $2";
        OF_CALL = "SELECT id FROM artifacts WHERE run_id = $1 AND call_id = $2 ORDER BY id LIMIT 1";
        ERASE = "UPDATE artifacts SET sealed = NULL, erased_at = $1 WHERE id IN \
            (SELECT id FROM artifacts WHERE erased_at IS NULL AND expires_at <= $1 ORDER BY expires_at LIMIT 100)";
    }
}
