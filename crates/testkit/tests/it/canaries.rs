//! Secrets stay in: canaries of every kind this server holds, through ordinary and failing work on both doors, then one scanner over
//! everything that is written or said (S-04, S-21).
//!
//! A canary has no eight characters in a row that anybody would write: no words.

mod vendor_keys;

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use formation_testkit::{
    canary::{Hit, Scanner},
    databases::TestDb,
    http::{Client, Reply, Run},
    mcp::Mcp,
    on_both_databases, operators,
    processes::{self, comes_true},
    server::Place,
    site::{Hold, Page, Site},
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::{Stage, at, browsing, plain};

const COOKIE: &str = "coQkie%vAlue+for/Canary~1!";
const SET_LATER: &str = "l4ter-c00kie_oF-the.Page*2";
const STORED: &str = "stOred\\vAlue\"<x9$p\u{e4}Ge&3{q}";
const PASSWORD: &str = "paSs'word \"of\" <thE> pag\u{e9}/4";
const CODE: &str = "oneTime+c0de=Canary#5";
/// Not a secret: it must be found, or the scanner looks at nothing.
const MARKER: &str = "marker typed in the open";

/// The page plants what it knows; nothing of it is visible text.
fn page() -> Page {
    let script = format!(
        "document.cookie = 'later={SET_LATER}'; localStorage.setItem('kept', {stored}); sessionStorage.setItem('kept', {stored});
         const fill = (id, value) => {{ document.getElementById(id).value = value; }};
         fill('password', {password}); fill('code', {code}); fill('new', {password});",
        stored = json!(STORED),
        password = json!(PASSWORD),
        code = json!(CODE)
    );
    Page::html(&format!(
        "<h1>Login</h1><label>Password <input id=password type=password></label>
         <label>Code <input id=code autocomplete=one-time-code></label>
         <label>New <input id=new autocomplete=new-password></label> <label>Note <input id=note></label>
         <button onclick=\"say('in')\">Log in</button><button onclick=\"ask('held')\">Wait</button><iframe src='/frame'></iframe>
         <script>{script}</script>"
    ))
    .with_header("set-cookie", &format!("session={COOKIE}; HttpOnly; Path=/"))
}

/// Everything that was answered, whole: status, headers, body.
#[derive(Default)]
struct Said(Vec<(String, Vec<u8>)>);

impl Said {
    fn keep(&mut self, what: &str, reply: &Reply) -> Value {
        let mut text = format!("{}\n", reply.status).into_bytes();
        for (name, value) in &reply.headers {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.push(b'\n');
        }
        text.extend_from_slice(&reply.body);
        self.0.push((what.to_owned(), text));
        reply.json()
    }

    async fn call(&mut self, run: &Run, tool: &str, arguments: &Value) -> Value {
        let reply = run.call(None, tool, arguments).await.expect("an answer");
        self.keep(&format!("run API {tool}"), &reply)
    }

    /// A call that must go well; its observation.
    async fn does(&mut self, run: &Run, tool: &str, arguments: &Value) -> Value {
        let call = self.call(run, tool, arguments).await;
        assert_eq!(call["outcome"], "ok", "{tool} {arguments}: {call}");
        call["observation"].clone()
    }

    async fn mcp(&mut self, mcp: &Mcp, method: &str, parameters: &Value) {
        let reply = mcp.post(method, parameters).await.expect("an answer");
        self.keep(&format!("MCP {method} {}", parameters["name"]), &reply);
    }
}

/// Work on the run API: what goes well, and every way to fail that sees a secret.
async fn through_the_run_api(said: &mut Said, stage: &Stage, run: &Run, site: &Site) {
    let page = said.does(run, "browser_navigate", &at("/login")).await;
    let reference = |page: &Value, name: &str| formation_testkit::http::reference(page, name).expect("a control");
    let note = reference(&page, "Note");
    let page = said.does(run, "browser_act", &json!({"action": "type", "ref": note, "text": MARKER})).await;
    let page = said.does(run, "browser_act", &json!({"action": "click", "ref": reference(&page, "Password")})).await;
    let press = json!({"action": "press", "ref": reference(&page, "Password"), "key": "End"});
    let page = said.does(run, "browser_act", &press).await;
    said.does(run, "browser_act", &json!({"action": "click", "ref": reference(&page, "Log in")})).await;
    for find in ["paSs", "oneTime", "coQkie"] {
        said.call(run, "browser_read", &json!({ "find": find })).await;
    }
    said.call(run, "browser_screenshot", &json!({})).await;
    // Refusals and failures.
    said.call(run, "browser_act", &json!({"action": "click", "ref": "stale.1"})).await;
    said.call(run, "browser_act", &json!({"action": "type", "ref": "stale.1", "text": "x", "token": true})).await;
    for url in ["http://nowhere.invalid/", "http://169.254.169.254/", "ftp://x/", "http://user:pass@site.example.test/"] {
        said.call(run, "browser_navigate", &json!({ "url": url })).await;
    }
    for (method, path, body) in [
        (http::Method::POST, "/v1/run/tool-calls", json!({"tool": "nothing", "arguments": {}})),
        (http::Method::POST, "/v1/run/tool-calls", json!({"tool": "browser_read", "arguments": {}, "admin": 1})),
        (http::Method::GET, "/v1/run/tool-calls/x", Value::Null),
        (http::Method::GET, "/v1/run/artifacts/x", Value::Null),
        (http::Method::POST, "/v1/runs", json!({})),
        (http::Method::GET, "/nowhere", Value::Null),
    ] {
        let reply = formation_testkit::http::send(run.client.request(method, path).json(&body)).await.expect("an answer");
        said.keep(path, &reply);
    }
    let reply = run.client.get("/v1/run/tools").await.expect("an answer");
    said.keep("tools", &reply);
    for wrong in [&stage.alpha, &stage.client, &run.client.with_token("fmr_not-a-token")] {
        let reply = wrong.get("/v1/run/tools").await.expect("an answer");
        said.keep("tools with another token", &reply);
    }
    // A token where none belongs: in the address, which no log may hold.
    let token = run.client.token().expect("a token");
    for path in [format!("/v1/run/tools?token={token}"), format!("/{token}"), format!("/v1/run/tool-calls/{token}")] {
        let reply = stage.client.get(&path).await.expect("an answer");
        said.keep("a token in the address", &reply);
    }
    let page = said.does(run, "browser_navigate", &at("/login")).await;
    // The browser dies in the middle of a click.
    site.hold(Hold::Answers("held"));
    let waiting = json!({"action": "click", "ref": reference(&page, "Wait")});
    let caller = run.clone();
    let asked = tokio::spawn(async move { caller.call(None, "browser_act", &waiting).await });
    assert!(site.sees("held", Duration::from_secs(30)).await);
    for pid in stage.place.browsers() {
        processes::send(pid, Signal::KILL);
    }
    let reply = asked.await.expect("no panic").expect("an answer");
    said.keep("a click whose browser dies", &reply);
    site.release();
    said.call(run, "browser_read", &json!({})).await;
}

async fn through_mcp(said: &mut Said, client: &Client) {
    let legacy = Mcp::legacy(client).await.expect("a session");
    for mcp in [&legacy, &Mcp::modern(client, Some("mine"))] {
        said.mcp(mcp, "tools/list", &json!({})).await;
        for (tool, arguments) in [
            ("browser_navigate", at("/login")),
            ("browser_read", json!({})),
            ("browser_screenshot", json!({})),
            ("browser_act", json!({"action": "press", "ref": "x.1", "key": "Enter"})),
            ("browser_navigate", json!({"url": "http://nowhere.invalid/"})),
            ("nothing", json!({})),
        ] {
            said.mcp(mcp, "tools/call", &json!({"name": tool, "arguments": arguments})).await;
        }
        said.mcp(mcp, "no/such", &json!({})).await;
    }
    let reply = legacy.delete().await.expect("an answer");
    said.keep("MCP delete", &reply);
    said.mcp(&legacy, "tools/list", &json!({})).await;
}

/// The database as a thief would find it: the whole files, write-ahead log included, or a dump.
fn stolen(place: &Place) -> Vec<(String, Vec<u8>)> {
    if let Some(url) = place.database() {
        let dump = Command::new("pg_dump").args(["--dbname", url]).output().expect("`pg_dump` of PostgreSQL is installed");
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
        return vec![("a dump of the database".to_owned(), dump.stdout)];
    }
    files(place.data())
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name != "master.key"))
        .map(|path| (path.display().to_string(), std::fs::read(&path).expect("a file of the data folder")))
        .collect()
}

/// Every file below `folder`, browsers' own folders aside: those hold what the browser holds, and go with it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "browser-sessions" {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found
}

fn scanner(stage: &Stage, run: &Run) -> Scanner {
    let key = std::fs::read_to_string(stage.place.data().join("master.key")).expect("a key file");
    let key = key.trim();
    let bytes: Vec<u8> =
        (0..key.len() / 2).map(|at| u8::from_str_radix(&key[2 * at..2 * at + 2], 16).expect("hexadecimal")).collect();
    assert_eq!(bytes.len(), 32);
    let token = |client: &Client| client.token().expect("a token").as_bytes().to_vec();
    Scanner::default()
        .with("agent token", &token(&stage.alpha))
        .with("run token", &token(&run.client))
        .with("master key", key.as_bytes())
        .with("master key, its bytes", &bytes)
        .with("cookie", COOKIE.as_bytes())
        .with("cookie set by the page", SET_LATER.as_bytes())
        .with("local storage", STORED.as_bytes())
        .with("password", PASSWORD.as_bytes())
        .with("one-time code", CODE.as_bytes())
}

async fn leaks(db: TestDb) {
    let site = Site::start().await.expect("a site").with("/login", page()).with("/frame", page());
    let stage = Stage::of(&db, browsing(&site).variable("FORMATION_LOG", "trace"));
    let run = stage.alpha.open_run(&json!({})).await.expect("a run");
    let mut said = Said::default();
    through_the_run_api(&mut said, &stage, &run, &site).await;
    through_mcp(&mut said, &stage.alpha).await;
    for words in [&["runs"][..], &["runs", &run.id], &["agent", "list"], &["agent", "tokens", "alpha"], &["doctor"]] {
        // `doctor` may find something missing on this machine: what it says counts all the same.
        let text = stage.setup.run(&stage.place, words).unwrap_or_else(|error| error.to_string());
        said.0.push((format!("formation {}", words[0]), text.into_bytes()));
    }
    for pid in stage.place.browser_processes().into_iter().chain([stage.pid]) {
        // A process may have ended since it was listed.
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        said.0.push(("a command line".to_owned(), line));
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", stage.pid)).expect("it lives");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "no core files: {core}");

    let scanner = scanner(&stage, &run);
    let mut sinks = stolen(&stage.place);
    sinks.push(("logs at trace".to_owned(), stage.place.logs().into_bytes()));
    let work = sinks.len();
    sinks.extend(said.0);
    let hits: Vec<Hit> = sinks.iter().flat_map(|(sink, text)| scanner.scan(sink, text)).collect();
    assert!(hits.is_empty(), "{hits:#?}");

    // The scanner saw something: what is no secret stands where it should.
    let marker = Scanner::default().with("marker", MARKER.as_bytes());
    let found: Vec<_> =
        sinks.iter().filter(|(sink, text)| !marker.scan(sink, text).is_empty()).map(|(sink, _)| sink.clone()).collect();
    assert!(found.iter().any(|sink| sinks[..work].iter().any(|(other, _)| other == sink)), "{found:?}");
    assert!(found.contains(&"run API browser_act".to_owned()), "{found:?}");
    let logs = stage.place.logs();
    assert!(logs.contains("\"TRACE\"") || logs.contains("TRACE") || logs.contains("DEBUG"), "ours are at trace");

    // S-21: nobody else of this machine can read any of it.
    for path in files(stage.place.data()) {
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    let (place, _) = stage.end();
    assert!(comes_true(Duration::from_secs(10), || place.browser_processes().is_empty()).await);
    let hits: Vec<Hit> = stolen(&place).iter().flat_map(|(sink, text)| scanner.scan(sink, text)).collect();
    assert!(hits.is_empty(), "after the end: {hits:#?}");
}

/// Of the first owner: what they sign in with.
const OWNERS_PASSWORD: &str = "0wn3r's p\u{e4}ss\\wOrd \"&\" <9> %Q";

/// Signs in and up, well and badly, with secrets where they belong and where they don't. What is answered to who may see a secret
/// (the session's word, a new token) isn't kept.
async fn through_the_operators_api(said: &mut Said, stage: &Stage) -> (String, Visitor) {
    let link = stage.setup_url.clone().expect("a server without an owner");
    let link = link.rsplit('/').next().expect("a token").to_owned();
    let post = |path: &str, body: Value| {
        let request = stage.client.request(http::Method::POST, path).header("origin", &stage.url).json(&body);
        async move { formation_testkit::http::send(request).await.expect("an answer") }
    };
    for path in [format!("/setup/{link}"), format!("/{link}"), format!("/api/session?token={link}")] {
        said.keep("a set-up link", &stage.client.get(&path).await.expect("an answer"));
    }
    let setting_up = |token: &str| json!({"token": token, "name": "Owner", "password": OWNERS_PASSWORD});
    said.keep("a bad set-up", &post("/api/setup", setting_up(&link[1..])).await);
    said.keep(
        "a set-up with more",
        &post("/api/setup", json!({"token": link, "name": "Owner", "password": OWNERS_PASSWORD, "role": link})).await,
    );
    let done = post("/api/setup", setting_up(&link)).await;
    let page = operators::Page::of(&stage.client, &done).expect("signed in");
    said.keep("a second set-up", &post("/api/setup", setting_up(&link)).await);
    for body in [
        json!({"name": "Owner", "password": format!("{OWNERS_PASSWORD}!")}),
        json!({"name": OWNERS_PASSWORD, "password": OWNERS_PASSWORD}),
        json!({"name": [OWNERS_PASSWORD], "password": {"is": OWNERS_PASSWORD}}),
        json!({"name": "Owner", "password": OWNERS_PASSWORD, "again": OWNERS_PASSWORD}),
        json!(OWNERS_PASSWORD),
    ] {
        said.keep("a bad sign-in", &post("/api/session", body).await);
    }
    let minted =
        formation_testkit::http::send(page.request(http::Method::POST, "/api/tokens").json(&json!({"name": "laptop"}))).await;
    let token = minted.expect("an answer").json()["token"].as_str().expect("a token").to_owned();
    let client = stage.client.with_token(&token);
    let cookie = page.cookie.split_once('=').expect("a value").1.to_owned();
    for path in
        ["/api/tokens", "/api/agents", "/api/operators", "/api/audit", "/api/agents/alpha/tokens", "/api/session", "/v1/run/tools"]
    {
        said.keep(path, &client.get(path).await.expect("an answer"));
    }
    for secret in [&token, &cookie, &page.csrf] {
        for path in ["/api/tokens/", "/api/agents/", "/api/operators/"] {
            said.keep("a secret in the address", &client.delete(&format!("{path}{secret}")).await.expect("an answer"));
        }
        said.keep("a secret in the query", &client.get(&format!("/api/audit?actor={secret}")).await.expect("an answer"));
    }
    let forged = page.request(http::Method::POST, "/api/agents").header("x-formation-csrf", &token).json(&json!({"slug": "x"}));
    said.keep("two words", &formation_testkit::http::send(forged).await.expect("an answer"));
    (link, Visitor { token, cookie, csrf: page.csrf })
}

/// What an owner's browser and scripts hold.
struct Visitor {
    token: String,
    cookie: String,
    csrf: String,
}

async fn operators_secrets_leak(db: TestDb) {
    let stage = Stage::of(&db, plain().variable("FORMATION_LOG", "trace"));
    let mut said = Said::default();
    let (link, visitor) = through_the_operators_api(&mut said, &stage).await;
    for words in [&["agent", "list"][..], &["runs"], &["init"]] {
        let text = stage.setup.run(&stage.place, words).unwrap_or_else(|error| error.to_string());
        said.0.push((format!("formation {}", words[0]), text.into_bytes()));
    }
    let scanner = Scanner::default()
        .with("set-up link", link.as_bytes())
        .with("owner's password", OWNERS_PASSWORD.as_bytes())
        .with("operator token", visitor.token.as_bytes())
        .with("session", visitor.cookie.as_bytes())
        .with("word of the session", visitor.csrf.as_bytes());
    let mut sinks = stolen(&stage.place);
    let logs = stage.place.logs();
    assert!(logs.contains("/api/session"), "what was asked is in the log: {logs}");
    sinks.push(("logs at trace".to_owned(), logs.into_bytes()));
    sinks.extend(said.0);
    let hits: Vec<Hit> = sinks.iter().flat_map(|(sink, text)| scanner.scan(sink, text)).collect();
    assert!(hits.is_empty(), "{hits:#?}");
    let marker = Scanner::default().with("marker", b"install.setup");
    let found = sinks.iter().filter(|(sink, text)| !marker.scan(sink, text).is_empty()).count();
    assert!(found >= 2, "the trail stands in the database and in its own answer");
}

on_both_databases! {
    /// S-04: 0 hits of a set-up link, an owner's password, session, its word and token, wherever they were put.
    async fn bar_s04_secrets_of_operators_stay_in(db) {
        operators_secrets_leak(db).await;
    }

    /// S-04: 0 hits in the database, our logs at trace, and every answer of both doors.
    async fn bar_s04_secrets_stay_in_chromium(db) {
        leaks(db).await;
    }
}
