//! Runs: opened, behind doors, ended, told once.

use std::time::Duration;

use formation_core::{AgentId, OperatorId, TokenId, Tool, limits, people::Reach, refusal::Code};
use formation_store::{
    StoreError, agents,
    ledger::Queued,
    mcp_sessions,
    runs::{self, Behind, Door, EndReason, Knock, NewRun, Purpose, Run, RunState},
    summaries::{self, Filter},
    sweep, tokens,
};
use formation_testkit::{databases::TestDb, on_both_databases};
use serde_json::json;

use crate::support::Scene;

struct Visitor {
    test: TestDb,
    agent: AgentId,
    token: TokenId,
}

impl Visitor {
    async fn new(test: &TestDb) -> Self {
        let agent = test.agent("demo").await;
        Self::new_for(test, agent).await
    }

    async fn new_for(test: &TestDb, agent: AgentId) -> Self {
        Self { test: test.clone(), agent, token: test.token(agent).await }
    }

    async fn knock(&self, door: Door, purpose: Purpose) -> Behind {
        let knock =
            Knock { agent: self.agent, token: self.token, door, conversation: None, purpose, idle_after: limits::IMPLICIT_IDLE };
        self.test.db.write(move |tx| Box::pin(async move { runs::behind(tx, &knock).await })).await.expect("the door answers")
    }

    async fn end(&self, run: &Run, reason: EndReason) -> bool {
        let id = run.id;
        self.test.db.write(move |tx| Box::pin(async move { runs::end(tx, id, reason).await })).await.expect("ended")
    }
}

fn open(behind: Behind) -> (Run, bool) {
    match behind {
        Behind::Open { run, announce } => (run, announce),
        Behind::Over { run, reason } => panic!("{} is over: {reason}", run.id),
        Behind::Revoked => panic!("the token is good"),
    }
}

fn over(behind: Behind) -> EndReason {
    match behind {
        Behind::Over { reason, .. } => reason,
        Behind::Open { run, .. } => panic!("{} is open", run.id),
        Behind::Revoked => panic!("the token is good"),
    }
}

on_both_databases! {
    async fn each_door_has_its_own_run(test) {
        let visitor = Visitor::new(&test).await;
        let (first, announce) = open(visitor.knock(Door::Current, Purpose::List).await);
        assert!(!announce, "the first run behind a door follows none");
        assert_eq!(open(visitor.knock(Door::Current, Purpose::Call).await).0.id, first.id);
        let (named, _) = open(visitor.knock(Door::Named("word".into()), Purpose::Call).await);
        assert_ne!(named.id, first.id);
        assert_eq!(named.max_calls, limits::MAX_TOOL_CALLS_IMPLICIT);
        assert_eq!(named.deadline_at.since(named.created_at), limits::RUN_DEADLINE);
        let other = Visitor { token: test.token(visitor.agent).await, test: test.clone(), ..visitor };
        assert_ne!(open(other.knock(Door::Current, Purpose::Call).await).0.id, first.id, "another token, another run");
    }

    /// The end is told once, to a call; a listing before it opens nothing; the successor says that it is one until its first call.
    async fn an_end_is_told_once(test) {
        let visitor = Visitor::new(&test).await;
        let (first, _) = open(visitor.knock(Door::Current, Purpose::Call).await);
        assert!(visitor.end(&first, EndReason::Cancelled).await);
        assert!(!visitor.end(&first, EndReason::Finished).await, "once");
        assert_eq!(over(visitor.knock(Door::Current, Purpose::List).await), EndReason::Cancelled);
        assert_eq!(over(visitor.knock(Door::Current, Purpose::List).await), EndReason::Cancelled, "a listing doesn't hear it");
        assert_eq!(over(visitor.knock(Door::Current, Purpose::Call).await), EndReason::Cancelled);
        let (second, announce) = open(visitor.knock(Door::Current, Purpose::List).await);
        assert!(announce && second.id != first.id);
        assert!(open(visitor.knock(Door::Current, Purpose::Call).await).1, "still before its first call");
        let scene = Scene { run: second.id, agent: visitor.agent, ..Scene::for_agent(&test, visitor.agent).await };
        scene.queued(Tool::BrowserRead).await;
        assert!(!open(visitor.knock(Door::Current, Purpose::Call).await).1);
    }

    async fn one_of_two_calls_hears_the_end(test) {
        let visitor = Visitor::new(&test).await;
        let (first, _) = open(visitor.knock(Door::Current, Purpose::Call).await);
        visitor.end(&first, EndReason::Cancelled).await;
        let answers = futures::future::join_all((0..8).map(|_| visitor.knock(Door::Current, Purpose::Call))).await;
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Behind::Over { .. })).count(), 1, "{answers:?}");
        let mut successors: Vec<_> = answers.into_iter().filter(|answer| matches!(answer, Behind::Open { .. })).map(|answer| open(answer).0.id).collect();
        successors.dedup();
        assert_eq!(successors.len(), 1, "and the others share one successor");
    }

    async fn two_first_calls_open_one_run(test) {
        let visitor = Visitor::new(&test).await;
        let answers = futures::future::join_all((0..16).map(|_| visitor.knock(Door::Named("w".into()), Purpose::Call))).await;
        let mut ids: Vec<_> = answers.into_iter().map(|answer| open(answer).0.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), 1);
        assert_eq!(test.number("SELECT count(*) FROM runs").await, 1);
    }

    async fn a_call_that_met_the_end_told_it(test) {
        let visitor = Visitor::new(&test).await;
        let (run, _) = open(visitor.knock(Door::Current, Purpose::Call).await);
        let scene = Scene { run: run.id, agent: visitor.agent, ..Scene::for_agent(&test, visitor.agent).await };
        visitor.end(&run, EndReason::Idle).await;
        let refused = scene.try_queue(scene.call(None, Tool::BrowserRead, json!({}))).await.expect("answers");
        let Queued::Refused(call) = refused else { panic!("{refused:?}") };
        let observation = call.observation.expect("a refusal");
        assert_eq!(observation.field("refusal").expect("a refusal")["reason"], "run_over");
        assert_eq!(call.problem, None::<Code>);
        assert!(open(visitor.knock(Door::Current, Purpose::Call).await).1, "no extra `run_over` follows");
    }

    /// 15 minutes without a call, or its deadline: the door says so before any sweep, and the sweep does too.
    async fn idle_and_old_runs_end(test) {
        let visitor = Visitor::new(&test).await;
        open(visitor.knock(Door::Current, Purpose::Call).await);
        test.hands.forward(limits::IMPLICIT_IDLE);
        assert_eq!(over(visitor.knock(Door::Current, Purpose::Call).await), EndReason::Idle);
        let (kept, _) = open(visitor.knock(Door::Current, Purpose::Call).await);
        let scene = Scene { run: kept.id, agent: visitor.agent, ..Scene::for_agent(&test, visitor.agent).await };
        test.hands.forward(limits::IMPLICIT_IDLE / 2);
        scene.queued(Tool::BrowserRead).await;
        test.hands.forward(limits::IMPLICIT_IDLE / 2);
        assert_eq!(open(visitor.knock(Door::Current, Purpose::Call).await).0.id, kept.id, "a call keeps it");
        let explicit = test.run(visitor.agent).await;
        test.hands.forward(limits::IMPLICIT_IDLE);
        assert_eq!(sweep::round(&test.db).await.expect("swept").runs, 1, "an opened run isn't idle");
        test.hands.forward(Duration::from_hours(1));
        sweep::round(&test.db).await.expect("swept");
        let run = runs::of_agent(&test.db, visitor.agent, explicit).await.expect("read").expect("there");
        assert_eq!((run.state, run.end_reason), (RunState::Over, Some(EndReason::Deadline)));
    }

    async fn a_harness_opens_a_run_with_a_token_for_it_alone(test) {
        let visitor = Visitor::new(&test).await;
        let new = |word: Option<&str>| NewRun {
            agent: visitor.agent, token: visitor.token, conversation: word.map(str::to_owned), deadline: Duration::from_mins(1), max_calls: 3,
        };
        let opened = async |new: NewRun| {
            let written = test.db.write(move |tx| Box::pin(async move { runs::open(tx, &new).await })).await;
            written.expect("opened").expect("a good token")
        };
        let one = opened(new(Some("talk"))).await;
        let two = opened(new(Some("talk"))).await;
        let alone = opened(new(None)).await;
        assert_eq!(one.run.conversation, two.run.conversation);
        assert_ne!(one.run.conversation, alone.run.conversation);
        let text = std::str::from_utf8(one.token.text.expose()).expect("text").to_owned();
        let tokens::Presented::Caller(caller) = tokens::lookup(&test.db, &text).await.expect("read").expect("a caller") else {
            panic!("a run's token is no operator's")
        };
        assert_eq!((caller.agent, caller.run), (visitor.agent, Some(one.run.id)));
        visitor.end(&one.run, EndReason::Finished).await;
        assert!(tokens::lookup(&test.db, &text).await.expect("read").is_some(), "its calls get `run_over`, not 401");
    }

    async fn another_agents_run_is_not_found(test) {
        let scene = Scene::new(&test).await;
        let stranger = test.agent("stranger").await;
        assert_eq!(runs::of_agent(&test.db, stranger, scene.run).await, Ok(None));
        assert_eq!(summaries::one(&test.db, Reach::Given(OperatorId::fixed(1)), scene.run).await, Ok(None));
        let run = scene.run;
        let ended = test.db.write(move |tx| Box::pin(async move { runs::end_of_agent(tx, stranger, run, EndReason::Finished).await })).await;
        assert_eq!(ended, Ok::<_, StoreError>(None));
        assert!(summaries::one(&test.db, Reach::Everything, scene.run).await.expect("read").is_some());
    }

    async fn lists_are_newest_first_and_in_pages(test) {
        let visitor = Visitor::new(&test).await;
        let mut ids = Vec::new();
        for _ in 0..5 {
            test.hands.forward(Duration::from_millis(2));
            ids.push(test.run(visitor.agent).await);
        }
        let scene = Scene { run: ids[4], ..Scene::for_agent(&test, visitor.agent).await };
        scene.queued(Tool::BrowserRead).await;
        let page = summaries::list(&test.db, Reach::Everything, Filter::default(), 100).await.expect("read");
        let listed: Vec<_> = page.items.iter().map(|item| item.run.id).filter(|id| ids.contains(id)).collect();
        assert_eq!(listed, ids.iter().rev().copied().collect::<Vec<_>>());
        let counted = page.items.iter().find(|item| item.run.id == ids[4]).expect("listed");
        assert_eq!((counted.calls, counted.refused, counted.uncertain), (1, 0, 0));
        let page = summaries::list(&test.db, Reach::Everything, Filter { after: Some(ids[3]), ..Filter::default() }, 2).await.expect("read");
        assert_eq!(page.items.iter().map(|item| item.run.id).collect::<Vec<_>>(), [ids[2], ids[1]]);
        assert!(page.has_more);
    }

    /// A session outlives its runs, is its token's alone, and only DELETE ends it.
    async fn an_mcp_session_is_bound_to_its_token(test) {
        let visitor = Visitor::new(&test).await;
        let token = visitor.token;
        let session = test.db.write(move |tx| Box::pin(async move { mcp_sessions::open(tx, token).await })).await.expect("opened").expect("a good token");
        let (run, _) = open(visitor.knock(Door::Session(session), Purpose::Call).await);
        let stranger = test.token(visitor.agent).await;
        assert_eq!(mcp_sessions::is_open(&test.db, token, session).await, Ok(true));
        assert_eq!(mcp_sessions::is_open(&test.db, stranger, session).await, Ok(false));
        let end = |token| test.db.write(move |tx| Box::pin(async move { mcp_sessions::end(tx, token, session).await }));
        assert_eq!(end(stranger).await, Ok(false));
        assert_eq!(end(token).await, Ok(true));
        assert_eq!(end(token).await, Ok(false));
        assert_eq!(mcp_sessions::is_open(&test.db, token, session).await, Ok(false));
        let run = runs::of_agent(&test.db, visitor.agent, run.id).await.expect("read").expect("there");
        assert_eq!(run.end_reason, Some(EndReason::SessionEnded));
    }

    /// A token that is taken back takes what it opened along, and nothing else of its agent.
    async fn a_revoked_token_ends_what_it_opened(test) {
        let visitor = Visitor::new(&test).await;
        let (agent, token) = (visitor.agent, visitor.token);
        let other = Visitor::new_for(&test, agent).await;
        let session = test.db.write(move |tx| Box::pin(async move { mcp_sessions::open(tx, token).await })).await.expect("opened").expect("a good token");
        let mut mine = Vec::new();
        for door in [Door::Session(session), Door::Named("mine".into()), Door::Current] {
            mine.push(open(visitor.knock(door, Purpose::Call).await).0.id);
        }
        let new = NewRun { agent, token, conversation: None, deadline: Duration::from_mins(1), max_calls: 3 };
        let again = new.clone();
        mine.push(test.db.write(move |tx| Box::pin(async move { runs::open(tx, &new).await })).await.expect("opened").expect("a good token").run.id);
        let finished = open(visitor.knock(Door::Named("done".into()), Purpose::Call).await).0;
        visitor.end(&finished, EndReason::Finished).await;
        let others = open(other.knock(Door::Current, Purpose::Call).await).0.id;

        let revoke = || test.db.write(move |tx| Box::pin(async move { tokens::revoke(tx, agent, token).await }));
        assert_eq!((revoke().await, revoke().await), (Ok(Some(4)), Ok(None)));
        let read = async |id| {
            let run = runs::of_agent(&test.db, agent, id).await.expect("read").expect("there");
            (run.state, run.end_reason)
        };
        for id in mine {
            assert_eq!(read(id).await, (RunState::Over, Some(EndReason::Cancelled)));
        }
        assert_eq!(read(finished.id).await, (RunState::Over, Some(EndReason::Finished)));
        assert_eq!(read(others).await, (RunState::Open, None));
        assert_eq!(mcp_sessions::is_open(&test.db, token, session).await, Ok(false));
        // Whoever was let in just before opens nothing behind it.
        let opened = test.db.write(move |tx| Box::pin(async move { runs::open(tx, &again).await })).await.expect("answered");
        assert!(opened.is_none());
        assert_eq!(test.db.write(move |tx| Box::pin(async move { mcp_sessions::open(tx, token).await })).await, Ok(None));
        assert_eq!(visitor.knock(Door::Named("new".into()), Purpose::Call).await, Behind::Revoked);
    }

    /// The same while others open runs behind the token, here and on another replica: none is left open; nor is one of a deleted agent.
    async fn nothing_is_opened_behind_a_token_that_goes(test) {
        for round in 0..12 {
            let agent = test.agent(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"][round]).await;
            let token = test.token(agent).await;
            let replica = if test.file().is_some() { test.clone() } else { test.replica().await };
            let opening = (0..16).map(|number| {
                let db = if number % 2 == 0 { test.db.clone() } else { replica.db.clone() };
                tokio::spawn(async move {
                    if number % 4 < 2 {
                        let new = NewRun { agent, token, conversation: None, deadline: Duration::from_mins(1), max_calls: 3 };
                        return db.write(move |tx| Box::pin(async move { runs::open(tx, &new).await })).await.expect("answered").is_some();
                    }
                    let door = Door::Named(format!("n{number}"));
                    let knock = Knock { agent, token, door, conversation: None, purpose: Purpose::Call, idle_after: limits::IMPLICIT_IDLE };
                    let behind = db.write(move |tx| Box::pin(async move { runs::behind(tx, &knock).await })).await;
                    matches!(behind, Ok(Behind::Open { .. }))
                })
            });
            let opening: Vec<_> = opening.collect();
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            let gone = test.db.write(move |tx| Box::pin(async move {
                if round % 3 == 0 { agents::delete(tx, agent).await } else { Ok(tokens::revoke(tx, agent, token).await?.is_some()) }
            })).await;
            assert_eq!(gone, Ok(true));
            let mut opened = 0;
            for one in opening {
                opened += i64::from(one.await.expect("no panic"));
            }
            let of_agent = |state: &str| format!("SELECT count(*) FROM runs WHERE agent_id = '{agent}' AND state = '{state}'");
            assert_eq!((test.number(&of_agent("open")).await, test.number(&of_agent("over")).await), (0, opened), "round {round}");
        }
    }

    async fn an_mcp_session_is_forgotten_after_thirty_days(test) {
        let visitor = Visitor::new(&test).await;
        let token = visitor.token;
        let new = || test.db.write(move |tx| Box::pin(async move { mcp_sessions::open(tx, token).await }));
        let new = async || new().await.expect("opened").expect("a good token");
        let (used, unused) = (new().await, new().await);
        test.hands.forward(Duration::from_hours(20 * 24));
        open(visitor.knock(Door::Session(used), Purpose::Call).await);
        test.hands.forward(Duration::from_hours(11 * 24));
        assert_eq!(sweep::round(&test.db).await.expect("swept").mcp_sessions, 1);
        assert_eq!(mcp_sessions::is_open(&test.db, token, unused).await, Ok(false));
        assert_eq!(mcp_sessions::is_open(&test.db, token, used).await, Ok(true));
    }
}
