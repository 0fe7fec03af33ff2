//! A run's `max_tool_calls` is hard: exactly so many, from however many workers.

use std::sync::Arc;

use formation_core::{Execution, Tool};
use formation_store::ledger::Queued;
use formation_testkit::on_both_databases;
use serde_json::json;

use crate::support::Scene;

on_both_databases! {
    /// Done-when of step 1: 32 workers, the limit exactly; SQLite with one process, PostgreSQL with two replicas.
    async fn bar_a_run_admits_exactly_its_calls(test) {
        let replica = if test.file().is_some() { test.clone() } else { test.replica().await };
        let agent = test.agent("demo").await;
        for limit in [1_i64, 7, 100] {
            let run = test.opened_run(agent, limit).await.run.id;
            let scene = Scene::for_agent(&test, agent).await;
            let scenes = [Scene { run, ..scene.clone() }, Scene { run, test: replica.clone(), ..scene }].map(Arc::new);
            let mut workers = tokio::task::JoinSet::new();
            for worker in 0..32_usize {
                let scene = Arc::clone(&scenes[worker % 2]);
                workers.spawn(async move {
                    let mut fresh = 0;
                    for _ in 0..6 {
                        match scene.try_queue(scene.call(None, Tool::BrowserRead, json!({}))).await.expect("answers") {
                            Queued::Fresh(_) => fresh += 1,
                            Queued::Refused(call) => {
                                assert_eq!(call.execution, Execution::Refused);
                                let refusal = call.observation.expect("a refusal");
                                assert_eq!(refusal.field("refusal").expect("a refusal")["reason"], "call_limit");
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    fresh
                });
            }
            let mut fresh = 0;
            while let Some(count) = workers.join_next().await {
                fresh += count.expect("no panic");
            }
            assert_eq!(fresh, limit);
            assert_eq!(test.number(&format!("SELECT calls_used FROM runs WHERE id = '{run}'")).await, limit);
            assert_eq!(test.number(&format!("SELECT count(*) FROM tool_calls WHERE run_id = '{run}' AND execution = 'refused'")).await, 192 - limit);
        }
    }
}
