//! The combiner: many callers, one transaction, and nobody pays for another's bad row.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use formation_core::{CallId, Faults, Tool};
use formation_store::{Db, TimeSource, admission::Admission, combine::Combiner};
use formation_testkit::on_both_databases;

use crate::support::Scene;

on_both_databases! {
    async fn many_callers_share_transactions(test) {
        let scene = Scene::new(&test).await;
        let transactions = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&transactions);
        let faults = Faults::new(move |place| { seen.fetch_add(u32::from(place == "admission.before"), Ordering::SeqCst); });
        let db = Db::open(test.location(), TimeSource::Process(test.clock()), formation_core::Entropy::counting(900)).await.expect("opens").with_faults(faults);
        let combiner = Combiner::start(db, scene.rules.clone());
        let mut asks = Vec::new();
        for _ in 0..100 {
            let run = scene.sibling().await;
            let call = run.queued(Tool::BrowserRead).await;
            asks.push(run.ask(call, Tool::BrowserRead));
        }
        let answers = futures::future::join_all(asks.into_iter().map(|ask| combiner.admit(ask))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Admission::Granted(_)))), "{answers:?}");
        let transactions = transactions.load(Ordering::SeqCst);
        assert!(transactions < 50, "100 admissions took {transactions} transactions");
    }

    /// A failed statement rolls the batch back and admits its members one by one.
    async fn one_bad_row_refuses_only_itself(test) {
        let scene = Scene::new(&test).await;
        let combiner = Combiner::start(test.db.clone(), scene.rules.clone());
        let mut asks = Vec::new();
        for _ in 0..8 {
            let run = scene.sibling().await;
            let call = run.queued(Tool::BrowserRead).await;
            asks.push(run.ask(call, Tool::BrowserRead));
        }
        // A call that isn't there, and one whose evidence is there already: a statement that fails in the middle of the writes.
        asks[2].call = CallId::fixed(1);
        let (call, agent, run) = (asks[5].call, scene.agent, asks[5].run);
        test.meddle(&format!("INSERT INTO evidence (call_id, run_id, agent_id, conversation_id, capability, vendor, credential_owner, account, admitted_at) \
            VALUES ('{call}', '{run}', '{agent}', 'c', 'browser', 'local', 'install', 'a', 1)")).await;
        let answers = futures::future::join_all(asks.into_iter().map(|ask| combiner.admit(ask))).await;
        for (number, answer) in answers.iter().enumerate() {
            match number {
                2 | 5 => assert!(answer.as_ref().is_err_and(|error| !error.is_unavailable()), "{number}: {answer:?}"),
                _ => assert!(matches!(answer, Ok(Admission::Granted(_))), "{number}: {answer:?}"),
            }
        }
        assert_eq!(test.number("SELECT count(*) FROM tool_calls WHERE execution = 'admitted'").await, 6);
    }

    async fn a_closed_database_answers_everybody(test) {
        let scene = Scene::new(&test).await;
        let call = scene.queued(Tool::BrowserRead).await;
        let combiner = Combiner::start(test.db.clone(), scene.rules.clone());
        test.db.close().await;
        let asks = (0..5).map(|_| combiner.admit(scene.ask(call, Tool::BrowserRead)));
        for answer in futures::future::join_all(asks).await {
            assert!(answer.expect_err("closed").is_unavailable());
        }
    }

    /// A caller that goes away before the answer leaves an admission on record, which recovery ends.
    async fn a_caller_that_goes_away_stops_nobody(test) {
        let scene = Scene::new(&test).await;
        let combiner = Combiner::start(test.db.clone(), scene.rules.clone());
        let call = scene.queued(Tool::BrowserRead).await;
        let (gone, ask) = (combiner.clone(), scene.ask(call, Tool::BrowserRead));
        let waiting = tokio::spawn(async move { gone.admit(ask).await });
        tokio::task::yield_now().await;
        waiting.abort();
        let other = scene.sibling().await;
        let call = other.queued(Tool::BrowserRead).await;
        assert!(matches!(combiner.admit(other.ask(call, Tool::BrowserRead)).await, Ok(Admission::Granted(_))));
    }
}
