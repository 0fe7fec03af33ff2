//! `/mcp` over the whole server: both families of revisions, the fence in front of them, and what a result looks like.

use std::time::Duration;

use formation_testkit::{
    databases::{self, Backend, TestDb},
    http::{Client, Reply, send},
    mcp::{MODERN, Mcp, message},
    on_both_databases,
    site::{Hold, Page},
};
use http::Method;
use serde_json::{Value, json};

use crate::stage::{Stage, assert_untouched, at, browsing, plain, set_browser, site_with};

const LIMIT: Duration = Duration::from_secs(15);
const BOTH: &str = "application/json, text/event-stream";

/// Reads a stream until an event holds `word`; all of what was read.
async fn until(stream: &mut reqwest::Response, word: &str) -> String {
    let mut text = String::new();
    let read = async {
        while let Ok(Some(chunk)) = stream.chunk().await {
            text.push_str(&String::from_utf8_lossy(&chunk));
            if text.contains(word) {
                return true;
            }
        }
        false
    };
    let found = tokio::time::timeout(LIMIT, read).await;
    assert_eq!(found, Ok(true), "no `{word}` in {text}");
    text
}

async fn ends(stream: &mut reqwest::Response) -> bool {
    let read = async { while matches!(stream.chunk().await, Ok(Some(_))) {} };
    tokio::time::timeout(LIMIT, read).await.is_ok()
}

/// A request of the sessionless revision, whole.
fn modern(method: &str, mut parameters: Value) -> Value {
    parameters["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    parameters["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    parameters["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": parameters})
}

fn error_code(reply: &Reply) -> i64 {
    reply.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("an error: {reply:?}"))
}

async fn posted(client: &Client, headers: &[(&str, &str)], body: &Value) -> Reply {
    let mut request = client.request(Method::POST, "/mcp").header("accept", BOTH);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(request.json(body)).await.expect("an answer")
}

on_both_databases! {
    /// contract.md 3: a legacy client has a session of its own, is told of changed grants, and is gone after DELETE.
    async fn mcp_a_legacy_session_lives_until_it_is_deleted_chromium(db) {
        let site = site_with("<h1>Site</h1>").await;
        let stage = Stage::of(&db, browsing(&site).timing("poll_ms=200,keep_alive_ms=300"));
        let session = Mcp::legacy(&stage.alpha).await.expect("a session");
        let id = session.session().expect("an id").to_owned();
        assert!(id.len() >= 22 && id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id}");
        assert_ne!(Mcp::legacy(&stage.alpha).await.expect("another").session(), Some(id.as_str()));
        assert_eq!(session.tools().await.expect("tools").len(), 4);
        let seen = session.call("browser_navigate", &at("/")).await.expect("a page");
        assert_eq!(seen["is_error"], false, "{seen}");
        assert_eq!(seen["run"]["started"], Value::Null, "the first run is nobody's successor: {seen}");
        let read = session.call("browser_read", &json!({})).await.expect("a page");
        assert_eq!(read["text"], seen["text"], "the same run, the same browser");

        let mut stream = session.request(Method::GET).header("accept", "text/event-stream").send().await.expect("a stream");
        assert_eq!(stream.status().as_u16(), 200);
        until(&mut stream, ":").await;
        set_browser(&db, None, "disabled").await;
        until(&mut stream, "notifications/tools/list_changed").await;
        assert_eq!(session.tools().await.expect("tools"), Vec::<String>::new());
        set_browser(&db, None, "auto").await;
        until(&mut stream, "notifications/tools/list_changed").await;
        assert_eq!(session.tools().await.expect("tools").len(), 4);

        let deleted = session.delete().await.expect("an answer");
        assert_eq!(deleted.status, 204, "{deleted:?}");
        assert!(ends(&mut stream).await, "its stream ends");
        let gone = session.post("tools/list", &json!({})).await.expect("an answer");
        assert_eq!((gone.status, gone.code().as_str()), (404, "not_found"));
        assert_eq!(session.delete().await.expect("an answer").status, 404);
        assert_eq!(db.number("SELECT count(*) FROM runs WHERE state = 'open'").await, 0, "its run has ended");
    }

    /// The revision without sessions: discover, list and call by headers, a stream of its own for changes, no GET and no DELETE.
    async fn mcp_the_sessionless_revision_needs_no_session_chromium(db) {
        let site = site_with("<h1>Site</h1>").await;
        let stage = Stage::of(&db, browsing(&site).timing("poll_ms=200"));
        let client = Mcp::modern(&stage.alpha, None);
        let discovered = message(&client.post("server/discover", &json!({})).await.expect("an answer")).expect("a result");
        let versions = discovered["result"]["supportedVersions"].clone();
        assert!(versions.as_array().is_some_and(|versions| versions.contains(&json!(MODERN))), "{discovered}");
        assert_eq!(discovered["result"]["capabilities"]["tools"]["listChanged"], true);
        let reply = client.post("tools/list", &json!({})).await.expect("an answer");
        assert_eq!(reply.header("mcp-session-id"), "");
        let listed = message(&reply).expect("a list");
        assert_eq!((&listed["result"]["ttlMs"], &listed["result"]["cacheScope"]), (&json!(0), &json!("private")), "{listed}");
        assert_eq!(client.call("browser_navigate", &at("/")).await.expect("a page")["is_error"], false);
        // Its own word is another run; without a browser of its own there is no page in it.
        let other = Mcp::modern(&stage.alpha, Some("other"));
        let read = other.call("browser_read", &json!({})).await.expect("an empty page");
        assert!(!read.to_string().contains("Site"), "{read}");
        assert_eq!(db.number("SELECT count(*) FROM runs").await, 2);

        let listen = modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        let request = client.request(Method::POST).header("accept", BOTH).header("mcp-method", "subscriptions/listen");
        let mut stream = request.json(&listen).send().await.expect("a stream");
        until(&mut stream, "acknowledged").await;
        set_browser(&db, None, "disabled").await;
        until(&mut stream, "notifications/tools/list_changed").await;
        for method in [Method::GET, Method::DELETE] {
            let reply = send(client.request(method).header("accept", BOTH)).await.expect("an answer");
            assert_eq!((reply.status, reply.code().as_str()), (405, "method_not_allowed"));
        }
    }

    /// A run's token speaks MCP for that run alone, with no session to keep; once it is over every call says so.
    async fn mcp_a_run_token_is_one_run_chromium(db) {
        let site = site_with("<h1>Site</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let legacy = Mcp::legacy(&run.client).await.expect("no session is needed");
        assert_eq!(legacy.session(), None);
        legacy.call("browser_navigate", &at("/")).await.expect("a page");
        let read = Mcp::modern(&run.client, None).call("browser_read", &json!({})).await.expect("the same page");
        assert_eq!(read["text"], "Site");
        run.finish().await.expect("it ends");
        for _ in 0..2 {
            let over = legacy.call("browser_read", &json!({})).await.expect("a refusal");
            assert_eq!(over["refusal"]["reason"], "run_over", "{over}");
        }
        assert_eq!(db.number("SELECT count(*) FROM runs").await, 1);
    }
}

/// contract.md 3: a client that gives up a call which still waits its turn has sent nothing, and the ledger says so. Legacy: by a
/// notice, while a disconnect says nothing; 2026-07-28: by closing the answer.
#[test]
fn mcp_a_call_given_up_while_it_waits_sends_nothing_chromium() {
    databases::run(Backend::Sqlite, async |db| {
        let site = site_with("<p>Site").await.with("/held", Page::html("<p>Held")).with("/next", Page::html("<p>Next"));
        let stage = Stage::of(&db, browsing(&site));
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        run.does("browser_navigate", &at("/")).await.expect("a page");
        site.hold(Hold::Answers("/held"));
        let caller = run.clone();
        let holding = tokio::spawn(async move { caller.call(None, "browser_navigate", &at("/held")).await });
        assert!(site.sees("/held", LIMIT).await);

        let legacy = Mcp::legacy(&run.client).await.expect("no session is needed");
        let next = json!({"name": "browser_navigate", "arguments": at("/next"), "_meta": {"formation/tool_call_id": "legacy"}});
        let (asking, parameters) = (legacy.clone(), next.clone());
        let asked = tokio::spawn(async move { asking.post("tools/call", &parameters).await });
        until_count(&db, 1, "tool_calls WHERE key = 'legacy'").await;
        let other = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}});
        assert_eq!(legacy.send(&other).await.expect("an answer").status, 202);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!asked.is_finished(), "another request's cancel is not this one's");
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(legacy.send(&cancel).await.expect("an answer").status, 202);
        let given_up = asked.await.expect("no panic").expect("an answer");
        let result = message(&given_up).expect("a result")["result"].clone();
        assert_eq!(result["isError"], true, "{result}");

        let body = modern(
            "tools/call",
            json!({"name": "browser_navigate", "arguments": at("/next"), "_meta": {"formation/tool_call_id": "modern"}}),
        );
        let request = Mcp::modern(&run.client, None).request(Method::POST).header("accept", BOTH);
        let request = request.header("mcp-method", "tools/call").header("mcp-name", "browser_navigate").json(&body);
        let asked = tokio::spawn(request.send());
        until_count(&db, 1, "tool_calls WHERE key = 'modern'").await;
        asked.abort();
        until_count(&db, 2, "tool_calls WHERE problem = 'cancelled' AND outcome = 'not_dispatched'").await;
        site.release();
        assert_eq!(holding.await.expect("no panic").expect("an answer").json()["outcome"], "ok");
        assert_eq!(site.count("/next"), 0, "{:?}", site.log());
        // What was given up stays given up under its key.
        let again = run.call(Some("legacy"), "browser_navigate", &at("/next")).await.expect("an answer").json();
        assert_eq!((&again["execution"], &again["problem"]["code"]), (&json!("failed"), &json!("cancelled")), "{again}");
        assert_eq!(site.count("/next"), 0);
    });
}

/// Counts until there are as many, for as long as a test waits.
async fn until_count(db: &TestDb, count: i64, rows: &str) {
    let asked = async {
        while db.number(&format!("SELECT count(*) FROM {rows}")).await != count {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, asked).await.expect("it comes true");
}

/// A call of more than ten seconds is answered as a stream that shows life, and ends with the result as its one event.
#[test]
fn mcp_a_long_call_is_answered_as_a_stream_chromium() {
    databases::run(Backend::Sqlite, async |db| {
        let site = site_with("<p>Site").await.with("/held", Page::html("<p>Held"));
        let stage = Stage::of(&db, browsing(&site).timing("keep_alive_ms=500"));
        site.hold(Hold::Answers("/held"));
        let client = Mcp::modern(&stage.alpha, None);
        let parameters = json!({"name": "browser_navigate", "arguments": at("/held")});
        let asked = tokio::spawn(async move { client.post("tools/call", &parameters).await });
        assert!(site.sees("/held", LIMIT).await);
        tokio::time::sleep(Duration::from_millis(11_500)).await;
        site.release();
        let reply = asked.await.expect("no panic").expect("an answer");
        assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream"));
        let text = String::from_utf8(reply.body.clone()).expect("text");
        assert_eq!(text.matches("data: ").count(), 1, "{text}");
        assert!(text.starts_with(": "), "life first: {text}");
        let result = message(&reply).expect("a result");
        assert_eq!((&result["id"], &result["result"]["isError"]), (&json!(1), &json!(false)), "{result}");
    });
}

/// S-10, cases A2 and A3: a foreign Host or Origin meets no route, whatever it carries; nothing is answered to be read.
#[test]
fn bar_s10_foreign_hosts_and_origins_are_refused_before_routing() {
    databases::run(Backend::Sqlite, async |db| {
        let stage = Stage::of(&db, plain());
        let own = stage.url.trim_start_matches("http://").to_owned();
        let port = own.rsplit_once(':').expect("a port").1.to_owned();
        let before = crate::stage::contents(&db).await;
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
        let rebound = format!("rebound.example:{port}");
        let foreign_port = format!("127.0.0.1:{}", port.parse::<u16>().expect("a port") ^ 1);
        let hosts = ["evil.example", "127.0.0.1", "localhost", "evil.example:8420", "169.254.169.254", &rebound, &foreign_port];
        let origins =
            ["http://evil.example", "null", "https://localhost", "file://", "http://127.0.0.1:1", "chrome-extension://abc"];
        for (path, body) in [
            ("/mcp", &initialize),
            ("/v1/runs", &json!({})),
            ("/api/session", &json!({})),
            ("/api/agents", &json!({"slug": "x"})),
            ("/api/settings/web", &json!({})),
            ("/healthz", &json!({})),
            ("/nowhere", &json!({})),
        ] {
            for (name, values) in [("host", &hosts[..]), ("origin", &origins[..])] {
                for value in values {
                    let request = stage.alpha.request(Method::POST, path).header("accept", BOTH).header(name, *value).json(body);
                    let reply = send(request).await.expect("an answer");
                    assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{path} {name}: {value}: {reply:?}");
                    assert_eq!(reply.header("access-control-allow-origin"), "");
                }
            }
            let preflight = stage.alpha.request(Method::OPTIONS, path).header("origin", "http://evil.example");
            let reply = send(preflight.header("access-control-request-method", "POST")).await.expect("an answer");
            assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, ""));
        }
        assert_untouched(&db, &before).await;
        for origin in [format!("http://{own}"), format!("http://localhost:{port}")] {
            let reply = posted(&stage.alpha, &[("origin", &origin)], &initialize).await;
            assert_eq!(reply.status, 200, "our own pages may ask: {reply:?}");
            assert_eq!((reply.header("cache-control"), reply.header("x-content-type-options")), ("no-store", "nosniff"));
        }
    });
}

/// vendors/mcp.md 0 and 1: errors a client can act on, in the protocol's own numbers.
#[test]
fn mcp_errors_are_the_protocol_s_own() {
    databases::run(Backend::Sqlite, async |db| {
        let stage = Stage::of(&db, plain());
        let legacy = Mcp::legacy(&stage.alpha).await.expect("a session");
        let modern_client = Mcp::modern(&stage.alpha, None);
        for client in [&legacy, &modern_client] {
            for (method, parameters, code) in [
                ("tools/call", json!({"name": "browser_delete", "arguments": {}}), -32602),
                ("tools/call", json!({"name": "web_divine", "arguments": {"query": "x"}}), -32602),
                ("tools/list", json!({"cursor": "next"}), -32602),
                ("no/such", json!({}), -32601),
            ] {
                let reply = client.post(method, &parameters).await.expect("an answer");
                assert_eq!(error_code(&reply), code, "{method} {parameters}: {reply:?}");
            }
            for key in [json!(""), json!("a b"), json!(7), json!("x".repeat(129)), Value::Null] {
                let parameters = json!({"name": "browser_read", "arguments": {}, "_meta": {"formation/tool_call_id": key}});
                let reply = client.post("tools/call", &parameters).await.expect("an answer");
                assert_eq!(error_code(&reply), -32602, "{key}: {reply:?}");
            }
        }
        // Headers that say something else than the body (−32020), a revision nobody knows (−32022), a missing piece (−32602).
        let list = modern("tools/list", json!({}));
        let version = ("mcp-protocol-version", MODERN);
        let mismatch = posted(&stage.alpha, &[version, ("mcp-method", "tools/call")], &list).await;
        assert_eq!((mismatch.status, error_code(&mismatch)), (400, -32020), "{mismatch:?}");
        let mut future = list.clone();
        future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
        let unsupported =
            posted(&stage.alpha, &[("mcp-protocol-version", "2099-01-01"), ("mcp-method", "tools/list")], &future).await;
        assert_eq!((unsupported.status, error_code(&unsupported)), (400, -32022), "{unsupported:?}");
        // A batch, an answer, a list: no message of a client's.
        for body in [json!([list]), json!("tools/list"), json!(null), json!(1)] {
            let reply = posted(&stage.alpha, &[version], &body).await;
            assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_body"), "{body}: {reply:?}");
        }
        // No session, and one that is none of ours.
        let old = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        assert_eq!(posted(&stage.alpha, &[], &old).await.status, 400);
        for id in ["x", "019ad012-3456-7abc-8def-0123456789ab", "../..", "' OR 1=1"] {
            let reply = posted(&stage.alpha, &[("mcp-session-id", id)], &old).await;
            assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{id}");
        }
        for (name, value) in [("formation-run", "a b"), ("formation-run", "é"), ("formation-conversation", "a/b")] {
            let reply = posted(&stage.alpha, &[version, ("mcp-method", "tools/list"), (name, value)], &list).await;
            assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_value"), "{name}: {value}: {reply:?}");
        }
        assert_eq!(db.number("SELECT count(*) FROM tool_calls").await, 0, "none of this was a call");
    });
}

/// contract.md 3 and 6: `isError` follows the observation, one text block is the whole of it, and that block is at most 30 KiB as sent.
#[test]
fn mcp_a_result_is_one_bounded_text_block_chromium() {
    databases::run(Backend::Sqlite, async |db| {
        let lines = "<p>A line says \"quoted\\\" \u{1F600} &amp; é</p>".repeat(4_000);
        let buttons = "<button>A \"button\" \\ with a long name to fill the page</button>".repeat(1_000);
        let site = site_with("<p>Small").await.with("/huge", Page::html(&format!("{lines}{buttons}")));
        let stage = Stage::of(&db, browsing(&site));
        let client = Mcp::modern(&stage.alpha, None);
        let results = [
            client.post("tools/call", &json!({"name": "browser_navigate", "arguments": at("/huge")})).await.expect("an answer"),
            client.post("tools/call", &json!({"name": "browser_read", "arguments": {}})).await.expect("an answer"),
            client
                .post("tools/call", &json!({"name": "browser_read", "arguments": {"text_offset": 12_000}}))
                .await
                .expect("an answer"),
        ];
        for reply in &results[..2] {
            let result = message(reply).expect("a result")["result"].clone();
            let content = result["content"].as_array().expect("blocks");
            assert_eq!((content.len(), &result["isError"]), (1, &json!(false)), "{reply:?}");
            assert!(result.get("structuredContent").is_none());
            let text = content[0]["text"].as_str().expect("a text");
            let sent = serde_json::to_string(text).expect("a string").len();
            assert!(sent <= 30 * 1024, "{sent} bytes");
            let observation: Value = serde_json::from_str(text).expect("the observation, whole");
            assert_eq!(observation["truncated"]["text"], true);
            assert_eq!(observation["truncated"]["controls"], true);
            assert!(observation["controls"].as_array().is_some_and(|controls| !controls.is_empty() && controls.len() <= 200));
            assert!(
                observation["truncated"]["next_text_offset"].as_u64().is_some_and(|next| next > 0 && next <= 12_000),
                "{observation}"
            );
        }
        let failed =
            client.post("tools/call", &json!({"name": "browser_act", "arguments": {"action": "click", "ref": "no.1"}})).await;
        let failed = message(&failed.expect("an answer")).expect("a result")["result"].clone();
        assert_eq!(failed["isError"], true, "{failed}");
        let text: Value = serde_json::from_str(failed["content"][0]["text"].as_str().expect("a text")).expect("JSON");
        assert_eq!(text["browser_failure"]["reason"], "stale_ref");
    });
}

/// Case 37: 64 clients with equal JSON-RPC ids at once each get their own answer.
#[test]
fn mcp_equal_ids_of_many_clients_get_their_own_answers() {
    databases::run(Backend::Sqlite, async |db| {
        let stage = Stage::of(&db, plain());
        let mut asked = tokio::task::JoinSet::new();
        for number in 0..64 {
            let mcp = Mcp::modern(&stage.alpha, Some(&format!("client-{number}")));
            asked.spawn(async move {
                let key = format!("call-{number}");
                let refusal = mcp.call_as(Some(&key), "browser_read", &json!({})).await.expect("an answer");
                let tools = mcp.tools().await.expect("a list");
                (refusal["refusal"]["reason"].clone(), tools.len())
            });
        }
        while let Some(answered) = asked.join_next().await {
            assert_eq!(answered.expect("no panic"), (json!("not_offered"), 0));
        }
        assert_eq!(db.number("SELECT count(DISTINCT run_id) FROM tool_calls").await, 64, "each in a run of its own");
    });
}
