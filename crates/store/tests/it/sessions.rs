//! Browser sessions after admission: opened, lost, closed, outdated.

use std::time::Duration;

use formation_core::{Execution, Outcome, Tool};
use formation_store::{
    admission::Admission,
    browser_sessions::{self, SessionEnd, SessionState, Whereabouts},
    runs::{self, Behind, Door, EndReason, Knock, Purpose},
    sweep,
};
use formation_testkit::on_both_databases;

use crate::support::{Scene, granted, session};

on_both_databases! {
    async fn only_the_newest_acquisition_opens_a_session(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        let grant = session(&granted(scene.admit(scene.ask(call, Tool::BrowserNavigate)).await));
        let mut stale = grant.clone();
        stale.operation -= 1;
        let at = || Whereabouts { remote: Some("{}".into()), home: Some(scene.holder), page: Some("page-1".into()) };
        assert_eq!(browser_sessions::opened(&test.db, &stale, at()).await, Ok(false));
        assert_eq!(browser_sessions::opened(&test.db, &grant, at()).await, Ok(true));
        assert_eq!(browser_sessions::opened(&test.db, &grant, at()).await, Ok(false), "once");
        assert_eq!(browser_sessions::page_is(&test.db, &grant, "page-2".into()).await, Ok(true));
        let live = browser_sessions::live(&test.db, scene.run).await.expect("read").expect("live");
        assert_eq!((live.state, live.home, live.page.as_deref()), (SessionState::Open, Some(scene.holder), Some("page-2")));
    }

    async fn a_browser_that_never_answered_can_be_tried_again(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        let grant = session(&granted(scene.admit(scene.ask(call, Tool::BrowserNavigate)).await));
        assert_eq!(browser_sessions::never_opened(&test.db, &grant).await, Ok(true));
        scene.settle(scene.finished(call, Tool::BrowserNavigate, Outcome::NotDispatched)).await;
        let (_, again) = scene.admitted(Tool::BrowserNavigate).await;
        assert!(session(&again).is_new && session(&again).id != grant.id);
    }

    /// B19: a lost browser ends its run; the call that met it tells it, and the door opens a successor without another word.
    async fn a_lost_browser_ends_its_run(test) {
        let agent = test.agent("demo").await;
        let token = test.token(agent).await;
        let knock = |purpose| Knock {
            agent, token, door: Door::Current, conversation: None, purpose, idle_after: Duration::from_mins(15),
        };
        let behind = |purpose| { let knock = knock(purpose); test.db.write(move |tx| Box::pin(async move { runs::behind(tx, &knock).await })) };
        for told in [true, false] {
            let Ok(Behind::Open { run, .. }) = behind(Purpose::Call).await else { panic!("an open run") };
            let scene = Scene { run: run.id, ..Scene::for_agent(&test, agent).await };
            let (call, grant) = scene.admitted(Tool::BrowserRead).await;
            assert_eq!(browser_sessions::lost(&test.db, session(&grant).id, told).await, Ok(true));
            assert_eq!(browser_sessions::lost(&test.db, session(&grant).id, told).await, Ok(false), "once");
            scene.settle(scene.finished(call, Tool::BrowserRead, Outcome::Failed)).await;
            test.hands.forward(Duration::from_millis(1));
            let next = behind(Purpose::Call).await.expect("the door answers");
            if told {
                assert!(matches!(next, Behind::Open { announce: true, .. }), "{next:?}");
            } else {
                assert!(matches!(next, Behind::Over { reason: EndReason::SessionLost, .. }), "{next:?}");
            }
        }
    }

    /// The remote side is closed after the operation under way, is tried again further and further apart, and ends.
    async fn closing_waits_for_the_operation_and_is_tried_again(test) {
        let scene = Scene::new(&test).await;
        let (call, grant) = scene.admitted(Tool::BrowserRead).await;
        let run = scene.run;
        test.db.write(move |tx| Box::pin(async move { runs::end(tx, run, EndReason::Cancelled).await })).await.expect("ended");
        let due = || async { browser_sessions::to_close(&test.db, scene.holder).await.expect("read") };
        assert_eq!(due().await, [], "its operation is under way");
        scene.settle(scene.finished(call, Tool::BrowserRead, Outcome::Ok)).await;
        let closing = due().await;
        assert_eq!(closing.len(), 1);
        assert_eq!((closing[0].id, closing[0].end_reason), (session(&grant).id, Some(SessionEnd::RunOver)));
        let elsewhere = browser_sessions::to_close(&test.db, formation_core::InstanceId::fixed(3)).await;
        assert_eq!(elsewhere, Ok(Vec::new()), "another process can't close it");
        for (attempts, seconds) in [(0, 1), (1, 2), (2, 4)] {
            browser_sessions::close_failed(&test.db, closing[0].id, attempts).await.expect("noted");
            assert_eq!(due().await, []);
            test.hands.forward(Duration::from_secs(seconds));
            assert_eq!(due().await[0].close_attempts, attempts + 1);
        }
        browser_sessions::close_failed(&test.db, closing[0].id, 60).await.expect("noted");
        test.hands.forward(Duration::from_mins(5));
        assert_eq!(due().await.len(), 1, "at most five minutes apart");
        assert_eq!(browser_sessions::closed(&test.db, closing[0].id).await, Ok(true));
        assert_eq!(due().await, []);
        assert_eq!(browser_sessions::closed(&test.db, closing[0].id).await, Ok(false));
    }

    /// W12: a session whose grant is another one now is closed; one whose grant stands isn't.
    async fn outdated_sessions_are_closed(test) {
        let scene = Scene::new(&test).await;
        scene.admitted(Tool::BrowserRead).await;
        assert_eq!(browser_sessions::close_outdated(&test.db, &scene.rules).await, Ok(0));
        scene.set_agent_mode("disabled", 1).await;
        assert_eq!(browser_sessions::close_outdated(&test.db, &scene.rules).await, Ok(1));
        assert_eq!(browser_sessions::live(&test.db, scene.run).await, Ok(None));
        assert_eq!(browser_sessions::close_outdated(&test.db, &scene.rules).await, Ok(0));
    }

    async fn browsers_of_runs_that_are_over_are_swept(test) {
        let scene = Scene::new(&test).await;
        scene.brought_to(Execution::Admitted, Tool::BrowserRead).await;
        // As if the end had missed it.
        test.meddle(&format!("UPDATE runs SET state = 'over', ended_at = 1, end_reason = 'finished' WHERE id = '{}'", scene.run)).await;
        assert_eq!(sweep::round(&test.db).await.expect("swept").left_over, 1);
        let call = scene.sibling().await;
        let queued = call.queued(Tool::BrowserRead).await;
        assert!(matches!(call.admit(call.ask(queued, Tool::BrowserRead)).await, Admission::Granted(_)));
    }
}
