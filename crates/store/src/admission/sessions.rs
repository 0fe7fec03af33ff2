//! Phase 2 of admission: the browser sessions, by run.

use std::collections::BTreeMap;

use formation_core::{
    Binding, BrowserSessionId, CallId, Class, Execution, RunId,
    refusal::{Refusal, RefusalReason},
    view::RefNonce,
};

use super::{Ask, SessionAsk, Terms, Verdict, json_list};
use crate::{
    browser_sessions::{self, SessionEnd, SessionGrant, SessionState},
    db::{Row, Tx},
    error::StoreError,
};

/// A live session as the batch sees it.
pub(super) struct Held {
    pub(super) id: BrowserSessionId,
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

impl Held {
    /// Made for nobody in the end.
    pub(super) fn is_spare(&self) -> bool {
        self.is_provisional && !self.is_taken
    }

    /// Takes the session for this call, in memory.
    pub(super) fn take(&mut self, ask: &Ask) -> Result<SessionGrant, Verdict> {
        let is_busy = self.busy.as_ref().is_some_and(|busy| busy.is_live && busy.call != ask.call);
        // A session on other terms is only left live while somebody's operation runs in it.
        if is_busy || self.is_taken || self.binding != ask.offered {
            return Err(Verdict::Busy);
        }
        if ask.class == Class::ExternalEffect {
            let doubtful = self.busy.as_ref().filter(|busy| busy.is_doubtful).map(|busy| busy.call);
            if let Some(call) = self.uncertain.or(doubtful) {
                let explanation = format!(
                    "Call {call} in this browser may or may not have had its effect. An operator has to settle it before anything \
                     else is done there; reading still works."
                );
                return Err(Verdict::Refuse(Refusal::new(RefusalReason::NeedsReconciliation, explanation)));
            }
        }
        self.is_taken = true;
        self.operation += 1;
        Ok(SessionGrant {
            id: self.id,
            operation: self.operation,
            refs: self.refs.clone(),
            is_new: self.state == SessionState::Opening,
        })
    }
}

/// Locks the live sessions of all runs that want one. One whose grant is another one now is to close; where a new one is wanted it is
/// made here, since its row comes before call and run rows in the order of locks.
pub(super) async fn lock_sessions(tx: &mut Tx, terms: &Terms, asks: &[Ask]) -> Result<BTreeMap<RunId, Held>, StoreError> {
    let mut by_run: BTreeMap<RunId, Vec<&Ask>> = BTreeMap::new();
    for ask in asks.iter().filter(|ask| ask.session != SessionAsk::None) {
        by_run.entry(ask.run).or_default().push(ask);
    }
    let mut sessions = BTreeMap::new();
    if by_run.is_empty() {
        return Ok(sessions);
    }
    let mut found = BTreeMap::new();
    for row in tx.rows(sql::SESSIONS, &[json_list(by_run.keys())]).await? {
        found.insert(row.at::<RunId>(7)?, row);
    }
    for (run, asks) in by_run {
        let granted = asks.iter().find_map(|ask| {
            let (effective, _) = terms.get(&(ask.agent, ask.offered.capability))?.as_ref().ok()?;
            (effective.binding == ask.offered).then_some(&effective.binding)
        });
        let wanted = asks.iter().find_map(|ask| match ask.session {
            SessionAsk::ExistingOrNew(id) => granted.map(|binding| (id, binding)),
            SessionAsk::None | SessionAsk::Existing => None,
        });
        if let Some(held) = session_of(tx, run, found.remove(&run), granted, wanted).await? {
            sessions.insert(run, held);
        }
    }
    Ok(sessions)
}

/// `row` is the run's live session, locked, if it had one.
async fn session_of(
    tx: &mut Tx,
    run: RunId,
    mut row: Option<Row>,
    granted: Option<&Binding>,
    wanted: Option<(BrowserSessionId, &Binding)>,
) -> Result<Option<Held>, StoreError> {
    // A round is lost when another replica ends or makes the run's session at the same moment.
    for _ in 0..4 {
        if let Some(row) = row.take() {
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
        row = tx.row(sql::SESSIONS, &[json_list([run])]).await?;
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

pub(crate) mod sql {
    crate::db::statements! {
        SESSIONS = "SELECT id, binding, state, operation, refs, uncertain_call, busy_call, run_id FROM browser_sessions \
            WHERE run_id IN (SELECT value FROM json_each($1)) AND state IN ('opening', 'open')"
            => "SELECT id, binding, state, operation, refs, uncertain_call, busy_call, run_id FROM browser_sessions \
            WHERE run_id IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb))) AND state IN ('opening', 'open') \
            ORDER BY run_id FOR NO KEY UPDATE";
        HOLDER = "SELECT c.execution, CAST(CASE WHEN c.execution IN ('queued', 'admitted', 'dispatched') AND c.must_end_by > $2 \
            AND EXISTS (SELECT 1 FROM instances i WHERE i.id = c.holder AND i.lease_until > $2) THEN 1 ELSE 0 END AS BIGINT) \
            FROM tool_calls c WHERE c.id = $1";
        RUN_IS_OPEN = "SELECT id FROM runs WHERE id = $1 AND state = 'open'";
        MAKE_SESSION = "INSERT INTO browser_sessions (id, run_id, agent_id, vendor, binding, state, operation, deadline_at, created_at, \
            close_attempts) SELECT $1, r.id, r.agent_id, $4, $5, 'opening', 0, r.deadline_at, $6, 0 FROM runs r \
            WHERE r.id = $2 AND r.agent_id = $3 AND r.state = 'open' \
            ON CONFLICT (run_id) WHERE state IN ('opening', 'open') DO NOTHING";
    }
}
