//! The tools over the whole server and a real Chromium, by the requirement each test shows.

use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use formation_testkit::{
    http::{Run, reference},
    mcp::{Mcp, message},
    on_both_databases,
    processes::{self, comes_true},
    site::{Hold, Page, Site},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::stage::{HOST, Stage, at, browsing, plain, site_with};

const LIMIT: Duration = Duration::from_secs(30);

async fn call(run: &Run, tool: &str, arguments: &Value) -> Value {
    let reply = run.call(None, tool, arguments).await.expect("an answer");
    assert_eq!(reply.status, 200, "{tool} {arguments}: {reply:?}");
    reply.json()
}

/// A run of `alpha` whose browser shows `/`, and what it saw.
async fn opened(stage: &Stage) -> (Run, Value) {
    let run = stage.alpha.open_run(&json!({})).await.expect("a run");
    let page = run.does("browser_navigate", &at("/")).await.expect("the page opens");
    (run, page)
}

fn act(action: &str, page: &Value, name: &str) -> Value {
    json!({"action": action, "ref": reference(page, name).expect("a control")})
}

fn types(page: &Value, name: &str, text: &str) -> Value {
    json!({"action": "type", "ref": reference(page, name).expect("a control"), "text": text})
}

fn failure(call: &Value) -> &Value {
    &call["observation"]["browser_failure"]
}

/// What must be true of every failure (T7, B8): one closed shape, an outcome of the three, nothing automatic.
fn assert_failure(call: &Value, reason: &str, outcome: &str, recovery: &str) {
    let failure = failure(call);
    assert_eq!(
        (&failure["reason"], &failure["outcome"], &failure["recovery"]),
        (&json!(reason), &json!(outcome), &json!(recovery)),
        "{call}"
    );
    assert_eq!(call["observation"]["is_error"], true);
    assert_eq!(failure["retry"]["automatic"], false);
    assert!(failure["retry"]["may_retry"].is_boolean());
    for field in failure.as_object().expect("an object").keys() {
        let known = ["stage", "phase", "reason", "outcome", "recovery", "retry", "http_status", "provider_codes", "request_id"];
        assert!(known.contains(&field.as_str()), "{field}: {call}");
    }
    let text = call.to_string();
    assert!(!text.contains("net::ERR") && !text.contains("127.0.0.1:"), "no browser's words: {text}");
}

on_both_databases! {
    /// T1, T3: stable, vendor-neutral names in fixed order, each with a schema that takes nothing else, the same on both doors.
    async fn t1_t3_four_tools_with_a_schema_each_chromium(db) {
        const NAMES: [&str; 4] = ["browser_navigate", "browser_read", "browser_act", "browser_screenshot"];
        let site = site_with("<h1>Site</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let offers = run.client.get("/v1/run/tools").await.expect("offers").json();
        let offers = offers.as_array().expect("a list").clone();
        let session = Mcp::legacy(&stage.alpha).await.expect("a session");
        let listed = message(&session.post("tools/list", &json!({})).await.expect("an answer")).expect("a list");
        let listed = listed["result"]["tools"].as_array().expect("tools").clone();
        let modern = Mcp::modern(&run.client, None).tools().await.expect("tools");
        assert_eq!(modern, NAMES);
        assert_eq!((offers.len(), listed.len()), (4, 4));
        for (name, (offer, tool)) in NAMES.iter().zip(offers.iter().zip(&listed)) {
            assert_eq!((&offer["name"], &tool["name"]), (&json!(name), &json!(name)));
            assert_eq!(offer["input_schema"], tool["inputSchema"]);
            assert_eq!(offer["description"], tool["description"]);
            let schema = &offer["input_schema"];
            assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)), "{schema}");
            let is_effect = matches!(*name, "browser_navigate" | "browser_act");
            assert_eq!(offer["annotations"], json!({"read_only": !is_effect, "destructive": is_effect, "open_world": true}));
            assert_eq!(tool["annotations"]["readOnlyHint"], !is_effect);
            let text = offer.to_string().to_lowercase();
            for vendor in ["cloudflare", "browserbase", "chromium", "playwright", "local "] {
                assert!(!text.contains(vendor), "{name} names `{vendor}`");
            }
        }
        let schema = |index: usize| &offers[index]["input_schema"];
        assert_eq!(schema(0)["required"], json!(["url"]));
        assert_eq!(schema(2)["required"], json!(["action", "ref"]));
        for (index, fields) in [(0, &["url"][..]), (1, &["find", "text_offset"]), (2, &["action", "dialog", "key", "ref", "text"]), (3, &[])] {
            let known: Vec<&str> = schema(index)["properties"].as_object().map(|fields| fields.keys().map(String::as_str).collect()).unwrap_or_default();
            assert_eq!(known, fields, "no script, header, path or endpoint (A13)");
        }
        // Listing again is the same list and no new offers.
        let again = run.client.get("/v1/run/tools").await.expect("offers").json();
        assert_eq!(again.as_array().expect("a list"), &offers);
    }

    /// T8, L3, L4, L6: a key is one send, one unit and one answer, on either door; with other arguments it is refused.
    async fn l3_a_repeated_call_sends_nothing_chromium(db) {
        let site = site_with("<button onclick=\"say('clicked')\">Go</button>").await.with("/second", Page::html("<p>Second"));
        let stage = Stage::of(&db, browsing(&site));
        let (run, page) = opened(&stage).await;
        let first = run.call(Some("nav"), "browser_navigate", &at("/second")).await.expect("an answer");
        for _ in 0..3 {
            let again = run.call(Some("nav"), "browser_navigate", &at("/second")).await.expect("an answer");
            assert_eq!((again.status, again.json()), (200, first.json()));
        }
        assert_eq!(site.count("/second"), 1);
        let id = first.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(run.client.get(&format!("/v1/run/tool-calls/{id}")).await.expect("an answer").json(), first.json(), "L4");
        drop(page);

        let page = run.does("browser_navigate", &at("/")).await.expect("the page opens");
        let click = act("click", &page, "Go");
        let mcp = Mcp::modern(&run.client, None);
        let clicked = mcp.call_as(Some("click"), "browser_act", &click).await.expect("a result");
        assert_eq!(clicked["is_error"], false, "{clicked}");
        assert!(site.sees("clicked", LIMIT).await);
        assert_eq!(mcp.call_as(Some("click"), "browser_act", &click).await.expect("a result"), clicked);
        let here = run.call(Some("click"), "browser_act", &click).await.expect("an answer").json();
        assert_eq!(here["observation"], clicked, "the other door answers the same");
        let used = db.number("SELECT calls_used FROM runs WHERE origin = 'api'").await;
        assert_eq!(used, 4, "repeats take no call");

        let other = run.call(Some("click"), "browser_read", &json!({})).await.expect("an answer");
        assert_eq!((other.status, other.code().as_str()), (409, "id_reused"));
        let refused = mcp.call_as(Some("click"), "browser_read", &json!({})).await.expect("a refusal");
        assert_eq!(refused["refusal"]["reason"], "id_reused", "{refused}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(site.count("clicked"), 1, "{:?}", site.log());
    }

    /// T7, T8, L6: a click whose acknowledgement is missing is uncertain, and stays so however often it is asked for; reads go on,
    /// mutations wait until a person has settled it.
    async fn t8_an_uncertain_click_is_settled_by_a_person_chromium(db) {
        let site = site_with("<button onclick=\"ask('clicked')\">Pay</button><p>Text").await;
        let stage = Stage::of(&db, browsing(&site).timing("operation_ms=5000"));
        let (run, page) = opened(&stage).await;
        let click = act("click", &page, "Pay");
        site.hold(Hold::Answers("clicked"));
        let uncertain = run.call(Some("pay"), "browser_act", &click).await.expect("an answer").json();
        assert!(site.sees("clicked", LIMIT).await, "the click arrived");
        site.release();
        assert_eq!((&uncertain["execution"], &uncertain["outcome"]), (&json!("succeeded"), &json!("uncertain")), "{uncertain}");
        assert_eq!(failure(&uncertain)["outcome"], "uncertain");
        let again = run.call(Some("pay"), "browser_act", &click).await.expect("an answer").json();
        assert_eq!(again, uncertain, "asked again it is what it was");
        assert_eq!(failure(&uncertain)["recovery"], "inspect_then_reconcile", "the session lives on: {uncertain}");

        let read = run.does("browser_read", &json!({})).await.expect("reads go on");
        let refused = call(&run, "browser_act", &act("click", &read, "Pay")).await;
        assert_eq!(refused["observation"]["refusal"]["reason"], "needs_reconciliation", "{refused}");
        let refused = call(&run, "browser_navigate", &at("/")).await;
        assert_eq!(refused["observation"]["refusal"]["reason"], "needs_reconciliation", "{refused}");
        run.does("browser_screenshot", &json!({})).await.expect("pictures too");
        assert_eq!(site.count("clicked"), 1);

        let id = uncertain["id"].as_str().expect("an id");
        let settle = ["runs", &run.id, "--settle", id, "had_no_effect", "--note", "the order list is empty"];
        stage.setup.run(&stage.place, &settle).expect("it is settled");
        stage.setup.run(&stage.place, &settle).expect_err("once");
        let trace = stage.setup.trace(&stage.place, &run.id).expect("a trace");
        let row = trace["calls"].as_array().expect("calls").iter().find(|row| row["id"] == id).expect("the call").clone();
        assert_eq!((&row["outcome"], &row["finding"]), (&json!("uncertain"), &json!("had_no_effect")), "the outcome stays: {row}");
        let read = run.does("browser_read", &json!({})).await.expect("reads go on");
        let clicked = call(&run, "browser_act", &act("click", &read, "Pay")).await;
        assert_eq!(clicked["outcome"], "ok", "{clicked}");
        assert_eq!(site.count("clicked"), 2);
    }

    /// T8, B19: a browser killed in the middle of a click: the click is uncertain, the run is over, nothing replaces it by itself.
    async fn t8_a_browser_that_dies_in_a_click_leaves_it_uncertain_chromium(db) {
        let site = site_with("<button onclick=\"ask('clicked')\">Pay</button>").await;
        let stage = Stage::of(&db, browsing(&site));
        let (run, page) = opened(&stage).await;
        let click = act("click", &page, "Pay");
        site.hold(Hold::Answers("clicked"));
        let (caller, arguments) = (run.clone(), click.clone());
        let asked = tokio::spawn(async move { caller.call(Some("pay"), "browser_act", &arguments).await });
        assert!(site.sees("clicked", LIMIT).await);
        for pid in stage.place.browsers() {
            processes::send(pid, Signal::KILL);
        }
        let lost = asked.await.expect("no panic").expect("an answer").json();
        site.release();
        assert_eq!(lost["outcome"], "uncertain", "{lost}");
        assert_failure(&lost, failure(&lost)["reason"].as_str().expect("a reason"), "uncertain", "new_run");
        assert_eq!(run.call(Some("pay"), "browser_act", &click).await.expect("an answer").json(), lost);
        let next = call(&run, "browser_read", &json!({})).await;
        assert_eq!(next["observation"]["refusal"]["reason"], "run_over", "{next}");
        assert_eq!(site.count("clicked"), 1);
        assert!(comes_true(LIMIT, || stage.place.browsers().is_empty()).await, "no process is left");
        let settle = ["runs", &run.id, "--settle", lost["id"].as_str().expect("an id"), "took_effect", "--note", "the order is there"];
        stage.setup.run(&stage.place, &settle).expect("the row stays open for an operator");
    }

    /// A6, R-21, S-15: a picture is the bytes of the image block, kept for the run alone, for 24 hours by the clock.
    async fn a6_a_screenshot_is_kept_for_a_day_chromium(db) {
        let site = site_with("<h1 style='color:red'>Picture</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let (run, _) = opened(&stage).await;
        let mcp = Mcp::modern(&run.client, None);
        let reply = mcp.post("tools/call", &json!({"name": "browser_screenshot", "arguments": {}})).await.expect("an answer");
        let result = message(&reply).expect("a result")["result"].clone();
        assert!(result.get("structuredContent").is_none(), "{result}");
        let content = result["content"].as_array().expect("blocks");
        assert_eq!(content.len(), 2, "a text, then the picture");
        assert_eq!((&content[1]["type"], &content[1]["mimeType"]), (&json!("image"), &json!("image/jpeg")));
        let jpeg = STANDARD.decode(content[1]["data"].as_str().expect("base64")).expect("base64");
        assert!(jpeg.starts_with(&[0xff, 0xd8, 0xff]) && jpeg.len() < 2 * 1024 * 1024);
        let observation: Value = serde_json::from_str(content[0]["text"].as_str().expect("a text")).expect("JSON");
        assert_eq!((&observation["viewport_width"], &observation["viewport_height"]), (&json!(1280), &json!(720)));
        let artifact = observation["artifact"].as_str().expect("an artifact").to_owned();
        let path = format!("/v1/run/artifacts/{artifact}");
        let kept = run.client.get(&path).await.expect("an answer");
        assert_eq!((kept.status, kept.header("content-type")), (200, "image/jpeg"));
        assert_eq!((kept.header("content-disposition"), kept.header("x-content-type-options")), ("inline", "nosniff"));
        assert_eq!(kept.header("cache-control"), "no-store");
        assert!(kept.body == jpeg, "the same bytes");
        let images = call(&run, "browser_screenshot", &json!({})).await["images"].clone();
        assert_eq!((images.as_array().expect("one").len(), &images[0]["mime"]), (1, &json!("image/jpeg")));

        let token = run.client.token().expect("a token").to_owned();
        let (place, setup) = stage.end();
        for (offset, status, code) in [(86_400_000 - 300_000, 200, ""), (86_400_000 + 1_000, 410, "artifact_expired")] {
            let server = setup.clone().option("--clock-offset-ms", &offset.to_string()).start(&place).expect("a later life");
            let client = server.client.with_token(&token);
            let reply = client.get(&path).await.expect("an answer");
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{offset}");
            server.terminate(LIMIT).expect("it ends");
        }
        let left = db.number("SELECT count(*) FROM artifacts WHERE sealed IS NOT NULL AND expires_at < 0").await;
        assert_eq!(left, 0);
    }
}

/// L3, T8: while a call runs, its key is answered 202 on the run API and waits over MCP; both end with the one outcome.
#[test]
fn l3_a_repeat_of_a_running_call_waits_for_it_chromium() {
    on_sqlite(async |db| {
        let site = site_with("<p>Site").await.with("/held", Page::html("<p>Held"));
        let stage = Stage::of(&db, browsing(&site));
        let (run, _) = opened(&stage).await;
        site.hold(Hold::Answers("/held"));
        let (caller, mcp) = (run.clone(), Mcp::modern(&run.client, None));
        let first = tokio::spawn(async move { caller.call(Some("held"), "browser_navigate", &at("/held")).await });
        assert!(site.sees("/held", LIMIT).await);
        let running = run.call(Some("held"), "browser_navigate", &at("/held")).await.expect("an answer");
        assert_eq!((running.status, running.header("retry-after")), (202, "1"), "{running:?}");
        let id = running.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(run.client.get(&format!("/v1/run/tool-calls/{id}")).await.expect("an answer").status, 202);
        let waiting = tokio::spawn(async move { mcp.call_as(Some("held"), "browser_navigate", &at("/held")).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());
        site.release();
        let first = first.await.expect("no panic").expect("an answer").json();
        assert_eq!((&first["id"], &first["outcome"]), (&json!(id), &json!("ok")), "{first}");
        assert_eq!(waiting.await.expect("no panic").expect("a result"), first["observation"]);
        assert_eq!(site.count("/held"), 1);
    });
}

/// S-02: with a hostname list nothing of another host is ever shown, however the page gets there.
#[test]
fn bar_s02_with_a_list_other_hosts_are_never_shown_chromium() {
    on_sqlite(async |db| {
        let other = "http://other.example.test";
        let mut site = site_with("<h1>Listed</h1><a href='http://other.example.test/secret'>Leave</a>").await;
        site = site.with("/secret", Page::html("<h1>Elsewhere</h1>"));
        for status in [301, 302, 303, 307, 308] {
            let away = Page::new(status, Vec::new()).with_header("location", &format!("{other}/secret"));
            site = site.with(&format!("/away{status}"), away);
        }
        for (path, way) in [
            ("/script", format!("<script>location = '{other}/secret'</script>")),
            ("/refresh", format!("<meta http-equiv=refresh content='0;url={other}/secret'>")),
            ("/form", format!("<form action='{other}/secret'></form><script>document.forms[0].submit()</script>")),
            ("/data", "<script>location = 'data:text/html,Elsewhere'</script>".to_owned()),
            ("/frame", format!("<iframe src='{other}/secret'></iframe><img src='{other}/secret'>")),
        ] {
            site = site.with(path, Page::html(&way));
        }
        let setup = browsing(&site).name("other.example.test:80", site.address());
        let stage = Stage::of(&db, setup);
        crate::stage::set_browser_config(&db, None, "own", &json!({"allowed_hosts": [HOST]}).to_string()).await;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let refused = call(&run, "browser_navigate", &json!({"url": format!("{other}/secret")})).await;
        assert_failure(&refused, "hostname_not_allowed", "not_dispatched", "fix_arguments");
        for path in ["/away301", "/away302", "/away303", "/away307", "/away308", "/script", "/refresh", "/form", "/data", "/frame"]
        {
            for arguments in [at(path), json!({"url": format!("http://{HOST}{path}?again")})] {
                let seen = call(&run, "browser_navigate", &arguments).await;
                assert!(!seen.to_string().contains("Elsewhere"), "{path}: {seen}");
                let read = call(&run, "browser_read", &json!({})).await;
                assert!(!read.to_string().contains("Elsewhere"), "{path}: {read}");
            }
        }
        let page = run.does("browser_navigate", &at("/")).await.expect("the listed host opens");
        let left = call(&run, "browser_act", &act("click", &page, "Leave")).await;
        assert!(!left.to_string().contains("Elsewhere"), "{left}");
        assert_eq!(site.count("/secret"), 0, "nothing of it left the machine: {:?}", site.log());
    });
}

/// Tests that no database makes a difference to.
fn on_sqlite<F: Future<Output = ()> + Send + 'static>(body: impl FnOnce(formation_testkit::databases::TestDb) -> F) {
    formation_testkit::databases::run(formation_testkit::databases::Backend::Sqlite, body);
}

/// T7: a page that doesn't load is a known failure with a reason, and the browser goes on.
#[test]
fn t7_a_page_that_does_not_load_says_why_chromium() {
    on_sqlite(async |db| {
        let site = site_with("<h1>Site</h1>").await;
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let stage = Stage::of(&db, browsing(&site).name("closed.example.test:80", closed));
        let (run, _) = opened(&stage).await;
        let own = stage.url.clone();
        for (url, reason, recovery) in [
            ("http://nowhere.invalid/".to_owned(), "dns_failed", "fix_arguments"),
            ("http://closed.example.test/".to_owned(), "connection_failed", "inspect_then_decide"),
            (format!("http://{}/", site.address()), "address_not_allowed", "fix_arguments"),
            (format!("http://localhost:{}/", site.address().port()), "address_not_allowed", "fix_arguments"),
            ("http://10.0.0.1/".to_owned(), "address_not_allowed", "fix_arguments"),
            ("http://169.254.169.254/latest/meta-data/".to_owned(), "address_not_allowed", "fix_arguments"),
            ("http://[::ffff:a9fe:a9fe]/".to_owned(), "address_not_allowed", "fix_arguments"),
            (format!("{own}/healthz"), "address_not_allowed", "fix_arguments"),
        ] {
            let failed = call(&run, "browser_navigate", &json!({"url": url})).await;
            assert_failure(&failed, reason, "input_dispatched", recovery);
            assert_eq!((&failed["execution"], &failed["outcome"]), (&json!("succeeded"), &json!("failed")), "{url}: {failed}");
            assert_eq!(failure(&failed)["stage"], "navigation");
        }
        assert_eq!(site.log(), ["GET /"], "nothing private was reached");
        let refused = call(&run, "browser_navigate", &json!({"url": "file:///etc/passwd"})).await;
        assert_eq!(refused["observation"]["refusal"]["reason"], "invalid_arguments", "{refused}");
        let page = run.does("browser_navigate", &at("/")).await.expect("the browser goes on");
        assert_eq!(page["page"]["http_status"], 200);
    });
}

/// A listener that answers whatever comes in plain HTTP, a TLS greeting too.
async fn without_tls() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // A browser that hangs up first has seen enough.
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    address
}

/// T7: what a site answers is told apart from what went wrong on the way: a challenge, nothing, a download, silence, another protocol.
#[test]
fn t7_what_a_site_answers_is_told_apart_chromium() {
    on_sqlite(async |db| {
        let site = site_with("<h1>Site</h1>")
            .await
            .with("/login", Page::new(401, b"no".to_vec()).with_header("www-authenticate", "Basic realm=\"x\""))
            .with("/nothing", Page::new(204, Vec::new()))
            .with("/missing", Page::new(404, b"<p>Not here".to_vec()).with_header("content-type", "text/html"))
            .with(
                "/file",
                Page::new(200, b"data".to_vec())
                    .with_header("content-type", "application/octet-stream")
                    .with_header("content-disposition", "attachment; filename=x.bin"),
            )
            .with("/silent", Page::html("<p>Never"));
        let setup = browsing(&site).name(&format!("{HOST}:443"), without_tls().await).timing("navigation_load_ms=2500");
        let stage = Stage::of(&db, setup);
        let (run, _) = opened(&stage).await;
        let failed = call(&run, "browser_navigate", &json!({"url": format!("https://{HOST}/")})).await;
        assert_failure(&failed, "tls_failed", "input_dispatched", "fix_arguments");
        let failed = call(&run, "browser_navigate", &at("/login")).await;
        assert_failure(&failed, "http_auth_required", "input_dispatched", "inspect_then_decide");
        let failed = {
            site.hold(Hold::Answers("/silent"));
            let failed = call(&run, "browser_navigate", &at("/silent")).await;
            site.release();
            failed
        };
        assert_failure(&failed, "timeout", "input_dispatched", "inspect_then_decide");
        assert_eq!(failed["outcome"], "failed", "known: the page did not load");
        for (path, note) in [("/nothing", "no_content_204"), ("/file", "download_blocked")] {
            // The page stays, so one must be there that can be read.
            run.does("browser_navigate", &at("/")).await.expect("the page opens");
            let seen = run.does("browser_navigate", &at(path)).await.expect("a success with a note");
            assert!(seen["text"].as_str().is_some_and(|text| text.contains("Site")), "{path}: {seen}");
            assert!(seen["notes"].as_array().is_some_and(|notes| notes.contains(&json!(note))), "{path}: {seen}");
        }
        let seen = run.does("browser_navigate", &at("/missing")).await.expect("a page is a page");
        assert_eq!(seen["page"]["http_status"], 404);
        for path in ["/login", "/nothing", "/file", "/silent"] {
            assert_eq!(site.count(path), 1, "{path} was asked for once");
        }
    });
}

/// T4: with the switch private pages open; our own listener, whatever it is called, and link-local addresses never do.
#[test]
fn t4_private_addresses_open_with_the_switch_and_ours_never_chromium() {
    on_sqlite(async |db| {
        let site = site_with("<h1>Private</h1>").await;
        let stage = Stage::of(&db, plain().with_browser().flag("--local-browser-allow-private"));
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let url = format!("http://{}/", site.address());
        let page = run.does("browser_navigate", &json!({ "url": url })).await.expect("it opens");
        assert_eq!(page["navigation"]["final_url"], url);
        let port = stage.url.rsplit_once(':').expect("a port").1.to_owned();
        for host in ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "127.1", "2130706433"] {
            let failed = call(&run, "browser_navigate", &json!({"url": format!("http://{host}:{port}/healthz")})).await;
            assert_failure(&failed, "address_not_allowed", "input_dispatched", "fix_arguments");
        }
        for url in ["http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/"] {
            let failed = call(&run, "browser_navigate", &json!({ "url": url })).await;
            assert_failure(&failed, "address_not_allowed", "input_dispatched", "fix_arguments");
        }
    });
}

const READER: &str = "<h1>Visible</h1><p style='display:none'>Hidden words</p>
    <label>Name <input value='Ada'></label> <label>Secret <input type=password value='hunter2secret'></label>
    <label>Code <input autocomplete=one-time-code value='424242999'></label>
    <label>Fixed <input readonly value='as it is'></label> <input type=checkbox checked aria-label=Agree>
    <select aria-label=Size><option>Small<option selected>Large</select>
    <div role=button tabindex=0 onclick=\"this.textContent='Pressed'\">Press me</div>
    <div id=open></div><div id=closed></div><iframe src='/frame' title=Inner></iframe><iframe sandbox src='/boxed'></iframe>
    <script>
      document.getElementById('open').attachShadow({mode: 'open'}).innerHTML = '<button>In open shadow</button>';
      document.getElementById('closed').attachShadow({mode: 'closed'}).innerHTML = '<button>In closed shadow</button>';
    </script>";

async fn reader_site() -> Site {
    site_with(READER).await.with("/frame", Page::html("<button>In frame</button>")).with("/boxed", Page::html("<p>In a box"))
}

fn control<'p>(page: &'p Value, name: &str) -> &'p Value {
    let controls = page["controls"].as_array().expect("controls");
    controls.iter().find(|control| control["name"] == name).unwrap_or_else(|| panic!("`{name}` in {controls:#?}"))
}

/// A1, A3: visible text, controls with what is needed to choose, frames and open shadow roots; nothing secret, nothing invented.
#[test]
fn a1_a3_a_read_shows_what_is_visible_and_no_more_chromium() {
    on_sqlite(async |db| {
        let site = reader_site().await;
        let stage = Stage::of(&db, browsing(&site));
        let (run, _) = opened(&stage).await;
        let page = run.does("browser_read", &json!({})).await.expect("it reads");
        let text = page["text"].as_str().expect("text");
        assert!(text.contains("Visible") && !text.contains("Hidden words"), "{text}");
        assert_eq!((&page["page"]["title"], &page["page"]["http_status"]), (&json!("Test page"), &json!(200)));
        assert_eq!(control(&page, "Name")["value"], "Ada");
        assert_eq!(control(&page, "Fixed")["readonly"], true);
        assert_eq!(control(&page, "Agree")["checked"], true);
        assert_eq!(control(&page, "Size")["options"], json!(["Small", "Large"]));
        for masked in ["Secret", "Code"] {
            assert!(control(&page, masked).get("value").is_none(), "{page}");
        }
        let whole = page.to_string();
        assert!(!whole.contains("hunter2") && !whole.contains("424242"), "{whole}");
        control(&page, "Press me");
        control(&page, "In open shadow");
        let frame = control(&page, "In frame")["frame"].as_str().expect("it lives in a frame");
        assert!(!whole.contains("In closed shadow"), "a closed root gives no refs");
        let frames = page["frames"].as_array().expect("frames");
        assert_eq!(frames.len(), 2, "{frames:?}");
        assert!(frames.iter().any(|one| one["id"] == frame && one["state"] == "ok"), "{frames:?}");
        assert_eq!(page["truncated"]["text"], false);
        let found = run.does("browser_read", &json!({"find": "press"})).await.expect("it finds");
        let names: Vec<_> = found["controls"].as_array().expect("controls").iter().map(|control| control["name"].clone()).collect();
        assert_eq!(names, [json!("Press me")]);
        let refs: Vec<&str> =
            page["controls"].as_array().expect("controls").iter().filter_map(|control| control["ref"].as_str()).collect();
        assert!(refs.iter().all(|reference| reference.len() <= 24));
        assert_eq!(page["external"], true);
        assert_eq!(
            (&page["provider"], &page["credential_owner"], &page["capability"]),
            (&json!("local"), &json!("install"), &json!("browser"))
        );
    });
}

/// A2, A4, A5: typing replaces, read-only and obscured targets are refused, refs die with the next read, act and navigation.
#[test]
fn a2_a4_a5_acts_hit_their_target_or_nothing_chromium() {
    on_sqlite(async |db| {
        let site = reader_site().await.with(
            "/covered",
            Page::html(
                "<button id=b onclick=\"say('covered')\">Under</button><div style='position:fixed;inset:0;z-index:9'></div>",
            ),
        );
        let stage = Stage::of(&db, browsing(&site));
        let (run, page) = opened(&stage).await;
        let old = reference(&page, "Press me").expect("a ref");
        let typed = run.does("browser_act", &types(&page, "Name", "Grace")).await.expect("it types");
        assert_eq!(control(&typed, "Name")["value"], "Grace", "replaced, not appended");
        let expired = call(&run, "browser_act", &json!({"action": "click", "ref": old})).await;
        assert_failure(&expired, "stale_ref", "not_dispatched", "observe_again");
        assert_eq!(expired["outcome"], "not_dispatched");
        let typed = run.does("browser_act", &types(&typed, "Secret", "other words")).await.expect("a password can be typed into");
        assert!(control(&typed, "Secret").get("value").is_none());
        assert_failure(
            &call(&run, "browser_act", &types(&typed, "Fixed", "no")).await,
            "read_only",
            "not_dispatched",
            "observe_again",
        );
        let first = run.does("browser_read", &json!({})).await.expect("it reads");
        let second = run.does("browser_read", &json!({})).await.expect("it reads");
        assert_ne!(reference(&first, "Press me").expect("a ref"), reference(&second, "Press me").expect("a ref"));
        let expired = call(&run, "browser_act", &act("click", &first, "Press me")).await;
        assert_failure(&expired, "stale_ref", "not_dispatched", "observe_again");
        let press = json!({"action": "press", "ref": reference(&second, "Press me").expect("a ref"), "key": "Shift+Tab"});
        run.does("browser_act", &press).await.expect("it presses");
        let third = run.does("browser_read", &json!({})).await.expect("it reads");
        let clicked = run.does("browser_act", &act("click", &third, "Press me")).await.expect("it clicks");
        control(&clicked, "Pressed");
        let framed = run.does("browser_act", &act("click", &clicked, "In frame")).await.expect("frames too");
        run.does("browser_navigate", &at("/covered")).await.expect("it opens");
        let expired = call(&run, "browser_act", &act("click", &framed, "Pressed")).await;
        assert_failure(&expired, "stale_ref", "not_dispatched", "observe_again");
        let covered = run.does("browser_read", &json!({})).await.expect("it reads");
        let under = call(&run, "browser_act", &act("click", &covered, "Under")).await;
        assert_failure(&under, "target_obscured", "not_dispatched", "observe_again");
        assert_eq!(site.count("covered'"), 0);
        assert_eq!(site.count("/said?word=covered"), 0);
        // An action where no page was opened has no ref that could be good.
        let fresh = stage.alpha.open_run(&json!({})).await.expect("a run");
        let none = call(&fresh, "browser_act", &json!({"action": "click", "ref": "abc.1"})).await;
        assert_failure(&none, "stale_ref", "not_dispatched", "observe_again");
    });
}

/// A15: with the product's own waits, an act takes at least 750 ms, and a page that never rests is told as such within its bound.
#[test]
fn a15_an_act_waits_for_the_page_to_rest_chromium() {
    on_sqlite(async |db| {
        let site = site_with(
            "<button onclick=\"setTimeout(() => document.body.append('Came later'), 600)\">Load</button>
             <button onclick=\"setInterval(() => b.textContent = Date.now(), 50)\">Tick</button><p id=b>",
        )
        .await;
        let stage = Stage::of(&db, plain().flag("--local-browser").name(&format!("{HOST}:80"), site.address()));
        let (run, page) = opened(&stage).await;
        let began = Instant::now();
        let seen = run.does("browser_act", &act("click", &page, "Load")).await.expect("it clicks");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(750), "{took:?}");
        assert!(seen["text"].as_str().expect("text").contains("Came later"), "{seen}");
        let began = Instant::now();
        let seen = run.does("browser_act", &act("click", &seen, "Tick")).await.expect("it clicks");
        let took = began.elapsed();
        assert_eq!(seen["page_changing"], true, "{seen}");
        assert!(took >= Duration::from_secs(7) && took < Duration::from_secs(14), "{took:?}");
    });
}

/// L6, T7: a screenshot or read that fails sends no input; a run's own end and budget are refusals that say what to do.
#[test]
fn t7_refusals_explain_themselves_chromium() {
    on_sqlite(async |db| {
        let site = site_with("<p>Site").await;
        let stage = Stage::of(&db, browsing(&site));
        let run = stage.alpha.open_run(&json!({"max_tool_calls": 2})).await.expect("a run");
        run.does("browser_navigate", &at("/")).await.expect("it opens");
        let wrong = call(&run, "browser_act", &json!({"action": "hover", "ref": "a.1"})).await;
        assert_eq!(wrong["observation"]["refusal"]["reason"], "invalid_arguments");
        let limit = call(&run, "browser_read", &json!({})).await;
        assert_eq!(limit["observation"]["refusal"]["reason"], "call_limit", "refused calls count: {limit}");
        run.finish().await.expect("it ends");
        let over = call(&run, "browser_read", &json!({})).await;
        assert_eq!(over["observation"]["refusal"]["reason"], "run_over");
        for refused in [&wrong, &limit, &over] {
            assert_eq!((&refused["execution"], &refused["outcome"]), (&json!("refused"), &Value::Null), "{refused}");
            let explanation = refused["observation"]["refusal"]["explanation"].as_str().expect("a sentence");
            assert!(explanation.len() > 20, "{explanation}");
        }
        assert!(comes_true(LIMIT, || stage.place.browsers().is_empty()).await, "a finished run's browser is closed");
        assert!(comes_true(LIMIT, || stage.place.session_folders().is_empty()).await, "and its folder is gone");
    });
}
