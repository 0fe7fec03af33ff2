//! Which run a call belongs to (contract.md 3), over both families of MCP revisions and on two replicas.

use formation_testkit::{
    databases::{Backend, TestDb, run},
    http::Client,
    mcp::Mcp,
    on_both_databases,
    processes::comes_true,
    server::{Place, Server, Setup},
    site::{Page, Site},
};
use serde_json::{Value, json};

use crate::{BINARY, HOST, within};

struct Stage {
    place: Place,
    setup: Setup,
    server: Server,
    client: Client,
    site: Site,
    db: TestDb,
}

impl Stage {
    async fn of(db: TestDb) -> Self {
        let site = Site::start().await.expect("a site").with("/open", Page::html("<h1>Open</h1>"));
        let place = Place::of(&db).expect("a place");
        let setup = Setup::new(BINARY).with_browser().timing("sweep_ms=500").name(&format!("{HOST}:80"), site.address());
        let server = setup.start(&place).expect("the server starts");
        let client = server.agent(&place, "runner").expect("an agent");
        Self { place, setup, server, client, site, db }
    }

    /// Ids of all runs, oldest first.
    async fn runs(&self) -> Vec<String> {
        self.db.texts("SELECT id FROM runs ORDER BY id").await
    }

    async fn reason(&self, run: &str) -> String {
        self.db.texts(&format!("SELECT end_reason FROM runs WHERE id = '{run}'")).await.remove(0)
    }
}

fn open(key: &str) -> Value {
    json!({"url": format!("http://{HOST}/open?key={key}")})
}

/// A call that costs no browser: recorded, and answered `stale_ref`.
async fn poke(mcp: &Mcp) -> Value {
    mcp.call("browser_act", &json!({"action": "click", "ref": "none.1"})).await.expect("an answer")
}

fn is_run_over(observation: &Value) -> bool {
    observation["refusal"]["reason"] == "run_over"
}

on_both_databases! {
    /// The session is the key; its end is told once, and the call after that opens a run which says so.
    async fn a_session_s_runs_follow_one_another(db) {
        let stage = Stage::of(db).await;
        let mcp = Mcp::legacy(&stage.client).await.expect("a session");
        assert_eq!(stage.runs().await.len(), 0, "`initialize` opens a session, not a run");
        assert_eq!(mcp.tools().await.expect("tools").len(), 4);
        let first = mcp.call("browser_navigate", &open("one")).await.expect("an answer");
        assert_eq!((&first["is_error"], first.get("run")), (&json!(false), None), "{first}");
        let [one] = stage.runs().await.try_into().expect("listing and calling share a run");
        assert_eq!(stage.place.browsers().len(), 1);

        for (end, reason) in [
            ("deadline_at = created_at + 1", "deadline"),
            ("last_call_at = last_call_at - 960000000", "idle"),
        ] {
            let before = stage.runs().await;
            stage.db.meddle(&format!("UPDATE runs SET {end} WHERE state = 'open'")).await;
            let old = before.last().expect("a run").clone();
            mcp.tools().await.expect("tools");
            assert_eq!(stage.runs().await, before, "a listing opens no successor before the end was told");
            let told = poke(&mcp).await;
            assert!(is_run_over(&told), "{told}");
            assert_eq!(stage.reason(&old).await, reason);
            let text = told["refusal"]["explanation"].as_str().expect("a sentence").to_owned();
            assert!(!text.is_empty(), "{told}");
            let next = poke(&mcp).await;
            assert_eq!((&next["browser_failure"]["reason"], &next["run"]["started"]), (&json!("stale_ref"), &json!(true)), "{next}");
            let runs = stage.runs().await;
            assert_eq!(runs.len(), before.len() + 1);
            assert_eq!(next["run"]["id"], json!(runs.last().expect("a run")), "{next}");
            let after = poke(&mcp).await;
            assert_eq!(after.get("run"), None, "told once: {after}");
        }
        // The first run's browser went with it.
        assert!(comes_true(within(10), || stage.place.browser_processes().is_empty()).await);
        assert_eq!(stage.reason(&one).await, "deadline");

        let deleted = mcp.delete().await.expect("an answer");
        assert_eq!(deleted.status, 204, "{deleted:?}");
        let gone = mcp.post("tools/list", &json!({})).await.expect("an answer");
        assert_eq!(gone.status, 404, "{gone:?}");
        assert_eq!(mcp.delete().await.expect("an answer").status, 404);
        let runs = stage.runs().await;
        assert_eq!(stage.reason(runs.last().expect("a run")).await, "session_ended");
        stage.server.kill();
    }

    /// 2026-07-28: the client's own word, or the token's current run.
    async fn a_run_is_kept_under_the_client_s_own_word(db) {
        let stage = Stage::of(db).await;
        let (a, b, current) = (
            Mcp::modern(&stage.client, Some("job-a")),
            Mcp::modern(&stage.client, Some("job-b")),
            Mcp::modern(&stage.client, None),
        );
        for mcp in [&a, &b, &current, &a, &current] {
            let answer = poke(mcp).await;
            assert_eq!((&answer["browser_failure"]["reason"], answer.get("run")), (&json!("stale_ref"), None), "{answer}");
        }
        assert_eq!(stage.runs().await.len(), 3);
        let told = stage.db.texts("SELECT origin || ' ' || client_key || ' ' || calls_used FROM runs ORDER BY id").await;
        assert_eq!(told, ["named job-a 2", "named job-b 1", "current  2"]);

        // One run's end is no other's.
        stage.db.meddle("UPDATE runs SET deadline_at = created_at + 1 WHERE client_key = 'job-a'").await;
        assert!(is_run_over(&poke(&a).await));
        assert!(!is_run_over(&poke(&b).await));
        assert_eq!(poke(&a).await["run"]["started"], true);

        for word in ["a b", "a:b", &"x".repeat(65)] {
            let bad = Mcp::modern(&stage.client, Some(word)).post("tools/list", &json!({})).await.expect("an answer");
            assert_eq!((bad.status, bad.code().as_str()), (422, "invalid_value"), "{bad:?}");
        }
        // A conversation of the caller's own word, made at the opening of a run.
        let talk = Mcp::modern(&stage.client, Some("talk-1")).in_conversation("c-1");
        poke(&talk).await;
        poke(&Mcp::modern(&stage.client, Some("talk-2")).in_conversation("c-1")).await;
        assert_eq!(stage.db.number("SELECT count(DISTINCT conversation_id) FROM runs WHERE client_key LIKE 'talk-%'").await, 1);
        stage.server.kill();
    }

    /// Sessions and runs belong to their token: another's are answered like ones that never were.
    async fn two_tokens_do_not_see_each_other_s_runs(db) {
        let stage = Stage::of(db).await;
        let second = stage.server.client.with_token(&stage.setup.token(&stage.place, "runner").expect("a second token"));
        let stranger = stage.server.agent(&stage.place, "stranger").expect("another agent");
        let mcp = Mcp::legacy(&stage.client).await.expect("a session");
        poke(&mcp).await;
        let unknown = {
            let ours = Mcp::legacy(&stage.client).await.expect("a session");
            ours.delete().await.expect("it ends");
            ours.post("tools/list", &json!({})).await.expect("an answer")
        };
        for client in [&second, &stranger] {
            let foreign = mcp.through(client).post("tools/list", &json!({})).await.expect("an answer");
            assert_eq!((foreign.status, &foreign.body), (404, &unknown.body), "{foreign:?}");
            assert_eq!(mcp.through(client).delete().await.expect("an answer").status, 404);
        }
        assert!(!is_run_over(&poke(&mcp).await), "nobody else ended it");

        let word = Mcp::modern(&stage.client, Some("same-word"));
        poke(&word).await;
        let before = stage.runs().await.len();
        poke(&word.through(&second)).await;
        poke(&word.through(&stranger)).await;
        assert_eq!(stage.runs().await.len(), before + 2, "the same word of another token is another run");

        // One agent's key is not another's, and a run's call is found by that run alone.
        let (mine, theirs) = (
            stage.client.open_run(&json!({})).await.expect("a run"),
            stranger.open_run(&json!({})).await.expect("a run"),
        );
        let arguments = json!({"action": "click", "ref": "none.1"});
        let call = mine.call(Some("k"), "browser_act", &arguments).await.expect("an answer").json();
        let same = theirs.call(Some("k"), "browser_act", &json!({"action": "click", "ref": "none.2"})).await.expect("an answer");
        assert_eq!(same.status, 200, "{same:?}");
        let path = format!("/v1/run/tool-calls/{}", call["id"].as_str().expect("an id"));
        assert_eq!(mine.client.get(&path).await.expect("an answer").json(), call);
        assert_eq!(theirs.client.get(&path).await.expect("an answer").status, 404);
        stage.server.kill();
    }

    /// A run token is its run, over both doors, and stays so after the end.
    async fn a_run_token_s_calls_are_refused_once_its_run_is_over(db) {
        let stage = Stage::of(db).await;
        let run = stage.client.open_run(&json!({})).await.expect("a run");
        let legacy = Mcp::legacy(&run.client).await.expect("no session is needed");
        assert_eq!(legacy.session(), None);
        let modern = Mcp::modern(&run.client, None);
        for mcp in [&legacy, &modern] {
            assert_eq!(poke(mcp).await["browser_failure"]["reason"], "stale_ref");
        }
        run.finish().await.expect("it ends");
        run.finish().await.expect("ending it again changes nothing");
        for mcp in [&legacy, &modern, &legacy, &modern] {
            assert!(is_run_over(&poke(mcp).await));
        }
        assert_eq!(stage.runs().await.len(), 1);
        stage.server.kill();
    }
}

/// B17: a `local` session has a home. A call that lands elsewhere says so to the operator and changes nothing.
#[test]
fn bar_b17_a_run_s_second_call_on_another_replica_fails_for_the_operator_postgres() {
    run(Backend::Postgres, |db| async move {
        let stage = Stage::of(db).await;
        let other = stage.place.replica(stage.place.database().expect("an address")).expect("a second place");
        let second = stage.setup.start(&other).expect("a second server");
        let mcp = Mcp::legacy(&stage.client).await.expect("a session");
        assert_eq!(mcp.call("browser_navigate", &open("one")).await.expect("an answer")["is_error"], false);

        let there = mcp.through(&second.client.with_token(stage.client.token().expect("a token")));
        assert_eq!(there.tools().await.expect("any replica serves the session").len(), 4);
        for (tool, arguments) in [("browser_read", json!({})), ("browser_navigate", open("two"))] {
            let failed = there.call(tool, &arguments).await.expect("an answer");
            let failure = &failed["browser_failure"];
            assert_eq!((&failure["reason"], &failure["recovery"]), (&json!("connection_failed"), &json!("operator")), "{failed}");
            assert_eq!(failure["outcome"], "not_dispatched");
        }
        assert_eq!(stage.site.count("key=two"), 0);
        // At home it goes on.
        let read = mcp.call("browser_read", &json!({})).await.expect("an answer");
        assert_eq!(read["is_error"], false, "{read}");
        assert_eq!(stage.runs().await.len(), 1);
        second.kill();
        stage.server.kill();
    });
}
