//! From a ref to a point of the page where input reaches it, and nothing else does.
//!
//! Every frame between the target and the page is asked what lies at the point, innermost first: the frame's own document must
//! give the target, each parent must give the frame. Points are summed in CSS pixels of each frame's viewport, which is the same
//! for frames of this process and of others; the pointer goes to the page's session.

use std::{sync::Arc, time::Duration};

use formation_core::{
    failure::{BrowserStage, Phase, Reason, Refused},
    view::RefNonce,
};
use tokio::time::Instant;

use crate::{
    cdp::{self, Argument, CallOn},
    evaluate::{self, Unanswered},
    live::{Live, Shown},
    script::{Aimed, Cover, Digest, FRAME_STRIDE, Located, Op, Passage, Point, Standing, THROUGH},
    tabs::Frame,
};

/// How long a page may take to become the visible one.
const VISIBLE: Duration = Duration::from_secs(2);
/// Between two questions whether it is.
const VISIBLE_POLL: Duration = Duration::from_millis(20);
/// How often a point outside a parent's viewport is asked for again while scrolling passes through the frames.
const SCROLLS: usize = 4;
/// Between those.
const SCROLL_PAUSE: Duration = Duration::from_millis(60);
/// Frames between a target and its page, at most.
const FRAMES: usize = 16;

/// What a ref stands for, checked against what the model saw.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) shown: Shown,
    /// Where it lives.
    pub(crate) frame: Frame,
    /// `<nonce>.<index>`.
    pub(crate) reference: String,
    pub(crate) located: Located,
}

/// A refusal before input.
pub(crate) fn refused(phase: Phase, reason: Reason) -> Refused {
    Refused::new(BrowserStage::Input, phase, reason)
}

/// Finds what `reference` stands for. `refs` is the nonce on record as valid.
pub(crate) async fn find(live: &Live, reference: &str, refs: Option<&RefNonce>, deadline: Instant) -> Result<Target, Refused> {
    let resolve = |reason| refused(Phase::Resolve, reason);
    let shown = live.shown(deadline).await.map_err(resolve)?;
    if shown.crashed {
        return Err(resolve(Reason::PageCrashed));
    }
    live.may_observe(&shown.main).map_err(|reason| refused(Phase::Check, reason))?;
    let frame = frame_of(live, &shown, reference, refs).map_err(resolve)?;
    if frame.id != shown.main.id && !matches!(frame.url.as_str(), "" | "about:blank" | "about:srcdoc") {
        live.may_observe(&frame).map_err(|reason| refused(Phase::Check, reason))?;
    }
    let op = Op::Locate { reference };
    let located: Located =
        evaluate::run(&live.pump, &frame, &op, live.command_until(deadline)).await.map_err(|error| resolve(error.reason()))?;
    stands(located.standing).map_err(resolve)?;
    Ok(Target { shown, frame, reference: reference.to_owned(), located })
}

/// The frame a ref was given for, if it still shows the same document.
fn frame_of(live: &Live, shown: &Shown, reference: &str, refs: Option<&RefNonce>) -> Result<Frame, Reason> {
    let (nonce, index) = reference.split_once('.').ok_or(Reason::StaleRef)?;
    let index: u32 = index.parse().map_err(|_| Reason::StaleRef)?;
    let viewed = live.view.as_ref().ok_or(Reason::StaleRef)?;
    if refs.is_none_or(|refs| refs.as_str() != nonce) || viewed.nonce.as_str() != nonce {
        return Err(Reason::StaleRef);
    }
    if viewed.target != shown.target {
        return Err(Reason::DocumentChanged);
    }
    let seen = viewed.frames.get((index / FRAME_STRIDE) as usize).ok_or(Reason::StaleRef)?;
    let tabs = live.pump.tabs();
    let frame = tabs.tab(&shown.target).and_then(|tab| tab.frames.get(&seen.id)).ok_or(Reason::FramesChanged)?;
    if frame.loader != seen.loader {
        return Err(Reason::DocumentChanged);
    }
    Ok(frame.clone())
}

/// What a ref that no longer means what it meant is called.
pub(crate) const fn stands(standing: Standing) -> Result<(), Reason> {
    match standing {
        Standing::Found => Ok(()),
        Standing::Unknown => Err(Reason::StaleRef),
        Standing::Detached => Err(Reason::TargetDetached),
        Standing::Changed => Err(Reason::TargetChanged),
    }
}

/// Brings the page to the front and sees that it is there: a page in the background acknowledges input and loses it.
pub(crate) async fn bring_to_front(live: &Live, shown: &Shown, deadline: Instant) -> Result<(), Reason> {
    let until = live.command_until(deadline);
    live.pump.cdp.call(Some(&shown.session), &cdp::BringToFront {}, until).await.map_err(cdp::CdpError::reason)?;
    let patience = deadline.min(Instant::now() + VISIBLE);
    loop {
        let main = live.pump.tabs().tab(&shown.target).and_then(|tab| tab.main()).cloned().ok_or(Reason::DocumentChanged)?;
        match evaluate::is_visible(&live.pump, &main, until).await {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Unanswered::Cdp(cdp::CdpError::Rejected { .. })) => {}
            Err(error) => return Err(error.reason()),
        }
        if Instant::now() + VISIBLE_POLL >= patience {
            return Err(Reason::TargetNotVisible);
        }
        tokio::time::sleep(VISIBLE_POLL).await;
    }
}

/// A point of the target: in its own frame's viewport, and in the page's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) inner: Point,
    pub(crate) outer: Point,
}

/// The first of the target's points that no frame on the way covers.
pub(crate) async fn spot(live: &Live, target: &Target, deadline: Instant) -> Result<Spot, Reason> {
    let op = Op::Aim { reference: &target.reference };
    let until = live.command_until(deadline);
    let aimed: Aimed = evaluate::run(&live.pump, &target.frame, &op, until).await.map_err(Unanswered::reason)?;
    stands(aimed.standing)?;
    if !aimed.visible {
        return Err(Reason::TargetNotVisible);
    }
    let mut why = Reason::TargetObscured;
    if aimed.points.is_empty() {
        tracing::debug!(cover = ?aimed.cover, "the target is covered");
    }
    for inner in aimed.points {
        match outwards(live, target, inner, deadline).await? {
            Ok(outer) => return Ok(Spot { inner, outer }),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// A point of a frame as the page sees it, or why it can't be reached there.
async fn outwards(live: &Live, target: &Target, inner: Point, deadline: Instant) -> Result<Result<Point, Reason>, Reason> {
    let mut point = inner;
    let mut frame = target.frame.clone();
    for _ in 0..FRAMES {
        let Some(parent_id) = frame.parent.clone() else { return Ok(Ok(point)) };
        let parent = live
            .pump
            .tabs()
            .tab(&target.shown.target)
            .and_then(|tab| tab.frames.get(&parent_id))
            .cloned()
            .ok_or(Reason::FramesChanged)?;
        let mut passage = through(live, &parent, &frame.id, point, deadline).await?;
        for _ in 0..SCROLLS {
            if passage.hit || passage.cover != Some(Cover::Nothing) {
                break;
            }
            tokio::time::sleep(SCROLL_PAUSE).await;
            passage = through(live, &parent, &frame.id, point, deadline).await?;
        }
        if !passage.sure {
            return Ok(Err(Reason::FrameUnverifiable));
        }
        if !passage.hit {
            tracing::debug!(cover = ?passage.cover, "the target's frame is covered");
            return Ok(Err(Reason::TargetObscured));
        }
        point = Point { x: passage.x, y: passage.y };
        frame = parent;
    }
    Ok(Err(Reason::FrameUnverifiable))
}

/// Asks a parent what lies at a point of one of its frames.
async fn through(live: &Live, parent: &Frame, child: &Arc<str>, point: Point, deadline: Instant) -> Result<Passage, Reason> {
    const GROUP: &str = "formation-owner";
    let until = live.command_until(deadline);
    let pump = &live.pump;
    let on = Some(&parent.session);
    let refused = |error: cdp::CdpError| match error {
        cdp::CdpError::Rejected { .. } => Reason::FramesChanged,
        error => error.reason(),
    };
    let owner = pump.cdp.call(on, &cdp::FrameOwner { frame_id: child }, until).await.map_err(refused)?;
    let world = if let Some(world) = parent.world.as_ref().filter(|world| world.installed) {
        world.clone()
    } else {
        let _: Digest = evaluate::run(pump, parent, &Op::Digest, until).await.map_err(Unanswered::reason)?;
        evaluate::make_world(pump, parent, until).await.map_err(Unanswered::reason)?
    };
    let resolve = cdp::ResolveNode { backend_node_id: owner.backend_node_id, execution_context_id: world.id, object_group: GROUP };
    let node = pump.cdp.call(on, &resolve, until).await.map_err(refused)?;
    let call = CallOn {
        function_declaration: THROUGH,
        object_id: &node.object.object_id,
        arguments: vec![Argument { value: point.x }, Argument { value: point.y }],
        return_by_value: true,
        await_promise: true,
    };
    let answered = pump.cdp.call(on, &call, until).await.map_err(refused);
    pump.cdp.tell(on, &cdp::ReleaseGroup { object_group: GROUP });
    evaluate::value::<Passage>(&answered?).map_err(Unanswered::reason)?.ok_or(Reason::FrameUnverifiable)
}
