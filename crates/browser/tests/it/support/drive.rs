//! Drives a browser as the runtime does: prepare, record (here: a permit out of thin air), dispatch, observe.

use std::time::Duration;

use formation_browser::{DispatchError, Effect, Live, Look, Rules, Timing, look, prepare};
use formation_core::{
    CallId, Faults, Permit,
    arguments::{Action, Chord, Consent},
    failure::{Reason, Refused},
    hostlist::HostList,
    view::{Control, PageView, RefNonce},
};
use tokio::time::Instant;
use url::Url;

use super::chromium::Chromium;

/// How one operation ended, in the ledger's terms.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Nothing was sent.
    NotDispatched(Reason),
    /// Known not to have worked.
    Failed(Reason),
    /// It may have happened.
    Uncertain(Reason),
    /// It was sent; the look failed.
    InputDispatched(Refused),
    /// It was sent and seen.
    Ok(Box<PageView>),
}

impl Ended {
    /// The view of an operation that went well.
    pub(crate) fn ok(self) -> PageView {
        match self {
            Self::Ok(view) => *view,
            other => panic!("not ok: {other:?}"),
        }
    }

    /// Why nothing was sent.
    pub(crate) fn not_dispatched(&self) -> Reason {
        match self {
            Self::NotDispatched(reason) => *reason,
            other => panic!("something was sent: {other:?}"),
        }
    }
}

/// A session: a browser and the nonces of its looks.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) live: Live,
    pub(crate) browser: Chromium,
    nonces: u32,
    /// What the database would hold.
    pub(crate) refs: Option<RefNonce>,
    pub(crate) view: PageView,
}

/// Rules without restrictions.
pub(crate) fn rules() -> Rules {
    Rules { hosts: HostList::any(), refusals: None, timing: Timing::default(), faults: Faults::none() }
}

pub(crate) fn permit() -> Permit {
    Permit::recorded(CallId::fixed(1), std::time::Instant::now() + Duration::from_secs(5))
}

pub(crate) fn deadline() -> Instant {
    Instant::now() + formation_core::limits::OPERATION
}

impl Session {
    pub(crate) async fn start() -> Self {
        Self::with(rules()).await
    }

    pub(crate) async fn with(rules: Rules) -> Self {
        let (browser, wire) = Chromium::start();
        let live = Live::attach(wire, rules).await.expect("a fresh browser can be attached");
        Self { live, browser, nonces: 0, refs: None, view: PageView::default() }
    }

    /// Starts and opens one page.
    pub(crate) async fn at(url: &str) -> Self {
        let mut session = Self::start().await;
        session.navigate(url).await.ok();
        session
    }

    fn nonce(&mut self) -> RefNonce {
        self.nonces += 1;
        RefNonce::stored(format!("n{}", self.nonces))
    }

    pub(crate) async fn navigate(&mut self, url: &str) -> Ended {
        self.run(Effect::Navigate { url: Url::parse(url).expect("a URL") }).await
    }

    pub(crate) async fn read(&mut self) -> Result<PageView, Refused> {
        self.look(Look::default()).await
    }

    pub(crate) async fn look(&mut self, how: Look) -> Result<PageView, Refused> {
        let nonce = self.nonce();
        let view = look(&mut self.live, how, nonce.clone(), deadline()).await?;
        self.refs = Some(nonce);
        self.view = view.clone();
        Ok(view)
    }

    pub(crate) async fn run(&mut self, effect: Effect) -> Ended {
        let nonce = self.nonce();
        let refs = self.refs.clone();
        let prepared = match prepare(&mut self.live, effect, refs.as_ref(), deadline()).await {
            Ok(prepared) => prepared,
            Err(refused) => return Ended::NotDispatched(refused.reason),
        };
        self.refs = None;
        let dispatched = match prepared.dispatch(permit()).await {
            Ok(dispatched) => dispatched,
            Err(DispatchError::NothingSent(reason)) => return Ended::NotDispatched(reason),
            Err(DispatchError::Known(reason)) => return Ended::Failed(reason),
            Err(DispatchError::Unknown(reason)) => return Ended::Uncertain(reason),
        };
        match dispatched.observe(nonce.clone()).await {
            Err(refused) => Ended::InputDispatched(refused),
            Ok(view) => {
                self.refs = Some(nonce);
                self.view = view.clone();
                Ended::Ok(Box::new(view))
            }
        }
    }

    pub(crate) async fn act(&mut self, action: Action) -> Ended {
        self.run(Effect::Act { action, dialog: None }).await
    }

    pub(crate) async fn click(&mut self, name: &str) -> Ended {
        let reference = self.reference(name);
        self.act(Action::Click { reference }).await
    }

    pub(crate) async fn click_with(&mut self, name: &str, dialog: Consent) -> Ended {
        let reference = self.reference(name);
        self.run(Effect::Act { action: Action::Click { reference }, dialog: Some(dialog) }).await
    }

    pub(crate) async fn type_into(&mut self, name: &str, text: &str) -> Ended {
        let reference = self.reference(name);
        self.act(Action::Type { reference, text: text.to_owned() }).await
    }

    pub(crate) async fn press(&mut self, name: &str, key: &str) -> Ended {
        let reference = self.reference(name);
        self.act(Action::Press { reference, chord: Chord::parse(key).expect("a chord") }).await
    }

    /// The control of this name in the newest view.
    pub(crate) fn control(&self, name: &str) -> &Control {
        let found = self.view.controls.iter().find(|control| control.name == name);
        found.unwrap_or_else(|| panic!("no control {name:?} in {:#?}", self.view))
    }

    pub(crate) fn reference(&self, name: &str) -> String {
        self.control(name).reference.clone()
    }
}
