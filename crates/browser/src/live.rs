//! A browser that is attached: the connection, what is known about its pages, and what the last look numbered.

use std::{fmt, sync::Arc, time::Duration};

use formation_core::{
    destination,
    failure::{BrowserStage, Phase, Reason, Refused},
    view::RefNonce,
};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use crate::{
    CdpWire, Rules,
    cdp::{self, Cdp, CdpError, SessionId},
    pump::{PAGES_AND_FRAMES, PAGES_ONLY, Pump, is_browser_ui},
    tabs::{Frame, Tab, Tabs},
};

/// How long attaching may take altogether.
const ATTACH: Duration = Duration::from_secs(20);
/// How long a page that is there may take to be set up.
const READY: Duration = Duration::from_secs(10);
/// How long attaching waits for a page before it makes one.
const FIRST_PAGE: Duration = Duration::from_secs(1);
/// How long attaching waits for frames that live in processes of their own.
const FRAMES: Duration = Duration::from_millis(150);

/// One browser, attached. Operations borrow it; it is usable again when they end, however they end.
pub struct Live {
    pub(crate) pump: Arc<Pump>,
    pub(crate) rules: Rules,
    /// What the newest look numbered; refs point into it.
    pub(crate) view: Option<Viewed>,
    reading: JoinHandle<()>,
}

/// The frames of a look: frame `n` of a ref is the `n`th.
#[derive(Debug)]
pub(crate) struct Viewed {
    pub(crate) nonce: RefNonce,
    pub(crate) target: Arc<str>,
    pub(crate) frames: Vec<ViewedFrame>,
}

/// One frame as it was looked at.
#[derive(Debug)]
pub(crate) struct ViewedFrame {
    pub(crate) id: Arc<str>,
    pub(crate) loader: Arc<str>,
}

/// The page shown, as it is at this moment.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) target: Arc<str>,
    pub(crate) session: SessionId,
    pub(crate) crashed: bool,
    pub(crate) main: Frame,
}

/// Tells when a connection is over; outlives the [`Live`] it came from.
#[derive(Debug, Clone)]
pub struct LostWatch(watch::Receiver<bool>);

impl LostWatch {
    /// Whether it is over.
    pub fn is_lost(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Resolves when it is over.
    pub async fn lost(&self) {
        // An error says that the `Live` is gone, and its connection with it.
        let _ = self.0.clone().wait_for(|lost| *lost).await;
    }
}

impl Live {
    /// Speaks to the browser at the other end, adopts its newest page (or makes one) and installs the handlers that have to be
    /// there before anything else. 20 s at most.
    pub async fn attach(wire: CdpWire, rules: Rules) -> Result<Self, Refused> {
        let until = Instant::now() + ATTACH;
        let cdp = Cdp::new(wire.send);
        let pump = Pump::new(cdp.clone());
        let reading = tokio::spawn(cdp.read(wire.receive, pump.clone()));
        let live = Self { pump, rules, view: None, reading };
        live.find_page(until).await?;
        Ok(live)
    }

    /// Whether the connection is over or the browser gone.
    pub fn is_lost(&self) -> bool {
        self.pump.cdp.is_lost()
    }

    /// Resolves when the connection is over.
    pub async fn lost(&self) {
        self.watch().lost().await;
    }

    /// Something to watch the connection by while an operation borrows this.
    pub fn watch(&self) -> LostWatch {
        LostWatch(self.pump.cdp.lost())
    }

    async fn find_page(&self, until: Instant) -> Result<(), Refused> {
        let cdp = &self.pump.cdp;
        let refused = |phase: Phase| move |error: CdpError| Refused::new(BrowserStage::BrowserConnection, phase, error.reason());
        cdp.call(None, &cdp::BrowserVersion {}, until).await.map_err(refused(Phase::Connect))?;
        let attach = refused(Phase::Attach);
        cdp.call(None, &cdp::DenyDownloads { behavior: "deny", events_enabled: true }, until).await.map_err(attach)?;
        cdp.call(None, &cdp::DiscoverTargets { discover: true, filter: PAGES_AND_FRAMES }, until).await.map_err(attach)?;
        let pages = cdp::AutoAttach { on: true, wait_for_debugger_on_start: true, flatten: true, filter: PAGES_ONLY };
        cdp.call(None, &pages, until).await.map_err(attach)?;
        // A browser that was just started may not have opened its page yet.
        let first = until.min(Instant::now() + FIRST_PAGE);
        let target = match self.pump.when(first, |tabs| tabs.current().map(|tab| tab.target.clone())).await {
            Some(any) => {
                let targets = cdp.call(None, &cdp::ListTargets {}, until).await.map_err(attach)?;
                // The newest comes first.
                let newest = targets.target_infos.into_iter().find(|target| target.kind == "page" && !is_browser_ui(&target.url));
                newest.map_or(any, |target| target.target_id)
            }
            None => cdp.call(None, &cdp::CreateTarget { url: "about:blank" }, until).await.map_err(attach)?.target_id,
        };
        let ready = self.pump.when(until, |tabs| {
            tabs.show(&target);
            tabs.tab(&target).is_some_and(|tab| tab.ready).then_some(())
        });
        if ready.await.is_none() {
            return Err(attach(if self.is_lost() { CdpError::Lost } else { CdpError::Late }));
        }
        let settled = |tabs: &mut Tabs| {
            let waiting = tabs.current().is_some_and(|tab| tab.frames.values().any(|frame| frame.loader.is_empty()));
            (!waiting).then_some(())
        };
        // A frame that isn't there in time is found by its events later.
        let _ = self.pump.when(until.min(Instant::now() + FRAMES), settled).await;
        self.pump.tabs().remarks = crate::tabs::Remarks::default();
        Ok(())
    }

    /// The page shown, once it is set up.
    pub(crate) async fn shown(&self, until: Instant) -> Result<Shown, Reason> {
        if self.is_lost() {
            return Err(Reason::SessionLost);
        }
        let until = until.min(Instant::now() + READY);
        let shown = self.pump.when(until, |tabs| match tabs.current() {
            None => Some(None),
            Some(tab) if tab.ready || tab.crashed => Some(Shown::of(tab)),
            Some(_) => None,
        });
        match shown.await {
            Some(Some(shown)) => Ok(shown),
            Some(None) => Err(Reason::SessionLost),
            None if self.is_lost() => Err(Reason::SessionLost),
            None => Err(Reason::Timeout),
        }
    }

    /// Whether a URL may be observed.
    pub(crate) fn may_observe(&self, frame: &Frame) -> Result<(), Reason> {
        // An error page has no address of its own, and nothing of the site on it.
        if frame.unreachable.is_some() || frame.url.starts_with("chrome-error:") {
            return Err(Reason::PageUnreadable);
        }
        destination::observed(&frame.url, &self.rules.hosts)
    }

    /// The end of a wait for one command.
    pub(crate) fn command_until(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + self.rules.timing.command)
    }
}

impl fmt::Debug for Live {
    /// Without anything of its pages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("lost", &self.is_lost()).finish_non_exhaustive()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Shown {
    fn of(tab: &Tab) -> Option<Self> {
        let main = tab.main()?.clone();
        Some(Self { target: tab.target.clone(), session: tab.session.clone(), crashed: tab.crashed, main })
    }
}
