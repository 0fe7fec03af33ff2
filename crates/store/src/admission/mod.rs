//! Admission: the one transaction between a tool call and whatever it reaches.
//!
//! A call is admitted once, under the locks that settings writes take: its offer is compared with what is granted now, the run is
//! still open, the session is its own. Asking again for the same call changes nothing (L3).
//!
//! It works in phases over all asks at once, each phase sorted by its key: scopes; session rows; call rows; run rows and counters;
//! rate windows. Then it decides in memory, in order of arrival, and writes. A phase is one statement, whatever the number of asks:
//! keys and rows travel as JSON. A savepoint per call in order of arrival deadlocks across replicas (spine.md
//! 5), so there are none: a failed statement fails the batch, and the combiner admits its members one by one.
//!
//! Not here: argument checks, which come before, and refunds, of which there are none.
//!
//! Adding a limit: lock and read its row in a phase of its own after the run rows, decide in `decide`, write it in `write`.

mod meters;
mod sessions;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use formation_core::{
    AgentId, Binding, BrowserSessionId, CallId, Capability, Class, ConversationId, Execution, InstanceId, OfferId, RunId, Scope,
    Timestamp,
    refusal::{Refusal, RefusalReason},
    settings::{Effective, Unavailable},
};
use serde_json::{Value, json};


pub use self::meters::minute_of;
pub(crate) use self::{
    meters::{sql as meters_sql, sweep as sweep_meters},
    sessions::sql as sessions_sql,
};
use self::{meters::Meters, sessions::Held};
use crate::{
    browser_sessions::SessionGrant,
    db::{Hold, Tx, Val},
    error::StoreError,
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
        sessions: sessions::lock_sessions(tx, &terms, asks).await?,
        calls: lock_calls(tx, asks).await?,
        runs: lock_runs(tx, asks).await?,
        meters: Meters::lock(tx, &terms, asks).await?,
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
    let pairs: BTreeSet<_> = asks.iter().map(|ask| (ask.agent, ask.offered.capability)).collect();
    let mut terms = Terms::new();
    for (pair, resolved) in rules.resolve_all(tx, &pairs).await? {
        let secret = resolved.as_ref().ok().and_then(|effective| Some((effective.binding.owner, effective.secret?)));
        let key = match secret {
            Some((owner, secret)) => secrets::read(tx, owner, secrets::VENDOR_KEY, secret).await?,
            None => None,
        };
        terms.insert(pair, resolved.map(|effective| (effective, key)));
    }
    Ok(terms)
}

struct CallRow {
    run: RunId,
    agent: AgentId,
    execution: Execution,
}

/// Phase 3: the calls, by id.
async fn lock_calls(tx: &mut Tx, asks: &[Ask]) -> Result<BTreeMap<CallId, CallRow>, StoreError> {
    let ids: BTreeSet<_> = asks.iter().map(|ask| ask.call).collect();
    let rows = tx.rows(sql::CALLS, &[json_list(&ids)]).await?;
    rows.iter().map(|row| Ok((row.at(3)?, CallRow { run: row.at(0)?, agent: row.at(1)?, execution: row.at(2)? }))).collect()
}

struct RunRow {
    state: RunState,
    end_reason: Option<EndReason>,
    deadline_at: Timestamp,
    conversation: ConversationId,
}

/// Phase 4: the runs, by id.
async fn lock_runs(tx: &mut Tx, asks: &[Ask]) -> Result<BTreeMap<RunId, RunRow>, StoreError> {
    let ids: BTreeSet<_> = asks.iter().map(|ask| ask.run).collect();
    let rows = tx.rows(sql::RUNS, &[json_list(&ids)]).await?;
    let read = |row: &crate::db::Row| {
        let run = RunRow { state: row.at(0)?, end_reason: row.at(1)?, deadline_at: row.at(2)?, conversation: row.at(3)? };
        Ok((row.at(4)?, run))
    };
    rows.iter().map(read).collect()
}

/// Everything a decision hangs on, locked.
struct Batch {
    now: Timestamp,
    terms: Terms,
    sessions: BTreeMap<RunId, Held>,
    calls: BTreeMap<CallId, CallRow>,
    runs: BTreeMap<RunId, RunRow>,
    meters: Meters,
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
            Some(held) => match held.take(ask) {
                Ok(grant) => Some(grant),
                Err(verdict) => return verdict,
            },
        };
        if let Err(refusal) = self.meters.take(ask, &effective) {
            return Verdict::Refuse(refusal);
        }
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

const GRANT_CHANGED: &str = "The grant this offer stands on has changed. Nothing was sent; call again to use the new one.";
const NOT_GRANTED: &str = "This tool is not granted any more. Nothing was sent; list the tools to see what is.";

async fn write(tx: &mut Tx, batch: &Batch, asks: &[Ask], verdicts: &[Verdict]) -> Result<(), StoreError> {
    for held in batch.sessions.values().filter(|held| held.is_spare()) {
        tx.exec(sql::UNMAKE_SESSION, &[held.id.into()]).await?;
    }
    let granted = asks.iter().zip(verdicts).filter_map(|(ask, verdict)| match verdict {
        Verdict::Grant(grant) => Some((ask, grant)),
        Verdict::Repeat | Verdict::Busy | Verdict::Refuse(_) => None,
    });
    let (mut rows, mut with_session, mut metered) = (Vec::new(), false, false);
    for (ask, grant) in granted {
        let run = batch.runs.get(&ask.run).ok_or(StoreError::internal("a call's run is gone"))?;
        with_session |= grant.session.is_some();
        metered |= ask.offered.capability.is_metered();
        rows.push(row(batch, ask, grant, run.conversation));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let count = rows.len();
    let rows = Value::Array(rows).to_string();
    let vals: [Val<'_>; 2] = [(&rows).into(), batch.now.into()];
    if with_session {
        tx.exec(sql::TAKE_SESSIONS, &[(&rows).into()]).await?;
    }
    if tx.exec(sql::ADMIT, &vals).await? != count as u64 {
        return Err(StoreError::internal("a locked call changed"));
    }
    if metered {
        tx.exec(sql::RESERVE, &[(&rows).into(), batch.now.into(), batch.meters.minute().into()]).await?;
    }
    tx.exec(sql::EVIDENCE, &vals).await?;
    batch.meters.write(tx).await
}

/// One admission, for all the tables it is written to.
fn row(batch: &Batch, ask: &Ask, grant: &Grant, conversation: ConversationId) -> Value {
    let binding = &grant.effective.binding;
    let session = grant.session.as_ref();
    let meter = ask.offered.capability.is_metered().then_some(grant.effective.meter_scope);
    json!({
        "call": ask.call, "run": ask.run, "agent": ask.agent, "holder": ask.holder, "offer": ask.offer,
        "ends": batch.now.after(ask.bound).micros(),
        "session": session.map(|session| session.id), "operation": session.map(|session| session.operation),
        "conversation": conversation, "capability": binding.capability, "vendor": binding.vendor,
        "owner": binding.owner.owner_word(), "account": binding.account.to_string(), "meter": meter,
    })
}

/// Keys as one value: a JSON array of texts.
fn json_list(keys: impl IntoIterator<Item = impl std::fmt::Display>) -> Val<'static> {
    Val::Owned(Value::Array(keys.into_iter().map(|key| Value::String(key.to_string())).collect()).to_string())
}

/// Rows as one value: a JSON array of objects.
fn json_rows(rows: impl IntoIterator<Item = Value>) -> Val<'static> {
    Val::Owned(Value::Array(rows.into_iter().collect()).to_string())
}

pub(crate) mod sql {
    crate::db::statements! {
        UNMAKE_SESSION = "DELETE FROM browser_sessions WHERE id = $1 AND operation = 0";
        CALLS = "SELECT run_id, agent_id, execution, id FROM tool_calls WHERE id IN (SELECT value FROM json_each($1))"
            => "SELECT run_id, agent_id, execution, id FROM tool_calls \
            WHERE id IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb))) ORDER BY id FOR NO KEY UPDATE";
        RUNS = "SELECT state, end_reason, deadline_at, conversation_id, id FROM runs WHERE id IN (SELECT value FROM json_each($1))"
            => "SELECT state, end_reason, deadline_at, conversation_id, id FROM runs \
            WHERE id IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb))) ORDER BY id FOR NO KEY UPDATE";
        TAKE_SESSIONS = "UPDATE browser_sessions SET operation = j.value ->> 'operation', busy_call = j.value ->> 'call' \
            FROM json_each($1) AS j WHERE browser_sessions.id = j.value ->> 'session'"
            => "UPDATE browser_sessions SET operation = j.operation, busy_call = j.call \
            FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS j (session text, operation bigint, call text) \
            WHERE browser_sessions.id = j.session";
        ADMIT = "UPDATE tool_calls SET execution = 'admitted', holder = j.value ->> 'holder', offer_id = j.value ->> 'offer', \
            session_id = j.value ->> 'session', session_operation = j.value ->> 'operation', must_end_by = j.value ->> 'ends', \
            admitted_at = $2 FROM json_each($1) AS j WHERE tool_calls.id = j.value ->> 'call' AND execution = 'queued'"
            => "UPDATE tool_calls SET execution = 'admitted', holder = j.holder, offer_id = j.offer, session_id = j.session, \
            session_operation = j.operation, must_end_by = j.ends, admitted_at = $2 FROM jsonb_to_recordset(CAST($1 AS jsonb)) \
            AS j (call text, holder text, offer text, session text, operation bigint, ends bigint) \
            WHERE tool_calls.id = j.call AND execution = 'queued'";
        RESERVE = "INSERT INTO reservations (call_id, run_id, capability, meter_scope, minute, admitted_at) \
            SELECT value ->> 'call', value ->> 'run', value ->> 'capability', value ->> 'meter', $3, $2 FROM json_each($1) \
            WHERE value ->> 'meter' IS NOT NULL"
            => "INSERT INTO reservations (call_id, run_id, capability, meter_scope, minute, admitted_at) \
            SELECT j.call, j.run, j.capability, j.meter, $3, $2 FROM jsonb_to_recordset(CAST($1 AS jsonb)) \
            AS j (call text, run text, capability text, meter text) WHERE j.meter IS NOT NULL";
        EVIDENCE = "INSERT INTO evidence \
            (call_id, run_id, agent_id, conversation_id, capability, vendor, credential_owner, account, admitted_at) \
            SELECT value ->> 'call', value ->> 'run', value ->> 'agent', value ->> 'conversation', value ->> 'capability', \
            value ->> 'vendor', value ->> 'owner', value ->> 'account', $2 FROM json_each($1)"
            => "INSERT INTO evidence \
            (call_id, run_id, agent_id, conversation_id, capability, vendor, credential_owner, account, admitted_at) \
            SELECT j.call, j.run, j.agent, j.conversation, j.capability, j.vendor, j.owner, j.account, $2 \
            FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS j (call text, run text, agent text, conversation text, \
            capability text, vendor text, owner text, account text)";
    }
}
