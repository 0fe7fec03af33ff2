//! Who gets in: every route, every method, every kind of caller, against the written table (S-07, S-11, S-23, S-09).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use formation_testkit::{
    databases::TestDb,
    http::{Client, Reply, Run, send},
    on_both_databases,
};
use http::Method;
use serde_json::{Value, json};

use crate::stage::{Stage, assert_untouched, contents, plain};

/// Who may call a route (contract.md 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Audience {
    Anybody,
    Agent,
    Run,
    AgentOrRun,
    /// Any operator.
    Operator,
    /// Whoever manages the agent or run of the path.
    Manager,
    /// Owners of the install.
    Owner,
}

/// contract.md 1, for the routes that exist.
const TABLE: &[(&str, &str, Audience)] = &[
    ("GET", "/", Audience::Anybody),
    ("GET", "/healthz", Audience::Anybody),
    ("GET", "/readyz", Audience::Anybody),
    ("GET", "/api/openapi.json", Audience::Anybody),
    ("GET", "/api/health", Audience::Owner),
    ("GET", "/metrics", Audience::Owner),
    ("POST", "/v1/runs", Audience::Agent),
    ("POST", "/v1/run/finish", Audience::Run),
    ("GET", "/v1/run/tools", Audience::Run),
    ("POST", "/v1/run/tool-calls", Audience::Run),
    ("GET", "/v1/run/tool-calls/{id}", Audience::Run),
    ("GET", "/v1/run/artifacts/{artifact}", Audience::Run),
    ("GET", "/setup/{token}", Audience::Anybody),
    ("POST", "/api/setup", Audience::Anybody),
    ("POST", "/api/session", Audience::Anybody),
    ("GET", "/api/session", Audience::Operator),
    ("DELETE", "/api/session", Audience::Operator),
    ("GET", "/api/operators", Audience::Owner),
    ("POST", "/api/operators", Audience::Owner),
    ("PATCH", "/api/operators/{id}", Audience::Owner),
    ("DELETE", "/api/operators/{id}", Audience::Owner),
    ("GET", "/api/tokens", Audience::Operator),
    ("POST", "/api/tokens", Audience::Operator),
    ("DELETE", "/api/tokens/{id}", Audience::Operator),
    ("GET", "/api/agents", Audience::Operator),
    ("POST", "/api/agents", Audience::Owner),
    ("GET", "/api/agents/{slug}", Audience::Manager),
    ("PATCH", "/api/agents/{slug}", Audience::Manager),
    ("DELETE", "/api/agents/{slug}", Audience::Owner),
    ("GET", "/api/agents/{slug}/access", Audience::Manager),
    ("PUT", "/api/agents/{slug}/access", Audience::Owner),
    ("GET", "/api/agents/{slug}/tokens", Audience::Manager),
    ("POST", "/api/agents/{slug}/tokens", Audience::Manager),
    ("DELETE", "/api/agents/{slug}/tokens/{id}", Audience::Manager),
    ("GET", "/api/audit", Audience::Operator),
    ("GET", "/api/settings/install", Audience::Owner),
    ("PUT", "/api/settings/install", Audience::Owner),
    ("GET", "/api/settings/web", Audience::Owner),
    ("PUT", "/api/settings/web/vendors/{vendor}", Audience::Owner),
    ("DELETE", "/api/settings/web/vendors/{vendor}", Audience::Owner),
    ("PUT", "/api/settings/web/{capability}", Audience::Owner),
    ("GET", "/api/settings/web/usage", Audience::Owner),
    ("GET", "/api/agents/{slug}/web", Audience::Manager),
    ("PUT", "/api/agents/{slug}/web/vendors/{vendor}", Audience::Manager),
    ("DELETE", "/api/agents/{slug}/web/vendors/{vendor}", Audience::Manager),
    ("PUT", "/api/agents/{slug}/web/{capability}", Audience::Manager),
    ("GET", "/api/agents/{slug}/web/usage", Audience::Manager),
    ("GET", "/api/overview", Audience::Operator),
    ("GET", "/api/runs", Audience::Operator),
    ("GET", "/api/runs/{id}", Audience::Manager),
    ("POST", "/api/runs/{id}/cancel", Audience::Manager),
    ("GET", "/api/runs/{id}/trace", Audience::Manager),
    ("POST", "/api/runs/{id}/tool-calls/{call}/reconcile", Audience::Manager),
    ("GET", "/api/agents/{slug}/conversations", Audience::Manager),
    ("POST", "/mcp", Audience::AgentOrRun),
    ("GET", "/mcp", Audience::AgentOrRun),
    ("DELETE", "/mcp", Audience::AgentOrRun),
];

const METHODS: [Method; 8] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::TRACE];

/// What stands behind a caller's credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Nobody,
    Agent,
    /// The run whose call the paths name.
    OwnRun,
    OtherRun,
    Owner,
    /// A member who manages the agent that the paths name.
    Member,
    /// A member who manages another one.
    Stranger,
}

struct Caller {
    name: &'static str,
    /// The whole `Authorization` header.
    header: Option<String>,
    standing: Standing,
}

fn caller(name: &'static str, token: &str, standing: Standing) -> Caller {
    Caller { name, header: Some(format!("Bearer {token}")), standing }
}

fn nobody(name: &'static str, header: Option<String>) -> Caller {
    Caller { name, header, standing: Standing::Nobody }
}

fn token(client: &Client) -> &str {
    client.token().expect("a client with a token")
}

/// The server's own list: (method, path, audience) by its `OpenAPI` document.
async fn listed(client: &Client) -> BTreeSet<(String, String, Audience)> {
    let document = client.get("/api/openapi.json").await.expect("the document").json();
    let mut listed = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let schemes: BTreeMap<&str, &Value> = operation["security"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| one.as_object()?.iter().next().map(|(scheme, scopes)| (scheme.as_str(), scopes)))
                .collect();
            assert_eq!(
                schemes.get("operator_token"),
                schemes.get("session"),
                "{method} {path}: a token and a session open the same"
            );
            let role = schemes.get("session").map(|scopes| scopes[0].as_str().expect("a scope"));
            let audience = match (schemes.contains_key("agent_token"), schemes.contains_key("run_token"), role) {
                (true, true, None) => Audience::AgentOrRun,
                (true, false, None) => Audience::Agent,
                (false, true, None) => Audience::Run,
                (false, false, None) => Audience::Anybody,
                (false, false, Some("operator")) => Audience::Operator,
                (false, false, Some("manager")) => Audience::Manager,
                (false, false, Some("owner")) => Audience::Owner,
                other => panic!("{method} {path}: {other:?}"),
            };
            listed.insert((method.to_uppercase(), path.clone(), audience));
        }
    }
    listed
}

/// What the table says of a method: HEAD is GET without its body.
fn audience(method: &Method, path: &str) -> Option<Audience> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    TABLE.iter().find(|(other, at, _)| *other == method && *at == path).map(|(_, _, audience)| *audience)
}

fn expected(method: &Method, path: &str, standing: Standing) -> u16 {
    let Some(audience) = audience(method, path) else { return 405 };
    let is_run = matches!(standing, Standing::OwnRun | Standing::OtherRun);
    let is_operator = matches!(standing, Standing::Owner | Standing::Member | Standing::Stranger);
    let is_for_operators = matches!(audience, Audience::Operator | Audience::Manager | Audience::Owner);
    match (audience, standing) {
        (_, Standing::Nobody) if audience != Audience::Anybody => return 401,
        // Every change under `/api` is asked for with a body that no route takes: who is let in hears so, and nothing happens.
        (Audience::Anybody | Audience::Operator, _) | (_, Standing::Owner) | (Audience::Manager, Standing::Member)
            if audience == Audience::Anybody || (is_operator && is_for_operators) =>
        {
            return if path.starts_with("/api/") && !matches!(*method, Method::GET | Method::HEAD) { 422 } else { 200 };
        }
        (Audience::Manager, Standing::Stranger) => return 404,
        _ if is_operator || is_for_operators => return 403,
        (Audience::Agent, _) if is_run => return 403,
        (Audience::Run, Standing::Agent) => return 403,
        _ => {}
    }
    match (method.as_str(), path) {
        ("POST", "/v1/run/finish") => 204,
        ("GET" | "HEAD", "/v1/run/tool-calls/{id}") if standing != Standing::OwnRun => 404,
        ("GET" | "HEAD", "/v1/run/artifacts/{artifact}") => 404,
        // A session is asked for before anything else, and a run token needs none: 406, since it accepts no stream.
        ("GET" | "HEAD", "/mcp") => {
            if is_run {
                406
            } else {
                400
            }
        }
        ("DELETE", "/mcp") => {
            if is_run {
                204
            } else {
                400
            }
        }
        _ => 200,
    }
}

fn body(path: &str) -> Value {
    match path {
        "/v1/run/tool-calls" => json!({"tool": "browser_read", "arguments": {}}),
        "/mcp" => json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}),
        _ if path.starts_with("/api/") => json!({"no_route_takes_this": true}),
        _ => json!({}),
    }
}

/// The path with `alpha` for an agent, and ids of `alpha`'s: the run under `/api/runs`, the call elsewhere.
fn filled(path: &str, run: &str, call: &str) -> String {
    let path = path.replace("/api/runs/{id}", &format!("/api/runs/{run}")).replace("{slug}", "alpha");
    let path = path.replace("{vendor}", "brave").replace("{capability}", "search");
    ["{id}", "{artifact}", "{call}"].iter().fold(path, |path, name| path.replace(name, call))
}

/// What the paths name: a run of `alpha`, and a call of it.
#[derive(Default)]
struct Ids {
    run: String,
    call: String,
}

async fn ask(client: &Client, method: &Method, path: &str, ids: &Ids, header: Option<&str>) -> Reply {
    let at = filled(path, &ids.run, &ids.call);
    let mut request = client.request(method.clone(), &at);
    if let Some(header) = header {
        request = request.header("authorization", header);
    }
    if matches!(path, "/api/setup" | "/api/session") {
        request = request.header("origin", client.url());
    }
    if matches!(method.as_str(), "POST" | "PUT" | "PATCH") || (path.starts_with("/api/") && *method == Method::DELETE) {
        request = request.header("accept", "application/json, text/event-stream").json(&body(path));
    }
    send(request).await.expect("an answer")
}

async fn recorded_call(run: &Run) -> String {
    let reply = run.call(None, "browser_read", &json!({})).await.expect("an answer");
    reply.json()["id"].as_str().expect("a recorded call has an id").to_owned()
}

/// The callers that are nobody: nothing, nonsense, forgeries, and what was good once.
fn nobodies(stage: &Stage, revoked: &str) -> Vec<Caller> {
    let good = token(&stage.alpha);
    let forged = |prefix: &str| Some(format!("Bearer {prefix}{}", "0123456789abcdef".repeat(4)));
    vec![
        nobody("without a header", None),
        nobody("an empty header", Some(String::new())),
        nobody("no token", Some("Bearer ".into())),
        nobody("a word", Some("Bearer token".into())),
        nobody("another scheme", Some(format!("Basic {good}"))),
        nobody("no scheme", Some(good.to_owned())),
        nobody("a forged agent token", forged("fma_")),
        nobody("a forged run token", forged("fmr_")),
        nobody("an operator token, of which there are none", forged("fmo_")),
        nobody("an agent token as a run's", Some(format!("Bearer fmr_{}", &good[4..]))),
        nobody("a token in capitals", Some(format!("Bearer {}", good.to_uppercase()))),
        nobody("a token cut short", Some(format!("Bearer {}", &good[..good.len() - 1]))),
        nobody("a token with more", Some(format!("Bearer {good}0"))),
        nobody("two tokens", Some(format!("Bearer {good} {good}"))),
        nobody("a revoked token", Some(format!("Bearer {revoked}"))),
    ]
}

async fn compare(stage: &Stage, callers: &[Caller], ids: &Ids) {
    let mut wrong = Vec::new();
    let paths: BTreeSet<&str> = TABLE.iter().map(|(_, path, _)| *path).collect();
    for path in paths {
        for method in &METHODS {
            for caller in callers {
                let reply = ask(&stage.client, method, path, ids, caller.header.as_deref()).await;
                let expected = expected(method, path, caller.standing);
                if reply.status != expected {
                    wrong.push(format!("{method} {path} by {}: {} instead of {expected}", caller.name, reply.status));
                }
                let says_why = reply.header("content-type") == "application/problem+json" || *method == Method::HEAD;
                if reply.status >= 400 && !says_why {
                    wrong.push(format!("{method} {path} by {}: no problem document: {reply:?}", caller.name));
                }
                let allow = reply.header("allow");
                if reply.status == 405 && (allow.is_empty() || allow.split(',').any(|one| one.trim() == method.as_str())) {
                    wrong.push(format!("{method} {path} by {}: 405 allows `{allow}`", caller.name));
                }
                if (reply.header("x-content-type-options"), reply.header("cache-control")) != ("nosniff", "no-store") {
                    wrong.push(format!("{method} {path} by {}: may be sniffed or stored", caller.name));
                }
                if reply.headers.keys().any(|name| name.as_str().starts_with("access-control-")) {
                    wrong.push(format!("{method} {path} by {}: other sites are let in", caller.name));
                }
                if reply.status == 401 && reply.header("www-authenticate").is_empty() {
                    wrong.push(format!("{method} {path} by {}: 401 without WWW-Authenticate", caller.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Makes a token of `alpha` and takes it back.
fn revoked_token(stage: &Stage) -> String {
    let minted = stage.setup.json(&stage.place, &["agent", "token", "alpha"]).expect("a token");
    let id = minted["id"].as_str().expect("an id");
    stage.setup.run(&stage.place, &["agent", "revoke", "alpha", id]).expect("it is revoked");
    minted["token"].as_str().expect("a token").to_owned()
}

on_both_databases! {
    /// S-07: 0 differences from the written table, 0 routes that aren't in it; who is nobody changes nothing (S-23).
    async fn bar_s07_every_route_lets_in_whom_the_table_names(db) {
        let stage = Stage::of(&db, plain().timing("sweep_ms=300"));
        let written: BTreeSet<_> =
            TABLE.iter().map(|(method, path, audience)| ((*method).to_owned(), (*path).to_owned(), *audience)).collect();
        assert_eq!(listed(&stage.client).await, written);

        let own = stage.alpha.open_run(&json!({})).await.expect("a run");
        let sibling = stage.alpha.open_run(&json!({})).await.expect("a run");
        let foreign = stage.beta.open_run(&json!({})).await.expect("a run");
        let over = stage.alpha.open_run(&json!({})).await.expect("a run");
        over.finish().await.expect("it ends");
        let expired = stage.alpha.open_run(&json!({"deadline_seconds": 1})).await.expect("a run");
        let ids = Ids { call: recorded_call(&own).await, run: own.id.clone() };
        let revoked = revoked_token(&stage);
        // Past its deadline a run is over, whether somebody looks at it or not.
        let is_over = async {
            while db.number("SELECT count(*) FROM runs WHERE state = 'over'").await < 2 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(15), is_over).await.expect("the sweep ends it");
        let said = expired.call(None, "browser_read", &json!({})).await.expect("an answer").json();
        assert_eq!(said["observation"]["refusal"]["reason"], "run_over", "{said}");

        let before = contents(&db).await;
        compare(&stage, &nobodies(&stage, &revoked), &ids).await;
        assert_untouched(&db, &before).await;

        let owner = db.owner(&stage.client, "Owner").await;
        let member = db.member(&stage.client, "Member", &["alpha"]).await;
        let stranger = db.member(&stage.client, "Stranger", &["beta"]).await;
        let callers = [
            caller("an owner", token(&owner.client), Standing::Owner),
            caller("a member with access", token(&member.client), Standing::Member),
            caller("a member without", token(&stranger.client), Standing::Stranger),
            caller("an agent", token(&stage.alpha), Standing::Agent),
            caller("another agent", token(&stage.beta), Standing::Agent),
            caller("the run", token(&own.client), Standing::OwnRun),
            caller("another run of the agent", token(&sibling.client), Standing::OtherRun),
            caller("another agent's run", token(&foreign.client), Standing::OtherRun),
            caller("a run that is over", token(&over.client), Standing::OtherRun),
            caller("a run past its deadline", token(&expired.client), Standing::OtherRun),
        ];
        compare(&stage, &callers, &ids).await;
    }

    /// S-23: what nobody may ask is what contract.md 1 lists; it takes nothing in, and neither does a refusal.
    async fn bar_s23_without_a_credential_nothing_is_taken_in(db) {
        let stage = Stage::of(&db, plain());
        let before = contents(&db).await;
        let open: BTreeSet<_> = listed(&stage.client).await.into_iter().filter(|(_, _, audience)| *audience == Audience::Anybody).map(|(method, path, _)| format!("{method} {path}")).collect();
        let written = ["GET /", "GET /healthz", "GET /readyz", "GET /api/openapi.json", "GET /setup/{token}", "POST /api/setup", "POST /api/session"];
        let written: BTreeSet<_> = written.map(str::to_owned).into();
        assert_eq!(open, written);
        for path in [
            "/healthz/", "//healthz", "/HEALTHZ", "/%68ealthz", "/api", "/api/", "/api/session/", "/api/setup/",
            "/api/agents/", "/setup", "/setup/", "/setup/x/y", "/v1", "/v1/", "/v1/run", "/v1/runs/", "/v1/runs/1", "/v1/run/tools/", "/v1/run/tool-calls/",
            "/v1/run/artifacts/", "/mcp/", "/metrics/", "/.env", "/formation.db", "/data/master.key", "/proxy?url=http://127.0.0.1/",
            "/json", "/devtools/page/1", "/oauth/callback", "/debug/pprof",
        ] {
            let reply = send(stage.client.request(Method::GET, path)).await.expect("an answer");
            assert_eq!(reply.status, 404, "{path}: {reply:?}");
        }
        for (method, path, _) in TABLE {
            let announced = crate::oversize::announced(&stage.url, method, path, 1 << 30).await;
            let known = if audience(&Method::from_bytes(method.as_bytes()).expect("a method"), path) == Some(Audience::Anybody) { 200 } else { 401 };
            // What nobody may change is only for pages of ours, which say so.
            let known = if known == 200 && *method == "POST" { 403 } else { known };
            assert_eq!(announced.status, known, "{method} {path} answers before a body has come: {}", announced.head);
        }
        assert_untouched(&db, &before).await;
    }

    /// S-11: 256 random bits, shown once, stored as a hash alone; a revoked token is dead at once, its streams with it.
    async fn bar_s11_tokens_are_random_hashed_and_revocable(db) {
        let stage = Stage::of(&db, plain().timing("keep_alive_ms=200"));
        let mut tokens = BTreeSet::new();
        for _ in 0..50 {
            tokens.insert(token(&stage.alpha.open_run(&json!({})).await.expect("a run").client).to_owned());
        }
        tokens.insert(token(&stage.alpha).to_owned());
        tokens.insert(token(&stage.beta).to_owned());
        assert_eq!(tokens.len(), 52, "no token comes twice");
        for token in &tokens {
            let digits = &token[4..];
            assert!(digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "256 bits: {} digits", digits.len());
        }
        let stored = contents(&db).await;
        let held: String = stored.values().flatten().map(String::as_str).collect::<Vec<_>>().join("\n");
        for token in &tokens {
            assert!(!held.to_lowercase().contains(&token[4..]), "a token is in the database");
        }
        let hashes = match db.db.engine() {
            formation_store::Engine::Sqlite => "SELECT count(*) FROM tokens WHERE length(token_hash) = 32",
            formation_store::Engine::Postgres => "SELECT count(*) FROM tokens WHERE octet_length(token_hash) = 32",
        };
        assert_eq!(db.number(hashes).await, 52);

        let minted = stage.setup.json(&stage.place, &["agent", "token", "alpha"]).expect("a token");
        let client = stage.client.with_token(minted["token"].as_str().expect("a token"));
        let session = formation_testkit::mcp::Mcp::legacy(&client).await.expect("a session");
        let mut stream = session.request(Method::GET).header("accept", "text/event-stream").send().await.expect("a stream");
        assert_eq!(stream.status().as_u16(), 200);
        let modern = formation_testkit::mcp::Mcp::modern(&client, None);
        let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
            "notifications": {"toolsListChanged": true}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}});
        let listening = modern.request(Method::POST).header("accept", "application/json, text/event-stream");
        let mut listening =
            listening.header("mcp-method", "subscriptions/listen").json(&listen).send().await.expect("another stream");
        assert_eq!(listening.status().as_u16(), 200);
        stage.setup.run(&stage.place, &["agent", "revoke", "alpha", minted["id"].as_str().expect("an id")]).expect("it is revoked");
        assert_eq!(client.post("/v1/runs", &json!({})).await.expect("an answer").status, 401);
        assert_eq!(session.post("tools/list", &json!({})).await.expect("an answer").status, 401);
        for (what, stream) in [("notices", &mut stream), ("subscription", &mut listening)] {
            let ended = async { while matches!(stream.chunk().await, Ok(Some(_))) {} };
            let ended = tokio::time::timeout(Duration::from_secs(4), ended).await;
            assert!(ended.is_ok(), "the stream of {what} ends with its token");
        }
    }

    /// S-09: no write takes a privileged field along, at any depth; nothing changes.
    async fn bar_s09_privileged_fields_are_refused(db) {
        const NAMES: [&str; 30] = [
            "owner", "agent_id", "agent", "role", "is_admin", "admin", "version", "managed", "credential_source", "secret_id",
            "enabled", "operator_id", "run_id", "token", "token_id", "scopes", "permissions", "vendor", "provider", "account",
            "account_id", "credential_owner", "created_by", "state", "execution", "outcome", "calls_used", "deadline_at",
            "platformRole", "__proto__",
        ];
        let stage = Stage::of(&db, plain());
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let before = contents(&db).await;
        for name in NAMES {
            for value in [json!(true), json!("owner"), json!({}), Value::Null] {
                let mut opening = json!({"max_tool_calls": 5});
                let mut ending = json!({});
                let mut calling = json!({"tool": "browser_read", "arguments": {}});
                for body in [&mut opening, &mut ending, &mut calling] {
                    body[name] = value.clone();
                }
                for (client, path, body) in
                    [(&stage.alpha, "/v1/runs", opening), (&run.client, "/v1/run/finish", ending), (&run.client, "/v1/run/tool-calls", calling)]
                {
                    let reply = client.post(path, &body).await.expect("an answer");
                    assert_eq!((reply.status, reply.code().as_str()), (422, "unknown_field"), "{path} {body}: {reply:?}");
                    assert_eq!(reply.json()["fields"]["field"], name, "{reply:?}");
                }
            }
        }
        assert_untouched(&db, &before).await;
        // The arguments of a call are the tool's: a strange one is a refusal on record, and nothing is sent.
        for name in NAMES {
            let arguments = json!({"url": "http://site.example.test/", name: true});
            let call = run.call(None, "browser_navigate", &arguments).await.expect("an answer").json();
            assert_eq!((&call["execution"], &call["observation"]["refusal"]["reason"]), (&json!("refused"), &json!("invalid_arguments")), "{call}");
        }
    }
}

/// S-11: 30 forged shapes of a JWT as bearer.
#[test]
fn bar_s11_no_forged_jwt_is_let_in() {
    formation_testkit::databases::run(formation_testkit::databases::Backend::Sqlite, forged_jwts);
}

async fn forged_jwts(db: TestDb) {
    use base64::{
        Engine as _,
        engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
    };
    let stage = Stage::of(&db, plain());
    let agent = crate::stage::agent_id(&db, "alpha").await;
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = part(&json!({"sub": agent, "role": "owner", "exp": 4_102_444_800_u64, "scopes": ["operator.admin"]}));
    let mut forged: Vec<String> = Vec::new();
    for header in [
        json!({"alg": "none"}),
        json!({"alg": "None", "typ": "JWT"}),
        json!({"alg": "NONE", "typ": "JWT"}),
        json!({"alg": "HS256", "typ": "JWT"}),
        json!({"alg": "RS256", "typ": "JWT", "jwk": {"kty": "oct", "k": ""}}),
        json!({"alg": "ES256", "jku": "http://site.example.test/keys"}),
        json!({"alg": "HS256", "kid": "../../dev/null"}),
        json!({"alg": "HS256", "kid": "' OR 1=1 --"}),
    ] {
        let header = part(&header);
        for signature in ["", "AA", &URL_SAFE_NO_PAD.encode([0; 32])] {
            forged.push(format!("{header}.{claims}.{signature}"));
        }
    }
    let header = part(&json!({"alg": "none"}));
    forged.extend([
        format!("{header}.{claims}"),
        format!("..{claims}"),
        format!("{header}.."),
        format!("fma_{header}.{claims}."),
        format!("{}.{}.", STANDARD.encode("{\"alg\":\"none\"}"), STANDARD.encode("{}")),
        format!("{header}.{claims}.{claims}.{claims}.AA"),
        part(&json!({"agent": agent, "role": "owner"})),
    ]);
    assert!(forged.len() >= 30);
    let before = contents(&db).await;
    for token in &forged {
        for (method, path) in [(Method::POST, "/v1/runs"), (Method::GET, "/v1/run/tools"), (Method::POST, "/mcp")] {
            let reply = ask(&stage.client, &method, path, &Ids::default(), Some(&format!("Bearer {token}"))).await;
            assert_eq!((reply.status, reply.code().as_str()), (401, "unauthenticated"), "{path} {token}");
        }
    }
    assert_untouched(&db, &before).await;
}
