//! Recovery: every open call gets its one true end (spine.md 10).

use std::time::Duration;

use formation_core::{Class, Execution, Outcome, Tool, refusal::Code};
use formation_store::{
    browser_sessions, instances, recovery,
    runs::{self, EndReason, RunState},
    sweep,
};
use formation_testkit::on_both_databases;

use crate::support::{Scene, session};

on_both_databases! {
    /// The whole table: how far it had come × what it could change → what is said about it.
    async fn every_open_call_gets_its_true_end(test) {
        let agent = test.agent("demo").await;
        let scene = Scene::for_agent(&test, agent).await;
        let mut expected = Vec::new();
        for (execution, tool, outcome) in [
            (Execution::Queued, Tool::BrowserRead, Outcome::NotDispatched),
            (Execution::Queued, Tool::BrowserAct, Outcome::NotDispatched),
            (Execution::Admitted, Tool::BrowserRead, Outcome::Interrupted),
            (Execution::Admitted, Tool::BrowserAct, Outcome::NotDispatched),
            (Execution::Dispatched, Tool::BrowserAct, Outcome::Uncertain),
        ] {
            let run = scene.sibling().await;
            let call = run.brought_to(execution, tool).await;
            assert_eq!(execution.after_crash(tool.class()), Some(outcome));
            expected.push((run, call, tool, outcome));
        }
        assert_eq!(recovery::run(&test.db).await, Ok(0), "nothing has lapsed yet");
        test.hands.forward(Duration::from_secs(21));
        assert_eq!(recovery::run(&test.db).await, Ok(5));
        for (run, call, tool, outcome) in expected {
            let stored = run.stored(call).await;
            assert_eq!((stored.execution, stored.outcome, stored.problem), (Execution::Failed, Some(outcome), Some(Code::HolderGone)), "{tool}");
            assert_eq!(stored.observation, None);
        }
        assert_eq!(test.number("SELECT count(*) FROM browser_sessions WHERE busy_call IS NOT NULL").await, 0);
        assert_eq!(test.number("SELECT count(*) FROM browser_sessions WHERE uncertain_call IS NOT NULL").await, 1);
        assert_eq!(recovery::run(&test.db).await, Ok(0), "once");
        assert_eq!(Class::ALL.len(), 2, "a third class needs its rows here");
    }

    /// A call's own bound counts too, whatever its holder says.
    async fn a_call_past_its_bound_lapses_under_a_living_holder(test) {
        let scene = Scene::new(&test).await;
        let (call, _) = scene.admitted(Tool::BrowserRead).await;
        instances::beat(&test.db, scene.holder, Duration::from_hours(1)).await.expect("alive");
        test.hands.forward(Duration::from_secs(49));
        assert_eq!(recovery::run(&test.db).await, Ok(0));
        test.hands.forward(Duration::from_secs(2));
        assert_eq!(recovery::run(&test.db).await, Ok(1));
        assert_eq!(scene.stored(call).await.outcome, Some(Outcome::Interrupted));
    }

    async fn a_heartbeat_keeps_calls_alive(test) {
        let scene = Scene::new(&test).await;
        scene.admitted(Tool::BrowserRead).await;
        for _ in 0..4 {
            test.hands.forward(Duration::from_secs(10));
            assert_eq!(instances::beat(&test.db, scene.holder, instances::LEASE).await, Ok(true));
            assert_eq!(recovery::run(&test.db).await, Ok(0));
        }
        instances::stop(&test.db, scene.holder).await.expect("stopped");
        assert_eq!(recovery::run(&test.db).await, Ok(1));
    }

    /// A session whose first browser never answered leaves no half-open row behind.
    async fn an_unopened_session_ends_with_its_call(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        scene.admit(scene.ask(call, Tool::BrowserNavigate)).await;
        test.hands.forward(Duration::from_secs(21));
        recovery::run(&test.db).await.expect("recovered");
        assert_eq!(browser_sessions::live(&test.db, scene.run).await, Ok(None));
        assert_eq!(test.texts("SELECT end_reason FROM browser_sessions").await, ["never_opened"]);
        let holder = test.instance().await;
        let (_, grant) = scene.held_by(&test, holder).admitted(Tool::BrowserNavigate).await;
        assert!(session(&grant).is_new, "the run may try again");
    }

    /// A browser that lived in a process that is gone takes its run with it; the run is not told yet.
    async fn a_browser_without_its_process_is_lost(test) {
        let scene = Scene::new(&test).await;
        let (call, _) = scene.admitted(Tool::BrowserRead).await;
        scene.settle(scene.finished(call, Tool::BrowserRead, Outcome::Ok)).await;
        assert_eq!(sweep::round(&test.db).await.expect("swept").homeless, 0);
        test.hands.forward(Duration::from_secs(21));
        assert_eq!(sweep::round(&test.db).await.expect("swept").homeless, 1);
        let run = runs::of_agent(&test.db, scene.agent, scene.run).await.expect("read").expect("there");
        assert_eq!((run.state, run.end_reason), (RunState::Over, Some(EndReason::SessionLost)));
        assert_eq!(test.texts("SELECT state FROM browser_sessions").await, ["closed"]);
        assert_eq!(test.number("SELECT count(*) FROM runs WHERE told_at IS NOT NULL").await, 0);
    }

    async fn a_gone_process_is_forgotten_when_nothing_hangs_on_it(test) {
        let scene = Scene::new(&test).await;
        scene.admitted(Tool::BrowserRead).await;
        test.hands.forward(Duration::from_hours(2));
        sweep::round(&test.db).await.expect("swept");
        sweep::round(&test.db).await.expect("swept");
        assert_eq!(test.number("SELECT count(*) FROM instances").await, 0);
        assert_eq!(instances::beat(&test.db, scene.holder, instances::LEASE).await, Ok(false), "and must not go on");
    }
}

/// SQLite: a new process holds the folder's lock, so the one before is gone and its calls are found at once.
#[test]
fn a_restart_on_sqlite_finds_what_was_left() {
    formation_testkit::databases::run(formation_testkit::databases::Backend::Sqlite, |test| async move {
        let scene = Scene::new(&test).await;
        let call = scene.brought_to(Execution::Dispatched, Tool::BrowserNavigate).await;
        let restarted = test.replica().await;
        restarted.instance().await;
        assert_eq!(recovery::run(&restarted.db).await, Ok(1));
        assert_eq!(scene.stored(call).await.outcome, Some(Outcome::Uncertain));
        assert_eq!(sweep::round(&restarted.db).await.expect("swept").homeless, 1);
    });
}

/// PostgreSQL: two replicas recover at once, and each call is ended once.
#[test]
fn two_replicas_recover_without_each_other() {
    formation_testkit::databases::run(formation_testkit::databases::Backend::Postgres, |test| async move {
        let scene = Scene::new(&test).await;
        for _ in 0..20 {
            scene.sibling().await.brought_to(Execution::Dispatched, Tool::BrowserAct).await;
        }
        test.hands.forward(Duration::from_secs(21));
        let other = test.replica().await;
        let (one, two) = tokio::join!(recovery::run(&test.db), recovery::run(&other.db));
        assert_eq!(one.expect("recovered") + two.expect("recovered"), 20);
    });
}
