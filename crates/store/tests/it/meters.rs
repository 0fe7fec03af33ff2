//! What metered calls cost: hard limits for the run and for the minute, one unit a call, nothing given back.

use std::sync::Arc;

use formation_core::{
    AgentId, Binding, CallId, Capability, Class, Clock, InstanceId, OfferId, RunId, Tool, VendorId, limits,
    settings::EnvironmentAccount,
};
use formation_store::{
    StoreError,
    admission::{self, Admission, Ask, SessionAsk},
    combine::Combiner,
    ledger::{self, NewCall, Queued},
    offers::{self, NewOffer},
    settings::Rules,
};
use formation_testkit::{
    databases::{START, TestDb},
    on_both_databases,
};
use serde_json::json;

use crate::support::{QUEUE_BOUND, reason};

/// so many attempts over its six limits.
const ATTEMPTS: usize = 10_000;
const WORKERS: usize = 32;

/// A search provider on the environment's account.
fn search_rules() -> Rules {
    Rules::new(
        |_| vec![VendorId::known("brave")],
        || vec![EnvironmentAccount { vendor: VendorId::known("brave"), fingerprint: "0011223344556677".to_owned() }],
    )
}

/// An agent that searches in one run.
#[derive(Clone)]
struct Searching {
    test: TestDb,
    rules: Rules,
    agent: AgentId,
    run: RunId,
    holder: InstanceId,
    binding: Binding,
    offer: OfferId,
}

impl Searching {
    async fn new(test: &TestDb, agent: AgentId) -> Self {
        let rules = search_rules();
        let resolved = rules.resolve_now(&test.db, agent, Capability::Search).await.expect("settings can be read");
        let binding = resolved.expect("a provider is there").binding;
        let (run, holder) = (test.run(agent).await, test.instance().await);
        let offer = NewOffer { tool: Tool::WebSearch, schema_version: 1, binding: binding.clone() };
        let recorded = test.db.write(move |tx| Box::pin(async move { offers::record(tx, run, &[offer]).await })).await;
        let offer = recorded.expect("an offer can be recorded")[0].id;
        Self { test: test.clone(), rules, agent, run, holder, binding, offer }
    }

    /// On other limits, as a settings write would leave them; `None` leaves the default.
    async fn limited(test: &TestDb, agent: AgentId, minute: Option<i64>, run: Option<i64>) -> Self {
        let number = |limit: Option<i64>| limit.map_or_else(|| "NULL".to_owned(), |limit| limit.to_string());
        let (minute, run) = (number(minute), number(run));
        test.meddle(&format!(
            "INSERT INTO capability_settings (scope, capability, mode, config, requests_per_minute, requests_per_run, version, \
             updated_at, updated_by) VALUES ('install', 'search', 'auto', '{{}}', {minute}, {run}, 1, 0, 'test') \
             ON CONFLICT (scope, capability) DO UPDATE SET requests_per_minute = excluded.requests_per_minute, \
             requests_per_run = excluded.requests_per_run, version = capability_settings.version + 1"
        ))
        .await;
        Self::new(test, agent).await
    }

    /// The same run as another process sees it.
    fn beside(&self, test: &TestDb) -> Self {
        Self { test: test.clone(), ..self.clone() }
    }

    async fn queued(&self, count: usize) -> Vec<CallId> {
        let new = NewCall {
            agent: self.agent,
            run: self.run,
            key: None,
            tool: Tool::WebSearch,
            arguments: json!({"query": "tide tables"}),
            holder: self.holder,
            bound: QUEUE_BOUND,
        };
        let queued = self.test.db.write(move |tx| {
            Box::pin(async move {
                let mut calls = Vec::with_capacity(count);
                for _ in 0..count {
                    match ledger::queue(tx, &new).await? {
                        Queued::Fresh(call) => calls.push(call),
                        other => panic!("not fresh: {other:?}"),
                    }
                }
                Ok::<_, StoreError>(calls)
            })
        });
        queued.await.expect("calls can be queued")
    }

    fn ask(&self, call: CallId) -> Ask {
        Ask {
            call,
            run: self.run,
            agent: self.agent,
            holder: self.holder,
            offer: self.offer,
            offered: self.binding.clone(),
            class: Class::Read,
            session: SessionAsk::None,
            bound: limits::CALL_BOUND,
        }
    }

    async fn admit(&self, calls: &[CallId]) -> Vec<Admission> {
        let (rules, asks) = (self.rules.clone(), calls.iter().map(|call| self.ask(*call)).collect::<Vec<_>>());
        let admitted = self.test.db.write(move |tx| Box::pin(async move { admission::admit(tx, &rules, &asks).await }));
        admitted.await.expect("admission answers")
    }

    async fn search(&self) -> Admission {
        let call = self.queued(1).await;
        self.admit(&call).await.remove(0)
    }

    async fn units(&self) -> i64 {
        self.test.number(&format!("SELECT count(*) FROM reservations WHERE run_id = '{}'", self.run)).await
    }
}

on_both_databases! {
    /// 32 workers, one process on SQLite and two replicas on PostgreSQL: admitted is the limit exactly, for the run and for the
    /// minute, and the counters, the reservations and the evidence all say so.
    async fn bar_r03_limits_are_met_exactly(test) {
        let replica = if test.file().is_some() { test.clone() } else { test.replica().await };
        let agent = test.agent("demo").await;
        for limit in [1_i64, 7, 100] {
            for is_of_run in [true, false] {
                // The clock stands still, so a minute lasts; each round gets a clean one.
                test.meddle("DELETE FROM rate_windows").await;
                let (minute, run) = if is_of_run { (Some(6_000), Some(limit)) } else { (Some(limit), Some(10_000)) };
                let one = Searching::limited(&test, agent, minute, run).await;
                let two = one.beside(&replica);
                let combiners = [Combiner::start(one.test.db.clone(), one.rules.clone()), Combiner::start(two.test.db.clone(), two.rules.clone())];
                let calls = one.queued(ATTEMPTS / 6).await;
                let shared = Arc::new(one);
                let mut workers = tokio::task::JoinSet::new();
                for worker in 0..WORKERS {
                    let (scene, combiner) = (Arc::clone(&shared), combiners[worker % 2].clone());
                    let mine: Vec<_> = calls.iter().skip(worker).step_by(WORKERS).copied().collect();
                    workers.spawn(async move {
                        let mut admitted = 0;
                        for call in mine {
                            match combiner.admit(scene.ask(call)).await.expect("admission answers") {
                                Admission::Granted(_) => admitted += 1,
                                refused => assert_eq!(reason(&refused), if is_of_run { "run_limit" } else { "rate_limited" }),
                            }
                        }
                        admitted
                    });
                }
                let mut admitted = 0;
                while let Some(count) = workers.join_next().await {
                    admitted += count.expect("no worker fails");
                }
                assert_eq!(admitted, limit, "of {} attempts, run {is_of_run}", calls.len());
                let run = shared.run;
                assert_eq!(shared.units().await, limit);
                assert_eq!(test.number(&format!("SELECT used FROM run_counters WHERE run_id = '{run}'")).await, limit);
                assert_eq!(test.number("SELECT used FROM rate_windows").await, limit);
                assert_eq!(test.number(&format!("SELECT count(*) FROM evidence WHERE run_id = '{run}'")).await, limit);
                assert_eq!(test.number(&format!("SELECT count(*) FROM tool_calls WHERE run_id = '{run}' AND execution = 'admitted'")).await, limit);
            }
        }
    }

    /// L2, L3: a call is one unit however often it is admitted, and one refused for its grant is none.
    async fn l3_a_repeated_admission_is_one_unit(test) {
        let agent = test.agent("demo").await;
        let scene = Searching::new(&test, agent).await;
        let call = scene.queued(1).await[0];
        let answers = scene.admit(&[call, call, call]).await;
        assert!(matches!(answers[0], Admission::Granted(_)), "{:?}", answers[0]);
        assert!(answers[1..].iter().all(|answer| matches!(answer, Admission::Repeat(_))));
        assert!(matches!(scene.admit(&[call]).await[0], Admission::Repeat(_)));
        assert_eq!(scene.units().await, 1);
        assert_eq!(test.number("SELECT used FROM run_counters").await, 1);

        let stale = Searching { binding: Binding { agent_version: 7, ..scene.binding.clone() }, ..scene.clone() };
        assert_eq!(reason(&stale.search().await), "grant_revoked");
        assert_eq!((scene.units().await, test.number("SELECT used FROM rate_windows").await), (1, 1));
    }

    /// L8: the minute is the connection's, over its agents; the run's allowance is the run's, and an inheriting agent can lower it.
    async fn l8_agents_share_a_minute_and_may_lower_their_runs(test) {
        let (one, two) = (test.agent("one").await, test.agent("two").await);
        let first = Searching::limited(&test, one, Some(3), Some(10_000)).await;
        test.meddle(&format!(
            "INSERT INTO capability_settings (scope, agent_id, capability, mode, config, requests_per_run, version, updated_at, \
             updated_by) VALUES ('agent:{two}', '{two}', 'search', 'inherit', '{{}}', 1, 1, 0, 'test')"
        ))
        .await;
        let second = Searching::new(&test, two).await;
        assert!(matches!(second.search().await, Admission::Granted(_)));
        assert_eq!(reason(&second.search().await), "run_limit", "lowered to one");
        // A new run has its own allowance, in the same minute.
        let later = Searching::new(&test, two).await;
        assert!(matches!(later.search().await, Admission::Granted(_)));
        assert!(matches!(first.search().await, Admission::Granted(_)));
        assert_eq!(reason(&first.search().await), "rate_limited", "three of the minute are used by two agents");
        assert_eq!(test.number("SELECT used FROM rate_windows WHERE meter_scope = 'install'").await, 3);
    }

    /// L9: the refusal of a full minute says when it ends; the next window is a new one, and the old one is forgotten in the end.
    async fn l9_a_full_minute_ends(test) {
        let agent = test.agent("demo").await;
        let scene = Searching::limited(&test, agent, Some(1), None).await;
        let at = |seconds: u64| {
            let (clock, test) = (Clock::frozen(START.after(std::time::Duration::from_secs(seconds))).0, scene.test.clone());
            async move { test.under(clock).await }
        };
        let into = START.micros() / 1_000_000 % 60;
        assert!(matches!(scene.search().await, Admission::Granted(_)));
        let Admission::Refused(refusal) = scene.search().await else { panic!("the minute is full") };
        assert_eq!(refusal.retry_after_seconds, Some(u64::try_from(60 - into).expect("a rest")));
        let next = scene.beside(&at(u64::try_from(60 - into).expect("a rest")).await);
        assert!(matches!(next.search().await, Admission::Granted(_)), "the next window");
        assert_eq!(test.number("SELECT count(*) FROM rate_windows").await, 2);
        let hours = at(3 * 3_600).await;
        formation_store::sweep::round(&hours.db).await.expect("a sweep");
        assert_eq!(test.number("SELECT count(*) FROM rate_windows").await, 0);
        assert_eq!(scene.units().await, 2, "units stay");
    }

    /// One admission among sixty-four that reach the limit together: in order of arrival.
    async fn l1_a_batch_is_decided_in_order(test) {
        let agent = test.agent("demo").await;
        let scene = Searching::limited(&test, agent, Some(6_000), Some(10)).await;
        let calls = scene.queued(64).await;
        let answers = scene.admit(&calls).await;
        let granted: Vec<_> = answers.iter().map(|answer| matches!(answer, Admission::Granted(_))).collect();
        assert!(granted[..10].iter().all(|granted| *granted) && !granted[10..].iter().any(|granted| *granted), "{granted:?}");
    }
}
