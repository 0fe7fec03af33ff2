//! what an outcome says is true. Each input command of each action meets each fault, and what the driver says is compared
//! with what a browser saw. R-14: a browser that sends nonsense ends one call at most.

use std::time::Duration;

use formation_browser::{DispatchError, Effect, Live, Look, look, prepare};
use formation_core::{
    CallId, Permit,
    arguments::{Action, Chord},
    failure::Reason,
    view::RefNonce,
};
use tokio::time::Instant;

use crate::support::{
    drive::{Ended, deadline, permit},
    fake::{self, At, Fault},
};

fn actions() -> Vec<(Effect, usize)> {
    let reference = "n1.0".to_owned();
    let act = |action| Effect::Act { action, dialog: None };
    let press = |key: &str| act(Action::Press { reference: reference.clone(), chord: Chord::parse(key).expect("a chord") });
    vec![
        (act(Action::Click { reference: reference.clone() }), 3),
        (act(Action::Type { reference: reference.clone(), text: "words".into() }), 1),
        (press("Enter"), 2),
        (press("Control+Shift+a"), 6),
    ]
}

async fn run(live: &mut Live, effect: Effect, refs: &RefNonce, until: Instant) -> Ended {
    let prepared = match prepare(live, effect, Some(refs), until).await {
        Ok(prepared) => prepared,
        Err(refused) => return Ended::NotDispatched(refused.reason),
    };
    match prepared.dispatch(permit()).await {
        Err(DispatchError::NothingSent(reason)) => Ended::NotDispatched(reason),
        Err(DispatchError::Known(reason)) => Ended::Failed(reason),
        Err(DispatchError::Unknown(reason)) => Ended::Uncertain(reason),
        Ok(dispatched) => match dispatched.observe(RefNonce::stored("n2")).await {
            Ok(view) => Ended::Ok(Box::new(view)),
            Err(refused) => Ended::InputDispatched(refused),
        },
    }
}

#[tokio::test]
async fn bar_r15_outcomes_are_true_at_every_command() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for (effect, commands) in actions() {
        for k in 1..=commands {
            for fault in [Fault::Reject, Fault::Silence, Fault::CutBefore, Fault::CutAfter, Fault::Crash, Fault::Oversize] {
                let (mut live, nonce, heard) = fake::session(vec![At("Input.", k, fault)]).await;
                let until = Instant::now() + Duration::from_millis(if fault == Fault::Silence { 400 } else { 20_000 });
                let ended = run(&mut live, effect.clone(), &nonce, until).await;
                let is_last = k == commands;
                let right = match (&ended, fault) {
                    (Ended::NotDispatched(_), Fault::Reject) => k == 1,
                    (Ended::InputDispatched(_), Fault::CutAfter) => is_last,
                    (Ended::Uncertain(_), Fault::CutAfter) => !is_last,
                    (Ended::Uncertain(_), Fault::Reject) => k > 1,
                    (Ended::Uncertain(reason), Fault::Crash) => *reason == Reason::PageCrashed,
                    (Ended::Uncertain(_), _) => true,
                    _ => false,
                };
                cases += 1;
                if !right || heard.count("Input.") < k {
                    wrong.push(format!("{effect:?} command {k} {fault:?}: {ended:?}"));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "of {cases}");
}

#[tokio::test]
async fn what_goes_down_is_let_go_on_every_way_out() {
    let (mut live, nonce, heard) = fake::session(vec![At("Input.", 3, Fault::Reject)]).await;
    let (effect, _) = actions().remove(3);
    let ended = run(&mut live, effect, &nonce, deadline()).await;
    assert!(matches!(ended, Ended::Uncertain(_)), "{ended:?}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    // Two modifiers and the refused key down; the key and both modifiers up.
    assert_eq!(heard.count("Input.dispatchKeyEvent"), 6);
}

#[tokio::test]
async fn an_untouched_action_ends_well_and_a_stale_permit_sends_nothing() {
    for (effect, commands) in actions() {
        let (mut live, nonce, heard) = fake::session(Vec::new()).await;
        let ended = run(&mut live, effect.clone(), &nonce, deadline()).await;
        assert!(matches!(ended, Ended::Ok(_)), "{ended:?}");
        assert_eq!(heard.count("Input."), commands);

        let (mut live, nonce, heard) = fake::session(Vec::new()).await;
        let prepared = prepare(&mut live, effect, Some(&nonce), deadline()).await.expect("it can be done");
        let stale = Permit::recorded(CallId::fixed(1), std::time::Instant::now());
        let error = prepared.dispatch(stale).await.expect_err("the permit is stale");
        assert!(matches!(error, DispatchError::NothingSent(_)), "{error:?}");
        assert_eq!(heard.count("Input."), 0);
    }
}

#[tokio::test]
async fn reads_go_on_after_an_unknown_outcome() {
    let (mut live, nonce, _) = fake::session(vec![At("Input.", 2, Fault::Silence)]).await;
    let (effect, _) = actions().remove(0);
    let ended = run(&mut live, effect, &nonce, Instant::now() + Duration::from_millis(300)).await;
    assert!(matches!(ended, Ended::Uncertain(Reason::Timeout)), "{ended:?}");
    look(&mut live, Look::default(), RefNonce::stored("n3"), deadline()).await.expect("it can be looked at");
}

#[tokio::test]
async fn navigations_are_judged_by_what_is_known() {
    let go = || Effect::Navigate { url: "http://fake.test/next".parse().expect("a URL") };
    // The fake's `stopLoading` doesn't make it answer: then nothing is known.
    let cases = [
        (vec![At("Page.navigate", 1, Fault::Silence)], Some(Reason::Timeout)),
        (vec![At("Page.navigate", 1, Fault::CutBefore)], Some(Reason::SessionLost)),
        (vec![At("Page.navigate", 1, Fault::Crash)], Some(Reason::PageCrashed)),
        (vec![At("Page.navigate", 1, Fault::Oversize)], Some(Reason::ProtocolError)),
    ];
    for (faults, reason) in cases {
        let (mut live, nonce, heard) = fake::session(faults).await;
        let ended = run(&mut live, go(), &nonce, deadline()).await;
        assert!(matches!(&ended, Ended::Uncertain(why) if Some(*why) == reason), "{ended:?}");
        assert_eq!(heard.count("Page.navigate"), 1);
    }
    let (mut live, nonce, _) = fake::session(vec![At("Page.navigate", 1, Fault::Reject)]).await;
    assert!(matches!(run(&mut live, go(), &nonce, deadline()).await, Ended::NotDispatched(_)));
    let (mut live, nonce, _) = fake::session(vec![At("Page.navigate", 1, Fault::CutAfter)]).await;
    assert!(matches!(run(&mut live, go(), &nonce, deadline()).await, Ended::InputDispatched(_)));
}

#[tokio::test]
async fn r14_nonsense_between_the_answers_changes_nothing() {
    for method in ["Runtime.evaluate", "Page.bringToFront", "Input."] {
        let (mut live, nonce, _) = fake::session((2..6).map(|count| At(method, count, Fault::Noise)).collect()).await;
        for (effect, _) in actions() {
            let ended = run(&mut live, effect, &nonce, deadline()).await;
            assert!(matches!(ended, Ended::Ok(_)), "{method}: {ended:?}");
            look(&mut live, Look::default(), nonce.clone(), deadline()).await.expect("it can be looked at");
        }
    }
}

#[tokio::test]
async fn r14_a_message_without_end_ends_one_look() {
    let (mut live, nonce, _) = fake::session(vec![At("Runtime.evaluate", 2, Fault::Oversize)]).await;
    let refused = look(&mut live, Look::default(), nonce.clone(), deadline()).await.expect_err("no answer came");
    assert_eq!(refused.reason, Reason::ProtocolError);
    look(&mut live, Look::default(), nonce, deadline()).await.expect("the next one works");
}

#[tokio::test]
async fn a_silent_browser_cannot_be_attached_and_hangs_nothing() {
    let (wire, _) = fake::start(vec![At("Browser.getVersion", 1, Fault::CutBefore)]);
    let refused = Live::attach(wire, fake::quick()).await.expect_err("it hung up");
    assert_eq!(refused.reason, Reason::SessionLost);
    let (mut live, nonce, _) = fake::session(vec![At("Runtime.evaluate", 2, Fault::Crash)]).await;
    let refused = look(&mut live, Look::default(), nonce.clone(), deadline()).await.expect_err("the page died");
    assert_eq!(refused.reason, Reason::PageCrashed);
    let refused = look(&mut live, Look::default(), nonce, deadline()).await.expect_err("it stays dead");
    assert_eq!(refused.reason, Reason::PageCrashed);
}
