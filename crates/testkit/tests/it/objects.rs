//! Ids that aren't the caller's: in path, query, body and headers, each answered like one that doesn't exist (S-08, S-15).
//!
//! That the two also take equally long is shown by `scripts/bench secrets`: here other tests share the machine.

use formation_testkit::{
    http::{Client, Reply, Run},
    mcp::{Mcp, message},
    on_both_databases,
};
use serde_json::{Value, json};

use crate::stage::{Stage, assert_untouched, at, browsing, contents, plain, site_with};

/// Shapes that are no id of ours.
const MALFORMED: &[&str] = &[
    "x",
    "0",
    "-1",
    "null",
    "undefined",
    "%00",
    "..%2f..%2fmaster.key",
    "..%5c..",
    "*",
    "%27%20OR%201=1",
    "019ad0123456789abcdef0123456789",
    "00000000-0000-0000-0000-00000000000g",
    "019ad01234567abcdef0123456789abcdef0123",
    "{}",
    "[]",
    "%F0%9F%98%80",
    "1e3",
    "true",
];
/// An id of ours by its form that nobody has.
const ABSENT: &str = "019ad012-3456-7abc-8def-0123456789ab";

/// What a run has that others may want.
struct Owned {
    run: Run,
    call: String,
    artifact: String,
    offer: String,
}

async fn owned(client: &Client) -> Owned {
    let run = client.open_run(&json!({})).await.expect("a run");
    run.does("browser_navigate", &at("/")).await.expect("the page opens");
    let shot = run.call(None, "browser_screenshot", &json!({})).await.expect("an answer").json();
    let artifact = shot["observation"]["artifact"].as_str().expect("a screenshot is kept").to_owned();
    let call = shot["id"].as_str().expect("an id").to_owned();
    let offers = run.client.get("/v1/run/tools").await.expect("offers").json();
    let offer = offers.as_array().expect("a list").iter().find(|offer| offer["name"] == "browser_read").expect("an offer");
    let offer = offer["offer"].as_str().expect("an id").to_owned();
    Owned { run, call, artifact, offer }
}

/// Status, media type and body: all that a caller can see, the request's own id aside.
fn seen(reply: &Reply) -> (u16, String, Vec<u8>) {
    (reply.status, reply.header("content-type").to_owned(), reply.body.clone())
}

async fn path(client: &Client, route: &str, id: &str) -> Reply {
    client.get(&format!("{route}/{id}")).await.expect("an answer")
}

/// A call that names an offer: what is said, without the ids that each recorded call has of its own.
async fn with_offer(run: &Run, offer: &str) -> (u16, Value) {
    let body = json!({"tool": "browser_read", "arguments": {}, "offer": offer});
    let reply = run.client.post("/v1/run/tool-calls", &body).await.expect("an answer");
    let mut said = reply.json();
    if let Some(fields) = said.as_object_mut() {
        fields.remove("id");
    }
    (reply.status, said)
}

on_both_databases! {
    /// S-08, S-15: 0 successes over every id in path and body, foreign and absent alike, 400 for what is no id.
    async fn bar_s08_foreign_ids_are_absent_ids_chromium(db) {
        let site = site_with("<h1>Mine</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let mine = owned(&stage.alpha).await;
        let siblings = owned(&stage.alpha).await;
        let foreign = owned(&stage.beta).await;
        for (route, own, others) in [
            ("/v1/run/tool-calls", &mine.call, [&siblings.call, &foreign.call, &mine.artifact, &mine.run.id, &mine.offer]),
            ("/v1/run/artifacts", &mine.artifact, [&siblings.artifact, &foreign.artifact, &mine.call, &mine.run.id, &foreign.run.id]),
        ] {
            let absent = seen(&path(&mine.run.client, route, ABSENT).await);
            assert_eq!(absent.0, 404, "{route}");
            assert_eq!(path(&mine.run.client, route, own).await.status, 200, "{route}: one's own");
            for other in others {
                assert_eq!(seen(&path(&mine.run.client, route, other).await), absent, "{route}/{other}");
                // In capitals, with a query, with a range: the same.
                assert_eq!(seen(&path(&mine.run.client, route, &format!("{other}?run_id={}", foreign.run.id)).await), absent);
            }
            for id in MALFORMED {
                let reply = path(&mine.run.client, route, id).await;
                assert_eq!((reply.status, reply.code().as_str()), (400, "malformed_id"), "{route}/{id}: {reply:?}");
            }
            for id in ["", "/", "a/b"] {
                assert_eq!(path(&mine.run.client, route, id).await.status, 404, "{route}/{id}");
            }
        }
        let absent = with_offer(&mine.run, ABSENT).await;
        assert_eq!(absent.1["observation"]["is_error"], true, "{absent:?}");
        for other in [&siblings.offer, &foreign.offer, &mine.call, &foreign.run.id] {
            assert_eq!(with_offer(&mine.run, other).await, absent, "{other}");
        }
        for id in ["x", "", "0", "../..", "019ad012"] {
            let (status, said) = with_offer(&mine.run, id).await;
            assert_eq!((status, &said["code"]), (400, &json!("malformed_id")), "{id}");
        }
        assert_eq!(with_offer(&mine.run, &mine.offer).await.1["outcome"], "ok", "one's own");
    }

    /// S-08: ids of runs and sessions are never taken from content; another agent's words are other words.
    async fn bar_s08_words_and_sessions_belong_to_who_said_them(db) {
        let stage = Stage::of(&db, plain());
        let session = Mcp::legacy(&stage.alpha).await.expect("a session");
        let stolen = session.through(&stage.beta);
        let absent = {
            let request = stage.beta.request(http::Method::POST, "/mcp").header("mcp-session-id", ABSENT);
            let request = request.header("accept", "application/json, text/event-stream").header("mcp-protocol-version", "2025-11-25");
            formation_testkit::http::send(request.json(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))).await.expect("an answer")
        };
        assert_eq!(absent.status, 404);
        assert_eq!(seen(&stolen.post("tools/list", &json!({})).await.expect("an answer")), seen(&absent));
        assert_eq!(stolen.delete().await.expect("an answer").status, 404);
        // Another token of the same agent is another principal.
        let second = stage.client.with_token(&stage.setup.token(&stage.place, "alpha").expect("a token"));
        assert_eq!(seen(&session.through(&second).post("tools/list", &json!({})).await.expect("an answer")), seen(&absent));
        assert_eq!(message(&session.post("tools/list", &json!({})).await.expect("an answer")).expect("a list")["result"]["tools"], json!([]));

        // The same word for a run, a conversation and a call: another agent's are others.
        let count = async |sql: &str| db.number(sql).await;
        for client in [&stage.alpha, &stage.beta] {
            let mcp = Mcp::modern(client, Some("one")).in_conversation("one");
            mcp.call_as(Some("one"), "browser_read", &json!({})).await.expect("a refusal on record");
        }
        assert_eq!(count("SELECT count(DISTINCT agent_id) FROM runs WHERE origin = 'named'").await, 2);
        assert_eq!(count("SELECT count(DISTINCT agent_id) FROM conversations WHERE name = 'one'").await, 2);
        assert_eq!(count("SELECT count(DISTINCT agent_id) FROM tool_calls WHERE key = 'one'").await, 2);
        let run = stage.beta.open_run(&json!({"conversation_id": "one"})).await.expect("a run");
        let call = run.call(Some("one"), "browser_navigate", &at("/")).await.expect("an answer");
        assert_eq!((call.status, call.code().as_str()), (409, "id_reused"), "its own word is taken: {call:?}");
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let before = contents(&db).await;
        let repeat = run.call(Some("one"), "browser_read", &json!({})).await.expect("an answer");
        assert_eq!(repeat.status, 200, "a key is the agent's, whichever run: {repeat:?}");
        assert_eq!(contents(&db).await["tool_calls"], before["tool_calls"], "and its repeat records nothing");
    }

    /// The command line's only foreign id: a call of another run can't be settled through this one.
    async fn bar_s08_a_finding_needs_the_call_s_own_run(db) {
        let stage = Stage::of(&db, plain());
        let mine = stage.alpha.open_run(&json!({})).await.expect("a run");
        let other = stage.beta.open_run(&json!({})).await.expect("a run");
        let call = mine.call(None, "browser_read", &json!({})).await.expect("an answer").json()["id"].as_str().expect("an id").to_owned();
        let settle = |run: &str, call: &str| {
            let words = ["runs", run, "--settle", call, "took_effect", "--note", "seen"];
            stage.setup.run(&stage.place, &words).expect_err("nothing to settle").to_string()
        };
        let before = contents(&db).await;
        let absent = settle(&other.id, ABSENT).replace(ABSENT, "ID");
        assert_eq!(settle(&other.id, &call).replace(&call, "ID"), absent);
        assert!(!absent.contains("took_effect on"), "{absent}");
        assert_untouched(&db, &before).await;
    }
}
