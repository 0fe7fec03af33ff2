//! The ledger: on record once, settled once.

use std::{sync::Arc, time::Duration};

use formation_core::{
    Execution, Observation, Outcome, Tool,
    call::Finding,
    limits,
    people::Actor,
    refusal::{Code, Refusal, RefusalReason},
    view::RefNonce,
};
use formation_store::{
    admission::Admission,
    artifacts::{self, Artifact, Picture},
    browser_sessions, evidence,
    ledger::{self, Queued, Reconciled, Settle, Settled},
    seal::MasterKeys,
};
use formation_testkit::on_both_databases;
use serde_json::json;

use crate::support::{Scene, granted, reason, session};

fn keys() -> MasterKeys {
    let text = MasterKeys::generate(&formation_core::Entropy::counting(7));
    MasterKeys::parse(std::str::from_utf8(text.expose()).expect("text")).expect("its own form")
}

on_both_databases! {
    /// 500 ids, each submitted 64 times at once, are 500 calls; the same ids with other arguments are refused.
    async fn bar_r02_one_id_one_call(test) {
        let scene = Arc::new(Scene::new(&test).await);
        let mut submissions = tokio::task::JoinSet::new();
        let gate = Arc::new(tokio::sync::Semaphore::new(512));
        for number in 0..500_u32 {
            for _ in 0..64 {
                let (scene, gate) = (Arc::clone(&scene), Arc::clone(&gate));
                submissions.spawn(async move {
                    let _place = gate.acquire().await.expect("open");
                    let new = scene.call(Some(&format!("key-{number}")), Tool::BrowserNavigate, json!({"url": format!("http://a.test/{number}")}));
                    match scene.try_queue(new).await.expect("the database answers") {
                        Queued::Fresh(id) => (number, id, true),
                        Queued::Known(call) => (number, call.id, false),
                        other => panic!("{other:?}"),
                    }
                });
            }
        }
        let mut answers = std::collections::BTreeMap::new();
        let mut fresh = 0;
        while let Some(answer) = submissions.join_next().await {
            let (number, id, is_fresh) = answer.expect("no panic");
            fresh += u32::from(is_fresh);
            assert_eq!(*answers.entry(number).or_insert(id), id, "equal answers");
        }
        assert_eq!((fresh, answers.len()), (500, 500));
        assert_eq!(test.number("SELECT count(*) FROM tool_calls WHERE execution = 'queued'").await, 500);
        assert_eq!(test.number("SELECT calls_used FROM runs").await, 500);
        for number in 0..500_u32 {
            let new = scene.call(Some(&format!("key-{number}")), Tool::BrowserNavigate, json!({"url": "http://b.test/"}));
            assert_eq!(scene.try_queue(new).await.expect("answers"), Queued::OtherArguments);
        }
        assert_eq!(test.number("SELECT count(*) FROM tool_calls").await, 500);
    }

    /// The key is the agent's, over all its runs, and another agent's same word is another key.
    async fn a_key_is_the_agents_own(test) {
        let scene = Scene::new(&test).await;
        let new = scene.call(Some("word"), Tool::BrowserRead, json!({}));
        let Queued::Fresh(id) = scene.try_queue(new).await.expect("queued") else { panic!("not fresh") };
        let later = scene.sibling().await;
        let known = later.try_queue(later.call(Some("word"), Tool::BrowserRead, json!({}))).await.expect("queued");
        assert!(matches!(known, Queued::Known(call) if call.id == id && call.run == scene.run));
        let other_tool = later.try_queue(later.call(Some("word"), Tool::BrowserScreenshot, json!({}))).await.expect("queued");
        assert_eq!(other_tool, Queued::OtherArguments);

        let stranger = test.agent("stranger").await;
        let run = test.run(stranger).await;
        let mut theirs = scene.call(Some("word"), Tool::BrowserRead, json!({}));
        (theirs.agent, theirs.run) = (stranger, run);
        assert!(matches!(scene.try_queue(theirs).await.expect("queued"), Queued::Fresh(other) if other != id));
        assert_eq!(ledger::call(&test.db, stranger, id).await, Ok(None), "another agent's call isn't found");
        assert_eq!(ledger::call_of_run(&test.db, run, id).await, Ok(None));
        assert_eq!(ledger::by_key(&test.db, scene.agent, "word").await.expect("read").map(|call| call.id), Some(id));
    }

    async fn a_run_of_another_agent_takes_no_call(test) {
        let scene = Scene::new(&test).await;
        let mut new = scene.call(None, Tool::BrowserRead, json!({}));
        new.agent = test.agent("stranger").await;
        assert!(scene.try_queue(new).await.is_err());
        assert_eq!(test.number("SELECT count(*) FROM tool_calls").await, 0);
    }

    /// Settled rows never change, whoever comes and with what.
    async fn a_settled_call_never_changes(test) {
        let scene = Scene::new(&test).await;
        let (call, grant) = scene.admitted(Tool::BrowserRead).await;
        let first = scene.settle(scene.finished(call, Tool::BrowserRead, Outcome::Ok)).await;
        assert!(matches!(&first, Settled::Stored(_)));
        let stored = scene.stored(call).await;
        for (execution, outcome) in [(Execution::Succeeded, Outcome::Failed), (Execution::Failed, Outcome::Interrupted)] {
            let mut again = scene.finished(call, Tool::BrowserRead, outcome);
            again.execution = execution;
            again.problem = (execution == Execution::Failed).then_some(Code::StoreUnavailable);
            assert_eq!(scene.settle(again).await, Settled::Already(stored.clone()));
        }
        let refusal = Observation::refusal(Tool::BrowserRead, &Refusal::new(RefusalReason::RunOver, "over"));
        assert_eq!(ledger::refuse(&test.db, call, scene.holder, refusal).await, Ok(Settled::Already(stored.clone())));
        assert!(scene.dispatching(call, &session(&grant)).await.is_none());
        assert!(matches!(scene.admit(scene.ask(call, Tool::BrowserRead)).await, Admission::Repeat(known) if *known == stored));
        test.hands.forward(Duration::from_hours(1));
        assert_eq!(formation_store::recovery::run(&test.db).await, Ok(0));
        assert_eq!(scene.stored(call).await, stored);
    }

    async fn only_its_holder_settles_a_call(test) {
        let scene = Scene::new(&test).await;
        let (call, _) = scene.admitted(Tool::BrowserRead).await;
        let mut foreign = scene.finished(call, Tool::BrowserRead, Outcome::Ok);
        foreign.holder = formation_core::InstanceId::fixed(9);
        assert!(matches!(scene.settle(foreign).await, Settled::Already(stored) if stored.execution == Execution::Admitted));
    }

    async fn a_queued_call_can_fail_and_be_refused_but_not_succeed(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserNavigate).await;
        let early = scene.settle(scene.finished(call, Tool::BrowserNavigate, Outcome::Ok)).await;
        assert!(matches!(early, Settled::Already(stored) if stored.execution == Execution::Queued));
        let failed = scene.settle(Settle::failed(call, scene.holder, Outcome::NotDispatched, Code::Cancelled)).await;
        assert_eq!(failed.call().problem, Some(Code::Cancelled));
        let call = scene.queued(Tool::BrowserNavigate).await;
        let refusal = Refusal::new(RefusalReason::InvalidArguments, "`url` is missing");
        let refused = ledger::refuse(&test.db, call, scene.holder, Observation::refusal(Tool::BrowserNavigate, &refusal)).await.expect("answers");
        assert!(matches!(refused, Settled::Stored(stored) if stored.execution == Execution::Refused && stored.outcome.is_none()));
    }

    /// Dispatching ends refs and view; a look sets new ones; an action that was refused before input leaves what is there.
    async fn refs_live_from_look_to_dispatch(test) {
        let scene = Scene::new(&test).await;
        let nonce = RefNonce::stored("abcdefghijkm");
        let (look, _) = scene.admitted(Tool::BrowserRead).await;
        scene.settle(scene.finished(look, Tool::BrowserRead, Outcome::Ok).with_refs(nonce.clone())).await;
        let (refused, grant) = scene.admitted(Tool::BrowserAct).await;
        assert_eq!(session(&grant).refs, Some(nonce.clone()));
        scene.settle(scene.finished(refused, Tool::BrowserAct, Outcome::NotDispatched)).await;
        let (acted, grant) = scene.admitted(Tool::BrowserAct).await;
        assert_eq!(session(&grant).refs, Some(nonce), "a refused action leaves them");
        assert!(scene.dispatching(acted, &session(&grant)).await.is_some());
        scene.settle(scene.finished(acted, Tool::BrowserAct, Outcome::InputDispatched)).await;
        let (_, grant) = scene.admitted(Tool::BrowserRead).await;
        assert_eq!(session(&grant).refs, None, "after input they are gone");
    }

    /// A permit needs the lease, the bound, the session's newest operation and a session that isn't to close; without one nothing
    /// is changed.
    async fn a_stale_holder_gets_no_permit(test) {
        let scene = Scene::new(&test).await;
        let nonce = RefNonce::stored("abcdefghijkm");
        let (look, _) = scene.admitted(Tool::BrowserRead).await;
        scene.settle(scene.finished(look, Tool::BrowserRead, Outcome::Ok).with_refs(nonce)).await;
        let (call, grant) = scene.admitted(Tool::BrowserAct).await;
        let mut stale = session(&grant);
        stale.operation -= 1;
        assert!(scene.dispatching(call, &stale).await.is_none(), "an older operation");
        let other = scene.held_by(&test, formation_core::InstanceId::fixed(9));
        assert!(other.dispatching(call, &session(&grant)).await.is_none(), "another holder");
        test.hands.forward(Duration::from_secs(21));
        assert!(scene.dispatching(call, &session(&grant)).await.is_none(), "the lease ran out");
        assert_eq!(scene.stored(call).await.execution, Execution::Admitted);
        assert_eq!(test.number("SELECT count(*) FROM browser_sessions WHERE refs IS NOT NULL").await, 1, "the refs are rolled back");
        formation_store::instances::beat(&test.db, scene.holder, Duration::from_mins(5)).await.expect("alive again");
        test.hands.forward(limits::CALL_BOUND);
        assert!(scene.dispatching(call, &session(&grant)).await.is_none(), "its own bound has passed");
    }

    async fn a_session_that_is_to_close_dispatches_nothing(test) {
        let scene = Scene::new(&test).await;
        let (call, grant) = scene.admitted(Tool::BrowserAct).await;
        let run = scene.run;
        test.db.write(move |tx| Box::pin(async move { formation_store::runs::end(tx, run, formation_store::runs::EndReason::Cancelled).await }))
            .await.expect("ended");
        assert!(scene.dispatching(call, &session(&grant)).await.is_none());
    }

    async fn a_permit_is_given_once(test) {
        let scene = Scene::new(&test).await;
        let (call, grant) = scene.admitted(Tool::BrowserAct).await;
        assert!(scene.dispatching(call, &session(&grant)).await.is_some());
        assert!(scene.dispatching(call, &session(&grant)).await.is_none());
    }

    /// W20: a grant that went while a call ran. An effect keeps its outcome, a read's is `withheld`; no content is stored.
    async fn a_revoked_grant_withholds_the_content(test) {
        for (tool, outcome, on_record) in [
            (Tool::BrowserRead, Outcome::Ok, Outcome::Withheld),
            (Tool::BrowserRead, Outcome::Interrupted, Outcome::Interrupted),
            (Tool::BrowserAct, Outcome::Ok, Outcome::Ok),
            (Tool::BrowserAct, Outcome::Uncertain, Outcome::Uncertain),
        ] {
            let slug = format!("{tool}-{outcome}").replace('_', "-");
            let agent = test.agent(Box::leak(slug.into_boxed_str())).await;
            let scene = Scene::for_agent(&test, agent).await;
            let (call, grant) = scene.admitted(tool).await;
            if tool == Tool::BrowserAct {
                assert!(scene.dispatching(call, &session(&grant)).await.is_some());
            }
            scene.set_agent_mode("inherit", 1).await;
            let Settled::Withheld(stored) = scene.settle(scene.finished(call, tool, outcome)).await else { panic!("not withheld") };
            assert_eq!(stored.outcome, Some(on_record), "{tool} {outcome}");
            let observation = stored.observation.expect("a refusal");
            assert!(!observation.text().contains("content of the page"));
            let refusal = observation.field("refusal").expect("a refusal");
            assert_eq!(refusal["reason"], "grant_revoked");
            assert_eq!(refusal["outcome"], on_record.as_str());
            assert_eq!(browser_sessions::live(&test.db, scene.run).await, Ok(None), "the session is to close");
        }
    }

    /// An uncertain effect blocks further effects of its session, and only those, until an operator says what it was.
    async fn an_uncertain_effect_waits_for_a_finding(test) {
        let scene = Scene::new(&test).await;
        let (doubt, grant) = scene.admitted(Tool::BrowserAct).await;
        assert!(scene.dispatching(doubt, &session(&grant)).await.is_some());
        scene.settle(scene.finished(doubt, Tool::BrowserAct, Outcome::Uncertain)).await;

        let blocked = scene.queued(Tool::BrowserNavigate).await;
        let refused = scene.admit(scene.ask(blocked, Tool::BrowserNavigate)).await;
        assert_eq!(reason(&refused), "needs_reconciliation");
        assert!(matches!(&refused, Admission::Refused(refusal) if refusal.explanation.contains(&doubt.to_string())));
        let turned_away = scene.queued(Tool::BrowserNavigate).await;
        let refusal = Observation::refusal(Tool::BrowserNavigate, &Refusal::new(RefusalReason::NeedsReconciliation, "wait"));
        ledger::refuse(&test.db, turned_away, scene.holder, refusal).await.expect("refused");
        let (read, _) = scene.admitted(Tool::BrowserRead).await;
        scene.settle(scene.finished(read, Tool::BrowserRead, Outcome::Ok)).await;
        let elsewhere = scene.sibling().await;
        elsewhere.admitted(Tool::BrowserAct).await;

        let find = |run, call| {
            test.db.write(move |tx| Box::pin(async move { ledger::reconcile(tx, &Actor::host(), run, call, Finding::TookEffect, "seen").await }))
        };
        assert_eq!(find(elsewhere.run, doubt).await, Ok(Reconciled::NotFound), "not a call of that run");
        assert_eq!(find(scene.run, read).await, Ok(Reconciled::NotUncertain));
        assert_eq!(formation_store::summaries::uncertain_calls(&test.db, scene.run).await, Ok(vec![doubt]));
        let Ok(Reconciled::Done(stored)) = find(scene.run, doubt).await else { panic!("not settled") };
        assert_eq!(stored.outcome, Some(Outcome::Uncertain), "the outcome stays");
        assert_eq!(find(scene.run, doubt).await, Ok(Reconciled::AlreadySettled));
        granted(scene.admit(scene.ask(blocked, Tool::BrowserNavigate)).await);
        let trace = ledger::trace(&test.db, scene.run, 0, 100).await.expect("read");
        let entry = trace.iter().find(|entry| entry.call.id == doubt).expect("in the trace");
        assert_eq!((entry.finding, entry.note.as_deref(), entry.found_by.as_deref()), (Some(Finding::TookEffect), Some("seen"), Some("host")));
        let caused: Vec<_> = trace.iter().filter_map(|entry| Some((entry.call.id, entry.caused_by?))).collect();
        assert_eq!(caused, [(turned_away, entry.number)], "a refusal names the call it waited for, settled or not");
    }

    /// B13, B14: a screenshot is sealed with its call, good for 24 hours, and its own run's.
    async fn a_screenshot_is_sealed_and_lives_a_day(test) {
        let scene = Scene::new(&test).await;
        let (call, _) = scene.admitted(Tool::BrowserScreenshot).await;
        let id = formation_core::ArtifactId::fixed(5);
        let jpeg = b"\xff\xd8 the picture \xff\xd9";
        let mut settle = scene.finished(call, Tool::BrowserScreenshot, Outcome::Ok);
        settle.artifact = Some(artifacts::seal(&keys(), test.db.entropy(), id, scene.agent, Picture { jpeg, width: 1280, height: 720 }));
        scene.settle(settle).await;
        let sibling = scene.sibling().await;
        assert_eq!(artifacts::read(&test.db, &keys(), sibling.run, id).await, Ok(None), "another run's isn't found");
        assert_eq!(artifacts::read(&test.db, &keys(), scene.run, id).await, Ok(Some(Artifact::Jpeg(jpeg.to_vec()))));
        assert_eq!(artifacts::of_call(&test.db, scene.run, call).await, Ok(Some(id)));
        test.hands.forward(Duration::from_hours(24));
        assert_eq!(artifacts::read(&test.db, &keys(), scene.run, id).await, Ok(Some(Artifact::Expired)), "before any sweep");
        assert_eq!(formation_store::sweep::round(&test.db).await.expect("swept").artifacts, 1);
        assert_eq!(test.number("SELECT count(*) FROM artifacts WHERE sealed IS NOT NULL").await, 0);
        assert_eq!(artifacts::read(&test.db, &keys(), scene.run, id).await, Ok(Some(Artifact::Expired)));
        let trace = ledger::trace(&test.db, scene.run, 0, 10).await.expect("read");
        assert_eq!(trace[0].artifact.map(|artifact| artifact.0), Some(id), "its metadata stays");
    }

    async fn the_trace_is_in_order_and_in_pages(test) {
        let scene = Scene::new(&test).await;
        let mut calls = Vec::new();
        for _ in 0..5 {
            test.hands.forward(Duration::from_millis(3));
            calls.push(scene.queued(Tool::BrowserRead).await);
        }
        let page = ledger::trace(&test.db, scene.run, 2, 2).await.expect("read");
        assert_eq!(page.iter().map(|entry| (entry.number, entry.call.id)).collect::<Vec<_>>(), [(3, calls[2]), (4, calls[3])]);
    }

    async fn an_admission_leaves_one_evidence_row(test) {
        let scene = Scene::new(&test).await;
        let (call, _) = scene.admitted(Tool::BrowserNavigate).await;
        scene.queued(Tool::BrowserRead).await;
        let evidence = evidence::of_run(&test.db, scene.agent, scene.run).await.expect("read");
        assert_eq!(evidence.len(), 1);
        assert_eq!((evidence[0].call, evidence[0].account.as_str()), (call, "env:0011223344556677"));
        assert_eq!(evidence::of_run(&test.db, test.agent("stranger").await, scene.run).await, Ok(Vec::new()));
    }

    /// The schema itself refuses a row that contradicts itself.
    async fn a_contradiction_is_refused_at_the_write(test) {
        let scene = Scene::new(&test).await;
        let (call, _) = scene.admitted(Tool::BrowserRead).await;
        for change in [
            "execution = 'succeeded'",
            "outcome = 'ok'",
            "execution = 'dispatched'",
            "execution = 'succeeded', outcome = 'uncertain', settled_at = 1",
            "execution = 'failed', outcome = 'interrupted', settled_at = 1",
            "finding = 'took_effect', found_at = 1",
            "execution = 'nonsense'",
        ] {
            let sql = format!("UPDATE tool_calls SET {change} WHERE id = '{call}'");
            assert!(test.try_meddle(&sql).await.is_err(), "{change}");
        }
    }
}
