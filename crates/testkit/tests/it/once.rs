//! R-02 over the real server: one key, one send; and a budget that is exact.

use std::sync::Arc;

use formation_testkit::{
    databases::TestDb,
    grants::INSTALL,
    http::{Client, Run},
    mcp::Mcp,
    on_both_databases,
    server::{Place, Server, Setup},
    site::{Page, Site},
};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::{sync::Barrier, time::Instant};

use crate::{BINARY, HOST, search::Searching, within};

/// Submissions of one key that come together.
const TOGETHER: usize = 64;
/// Keys of the search test, each submitted twice as often.
const SEARCHES: usize = 20;
/// Workers of the budget test.
const WORKERS: usize = 32;

async fn stage(db: &TestDb) -> (Place, Setup, Server, Client, Site) {
    let site = Site::start().await.expect("a site").with("/open", Page::html("<h1>Open {KEY}</h1>"));
    let place = Place::of(db).expect("a place");
    let setup = Setup::new(BINARY).with_browser().name(&format!("{HOST}:80"), site.address());
    let server = setup.start(&place).expect("the server starts");
    let client = server.agent(&place, "repeater").expect("an agent");
    (place, setup, server, client, site)
}

fn open(key: &str) -> Value {
    json!({"url": format!("http://{HOST}/open?key={key}")})
}

/// Sends one call many times at once and asks each until it has an end.
async fn together(run: &Run, key: &str, tool: &'static str, arguments: &Value) -> Vec<Value> {
    let barrier = Arc::new(Barrier::new(TOGETHER));
    join_all((0..TOGETHER).map(|_| {
        let (run, key, arguments, barrier) = (run.clone(), key.to_owned(), arguments.clone(), Arc::clone(&barrier));
        async move {
            barrier.wait().await;
            let until = Instant::now() + within(60);
            loop {
                let reply = run.call(Some(&key), tool, &arguments).await.expect("an answer");
                match reply.status {
                    200 => return reply.json(),
                    202 if Instant::now() < until => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                    _ => panic!("{reply:?}"),
                }
            }
        }
    }))
    .await
}

on_both_databases! {
    /// An effect, and a look: each key is sent once, and everybody is told the same.
    async fn bar_r02_sixty_four_submissions_of_one_key_are_one_send(db) {
        let (place, setup, server, client, site) = stage(&db).await;
        let run = client.open_run(&json!({"max_tool_calls": 3})).await.expect("a run");
        for key in ["one", "two"] {
            let answers = together(&run, key, "browser_navigate", &open(key)).await;
            assert_eq!(site.count(&format!("/open?key={key}")), 1, "{:?}", site.log());
            assert_eq!(answers[0]["outcome"], "ok", "{}\n{}", answers[0], place.logs());
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        }
        let looks = together(&run, "look", "browser_read", &json!({})).await;
        assert_eq!(looks[0]["outcome"], "ok");
        assert!(looks.iter().all(|look| *look == looks[0]), "refs are one look's");

        // Three calls were made of 192 submissions, and the budget of three says so.
        let over = run.call(Some("four"), "browser_read", &json!({})).await.expect("an answer").json();
        assert_eq!(over["observation"]["refusal"]["reason"], "call_limit", "{over}");
        let trace = setup.trace(&place, &run.id).expect("a trace");
        assert_eq!((&trace["run"]["calls_used"], &trace["run"]["uncertain"]), (&json!(3), &json!(0)));

        // The same key for anything else is refused, and nothing is sent.
        for (tool, arguments) in [("browser_navigate", open("other")), ("browser_read", json!({}))] {
            let reply = run.call(Some("one"), tool, &arguments).await.expect("an answer");
            assert_eq!((reply.status, reply.code().as_str()), (409, "id_reused"), "{reply:?}");
        }
        assert_eq!(site.count("other"), 0);
        // A key is the agent's, over all its runs: a harness that starts again repeats nothing.
        let second = client.open_run(&json!({})).await.expect("another run");
        let repeated = second.call(Some("one"), "browser_navigate", &open("one")).await.expect("an answer");
        assert_eq!(repeated.json()["outcome"], "ok", "{repeated:?}");
        assert_eq!(site.count("/open?key=one"), 1);
        server.kill();
    }

    /// R-02 with units: each key of a search is one request and one unit, however often it is submitted at once, and with other
    /// arguments it is refused and sends nothing. On PostgreSQL every other submission goes to a second replica.
    async fn bar_r02_a_search_is_one_send_and_one_unit(db) {
        let searching = Searching::start(&db).await;
        let stage = &searching.stage;
        let second = stage.place.database().map(|url| {
            let place = stage.place.replica(url).expect("a second place");
            let server = stage.setup.start(&place).expect("a second server");
            (place, server)
        });
        let limits = json!({"requests_per_minute": 6_000, "requests_per_run": 10_000});
        let settings = json!({"mode": "auto", "provider": "", "config": {}, "limits": limits});
        searching.owner.client.set(INSTALL, "search", settings).await.expect("limits");
        let run = searching.run().await;
        let other = second.as_ref().map_or_else(|| run.clone(), |(_, server)| Run {
            client: server.client.with_token(run.client.token().expect("a run has a token")),
            ..run.clone()
        });
        for round in 0..SEARCHES {
            let key = format!("s-{round}");
            let arguments = json!({"query": format!("once {key}.")});
            let (here, there) = tokio::join!(
                together(&run, &key, "web_search", &arguments),
                together(&other, &key, "web_search", &arguments)
            );
            assert_eq!(here[0]["outcome"], "ok", "{}", here[0]);
            assert!(here.iter().chain(&there).all(|answer| *answer == here[0]), "{key}: equal answers");
            assert_eq!(searching.brave.count(&format!("once {key}.")), 1);
            let reused = run.call(Some(&key), "web_search", &json!({"query": "something else"})).await.expect("an answer");
            assert_eq!((reused.status, reused.code().as_str()), (409, "id_reused"));
        }
        let count = i64::try_from(SEARCHES).expect("a count");
        assert_eq!(searching.brave.sends().len(), SEARCHES);
        assert_eq!(db.number("SELECT count(*) FROM reservations").await, count);
        assert_eq!(db.number("SELECT used FROM run_counters").await, count);
    }

    /// Over MCP a repeat waits for the end, and another call under the key is the refusal.
    async fn bar_r02_over_mcp_a_repeat_waits_and_sends_nothing(db) {
        let (_place, _setup, server, client, site) = stage(&db).await;
        let mcp = Mcp::modern(&client, Some("repeats"));
        let calls = (0..8).map(|_| {
            let mcp = mcp.clone();
            async move { mcp.call_as(Some("m-1"), "browser_navigate", &open("m")).await.expect("an answer") }
        });
        let answers = join_all(calls).await;
        assert_eq!(site.count("/open?key=m"), 1);
        assert_eq!(answers[0]["is_error"], false, "{}", answers[0]);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        let reused = mcp.call_as(Some("m-1"), "browser_navigate", &open("n")).await.expect("an answer");
        assert_eq!(reused["refusal"]["reason"], "id_reused", "{reused}");
        assert_eq!(site.count("key=n"), 0);
        server.kill();
    }

    /// One process on SQLite, two on PostgreSQL: the limit is met exactly, refused calls included, those over it aside.
    async fn bar_r02_a_call_budget_admits_exactly_its_limit(db) {
        const LIMIT: usize = 100;
        let (place, setup, server, client, _site) = stage(&db).await;
        let second = place.database().map(|url| {
            let place = place.replica(url).expect("a second place");
            let server = setup.start(&place).expect("a second server");
            (place, server)
        });
        let run = client.open_run(&json!({"max_tool_calls": LIMIT})).await.expect("a run");
        let other = second.as_ref().map_or_else(|| run.clone(), |(_, server)| Run {
            client: server.client.with_token(run.client.token().expect("a run has a token")),
            ..run.clone()
        });
        let barrier = Arc::new(Barrier::new(WORKERS));
        let workers = (0..WORKERS).map(|worker| {
            let run = if worker % 2 == 0 { run.clone() } else { other.clone() };
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move {
                barrier.wait().await;
                let mut counted = 0_usize;
                for attempt in 0..2 * LIMIT / WORKERS {
                    let key = format!("w{worker}-{attempt}");
                    let arguments = json!({"action": "click", "ref": "none.1"});
                    let reply = run.call(Some(&key), "browser_act", &arguments).await.expect("an answer");
                    let settled = reply.json();
                    if settled["observation"]["refusal"]["reason"] == "call_limit" {
                        continue;
                    }
                    assert_eq!(settled["observation"]["browser_failure"]["reason"], "stale_ref", "{reply:?}");
                    counted += 1;
                }
                counted
            })
        });
        let counted: usize = join_all(workers).await.into_iter().map(|worker| worker.expect("no worker fails")).sum();
        assert_eq!(counted, LIMIT, "{}", place.logs());
        let trace = setup.trace(&place, &run.id).expect("a trace");
        assert_eq!((&trace["run"]["calls_used"], &trace["run"]["max_calls"]), (&json!(LIMIT), &json!(LIMIT)));
        server.kill();
    }
}
