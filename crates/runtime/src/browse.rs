//! Browser calls, from an admitted call to how it ended.
//!
//! An effect is three lines in a row: `prepare` finds the target and checks everything, `dispatching` puts the effect on record,
//! `dispatch` uses the permit up. Which of them failed decides what is true of the effect, and nothing else does (browser.md 1.6).

use formation_browser::{DispatchError, Effect, Live, Look, Rules};
use formation_core::{
    Binding, CallId, Class, Observation, Outcome, RunId, Tool,
    arguments::Browse,
    failure::{BrowserStage, Phase, Reason, Refused},
    hostlist::HostList,
    limits,
    observation::escaped_len,
    view::{Capture, PageView, RefNonce},
};
use formation_store::{
    StoreError,
    browser_sessions::{self, SessionGrant, Whereabouts},
    ledger,
};
use formation_vendors::{Account, Wanted};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Inner,
    pages::Seat,
    watch::{Cut, Watched},
};

/// An admitted browser call.
pub(crate) struct Admitted {
    pub(crate) call: CallId,
    pub(crate) run: RunId,
    pub(crate) tool: Tool,
    pub(crate) binding: Binding,
    pub(crate) config: Value,
    pub(crate) session: SessionGrant,
}

/// How a call ended.
pub(crate) struct Ending {
    pub(crate) outcome: Outcome,
    pub(crate) observation: Observation,
    /// The nonce of a look: its refs are good from now on.
    pub(crate) refs: Option<RefNonce>,
    pub(crate) capture: Option<Capture>,
    /// The browser is gone, and the run with it (B19).
    pub(crate) is_lost: bool,
}

/// How driving the browser ended.
pub(crate) enum Ended {
    /// The handler came to its end.
    Finished(Ending),
    /// It was stopped, with this left to be said of the thing wanted.
    Cut(Cut, Outcome),
}

impl Inner {
    /// Drives the run's browser. What only looks or checks stops at once when `watched` says so; input under way is never cut in
    /// the middle, which would make doubt out of nothing. An error is the database's: nothing more was sent after it.
    pub(crate) async fn browse(
        &self,
        seat: &mut Seat,
        admitted: &Admitted,
        arguments: Browse,
        deadline: Instant,
        watched: &Watched<'_>,
    ) -> Result<Ended, StoreError> {
        let live = match self.reach(seat, admitted).await? {
            Ok(live) => live,
            Err(refused) => {
                let outcome = match admitted.tool.class() {
                    Class::Read => Outcome::Failed,
                    Class::ExternalEffect => Outcome::NotDispatched,
                };
                return Ok(Ended::Finished(admitted.failed(&refused, outcome)));
            }
        };
        let nonce = RefNonce::mint(&self.entropy);
        match arguments {
            Browse::Navigate { url } => self.effect(live, admitted, Effect::Navigate { url }, nonce, deadline, watched).await,
            Browse::Act { action, dialog } => {
                self.effect(live, admitted, Effect::Act { action, dialog }, nonce, deadline, watched).await
            }
            Browse::Read { text_offset, find } => {
                let looked = formation_browser::look(live, Look { text_offset, find }, nonce.clone(), deadline);
                Ok(match or_cut(watched, looked).await {
                    Err(cut) => Ended::Cut(cut, Outcome::Interrupted),
                    Ok(Ok(view)) => Ended::Finished(admitted.saw(view, nonce, text_offset)),
                    Ok(Err(refused)) => Ended::Finished(admitted.failed(&refused, Outcome::Failed)),
                })
            }
            Browse::Screenshot => Ok(match or_cut(watched, formation_browser::screenshot(live, deadline)).await {
                Err(cut) => Ended::Cut(cut, Outcome::Interrupted),
                Ok(Ok(shot)) => Ended::Finished(admitted.photographed(shot)),
                Ok(Err(refused)) => Ended::Finished(admitted.failed(&refused, Outcome::Failed)),
            }),
        }
    }

    async fn effect(
        &self,
        live: &mut Live,
        admitted: &Admitted,
        effect: Effect,
        nonce: RefNonce,
        deadline: Instant,
        watched: &Watched<'_>,
    ) -> Result<Ended, StoreError> {
        let stage = match effect {
            Effect::Navigate { .. } => BrowserStage::Navigation,
            Effect::Act { .. } => BrowserStage::Input,
        };
        let sent = |reason| Refused::new(stage, Phase::Dispatch, reason);
        let started = Instant::now();
        let preparing = formation_browser::prepare(live, effect, admitted.session.refs.as_ref(), deadline);
        let prepared = match or_cut(watched, preparing).await {
            Err(cut) => return Ok(Ended::Cut(cut, Outcome::NotDispatched)),
            Ok(Ok(prepared)) => prepared,
            Ok(Err(refused)) => return Ok(Ended::Finished(admitted.failed(&refused, Outcome::NotDispatched))),
        };
        let checked = Instant::now();
        let Some(permit) = ledger::dispatching(&self.db, admitted.call, self.instance, &admitted.session).await? else {
            // Settled meanwhile, our lease lapsed or the session is to close: nothing may be sent.
            return Ok(Ended::Finished(admitted.failed(&sent(Reason::SessionLost), Outcome::NotDispatched)));
        };
        self.faults.at("send.before");
        let recorded = Instant::now();
        let sending = prepared.dispatch(permit).await;
        let dispatched = Instant::now();
        let ending = match sending {
            Err(DispatchError::NothingSent(reason)) => admitted.failed(&sent(reason), Outcome::NotDispatched),
            Err(DispatchError::Known(reason)) => admitted.known(&sent(reason)),
            Err(DispatchError::Unknown(reason)) => admitted.failed(&sent(reason), Outcome::Uncertain),
            Ok(dispatched) => match or_cut(watched, dispatched.observe(nonce.clone())).await {
                Err(cut) => return Ok(Ended::Cut(cut, Outcome::InputDispatched)),
                Ok(Ok(view)) => admitted.saw(view, nonce, 0),
                Ok(Err(refused)) => admitted.failed(&refused, Outcome::InputDispatched),
            },
        };
        let millis = |from: Instant, to: Instant| u64::try_from((to - from).as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(
            call.id = %admitted.call,
            prepare_ms = millis(started, checked),
            record_ms = millis(checked, recorded),
            dispatch_ms = millis(recorded, dispatched),
            observe_ms = millis(dispatched, Instant::now()),
            "an effect ended"
        );
        Ok(Ended::Finished(ending))
    }

    /// The connection to the session's browser: the one kept here, or a new browser for a new session. A lost one is never
    /// replaced.
    async fn reach<'s>(&self, seat: &'s mut Seat, admitted: &Admitted) -> Result<Result<&'s mut Live, Refused>, StoreError> {
        let id = admitted.session.id;
        if seat.live.as_ref().is_some_and(|(kept, _)| *kept != id) {
            seat.live = None;
        }
        if seat.live.is_none() {
            match self.open_browser(admitted).await? {
                Ok(live) => seat.live = Some((id, live)),
                Err(refused) => return Ok(Err(refused)),
            }
        }
        Ok(match seat.live.as_mut() {
            Some((_, live)) if !live.is_lost() => Ok(live),
            _ => Err(Refused::new(BrowserStage::BrowserConnection, Phase::Connect, Reason::SessionLost)),
        })
    }

    async fn open_browser(&self, admitted: &Admitted) -> Result<Result<Live, Refused>, StoreError> {
        if !admitted.session.is_new {
            return self.missing_browser(admitted).await.map(Err);
        }
        let refused = |reason| Refused::new(BrowserStage::SessionCreation, Phase::Acquire, reason);
        let Some(browsers) = self.catalog.browsers(&admitted.binding.vendor) else {
            browser_sessions::never_opened(&self.db, &admitted.session).await?;
            return Ok(Err(refused(Reason::ProviderError)));
        };
        let Some(hosts) = allowed_hosts(&admitted.config) else {
            // A list that can't be read is no permission.
            browser_sessions::never_opened(&self.db, &admitted.session).await?;
            return Ok(Err(refused(Reason::HostnameNotAllowed)));
        };
        let account = Account { key: None, config: &Value::Null };
        let want = Wanted { session: admitted.session.id, hosts: hosts.clone(), remaining: limits::RUN_DEADLINE };
        let opened = match browsers.open(account, want).await {
            Ok(opened) => opened,
            Err(failure) => {
                browser_sessions::never_opened(&self.db, &admitted.session).await?;
                return Ok(Err(Refused::new(failure.stage, Phase::Acquire, failure.reason)));
            }
        };
        let rules = Rules { hosts, refusals: opened.refusals, timing: self.timing.browser.clone(), faults: self.faults.clone() };
        // On record before it is used: a browser nobody knows of could never be closed.
        let at = Whereabouts { remote: Some(opened.remote.as_str().to_owned()), home: Some(self.instance), page: None };
        if !browser_sessions::opened(&self.db, &admitted.session, at).await? {
            drop(browsers.close(account, &opened.remote).await);
            return Ok(Err(refused(Reason::SessionLost)));
        }
        Ok(Live::attach(opened.wire, rules).await)
    }

    /// A session that is open on record and not here: another process's, or lost with an earlier connection.
    async fn missing_browser(&self, admitted: &Admitted) -> Result<Refused, StoreError> {
        let session = browser_sessions::live(&self.db, admitted.run).await?;
        let is_elsewhere = session.and_then(|session| session.home).is_some_and(|home| home != self.instance);
        let reason = if is_elsewhere { Reason::ConnectionFailed } else { Reason::SessionLost };
        Ok(Refused::new(BrowserStage::BrowserConnection, Phase::Connect, reason))
    }
}

/// What `work` comes to, unless the call is to stop first.
async fn or_cut<T>(watched: &Watched<'_>, work: impl Future<Output = T>) -> Result<T, Cut> {
    tokio::select! {
        biased;
        cut = watched.cut() => Err(cut),
        done = work => Ok(done),
    }
}

/// The hosts that may be visited; `None`: there is a list, and it can't be read.
fn allowed_hosts(config: &Value) -> Option<HostList> {
    match config.get("allowed_hosts") {
        None => Some(HostList::any()),
        Some(list) => serde_json::from_value(list.clone()).ok(),
    }
}

impl Admitted {
    pub(crate) fn failed(&self, refused: &Refused, outcome: Outcome) -> Ending {
        // A read sends no input, so what the model hears is `not_dispatched`, whatever the ledger calls it (browser.md 1.6).
        let told = if outcome == Outcome::Failed { Outcome::NotDispatched } else { outcome };
        let observation = Observation::browser_failure(self.tool, Some((&self.binding, self.call)), refused, told);
        Ending { outcome, observation, refs: None, capture: None, is_lost: refused.reason == Reason::SessionLost }
    }

    /// A navigation that was answered: the page did not load, and that is known.
    fn known(&self, refused: &Refused) -> Ending {
        let admitted = Some((&self.binding, self.call));
        let observation = Observation::browser_failure(self.tool, admitted, refused, Outcome::InputDispatched);
        Ending { outcome: Outcome::Failed, observation, refs: None, capture: None, is_lost: false }
    }

    fn saw(&self, mut view: PageView, nonce: RefNonce, text_offset: usize) -> Ending {
        // Room for `run` of a successor's first call is part of the envelope.
        let envelope = Observation::of(self.tool, &self.binding, self.call, json!({})).in_new_run(self.run);
        formation_browser::bound(&mut view, escaped_len(&envelope.text()), text_offset);
        let observation = Observation::of(self.tool, &self.binding, self.call, &view);
        Ending { outcome: Outcome::Ok, observation, refs: Some(nonce), capture: None, is_lost: false }
    }

    fn photographed(&self, shot: formation_browser::Shot) -> Ending {
        let capture = shot.capture;
        let mut observation = Observation::of(self.tool, &self.binding, self.call, json!({"page": shot.page}));
        observation.set("viewport_width", json!(capture.width));
        observation.set("viewport_height", json!(capture.height));
        if !shot.dialogs.is_empty() {
            observation.set("dialogs", json!(shot.dialogs));
        }
        if !shot.notes.is_empty() {
            observation.set("notes", json!(shot.notes));
        }
        for (name, page) in [("opened_page", shot.opened_page), ("closed_page", shot.closed_page)] {
            if let Some(page) = page {
                observation.set(name, json!(page));
            }
        }
        Ending { outcome: Outcome::Ok, observation, refs: None, capture: Some(capture), is_lost: false }
    }
}
