//! Operators over HTTP: the first one, signing in, what a member may do, and how all of it is taken back (O11, S-08, S-11, S-23).

use std::{collections::BTreeSet, time::Duration};

use formation_testkit::{
    http::{Client, Reply, send},
    mcp::Mcp,
    on_both_databases,
    operators::{PASSWORD, Page, try_sign_in},
};
use http::Method;
use serde_json::{Value, json};

use crate::stage::{Stage, assert_untouched, contents, plain};

/// An id of ours by its form that nobody has.
const ABSENT: &str = "019ad012-3456-7abc-8def-0123456789ab";

/// Status, media type and body: all that a caller can see, the request's own id aside.
fn seen(reply: &Reply) -> (u16, String, Vec<u8>) {
    (reply.status, reply.header("content-type").to_owned(), reply.body.clone())
}

async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Reply {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    send(client.request(method, path).json(body)).await.expect("an answer")
}

async fn set_up(stage: &Stage, token: &str, name: &str, password: &str) -> Reply {
    let request = stage.client.request(Method::POST, "/api/setup").header("origin", &stage.url);
    send(request.json(&json!({"token": token, "name": name, "password": password}))).await.expect("an answer")
}

on_both_databases! {
    /// The link that `serve` prints makes one owner, once, who is signed in with a cookie no script and no other site can use.
    async fn bar_s23_the_first_owner_comes_through_the_link_alone(db) {
        let stage = Stage::of(&db, plain());
        let link = stage.setup_url.clone().expect("a server without an owner says where to make one");
        let path = link.strip_prefix(&stage.url).expect("an address of this server");
        let token = path.strip_prefix("/setup/").expect("the page").to_owned();
        let page = stage.client.get(path).await.expect("an answer");
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
        let text = String::from_utf8(page.body).expect("text");
        assert!(text.contains("<form") && !text.contains(&token), "the token stays in the address");
        let dead = String::from_utf8(stage.client.get("/setup/nothing").await.expect("an answer").body).expect("text");
        assert!(!dead.contains("<form"), "{dead}");

        let before = contents(&db).await;
        for (name, password, field) in [("", PASSWORD, "name"), ("a\u{7}b", PASSWORD, "name"), ("Owner", "too short", "password"), ("Owner", &"x".repeat(201), "password")] {
            let reply = set_up(&stage, &token, name, password).await;
            assert_eq!((reply.status, &reply.json()["fields"]["field"]), (422, &json!(field)), "{reply:?}");
        }
        let body = json!({"token": token, "name": "Owner", "password": PASSWORD});
        let without_origin = stage.client.post("/api/setup", &body).await.expect("an answer");
        assert_eq!(without_origin.status, 403, "{without_origin:?}");
        let large = stage.client.request(Method::POST, "/api/setup").header("origin", &stage.url).json(&json!({"token": "x".repeat(4096), "name": "a", "password": PASSWORD}));
        assert_eq!(send(large).await.expect("an answer").status, 413);
        assert_untouched(&db, &before).await;

        let reply = set_up(&stage, &token, "Owner", PASSWORD).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        let cookie = reply.header("set-cookie").to_owned();
        assert!(cookie.starts_with("__Host-formation="), "{cookie}");
        for flag in ["HttpOnly", "Secure", "SameSite=Strict", "Path=/"] {
            assert!(cookie.split("; ").any(|part| part == flag), "{flag}: {cookie}");
        }
        let owner = Page::of(&stage.client, &reply).expect("a session");
        let me = send(owner.request(Method::GET, "/api/session")).await.expect("an answer").json();
        assert_eq!((&me["operator"]["name"], &me["operator"]["role"], &me["csrf"]), (&json!("Owner"), &json!("owner"), &json!(owner.csrf)));
        assert_eq!(set_up(&stage, &token, "Second", PASSWORD).await.status, 404, "once");
        assert_eq!(db.number("SELECT count(*) FROM operators").await, 1);
        let dead = String::from_utf8(stage.client.get(path).await.expect("an answer").body).expect("text");
        assert!(!dead.contains("<form"), "{dead}");
        let (place, setup) = stage.end();
        assert_eq!(setup.start(&place).expect("a server").setup_url(), None, "an install with an owner has no link");
    }

    /// Eight set-ups by one link at once make one owner, and one session.
    async fn one_link_makes_one_owner_whoever_else_uses_it(db) {
        let stage = Stage::of(&db, plain());
        let link = stage.setup_url.clone().expect("a link");
        let token = link.rsplit('/').next().expect("a token");
        let names: Vec<String> = (0..8).map(|number| format!("Owner {number}")).collect();
        let replies = futures::future::join_all(names.iter().map(|name| set_up(&stage, token, name, PASSWORD))).await;
        let mut said: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        said.sort_unstable();
        assert_eq!(said, [201, 404, 404, 404, 404, 404, 404, 404]);
        assert_eq!(db.number("SELECT count(*) FROM operators").await, 1);
        assert_eq!(db.number("SELECT count(*) FROM operator_sessions").await, 1);
        assert_eq!(db.number("SELECT count(*) FROM audit WHERE action = 'install.setup'").await, 8, "each left its row");
    }

    /// S-10 for changes by cookie: without our Origin or without the session's word nothing is changed; signing out ends it.
    async fn a_change_by_cookie_comes_from_a_page_of_ours(db) {
        let stage = Stage::of(&db, plain());
        db.owner(&stage.client, "Owner").await;
        let page = Page::sign_in(&stage.client, "oWNer", PASSWORD).await.expect("signed in");
        let other = Page::sign_in(&stage.client, "Owner", PASSWORD).await.expect("signed in");
        assert_ne!(page.csrf, other.csrf);
        let bare = || stage.client.request(Method::POST, "/api/agents").header("cookie", &page.cookie).json(&json!({"slug": "made"}));
        let ours = stage.url.as_str();
        for (what, request) in [
            ("nothing", bare()),
            ("an Origin", bare().header("origin", ours)),
            ("the word", bare().header("x-formation-csrf", &page.csrf)),
            ("another session's word", bare().header("origin", ours).header("x-formation-csrf", &other.csrf)),
            ("a foreign Origin", bare().header("origin", "http://evil.example").header("x-formation-csrf", &page.csrf)),
        ] {
            let reply = send(request).await.expect("an answer");
            assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{what}: {reply:?}");
        }
        assert_eq!(db.number("SELECT count(*) FROM agents WHERE slug = 'made'").await, 0);
        let made = send(page.request(Method::POST, "/api/agents").json(&json!({"slug": "made"}))).await.expect("an answer");
        assert_eq!(made.status, 201, "{made:?}");
        // A good cookie doesn't help a bad token.
        let both = page.request(Method::GET, "/api/agents").header("authorization", "Bearer fmo_nothing");
        assert_eq!(send(both).await.expect("an answer").status, 401);

        let out = send(page.request(Method::DELETE, "/api/session").json(&json!({}))).await.expect("an answer");
        assert_eq!((out.status, out.header("set-cookie").contains("Max-Age=0")), (204, true), "{out:?}");
        assert_eq!(send(page.request(Method::GET, "/api/session")).await.expect("an answer").status, 401);
        assert_eq!(send(other.request(Method::GET, "/api/session")).await.expect("an answer").status, 200, "another one goes on");
    }

    /// S-23: ten bad sign-ins delay the account and their source; nobody else is kept out, and a name that nobody has looks the same.
    async fn bar_s23_bad_sign_ins_are_delayed_and_lock_nobody_else_out(db) {
        let stage = Stage::of(&db, plain());
        db.owner(&stage.client, "Owner").await;
        db.member(&stage.client, "Member", &[]).await;
        let attempt = async |name: &str, password: &str, source: &str| {
            try_sign_in(&stage.client, name, password, Some(source)).await.expect("an answer")
        };
        // The owner has signed in from home before.
        assert_eq!(attempt("Owner", PASSWORD, "192.0.2.1").await.status, 200);
        let known = attempt("Owner", "wrong", "198.51.100.1").await;
        let unknown = attempt("Nobody", "wrong", "198.51.100.2").await;
        assert_eq!(known.status, 401);
        assert_eq!(seen(&known), seen(&unknown));

        let mut said = Vec::new();
        for _ in 0..10 {
            said.push(attempt("Owner", "wrong", "198.51.100.9").await);
        }
        let delayed: Vec<_> = said.iter().filter(|reply| reply.status == 429).collect();
        assert!(delayed.len() >= 4, "{said:?}");
        for reply in &delayed {
            let seconds: u64 = reply.header("retry-after").parse().expect("seconds");
            assert!((1..=30).contains(&seconds) && reply.code() == "rate_limited", "{reply:?}");
        }
        assert_eq!(attempt("Owner", PASSWORD, "198.51.100.9").await.status, 429, "what is delayed isn't looked at");
        for (name, source) in [("Owner", "192.0.2.1"), ("Member", "198.51.100.9"), ("Member", "203.0.113.5")] {
            assert_eq!(attempt(name, PASSWORD, source).await.status, 200, "{name} from {source}");
        }

        // One source that tries many names waits by itself; the names it tried don't.
        for number in 0..12 {
            let reply = attempt(&format!("name-{number}"), "wrong", "203.0.113.77").await;
            assert_eq!(reply.status, if number < 10 { 401 } else { 429 }, "{number}: {reply:?}");
        }
        assert_eq!(attempt("Member", PASSWORD, "203.0.113.77").await.status, 429);
        assert_eq!(attempt("Member", PASSWORD, "203.0.113.78").await.status, 200);
        let subjects = db.texts("SELECT subject FROM login_attempts").await.join(" ");
        assert!(!subjects.contains("name-") && !subjects.contains("203.0.113"), "names and addresses are hashed: {subjects}");
        // A minute later (the delays of an account end before) a name and its password are enough again.
        let wait = async {
            while attempt("Owner", PASSWORD, "198.51.100.55").await.status != 200 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(45), wait).await.expect("the delay ends");
    }

    /// A member can do everything for the agent they were given, and nothing else (O11).
    async fn o11_a_member_manages_their_agent_and_nothing_else(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await;
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let listed = member.get("/api/agents").await.expect("an answer").json();
        assert_eq!(listed["items"].as_array().expect("items").iter().map(|one| &one["slug"]).collect::<Vec<_>>(), ["alpha"]);
        let changed = ask(&member, "PATCH", "/api/agents/alpha", &json!({"name": "New name", "run_defaults": {"max_tool_calls": 3}})).await.json();
        assert_eq!((&changed["name"], &changed["run_defaults"]), (&json!("New name"), &json!({"deadline_seconds": 21_600, "max_tool_calls": 3, "browser_profile": true})));
        let minted = ask(&member, "POST", "/api/agents/alpha/tokens", &json!({"name": "harness"})).await;
        assert_eq!(minted.status, 201, "{minted:?}");
        let agent = stage.client.with_token(minted.json()["token"].as_str().expect("a token"));
        agent.open_run(&json!({})).await.expect("the token works");
        let id = minted.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(member.get("/api/agents/alpha/access").await.expect("an answer").json()["operators"][0]["name"], "Member");
        let path = format!("/api/agents/alpha/tokens/{id}");
        assert_eq!(ask(&member, "DELETE", &path, &json!({})).await.status, 204);
        assert_eq!(ask(&member, "DELETE", &path, &json!({})).await.status, 404, "it is dead");
        assert_eq!(agent.post("/v1/runs", &json!({})).await.expect("an answer").status, 401);

        let before = contents(&db).await;
        for (method, path, body, status) in [
            ("GET", "/api/operators", json!({}), 403),
            ("POST", "/api/operators", json!({"name": "Friend", "role": "owner", "password": PASSWORD}), 403),
            ("PATCH", &format!("/api/operators/{}", owner.id), json!({"disabled": true}), 403),
            ("POST", "/api/agents", json!({"slug": "mine"}), 403),
            ("DELETE", "/api/agents/alpha", json!({}), 403),
            ("PUT", "/api/agents/alpha/access", json!({"operators": []}), 403),
            ("GET", "/api/agents/beta", json!({}), 404),
            ("PATCH", "/api/agents/beta", json!({"name": "x"}), 404),
            ("GET", "/api/agents/beta/tokens", json!({}), 404),
            ("POST", "/api/agents/beta/tokens", json!({"name": "x"}), 404),
        ] {
            let reply = ask(&member, method, path, &body).await;
            assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        }
        let mut after = contents(&db).await;
        after.insert("audit".into(), before["audit"].clone());
        assert_eq!(after, before, "only the trail has grown");

        // Taken back, it holds for the next request.
        let taken = ask(&owner.client, "PUT", "/api/agents/alpha/access", &json!({"operators": []})).await;
        assert_eq!((taken.status, &taken.json()["operators"]), (200, &json!([])));
        assert_eq!(member.get("/api/agents/alpha").await.expect("an answer").status, 404);
    }

    /// Disabling a person ends their sessions and tokens at once, here and on every replica; so does deleting them.
    async fn a_disabled_operator_is_out_at_once(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let member = db.member(&stage.client, "Member", &["alpha"]).await;
        let page = Page::sign_in(&stage.client, "Member", PASSWORD).await.expect("signed in");
        let person = format!("/api/operators/{}", member.id);
        let is_in = async || {
            let by_page = send(page.request(Method::GET, "/api/session")).await.expect("an answer").status == 200;
            let by_token = member.client.get("/api/agents/alpha").await.expect("an answer").status == 200;
            let by_word = try_sign_in(&stage.client, "Member", PASSWORD, None).await.expect("an answer").status == 200;
            (by_page, by_token, by_word)
        };
        assert_eq!(is_in().await, (true, true, true));
        let said = ask(&owner, "PATCH", &person, &json!({"disabled": true})).await;
        assert_eq!((said.status, &said.json()["disabled"]), (200, &json!(true)));
        assert_eq!(is_in().await, (false, false, false));
        assert_eq!(ask(&owner, "PATCH", &person, &json!({"disabled": false})).await.status, 200);
        assert_eq!(is_in().await, (false, true, true), "an ended session stays ended");
        assert_eq!(ask(&owner, "DELETE", &person, &json!({})).await.status, 204);
        assert_eq!(is_in().await, (false, false, false));
        let again = ask(&owner, "POST", "/api/operators", &json!({"name": "member", "role": "member", "password": PASSWORD})).await;
        assert_eq!(again.status, 201, "the name is free: {again:?}");
        let taken = ask(&owner, "POST", "/api/operators", &json!({"name": "MEMBER", "role": "member", "password": PASSWORD})).await;
        assert_eq!((taken.status, taken.code().as_str()), (409, "name_taken"));
    }

    /// Deleting an agent ends its tokens, its open runs and its streams at once.
    async fn a_deleted_agent_is_gone_at_once(db) {
        let stage = Stage::of(&db, plain().timing("keep_alive_ms=200"));
        let owner = db.owner(&stage.client, "Owner").await.client;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let session = Mcp::legacy(&stage.alpha).await.expect("a session");
        let mut stream = session.request(Method::GET).header("accept", "text/event-stream").send().await.expect("a stream");
        assert_eq!(stream.status().as_u16(), 200);
        assert_eq!(ask(&owner, "DELETE", "/api/agents/alpha", &json!({})).await.status, 204);
        for client in [&stage.alpha, &run.client] {
            assert_eq!(client.get("/v1/run/tools").await.expect("an answer").status, 401);
        }
        assert_eq!(db.number("SELECT count(*) FROM runs WHERE state = 'open'").await, 0);
        let ended = async { while matches!(stream.chunk().await, Ok(Some(_))) {} };
        tokio::time::timeout(Duration::from_secs(4), ended).await.expect("the stream ends with its agent");
        assert_eq!(owner.get("/api/agents/alpha").await.expect("an answer").status, 404);
        assert_eq!(ask(&owner, "POST", "/api/agents", &json!({"slug": "alpha"})).await.status, 201, "the slug is free");
        assert_eq!(stage.beta.post("/v1/runs", &json!({})).await.expect("an answer").status, 200, "others go on");
    }

    /// S-08: another's id and nobody's are answered alike; what is no id is 400 whatever exists.
    async fn bar_s08_others_agents_tokens_and_operators_are_absent(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let token = async |path: &str| {
            let reply = ask(&owner, "POST", path, &json!({"name": "x"})).await;
            reply.json()["id"].as_str().expect("an id").to_owned()
        };
        let (owners, betas) = (token("/api/tokens").await, token("/api/agents/beta/tokens").await);
        let name = json!({"name": "x"});
        for (method, rest, body) in [
            ("GET", "", &json!({})), ("PATCH", "", &name), ("GET", "/access", &json!({})), ("GET", "/tokens", &json!({})),
            ("POST", "/tokens", &name), ("DELETE", &format!("/tokens/{betas}"), &json!({})), ("DELETE", "/tokens/x", &json!({})),
        ] {
            let absent = ask(&member, method, &format!("/api/agents/nobody{rest}"), body).await;
            assert_eq!(absent.status, 404, "{method} {rest}");
            for slug in ["beta", "BETA", "alpha%00", "-", "..%2falpha", "%ff", ABSENT, "a%20b"] {
                let reply = ask(&member, method, &format!("/api/agents/{slug}{rest}"), body).await;
                assert_eq!(seen(&reply), seen(&absent), "{method} {slug}{rest}");
            }
        }
        for (client, path, others) in [
            (&member, "/api/agents/alpha/tokens", vec![betas.as_str(), owners.as_str()]),
            (&member, "/api/tokens", vec![owners.as_str(), betas.as_str()]),
            (&owner, "/api/operators", vec![owners.as_str()]),
        ] {
            let absent = ask(client, "DELETE", &format!("{path}/{ABSENT}"), &json!({})).await;
            assert_eq!(absent.status, 404, "{path}: {absent:?}");
            for other in others {
                assert_eq!(seen(&ask(client, "DELETE", &format!("{path}/{other}"), &json!({})).await), seen(&absent), "{path}/{other}");
            }
            for id in ["x", "0", "%00", "..%2f..", "*", &ABSENT.to_uppercase(), "{}", "%F0%9F%98%80"] {
                let reply = ask(client, "DELETE", &format!("{path}/{id}"), &json!({})).await;
                assert_eq!((reply.status, reply.code().as_str()), (400, "malformed_id"), "{path}/{id}: {reply:?}");
            }
        }
        let access = async |id: &str| ask(&owner, "PUT", "/api/agents/alpha/access", &json!({"operators": [id]})).await;
        assert_eq!((access("x").await.status, access(ABSENT).await.status, access(&owners).await.status), (400, 422, 422));
        assert_eq!(db.number("SELECT count(*) FROM tokens WHERE revoked_at IS NOT NULL").await, 0);
        assert_eq!(db.number("SELECT count(*) FROM agent_access").await, 1);
    }

    /// S-11: cookies and operator tokens are random, shown once, stored as hashes; they open `/api` and nothing else.
    async fn bar_s11_sessions_and_operator_tokens_are_random_and_hashed(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let mut texts = BTreeSet::new();
        for number in 0..20 {
            let minted = ask(&owner, "POST", "/api/tokens", &json!({"name": format!("token {number}")})).await.json();
            texts.insert(minted["token"].as_str().expect("a token")[4..].to_owned());
        }
        for _ in 0..4 {
            let page = Page::sign_in(&stage.client, "Owner", PASSWORD).await.expect("signed in");
            texts.insert(page.cookie.split_once('=').expect("a value").1.to_owned());
            texts.insert(page.csrf);
        }
        assert_eq!(texts.len(), 28, "none comes twice");
        let held: String = contents(&db).await.values().flatten().map(String::as_str).collect::<Vec<_>>().join("\n").to_lowercase();
        for text in &texts {
            assert!(text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()), "256 bits");
            assert!(!held.contains(text), "one of them is in the database");
        }
        assert!(!held.contains(PASSWORD), "the password is in the database");
        let listed = owner.get("/api/tokens").await.expect("an answer").json();
        assert_eq!(listed["items"].as_array().expect("items").len(), 21);
        for path in ["/v1/run/tools", "/mcp"] {
            let reply = owner.get(path).await.expect("an answer");
            assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{path}: {reply:?}");
        }
        let id = listed["items"][0]["id"].as_str().expect("an id").to_owned();
        assert_eq!(ask(&owner, "DELETE", &format!("/api/tokens/{id}"), &json!({})).await.status, 204);
        let by_token = ask(&owner, "DELETE", "/api/session", &json!({})).await;
        assert_eq!(by_token.status, 403, "a token isn't signed in: {by_token:?}");
    }
}
