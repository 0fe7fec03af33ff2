//! Runs: opened by a harness, or implicitly behind an MCP client's door (contract.md 3).
//!
//! An implicit run is found by its door: the token that came, and the MCP session, the client's own word or nothing. Behind one
//! door runs follow one another; the end of one is told once before its successor opens, so no browser is replaced invisibly.
//!
//! A run's end closes its browser in the same transaction. Counting calls is the ledger's (`ledger::queue`).

use std::{collections::BTreeSet, time::Duration};

use formation_core::{AgentId, ConversationId, McpSessionId, RunId, Timestamp, TokenId, people, words};

use crate::{
    agents::{self, RunDefaults},
    browser_sessions::{self, SessionEnd},
    conversations,
    db::{Db, News, Row, Tx, stored_words},
    error::StoreError,
    install,
    tokens::{self, Minted},
};

words! {
    /// How a run came to be.
    pub enum Origin {
        /// `POST /v1/runs`.
        Api = "api",
        /// Behind a legacy MCP session.
        Session = "session",
        /// Behind the header `Formation-Run`.
        Named = "named",
        /// Behind the token alone.
        Current = "current",
    }
}

words! {
    /// Whether calls can still be made.
    pub enum RunState {
        /// They can.
        Open = "open",
        /// They get `run_over`.
        Over = "over",
    }
}

words! {
    /// Why a run is over.
    pub enum EndReason {
        /// Its harness finished it.
        Finished = "finished",
        /// Its time was up.
        Deadline = "deadline",
        /// No call came for a while.
        Idle = "idle",
        /// An operator ended it.
        Cancelled = "cancelled",
        /// Its MCP session was ended by the client.
        SessionEnded = "session_ended",
        /// Its browser was lost, and is never replaced within a run (B19).
        SessionLost = "session_lost",
    }
}
stored_words!(Origin, RunState, EndReason);

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Whose it is.
    pub agent: AgentId,
    /// The conversation it belongs to.
    pub conversation: ConversationId,
    /// How it came to be.
    pub origin: Origin,
    /// Whether calls can still be made.
    pub state: RunState,
    /// Why not.
    pub end_reason: Option<EndReason>,
    /// How many calls it may record.
    pub max_calls: i64,
    /// How many it has.
    pub calls_used: i64,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub deadline_at: Timestamp,
    /// It ends after this long without a call; implicit runs only.
    pub idle_after: Option<Duration>,
    /// When the last call came, or when it was opened.
    pub last_call_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl Run {
    /// Why it would be over at this moment, whatever its row says yet.
    pub fn over_at(&self, now: Timestamp) -> Option<EndReason> {
        if self.state == RunState::Over {
            return Some(self.end_reason.unwrap_or(EndReason::Finished));
        }
        if self.deadline_at <= now {
            return Some(EndReason::Deadline);
        }
        self.idle_after.filter(|idle| self.last_call_at.after(*idle) <= now).map(|_| EndReason::Idle)
    }
}

/// A run to be opened by a harness.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Whose.
    pub agent: AgentId,
    /// With which agent token.
    pub token: TokenId,
    /// The caller's word for the conversation; none: one of its own.
    pub conversation: Option<String>,
    /// At most six hours, checked by the caller.
    pub deadline: Duration,
    /// 1–1,000,000, checked by the caller.
    pub max_calls: i64,
}

/// An opened run and the token that speaks for it alone.
#[derive(Debug)]
pub struct OpenedRun {
    /// The run.
    pub run: Run,
    /// Its token, shown once.
    pub token: Minted,
}

/// Opens a run for a harness. `None`: its token isn't good any more.
pub async fn open(tx: &mut Tx, new: &NewRun) -> Result<Option<OpenedRun>, StoreError> {
    if !tokens::hold(tx, new.token).await? {
        return Ok(None);
    }
    let conversation = conversations::named_or_new(tx, new.agent, new.conversation.as_deref()).await?;
    let now = tx.now().await?;
    let run = Run {
        id: RunId::mint(now, tx.entropy()),
        agent: new.agent,
        conversation,
        origin: Origin::Api,
        state: RunState::Open,
        end_reason: None,
        max_calls: new.max_calls,
        calls_used: 0,
        created_at: now,
        deadline_at: now.after(new.deadline),
        idle_after: None,
        last_call_at: now,
        ended_at: None,
    };
    insert(tx, &run, new.token, "").await?;
    let token = tokens::mint_run(tx, new.agent, run.id).await?;
    Ok(Some(OpenedRun { run, token }))
}

/// `false`: another first call has just opened a run behind the same door.
async fn insert(tx: &mut Tx, run: &Run, opened_by: TokenId, key: &str) -> Result<bool, StoreError> {
    let vals = [
        run.id.into(),
        run.agent.into(),
        run.conversation.into(),
        opened_by.into(),
        run.origin.into(),
        key.into(),
        run.max_calls.into(),
        run.created_at.into(),
        run.deadline_at.into(),
        run.idle_after.map(micros).into(),
    ];
    Ok(tx.exec(sql::INSERT, &vals).await? == 1)
}

/// Under what an implicit run is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// A legacy MCP session.
    Session(McpSessionId),
    /// The client's own word, ≤ 64 of `A-Za-z0-9._-`.
    Named(String),
    /// The token alone.
    Current,
}

impl Door {
    const fn origin(&self) -> Origin {
        match self {
            Self::Session(_) => Origin::Session,
            Self::Named(_) => Origin::Named,
            Self::Current => Origin::Current,
        }
    }

    fn key(&self) -> String {
        match self {
            Self::Session(id) => id.to_string(),
            Self::Named(word) => word.clone(),
            Self::Current => String::new(),
        }
    }
}

/// What the caller wants of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To list tools: an end is not told, and a successor not opened before it was.
    List,
    /// To call one.
    Call,
}

/// Somebody at a door.
#[derive(Debug, Clone)]
pub struct Knock {
    /// Whose token.
    pub agent: AgentId,
    /// Which token.
    pub token: TokenId,
    /// Which door.
    pub door: Door,
    /// The caller's word for the conversation of a run that is opened now.
    pub conversation: Option<String>,
    /// What for.
    pub purpose: Purpose,
    /// After how long without a call a run opened now ends.
    pub idle_after: Duration,
}

/// What is behind a door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    /// A run that takes calls.
    Open {
        /// The run.
        run: Run,
        /// It follows an earlier one and no call has been made in it: the first observation says so.
        announce: bool,
    },
    /// The newest run has ended, and this caller is the one to hear it.
    Over {
        /// The run.
        run: Run,
        /// Why.
        reason: EndReason,
    },
    /// The caller's token was taken back since it was presented: nothing is opened for it.
    Revoked,
}

/// The open run behind a door, without a transaction: what nearly every call finds. `None`: there is something to write.
pub async fn open_already(db: &Db, knock: &Knock) -> Result<Option<Behind>, StoreError> {
    let key = knock.door.key();
    let newest = db.rows(sql::NEWEST_BEHIND, &[knock.token.into(), knock.door.origin().into(), (&key).into()]).await?;
    let Some(row) = newest.first() else { return Ok(None) };
    let run = run(row)?;
    Ok(run.over_at(db.now().await?).is_none().then(|| Behind::open(run, newest.len())))
}

impl Behind {
    /// `count`: it and the one before it. The first call of a successor says so.
    fn open(run: Run, count: usize) -> Self {
        let announce = count > 1 && run.calls_used == 0;
        Self::Open { run, announce }
    }
}

/// The run behind a door: the open one, or the end of the last one if nobody was told yet, or a new one.
pub async fn behind(tx: &mut Tx, knock: &Knock) -> Result<Behind, StoreError> {
    // Each round meets one more change by others; two rounds are the longest honest sequence.
    for _ in 0..4 {
        if let Some(found) = try_door(tx, knock).await? {
            return Ok(found);
        }
    }
    Err(StoreError::internal("the run behind a door kept changing"))
}

async fn try_door(tx: &mut Tx, knock: &Knock) -> Result<Option<Behind>, StoreError> {
    let key = knock.door.key();
    let vals = [knock.token.into(), knock.door.origin().into(), (&key).into()];
    let newest = tx.rows(sql::NEWEST_BEHIND, &vals).await?;
    let now = tx.now().await?;
    if let Some(row) = newest.first() {
        let run = run(row)?;
        let told: Option<Timestamp> = row.at(13)?;
        match run.over_at(now) {
            None => return Ok(Some(Behind::open(run, newest.len()))),
            Some(reason) => {
                if run.state == RunState::Open {
                    end(tx, run.id, reason).await?;
                    return Ok(None);
                }
                let is_listener = match knock.purpose {
                    Purpose::List => told.is_none(),
                    // The statement decides which of two simultaneous calls hears it; the other opens the successor.
                    Purpose::Call => told.is_none() && tx.exec(sql::TELL, &[run.id.into(), now.into()]).await? == 1,
                };
                if is_listener {
                    return Ok(Some(Behind::Over { run, reason }));
                }
            }
        }
    }
    open_behind_door(tx, knock, &key, !newest.is_empty()).await
}

async fn open_behind_door(tx: &mut Tx, knock: &Knock, key: &str, follows: bool) -> Result<Option<Behind>, StoreError> {
    if !tokens::hold(tx, knock.token).await? {
        return Ok(Some(Behind::Revoked));
    }
    let now = tx.now().await?;
    let defaults = run_defaults(tx, knock.agent).await?;
    let conversation = conversations::named_or_new(tx, knock.agent, knock.conversation.as_deref()).await?;
    let run = Run {
        id: RunId::mint(now, tx.entropy()),
        agent: knock.agent,
        conversation,
        origin: knock.door.origin(),
        state: RunState::Open,
        end_reason: None,
        max_calls: defaults.max_tool_calls,
        calls_used: 0,
        created_at: now,
        deadline_at: now.after(Duration::from_secs(defaults.deadline_seconds)),
        idle_after: Some(knock.idle_after),
        last_call_at: now,
        ended_at: None,
    };
    let opened = insert(tx, &run, knock.token, key).await?;
    Ok(opened.then_some(Behind::Open { run, announce: follows }))
}

/// The agent's own bounds, or else the install's.
async fn run_defaults(tx: &mut Tx, agent: AgentId) -> Result<RunDefaults, StoreError> {
    let row = tx.row(sql::AGENT_DEFAULTS, &[agent.into()]).await?.ok_or(StoreError::internal("a caller's agent is gone"))?;
    match (row.at::<Option<String>>(0)?, row.at::<Option<String>>(1)?) {
        (None, Some(install)) => Ok(install::config(&install)?.run_defaults),
        (own, _) => agents::run_defaults(own.as_deref()),
    }
}

/// The open run behind a door, whatever its times say.
pub(crate) async fn open_behind(tx: &mut Tx, token: TokenId, door: &Door) -> Result<Option<RunId>, StoreError> {
    let key = door.key();
    let row = tx.row(sql::OPEN_BEHIND, &[token.into(), door.origin().into(), (&key).into()]).await?;
    row.map(|row| row.at(0)).transpose()
}

/// Ends a run: its browser is to be closed, its calls get `run_over`. `false`: it was over.
pub async fn end(tx: &mut Tx, run: RunId, reason: EndReason) -> Result<bool, StoreError> {
    browser_sessions::close_of_run(tx, run, SessionEnd::RunOver).await?;
    let now = tx.now().await?;
    tx.tell(News::Run(run));
    Ok(tx.exec(sql::END, &[run.into(), reason.into(), now.into(), None::<Timestamp>.into()]).await? == 1)
}

/// The same, by a call that tells it itself: no extra `run_over` follows.
pub(crate) async fn end_told(tx: &mut Tx, run: RunId, reason: EndReason) -> Result<bool, StoreError> {
    browser_sessions::close_of_run(tx, run, SessionEnd::RunOver).await?;
    let now = tx.now().await?;
    Ok(tx.exec(sql::END, &[run.into(), reason.into(), now.into(), now.into()]).await? == 1)
}

/// Ends a run of this agent. `None`: it has no such run; `Some(false)`: it was over.
pub async fn end_of_agent(tx: &mut Tx, agent: AgentId, run: RunId, reason: EndReason) -> Result<Option<bool>, StoreError> {
    if tx.row(sql::IS_OF_AGENT, &[run.into(), agent.into()]).await?.is_none() {
        return Ok(None);
    }
    end(tx, run, reason).await.map(Some)
}

/// Which of these runs an operator ended. Their calls stop where they can.
pub async fn cancelled(db: &Db, runs: &BTreeSet<RunId>) -> Result<BTreeSet<RunId>, StoreError> {
    let ids = serde_json::to_string(runs).map_err(|_| StoreError::internal("an id is no JSON"))?;
    db.rows(sql::CANCELLED, &[(&ids).into()]).await?.iter().map(|row| row.at(0)).collect()
}

/// A run of this agent; another agent's is not found.
pub async fn of_agent(db: &Db, agent: AgentId, run_id: RunId) -> Result<Option<Run>, StoreError> {
    db.row(sql::OF_AGENT, &[run_id.into(), agent.into()]).await?.map(|row| run(&row)).transpose()
}

/// The agent of a run that is within an operator's reach; a deleted agent's runs are an owner's to see.
pub async fn agent_within_reach(db: &Db, reach: people::Reach, run: RunId) -> Result<Option<AgentId>, StoreError> {
    db.row(sql::AGENT_WITHIN_REACH, &[run.into(), reach.bound().into()]).await?.map(|row| row.at(0)).transpose()
}

/// Ends up to 100 runs past their deadline or idle, each in its own transaction; how many.
pub(crate) async fn sweep(db: &Db) -> Result<u64, StoreError> {
    let now = db.now().await?;
    let mut ended = 0;
    for row in db.rows(sql::DUE, &[now.into()]).await? {
        let run = run(&row)?;
        let Some(reason) = run.over_at(now) else { continue };
        ended += u64::from(db.write(move |tx| Box::pin(end_if_due(tx, run.id, reason))).await?);
    }
    Ok(ended)
}

/// A call may have come since the list was read.
fn end_if_due(tx: &mut Tx, run_id: RunId, reason: EndReason) -> futures::future::BoxFuture<'_, Result<bool, StoreError>> {
    Box::pin(async move {
        let now = tx.now().await?;
        let due = tx.row(sql::STILL_DUE, &[run_id.into(), now.into()]).await?.is_some();
        if due { end(tx, run_id, reason).await } else { Ok(false) }
    })
}

pub(crate) fn run(row: &Row) -> Result<Run, StoreError> {
    Ok(Run {
        id: row.at(0)?,
        agent: row.at(1)?,
        conversation: row.at(2)?,
        origin: row.at(3)?,
        state: row.at(4)?,
        end_reason: row.at(5)?,
        max_calls: row.at(6)?,
        calls_used: row.at(7)?,
        created_at: row.at(8)?,
        deadline_at: row.at(9)?,
        idle_after: row.at::<Option<i64>>(10)?.map(|span| Duration::from_micros(u64::try_from(span).unwrap_or(0))),
        last_call_at: row.at(11)?,
        ended_at: row.at(12)?,
    })
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) mod sql {
    macro_rules! columns {
        () => {
            "r.id, r.agent_id, r.conversation_id, r.origin, r.state, r.end_reason, r.max_calls, r.calls_used, r.created_at, \
             r.deadline_at, r.idle_after, r.last_call_at, r.ended_at"
        };
    }
    pub(crate) use columns;

    crate::db::statements! {
        AGENT_WITHIN_REACH = "SELECT agent_id FROM runs WHERE id = $1 \
            AND (CAST($2 AS TEXT) IS NULL OR agent_id IN (SELECT agent_id FROM agent_access WHERE operator_id = $2))";
        INSERT = "INSERT INTO runs (id, agent_id, conversation_id, opened_by, origin, client_key, state, max_calls, calls_used, \
            created_at, deadline_at, idle_after, last_call_at) VALUES ($1, $2, $3, $4, $5, $6, 'open', $7, 0, $8, $9, $10, $8) \
            ON CONFLICT (opened_by, origin, client_key) WHERE state = 'open' AND origin <> 'api' DO NOTHING";
        // The open one first: `open` sorts before `over`. Ids of one millisecond are in no order.
        NEWEST_BEHIND = concat!("SELECT ", columns!(), ", r.told_at FROM runs r \
            WHERE r.opened_by = $1 AND r.origin = $2 AND r.client_key = $3 ORDER BY r.state, r.created_at DESC, r.id DESC LIMIT 2");
        OPEN_BEHIND = "SELECT id FROM runs WHERE opened_by = $1 AND origin = $2 AND client_key = $3 AND state = 'open'";
        AGENT_DEFAULTS = "SELECT run_defaults, (SELECT config FROM install_settings WHERE id = 1) FROM agents WHERE id = $1";
        TELL = "UPDATE runs SET told_at = $2 WHERE id = $1 AND state = 'over' AND told_at IS NULL";
        END = "UPDATE runs SET state = 'over', end_reason = $2, ended_at = $3, told_at = $4 WHERE id = $1 AND state = 'open'";
        IS_OF_AGENT = "SELECT id FROM runs WHERE id = $1 AND agent_id = $2";
        CANCELLED = "SELECT id FROM runs WHERE id IN (SELECT value FROM json_each($1)) AND end_reason = 'cancelled'"
            => "SELECT id FROM runs WHERE id IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb))) AND end_reason = 'cancelled'";
        OF_AGENT = concat!("SELECT ", columns!(), " FROM runs r WHERE r.id = $1 AND r.agent_id = $2");
        DUE = concat!("SELECT ", columns!(), " FROM runs r WHERE r.state = 'open' AND (r.deadline_at <= $1 \
            OR (r.idle_after IS NOT NULL AND r.last_call_at + r.idle_after <= $1)) ORDER BY r.deadline_at LIMIT 100");
        STILL_DUE = "SELECT id FROM runs WHERE id = $1 AND state = 'open' AND (deadline_at <= $2 \
            OR (idle_after IS NOT NULL AND last_call_at + idle_after <= $2))";
    }
}
