//! Admission: once, on the offered terms, in its own session.

use std::{collections::BTreeSet, time::Duration};

use formation_core::{Binding, BrowserSessionId, Capability, Execution, Outcome, Scope, Tool, settings::Unavailable};
use formation_store::{
    Hold, StoreError,
    admission::{self, Admission, SessionAsk},
    browser_sessions,
    combine::Combiner,
    runs::{self, EndReason},
};
use formation_testkit::on_both_databases;
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use crate::support::{Scene, granted, reason, session};

on_both_databases! {
    /// L3: asking twice for the same call costs one admission.
    async fn a_repeated_admission_changes_nothing(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        let first = granted(scene.admit(scene.ask(call, Tool::BrowserNavigate)).await);
        let again = scene.admit(scene.ask(call, Tool::BrowserNavigate)).await;
        assert!(matches!(&again, Admission::Repeat(stored) if stored.id == call && stored.execution == Execution::Admitted));
        let twice = scene.queued(Tool::BrowserRead).await;
        let answers = scene.admit_all(vec![scene.ask(call, Tool::BrowserNavigate), scene.ask(call, Tool::BrowserNavigate)]).await;
        assert!(answers.expect("answers").iter().all(|answer| matches!(answer, Admission::Repeat(_))));
        assert_eq!(test.number("SELECT count(*) FROM evidence").await, 1);
        assert_eq!(test.number("SELECT operation FROM browser_sessions").await, session(&first).operation);
        assert_eq!(scene.stored(twice).await.execution, Execution::Queued);
    }

    /// W17, W19: a grant that changed is refused, and the call stays to be refused on record; a grant that is gone says so.
    async fn a_stale_offer_admits_nothing(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        scene.set_agent_mode("inherit", 1).await;
        assert_eq!(reason(&scene.admit(scene.ask(call, Tool::BrowserNavigate)).await), "grant_revoked");
        scene.set_agent_mode("disabled", 2).await;
        assert_eq!(reason(&scene.admit(scene.ask(call, Tool::BrowserNavigate)).await), "not_offered");
        assert_eq!(scene.rules.resolve_now(&test.db, scene.agent, Capability::Browser).await.expect("read").map(|_| ()), Err(Unavailable::Disabled));
        assert_eq!(scene.stored(call).await.execution, Execution::Queued);
        assert_eq!(test.number("SELECT count(*) FROM browser_sessions").await, 0);
        assert_eq!(test.number("SELECT count(*) FROM evidence").await, 0);
        // The same call on a fresh offer: the next call would do this.
        scene.set_agent_mode("inherit", 3).await;
        let fresh = scene.rules.resolve_now(&test.db, scene.agent, Capability::Browser).await.expect("read").expect("granted").binding;
        let scene = Scene { offer: scene.offer(&fresh).await, binding: fresh, ..scene };
        granted(scene.admit(scene.ask(call, Tool::BrowserNavigate)).await);
    }

    /// A session on older terms closes; the call on a fresh offer gets a new one in the same run.
    async fn a_session_on_other_terms_is_replaced(test) {
        let scene = Scene::new(&test).await;
        let (call, grant) = scene.admitted(Tool::BrowserRead).await;
        scene.set_agent_mode("inherit", 1).await;
        let fresh = scene.rules.resolve_now(&test.db, scene.agent, Capability::Browser).await.expect("read").expect("granted").binding;
        let renewed = Scene { offer: scene.offer(&fresh).await, binding: fresh.clone(), ..scene.clone() };
        let next = renewed.queued(Tool::BrowserRead).await;
        let while_busy = renewed.admit(renewed.ask(next, Tool::BrowserRead)).await;
        assert_eq!(while_busy, Admission::Busy, "an operation runs in the old one");
        scene.settle(scene.finished(call, Tool::BrowserRead, Outcome::Ok)).await;
        let new = session(&granted(renewed.admit(renewed.ask(next, Tool::BrowserRead)).await));
        assert!(new.is_new && new.id != session(&grant).id);
        let live = browser_sessions::live(&test.db, scene.run).await.expect("read").expect("live");
        assert_eq!((live.id, live.binding), (new.id, fresh));
        let closing = browser_sessions::to_close(&test.db, scene.holder).await.expect("read");
        assert_eq!(closing.iter().map(|closing| closing.id).collect::<Vec<_>>(), [session(&grant).id]);
    }

    async fn a_run_that_is_over_admits_nothing(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        let late = scene.queued(Tool::BrowserNavigate).await;
        let run = scene.run;
        test.db.write(move |tx| Box::pin(async move { runs::end(tx, run, EndReason::Cancelled).await })).await.expect("ended");
        let refused = scene.admit(scene.ask(call, Tool::BrowserNavigate)).await;
        assert_eq!(reason(&refused), "run_over");
        assert!(matches!(refused, Admission::Refused(refusal) if refusal.explanation.contains("an operator ended it")));
        test.hands.forward(Duration::from_hours(2));
        assert_eq!(reason(&scene.admit(scene.ask(late, Tool::BrowserNavigate)).await), "run_over");
        assert_eq!(test.number("SELECT count(*) FROM browser_sessions").await, 0, "and makes no session");
    }

    async fn a_deadline_counts_before_any_sweep(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        test.hands.forward(Duration::from_hours(1));
        assert_eq!(reason(&scene.admit(scene.ask(call, Tool::BrowserNavigate)).await), "run_over");
        assert_eq!(test.number("SELECT count(*) FROM browser_sessions").await, 0, "the session made for it is gone again");
    }

    async fn a_call_of_another_agent_or_run_fails_alone(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        let sibling = scene.sibling().await;
        let mut foreign = scene.ask(call, Tool::BrowserNavigate);
        foreign.run = sibling.run;
        // It is answered like a repeat: with the call as it stands, and nothing happens.
        assert!(matches!(scene.admit(foreign).await, Admission::Repeat(stored) if stored.execution == Execution::Queued));
        let missing = scene.ask(formation_core::CallId::fixed(1), Tool::BrowserNavigate);
        assert!(scene.admit_all(vec![missing]).await.is_err());
        granted(scene.admit(scene.ask(call, Tool::BrowserNavigate)).await);
    }

    /// One session a run: two calls of one batch, or of two, never hold it together.
    async fn one_call_holds_the_session(test) {
        let scene = Scene::new(&test).await;
        let (one, two) = (scene.queued(Tool::BrowserRead).await, scene.queued(Tool::BrowserRead).await);
        let answers = scene.admit_all(vec![scene.ask(one, Tool::BrowserRead), scene.ask(two, Tool::BrowserRead)]).await.expect("answers");
        assert!(matches!(answers[0], Admission::Granted(_)));
        assert_eq!(answers[1], Admission::Busy);
        assert_eq!(scene.admit(scene.ask(two, Tool::BrowserRead)).await, Admission::Busy);
        scene.settle(scene.finished(one, Tool::BrowserRead, Outcome::Ok)).await;
        let grant = granted(scene.admit(scene.ask(two, Tool::BrowserRead)).await);
        assert_eq!(session(&grant).operation, 2, "the fence rises");
    }

    /// Without a session an effect on an existing one is admitted without, and says so.
    async fn existing_makes_none(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserRead).await;
        let mut ask = scene.ask(call, Tool::BrowserRead);
        ask.session = SessionAsk::Existing;
        assert_eq!(granted(scene.admit(ask).await).session, None);
        assert_eq!(test.number("SELECT count(*) FROM browser_sessions").await, 0);
    }

    /// A holder whose lease ran out loses the session to the next; its late settle frees nothing of the next one's.
    async fn a_lapsed_holder_is_fenced(test) {
        let scene = Scene::new(&test).await;
        let (old, old_grant) = scene.admitted(Tool::BrowserRead).await;
        test.hands.forward(Duration::from_secs(25));
        let other = test.replica().await;
        let next_holder = scene.held_by(&other, other.instance().await);
        let (new, grant) = next_holder.admitted(Tool::BrowserRead).await;
        assert_eq!(session(&grant).operation, session(&old_grant).operation + 1);
        let late = scene.settle(scene.finished(old, Tool::BrowserRead, Outcome::Ok).with_refs(formation_core::view::RefNonce::stored("late"))).await;
        assert_eq!(late.call().outcome, Some(Outcome::Ok), "nobody had settled it");
        assert_eq!(test.texts("SELECT busy_call FROM browser_sessions").await, [new.to_string()], "the new holder's stays");
        assert_eq!(test.texts("SELECT refs FROM browser_sessions").await, [""], "and so do its refs");
    }

    /// An effect that lapsed while on record is in doubt before recovery says so.
    async fn a_lapsed_effect_is_in_doubt_at_once(test) {
        let scene = Scene::new(&test).await;
        let doubt = scene.brought_to(Execution::Dispatched, Tool::BrowserAct).await;
        test.hands.forward(Duration::from_secs(25));
        let holder = test.instance().await;
        let scene = scene.held_by(&test, holder);
        let call = scene.queued(Tool::BrowserAct).await;
        assert_eq!(reason(&scene.admit(scene.ask(call, Tool::BrowserAct)).await), "needs_reconciliation");
        let (read, _) = scene.admitted(Tool::BrowserRead).await;
        formation_store::recovery::run(&test.db).await.expect("recovered");
        assert_eq!(scene.stored(doubt).await.outcome, Some(Outcome::Uncertain));
        scene.settle(scene.finished(read, Tool::BrowserRead, Outcome::Ok)).await;
        assert_eq!(reason(&scene.admit(scene.ask(call, Tool::BrowserAct)).await), "needs_reconciliation");
    }

    /// Two replicas at one run: never two holders, whatever comes first.
    async fn two_replicas_never_hold_one_session(test) {
        let scene = Scene::new(&test).await;
        let other = test.replica().await;
        // On SQLite a second process would end the first one's lease; there the two handles stand for two calls of one.
        let holder = if test.file().is_some() { scene.holder } else { other.instance().await };
        let mut asks = Vec::new();
        for number in 0..24 {
            let scene = if number % 2 == 0 { scene.clone() } else { scene.held_by(&other, holder) };
            let call = scene.queued(Tool::BrowserRead).await;
            asks.push((scene, call));
        }
        let answers = futures::future::join_all(asks.iter().map(|(scene, call)| scene.admit(scene.ask(*call, Tool::BrowserRead)))).await;
        let held = answers.iter().filter(|answer| matches!(answer, Admission::Granted(_))).count();
        assert_eq!(held, 1, "{answers:?}");
        assert!(answers.iter().all(|answer| matches!(answer, Admission::Granted(_) | Admission::Busy)));
        assert_eq!(test.number("SELECT count(*) FROM tool_calls WHERE execution = 'admitted'").await, 1);
    }

    /// W17: admissions in flight on two replicas while settings are written under the exclusive lock: none at the old version
    /// commits after the write.
    async fn no_admission_outlives_a_settings_write(test) {
        let scene = Scene::new(&test).await;
        let other = test.replica().await;
        for round in 1..=6_i64 {
            let binding = scene.rules.resolve_now(&test.db, scene.agent, Capability::Browser).await.expect("read").expect("granted").binding;
            let mut asks = Vec::new();
            for number in 0..16 {
                let test = if number % 2 == 0 { &test } else { &other };
                let run = scene.sibling().await;
                let scene = Scene { test: test.clone(), binding: binding.clone(), ..run };
                let call = scene.queued(Tool::BrowserNavigate).await;
                asks.push((scene, call));
            }
            let combiners = [Combiner::start(test.db.clone(), scene.rules.clone()), Combiner::start(other.db.clone(), scene.rules.clone())];
            let admissions = asks.iter().enumerate().map(|(number, (scene, call))| {
                let mut ask = scene.ask(*call, Tool::BrowserNavigate);
                ask.offered = binding.clone();
                combiners[number % 2].admit(ask)
            });
            let write = settings_write(&scene, round);
            let (answers, written) = tokio::join!(futures::future::join_all(admissions), write);
            written.expect("the settings are written");
            let refused = answers.iter().filter(|answer| matches!(answer, Ok(Admission::Refused(_)))).count();
            let granted = answers.iter().filter(|answer| matches!(answer, Ok(Admission::Granted(_)))).count();
            assert_eq!(refused + granted, asks.len(), "{answers:?}");
            // The write noted how many were admitted when it held the lock: not one more has come since.
            let admitted = test.number("SELECT count(*) FROM tool_calls WHERE execution = 'admitted'").await;
            let noted = test.number(&format!("SELECT admitted FROM noted WHERE round = {round}")).await;
            assert_eq!(admitted, noted, "an admission at the old version after the write");
            test.meddle("UPDATE tool_calls SET execution = 'refused', settled_at = 1 WHERE execution IN ('queued')").await;
        }
    }

    /// Whatever comes at once, each call ends in one state, each session has at most one holder, and evidence equals admissions.
    async fn concurrent_admissions_keep_the_invariants(test) {
        let mut runner = TestRunner::new(ProptestConfig { cases: 12, ..ProptestConfig::default() });
        let scene = Scene::new(&test).await;
        let other = test.replica().await;
        for _ in 0..runner.config().cases {
            let plan = prop::collection::vec((0..4_usize, any::<bool>(), any::<bool>(), any::<bool>()), 1..24)
                .new_tree(&mut runner).expect("a plan").current();
            let mut runs = Vec::new();
            for _ in 0..4 {
                runs.push(scene.sibling().await);
            }
            let combiners = [Combiner::start(test.db.clone(), scene.rules.clone()), Combiner::start(other.db.clone(), scene.rules.clone())];
            let mut asks = Vec::new();
            for (run, is_effect, replica, is_stale) in &plan {
                let tool = if *is_effect { Tool::BrowserAct } else { Tool::BrowserRead };
                let call = runs[*run].queued(tool).await;
                let mut ask = runs[*run].ask(call, tool);
                if *is_stale {
                    ask.offered = Binding { agent_version: 77, ..ask.offered };
                }
                asks.push((usize::from(*replica), ask, *is_stale));
            }
            let answers = futures::future::join_all(asks.iter().map(|(replica, ask, _)| combiners[*replica].admit(ask.clone()))).await;
            let mut holding = BTreeSet::new();
            for ((_, ask, is_stale), answer) in asks.iter().zip(answers) {
                match answer.expect("the database answers") {
                    Admission::Granted(grant) => {
                        assert!(!is_stale, "admitted on stale terms: {plan:?}");
                        assert!(holding.insert(session(&grant).id), "two holders: {plan:?}");
                        assert_eq!(scene.stored(ask.call).await.execution, Execution::Admitted);
                    }
                    Admission::Refused(refusal) => assert!(*is_stale, "{refusal:?} {plan:?}"),
                    Admission::Busy => assert!(!is_stale),
                    Admission::Repeat(stored) => panic!("{stored:?} {plan:?}"),
                }
            }
        }
        assert_eq!(
            test.number("SELECT count(*) FROM evidence").await,
            test.number("SELECT count(*) FROM tool_calls WHERE execution = 'admitted'").await,
        );
    }
}

/// As a settings writer does it: exclusive lock, the row, and here a note of how many admissions there are at that moment.
async fn settings_write(scene: &Scene, round: i64) -> Result<(), StoreError> {
    scene.test.meddle("CREATE TABLE IF NOT EXISTS noted (round BIGINT, admitted BIGINT)").await;
    let (agent, meddling) = (scene.agent, scene.clone());
    if scene.test.file().is_some() {
        // One writer: the statements of one transaction by another connection.
        let sql = format!(
            "BEGIN IMMEDIATE; {}; INSERT INTO noted SELECT {round}, count(*) FROM tool_calls WHERE execution = 'admitted'; COMMIT",
            settings_row(scene, round)
        );
        scene.test.meddle(&sql).await;
        return Ok(());
    }
    scene
        .test
        .db
        .write(move |tx| {
            Box::pin(async move {
                tx.lock_scope(Scope::Agent(agent), Hold::Exclusive).await?;
                // The lock is this transaction's; the row is committed by another connection before it is let go.
                let row = settings_row(&meddling, round);
                meddling.test.meddle(&row).await;
                let note = format!("INSERT INTO noted SELECT {round}, count(*) FROM tool_calls WHERE execution = 'admitted'");
                meddling.test.meddle(&note).await;
                Ok(())
            })
        })
        .await
}

fn settings_row(scene: &Scene, round: i64) -> String {
    let agent = scene.agent;
    format!(
        "INSERT INTO capability_settings (scope, agent_id, capability, mode, config, version, updated_at, updated_by) \
         VALUES ('agent:{agent}', '{agent}', 'browser', 'inherit', '{{}}', {round}, 0, 'test') \
         ON CONFLICT (scope, capability) DO UPDATE SET version = excluded.version"
    )
}

/// The lock order over a batch is by key, so two batches of the same runs in opposite order end.
#[test]
fn opposite_batches_on_two_replicas_both_end() {
    formation_testkit::databases::run(formation_testkit::databases::Backend::Postgres, |test| async move {
        let scene = Scene::new(&test).await;
        let other = test.replica().await;
        for _ in 0..20 {
            let (one, two) = (scene.sibling().await, scene.sibling().await);
            let mut batches = [Vec::new(), Vec::new()];
            for run in [&one, &two] {
                for batch in &mut batches {
                    let call = run.queued(Tool::BrowserRead).await;
                    let mut ask = run.ask(call, Tool::BrowserRead);
                    ask.session = SessionAsk::ExistingOrNew(BrowserSessionId::parse(&call.to_string()).expect("an id"));
                    batch.push(ask);
                }
            }
            let [forward, mut backward] = batches;
            backward.reverse();
            let (rules, others) = (scene.rules.clone(), scene.rules.clone());
            let first = test.db.write(move |tx| Box::pin(async move { admission::admit(tx, &rules, &forward).await }));
            let second = other.db.write(move |tx| Box::pin(async move { admission::admit(tx, &others, &backward).await }));
            let (first, second) = tokio::join!(first, second);
            let (first, second) = (first.expect("no deadlock"), second.expect("no deadlock"));
            let held = first.iter().chain(&second).filter(|answer| matches!(answer, Admission::Granted(_))).count();
            assert_eq!(held, 2, "each run's session has one holder");
        }
    });
}
