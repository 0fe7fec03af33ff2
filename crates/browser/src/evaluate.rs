//! Runs our fixed scripts in the isolated world of a frame.

use formation_core::failure::Reason;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{
    cdp::{CdpError, Evaluate, Evaluated, IsolatedWorld, Sent, decode},
    pump::Pump,
    script::{self, Answer, Op},
    tabs::{Frame, WORLD, World},
};

/// Why a script has no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The command failed.
    #[error("the script could not be run")]
    Cdp(#[from] CdpError),
    /// Our script threw.
    #[error("the script failed in the page")]
    Threw,
}

impl Unanswered {
    /// The contract's word for it, where nothing more specific is known.
    pub(crate) const fn reason(self) -> Reason {
        match self {
            // The document went away under the script.
            Self::Cdp(CdpError::Rejected { .. }) => Reason::DocumentChanged,
            Self::Cdp(error) => error.reason(),
            Self::Threw => Reason::PageUnreadable,
        }
    }
}

/// A script on its way to one frame.
#[derive(Debug)]
pub(crate) struct Asked(Result<Sent<Evaluated>, CdpError>);

/// Sends `op` to `frame` without waiting for its answer: frames are asked at the same time. A frame whose world isn't known yet is
/// asked by [`answer`].
pub(crate) async fn ask(pump: &Pump, frame: &Frame, op: &Op<'_>, until: Instant) -> Option<Asked> {
    let world = frame.world.as_ref()?;
    let expression = if world.installed { script::expression(op) } else { script::installing(op) };
    Some(Asked(pump.cdp.send(Some(&frame.session), &in_world(&expression, world), until).await))
}

/// The answer to what was [`ask`]ed. A world that is gone or new is made and asked again, once.
pub(crate) async fn answer<T: DeserializeOwned>(
    pump: &Pump,
    frame: &Frame,
    asked: Option<Asked>,
    op: &Op<'_>,
    until: Instant,
) -> Result<T, Unanswered> {
    if let Some(Asked(sent)) = asked {
        match sent?.answer(until).await {
            Ok(evaluated) => {
                if let Some(found) = value(&evaluated)? {
                    note_installed(pump, frame);
                    return Ok(found);
                }
            }
            Err(CdpError::Rejected { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let world = make_world(pump, frame, until).await?;
    let expression = script::installing(op);
    let evaluated = pump.cdp.call(Some(&frame.session), &in_world(&expression, &world), until).await?;
    let found = value(&evaluated)?.ok_or(Unanswered::Threw)?;
    pump.tabs().with_frame(&frame.session, &frame.id, |known| {
        if known.loader == frame.loader && known.world.is_none() {
            known.world = Some(World { installed: true, ..world });
        }
    });
    Ok(found)
}

/// Sends `op` and waits for its answer.
pub(crate) async fn run<T: DeserializeOwned>(pump: &Pump, frame: &Frame, op: &Op<'_>, until: Instant) -> Result<T, Unanswered> {
    let asked = ask(pump, frame, op, until).await;
    answer(pump, frame, asked, op, until).await
}

/// Sends `op` once and never again: for what changes the page. `Ok(None)`: our side is not there, nothing was done.
pub(crate) async fn run_once<T: DeserializeOwned>(
    pump: &Pump,
    frame: &Frame,
    op: &Op<'_>,
    until: Instant,
) -> Result<Option<T>, Unanswered> {
    let Some(world) = &frame.world else { return Ok(None) };
    let expression = script::expression(op);
    let evaluated = pump.cdp.call(Some(&frame.session), &in_world(&expression, world), until).await?;
    value(&evaluated)
}

/// Whether the page is the one in front.
pub(crate) async fn is_visible(pump: &Pump, frame: &Frame, until: Instant) -> Result<bool, Unanswered> {
    let expression = "({ok:document.visibilityState==='visible'})";
    let world = match &frame.world {
        Some(world) => world.clone(),
        None => make_world(pump, frame, until).await?,
    };
    let evaluated = pump.cdp.call(Some(&frame.session), &in_world(expression, &world), until).await?;
    Ok(value(&evaluated)?.unwrap_or(false))
}

/// The document's title.
pub(crate) async fn title(pump: &Pump, frame: &Frame, until: Instant) -> Result<String, Unanswered> {
    // Cut inside the page, which can make it as long as it likes.
    let expression = "({ok:String(document.title).slice(0,300).trim()})";
    let world = match &frame.world {
        Some(world) => world.clone(),
        None => make_world(pump, frame, until).await?,
    };
    let evaluated = pump.cdp.call(Some(&frame.session), &in_world(expression, &world), until).await?;
    Ok(value(&evaluated)?.unwrap_or_default())
}

/// The isolated world of a frame's document; asking for it twice gives the same one.
pub(crate) async fn make_world(pump: &Pump, frame: &Frame, until: Instant) -> Result<World, Unanswered> {
    let command = IsolatedWorld { frame_id: &frame.id, world_name: WORLD };
    let made = pump.cdp.call(Some(&frame.session), &command, until).await?;
    Ok(World { unique: "".into(), id: made.execution_context_id, installed: false })
}

/// What an expression of ours evaluated to.
pub(crate) fn value<T: DeserializeOwned>(evaluated: &Evaluated) -> Result<Option<T>, Unanswered> {
    if evaluated.exception_details.is_some() {
        return Err(Unanswered::Threw);
    }
    let value = evaluated.result.value.as_ref().ok_or(Unanswered::Threw)?;
    let answer: Answer<T> = decode(value.get().as_bytes()).ok_or(CdpError::Shape)?;
    Ok(answer.ok)
}

fn note_installed(pump: &Pump, frame: &Frame) {
    if frame.world.as_ref().is_some_and(|world| world.installed) {
        return;
    }
    pump.tabs().with_frame(&frame.session, &frame.id, |known| {
        if let (Some(known), Some(asked)) = (&mut known.world, &frame.world)
            && known.unique == asked.unique
        {
            known.installed = true;
        }
    });
}

/// Numbers of worlds may be used again, unique ids are not; a world that was made on asking is known by its number alone.
fn in_world<'a>(expression: &'a str, world: &'a World) -> Evaluate<'a> {
    let unique = (!world.unique.is_empty()).then_some(&*world.unique);
    let id = unique.is_none().then_some(world.id);
    Evaluate { expression, unique_context_id: unique, context_id: id, return_by_value: true, await_promise: true }
}
