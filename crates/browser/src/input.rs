//! Sends input. An acknowledgement proves delivery to the browser, not to the element: what the element saw is asked afterwards.
//!
//! The last checks before the first command are scripts of ours, not input: between `prepare` and here the effect was put on record,
//! and a page has had time to move.

use std::time::Duration;

use formation_core::{arguments::Chord, failure::Reason, view::Note};
use tokio::time::Instant;

use crate::{
    DispatchError,
    aim::{self, Spot, Target},
    cdp::{self, CdpError, Command, MouseEvent, SessionId},
    evaluate::{self, Unanswered},
    keys::{self, KeyStroke, Way},
    live::Live,
    script::{Assigned, Assignment, Delivered, Done, Hit, Op, Seen, Standing},
};

/// How long asking what was delivered may take; the answer is a remark, not a result.
const DELIVERED: Duration = Duration::from_millis(1_500);

/// One frame of animation, and how many a hover effect is given.
const FRAME: Duration = Duration::from_millis(16);
const HOVER_FRAMES: usize = 5;

/// All commands were acknowledged.
#[derive(Debug)]
pub(crate) struct Sent {
    /// What is to be said about it.
    pub(crate) notes: Vec<Note>,
    /// When the last of them was.
    pub(crate) acknowledged: Instant,
}

/// One left click: moved, pressed, released.
pub(crate) async fn click(live: &Live, target: &Target, spot: Spot, deadline: Instant) -> Result<Sent, DispatchError> {
    let op = Op::Hit { reference: &target.reference, x: spot.inner.x, y: spot.inner.y };
    let hit: Hit = ask_before(live, target, &op, deadline).await?;
    aim::stands(hit.standing).map_err(DispatchError::NothingSent)?;
    if !hit.hit {
        return Err(DispatchError::NothingSent(Reason::TargetObscured));
    }
    listen(live, target, &["mousedown", "mouseup", "click"], deadline).await?;
    let page = &target.shown.session;
    let mut input = Input { live, page, deadline, begun: false };
    input.send(&pointer("mouseMoved", spot, "none", 0, 0)).await?;
    let spot = match under_pointer(live, target, spot, deadline).await? {
        Some(other) => {
            input.send(&pointer("mouseMoved", other, "none", 0, 0)).await?;
            other
        }
        None => spot,
    };
    let release = pointer("mouseReleased", spot, "left", 0, 1);
    if let Err(error) = input.send(&pointer("mousePressed", spot, "left", 1, 1)).await {
        live.pump.cdp.tell(Some(page), &release);
        return Err(error);
    }
    live.rules.faults.at("send.mid");
    input.send(&release).await?;
    let acknowledged = Instant::now();
    Ok(Sent { notes: delivery_note(delivered(live, target, deadline).await), acknowledged })
}

fn pointer(kind: &'static str, at: Spot, button: &'static str, buttons: u8, click_count: u8) -> MouseEvent<'static> {
    MouseEvent { kind, x: at.outer.x, y: at.outer.y, button, buttons, click_count }
}

/// The pointer's arrival can change the page: a hover style that swaps a picture leaves nothing to press for a moment. `None`: the
/// target is under the pointer; otherwise where it is to be had now. One that isn't any more is not pressed, and the arrival itself
/// was input. A name that changes under the pointer (`Following`, `Unfollow`) is still the target: it was itself a moment ago.
async fn under_pointer(live: &Live, target: &Target, spot: Spot, deadline: Instant) -> Result<Option<Spot>, DispatchError> {
    let op = Op::Hit { reference: &target.reference, x: spot.inner.x, y: spot.inner.y };
    let mut changed = false;
    for _ in 0..HOVER_FRAMES {
        // Styles of the hover state come with the next frame.
        tokio::time::sleep(FRAME).await;
        let until = live.command_until(deadline);
        let hit: Result<Hit, _> = evaluate::run(&live.pump, &target.frame, &op, until).await;
        let hit = hit.map_err(|error| DispatchError::Unknown(error.reason()))?;
        match hit.standing {
            Standing::Found | Standing::Changed => changed = hit.standing == Standing::Changed,
            gone => aim::stands(gone).map_err(DispatchError::Unknown)?,
        }
        if hit.hit {
            return Ok(None);
        }
    }
    if changed {
        return Ok(None);
    }
    aim::spot(live, target, deadline).await.map(Some).map_err(DispatchError::Unknown)
}

/// Replaces the whole text of a field or an editing region.
pub(crate) async fn insert(live: &Live, target: &Target, text: &str, deadline: Instant) -> Result<Sent, DispatchError> {
    is_focused(live, target, deadline).await?;
    if text.is_empty() && holds(live, target, "", deadline).await == Some(true) {
        return Ok(Sent { notes: Vec::new(), acknowledged: Instant::now() });
    }
    let selected: Done = ask_before(live, target, &Op::Select { reference: &target.reference }, deadline).await?;
    aim::stands(selected.standing).map_err(DispatchError::NothingSent)?;
    if !selected.done {
        return Err(DispatchError::NothingSent(Reason::ValueNotAccepted));
    }
    let page = &target.shown.session;
    let mut input = Input { live, page, deadline, begun: false };
    if text.is_empty() {
        listen(live, target, &["keydown"], deadline).await?;
        input.stroke(&keys::backspace(), Way::Down).await?;
        input.stroke(&keys::backspace(), Way::Up).await?;
    } else {
        listen(live, target, &["beforeinput"], deadline).await?;
        input.send(&cdp::InsertText { text }).await?;
    }
    let acknowledged = Instant::now();
    match delivered(live, target, deadline).await {
        // It went into another field, or nowhere: neither may pass as done.
        Some(Seen::Other) => Err(DispatchError::Unknown(Reason::ValueNotAccepted)),
        Some(Seen::Nothing) if holds(live, target, text, deadline).await == Some(false) => {
            Err(DispatchError::Unknown(Reason::ValueNotAccepted))
        }
        _ => Ok(Sent { notes: Vec::new(), acknowledged }),
    }
}

/// Gives a select, date-like, range or colour field its canonical value. One script is the whole input.
pub(crate) async fn assign(live: &Live, target: &Target, value: &str, deadline: Instant) -> Result<Sent, DispatchError> {
    // Looked up again: finding the target may have installed our side in a new world.
    let frame = current_frame(live, target).ok_or(DispatchError::NothingSent(Reason::DocumentChanged))?;
    let op = Op::Assign { reference: &target.reference, value };
    let assigned = evaluate::run_once::<Assigned>(&live.pump, &frame, &op, deadline).await;
    match assigned {
        Ok(Some(assigned)) if assigned.standing != Standing::Found => {
            Err(DispatchError::NothingSent(aim::stands(assigned.standing).err().unwrap_or(Reason::StaleRef)))
        }
        Ok(Some(assigned)) => match assigned.outcome {
            Assignment::Held => Ok(Sent { notes: Vec::new(), acknowledged: Instant::now() }),
            Assignment::Differs => Ok(Sent { notes: vec![Note::ValueDiffers], acknowledged: Instant::now() }),
            Assignment::Refused => Err(DispatchError::NothingSent(Reason::InvalidValue)),
        },
        Ok(None) => Err(DispatchError::NothingSent(Reason::DocumentChanged)),
        Err(error @ Unanswered::Cdp(CdpError::NotSent | CdpError::Rejected { .. })) => {
            Err(DispatchError::NothingSent(error.reason()))
        }
        Err(error) => Err(DispatchError::Unknown(error.reason())),
    }
}

/// One key or chord to the focused target.
pub(crate) async fn press(live: &Live, target: &Target, chord: Chord, deadline: Instant) -> Result<Sent, DispatchError> {
    is_focused(live, target, deadline).await?;
    listen(live, target, &["keydown"], deadline).await?;
    let page = &target.shown.session;
    let mut input = Input { live, page, deadline, begun: false };
    let strokes = keys::strokes(chord);
    for (at, (stroke, way)) in strokes.iter().enumerate() {
        if let Err(error) = input.stroke(stroke, *way).await {
            // Whatever may be down is let go, on this way out too.
            for (stroke, _) in strokes[at..].iter().filter(|(_, way)| *way == Way::Up) {
                live.pump.cdp.tell(Some(page), &stroke.event(Way::Up));
            }
            return Err(error);
        }
    }
    let acknowledged = Instant::now();
    Ok(Sent { notes: delivery_note(delivered(live, target, deadline).await), acknowledged })
}

/// The commands of one action, in order: what an error means depends on whether it is the first.
struct Input<'a> {
    live: &'a Live,
    page: &'a SessionId,
    deadline: Instant,
    begun: bool,
}

impl Input<'_> {
    async fn send<C: Command>(&mut self, command: &C) -> Result<(), DispatchError> {
        let first = !std::mem::replace(&mut self.begun, true);
        match self.live.pump.cdp.call(Some(self.page), command, self.deadline).await {
            Ok(_) => Ok(()),
            Err(error @ (CdpError::NotSent | CdpError::Rejected { .. })) if first => {
                Err(DispatchError::NothingSent(error.reason()))
            }
            Err(error) => Err(DispatchError::Unknown(error.reason())),
        }
    }

    async fn stroke(&mut self, stroke: &KeyStroke, way: Way) -> Result<(), DispatchError> {
        self.send(&stroke.event(way)).await
    }
}

async fn is_focused(live: &Live, target: &Target, deadline: Instant) -> Result<(), DispatchError> {
    let focused: Done = ask_before(live, target, &Op::Focused { reference: &target.reference }, deadline).await?;
    aim::stands(focused.standing).map_err(DispatchError::NothingSent)?;
    if focused.done { Ok(()) } else { Err(DispatchError::NothingSent(Reason::FocusMoved)) }
}

async fn listen(live: &Live, target: &Target, kinds: &[&str], deadline: Instant) -> Result<(), DispatchError> {
    let op = Op::Listen { reference: &target.reference, kinds };
    let listening: Done = ask_before(live, target, &op, deadline).await?;
    aim::stands(listening.standing).map_err(DispatchError::NothingSent)
}

async fn ask_before<T: serde::de::DeserializeOwned>(
    live: &Live,
    target: &Target,
    op: &Op<'_>,
    deadline: Instant,
) -> Result<T, DispatchError> {
    let until = live.command_until(deadline);
    evaluate::run(&live.pump, &target.frame, op, until).await.map_err(|error| DispatchError::NothingSent(error.reason()))
}

async fn holds(live: &Live, target: &Target, text: &str, deadline: Instant) -> Option<bool> {
    let op = Op::Holds { reference: &target.reference, text };
    let until = deadline.min(Instant::now() + DELIVERED);
    let held: Done = evaluate::run_once(&live.pump, &current_frame(live, target)?, &op, until).await.ok()??;
    aim::stands(held.standing).is_ok().then_some(held.done)
}

/// What the target saw. `None`: nobody can say any more, since the document is gone or doesn't answer.
async fn delivered(live: &Live, target: &Target, deadline: Instant) -> Option<Seen> {
    let until = deadline.min(Instant::now() + DELIVERED);
    let frame = current_frame(live, target)?;
    let delivered: Delivered = evaluate::run_once(&live.pump, &frame, &Op::Delivered, until).await.ok()??;
    Some(delivered.seen)
}

fn delivery_note(seen: Option<Seen>) -> Vec<Note> {
    match seen {
        Some(Seen::Other) => vec![Note::TargetDiffered],
        Some(Seen::Nothing) => vec![Note::DeliveryNotSeen],
        Some(Seen::Target) | None => Vec::new(),
    }
}

/// The target's frame while it shows the same document.
fn current_frame(live: &Live, target: &Target) -> Option<crate::tabs::Frame> {
    let tabs = live.pump.tabs();
    let frame = tabs.tab(&target.shown.target)?.frames.get(&target.frame.id)?;
    (frame.loader == target.frame.loader).then(|| frame.clone())
}
