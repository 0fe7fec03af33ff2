//! Which pages, sessions, frames and isolated worlds there are: what events say, put together. Pure bookkeeping, no I/O.
//!
//! A page's frames may live in several processes; each process is a session of its own, and a frame that changes process is
//! detached in one and attached in the other, in either order. So a frame remembers its session, and only the end of *that*
//! session ends it.

use std::{collections::HashMap, sync::Arc};

use formation_core::view::{Dialog, Note};

use crate::cdp::{Context, FrameInfo, FrameTree, SessionId};

/// The isolated world our scripts run in.
pub(crate) const WORLD: &str = "formation";

/// At most this many pages at a time; the oldest others are closed.
pub(crate) const PAGES: usize = 5;

/// Bounds on what a page can make us keep.
const FRAMES_KEPT: usize = 2_000;
const DIALOGS_KEPT: usize = 20;
const STATUSES_KEPT: usize = 32;

/// Everything known, and what is to be told with the next observation.
#[derive(Debug, Default)]
pub(crate) struct Tabs {
    /// In the order they came; the last one is the one shown.
    pub(crate) stack: Vec<Tab>,
    pub(crate) sessions: HashMap<SessionId, Arc<str>>,
    pub(crate) remarks: Remarks,
    /// Consent for the next confirm or prompt.
    pub(crate) consent: Option<formation_core::arguments::Consent>,
    /// We are navigating away ourselves: `beforeunload` may not stop us.
    pub(crate) leaving: bool,
    /// HTTP status of main documents, by loader, oldest first.
    statuses: Vec<(Arc<str>, u16)>,
    frames_seen: u64,
}

/// What happened since the last observation.
#[derive(Debug, Default, Clone)]
pub(crate) struct Remarks {
    pub(crate) dialogs: Vec<Dialog>,
    pub(crate) notes: Vec<Note>,
    /// The page that opened, if it is still there.
    pub(crate) opened: Option<Arc<str>>,
    /// URL of the page that closed.
    pub(crate) closed: Option<String>,
}

/// A page target.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is set and cleared by an event of its own")]
pub(crate) struct Tab {
    pub(crate) target: Arc<str>,
    pub(crate) opener: Option<Arc<str>>,
    pub(crate) session: SessionId,
    /// Its domains are enabled and its frames are known.
    pub(crate) ready: bool,
    pub(crate) crashed: bool,
    /// A dialog that nobody has answered yet.
    pub(crate) dialog_open: bool,
    /// A document was restored from the back/forward cache: its frames have to be asked for.
    pub(crate) tree_stale: bool,
    pub(crate) frames: HashMap<Arc<str>, Frame>,
}

/// One frame of a page.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is set and cleared by an event of its own")]
pub(crate) struct Frame {
    pub(crate) id: Arc<str>,
    pub(crate) parent: Option<Arc<str>>,
    pub(crate) session: SessionId,
    /// Of its document.
    pub(crate) loader: Arc<str>,
    pub(crate) url: String,
    /// What could not be loaded, on an error page.
    pub(crate) unreachable: Option<String>,
    /// A PDF in Chromium's viewer.
    pub(crate) pdf: bool,
    pub(crate) world: Option<World>,
    pub(crate) loading: bool,
    /// A navigation is about to start by itself.
    pub(crate) scheduled: bool,
    /// Its process died.
    pub(crate) crashed: bool,
    /// Order of arrival, which for most pages is document order.
    pub(crate) order: u64,
}

/// Our isolated world in one document.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) unique: Arc<str>,
    pub(crate) id: i64,
    /// The page's side of the scripts is there.
    pub(crate) installed: bool,
}

impl Tabs {
    /// The page shown.
    pub(crate) fn current(&self) -> Option<&Tab> {
        self.stack.last()
    }

    pub(crate) fn tab(&self, target: &str) -> Option<&Tab> {
        self.stack.iter().find(|tab| &*tab.target == target)
    }

    pub(crate) fn tab_mut(&mut self, target: &str) -> Option<&mut Tab> {
        self.stack.iter_mut().find(|tab| &*tab.target == target)
    }

    pub(crate) fn of_session(&mut self, session: &str) -> Option<&mut Tab> {
        let target = self.sessions.get(session)?.clone();
        self.tab_mut(&target)
    }

    /// Makes a page the one shown.
    pub(crate) fn show(&mut self, target: &str) {
        if let Some(at) = self.stack.iter().position(|tab| &*tab.target == target) {
            let tab = self.stack.remove(at);
            self.stack.push(tab);
        }
    }

    /// A page has a session; it is the one shown from now on. Answers the pages that are too many.
    pub(crate) fn page_attached(
        &mut self,
        target: &Arc<str>,
        opener: Option<Arc<str>>,
        session: &SessionId,
        url: &str,
    ) -> Vec<Arc<str>> {
        if self.tab(target).is_some() {
            return Vec::new();
        }
        self.sessions.insert(session.clone(), target.clone());
        let main = self.frame(target, None, session, url);
        let known_opener = opener.filter(|opener| self.tab(opener).is_some());
        self.stack.push(Tab {
            target: target.clone(),
            opener: known_opener,
            session: session.clone(),
            ready: false,
            crashed: false,
            dialog_open: false,
            tree_stale: false,
            frames: HashMap::from([(target.clone(), main)]),
        });
        let surplus = self.stack.len().saturating_sub(PAGES);
        self.stack[..surplus].iter().map(|tab| tab.target.clone()).collect()
    }

    /// An iframe in another process has a session. `false`: its page is unknown.
    pub(crate) fn frame_session(
        &mut self,
        parent_session: &str,
        id: &Arc<str>,
        parent: Option<Arc<str>>,
        session: &SessionId,
    ) -> bool {
        let Some(target) = self.sessions.get(parent_session).cloned() else { return false };
        let fresh = self.frame(id, parent, session, "");
        let Some(tab) = self.tab_mut(&target) else { return false };
        let frame = tab.frames.entry(id.clone()).or_insert(fresh);
        frame.session = session.clone();
        frame.world = None;
        frame.crashed = false;
        self.sessions.insert(session.clone(), target);
        true
    }

    /// A session ended: a page closed, or an iframe went.
    pub(crate) fn session_ended(&mut self, session: &str) {
        let Some(target) = self.sessions.remove(session) else { return };
        let Some(at) = self.stack.iter().position(|tab| tab.target == target) else { return };
        if &*self.stack[at].session != session {
            self.stack[at].frames.retain(|_, frame| &*frame.session != session);
            return;
        }
        let was_shown = at + 1 == self.stack.len();
        let tab = self.stack.remove(at);
        self.sessions.retain(|_, of| *of != target);
        if was_shown {
            self.remarks.closed = Some(tab.url().to_owned());
            // Back to the page it came from, wherever that stands by now.
            if let Some(opener) = &tab.opener {
                self.show(opener);
            }
        }
        if self.remarks.opened.as_ref() == Some(&target) {
            self.remarks.opened = None;
        }
    }

    pub(crate) fn frame_attached(&mut self, session: &SessionId, id: &Arc<str>, parent: Arc<str>) {
        let fresh = self.frame(id, Some(parent), session, "");
        let Some(tab) = self.of_session(session) else { return };
        if tab.frames.len() >= FRAMES_KEPT {
            return;
        }
        let frame = tab.frames.entry(id.clone()).or_insert(fresh);
        frame.session = session.clone();
    }

    pub(crate) fn frame_detached(&mut self, session: &str, id: &str, swapped: bool) {
        let Some(tab) = self.of_session(session) else { return };
        if swapped || tab.frames.get(id).is_none_or(|frame| &*frame.session != session) {
            return;
        }
        tab.drop_children(id);
        tab.frames.remove(id);
    }

    /// A new document is in a frame.
    pub(crate) fn frame_navigated(&mut self, session: &SessionId, info: &FrameInfo, restored: bool) {
        let fresh = self.frame(&info.id, info.parent_id.clone(), session, "");
        let Some(tab) = self.of_session(session) else { return };
        if info.parent_id.is_none() && info.id != tab.target {
            return;
        }
        if restored {
            // Frames of other processes come back with sessions of their own, sooner or later than this.
            let Tab { target, session, frames, .. } = tab;
            frames.retain(|id, frame| id == target || frame.session != *session);
        } else {
            tab.drop_children(&info.id);
        }
        tab.tree_stale |= restored;
        if info.id == tab.target {
            tab.crashed = false;
        }
        if tab.frames.len() >= FRAMES_KEPT {
            return;
        }
        let frame = tab.frames.entry(info.id.clone()).or_insert(fresh);
        frame.session = session.clone();
        frame.world = None;
        frame.scheduled = false;
        frame.crashed = false;
        frame.describe(info);
    }

    /// The frames of one process, asked for. Adds what events have not told.
    pub(crate) fn tree(&mut self, session: &SessionId, tree: &FrameTree) {
        let mut waiting = vec![tree];
        while let Some(tree) = waiting.pop() {
            let fresh = self.frame(&tree.frame.id, tree.frame.parent_id.clone(), session, "");
            let Some(tab) = self.of_session(session) else { return };
            if tab.frames.len() >= FRAMES_KEPT {
                return;
            }
            let frame = tab.frames.entry(tree.frame.id.clone()).or_insert(fresh);
            frame.session = session.clone();
            frame.describe(&tree.frame);
            waiting.extend(tree.child_frames.iter().rev());
        }
        if let Some(tab) = self.of_session(session)
            && tab.session == *session
        {
            tab.tree_stale = false;
        }
    }

    pub(crate) fn world_created(&mut self, session: &str, context: Context) {
        if context.name != WORLD || context.aux_data.is_default {
            return;
        }
        let Some(id) = context.aux_data.frame_id else { return };
        if let Some(frame) = self.of_session(session).and_then(|tab| tab.frames.get_mut(&id))
            && &*frame.session == session
        {
            frame.world = Some(World { unique: context.unique_id, id: context.id, installed: false });
        }
    }

    pub(crate) fn world_destroyed(&mut self, session: &str, unique: &str) {
        let Some(tab) = self.of_session(session) else { return };
        for frame in tab.frames.values_mut() {
            frame.world.take_if(|world| &*world.unique == unique);
        }
    }

    pub(crate) fn worlds_cleared(&mut self, session: &str) {
        let Some(tab) = self.of_session(session) else { return };
        for frame in tab.frames.values_mut().filter(|frame| &*frame.session == session) {
            frame.world = None;
        }
    }

    /// Changes one frame, if it is known.
    pub(crate) fn with_frame(&mut self, session: &str, id: &str, change: impl FnOnce(&mut Frame)) {
        if let Some(frame) = self.of_session(session).and_then(|tab| tab.frames.get_mut(id)) {
            change(frame);
        }
    }

    pub(crate) fn status_seen(&mut self, loader: Arc<str>, status: u16) {
        if self.statuses.len() >= STATUSES_KEPT {
            self.statuses.remove(0);
        }
        self.statuses.push((loader, status));
    }

    /// The website's status of the document a loader brought.
    pub(crate) fn status(&self, loader: &str) -> Option<u16> {
        self.statuses.iter().rev().find(|(of, _)| &**of == loader).map(|(_, status)| *status).filter(|status| *status != 0)
    }

    fn frame(&mut self, id: &Arc<str>, parent: Option<Arc<str>>, session: &SessionId, url: &str) -> Frame {
        self.frames_seen += 1;
        Frame {
            id: id.clone(),
            parent,
            session: session.clone(),
            loader: Arc::from(""),
            url: url.to_owned(),
            unreachable: None,
            pdf: false,
            world: None,
            loading: false,
            scheduled: false,
            crashed: false,
            order: self.frames_seen,
        }
    }
}

impl Tab {
    /// URL of the main document.
    pub(crate) fn url(&self) -> &str {
        self.main().map_or("", |frame| &frame.url)
    }

    /// Its main frame, whose id is the target's.
    pub(crate) fn main(&self) -> Option<&Frame> {
        self.frames.get(&self.target)
    }

    /// The main frame, then its descendants in document order, each with its depth.
    pub(crate) fn in_order(&self) -> Vec<(Frame, usize)> {
        let mut children: HashMap<&str, Vec<&Frame>> = HashMap::new();
        for frame in self.frames.values() {
            if let Some(parent) = frame.parent.as_deref() {
                children.entry(parent).or_default().push(frame);
            }
        }
        let mut ordered = Vec::new();
        let mut waiting: Vec<(&Frame, usize)> = self.main().into_iter().map(|main| (main, 0)).collect();
        while let Some((frame, depth)) = waiting.pop() {
            ordered.push((frame.clone(), depth));
            // Taken out, so that a tree that bites its tail ends.
            let mut below = children.remove(&*frame.id).unwrap_or_default();
            below.sort_by_key(|frame| std::cmp::Reverse(frame.order));
            waiting.extend(below.into_iter().map(|frame| (frame, depth + 1)));
        }
        ordered
    }

    fn drop_children(&mut self, of: &str) {
        let mut parents = vec![Arc::<str>::from(of)];
        while let Some(parent) = parents.pop() {
            let children: Vec<_> =
                self.frames.values().filter(|frame| frame.parent.as_ref() == Some(&parent)).map(|frame| frame.id.clone()).collect();
            for child in children {
                self.frames.remove(&child);
                parents.push(child);
            }
        }
    }
}

impl Frame {
    fn describe(&mut self, info: &FrameInfo) {
        self.loader = info.loader_id.clone();
        self.url.clone_from(&info.url);
        self.unreachable.clone_from(&info.unreachable_url);
        self.pdf = info.mime_type == "application/pdf";
        if info.parent_id.is_some() {
            self.parent.clone_from(&info.parent_id);
        }
    }
}

impl Remarks {
    /// Remembers a dialog, up to a bound.
    pub(crate) fn dialog(&mut self, dialog: Dialog) {
        if self.dialogs.len() < DIALOGS_KEPT {
            self.dialogs.push(dialog);
        }
    }

    /// Remembers a note once.
    pub(crate) fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    fn info(id_: &str, parent: Option<&str>, loader: &str) -> FrameInfo {
        FrameInfo {
            id: id(id_),
            parent_id: parent.map(id),
            loader_id: id(loader),
            url: format!("http://{loader}/"),
            unreachable_url: None,
            mime_type: String::new(),
        }
    }

    fn one_page() -> Tabs {
        let mut tabs = Tabs::default();
        tabs.page_attached(&id("T"), None, &id("S"), "about:blank");
        tabs.frame_navigated(&id("S"), &info("T", None, "L1"), false);
        tabs
    }

    fn ids(tabs: &Tabs) -> Vec<String> {
        tabs.current().expect("a page").in_order().iter().map(|(frame, depth)| format!("{}{depth}", frame.id)).collect()
    }

    #[test]
    fn a_frame_that_changes_process_stays() {
        let mut tabs = one_page();
        tabs.frame_attached(&id("S"), &id("F"), id("T"));
        assert!(tabs.frame_session("S", &id("F"), Some(id("T")), &id("S2")));
        tabs.frame_navigated(&id("S2"), &info("F", Some("T"), "L2"), false);
        tabs.frame_detached("S", "F", true);
        assert_eq!(ids(&tabs), ["T0", "F1"]);
        // And back: the old process' session ends after the frame is at home again.
        tabs.frame_attached(&id("S"), &id("F"), id("T"));
        tabs.session_ended("S2");
        assert_eq!(ids(&tabs), ["T0", "F1"]);
        tabs.frame_detached("S", "F", false);
        assert_eq!(ids(&tabs), ["T0"]);
    }

    #[test]
    fn a_new_document_has_none_of_the_old_frames() {
        let mut tabs = one_page();
        tabs.frame_attached(&id("S"), &id("F"), id("T"));
        tabs.frame_attached(&id("S"), &id("G"), id("F"));
        tabs.frame_attached(&id("S"), &id("H"), id("T"));
        assert_eq!(ids(&tabs), ["T0", "F1", "G2", "H1"]);
        tabs.frame_navigated(&id("S"), &info("T", None, "L3"), false);
        assert_eq!(ids(&tabs), ["T0"]);
    }

    #[test]
    fn a_closed_page_gives_way_to_its_opener() {
        let mut tabs = one_page();
        tabs.page_attached(&id("U"), None, &id("SU"), "");
        tabs.page_attached(&id("P"), Some(id("T")), &id("SP"), "");
        assert_eq!(&*tabs.current().expect("a page").target, "P");
        tabs.session_ended("SP");
        assert_eq!(&*tabs.current().expect("a page").target, "T");
        assert_eq!(tabs.remarks.closed.as_deref(), Some(""));
    }

    #[test]
    fn the_oldest_pages_are_too_many() {
        let mut tabs = one_page();
        let surplus: Vec<_> =
            (0..5).flat_map(|n| tabs.page_attached(&id(&format!("P{n}")), None, &id(&format!("S{n}")), "")).collect();
        assert_eq!(surplus, [id("T")]);
    }
}
