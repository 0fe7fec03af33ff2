//! Keys of vendors, and the tokens and sessions of everybody who handles them: put where they belong and where they don't, used by
//! searches that go well and that don't, replaced, removed, and then looked for everywhere (S-04).

use formation_testkit::{
    brave::FakeBrave,
    canary::{Hit, Scanner},
    databases::TestDb,
    grants::{INSTALL, of_agent},
    http::{Client, Run, send},
    mcp::Mcp,
    on_both_databases,
    operators::{PASSWORD, Page},
};
use http::Method;
use serde_json::{Value, json};

use super::{Said, stolen};
use crate::stage::{Stage, plain};

const FIRST: &str = "BSAq7Xz92kLmvT4rWc8Yp0Jd";
const ROTATED: &str = "BSA3nHs-Qf81_bVxR6uTzk2M";
const OF_AGENT: &str = "BSAo5+Ew/7GjPyA9dLi=Nc4t";
/// One that the provider doesn't take.
const WRONG: &str = "xK8\"w\\r'Zv3&q<Fh1>S6%dB9";
/// One that is never in its place.
const ASTRAY: &str = "BSAm1U~c6XeKj.0QzWn8pRf5";
/// Not a secret: it must be found, or the scanner looks at nothing.
const MARKER: &str = "harbour lights at noon";

/// Everybody who asks, and what they hold.
struct People {
    owner: Client,
    member: Client,
    page: Page,
    /// A token of `alpha` that was made over the API.
    minted: Client,
}

impl People {
    async fn of(db: &TestDb, stage: &Stage) -> Self {
        let owner = db.owner(&stage.client, "Owner").await.client;
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let page = Page::sign_in(&stage.client, "Owner", PASSWORD).await.expect("signed in");
        let minted = member.post("/api/agents/alpha/tokens", &json!({"name": "harness"})).await.expect("an answer").json();
        let minted = stage.client.with_token(minted["token"].as_str().expect("a token"));
        Self { owner, member, page, minted }
    }
}

/// One request of a client's, kept; its status.
async fn ask(said: &mut Said, client: &Client, method: Method, path: &str, body: &Value) -> u16 {
    let what = format!("{method} {}", path.split(['?', '/']).nth(2).unwrap_or_default());
    let reply = send(client.request(method, path).json(body)).await.expect("an answer");
    said.keep(&what, &reply);
    reply.status
}

/// Stores a key at `base`, whatever the version is.
async fn save(said: &mut Said, client: &Client, base: &str, version: i64, key: &str) {
    let body = json!({"version": version, "api_key": key});
    assert_eq!(ask(said, client, Method::PUT, &format!("{base}/vendors/brave"), &body).await, 200);
}

/// A key in every place where none belongs. Nothing of it is done.
async fn astray(said: &mut Said, stage: &Stage, client: &Client, base: &str, key: &str) {
    let brave = format!("{base}/vendors/brave");
    let search = format!("{base}/search");
    let long = key.repeat(4_096 / key.len() + 1);
    let longer = key.repeat(300_000 / key.len());
    for body in [
        json!({"version": key, "api_key": key}),
        json!({"version": 0, "api_key": [key]}),
        json!({"version": 0, "api_key": {"value": key}}),
        json!({"version": 0, "key": key}),
        json!({"version": 0, "api_key": key, "token": key}),
        json!({"version": 0, key: true}),
        json!({"version": 0, "api_key": key, "config": key}),
        json!({"version": 0, "api_key": key, "config": {"account_id": key}}),
        json!({"version": 0, "api_key": key, "config": {key: key}}),
        json!({"version": 77, "api_key": key}),
        json!({"version": 0, "api_key": format!("{key}\n")}),
        json!({"version": 0, "api_key": format!("{key}\r\nx-other: {key}")}),
        json!({"version": 0, "api_key": long}),
        json!({"version": 0, "api_key": longer}),
        json!({"version": 0, "api_key": ""}),
        json!({"version": 0, "api_key": "  \t"}),
        json!(key),
        json!([key]),
    ] {
        let status = ask(said, client, Method::PUT, &brave, &body).await;
        assert!((400..500).contains(&status), "{status} for {}", body.to_string().chars().take(200).collect::<String>());
    }
    for body in [json!({"version": key}), json!({"version": 77, "api_key": key}), json!({key: 1})] {
        assert!((400..500).contains(&ask(said, client, Method::DELETE, &brave, &body).await), "{body}");
    }
    for body in [
        json!({"version": 0, "mode": key}),
        json!({"version": 0, "mode": "own", "provider": key}),
        json!({"version": 0, "mode": "own", "provider": "brave", "config": {"api_key": key}}),
        json!({"version": 0, "mode": "own", "provider": "brave", "config": {key: {}}}),
        json!({"version": 0, "mode": "disabled", "limits": {"requests_per_run": key}}),
        json!({"version": 0, "mode": "disabled", "api_key": key}),
    ] {
        assert!((400..500).contains(&ask(said, client, Method::PUT, &search, &body).await), "{body}");
    }
    for path in [
        format!("{base}/vendors/{key}"),
        format!("{base}/{key}"),
        format!("{base}/vendors/brave/{key}"),
        format!("{base}/usage?from={key}"),
        format!("{base}/usage?{key}=1"),
        format!("/api/audit?action={key}"),
        format!("/api/audit?after={key}"),
        format!("/api/agents/{key}"),
    ] {
        let path = path.replace('%', "%25").replace(['"', '\\', '<', '>', '\'', '+', '=', '&'], "%41");
        ask(said, client, Method::PUT, &path, &json!({"version": 0, "api_key": key})).await;
        ask(said, client, Method::GET, &path, &json!({})).await;
    }
    // No JSON, cut JSON, a form, a header.
    let put = |media: &'static str, body: String| client.request(Method::PUT, &brave).header("content-type", media).body(body);
    for request in [
        put("application/json", key.to_owned()),
        put("application/json", format!("{{\"version\":0,\"api_key\":\"{key}")),
        put("application/json", format!("{{\"api_key\":\"{key}\",\"api_key\":\"{key}\"}}")),
        put("application/x-www-form-urlencoded", format!("api_key={key}")),
        put("text/plain", key.to_owned()),
        stage.client.request(Method::GET, INSTALL).header("authorization", format!("Bearer {key}")),
        stage.client.request(Method::GET, INSTALL).header("x-subscription-token", key.as_bytes()),
        stage.client.request(Method::GET, INSTALL).header("cookie", format!("__Host-formation={}", key.replace('"', "'"))),
    ] {
        let reply = send(request).await.expect("an answer");
        assert!((400..500).contains(&reply.status), "{reply:?}");
        said.keep("not JSON", &reply);
    }
}

/// Everything that can be read, by everybody who can: each GET of the server's own list, about `alpha` and this run.
async fn read_all(said: &mut Said, stage: &Stage, people: &People, run: &Run) {
    let document = people.owner.get("/api/openapi.json").await.expect("the document").json();
    let paths = document["paths"].as_object().expect("paths");
    let mut paths: Vec<_> =
        paths.iter().filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path.clone()).collect();
    assert!(paths.iter().any(|path| path == "/metrics") && paths.len() > 20, "{paths:?}");
    paths.extend(["/api/audit?agent=alpha", "/api/runs?agent=alpha", "/v1/run/tool-calls/x"].map(str::to_owned));
    let mut seen = 0;
    for path in &paths {
        let at = path.replace("{slug}", "alpha").replace("{id}", &run.id);
        for client in [&people.owner, &people.member, &people.minted, &run.client, &stage.client] {
            if at == "/mcp" {
                continue;
            }
            let reply = client.get(&at).await.expect("an answer");
            seen += usize::from(reply.status == 200);
            said.keep(path, &reply);
        }
        // A page reads its own session's word there, and nobody else does.
        if path != "/api/session" {
            let reply = send(people.page.request(Method::GET, &at)).await.expect("an answer");
            said.keep(&format!("{path}, by a page"), &reply);
        }
    }
    assert!(seen > paths.len(), "{seen} of them were answered");
}

/// Searches on both doors, with every end that has to do with a key.
async fn search(said: &mut Said, run: &Run, agent: &Client) {
    let legacy = Mcp::legacy(agent).await.expect("a session");
    let modern = Mcp::modern(agent, None);
    for query in [
        MARKER,
        "scenario:echo-key",
        "scenario:bad-key",
        "scenario:bad-key-list",
        "scenario:key-header",
        "scenario:plan",
        "scenario:redirect-307",
        "scenario:html",
        "scenario:cut-json",
        "scenario:hang-up",
        "scenario:bad-gzip",
        "scenario:status-503",
    ] {
        let arguments = json!({ "query": query });
        said.call(run, "web_search", &arguments).await;
        for mcp in [&legacy, &modern] {
            said.mcp(mcp, "tools/call", &json!({"name": "web_search", "arguments": arguments})).await;
        }
    }
    said.call(run, "web_search", &json!({"query": MARKER, "api_key": "x"})).await;
    let tools = run.client.get("/v1/run/tools").await.expect("an answer");
    said.keep("tools", &tools);
    said.mcp(&modern, "tools/list", &json!({})).await;
}

/// The hosts' commands that tell of what is stored or how the server runs.
fn commands(said: &mut Said, stage: &Stage, runs: &[&Run]) {
    let mut all = vec![vec!["runs"], vec!["agent", "list"], vec!["agent", "tokens", "alpha"], vec!["doctor"], vec!["init"]];
    all.extend(runs.iter().map(|run| vec!["runs", run.id.as_str()]));
    for words in all {
        // `doctor` may find something missing on this machine: what it says counts all the same.
        let text = stage.setup.run(&stage.place, &words).unwrap_or_else(|error| error.to_string());
        said.0.push((format!("formation {}", words[0]), text.into_bytes()));
    }
    for what in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{}/{what}", stage.pid)).expect("it lives");
        said.0.push((format!("the process's {what}"), text));
    }
}

fn scanner(people: &People, agents: &[&Client], runs: &[&Run]) -> Scanner {
    let token = |client: &Client| client.token().expect("a token").as_bytes().to_vec();
    let cookie = people.page.cookie.split_once('=').expect("a value").1;
    let mut scanner = Scanner::default()
        .with("the install's key", FIRST.as_bytes())
        .with("the install's next key", ROTATED.as_bytes())
        .with("an agent's key", OF_AGENT.as_bytes())
        .with("a wrong key", WRONG.as_bytes())
        .with("a key out of place", ASTRAY.as_bytes())
        .with("session", cookie.as_bytes())
        .with("word of the session", people.page.csrf.as_bytes())
        .with("owner's token", &token(&people.owner))
        .with("member's token", &token(&people.member));
    for agent in agents {
        scanner = scanner.with("agent token", &token(agent));
    }
    for run in runs {
        scanner = scanner.with("run token", &token(&run.client));
    }
    scanner
}

async fn keys_leak(db: TestDb) {
    let brave = FakeBrave::start().await.expect("a fake");
    let stage = Stage::of(&db, plain().with_brave(&brave).variable("FORMATION_LOG", "trace"));
    let people = People::of(&db, &stage).await;
    let own = of_agent("alpha");
    let mut said = Said::default();

    // Nothing is stored yet, and everything is wrong.
    for key in [ASTRAY, FIRST, WRONG] {
        astray(&mut said, &stage, &people.owner, INSTALL, key).await;
        astray(&mut said, &stage, &people.member, &own, key).await;
        astray(&mut said, &stage, &people.member, INSTALL, key).await;
        astray(&mut said, &stage, &people.minted, INSTALL, key).await;
    }
    assert_eq!(db.number("SELECT count(*) FROM secrets").await, 0);

    let run = people.minted.open_run(&json!({})).await.expect("a run");
    let betas = stage.beta.open_run(&json!({})).await.expect("a run");
    let limits = json!({"requests_per_minute": 6_000, "requests_per_run": 10_000});
    let automatic = json!({"version": 0, "mode": "auto", "provider": "", "config": {}, "limits": limits});
    assert_eq!(ask(&mut said, &people.owner, Method::PUT, &format!("{INSTALL}/search"), &automatic).await, 200);
    save(&mut said, &people.owner, INSTALL, 0, FIRST).await;
    search(&mut said, &run, &people.minted).await;
    save(&mut said, &people.owner, INSTALL, 1, ROTATED).await;
    save(&mut said, &people.member, &own, 0, OF_AGENT).await;
    let pinned = json!({"version": 0, "mode": "own", "provider": "brave", "config": {}, "limits": limits});
    assert_eq!(ask(&mut said, &people.member, Method::PUT, &format!("{own}/search"), &pinned).await, 200);
    search(&mut said, &run, &people.minted).await;
    search(&mut said, &betas, &stage.beta).await;
    for key in [FIRST, ROTATED, OF_AGENT] {
        assert!(brave.sends().iter().any(|sent| sent.key == key), "each key was used");
        astray(&mut said, &stage, &people.owner, INSTALL, key).await;
    }
    read_all(&mut said, &stage, &people, &run).await;
    // One that the provider refuses is stored, used and told of like any other.
    save(&mut said, &people.owner, INSTALL, 2, WRONG).await;
    search(&mut said, &betas, &stage.beta).await;
    assert!(brave.sends().iter().any(|sent| sent.key == WRONG));
    for (client, base, version) in [(&people.owner, INSTALL, 3), (&people.member, own.as_str(), 1)] {
        let body = json!({ "version": version });
        assert_eq!(ask(&mut said, client, Method::DELETE, &format!("{base}/vendors/brave"), &body).await, 200);
    }
    search(&mut said, &run, &people.minted).await;
    read_all(&mut said, &stage, &people, &run).await;
    commands(&mut said, &stage, &[&run, &betas]);

    let scanner = scanner(&people, &[&people.minted, &stage.alpha, &stage.beta], &[&run, &betas]);
    let mut sinks = stolen(&stage.place);
    sinks.push(("logs at trace".to_owned(), stage.place.logs().into_bytes()));
    sinks.extend(said.0);
    let hits: Vec<Hit> = sinks.iter().flat_map(|(sink, text)| scanner.scan(sink, text)).collect();
    assert!(hits.is_empty(), "{hits:#?}");

    // What is no secret stands where it should.
    let marker = Scanner::default().with("marker", MARKER.as_bytes());
    let found: Vec<_> = sinks.iter().filter(|(sink, text)| !marker.scan(sink, text).is_empty()).map(|(sink, _)| sink).collect();
    assert!(found.iter().any(|sink| sink.starts_with("run API")), "{found:?}");
    assert!(found.iter().any(|sink| sink.contains(".db") || sink.contains("dump")), "{found:?}");
    for (path, word) in [("/api/audit", "install.web.account.save"), ("/metrics", "formation_"), ("/api/runs/{id}/trace", MARKER)] {
        let word = Scanner::default().with("a word", word.as_bytes());
        assert!(sinks.iter().any(|(sink, text)| sink == path && !word.scan(sink, text).is_empty()), "{path} was read");
    }
    let (place, _) = stage.end();
    let hits: Vec<Hit> = stolen(&place).iter().flat_map(|(sink, text)| scanner.scan(sink, text)).collect();
    assert!(hits.is_empty(), "after the end: {hits:#?}");
}

on_both_databases! {
    /// S-04, W18: 0 hits of any key, token or session in the database, logs at trace, answers, listings, usage, the trail and commands.
    async fn bar_s04_keys_of_vendors_stay_in(db) {
        keys_leak(db).await;
    }
}
