//! Tokens and agents that go, over the whole server: what they opened goes with them, calls and streams included, on every replica.

use std::time::{Duration, Instant};

use formation_testkit::{
    grants::of_agent,
    http::{Client, Run},
    mcp::{Mcp, message},
    on_both_databases,
    processes::comes_true,
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    notices::Listening,
    revocation::{replica, through},
    search::{Searching, observed, query},
    stage::{Stage, at, browsing, contents, site_with},
    within,
};

/// W20: the poll is a second; a call is cut and a stream has ended by then.
const CUT: Duration = Duration::from_millis(1_200);

/// Waits until the fake holds `count` searches of this word.
async fn held(searching: &Searching, word: &str, count: usize) {
    let until = Instant::now() + within(60);
    while searching.brave.count(word) < count {
        assert!(Instant::now() < until, "{} of them are in flight", searching.brave.count(word));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn over_mcp(mcp: Mcp, text: String) -> Value {
    let parameters = json!({"name": "web_search", "arguments": {"query": text}});
    let reply = mcp.post("tools/call", &parameters).await.expect("an answer");
    let message = message(&reply).expect("a message");
    let text = message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a result: {message}"));
    serde_json::from_str(text).expect("JSON")
}

async fn over_http(run: Run, text: String) -> Value {
    run.call(None, "web_search", &query(&text)).await.expect("an answer").json()
}

/// A token of `alpha` that the owner made: its id, and a client with it.
async fn minted(searching: &Searching) -> (String, Client) {
    let reply = searching.owner.client.post("/api/agents/alpha/tokens", &json!({"name": "one"})).await.expect("an answer").json();
    let id = reply["id"].as_str().expect("an id").to_owned();
    (id, searching.stage.client.with_token(reply["token"].as_str().expect("a token")))
}

async fn delete(searching: &Searching, path: &str) {
    let reply = searching.owner.client.remove(path, &json!({})).await.expect("an answer");
    assert_eq!(reply.status, 204, "{reply:?}");
}

on_both_databases! {
    /// S-05, S-11: an agent's token is revoked while its runs and sessions work: calls in flight are cut, streams end within the poll,
    /// run tokens get `run_over`, sessions 401 and for others 404; other tokens of the agent notice nothing.
    async fn bar_s11_a_revoked_token_takes_back_what_it_opened(db) {
        let searching = Searching::start(&db).await;
        let second = replica(&searching);
        let (id, client) = minted(&searching).await;
        let there = second.as_ref().map_or_else(|| client.clone(), |server| server.client.with_token(client.token().expect("a token")));
        let run = client.open_run(&json!({})).await.expect("a run");
        let kept = searching.run().await;
        let legacy = Mcp::legacy(&client).await.expect("a session");
        let (named, current) = (Mcp::modern(&there, Some("mine")), Mcp::modern(&client, None));
        let mut streams = vec![
            Listening::legacy(&legacy).await, Listening::legacy(&legacy.through(&there)).await,
            Listening::modern(&current).await, Listening::modern(&named).await,
        ];

        searching.brave.hold("held");
        let calls: Vec<_> = [
            tokio::spawn(over_http(run.clone(), "held by the run".into())),
            tokio::spawn(over_http(through(&run, second.as_ref(), 1), "held by the run elsewhere".into())),
            tokio::spawn(over_mcp(legacy.clone(), "held by the session".into())),
            tokio::spawn(over_mcp(named.clone(), "held by the named run".into())),
            tokio::spawn(over_mcp(current.clone(), "held by the token".into())),
        ].into();
        let others = tokio::spawn(over_http(kept.clone(), "held by another token".into()));
        held(&searching, "held", 6).await;
        delete(&searching, &format!("/api/agents/alpha/tokens/{id}")).await;
        let revoked = Instant::now();
        for call in calls {
            let seen = call.await.expect("an answer");
            assert!(revoked.elapsed() <= CUT, "{:?}", revoked.elapsed());
            assert_eq!((&seen["execution"], &seen["outcome"]), (&json!("failed"), &json!("interrupted")), "{seen}");
            assert!(seen.to_string().contains("cancelled") && !seen.to_string().contains("results"), "{seen}");
        }
        for stream in &mut streams {
            assert!(stream.ends(CUT).await, "a stream goes on");
        }
        assert!(revoked.elapsed() <= 2 * CUT, "{:?}", revoked.elapsed());
        assert!(!others.is_finished(), "another token's call goes on");

        for client in [&client, &there] {
            assert_eq!(client.post("/v1/runs", &json!({})).await.expect("an answer").status, 401);
        }
        for mcp in [&legacy, &legacy.through(&there), &named, &current] {
            assert_eq!(mcp.post("tools/list", &json!({})).await.expect("an answer").status, 401);
        }
        let elsewhere = legacy.through(&searching.stage.alpha).post("tools/list", &json!({})).await.expect("an answer");
        assert_eq!(elsewhere.status, 404, "{elsewhere:?}");
        for run in [run.clone(), through(&run, second.as_ref(), 1)] {
            let seen = observed(&run, None, &query("after")).await;
            assert_eq!(seen["refusal"]["reason"], "run_over", "{seen}");
        }
        searching.brave.release();
        let seen = others.await.expect("an answer");
        assert_eq!(seen["outcome"], "ok", "{seen}");
        assert_eq!((searching.brave.count("held"), searching.brave.count("after")), (6, 0), "nothing is sent again");
        let of_token = format!("SELECT count(*) FROM runs WHERE opened_by = '{id}' AND state = 'over' AND end_reason = 'cancelled'");
        assert_eq!((db.number(&of_token).await, db.number("SELECT count(*) FROM runs WHERE state = 'open'").await), (4, 1));
        let trail = db.texts("SELECT detail FROM audit WHERE action = 'agent_token.revoke'").await;
        assert_eq!(trail, [json!({"runs_ended": 4}).to_string()]);
    }

    /// The same from the host's command line, which is another process: the poll hears of it. The run's browser is closed.
    async fn a_token_revoked_by_the_host_closes_its_browsers_chromium(db) {
        let site = site_with("<h1>Site</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let minted = stage.setup.json(&stage.place, &["agent", "token", "alpha"]).expect("a token");
        let client = stage.client.with_token(minted["token"].as_str().expect("a token"));
        let run = client.open_run(&json!({})).await.expect("a run");
        run.does("browser_navigate", &at("/")).await.expect("the page opens");
        assert_eq!(stage.place.browsers().len(), 1);
        let said = stage.setup.run(&stage.place, &["agent", "revoke", "alpha", minted["id"].as_str().expect("an id")]).expect("revoked");
        assert!(said.contains("its open run is over") || said.contains("\"runs_ended\":1"), "{said}");
        assert!(comes_true(within(15), || stage.place.browsers().is_empty()).await, "the browser is closed");
        let call = run.call(None, "browser_read", &json!({})).await.expect("an answer").json();
        assert_eq!(call["observation"]["refusal"]["reason"], "run_over", "{call}");
    }

    /// W20, R-21: an agent that is deleted takes its accounts and their keys along; its calls are cut, and who has its slug next has
    /// none of it.
    async fn a_deleted_agent_leaves_nothing_usable(db) {
        let searching = Searching::start(&db).await;
        let (owner, own) = (&searching.owner.client, of_agent("alpha"));
        owner.connect(&own, "brave", "BSA-formation-the-agents-own").await.expect("an account of its own");
        owner.set(&own, "search", json!({"mode": "own", "provider": "brave", "config": {}})).await.expect("its own");
        assert_eq!(db.number("SELECT count(*) FROM secrets").await, 2);
        let run = searching.run().await;
        let session = Mcp::legacy(&searching.stage.alpha).await.expect("a session");
        let mut stream = Listening::legacy(&session).await;
        searching.brave.hold("held");
        let calls = [
            tokio::spawn(over_http(run.clone(), "held by the run".into())),
            tokio::spawn(over_mcp(session.clone(), "held by the session".into())),
        ];
        held(&searching, "held", 2).await;
        delete(&searching, "/api/agents/alpha").await;
        let deleted = Instant::now();
        for call in calls {
            let seen = call.await.expect("an answer");
            assert!(deleted.elapsed() <= CUT, "{:?}", deleted.elapsed());
            assert!(seen.to_string().contains("interrupted") && !seen.to_string().contains("results"), "{seen}");
        }
        assert!(stream.ends(CUT).await, "its stream ends");
        searching.brave.release();
        for client in [&searching.stage.alpha, &run.client] {
            assert_eq!(client.get("/v1/run/tools").await.expect("an answer").status, 401);
        }
        assert_eq!(db.number("SELECT count(*) FROM vendor_accounts WHERE scope <> 'install'").await, 0);
        assert_eq!(db.number("SELECT count(*) FROM secrets WHERE owner <> 'install'").await, 0);
        assert_eq!(db.number("SELECT count(*) FROM secrets").await, 1, "the install's stays");
        assert_eq!(db.number("SELECT count(*) FROM agent_access").await, 0);
        for path in [own.clone(), format!("{own}/usage"), "/api/agents/alpha".into(), "/api/agents/alpha/tokens".into()] {
            assert_eq!(owner.get(&path).await.expect("an answer").status, 404, "{path}");
        }

        let made = owner.post("/api/agents", &json!({"slug": "alpha"})).await.expect("an answer");
        assert_eq!(made.status, 201, "the slug is free: {made:?}");
        let listing = owner.get(&own).await.expect("an answer").json();
        assert_eq!((&listing["vendors"][0]["vendor"], &listing["vendors"][0]["configured"]), (&json!("brave"), &json!(false)), "{listing}");
        let tokens = owner.get("/api/agents/alpha/tokens").await.expect("an answer").json();
        assert_eq!(tokens["items"], json!([]));
        let minted = owner.post("/api/agents/alpha/tokens", &json!({"name": "one"})).await.expect("an answer").json();
        let next = searching.stage.client.with_token(minted["token"].as_str().expect("a token")).open_run(&json!({})).await.expect("a run");
        let seen = observed(&next, None, &query("as the next one")).await;
        assert_eq!(seen["credential_owner"], "install", "{seen}");
        let sends = searching.brave.sends();
        assert_eq!(sends.last().expect("a send").key, formation_testkit::brave::KEY);
        assert_eq!(sends.iter().filter(|sent| sent.query.contains("held")).count(), 2, "nothing is sent again");
    }

    /// S-05 for people: who is disabled or deleted has nothing that works, from the next request on and on every replica; what they
    /// made for an agent is the agent's and stays.
    async fn bar_s11_a_disabled_person_has_nothing_that_works(db) {
        let searching = Searching::start(&db).await;
        let (stage, owner) = (&searching.stage, &searching.owner.client);
        let second = replica(&searching);
        let member = db.member(&stage.client, "Member", &["alpha"]).await;
        let page = formation_testkit::operators::Page::sign_in(&stage.client, "Member", formation_testkit::operators::PASSWORD).await.expect("signed in");
        let minted = member.client.post("/api/tokens", &json!({"name": "laptop"})).await.expect("an answer").json();
        let tokens = [member.client.token().expect("a token").to_owned(), minted["token"].as_str().expect("a token").to_owned()];
        let agents = member.client.post("/api/agents/alpha/tokens", &json!({"name": "harness"})).await.expect("an answer").json();
        let agents = stage.client.with_token(agents["token"].as_str().expect("a token"));
        let servers: Vec<Client> = [stage.client.clone()].into_iter().chain(second.as_ref().map(|server| server.client.clone())).collect();
        let statuses = async || {
            let mut all = Vec::new();
            for server in &servers {
                for token in &tokens {
                    let client = server.with_token(token);
                    for path in ["/api/session", "/api/agents/alpha", &of_agent("alpha"), "/api/tokens", "/api/audit"] {
                        all.push(client.get(path).await.expect("an answer").status);
                    }
                    all.push(client.put(&format!("{}/search", of_agent("alpha")), &json!({"version": 7, "mode": "disabled"})).await.expect("an answer").status);
                }
                let by_cookie = server.request(Method::GET, "/api/agents/alpha").header("cookie", &page.cookie);
                all.push(formation_testkit::http::send(by_cookie).await.expect("an answer").status);
            }
            all
        };
        assert!(statuses().await.iter().all(|status| matches!(status, 200 | 409)), "{:?}", statuses().await);
        let path = format!("/api/operators/{}", member.id);
        let patch = stage.client.with_token(owner.token().expect("a token")).request(Method::PATCH, &path).json(&json!({"disabled": true}));
        assert_eq!(formation_testkit::http::send(patch).await.expect("an answer").status, 200);
        let before = contents(&db).await;
        assert!(statuses().await.iter().all(|status| *status == 401), "{:?}", statuses().await);
        assert_eq!(contents(&db).await, before, "who is nobody leaves nothing, not even a row in the trail");
        agents.open_run(&json!({})).await.expect("the agent's token is the agent's");
        delete(&searching, &path).await;
        assert!(statuses().await.iter().all(|status| *status == 401));
        assert_eq!(db.number(&format!("SELECT count(*) FROM tokens WHERE operator_id = '{}'", member.id)).await, 0);
        assert_eq!(db.number("SELECT count(*) FROM operator_sessions").await, 0);
        agents.open_run(&json!({})).await.expect("the agent's token is the agent's");
    }
}
