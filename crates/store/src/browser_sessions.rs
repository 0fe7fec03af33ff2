//! Browser sessions: one a run over all replicas, fenced by `operation`.
//!
//! `operation` rises with each acquisition, and every write of a holder names the one it got: a holder that lost its lease changes
//! nothing. The lease itself isn't stored here; it is the busy call's holder and bound. Acquiring is admission's, freeing is
//! settle's; here is the life between and after.

use std::time::Duration;

use formation_core::{AgentId, Binding, BrowserSessionId, CallId, InstanceId, RunId, Timestamp, VendorId, view::RefNonce, words};

use crate::{
    db::{Db, Row, Tx, stored_words},
    error::StoreError,
    runs::{self, EndReason},
    settings::Rules,
};

words! {
    /// How far a session's life has come.
    pub enum SessionState {
        /// On record; nobody has a browser yet.
        Opening = "opening",
        /// It answers.
        Open = "open",
        /// Its remote side is to be closed.
        Closing = "closing",
        /// Nothing is left of it.
        Closed = "closed",
    }
}

words! {
    /// Why a session ended.
    pub enum SessionEnd {
        /// Its run is over.
        RunOver = "run_over",
        /// Its browser went away.
        Lost = "lost",
        /// What it was granted on changed.
        Revoked = "revoked",
        /// It never answered.
        NeverOpened = "never_opened",
        /// The process it lived in is gone.
        HomeGone = "home_gone",
    }
}
stored_words!(SessionState, SessionEnd);

/// The longest wait between two attempts to close a remote browser.
const CLOSE_BACKOFF_CAP: Duration = Duration::from_mins(5);

/// One acquisition of a session, from admission to settle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionGrant {
    /// The session.
    pub id: BrowserSessionId,
    /// The fence of this acquisition.
    pub operation: i64,
    /// The nonce whose refs are good.
    pub refs: Option<RefNonce>,
    /// Nobody has opened its browser yet.
    pub is_new: bool,
}

/// A session's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: BrowserSessionId,
    /// Of which run.
    pub run: RunId,
    /// Of which agent.
    pub agent: AgentId,
    /// Who serves it.
    pub vendor: VendorId,
    /// What it was granted on.
    pub binding: Binding,
    /// How far its life has come.
    pub state: SessionState,
    /// Why it ended.
    pub end_reason: Option<SessionEnd>,
    /// What the vendor needs to find it again, JSON of the runtime's.
    pub remote: Option<String>,
    /// The process it lives in, for browsers that live in one.
    pub home: Option<InstanceId>,
    /// The page that is driven.
    pub page: Option<String>,
    /// The newest fence.
    pub operation: i64,
    /// The effect that an operator has to settle.
    pub uncertain_call: Option<CallId>,
    /// When its run ends.
    pub deadline_at: Timestamp,
    /// How often closing it was tried.
    pub close_attempts: i64,
}

/// What a freshly opened browser is found by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// What the vendor needs to find it again; no secret.
    pub remote: Option<String>,
    /// The process it lives in.
    pub home: Option<InstanceId>,
    /// The page that is driven.
    pub page: Option<String>,
}

/// How many browsers this process drives.
pub async fn open_at(db: &Db, home: InstanceId) -> Result<i64, StoreError> {
    db.row(sql::OPEN_AT, &[home.into()]).await?.ok_or(StoreError::internal("a count is missing"))?.at(0)
}

/// The run's live session.
pub async fn live(db: &Db, run: RunId) -> Result<Option<Session>, StoreError> {
    db.row(sql::LIVE, &[run.into()]).await?.map(|row| session(&row)).transpose()
}

/// Says that the browser of this acquisition answers. `false`: the acquisition is over or the session is to close; the caller
/// closes what it opened.
pub async fn opened(db: &Db, grant: &SessionGrant, at: Whereabouts) -> Result<bool, StoreError> {
    let (id, operation) = (grant.id, grant.operation);
    db.write(move |tx| {
        Box::pin(async move {
            let vals = [id.into(), operation.into(), at.remote.as_deref().into(), at.home.into(), at.page.as_deref().into()];
            Ok(tx.exec(sql::OPENED, &vals).await? == 1)
        })
    })
    .await
}

/// Remembers which page is driven, after a page was adopted.
pub async fn page_is(db: &Db, grant: &SessionGrant, page: String) -> Result<bool, StoreError> {
    let (id, operation) = (grant.id, grant.operation);
    db.write(move |tx| {
        Box::pin(async move { Ok(tx.exec(sql::PAGE, &[id.into(), operation.into(), (&page).into()]).await? == 1) })
    })
    .await
}

/// Says that the browser of this acquisition could not be opened; the next call of the run may try with a new session.
pub async fn never_opened(db: &Db, grant: &SessionGrant) -> Result<bool, StoreError> {
    let (id, operation) = (grant.id, grant.operation);
    db.write(move |tx| Box::pin(async move { end_unopened(tx, id, operation).await })).await
}

pub(crate) async fn end_unopened(tx: &mut Tx, id: BrowserSessionId, operation: i64) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    let vals = [id.into(), operation.into(), SessionEnd::NeverOpened.into(), now.into()];
    Ok(tx.exec(sql::END_UNOPENED, &vals).await? == 1)
}

/// Says that the browser went away, and ends the run with it: within a run it is never replaced (B19). `told`: the caller answers
/// a call with `session_lost`, so no extra `run_over` follows. `false`: the session had ended already.
pub async fn lost(db: &Db, id: BrowserSessionId, told: bool) -> Result<bool, StoreError> {
    db.write(move |tx| {
        Box::pin(async move {
            let Some(run) = end_session(tx, id, SessionEnd::Lost).await? else { return Ok(false) };
            if told {
                runs::end_told(tx, run, EndReason::SessionLost).await?;
            } else {
                runs::end(tx, run, EndReason::SessionLost).await?;
            }
            Ok(true)
        })
    })
    .await
}

/// Marks a live session to be closed; its run.
pub(crate) async fn end_session(tx: &mut Tx, id: BrowserSessionId, why: SessionEnd) -> Result<Option<RunId>, StoreError> {
    let now = tx.now().await?;
    let row = tx.row(sql::TO_CLOSING, &[id.into(), why.into(), now.into()]).await?;
    row.map(|row| row.at(0)).transpose()
}

/// Marks the run's live session to be closed.
pub(crate) async fn close_of_run(tx: &mut Tx, run: RunId, why: SessionEnd) -> Result<(), StoreError> {
    let now = tx.now().await?;
    tx.exec(sql::CLOSE_OF_RUN, &[run.into(), why.into(), now.into()]).await.map(|_| ())
}

/// Sessions whose remote side is to be closed now, by this process, at most 100: none whose operation is under way.
pub async fn to_close(db: &Db, me: InstanceId) -> Result<Vec<Session>, StoreError> {
    let now = db.now().await?;
    db.rows(sql::TO_CLOSE, &[now.into(), me.into()]).await?.iter().map(session).collect()
}

/// Nothing is left of it.
pub async fn closed(db: &Db, id: BrowserSessionId) -> Result<bool, StoreError> {
    db.write(move |tx| {
        Box::pin(async move {
            let now = tx.now().await?;
            Ok(tx.exec(sql::CLOSED, &[id.into(), now.into()]).await? == 1)
        })
    })
    .await
}

/// Closing failed: tried again after 1, 2, 4, … seconds, at most five minutes apart, for ever.
pub async fn close_failed(db: &Db, id: BrowserSessionId, attempts_so_far: i64) -> Result<(), StoreError> {
    let doublings = u32::try_from(attempts_so_far.clamp(0, 16)).unwrap_or(16);
    let wait = Duration::from_secs(1 << doublings).min(CLOSE_BACKOFF_CAP);
    db.write(move |tx| {
        Box::pin(async move {
            let now = tx.now().await?;
            tx.exec(sql::CLOSE_FAILED, &[id.into(), now.after(wait).into()]).await.map(|_| ())
        })
    })
    .await
}

/// Closes live sessions whose grant is another one now (W12); how many.
pub async fn close_outdated(db: &Db, rules: &Rules) -> Result<u64, StoreError> {
    let mut closed = 0;
    for row in db.rows(sql::ALL_LIVE, &[]).await? {
        let session = session(&row)?;
        let rules = rules.clone();
        closed += u64::from(
            db.write(move |tx| {
                Box::pin(async move {
                    let binding = &session.binding;
                    let now = rules.resolve_locked(tx, binding.agent, binding.capability).await?;
                    if now.is_ok_and(|effective| effective.binding == *binding) {
                        return Ok::<_, StoreError>(false);
                    }
                    Ok(end_session(tx, session.id, SessionEnd::Revoked).await?.is_some())
                })
            })
            .await?,
        );
    }
    Ok(closed)
}

/// Ends the sessions that lived in a process that is gone, and their runs; how many.
pub(crate) async fn sweep_homeless(db: &Db) -> Result<u64, StoreError> {
    let now = db.now().await?;
    let mut ended = 0;
    for row in db.rows(sql::HOMELESS, &[now.into()]).await? {
        let (id, run): (BrowserSessionId, RunId) = (row.at(0)?, row.at(1)?);
        db.write(move |tx| {
            Box::pin(async move {
                let now = tx.now().await?;
                let vals = [id.into(), SessionEnd::HomeGone.into(), now.into()];
                // A session that was to close anyway takes no run with it.
                let ended = tx.row(sql::GONE, &vals).await?.map(|row| row.at::<SessionEnd>(0)).transpose()?;
                if ended == Some(SessionEnd::HomeGone) {
                    runs::end(tx, run, EndReason::SessionLost).await?;
                }
                Ok::<_, StoreError>(())
            })
        })
        .await?;
        ended += 1;
    }
    Ok(ended)
}

fn session(row: &Row) -> Result<Session, StoreError> {
    let binding =
        serde_json::from_str(&row.at::<String>(4)?).map_err(|_| StoreError::internal("a stored binding cannot be read"))?;
    Ok(Session {
        id: row.at(0)?,
        run: row.at(1)?,
        agent: row.at(2)?,
        vendor: row.at(3)?,
        binding,
        state: row.at(5)?,
        end_reason: row.at(6)?,
        remote: row.at(7)?,
        home: row.at(8)?,
        page: row.at(9)?,
        operation: row.at(10)?,
        uncertain_call: row.at(11)?,
        deadline_at: row.at(12)?,
        close_attempts: row.at(13)?,
    })
}

pub(crate) mod sql {
    macro_rules! session {
        ($rest:literal) => {
            concat!(
                "SELECT s.id, s.run_id, s.agent_id, s.vendor, s.binding, s.state, s.end_reason, s.remote, s.home, s.page, s.operation, \
                 s.uncertain_call, s.deadline_at, s.close_attempts FROM browser_sessions s WHERE ",
                $rest
            )
        };
    }

    crate::db::statements! {
        LIVE = session!("s.run_id = $1 AND s.state IN ('opening', 'open')");
        OPEN_AT = "SELECT count(*) FROM browser_sessions WHERE state IN ('opening', 'open') AND home = $1";
        ALL_LIVE = session!("s.state IN ('opening', 'open') ORDER BY s.id LIMIT 1000");
        OPENED = "UPDATE browser_sessions SET state = 'open', remote = $3, home = $4, page = $5 \
            WHERE id = $1 AND operation = $2 AND state = 'opening'";
        PAGE = "UPDATE browser_sessions SET page = $3 WHERE id = $1 AND operation = $2 AND state = 'open'";
        END_UNOPENED = "UPDATE browser_sessions SET state = 'closed', end_reason = $3, closed_at = $4 \
            WHERE id = $1 AND operation = $2 AND state = 'opening'";
        TO_CLOSING = "UPDATE browser_sessions SET state = 'closing', end_reason = $2, next_close_at = $3 \
            WHERE id = $1 AND state IN ('opening', 'open') RETURNING run_id";
        CLOSE_OF_RUN = "UPDATE browser_sessions SET state = 'closing', end_reason = $2, next_close_at = $3 \
            WHERE run_id = $1 AND state IN ('opening', 'open')";
        TO_CLOSE = session!("s.state = 'closing' AND s.next_close_at <= $1 AND (s.home IS NULL OR s.home = $2) AND NOT EXISTS \
            (SELECT 1 FROM tool_calls c JOIN instances i ON i.id = c.holder WHERE c.id = s.busy_call \
            AND c.execution IN ('queued', 'admitted', 'dispatched') AND c.must_end_by > $1 AND i.lease_until > $1) \
            ORDER BY s.next_close_at LIMIT 100");
        CLOSED = "UPDATE browser_sessions SET state = 'closed', closed_at = $2 WHERE id = $1 AND state = 'closing'";
        CLOSE_FAILED = "UPDATE browser_sessions SET close_attempts = close_attempts + 1, next_close_at = $2 \
            WHERE id = $1 AND state = 'closing'";
        HOMELESS = "SELECT s.id, s.run_id FROM browser_sessions s WHERE s.state <> 'closed' AND s.home IS NOT NULL \
            AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.id = s.home AND i.lease_until > $1) ORDER BY s.id LIMIT 100";
        GONE = "UPDATE browser_sessions SET state = 'closed', end_reason = coalesce(end_reason, $2), closed_at = $3 \
            WHERE id = $1 AND state <> 'closed' RETURNING end_reason";
    }
}
