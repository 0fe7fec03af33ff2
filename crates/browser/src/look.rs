//! One look at a page: every frame read by one script, all at the same time, put together into one view.

use std::{sync::Arc, time::Duration};

use formation_core::{
    failure::{BrowserStage, Phase, Reason, Refused},
    limits,
    view::{FrameState, Note, PageView, RefNonce},
};
use tokio::time::Instant;

use crate::{
    Look, evaluate,
    evaluate::Unanswered,
    live::{Live, Shown, Viewed, ViewedFrame},
    pump::clipped,
    reader::{self, FramePart},
    script::{FRAME_STRIDE, Op, Part, Window},
    tabs::Frame,
};

/// How long a child frame may take; a slow advertisement doesn't hold up the page.
const CHILD: Duration = Duration::from_secs(3);
/// How often a page that is replaced while it is read is read anew.
const ATTEMPTS: usize = 3;
/// How long a page on its way elsewhere is given to arrive before it is read anew.
const ARRIVAL: Duration = Duration::from_secs(2);
/// Longest URL of a page in a view (browser.md 1.4).
pub(crate) const URL_BYTES: usize = 2_048;
/// Longest URL of a frame in a view.
const FRAME_URL_BYTES: usize = 512;

/// Looks at the page shown. Replaces all refs by ones of `nonce`; sends no input and moves no focus.
pub async fn look(live: &mut Live, how: Look, nonce: RefNonce, deadline: Instant) -> Result<PageView, Refused> {
    if live.is_lost() {
        return Err(Refused::new(BrowserStage::BrowserConnection, Phase::Connect, Reason::SessionLost));
    }
    view(live, &how, nonce, deadline).await
}

/// The look itself, also of an action's end.
pub(crate) async fn view(live: &mut Live, how: &Look, nonce: RefNonce, deadline: Instant) -> Result<PageView, Refused> {
    let refused = |phase: Phase| move |reason: Reason| Refused::new(BrowserStage::Observation, phase, reason);
    live.view = None;
    let mut last = Reason::DocumentChanged;
    for _ in 0..ATTEMPTS {
        let shown = live.shown(deadline).await.map_err(refused(Phase::Attach))?;
        if shown.crashed {
            return Err(refused(Phase::Observe)(Reason::PageCrashed));
        }
        live.may_observe(&shown.main).map_err(refused(Phase::Check))?;
        match read(live, &shown, how, &nonce, deadline).await {
            Ok((mut view, viewed)) => {
                live.view = Some(viewed);
                add_remarks(live, &mut view);
                return Ok(view);
            }
            Err(reason @ (Reason::DocumentChanged | Reason::PageUnreadable)) => last = reason,
            Err(reason) => return Err(refused(Phase::Observe)(wedged(live, reason))),
        }
        // Another document is coming: what was read of the old one is not mixed with it.
        let arrival = deadline.min(Instant::now() + ARRIVAL);
        let arrived =
            |tabs: &mut crate::tabs::Tabs| tabs.current().and_then(|tab| tab.main()).is_none_or(|main| !main.loading).then_some(());
        let _ = live.pump.when(arrival, arrived).await;
    }
    Err(refused(Phase::Observe)(last))
}

/// A page that doesn't answer because a dialog holds it.
pub(crate) fn wedged(live: &Live, reason: Reason) -> Reason {
    let dialog_open = live.pump.tabs().current().is_some_and(|tab| tab.dialog_open);
    if reason == Reason::Timeout && dialog_open { Reason::DialogWedged } else { reason }
}

/// Dialogs, notes and page changes since the last observation; told once.
fn add_remarks(live: &Live, view: &mut PageView) {
    let (remarks, opened_url) = take_remarks(live);
    view.dialogs = remarks.dialogs;
    view.closed_page = remarks.closed;
    view.opened_page = opened_url;
    for note in remarks.notes {
        if !view.notes.contains(&note) {
            view.notes.push(note);
        }
    }
}

/// The remarks, and the URL of the page that opened.
pub(crate) fn take_remarks(live: &Live) -> (crate::tabs::Remarks, Option<String>) {
    let mut tabs = live.pump.tabs();
    let mut remarks = std::mem::take(&mut tabs.remarks);
    remarks.closed = remarks.closed.map(|url| clipped(&url, URL_BYTES));
    let opened = remarks.opened.take().and_then(|target| tabs.tab(&target).map(|tab| clipped(tab.url(), URL_BYTES)));
    (remarks, opened)
}

/// One frame of the look.
struct Framed {
    frame: Frame,
    number: u32,
    /// Why it isn't read.
    out: Option<(FrameState, &'static str)>,
}

async fn read(live: &Live, shown: &Shown, how: &Look, nonce: &RefNonce, deadline: Instant) -> Result<(PageView, Viewed), Reason> {
    let (framed, frames_left_out) = frames(live, shown, deadline).await?;
    let until = live.command_until(deadline);
    let child_until = until.min(Instant::now() + CHILD);
    let op_of = |framed: &Framed| Op::Read {
        nonce: nonce.as_str(),
        first_index: framed.number * FRAME_STRIDE,
        text_offset: if framed.number == 0 { how.text_offset } else { 0 },
        find: how.find.as_deref(),
    };
    let mut asked = Vec::with_capacity(framed.len());
    for framed in &framed {
        let open = framed.out.is_none();
        asked.push(if open { evaluate::ask(&live.pump, &framed.frame, &op_of(framed), until).await } else { None });
    }
    let mut parts = Vec::new();
    let mut shown_frames = Vec::new();
    for (framed, asked) in framed.iter().zip(asked) {
        let mut out = framed.out;
        let mut url = clipped(&framed.frame.url, FRAME_URL_BYTES);
        if out.is_none() {
            let until = if framed.number == 0 { until } else { child_until };
            match evaluate::answer::<Part>(&live.pump, &framed.frame, asked, &op_of(framed), until).await {
                Ok(part) => {
                    url = clipped(&part.url, FRAME_URL_BYTES);
                    parts.push(FramePart { number: framed.number, part });
                }
                Err(error) if framed.number == 0 => return Err(error.reason()),
                Err(error) => out = Some((FrameState::Unavailable, why(error))),
            }
        }
        if framed.number > 0 {
            let (state, reason) = out.map_or((FrameState::Ok, None), |(state, reason)| (state, Some(reason.to_owned())));
            shown_frames.push(formation_core::view::Frame { id: format!("f{}", framed.number), url, state, reason });
        }
    }
    fetch_lacking_text(live, &framed, &mut parts, how, nonce, until).await?;
    same_document(live, shown)?;
    let http_status = live.pump.tabs().status(&shown.main.loader);
    // The viewer's own frames are no part of the page.
    let pdf = framed.first().is_some_and(|main| main.frame.pdf) || parts.iter().any(|part| part.number == 0 && part.part.pdf);
    if pdf {
        shown_frames.retain(|frame| frame.state == FrameState::Ok);
    }
    let mut view = reader::merge(parts, nonce.as_str(), how.text_offset);
    view.page.http_status = http_status;
    view.frames = shown_frames;
    if pdf {
        view.notes.push(Note::PdfSurface);
    }
    view.truncated.frames |= frames_left_out;
    let numbered = framed.into_iter().map(|framed| ViewedFrame { id: framed.frame.id, loader: framed.frame.loader }).collect();
    Ok((view, Viewed { nonce: nonce.clone(), target: shown.target.clone(), frames: numbered }))
}

/// The frames to read, the main one first; whether there are more than are named.
async fn frames(live: &Live, shown: &Shown, deadline: Instant) -> Result<(Vec<Framed>, bool), Reason> {
    let is_stale = live.pump.tabs().tab(&shown.target).is_some_and(|tab| tab.tree_stale);
    if is_stale {
        let until = live.command_until(deadline);
        live.pump.cdp.call(Some(&shown.session), &crate::cdp::FrameTreeOf {}, until).await.map_err(crate::cdp::CdpError::reason)?;
    }
    let ordered = live.pump.tabs().tab(&shown.target).map(crate::tabs::Tab::in_order).ok_or(Reason::DocumentChanged)?;
    if ordered.first().is_none_or(|(main, _)| main.loader != shown.main.loader) {
        return Err(Reason::DocumentChanged);
    }
    let left_out = ordered.len() > limits::FRAMES + 1;
    let mut framed: Vec<Framed> = Vec::new();
    for (number, (frame, depth)) in (0u32..).zip(ordered.into_iter().take(limits::FRAMES + 1)) {
        let out = if number == 0 { None } else { kept_out(live, &framed, &frame, depth) };
        framed.push(Framed { frame, number, out });
    }
    Ok((framed, left_out))
}

/// Why a child frame isn't looked into.
fn kept_out(live: &Live, before: &[Framed], frame: &Frame, depth: usize) -> Option<(FrameState, &'static str)> {
    if depth > limits::FRAME_DEPTH {
        return Some((FrameState::Restricted, "too_deep"));
    }
    // What a frame inherits from its parent it also inherits in this.
    if matches!(frame.url.as_str(), "" | "about:blank" | "about:srcdoc") {
        let parent = before.iter().find(|parent| Some(&parent.frame.id) == frame.parent.as_ref());
        return match parent.and_then(|parent| parent.out) {
            None if frame.url.is_empty() && frame.world.is_none() => Some((FrameState::Unavailable, "loading")),
            inherited => inherited,
        };
    }
    if frame.crashed {
        return Some((FrameState::Unavailable, "crashed"));
    }
    match live.may_observe(frame) {
        Ok(()) => None,
        Err(Reason::PageUnreadable) => Some((FrameState::Unavailable, "not_loaded")),
        Err(reason) => Some((FrameState::Restricted, reason.as_str())),
    }
}

/// A look that starts behind the main frame's text needs a window of another frame's.
async fn fetch_lacking_text(
    live: &Live,
    framed: &[Framed],
    parts: &mut [FramePart],
    how: &Look,
    nonce: &RefNonce,
    until: Instant,
) -> Result<(), Reason> {
    let Some(lacking) = reader::lacking(parts, how.text_offset) else { return Ok(()) };
    let Some(part) = parts.get_mut(lacking.position) else { return Ok(()) };
    let Some(framed) = framed.iter().find(|framed| framed.number == part.number) else { return Ok(()) };
    let op = Op::Text { nonce: nonce.as_str(), text_offset: lacking.text_offset };
    part.part.window = evaluate::run::<Window>(&live.pump, &framed.frame, &op, until).await.map_err(Unanswered::reason)?;
    Ok(())
}

/// A list that mixes two documents is worse than none.
fn same_document(live: &Live, shown: &Shown) -> Result<(), Reason> {
    let tabs = live.pump.tabs();
    let loader: Option<Arc<str>> =
        tabs.current().filter(|tab| tab.target == shown.target).and_then(|tab| tab.main()).map(|main| main.loader.clone());
    if loader.as_ref() == Some(&shown.main.loader) { Ok(()) } else { Err(Reason::DocumentChanged) }
}

fn why(error: Unanswered) -> &'static str {
    match error {
        Unanswered::Cdp(crate::cdp::CdpError::Late) => "no_answer",
        Unanswered::Cdp(crate::cdp::CdpError::Gone) => "crashed",
        Unanswered::Cdp(_) => "loading",
        Unanswered::Threw => "unreadable",
    }
}
