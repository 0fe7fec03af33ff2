//! The end of a call, written once.

use std::time::Duration;

use formation_core::{
    Class, Execution, Outcome,
    refusal::{Refusal, RefusalReason},
};

use super::{Binding, CallId, Code, InstanceId, Observation, RefNonce, SealedArtifact, StoredCall, read_call, stored_call};
use crate::{
    artifacts,
    browser_sessions::{self, SessionEnd},
    db::{Db, Tx},
    error::StoreError,
    settings::Rules,
};

/// What a screenshot leaves on its session for visual input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewMark {
    /// JSON of the runtime's.
    pub text: String,
    /// How long it is good for.
    pub life: Duration,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub struct Settle {
    /// Which call.
    pub call: CallId,
    /// The process that handled it.
    pub holder: InstanceId,
    /// `Succeeded`: the handler finished and explained; `Failed`: nobody finished it.
    pub execution: Execution,
    /// What became of the thing wanted.
    pub outcome: Outcome,
    /// What to answer, with `Succeeded`.
    pub observation: Option<Observation>,
    /// Why nobody finished it, with `Failed`.
    pub problem: Option<Code>,
    /// What it was admitted on, compared with what is granted now; `None` for calls that were never admitted.
    pub granted: Option<Binding>,
    /// The nonce of a look, whose refs are good from now on; `None` leaves what is there.
    pub refs: Option<RefNonce>,
    /// The view of a screenshot.
    pub view: Option<ViewMark>,
    /// The page that is driven now, if it changed.
    pub page: Option<String>,
    /// The screenshot.
    pub artifact: Option<SealedArtifact>,
}

impl Settle {
    /// The handler finished.
    pub fn finished(call: CallId, holder: InstanceId, granted: Binding, outcome: Outcome, observation: Observation) -> Self {
        Self {
            call,
            holder,
            execution: Execution::Succeeded,
            outcome,
            observation: Some(observation),
            problem: None,
            granted: Some(granted),
            refs: None,
            view: None,
            page: None,
            artifact: None,
        }
    }

    /// Nobody finished it.
    pub const fn failed(call: CallId, holder: InstanceId, outcome: Outcome, problem: Code) -> Self {
        Self {
            call,
            holder,
            execution: Execution::Failed,
            outcome,
            observation: None,
            problem: Some(problem),
            granted: None,
            refs: None,
            view: None,
            page: None,
            artifact: None,
        }
    }

    /// With fresh refs.
    pub fn with_refs(mut self, refs: RefNonce) -> Self {
        self.refs = Some(refs);
        self
    }
}

/// What became of the settle.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// Written as asked.
    Stored(StoredCall),
    /// The grant went meanwhile: the outcome is on record, the content was dropped, the session is to close (W20).
    Withheld(StoredCall),
    /// Somebody settled it before: recovery, when our lease had lapsed. Nothing was changed.
    Already(StoredCall),
}

impl Settled {
    /// The call as the ledger has it now.
    pub fn call(&self) -> &StoredCall {
        match self {
            Self::Stored(call) | Self::Withheld(call) | Self::Already(call) => call,
        }
    }
}

/// Compares the binding again under the shared scope locks, writes the end and frees the session. Never changes a settled row.
pub async fn settle(db: &Db, rules: &Rules, settle: Settle) -> Result<Settled, StoreError> {
    db.faults().at("settle.before");
    let rules = rules.clone();
    let settled = db.write(move |tx| Box::pin(async move { write(tx, &rules, settle).await })).await?;
    db.faults().at("settle.after");
    Ok(settled)
}

/// The call's row, as far as it never changes after admission.
struct Fixed {
    class: Class,
    session: Option<(formation_core::BrowserSessionId, i64)>,
    agent: formation_core::AgentId,
    run: formation_core::RunId,
    tool: formation_core::Tool,
}

async fn write(tx: &mut Tx, rules: &Rules, mut settle: Settle) -> Result<Settled, StoreError> {
    let is_revoked = match &settle.granted {
        Some(granted) => {
            let now = rules.resolve_locked(tx, granted.agent, granted.capability).await?;
            now.map_or(true, |effective| effective.binding != *granted)
        }
        None => false,
    };
    let row = tx.row(sql::FIXED, &[settle.call.into()]).await?.ok_or(StoreError::internal("no such call in the ledger"))?;
    let session = row.at::<Option<_>>(1)?.zip(row.at::<Option<i64>>(2)?);
    let fixed = Fixed { class: row.at(0)?, session, agent: row.at(3)?, run: row.at(4)?, tool: row.at(5)? };
    if is_revoked {
        withhold(&mut settle, &fixed);
    }
    if let Some((session, _)) = fixed.session {
        tx.exec(sql::LOCK_SESSION, &[session.into()]).await?;
    }
    let now = tx.now().await?;
    let observation = settle.observation.as_ref().map(Observation::text);
    let from_queued = settle.execution == Execution::Failed;
    let vals = [
        settle.call.into(),
        settle.holder.into(),
        settle.execution.into(),
        settle.outcome.into(),
        observation.as_deref().into(),
        settle.problem.into(),
        now.into(),
        i64::from(from_queued).into(),
    ];
    if tx.exec(sql::SETTLE, &vals).await? == 0 {
        return stored_call(tx, settle.call).await.map(Settled::Already);
    }
    free_session(tx, &settle, &fixed, is_revoked).await?;
    if let Some(artifact) = &settle.artifact {
        artifacts::insert(tx, fixed.agent, fixed.run, settle.call, artifact).await?;
    }
    let row = tx.row(super::own::ONE, &[settle.call.into()]).await?.ok_or(StoreError::internal("a settled call is gone"))?;
    let stored = read_call(&row)?;
    Ok(if is_revoked { Settled::Withheld(stored) } else { Settled::Stored(stored) })
}

/// An effect keeps its own outcome; what a read saw is held back. Either way no content is answered.
fn withhold(settle: &mut Settle, fixed: &Fixed) {
    if fixed.class == Class::Read && !matches!(settle.outcome, Outcome::Interrupted | Outcome::NotDispatched) {
        settle.outcome = Outcome::Withheld;
    }
    settle.refs = None;
    settle.view = None;
    settle.artifact = None;
    if settle.execution == Execution::Succeeded {
        let explanation =
            "The grant this call was admitted on changed while it ran. Its result is held back; list the tools again.";
        let mut refusal = Refusal::new(RefusalReason::GrantRevoked, explanation);
        refusal.outcome = Some(settle.outcome);
        settle.observation = Some(Observation::refusal(fixed.tool, &refusal));
    }
}

async fn free_session(tx: &mut Tx, settle: &Settle, fixed: &Fixed, is_revoked: bool) -> Result<(), StoreError> {
    let Some((session, operation)) = fixed.session else { return Ok(()) };
    let now = tx.now().await?;
    let view = settle.view.as_ref();
    let vals = [
        session.into(),
        operation.into(),
        settle.call.into(),
        settle.refs.as_ref().into(),
        view.map(|view| view.text.as_str()).into(),
        view.map(|view| now.after(view.life)).into(),
        settle.page.as_deref().into(),
    ];
    tx.exec(sql::FREE, &vals).await?;
    if settle.outcome == Outcome::Uncertain {
        tx.exec(sql::UNCERTAIN, &[session.into(), settle.call.into()]).await?;
    }
    if is_revoked {
        browser_sessions::end_session(tx, session, SessionEnd::Revoked).await?;
    }
    Ok(())
}

/// Frees what a lapsed call held, for recovery.
pub(crate) async fn free_lapsed(
    tx: &mut Tx,
    call: CallId,
    session: formation_core::BrowserSessionId,
    operation: i64,
    outcome: Outcome,
) -> Result<(), StoreError> {
    tx.exec(sql::FREE_LAPSED, &[session.into(), call.into()]).await?;
    if outcome == Outcome::Uncertain {
        tx.exec(sql::UNCERTAIN, &[session.into(), call.into()]).await?;
    }
    browser_sessions::end_unopened(tx, session, operation).await?;
    Ok(())
}

pub(crate) mod sql {
    crate::db::statements! {
        FIXED = "SELECT class, session_id, session_operation, agent_id, run_id, tool FROM tool_calls WHERE id = $1";
        LOCK_SESSION = "SELECT id FROM browser_sessions WHERE id = $1"
            => "SELECT id FROM browser_sessions WHERE id = $1 FOR NO KEY UPDATE";
        // A queued call can only fail; what was admitted or dispatched can also succeed.
        SETTLE = "UPDATE tool_calls SET execution = $3, outcome = $4, observation = $5, problem = $6, settled_at = $7 \
            WHERE id = $1 AND holder = $2 AND (execution IN ('admitted', 'dispatched') OR (execution = 'queued' AND $8 = 1))";
        FREE = "UPDATE browser_sessions SET busy_call = NULL, refs = coalesce($4, refs), \
            view = coalesce($5, view), view_expires_at = coalesce($6, view_expires_at), page = coalesce($7, page) \
            WHERE id = $1 AND operation = $2 AND busy_call = $3";
        FREE_LAPSED = "UPDATE browser_sessions SET busy_call = NULL, refs = NULL, view = NULL, view_expires_at = NULL \
            WHERE id = $1 AND busy_call = $2";
        // Whatever acquisition the session is at: the doubt is about the page.
        UNCERTAIN = "UPDATE browser_sessions SET uncertain_call = $2 WHERE id = $1 AND uncertain_call IS NULL";
    }
}
