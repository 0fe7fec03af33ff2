//! A run with everything a call needs, and short words for what tests do with it.

use std::time::Duration;

use formation_core::{
    AgentId, Binding, BrowserSessionId, CallId, Capability, Execution, InstanceId, Observation, OfferId, Outcome, Permit, RunId,
    Tool, limits,
};
use formation_store::{
    StoreError,
    admission::{self, Admission, Ask, Grant, SessionAsk},
    browser_sessions::{self, SessionGrant, Whereabouts},
    ledger::{self, NewCall, Queued, Settle, Settled, StoredCall},
    offers::{self, NewOffer},
    settings::Rules,
};
use formation_testkit::databases::{TestDb, local_rules};
use serde_json::{Value, json};

/// How long a call may wait before admission: its turn and its own bound.
pub(crate) const QUEUE_BOUND: Duration = Duration::from_secs(95);

/// One run of one agent, handled by one process.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) test: TestDb,
    pub(crate) rules: Rules,
    pub(crate) agent: AgentId,
    pub(crate) run: RunId,
    pub(crate) holder: InstanceId,
    pub(crate) binding: Binding,
    pub(crate) offer: OfferId,
}

impl Scene {
    pub(crate) async fn new(test: &TestDb) -> Self {
        Self::limited(test, 1_000_000).await
    }

    pub(crate) async fn limited(test: &TestDb, max_calls: i64) -> Self {
        let agent = test.agent("demo").await;
        let run = test.opened_run(agent, max_calls).await.run.id;
        let holder = test.instance().await;
        Self::of(test, agent, run, holder).await
    }

    /// The same for an agent that is there.
    pub(crate) async fn for_agent(test: &TestDb, agent: AgentId) -> Self {
        let run = test.run(agent).await;
        let holder = test.instance().await;
        Self::of(test, agent, run, holder).await
    }

    /// Another run of the same agent, in the same process.
    pub(crate) async fn sibling(&self) -> Self {
        let run = self.test.run(self.agent).await;
        Self::of(&self.test, self.agent, run, self.holder).await
    }

    async fn of(test: &TestDb, agent: AgentId, run: RunId, holder: InstanceId) -> Self {
        let rules = local_rules();
        let effective = rules.resolve_now(&test.db, agent, Capability::Browser).await.expect("settings can be read");
        let binding = effective.expect("`local` is granted").binding;
        let scene = Self { test: test.clone(), rules, agent, run, holder, binding, offer: OfferId::fixed(0) };
        Self { offer: scene.offer(&scene.binding).await, ..scene }
    }

    /// The same run, seen by another process.
    pub(crate) fn held_by(&self, test: &TestDb, holder: InstanceId) -> Self {
        Self { test: test.clone(), holder, ..self.clone() }
    }

    /// Records an offer of one tool.
    pub(crate) async fn offer(&self, binding: &Binding) -> OfferId {
        let (run, binding) = (self.run, binding.clone());
        let offers = self.test.db.write(move |tx| {
            Box::pin(async move {
                offers::record(tx, run, &[NewOffer { tool: Tool::BrowserNavigate, schema_version: 1, binding }]).await
            })
        });
        offers.await.expect("an offer can be recorded")[0].id
    }

    pub(crate) fn call(&self, key: Option<&str>, tool: Tool, arguments: Value) -> NewCall {
        NewCall {
            agent: self.agent,
            run: self.run,
            key: key.map(str::to_owned),
            tool,
            arguments,
            holder: self.holder,
            bound: QUEUE_BOUND,
        }
    }

    pub(crate) async fn try_queue(&self, new: NewCall) -> Result<Queued, StoreError> {
        self.test.db.write(move |tx| Box::pin(async move { ledger::queue(tx, &new).await })).await
    }

    /// A fresh call of this tool, on record.
    pub(crate) async fn queued(&self, tool: Tool) -> CallId {
        match self.try_queue(self.call(None, tool, json!({}))).await.expect("a call can be queued") {
            Queued::Fresh(id) => id,
            other => panic!("not fresh: {other:?}"),
        }
    }

    pub(crate) fn ask(&self, call: CallId, tool: Tool) -> Ask {
        Ask {
            call,
            run: self.run,
            agent: self.agent,
            holder: self.holder,
            offer: self.offer,
            offered: self.binding.clone(),
            class: tool.class(),
            session: SessionAsk::ExistingOrNew(BrowserSessionId::parse(&call.to_string()).expect("an id")),
            bound: limits::CALL_BOUND,
        }
    }

    pub(crate) async fn admit_all(&self, asks: Vec<Ask>) -> Result<Vec<Admission>, StoreError> {
        let rules = self.rules.clone();
        self.test.db.write(move |tx| Box::pin(async move { admission::admit(tx, &rules, &asks).await })).await
    }

    pub(crate) async fn admit(&self, ask: Ask) -> Admission {
        self.admit_all(vec![ask]).await.expect("admission answers").remove(0)
    }

    /// Queues a call of this tool and admits it, opening the browser if it is new.
    pub(crate) async fn admitted(&self, tool: Tool) -> (CallId, Grant) {
        let call = self.queued(tool).await;
        let grant = granted(self.admit(self.ask(call, tool)).await);
        if let Some(session) = grant.session.as_ref().filter(|session| session.is_new) {
            let home = Some(self.holder);
            let at = Whereabouts { home, page: Some("page".into()), ..Whereabouts::default() };
            assert!(browser_sessions::opened(&self.test.db, session, at).await.expect("a session can be opened"));
        }
        (call, grant)
    }

    pub(crate) async fn dispatching(&self, call: CallId, session: &SessionGrant) -> Option<Permit> {
        ledger::dispatching(&self.test.db, call, self.holder, session).await.expect("the database answers")
    }

    /// A call of this tool that has come to this execution.
    pub(crate) async fn brought_to(&self, execution: Execution, tool: Tool) -> CallId {
        match execution {
            Execution::Queued => self.queued(tool).await,
            Execution::Admitted => self.admitted(tool).await.0,
            Execution::Dispatched => {
                let (call, grant) = self.admitted(tool).await;
                let permit = self.dispatching(call, &session(&grant)).await.expect("the effect is on record");
                assert_eq!(permit.call(), call);
                call
            }
            settled => panic!("{settled} is an end"),
        }
    }

    pub(crate) fn finished(&self, call: CallId, tool: Tool, outcome: Outcome) -> Settle {
        let observation = Observation::of(tool, &self.binding, call, json!({"text": "content of the page"}));
        Settle::finished(call, self.holder, self.binding.clone(), outcome, observation)
    }

    pub(crate) async fn settle(&self, settle: Settle) -> Settled {
        ledger::settle(&self.test.db, &self.rules, settle).await.expect("the database answers")
    }

    /// The call as the ledger has it.
    pub(crate) async fn stored(&self, call: CallId) -> StoredCall {
        ledger::call(&self.test.db, self.agent, call).await.expect("the ledger can be read").expect("the call is there")
    }

    /// Writes a settings row of the agent, as step 2's writer will: exclusive lock first.
    pub(crate) async fn set_agent_mode(&self, mode: &str, version: i64) {
        let agent = self.agent;
        let sql = format!(
            "INSERT INTO capability_settings (scope, agent_id, capability, mode, config, version, updated_at, updated_by) \
             VALUES ('agent:{agent}', '{agent}', 'browser', '{mode}', '{{}}', {version}, 0, 'test') \
             ON CONFLICT (scope, capability) DO UPDATE SET mode = excluded.mode, version = excluded.version"
        );
        self.test.meddle(&sql).await;
    }
}

pub(crate) fn granted(admission: Admission) -> Grant {
    match admission {
        Admission::Granted(grant) => *grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) fn session(grant: &Grant) -> SessionGrant {
    grant.session.clone().expect("the grant has a session")
}

/// The reason of a refusal, by its word.
pub(crate) fn reason(admission: &Admission) -> &'static str {
    match admission {
        Admission::Refused(refusal) => refusal.reason.as_str(),
        other => panic!("not refused: {other:?}"),
    }
}
