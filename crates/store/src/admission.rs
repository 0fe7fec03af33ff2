//! Admission: the one transaction between a tool call and whatever it reaches.
//!
//! A call is admitted once, under the locks that settings writes take: its offer is compared with what is granted now, the run is
//! still open, the session is its own. Asking again for the same call changes nothing (L3).
//!
//! It works in phases over all asks at once, each phase sorted by its key: scopes; session rows; call rows; run rows. Then it
//! decides in memory, in order of arrival, and writes. A savepoint per call in order of arrival deadlocks across replicas (spine.md
//! 5), so there are none: a failed statement fails the batch, and the combiner admits its members one by one.
//!
//! Not here: argument checks, which come before, and refunds, of which there are none.
//!
//! Adding a limit: lock and read its row in a phase of its own after the run rows, decide in `decide`, write it in `write`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use formation_core::{
    AgentId, Binding, BrowserSessionId, CallId, Capability, Class, ConversationId, Execution, InstanceId, OfferId, RunId, Scope, Timestamp,
    refusal::{Refusal, RefusalReason},
    settings::{Effective, Unavailable},
    view::RefNonce,
};

use crate::{
    browser_sessions::{self, SessionEnd, SessionGrant, SessionState},
    db::{Hold, Row, Tx},
    error::StoreError,
    evidence::{self, NewEvidence},
    ledger::{self, StoredCall},
    runs::{EndReason, RunState},
    secrets::{self, SealedSecret},
    settings::Rules,
};

/// One call that wants to be admitted.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The call, which `ledger::queue` put on record.
    pub call: CallId,
    /// Its run.
    pub run: RunId,
    /// Its agent.
    pub agent: AgentId,
    /// The process that handles it.
    pub holder: InstanceId,
    /// The offer it came with.
    pub offer: OfferId,
    /// What that offer was made on.
    pub offered: Binding,
    /// Whether it can change something outside.
    pub class: Class,
    /// Whether it needs a browser.
    pub session: SessionAsk,
    /// How long it may take from admission.
    pub bound: Duration,
}

/// What a call wants of the run's browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAsk {
    /// Nothing.
    None,
    /// The live session; without one the call is admitted without.
    Existing,
    /// The live session, or a new one under this id.
    ExistingOrNew(BrowserSessionId),
}

/// What became of an ask.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// It may go on.
    Granted(Box<Grant>),
    /// It isn't queued any more: admitted or settled before.
    Repeat(Box<StoredCall>),
    /// Another call holds the session, of another replica or one whose end isn't on record yet.
    Busy,
    /// It may not; nothing was changed.
    Refused(Refusal),
}

/// The terms of an admission.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// Who pays, on which terms: equal to what was offered.
    pub effective: Effective,
    /// The credential of its account, still sealed; accounts of the environment have none stored.
    pub key: Option<SealedSecret>,
    /// The session, held until the call settles or lapses.
    pub session: Option<SessionGrant>,
}

/// What each agent has for each capability, with the credential as it lies there.
type Terms = BTreeMap<(AgentId, Capability), Result<(Effective, Option<SealedSecret>), Unavailable>>;

/// Admits what may be admitted; one answer per ask, in their order.
pub async fn admit(tx: &mut Tx, rules: &Rules, asks: &[Ask]) -> Result<Vec<Admission>, StoreError> {
    let terms = resolve_all(tx, rules, asks).await?;
    let mut batch = Batch {
        now: tx.now().await?,
        sessions: lock_sessions(tx, &terms, asks).await?,
        calls: lock_calls(tx, asks).await?,
        runs: lock_runs(tx, asks).await?,
        terms,
    };
    let verdicts: Vec<Verdict> = asks.iter().map(|ask| batch.decide(ask)).collect();
    write(tx, &batch, asks, &verdicts).await?;
    let mut answers = Vec::with_capacity(asks.len());
    for (verdict, ask) in verdicts.into_iter().zip(asks) {
        answers.push(match verdict {
            Verdict::Grant(grant) => Admission::Granted(grant),
            Verdict::Repeat => Admission::Repeat(Box::new(ledger::stored_call(tx, ask.call).await?)),
            Verdict::Busy => Admission::Busy,
            Verdict::Refuse(refusal) => Admission::Refused(refusal),
        });
    }
    Ok(answers)
}

/// Phase 1: the locks of all owners, the install's first, then what each pair resolves to.
async fn resolve_all(tx: &mut Tx, rules: &Rules, asks: &[Ask]) -> Result<Terms, StoreError> {
    tx.lock_scope(Scope::Install, Hold::Shared).await?;
    for agent in asks.iter().map(|ask| ask.agent).collect::<BTreeSet<_>>() {
        tx.lock_scope(Scope::Agent(agent), Hold::Shared).await?;
    }
    let mut terms = Terms::new();
    for (agent, capability) in asks.iter().map(|ask| (ask.agent, ask.offered.capability)).collect::<BTreeSet<_>>() {
        let resolved = rules.resolve(tx, agent, capability).await?;
        let secret = resolved.as_ref().ok().and_then(|effective| Some((effective.binding.owner, effective.secret?)));
        let key = match secret {
            Some((owner, secret)) => secrets::read(tx, owner, secrets::VENDOR_KEY, secret).await?,
            None => None,
        };
        terms.insert((agent, capability), resolved.map(|effective| (effective, key)));
    }
    Ok(terms)
}

/// A live session as the batch sees it.
struct Held {
    id: BrowserSessionId,
    binding: Binding,
    state: SessionState,
    operation: i64,
    refs: Option<RefNonce>,
    uncertain: Option<CallId>,
    busy: Option<Busy>,
    /// Made by this batch, and gone again if nobody gets it.
    is_provisional: bool,
    is_taken: bool,
}

/// The call that holds a session.
struct Busy {
    call: CallId,
    is_live: bool,
    /// It lapsed with its effect on record: nobody knows yet what came of it.
    is_doubtful: bool,
}

/// Phase 2: the sessions, by run. One whose grant is another one now is to close; where a new one is wanted it is made here, since
/// its row comes before call and run rows in the order of locks.
async fn lock_sessions(tx: &mut Tx, terms: &Terms, asks: &[Ask]) -> Result<BTreeMap<RunId, Held>, StoreError> {
    let mut by_run: BTreeMap<RunId, Vec<&Ask>> = BTreeMap::new();
    for ask in asks.iter().filter(|ask| ask.session != SessionAsk::None) {
        by_run.entry(ask.run).or_default().push(ask);
    }
    let mut sessions = BTreeMap::new();
    for (run, asks) in by_run {
        let granted = asks.iter().find_map(|ask| {
            let (effective, _) = terms.get(&(ask.agent, ask.offered.capability))?.as_ref().ok()?;
            (effective.binding == ask.offered).then_some(&effective.binding)
        });
        let wanted = asks.iter().find_map(|ask| match ask.session {
            SessionAsk::ExistingOrNew(id) => granted.map(|binding| (id, binding)),
            SessionAsk::None | SessionAsk::Existing => None,
        });
        if let Some(held) = lock_session(tx, run, granted, wanted).await? {
            sessions.insert(run, held);
        }
    }
    Ok(sessions)
}

async fn lock_session(
    tx: &mut Tx,
    run: RunId,
    granted: Option<&Binding>,
    wanted: Option<(BrowserSessionId, &Binding)>,
) -> Result<Option<Held>, StoreError> {
    // A round is lost when another replica ends or makes the run's session at the same moment.
    for _ in 0..4 {
        if let Some(row) = tx.row(sql::SESSION, &[run.into()]).await? {
            let held = read_session(tx, &row).await?;
            let is_outdated = granted.is_some_and(|binding| *binding != held.binding);
            if !is_outdated || held.busy.as_ref().is_some_and(|busy| busy.is_live) {
                return Ok(Some(held));
            }
            browser_sessions::end_session(tx, held.id, SessionEnd::Revoked).await?;
        }
        let Some((id, binding)) = wanted else { return Ok(None) };
        if make_session(tx, run, id, binding).await? {
            return Ok(Some(Held {
                id,
                binding: binding.clone(),
                state: SessionState::Opening,
                operation: 0,
                refs: None,
                uncertain: None,
                busy: None,
                is_provisional: true,
                is_taken: false,
            }));
        }
        // Not made: the run is over, which its own row will say, or another replica was first.
        if tx.row(sql::RUN_IS_OPEN, &[run.into()]).await?.is_none() {
            return Ok(None);
        }
    }
    Err(StoreError::internal("the run's session kept changing"))
}

async fn make_session(tx: &mut Tx, run: RunId, id: BrowserSessionId, binding: &Binding) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    let text = serde_json::to_string(binding).map_err(|_| StoreError::internal("a binding is no JSON"))?;
    let vals = [id.into(), run.into(), binding.agent.into(), (&binding.vendor).into(), (&text).into(), now.into()];
    Ok(tx.exec(sql::MAKE_SESSION, &vals).await? == 1)
}

/// Who holds it is a statement of its own: after waiting for the row, a join in the locking statement would still see the busy
/// call of before.
async fn read_session(tx: &mut Tx, row: &Row) -> Result<Held, StoreError> {
    let binding =
        serde_json::from_str(&row.at::<String>(1)?).map_err(|_| StoreError::internal("a stored binding cannot be read"))?;
    let busy = match row.at::<Option<CallId>>(6)? {
        None => None,
        Some(call) => {
            let now = tx.now().await?;
            let holder = tx.row(sql::HOLDER, &[call.into(), now.into()]).await?;
            let (execution, is_live) = match holder {
                Some(row) => (row.at::<Execution>(0)?, row.at::<bool>(1)?),
                None => return Err(StoreError::internal("a session is held by a call that isn't there")),
            };
            Some(Busy { call, is_live, is_doubtful: !is_live && execution == Execution::Dispatched })
        }
    };
    Ok(Held {
        id: row.at(0)?,
        binding,
        state: row.at(2)?,
        operation: row.at(3)?,
        refs: row.at(4)?,
        uncertain: row.at(5)?,
        busy,
        is_provisional: false,
        is_taken: false,
    })
}

struct CallRow {
    run: RunId,
    agent: AgentId,
    execution: Execution,
}

/// Phase 3: the calls, by id.
async fn lock_calls(tx: &mut Tx, asks: &[Ask]) -> Result<BTreeMap<CallId, CallRow>, StoreError> {
    let mut calls = BTreeMap::new();
    for call in asks.iter().map(|ask| ask.call).collect::<BTreeSet<_>>() {
        if let Some(row) = tx.row(sql::CALL, &[call.into()]).await? {
            calls.insert(call, CallRow { run: row.at(0)?, agent: row.at(1)?, execution: row.at(2)? });
        }
    }
    Ok(calls)
}

struct RunRow {
    state: RunState,
    end_reason: Option<EndReason>,
    deadline_at: Timestamp,
    conversation: ConversationId,
}

/// Phase 4: the runs, by id.
async fn lock_runs(tx: &mut Tx, asks: &[Ask]) -> Result<BTreeMap<RunId, RunRow>, StoreError> {
    let mut runs = BTreeMap::new();
    for run in asks.iter().map(|ask| ask.run).collect::<BTreeSet<_>>() {
        if let Some(row) = tx.row(sql::RUN, &[run.into()]).await? {
            let row = RunRow { state: row.at(0)?, end_reason: row.at(1)?, deadline_at: row.at(2)?, conversation: row.at(3)? };
            runs.insert(run, row);
        }
    }
    Ok(runs)
}

/// Everything a decision hangs on, locked.
struct Batch {
    now: Timestamp,
    terms: Terms,
    sessions: BTreeMap<RunId, Held>,
    calls: BTreeMap<CallId, CallRow>,
    runs: BTreeMap<RunId, RunRow>,
}

enum Verdict {
    Grant(Box<Grant>),
    Repeat,
    Busy,
    Refuse(Refusal),
}

impl Batch {
    fn decide(&mut self, ask: &Ask) -> Verdict {
        // An ask for a call that isn't there has no row to be told about either; `Repeat` then fails its batch as the bug it is.
        let Some(call) = self.calls.get_mut(&ask.call).filter(|call| call.run == ask.run && call.agent == ask.agent) else {
            return Verdict::Repeat;
        };
        if call.execution != Execution::Queued {
            return Verdict::Repeat;
        }
        if let Some(refusal) = self.runs.get(&ask.run).and_then(|run| run_is_over(run, self.now)) {
            return Verdict::Refuse(refusal);
        }
        let (effective, key) = match self.terms.get(&(ask.agent, ask.offered.capability)) {
            Some(Ok((effective, key))) if effective.binding == ask.offered => (effective.clone(), key.clone()),
            Some(Ok(_)) => return Verdict::Refuse(Refusal::new(RefusalReason::GrantRevoked, GRANT_CHANGED)),
            Some(Err(_)) | None => return Verdict::Refuse(Refusal::new(RefusalReason::NotOffered, NOT_GRANTED)),
        };
        let session = if ask.session == SessionAsk::None { None } else { self.sessions.get_mut(&ask.run) };
        let session = match session {
            None if matches!(ask.session, SessionAsk::ExistingOrNew(_)) => return Verdict::Busy,
            None => None,
            Some(held) => match take(held, ask) {
                Ok(grant) => Some(grant),
                Err(verdict) => return verdict,
            },
        };
        call.execution = Execution::Admitted;
        Verdict::Grant(Box::new(Grant { effective, key, session }))
    }
}

fn run_is_over(run: &RunRow, now: Timestamp) -> Option<Refusal> {
    if run.state == RunState::Over {
        return Some(ledger::run_over(run.end_reason.unwrap_or(EndReason::Finished)));
    }
    (run.deadline_at <= now).then(|| ledger::run_over(EndReason::Deadline))
}

/// Takes the session for this call, in memory.
fn take(held: &mut Held, ask: &Ask) -> Result<SessionGrant, Verdict> {
    let is_busy = held.busy.as_ref().is_some_and(|busy| busy.is_live && busy.call != ask.call);
    // A session on other terms is only left live while somebody's operation runs in it.
    if is_busy || held.is_taken || held.binding != ask.offered {
        return Err(Verdict::Busy);
    }
    if ask.class == Class::ExternalEffect {
        let doubtful = held.busy.as_ref().filter(|busy| busy.is_doubtful).map(|busy| busy.call);
        if let Some(call) = held.uncertain.or(doubtful) {
            let explanation = format!(
                "Call {call} in this browser may or may not have had its effect. An operator has to settle it before anything \
                 else is done there; reading still works."
            );
            return Err(Verdict::Refuse(Refusal::new(RefusalReason::NeedsReconciliation, explanation)));
        }
    }
    held.is_taken = true;
    held.operation += 1;
    Ok(SessionGrant {
        id: held.id,
        operation: held.operation,
        refs: held.refs.clone(),
        is_new: held.state == SessionState::Opening,
    })
}

const GRANT_CHANGED: &str = "The grant this offer stands on has changed. Nothing was sent; call again to use the new one.";
const NOT_GRANTED: &str = "This tool is not granted any more. Nothing was sent; list the tools to see what is.";

async fn write(tx: &mut Tx, batch: &Batch, asks: &[Ask], verdicts: &[Verdict]) -> Result<(), StoreError> {
    for held in batch.sessions.values().filter(|held| held.is_provisional && !held.is_taken) {
        tx.exec(sql::UNMAKE_SESSION, &[held.id.into()]).await?;
    }
    for (ask, verdict) in asks.iter().zip(verdicts) {
        let Verdict::Grant(grant) = verdict else { continue };
        let session = grant.session.as_ref();
        if let Some(session) = session {
            tx.exec(sql::TAKE_SESSION, &[session.id.into(), session.operation.into(), ask.call.into()]).await?;
        }
        let vals = [
            ask.call.into(),
            ask.holder.into(),
            ask.offer.into(),
            session.map(|session| session.id).into(),
            session.map(|session| session.operation).into(),
            batch.now.after(ask.bound).into(),
            batch.now.into(),
        ];
        if tx.exec(sql::ADMIT, &vals).await? != 1 {
            return Err(StoreError::internal("a locked call changed"));
        }
        let run = batch.runs.get(&ask.run).ok_or(StoreError::internal("a call's run is gone"))?;
        let binding = &grant.effective.binding;
        evidence::insert(tx, &NewEvidence { call: ask.call, run: ask.run, conversation: run.conversation, binding }).await?;
    }
    Ok(())
}

pub(crate) mod sql {
    crate::db::statements! {
        SESSION = "SELECT id, binding, state, operation, refs, uncertain_call, busy_call FROM browser_sessions \
            WHERE run_id = $1 AND state IN ('opening', 'open')"
            => "SELECT id, binding, state, operation, refs, uncertain_call, busy_call FROM browser_sessions \
            WHERE run_id = $1 AND state IN ('opening', 'open') FOR NO KEY UPDATE";
        HOLDER = "SELECT c.execution, CAST(CASE WHEN c.execution IN ('queued', 'admitted', 'dispatched') AND c.must_end_by > $2 \
            AND EXISTS (SELECT 1 FROM instances i WHERE i.id = c.holder AND i.lease_until > $2) THEN 1 ELSE 0 END AS BIGINT) \
            FROM tool_calls c WHERE c.id = $1";
        RUN_IS_OPEN = "SELECT id FROM runs WHERE id = $1 AND state = 'open'";
        MAKE_SESSION = "INSERT INTO browser_sessions (id, run_id, agent_id, vendor, binding, state, operation, deadline_at, created_at, \
            close_attempts) SELECT $1, r.id, r.agent_id, $4, $5, 'opening', 0, r.deadline_at, $6, 0 FROM runs r \
            WHERE r.id = $2 AND r.agent_id = $3 AND r.state = 'open' \
            ON CONFLICT (run_id) WHERE state IN ('opening', 'open') DO NOTHING";
        UNMAKE_SESSION = "DELETE FROM browser_sessions WHERE id = $1 AND operation = 0";
        CALL = "SELECT run_id, agent_id, execution FROM tool_calls WHERE id = $1"
            => "SELECT run_id, agent_id, execution FROM tool_calls WHERE id = $1 FOR NO KEY UPDATE";
        RUN = "SELECT state, end_reason, deadline_at, conversation_id FROM runs WHERE id = $1"
            => "SELECT state, end_reason, deadline_at, conversation_id FROM runs WHERE id = $1 FOR NO KEY UPDATE";
        TAKE_SESSION = "UPDATE browser_sessions SET operation = $2, busy_call = $3 WHERE id = $1";
        ADMIT = "UPDATE tool_calls SET execution = 'admitted', holder = $2, offer_id = $3, session_id = $4, session_operation = $5, \
            must_end_by = $6, admitted_at = $7 WHERE id = $1 AND execution = 'queued'";
    }
}
