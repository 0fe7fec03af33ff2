//! What happens between and during operations: events change the bookkeeping, dialogs are answered, new pages and frames are set up.
//!
//! It runs always. Dialogs (browser.md 1.7): an alert is accepted; `beforeunload` only lets us leave when we navigate ourselves;
//! confirm and prompt are dismissed, unless the action carried the model's consent, which answers the first of them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use formation_core::{
    arguments::Consent,
    limits::VIEWPORT,
    view::{Dialog, DialogAnswer, Note},
};
use tokio::{sync::watch, time::Instant};

use crate::{
    cdp::{self, Attached, Cdp, CdpError, DialogOpening, Event, SessionId, TargetFilter},
    tabs::{Tabs, WORLD},
};

/// How long the setting up of one page or frame may take.
const SETUP: Duration = Duration::from_secs(10);
/// How long a dialog's answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Only this much of a dialog's message is kept.
const MESSAGE_BYTES: usize = 300;
/// A scheduled navigation further off than this many seconds is not waited for.
const SOON: f64 = 0.5;

/// Targets that are pages.
pub(crate) const PAGES_ONLY: &[TargetFilter<'static>] =
    &[TargetFilter { kind: Some("page"), exclude: false }, TargetFilter { kind: None, exclude: true }];
/// Targets whose crash concerns us.
pub(crate) const PAGES_AND_FRAMES: &[TargetFilter<'static>] = &[
    TargetFilter { kind: Some("page"), exclude: false },
    TargetFilter { kind: Some("iframe"), exclude: false },
    TargetFilter { kind: None, exclude: true },
];
/// Targets that are iframes in a process of their own.
const FRAMES_ONLY: &[TargetFilter<'static>] =
    &[TargetFilter { kind: Some("iframe"), exclude: false }, TargetFilter { kind: None, exclude: true }];

/// The connection and what is known about the browser at its other end.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) cdp: Cdp,
    tabs: Mutex<Tabs>,
    changed: watch::Sender<u64>,
    me: Weak<Pump>,
}

impl Pump {
    pub(crate) fn new(cdp: Cdp) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { cdp, tabs: Mutex::default(), changed: watch::Sender::new(0), me: me.clone() })
    }

    /// The bookkeeping; never held over an await.
    pub(crate) fn tabs(&self) -> MutexGuard<'_, Tabs> {
        self.tabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `seen` answers something, looking again after each change. `None`: `until` passed.
    pub(crate) async fn when<T>(&self, until: Instant, mut seen: impl FnMut(&mut Tabs) -> Option<T>) -> Option<T> {
        let mut changes = self.changed.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(found) = seen(&mut self.tabs()) {
                return Some(found);
            }
            if tokio::time::timeout_at(until, changes.changed()).await.is_err() {
                return None;
            }
        }
    }

    fn tell_change(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn in_background<F: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Arc<Self>) -> F) {
        if let Some(me) = self.me.upgrade() {
            tokio::spawn(work(me));
        }
    }

    fn attached(&self, parent: Option<&str>, attached: Attached) {
        let Attached { session_id: session, target_info: target } = attached;
        match (target.kind.as_str(), parent) {
            ("page", None) if !is_browser_ui(&target.url) => {
                let surplus = {
                    let mut tabs = self.tabs();
                    let is_new = !tabs.stack.is_empty();
                    let surplus = tabs.page_attached(&target.target_id, target.opener_id, &session, &target.url);
                    if is_new {
                        tabs.remarks.opened = Some(target.target_id.clone());
                    }
                    surplus
                };
                for page in surplus {
                    self.cdp.tell(None, &cdp::CloseTarget { target_id: &page });
                }
                self.in_background(|me| async move { me.set_up_page(session).await });
            }
            ("iframe", Some(parent)) => {
                let known = self.tabs().frame_session(parent, &target.target_id, target.parent_frame_id, &session);
                if known {
                    self.in_background(|me| async move { me.set_up_frame(session).await });
                } else {
                    self.cdp.tell(Some(&session), &cdp::Resume {});
                }
            }
            // Whatever it is, it must not stay paused because of us.
            _ => {
                self.cdp.tell(Some(&session), &cdp::Resume {});
            }
        }
    }

    /// Handlers first: a dialog that opens while nobody listens cannot be answered ever after.
    async fn set_up_page(&self, session: SessionId) {
        let until = Instant::now() + SETUP;
        let (width, height) = VIEWPORT;
        let ready = async {
            let cdp = &self.cdp;
            let on = Some(&session);
            let mut page = cdp.send(on, &cdp::EnablePage {}, until).await?;
            let mut inspector = cdp.send(on, &cdp::EnableInspector {}, until).await?;
            let mut tree = cdp.send(on, &cdp::FrameTreeOf {}, until).await?;
            let mut runtime = cdp.send(on, &cdp::EnableRuntime {}, until).await?;
            let network = cdp::EnableNetwork { max_total_buffer_size: 0, max_resource_buffer_size: 0 };
            let mut network = cdp.send(on, &network, until).await?;
            let mut world = cdp.send(on, &world_everywhere(), until).await?;
            let mut choosers = cdp.send(on, &cdp::CancelFileChoosers { enabled: true, cancel: true }, until).await?;
            let metrics = cdp::DeviceMetrics { width, height, device_scale_factor: 1, mobile: false };
            let mut metrics = cdp.send(on, &metrics, until).await?;
            let mut frames = cdp.send(on, &frames_attach(), until).await?;
            let mut resume = cdp.send(on, &cdp::Resume {}, until).await?;
            page.answer(until).await?;
            inspector.answer(until).await?;
            tree.answer(until).await?;
            runtime.answer(until).await?;
            network.answer(until).await?;
            world.answer(until).await?;
            choosers.answer(until).await?;
            metrics.answer(until).await?;
            frames.answer(until).await?;
            resume.answer(until).await?;
            Ok::<_, CdpError>(())
        };
        if let Err(error) = ready.await {
            tracing::warn!(%error, "a page could not be set up");
            // A page nobody can talk to must not stand in front of one that works.
            let target = self.tabs().sessions.get(&session).cloned();
            if let Some(target) = target.filter(|_| self.tabs().stack.len() > 1) {
                self.cdp.tell(None, &cdp::CloseTarget { target_id: &target });
            }
            return;
        }
        if let Some(tab) = self.tabs().of_session(&session) {
            tab.ready = true;
        }
        self.tell_change();
    }

    async fn set_up_frame(&self, session: SessionId) {
        let until = Instant::now() + SETUP;
        let ready = async {
            let cdp = &self.cdp;
            let on = Some(&session);
            let mut page = cdp.send(on, &cdp::EnablePage {}, until).await?;
            let mut tree = cdp.send(on, &cdp::FrameTreeOf {}, until).await?;
            let mut runtime = cdp.send(on, &cdp::EnableRuntime {}, until).await?;
            let mut world = cdp.send(on, &world_everywhere(), until).await?;
            let mut frames = cdp.send(on, &frames_attach(), until).await?;
            let mut resume = cdp.send(on, &cdp::Resume {}, until).await?;
            page.answer(until).await?;
            tree.answer(until).await?;
            runtime.answer(until).await?;
            world.answer(until).await?;
            frames.answer(until).await?;
            resume.answer(until).await
        };
        // A frame that went away meanwhile is no news.
        if let Err(error) = ready.await {
            tracing::debug!(%error, "a frame could not be set up");
            self.cdp.tell(Some(&session), &cdp::Resume {});
        }
    }

    fn dialog(&self, session: SessionId, dialog: &DialogOpening) {
        let (accept, text) = {
            let mut tabs = self.tabs();
            let leaving = tabs.leaving;
            // One dialog can be told on several sessions of its page.
            let Some(tab) = tabs.of_session(&session).filter(|tab| !tab.dialog_open) else { return };
            tab.dialog_open = true;
            let (accept, text) = match dialog.kind.as_str() {
                "alert" => (true, None),
                "beforeunload" => (leaving, None),
                kind => match tabs.consent.take() {
                    Some(Consent { accept, text }) => (accept, text.filter(|_| kind == "prompt")),
                    None => (false, None),
                },
            };
            tabs.remarks.dialog(Dialog {
                kind: known_kind(&dialog.kind).to_owned(),
                message: clipped(&dialog.message, MESSAGE_BYTES),
                answer: if accept { DialogAnswer::Accepted } else { DialogAnswer::Dismissed },
            });
            (accept, text)
        };
        self.in_background(|me| async move {
            let until = Instant::now() + ANSWER;
            let answer = cdp::HandleDialog { accept, prompt_text: text.as_deref() };
            match me.cdp.call(Some(&session), &answer, until).await {
                Ok(_) | Err(CdpError::Rejected { .. }) => {
                    if let Some(tab) = me.tabs().of_session(&session) {
                        tab.dialog_open = false;
                    }
                }
                Err(error) => tracing::warn!(%error, "a dialog could not be answered"),
            }
            me.tell_change();
        });
    }

    fn crashed(&self, target: &str) {
        let sessions = {
            let mut tabs = self.tabs();
            if let Some(tab) = tabs.tab_mut(target) {
                // It is told twice, and what is asked after the first time is not to be ended by the second.
                if std::mem::replace(&mut tab.crashed, true) {
                    return;
                }
                vec![tab.session.clone()]
            } else {
                let frames = tabs.stack.iter_mut().filter_map(|tab| tab.frames.get_mut(target));
                frames
                    .map(|frame| {
                        frame.crashed = true;
                        frame.session.clone()
                    })
                    .collect()
            }
        };
        // The session stays, and what is asked on it is never answered.
        for session in sessions {
            self.cdp.end_session(&session);
        }
    }

    fn on_session(&self, session: &SessionId, event: Event) {
        let mut tabs = self.tabs();
        match event {
            Event::FrameAttached(event) => tabs.frame_attached(session, &event.frame_id, event.parent_frame_id),
            Event::FrameDetached(event) => tabs.frame_detached(session, &event.frame_id, event.reason == "swap"),
            Event::FrameNavigated(event) => tabs.frame_navigated(session, &event.frame, event.kind == "BackForwardCacheRestore"),
            Event::WithinDocument(event) => tabs.with_frame(session, &event.frame_id, |frame| frame.url = event.url),
            Event::StartedLoading(event) => tabs.with_frame(session, &event.frame_id, |frame| {
                frame.loading = true;
                frame.scheduled = false;
            }),
            Event::StoppedLoading(event) => tabs.with_frame(session, &event.frame_id, |frame| frame.loading = false),
            Event::NavigationScheduled(event) => {
                tabs.with_frame(session, &event.frame_id, |frame| frame.scheduled = event.delay <= SOON);
            }
            Event::NavigationUnscheduled(event) => tabs.with_frame(session, &event.frame_id, |frame| frame.scheduled = false),
            Event::ContextCreated(event) => tabs.world_created(session, event.context),
            Event::ContextDestroyed(event) => tabs.world_destroyed(session, &event.execution_context_unique_id),
            Event::ContextsCleared => tabs.worlds_cleared(session),
            Event::Response(event) => {
                let main = tabs.of_session(session).map(|tab| tab.target.clone());
                if event.kind == "Document" && event.frame_id == main {
                    tabs.status_seen(event.loader_id, event.head.status);
                }
            }
            Event::Revived => {
                if let Some(tab) = tabs.of_session(session) {
                    tab.crashed = false;
                }
            }
            Event::FileChooser => tabs.remarks.note(Note::FileChooserCancelled),
            Event::DialogClosed => {
                if let Some(tab) = tabs.of_session(session) {
                    tab.dialog_open = false;
                }
            }
            Event::Attached(_)
            | Event::Detached(_)
            | Event::TargetCrashed(_)
            | Event::Crashed
            | Event::DialogOpening(_)
            | Event::DownloadStarted => {}
        }
    }
}

impl cdp::Events for Pump {
    fn event(&self, session: Option<&str>, method: &str, params: &[u8]) {
        let Some(event) = Event::read(method, params) else { return };
        match event {
            Event::Attached(event) => self.attached(session, event),
            Event::Detached(event) => {
                self.tabs().session_ended(&event.session_id);
                self.cdp.end_session(&event.session_id);
            }
            Event::TargetCrashed(event) => self.crashed(&event.target_id),
            Event::DownloadStarted => self.tabs().remarks.note(Note::DownloadBlocked),
            event => {
                let Some(session) = session.map(SessionId::from) else { return };
                match event {
                    Event::DialogOpening(event) => self.dialog(session, &event),
                    Event::Crashed => {
                        let target = self.tabs().of_session(&session).map(|tab| tab.target.clone());
                        if let Some(target) = target {
                            self.crashed(&target);
                        }
                    }
                    event => self.on_session(&session, event),
                }
            }
        }
        self.tell_change();
    }

    fn answered(&self, session: Option<&str>, method: &'static str, result: &[u8]) {
        if method != <cdp::FrameTreeOf as cdp::Command>::METHOD {
            return;
        }
        if let (Some(session), Some(reply)) = (session, cdp::decode::<cdp::FrameTreeReply>(result)) {
            self.tabs().tree(&SessionId::from(session), &reply.frame_tree);
            self.tell_change();
        }
    }
}

fn world_everywhere() -> cdp::WorldInNewDocuments<'static> {
    cdp::WorldInNewDocuments { source: "", world_name: WORLD, run_immediately: true }
}

fn frames_attach() -> cdp::AutoAttach<'static> {
    cdp::AutoAttach { on: true, wait_for_debugger_on_start: true, flatten: true, filter: FRAMES_ONLY }
}

pub(crate) fn is_browser_ui(url: &str) -> bool {
    url.starts_with("devtools:") || url.starts_with("chrome-extension:")
}

fn known_kind(kind: &str) -> &'static str {
    match kind {
        "alert" => "alert",
        "confirm" => "confirm",
        "beforeunload" => "beforeunload",
        _ => "prompt",
    }
}

/// The start of a text, at most `bytes` long, cut between characters.
pub(crate) fn clipped(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}
