//! An effect in three steps: [`prepare`] checks and sends no input, [`Prepared::dispatch`] sends, [`Dispatched::observe`] looks.
//!
//! Each step consumes the one before, so an effect is sent once. What a failure means follows from the step it happened in
//! (browser.md 1.6): refused in `prepare`, nothing was sent; from the first input command until its acknowledgement is known, it
//! may have happened; in `observe` it has.

use std::{fmt, sync::Arc};

use formation_core::{
    Permit,
    arguments::{Action, Chord, Consent},
    failure::{BrowserStage, Phase, Reason, Refused},
    view::{Note, PageView, RefNonce},
};
use tokio::time::Instant;
use url::Url;

use crate::{
    DispatchError, Effect, Look,
    aim::{self, Spot, Target, refused},
    evaluate,
    input::{self, Sent},
    live::{Live, Shown},
    look, navigate,
    pump::Pump,
    script::{Done, Kind, Op},
    settle::{self, Rest},
    tabs::Frame,
};

/// Time kept for the look at the end of an operation.
const LOOK: std::time::Duration = std::time::Duration::from_millis(1_500);

/// An effect that passed every check. Dropping it sends nothing.
#[must_use = "nothing is sent before `dispatch`"]
pub struct Prepared<'l> {
    live: &'l mut Live,
    plan: Plan,
    dialog: Option<Consent>,
    deadline: Instant,
}

enum Plan {
    Navigate { shown: Box<Shown>, url: Url },
    Click { target: Box<Target>, spot: Spot },
    Insert { target: Box<Target>, text: String },
    Assign { target: Box<Target>, value: String },
    Press { target: Box<Target>, chord: Chord },
}

/// An effect of which every command was acknowledged.
#[must_use = "the page has not been looked at yet"]
pub struct Dispatched<'l> {
    live: &'l mut Live,
    done: Finished,
    policy: DialogPolicy,
    since: Instant,
    deadline: Instant,
}

enum Finished {
    Navigated { url: Url },
    Acted { typed: Option<Typed>, notes: Vec<Note> },
}

/// A field and what it should hold once the page is at rest.
struct Typed {
    frame: Frame,
    reference: String,
    text: String,
}

/// What dialogs are answered while an effect is on its way; ends with it.
#[derive(Debug)]
struct DialogPolicy(Arc<Pump>);

impl DialogPolicy {
    fn of(pump: &Arc<Pump>, consent: Option<Consent>, leaving: bool) -> Self {
        let mut tabs = pump.tabs();
        tabs.consent = consent;
        tabs.leaving = leaving;
        drop(tabs);
        Self(pump.clone())
    }
}

impl Drop for DialogPolicy {
    fn drop(&mut self) {
        let mut tabs = self.0.tabs();
        tabs.consent = None;
        tabs.leaving = false;
    }
}

impl fmt::Debug for Prepared<'_> {
    /// Without what it types.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared")
    }
}

impl fmt::Debug for Dispatched<'_> {
    /// Without what was typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dispatched")
    }
}

/// Finds the target and checks everything; sends no input. `refs` is the nonce that is valid by the record, `None` when every ref
/// is stale; `deadline` bounds the whole operation, its look included.
pub async fn prepare<'l>(
    live: &'l mut Live,
    effect: Effect,
    refs: Option<&RefNonce>,
    deadline: Instant,
) -> Result<Prepared<'l>, Refused> {
    if live.is_lost() {
        return Err(Refused::new(BrowserStage::BrowserConnection, Phase::Connect, Reason::SessionLost));
    }
    let (plan, dialog) = match effect {
        Effect::Navigate { url } => (prepare_navigation(live, url, deadline).await?, None),
        Effect::Act { action, dialog } => {
            let plan = Box::pin(prepare_action(live, action, refs, deadline)).await;
            let plan = plan.map_err(|refused| Refused { reason: look::wedged(live, refused.reason), ..refused })?;
            (plan, dialog)
        }
    };
    Ok(Prepared { live, plan, dialog, deadline })
}

async fn prepare_navigation(live: &Live, url: Url, deadline: Instant) -> Result<Plan, Refused> {
    let refused = |phase, reason| Refused::new(BrowserStage::Navigation, phase, reason);
    if !url.host_str().is_some_and(|host| live.rules.hosts.allows(host)) {
        return Err(refused(Phase::Check, Reason::HostnameNotAllowed));
    }
    let shown = live.shown(deadline).await.map_err(|reason| refused(Phase::Attach, reason))?;
    Ok(Plan::Navigate { shown: Box::new(shown), url })
}

async fn prepare_action(live: &Live, action: Action, refs: Option<&RefNonce>, deadline: Instant) -> Result<Plan, Refused> {
    let check = |reason| refused(Phase::Check, reason);
    let target = Box::new(aim::find(live, action.reference(), refs, deadline).await?);
    aim::bring_to_front(live, &target.shown, deadline).await.map_err(check)?;
    let spot = aim::spot(live, &target, deadline).await.map_err(check)?;
    if target.located.disabled {
        return Err(check(Reason::TargetDisabled));
    }
    match action {
        Action::Click { .. } => Ok(Plan::Click { target, spot }),
        Action::Type { text, .. } => {
            let kind = target.located.kind;
            match kind {
                Kind::Other => return Err(check(Reason::WrongTargetType)),
                _ if target.located.readonly => return Err(check(Reason::ReadOnly)),
                Kind::Select | Kind::Assign => return Ok(Plan::Assign { target, value: text }),
                Kind::Line | Kind::Lines | Kind::Region => focus(live, &target, deadline).await?,
            }
            Ok(Plan::Insert { target, text })
        }
        Action::Press { chord, .. } => {
            focus(live, &target, deadline).await?;
            Ok(Plan::Press { target, chord })
        }
    }
}

async fn focus(live: &Live, target: &Target, deadline: Instant) -> Result<(), Refused> {
    let op = Op::Focus { reference: &target.reference };
    let until = live.command_until(deadline);
    let done: Done =
        evaluate::run(&live.pump, &target.frame, &op, until).await.map_err(|error| refused(Phase::Check, error.reason()))?;
    aim::stands(done.standing).map_err(|reason| refused(Phase::Check, reason))?;
    if done.done { Ok(()) } else { Err(refused(Phase::Check, Reason::FocusMoved)) }
}

impl<'l> Prepared<'l> {
    /// Sends it. `permit` proves that the effect is on record; a stale one sends nothing.
    pub async fn dispatch(self, permit: Permit) -> Result<Dispatched<'l>, DispatchError> {
        let Self { live, plan, dialog, deadline } = self;
        if !permit.use_at(std::time::Instant::now()) {
            return Err(DispatchError::NothingSent(Reason::Timeout));
        }
        let policy = DialogPolicy::of(&live.pump, dialog, matches!(plan, Plan::Navigate { .. }));
        let done = Box::pin(send(live, plan, deadline)).await;
        let (done, since) = done.map_err(|error| match error {
            DispatchError::Unknown(reason) => DispatchError::Unknown(look::wedged(live, reason)),
            error => error,
        })?;
        // From here on the page moves by itself, and what it asks is its own business again.
        live.pump.tabs().leaving = false;
        Ok(Dispatched { live, done, policy, since, deadline })
    }
}

/// What was done, and when its last command was acknowledged.
async fn send(live: &Live, plan: Plan, deadline: Instant) -> Result<(Finished, Instant), DispatchError> {
    Ok(match plan {
        Plan::Navigate { shown, url } => {
            navigate::go(live, &shown, &url, deadline).await?;
            (Finished::Navigated { url }, Instant::now())
        }
        Plan::Click { target, spot } => {
            let Sent { notes, acknowledged } = input::click(live, &target, spot, deadline).await?;
            (Finished::Acted { typed: None, notes }, acknowledged)
        }
        Plan::Insert { target, text } => {
            let Sent { notes, acknowledged } = input::insert(live, &target, &text, deadline).await?;
            let typed = Typed { frame: target.frame, reference: target.reference, text };
            (Finished::Acted { typed: Some(typed), notes }, acknowledged)
        }
        Plan::Assign { target, value } => {
            let Sent { notes, acknowledged } = input::assign(live, &target, &value, deadline).await?;
            let typed = Typed { frame: target.frame, reference: target.reference, text: value };
            (Finished::Acted { typed: Some(typed), notes }, acknowledged)
        }
        Plan::Press { target, chord } => {
            let Sent { notes, acknowledged } = input::press(live, &target, chord, deadline).await?;
            (Finished::Acted { typed: None, notes }, acknowledged)
        }
    })
}

impl Dispatched<'_> {
    /// Waits for the page to come to rest and looks at it; refs are `nonce`'s.
    pub async fn observe(self, nonce: RefNonce) -> Result<PageView, Refused> {
        let Self { live, done, policy, since, deadline } = self;
        let timing = &live.rules.timing;
        let bound = (since + timing.settle_bound).min(deadline.checked_sub(LOOK).unwrap_or(deadline));
        let (stage, rest) = match done {
            Finished::Navigated { .. } => {
                (BrowserStage::Navigation, Rest { floor: since, stable: timing.navigation_stable, bound })
            }
            Finished::Acted { .. } => {
                (BrowserStage::Input, Rest { floor: since + timing.action_floor, stable: timing.action_stable, bound })
            }
        };
        let changing = Box::pin(settle::settle(live, rest)).await.map_err(|reason| Refused::new(stage, Phase::Settle, reason))?;
        let mut notes = Vec::new();
        if let Finished::Acted { typed, notes: seen } = &done {
            notes.clone_from(seen);
            if let Some(typed) = typed
                && differs(live, typed, deadline).await
                && !notes.contains(&Note::ValueDiffers)
            {
                notes.push(Note::ValueDiffers);
            }
        }
        let mut view = Box::pin(look::view(live, &Look::default(), nonce, deadline)).await?;
        drop(policy);
        view.page_changing = changing;
        for note in notes {
            if !view.notes.contains(&note) {
                view.notes.push(note);
            }
        }
        if let Finished::Navigated { url } = done {
            view.navigation = Some(navigate::told(&url, &view.page.url));
        }
        Ok(view)
    }
}

/// Whether a field that is still there holds something else than was typed.
async fn differs(live: &Live, typed: &Typed, deadline: Instant) -> bool {
    let op = Op::Holds { reference: &typed.reference, text: &typed.text };
    let until = live.command_until(deadline);
    match evaluate::run_once::<Done>(&live.pump, &typed.frame, &op, until).await {
        Ok(Some(held)) => aim::stands(held.standing).is_ok() && !held.done,
        // The document is gone, and the field with it.
        _ => false,
    }
}
