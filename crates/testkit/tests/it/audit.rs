//! The audit trail over HTTP: every mutating route leaves exactly one row, whatever became of it, and changes nothing when it can't
//! (R-20, S-09). The routes are read from the server's own document: one without an example here fails the test.
//!
//! Adding a route: an arm in `example`, which prepares what the request needs, and, where the body has a `version`, a `stale` body.

use std::collections::BTreeMap;

use formation_store::Engine;
use formation_testkit::{
    brave::KEY,
    databases::TestDb,
    http::{Client, Reply, send},
    on_both_databases,
    operators::{PASSWORD, Page, Person},
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    oversight,
    stage::{Stage, agent_id, assert_untouched, contents, plain},
};

/// A mutating request that is done when it is sent.
struct Example {
    path: String,
    body: Value,
    /// The same with a version that isn't the stored one, where the body has one.
    stale: Option<Value>,
    /// Sent as a page of somebody who signed in, else with the owner's token.
    page: Option<Page>,
}

/// A server with an owner, a member who manages `alpha`, and one who manages nothing.
struct World {
    db: TestDb,
    stage: Stage,
    owner: Person,
    stranger: Person,
}

impl World {
    async fn new(db: &TestDb) -> Self {
        let stage = Stage::of(db, plain());
        let owner = db.owner(&stage.client, "Owner").await;
        let stranger = db.member(&stage.client, "Stranger", &[]).await;
        Self { db: db.clone(), stage, owner, stranger }
    }

    /// What an owner's request made, by its id.
    async fn made(&self, path: &str, body: Value) -> String {
        let reply = self.owner.client.post(path, &body).await.expect("an answer");
        assert_eq!(reply.status, 201, "{path}: {reply:?}");
        reply.json()["id"].as_str().expect("an id").to_owned()
    }

    /// A request for this route that is ready to be done. `fresh` is another word each time.
    async fn example(&self, method: &str, path: &str, fresh: &str) -> Example {
        let done = |path: &str, body: Value| Example { path: path.to_owned(), body, stale: None, page: None };
        match (method, path) {
            ("POST", "/api/session") => done(path, json!({"name": "Owner", "password": PASSWORD})),
            ("DELETE", "/api/session") => {
                let page = Page::sign_in(&self.stage.client, "Owner", PASSWORD).await.expect("signed in");
                Example { page: Some(page), ..done(path, json!({})) }
            }
            ("POST", "/api/operators") => done(path, json!({"name": fresh, "role": "member", "password": PASSWORD})),
            ("PATCH" | "DELETE", "/api/operators/{id}") => {
                let id = self.made("/api/operators", json!({"name": fresh, "role": "owner", "password": PASSWORD})).await;
                done(&path.replace("{id}", &id), if method == "PATCH" { json!({"disabled": true}) } else { json!({}) })
            }
            ("POST", "/api/tokens") => done(path, json!({ "name": fresh })),
            ("DELETE", "/api/tokens/{id}") => {
                let id = self.made("/api/tokens", json!({ "name": fresh })).await;
                done(&path.replace("{id}", &id), json!({}))
            }
            ("POST", "/api/agents") => {
                let bounds = json!({"deadline_seconds": 60, "max_tool_calls": 7, "browser_profile": false});
                done(path, json!({"slug": fresh, "name": "An agent", "run_defaults": bounds}))
            }
            ("PATCH", "/api/agents/{slug}") => {
                let bounds = json!({"deadline_seconds": 60, "max_tool_calls": 7, "browser_profile": false});
                done("/api/agents/alpha", json!({"name": fresh, "run_defaults": bounds}))
            }
            ("DELETE", "/api/agents/{slug}") => {
                self.made("/api/agents", json!({ "slug": fresh })).await;
                done(&path.replace("{slug}", fresh), json!({}))
            }
            ("PUT", "/api/agents/{slug}/access") => done("/api/agents/alpha/access", json!({"operators": [self.stranger.id]})),
            ("POST", "/api/agents/{slug}/tokens") => done("/api/agents/alpha/tokens", json!({ "name": fresh })),
            ("DELETE", "/api/agents/{slug}/tokens/{id}") => {
                let id = self.made("/api/agents/alpha/tokens", json!({ "name": fresh })).await;
                done(&format!("/api/agents/alpha/tokens/{id}"), json!({}))
            }
            ("PUT" | "DELETE", path) if path.starts_with("/api/settings/") || path.starts_with("/api/agents/{slug}/web/") => {
                self.setting(method, path).await
            }
            ("POST", "/api/runs/{id}/cancel") => {
                let run = self.stage.alpha.open_run(&json!({})).await.expect("a run");
                done(&format!("/api/runs/{}/cancel", run.id), json!({}))
            }
            ("POST", "/api/runs/{id}/tool-calls/{call}/reconcile") => {
                let run = self.stage.alpha.open_run(&json!({})).await.expect("a run");
                let call = oversight::refused(&run).await;
                oversight::doubted(&self.db, &call).await;
                done(&oversight::reconcile(&run, &call), oversight::finding("took_effect"))
            }
            (method, path) => panic!("{method} {path} changes something and has no example here: add one"),
        }
    }

    /// The same for settings, whose writes name the version they were made on.
    async fn setting(&self, method: &str, path: &str) -> Example {
        let path = path.replace("{slug}", "alpha").replace("{vendor}", "brave").replace("{capability}", "search");
        let scope = if path.starts_with("/api/agents/") { "scope <> 'install'" } else { "scope = 'install'" };
        let (table, mut body) = match (method, path.as_str()) {
            ("DELETE", _) => (format!("vendor_accounts WHERE {scope}"), json!({})),
            (_, path) if path.ends_with("/vendors/brave") => {
                (format!("vendor_accounts WHERE {scope}"), json!({"api_key": KEY, "config": {}}))
            }
            (_, path) if path.ends_with("/web/search") => (
                format!("capability_settings WHERE {scope}"),
                json!({"mode": "disabled", "provider": "", "config": {}, "limits": {}}),
            ),
            _ => ("install_settings".to_owned(), json!({"result_retention_days": 7, "run_defaults": {"max_tool_calls": 9}})),
        };
        let sql = format!("SELECT coalesce(max(version), 0) FROM {table}");
        if method == "DELETE" && self.db.number(&sql).await == 0 {
            let made = self.owner.client.request(Method::PUT, &path).json(&json!({"version": 0, "api_key": KEY}));
            assert_eq!(send(made).await.expect("an answer").status, 200);
        }
        let version = self.db.number(&sql).await;
        body["version"] = json!(version);
        let mut stale = body.clone();
        stale["version"] = json!(version + 1);
        Example { path, body, stale: Some(stale), page: None }
    }

    async fn send(&self, method: &str, example: &Example, body: &Value, client: &Client) -> Reply {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let request = match &example.page {
            Some(page) => page.request(method, &example.path),
            None => client.request(method, &example.path).header("origin", client.url()),
        };
        send(request.json(body)).await.expect("an answer")
    }

    async fn rows(&self) -> i64 {
        self.db.number("SELECT count(*) FROM audit").await
    }

    /// The newest row: action, outcome, actor's kind and agent.
    async fn newest(&self) -> String {
        let sql = "SELECT action || ' ' || outcome || ' ' || actor_kind || ' ' || coalesce(CAST(agent_id AS TEXT), '') FROM audit ORDER BY id DESC LIMIT 1";
        self.db.texts(sql).await.remove(0)
    }
}

/// Every route that changes something under `/api`, with the word its rows bear.
async fn mutating(client: &Client) -> Vec<(String, String, String)> {
    let document = client.get("/api/openapi.json").await.expect("the document").json();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            if path.starts_with("/api/") && method != "get" {
                let word = operation["operationId"].as_str().expect("an id").to_owned();
                let is_word = word.split_once('.').is_some_and(|(noun, verb)| !noun.is_empty() && !verb.is_empty());
                assert!(is_word, "{method} {path}: `{word}` is not of the form `noun.verb`");
                found.push((method.to_uppercase(), path.clone(), word));
            }
        }
    }
    assert!(found.len() >= 14, "{found:?}");
    found
}

/// Nothing can be written to the audit trail from here on.
async fn break_audit(db: &TestDb) {
    let sql = match db.db.engine() {
        Engine::Sqlite => "CREATE TRIGGER audit_broken BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'broken'); END",
        Engine::Postgres => {
            "CREATE FUNCTION audit_broken() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$ LANGUAGE plpgsql; \
             CREATE TRIGGER audit_broken BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audit_broken()"
        }
    };
    db.meddle(sql).await;
}

async fn mend_audit(db: &TestDb) {
    let sql = match db.db.engine() {
        Engine::Sqlite => "DROP TRIGGER audit_broken",
        Engine::Postgres => "DROP TRIGGER audit_broken ON audit; DROP FUNCTION audit_broken()",
    };
    db.meddle(sql).await;
}

/// What can't be done at all in this install: `POST /api/setup`, which wants one without an owner.
async fn set_up_fails_closed(db: &TestDb, stage: &Stage) {
    let link = stage.setup_url.as_deref().expect("a server without an owner says where to make one");
    let token = link.rsplit('/').next().expect("a token").to_owned();
    let ask = async |token: &str| {
        let body = json!({"token": token, "name": "First", "password": PASSWORD});
        let request = stage.client.request(Method::POST, "/api/setup").header("origin", &stage.url);
        send(request.json(&body)).await.expect("an answer")
    };
    break_audit(db).await;
    let before = contents(db).await;
    for token in [token.as_str(), &"0".repeat(64)] {
        let reply = ask(token).await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "store_unavailable"), "{reply:?}");
    }
    assert_untouched(db, &before).await;
    mend_audit(db).await;
    let rows = async |what: &str| {
        db.number(&format!("SELECT count(*) FROM audit WHERE action = 'install.setup' AND outcome = '{what}'")).await
    };
    assert_eq!(ask(&"0".repeat(64)).await.status, 404);
    assert_eq!((rows("denied").await, rows("done").await), (1, 0));
    assert_eq!(ask(&token).await.status, 201);
    assert_eq!((rows("denied").await, rows("done").await), (1, 1));
    assert_eq!(ask(&token).await.status, 404, "once");
    assert_eq!((rows("denied").await, rows("done").await), (2, 1));
}

fn without_audit(mut all: BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    all.remove("audit");
    all
}

on_both_databases! {
    /// an audit trail that can't be written stops every change, and every refusal; else each leaves exactly one row.
    async fn bar_r20_every_change_leaves_one_row_or_none_is_made(db) {
        let world = World::new(&db).await;
        for (number, (method, path, word)) in mutating(&world.stage.client).await.into_iter().enumerate() {
            if path == "/api/setup" {
                continue;
            }
            let what = format!("{method} {path}");
            let example = world.example(&method, &path, &format!("r20-{number}")).await;
            // Who signs in has no token yet: there, what is denied is a wrong password.
            let is_sign_in = word == "session.open";
            let wrong = json!({"name": "Owner", "password": "not the right word"});
            let as_agent = Example { path: example.path.clone(), body: example.body.clone(), stale: None, page: None };
            let denied = async || {
                if is_sign_in {
                    world.send(&method, &example, &wrong, &world.stage.client).await
                } else {
                    world.send(&method, &as_agent, &example.body, &world.stage.alpha).await
                }
            };
            let stale = async |body: &Value| world.send(&method, &example, body, &world.owner.client).await;

            break_audit(&db).await;
            let before = contents(&db).await;
            let mut replies = vec![world.send(&method, &example, &example.body, &world.owner.client).await, denied().await];
            if let Some(body) = &example.stale {
                replies.push(stale(body).await);
            }
            for reply in replies {
                assert_eq!((reply.status, reply.code().as_str()), (503, "store_unavailable"), "{what}: {reply:?}");
            }
            assert_untouched(&db, &before).await;
            mend_audit(&db).await;

            let before = world.rows().await;
            let reply = denied().await;
            assert_eq!(reply.status, if is_sign_in { 401 } else { 403 }, "{what}: {reply:?}");
            let kind = if is_sign_in { "anonymous" } else { "agent" };
            assert!(world.newest().await.starts_with(&format!("{word} denied {kind} ")), "{what}: {}", world.newest().await);
            assert_eq!(world.rows().await, before + 1, "{what}, denied");

            if let Some(body) = &example.stale {
                let reply = stale(body).await;
                assert_eq!((reply.status, reply.code().as_str()), (409, "stale_version"), "{what}: {reply:?}");
                assert!(world.newest().await.starts_with(&format!("{word} stale ")), "{what}: {}", world.newest().await);
                assert_eq!(world.rows().await, before + 2, "{what}, stale");
            }

            let before = world.rows().await;
            let reply = world.send(&method, &example, &example.body, &world.owner.client).await;
            assert!((200..300).contains(&reply.status), "{what}: {reply:?}");
            let kind = if is_sign_in || example.page.is_some() { "operator" } else { "operator_token" };
            assert!(world.newest().await.starts_with(&format!("{word} done {kind} ")), "{what}: {}", world.newest().await);
            if path.starts_with("/api/agents/") || path.starts_with("/api/runs/") {
                assert!(world.newest().await.len() > 36, "{what}: the row names the agent: {}", world.newest().await);
            }
            assert_eq!(world.rows().await, before + 1, "{what}, done");
        }
    }

    /// the first owner is made with a row, or not at all.
    async fn bar_r20_set_up_leaves_a_row_or_no_owner(db) {
        let stage = Stage::of(&db, plain());
        set_up_fails_closed(&db, &stage).await;
    }

    /// a conflict, a value out of bounds, an id of nobody and a member who reaches too far leave one row each; nobody leaves none.
    async fn bar_r20_what_is_turned_away_leaves_one_row(db) {
        let world = World::new(&db).await;
        let alpha = agent_id(&db, "alpha").await;
        let own = format!("/api/operators/{}", world.owner.id);
        for (client, method, path, body, status, row) in [
            (&world.owner.client, "DELETE", own.as_str(), json!({}), 409, "operator.delete refused operator_token "),
            (&world.owner.client, "PATCH", own.as_str(), json!({"disabled": true}), 409, "operator.change refused operator_token "),
            (&world.owner.client, "POST", "/api/agents", json!({"slug": "alpha"}), 409, "agent.create refused operator_token "),
            (&world.owner.client, "POST", "/api/agents", json!({"slug": "Not One"}), 422, "agent.create refused operator_token "),
            (&world.owner.client, "DELETE", "/api/operators/x", json!({}), 400, "operator.delete refused operator_token "),
            (&world.owner.client, "DELETE", "/api/agents/nobody", json!({}), 404, "agent.delete denied operator_token "),
            (&world.owner.client, "PATCH", "/api/agents/alpha", json!({"name": ""}), 422, &format!("agent.change refused operator_token {alpha}")),
            (&world.stranger.client, "POST", "/api/agents", json!({"slug": "mine"}), 403, "agent.create denied operator_token "),
            (&world.stranger.client, "POST", "/api/agents/alpha/tokens", json!({"name": "x"}), 404, "agent_token.create denied operator_token "),
        ] {
            let before = world.rows().await;
            let example = Example { path: path.to_owned(), body: body.clone(), stale: None, page: None };
            let reply = world.send(method, &example, &body, client).await;
            assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
            assert_eq!(world.newest().await, row, "{method} {path}");
            assert_eq!(world.rows().await, before + 1, "{method} {path}");
        }
        let before = world.rows().await;
        for client in [&world.stage.client, &world.stage.client.with_token("fmo_not-a-token")] {
            assert_eq!(client.post("/api/agents", &json!({"slug": "x"})).await.expect("an answer").status, 401);
        }
        world.owner.client.get("/api/agents").await.expect("an answer");
        world.owner.client.get("/api/agents/nobody").await.expect("an answer");
        assert_eq!(world.rows().await, before, "who is nobody, and who reads, leaves no row");
    }

    /// S-09: 30 names that would give more than is given, in every body at every depth: 422, and nothing changes but the trail.
    async fn bar_s09_no_change_takes_a_privileged_field(db) {
        const NAMES: [&str; 30] = [
            "owner", "agent_id", "agent", "role", "is_admin", "admin", "version", "managed", "credential_source", "secret_id",
            "enabled", "operator_id", "run_id", "token", "token_id", "scopes", "permissions", "vendor", "provider", "account",
            "account_id", "credential_owner", "created_by", "state", "password_hash", "outcome", "granted_by", "is_owner",
            "platformRole", "__proto__",
        ];
        let world = World::new(&db).await;
        for (number, (method, path, _)) in mutating(&world.stage.client).await.into_iter().enumerate() {
            let example = if path == "/api/setup" {
                let body = json!({"token": "0".repeat(64), "name": "First", "password": PASSWORD});
                Example { path: path.clone(), body, stale: None, page: None }
            } else {
                world.example(&method, &path, &format!("s09-{number}")).await
            };
            let before = without_audit(contents(&db).await);
            for name in NAMES {
                for body in widened(&example.body, name) {
                    let reply = world.send(&method, &example, &body, &world.owner.client).await;
                    assert_eq!(reply.status, 422, "{method} {path} {body}: {reply:?}");
                    assert!(["unknown_field", "invalid_value"].contains(&reply.code().as_str()), "{method} {path} {body}: {reply:?}");
                }
            }
            let after = without_audit(contents(&db).await);
            assert_eq!(after, before, "{method} {path}");
        }
    }

    /// O11, S-07: a member with one agent does every deed that an agent's managers may, and reads all that they may; the same for
    /// another agent is 404, an owner's deed 403, and neither changes anything but the trail.
    async fn o11_a_member_does_every_deed_for_their_agent_alone(db) {
        let world = World::new(&db).await;
        let member = db.member(&world.stage.client, "Member", &["alpha"]).await;
        let document = world.stage.client.get("/api/openapi.json").await.expect("the document").json();
        let role = |method: &str, path: &str| {
            let security = document["paths"][path][method.to_lowercase()]["security"].as_array().cloned().unwrap_or_default();
            security.iter().find_map(|one| one["session"][0].as_str().map(str::to_owned)).unwrap_or_default()
        };
        let mut deeds = 0;
        for (number, (method, path, _)) in mutating(&world.stage.client).await.into_iter().enumerate() {
            let (what, role) = (format!("{method} {path}"), role(&method, &path));
            if role != "manager" && role != "owner" {
                continue;
            }
            let example = world.example(&method, &path, &format!("o11-{number}")).await;
            let before = without_audit(contents(&db).await);
            if role == "owner" {
                let reply = world.send(&method, &example, &example.body, &member.client).await;
                assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{what}: {reply:?}");
                assert_eq!(without_audit(contents(&db).await), before, "{what}");
                continue;
            }
            let betas = Example { path: example.path.replace("/alpha", "/beta"), body: Value::Null, stale: None, page: None };
            let mut turned = vec![world.send(&method, &example, &example.body, &world.stranger.client).await];
            if betas.path != example.path {
                turned.push(world.send(&method, &betas, &example.body, &member.client).await);
            }
            for reply in turned {
                assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{what}: {reply:?}");
            }
            assert_eq!(without_audit(contents(&db).await), before, "{what}");
            let reply = world.send(&method, &example, &example.body, &member.client).await;
            assert!((200..300).contains(&reply.status), "{what}: {reply:?}");
            deeds += 1;
        }
        assert!(deeds >= 8, "{deeds}");
        for (path, operations) in document["paths"].as_object().expect("paths") {
            if operations.get("get").is_none() || !path.starts_with("/api/") {
                continue;
            }
            let role = role("get", path);
            let (own, foreign) = (path.replace("{slug}", "alpha"), path.replace("{slug}", "beta"));
            let expected = match role.as_str() {
                "manager" if own != foreign => Some((200, 404)),
                "owner" => Some((403, 403)),
                _ => None,
            };
            if let Some(expected) = expected {
                let (own, foreign) = (member.client.get(&own).await.expect("an answer"), member.client.get(&foreign).await.expect("an answer"));
                assert_eq!((own.status, foreign.status), expected, "{path}");
            }
        }
    }

    /// The trail can be searched: an owner finds everything, a member what concerns their agents, and nobody another agent's.
    async fn o11_the_trail_is_searched_within_reach(db) {
        let world = World::new(&db).await;
        let member = db.member(&world.stage.client, "Member", &["alpha"]).await;
        for agent in ["alpha", "beta"] {
            world.made(&format!("/api/agents/{agent}/tokens"), json!({"name": "one"})).await;
        }
        let token = world.made("/api/tokens", json!({"name": "mine"})).await;
        let found = async |who: &Person, query: &str| {
            let reply = who.client.get(&format!("/api/audit{query}")).await.expect("an answer");
            assert_eq!(reply.status, 200, "{query}: {reply:?}");
            let items = reply.json()["items"].as_array().expect("items").clone();
            items.iter().map(|one| format!("{} {}", one["action"].as_str().unwrap_or(""), one["outcome"].as_str().unwrap_or(""))).collect::<Vec<_>>()
        };
        let all = found(&world.owner, "").await;
        assert_eq!(all[..3], ["token.create done", "agent_token.create done", "agent_token.create done"]);
        assert!(all.contains(&"agent.create done".to_owned()), "the command line's deeds are there: {all:?}");
        let name = format!("?actor={}", world.owner.id);
        assert_eq!(found(&world.owner, &name).await, all[..3]);
        assert_eq!(found(&world.owner, "?actor=Owner&action=token.create").await, ["token.create done"]);
        assert_eq!(found(&world.owner, "?agent=beta&actor=Owner").await, ["agent_token.create done"]);
        assert_eq!(found(&world.stranger, "").await, Vec::<String>::new());
        // `alpha` itself, the token the stage made, and the owner's.
        assert_eq!(found(&member, "").await, ["agent_token.create done", "agent_token.create done", "agent.create done"]);
        let beta = agent_id(&db, "beta").await;
        assert_eq!(found(&member, &format!("?agent={beta}")).await, Vec::<String>::new());
        let (foreign, absent) = (member.client.get("/api/audit?agent=beta").await.expect("an answer"), member.client.get("/api/audit?agent=nobody").await.expect("an answer"));
        assert_eq!((foreign.status, &foreign.body), (404, &absent.body));
        for (query, status) in [("?after=x", 400), ("?agents=alpha", 422), ("?actor=%00", 422), ("?agent=%00", 404)] {
            assert_eq!(world.owner.client.get(&format!("/api/audit{query}")).await.expect("an answer").status, status, "{query}");
        }
        let line = world.owner.client.get("/api/audit?action=token.create").await.expect("an answer").json()["items"][0].clone();
        assert_eq!((&line["subject"], &line["actor"]["kind"], &line["actor"]["name"]), (&json!(token), &json!("operator_token"), &json!("Owner")), "{line}");
        assert!(line["request_id"].as_str().is_some_and(|id| id.len() == 16), "{line}");
    }

    /// 100 a page, newest first, each line once.
    async fn a_long_trail_comes_in_pages(db) {
        let world = World::new(&db).await;
        for _ in 0..105 {
            world.stranger.client.post("/api/agents", &json!({"slug": "x"})).await.expect("an answer");
        }
        let mut ids = Vec::new();
        let mut after = String::new();
        loop {
            let page = world.owner.client.get(&format!("/api/audit?action=agent.create&actor=Stranger{after}")).await.expect("an answer").json();
            ids.extend(page["items"].as_array().expect("items").iter().map(|one| one["id"].as_str().expect("an id").to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            assert_eq!(ids.len(), 100);
            after = format!("&after={next}");
        }
        assert_eq!(ids.len(), 105);
        assert!(ids.windows(2).all(|two| two[0] > two[1]), "newest first, each once");
    }
}

/// `body` with one more field, at its top and in each object within; not where it has that field already.
fn widened(body: &Value, name: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let Some(members) = body.as_object() else { return all };
    if !members.contains_key(name) {
        let mut wider = body.clone();
        wider[name] = json!(true);
        all.push(wider);
    }
    for (field, inner) in members {
        for wider_inner in widened(inner, name) {
            let mut wider = body.clone();
            wider[field] = wider_inner;
            all.push(wider);
        }
    }
    all
}
