//! Runs, traces and conversations as operators see them, and what they may do about them (contract.md 2).

use formation_testkit::{
    databases::TestDb,
    http::{Client, Reply, Run, reference},
    mcp::Mcp,
    on_both_databases,
    processes::comes_true,
    site::Hold,
};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, agent_id, assert_untouched, at, browsing, contents, plain, set_browser, site_with},
    within,
};

/// An id by its form that nobody has.
const ABSENT: &str = "019ad012-3456-7abc-8def-0123456789ab";

async fn get(client: &Client, path: &str) -> Reply {
    client.get(path).await.expect("an answer")
}

/// The items of a list that must be answered.
async fn items(client: &Client, path: &str) -> Vec<Value> {
    let reply = get(client, path).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()["items"].as_array().expect("items").clone()
}

async fn ids(client: &Client, path: &str) -> Vec<String> {
    items(client, path).await.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

/// A call on record that costs no browser: refused. Its id.
pub(crate) async fn refused(run: &Run) -> String {
    let call = run.call(None, "browser_navigate", &at("/")).await.expect("an answer").json();
    assert_eq!(call["execution"], "refused", "{call}");
    call["id"].as_str().expect("an id").to_owned()
}

/// Makes a refused navigation one that nobody can be sure of, as a lost answer would have.
pub(crate) async fn doubted(db: &TestDb, call: &str) {
    db.meddle(&format!(
        "UPDATE tool_calls SET execution = 'succeeded', outcome = 'uncertain', dispatched_at = created_at, session_id = '{ABSENT}' \
         WHERE id = '{call}'"
    ))
    .await;
}

pub(crate) fn reconcile(run: &Run, call: &str) -> String {
    format!("/api/runs/{}/tool-calls/{call}/reconcile", run.id)
}

pub(crate) fn finding(word: &str) -> Value {
    json!({"finding": word, "note": "the order list\nis empty"})
}

/// Action, outcome and actor of the newest line of the trail.
async fn newest_line(db: &TestDb) -> String {
    let sql = "SELECT action || ' ' || outcome || ' ' || actor_kind || ' ' || subject FROM audit ORDER BY id DESC LIMIT 1";
    db.texts(sql).await.remove(0)
}

on_both_databases! {
    /// Each by what they manage: an owner everything, a member their agents; what isn't theirs is like what isn't there (S-08).
    async fn bar_s08_runs_are_seen_by_who_manages_their_agent(db) {
        let stage = Stage::of(&db, plain());
        let owner = db.owner(&stage.client, "Owner").await.client;
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let first = stage.alpha.open_run(&json!({"conversation_id": "c-1", "max_tool_calls": 7})).await.expect("a run");
        let second = stage.alpha.open_run(&json!({"conversation_id": "c-1"})).await.expect("a run");
        let foreign = stage.beta.open_run(&json!({})).await.expect("a run");
        let call = refused(&first).await;
        let foreign_call = refused(&foreign).await;
        doubted(&db, &foreign_call).await;
        second.finish().await.expect("it ends");
        Mcp::modern(&stage.alpha, Some("word")).tools().await.expect("tools");
        let implicit = ids(&owner, "/api/runs").await.remove(0);

        let all = [&implicit, &foreign.id, &second.id, &first.id];
        let of_alpha = [&implicit, &second.id, &first.id];
        let alpha = agent_id(&db, "alpha").await;
        assert_eq!(ids(&owner, "/api/runs").await.iter().collect::<Vec<_>>(), all);
        assert_eq!(ids(&member, "/api/runs").await.iter().collect::<Vec<_>>(), of_alpha);
        for agent in ["alpha", &alpha] {
            assert_eq!(ids(&owner, &format!("/api/runs?agent={agent}")).await.iter().collect::<Vec<_>>(), of_alpha);
        }
        assert_eq!(ids(&owner, "/api/runs?state=over").await, [second.id.as_str()]);
        assert_eq!(ids(&member, "/api/runs?state=running&agent=alpha").await, [&implicit, &first.id].map(String::as_str));
        assert_eq!(ids(&owner, "/api/runs?settle=true").await, [foreign.id.as_str()]);
        assert_eq!(ids(&member, "/api/runs?settle=true").await, Vec::<String>::new());
        let after = format!("/api/runs?after={}", second.id);
        assert_eq!(ids(&owner, &after).await, [first.id.as_str()]);
        let beta = agent_id(&db, "beta").await;
        assert_eq!(ids(&member, &format!("/api/runs?agent={beta}")).await, ids(&member, &format!("/api/runs?agent={ABSENT}")).await);

        let run = get(&member, &format!("/api/runs/{}", first.id)).await.json();
        assert_eq!((&run["agent"], &run["conversation"]["name"]), (&json!({"id": alpha, "slug": "alpha"}), &json!("c-1")), "{run}");
        assert_eq!((&run["origin"], &run["state"], &run["ended_by"], &run["ended_at"]), (&json!("opened"), &json!("running"), &Value::Null, &Value::Null));
        assert_eq!(run["calls"], json!({"recorded": 1, "counted": 1, "limit": 7, "refused": 1, "uncertain": 0}));
        let over = get(&member, &format!("/api/runs/{}", second.id)).await.json();
        assert_eq!((&over["state"], &over["ended_by"]), (&json!("over"), &json!("finished")), "{over}");
        assert_eq!(get(&member, &format!("/api/runs/{implicit}")).await.json()["origin"], "implicit");

        let before = contents(&db).await;
        for (own, other) in [(&first.id, &foreign.id), (&call, &foreign_call)] {
            for path in ["/api/runs/ID", "/api/runs/ID/trace"] {
                let of = async |id: &str| get(&member, &path.replace("ID", id)).await;
                let absent = of(ABSENT).await;
                assert_eq!((absent.status, absent.code().as_str()), (404, "not_found"), "{path}");
                let foreign = of(other).await;
                assert_eq!((foreign.status, &foreign.body), (404, &absent.body), "{path}");
                assert_eq!(of(own).await.status, if own == &first.id { 200 } else { 404 });
                for malformed in ["x", "0", "..%2f..", "%00", "{}"] {
                    assert_eq!(of(malformed).await.code(), "malformed_id", "{path} {malformed}");
                }
            }
        }
        for (path, status) in [
            ("/api/runs?agent=beta", 404), ("/api/runs?agent=nobody", 404), ("/api/runs?state=open", 422), ("/api/runs?settle=maybe", 422),
            ("/api/runs?after=x", 400), ("/api/runs?limit=5", 422), ("/api/agents/beta/conversations", 404), ("/api/agents/alpha/conversations?after=x", 400),
        ] {
            assert_eq!(get(&member, path).await.status, status, "{path}");
        }
        let path = format!("/api/runs/{}/trace?after=-1", first.id);
        assert_eq!(get(&member, &path).await.code(), "invalid_value");
        assert_untouched(&db, &before).await;

        let talks = items(&member, "/api/agents/alpha/conversations").await;
        assert_eq!(talks.iter().map(|talk| (&talk["name"], &talk["runs"])).collect::<Vec<_>>(), [(&Value::Null, &json!(1)), (&json!("c-1"), &json!(2))]);
        assert!(talks[1]["last_run_at"].as_str() > talks[1]["created_at"].as_str() || talks[1]["last_run_at"] == over["created_at"], "{talks:?}");
    }

    /// A trace is the ledger in order, 100 calls a page, whatever became of them.
    async fn a_long_trace_comes_in_pages_in_order(db) {
        let stage = Stage::of(&db, plain());
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let mut made = Vec::new();
        for _ in 0..103 {
            made.push(refused(&run).await);
        }
        let path = format!("/api/runs/{}/trace", run.id);
        let first = get(&member, &path).await.json();
        assert_eq!((first["items"].as_array().map(Vec::len), &first["next"]), (Some(100), &json!("100")));
        let second = get(&member, &format!("{path}?after=100")).await.json();
        assert_eq!(second["next"], Value::Null);
        let both = [&first, &second].map(|page| page["items"].as_array().expect("items").clone()).concat();
        assert_eq!(both.iter().map(|call| call["id"].as_str().expect("an id")).collect::<Vec<_>>(), made);
        assert_eq!(both.iter().map(|call| call["number"].as_u64().expect("a number")).collect::<Vec<_>>(), (1..=103).collect::<Vec<_>>());
    }

    /// What was asked, what was seen, when, to the millisecond; pictures with their expiry (D6, B14).
    async fn a_trace_tells_what_was_asked_and_seen_chromium(db) {
        let site = site_with("<h1>Seen</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let owner = db.owner(&stage.client, "Owner").await.client;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        run.call(Some("k-1"), "browser_navigate", &at("/")).await.expect("an answer");
        let shot = run.call(None, "browser_screenshot", &json!({})).await.expect("an answer").json();
        run.call(None, "browser_act", &json!({"action": "dance"})).await.expect("a refusal");
        let [opened, pictured, refused] = items(&owner, &format!("/api/runs/{}/trace", run.id)).await.try_into().expect("three calls");
        assert_eq!((&opened["key"], &opened["tool"], &opened["class"]), (&json!("k-1"), &json!("browser_navigate"), &json!("external_effect")));
        assert_eq!((&opened["arguments"], &opened["outcome"]), (&at("/"), &json!("ok")));
        assert!(opened["observation"]["text"].as_str().is_some_and(|text| text.contains("Seen")), "{opened}");
        let moments: Vec<&str> = ["created_at", "admitted_at", "dispatched_at", "settled_at"].iter().map(|name| opened[name].as_str().expect("a moment")).collect();
        assert!(moments.is_sorted() && moments.iter().all(|at| at.len() == "2026-01-01T00:00:00.000Z".len() && at.ends_with('Z')), "{moments:?}");
        assert_eq!(opened["artifacts"], json!([]));
        assert_eq!(pictured["artifacts"][0]["id"], shot["observation"]["artifact"]);
        assert!(pictured["artifacts"][0]["expires_at"].as_str() > pictured["settled_at"].as_str(), "{pictured}");
        assert_eq!((&pictured["dispatched_at"], &pictured["finding"]), (&Value::Null, &Value::Null));
        assert_eq!((&refused["execution"], &refused["outcome"], &refused["admitted_at"]), (&json!("refused"), &Value::Null, &Value::Null));
        assert_eq!(refused["observation"]["refusal"]["reason"], "invalid_arguments");
        let run = get(&owner, &format!("/api/runs/{}", run.id)).await.json();
        assert_eq!(run["browser_session"], "open", "{run}");
    }

    /// T8, B12: an effect in doubt is found in the list, its refused followers name it, a person settles it once, and effects go on.
    async fn t8_an_operator_settles_an_uncertain_click_chromium(db) {
        let site = site_with("<button onclick=\"ask('clicked')\">Pay</button>").await;
        let stage = Stage::of(&db, browsing(&site).timing("operation_ms=5000"));
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let page = run.does("browser_navigate", &at("/")).await.expect("the page opens");
        let click = json!({"action": "click", "ref": reference(&page, "Pay").expect("a control")});
        site.hold(Hold::Answers("clicked"));
        let uncertain = run.call(None, "browser_act", &click).await.expect("an answer").json();
        site.release();
        assert_eq!(uncertain["outcome"], "uncertain", "{uncertain}");
        let blocked = run.call(None, "browser_navigate", &at("/")).await.expect("an answer").json();
        assert_eq!(blocked["observation"]["refusal"]["reason"], "needs_reconciliation", "{blocked}");
        assert_eq!(ids(&member, "/api/runs?settle=true").await, [run.id.as_str()]);

        let path = reconcile(&run, uncertain["id"].as_str().expect("an id"));
        let settled = member.post(&path, &finding("had_no_effect")).await.expect("an answer");
        assert_eq!(settled.status, 200, "{settled:?}");
        let settled = settled.json();
        assert_eq!((&settled["outcome"], &settled["finding"], &settled["found_by"]), (&json!("uncertain"), &json!("had_no_effect"), &json!("Member")), "the outcome stays: {settled}");
        let again = member.post(&path, &finding("took_effect")).await.expect("an answer");
        assert_eq!((again.status, again.code().as_str()), (409, "already_settled"), "once: {again:?}");
        let trace = items(&member, &format!("/api/runs/{}/trace", run.id)).await;
        assert_eq!(trace.iter().map(|call| &call["caused_by"]).collect::<Vec<_>>(), [&Value::Null, &Value::Null, &json!(2)], "the refusal names the click");
        assert_eq!(trace[1], settled);
        assert_eq!(ids(&member, "/api/runs?settle=true").await, Vec::<String>::new());
        run.does("browser_navigate", &at("/")).await.expect("effects go on");
    }

    /// A finding needs an uncertain call of that run and a note; it leaves one line in the trail, over HTTP and on the command line.
    async fn b12_a_finding_is_said_once_and_of_uncertain_calls_alone(db) {
        let stage = Stage::of(&db, plain());
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let sibling = stage.alpha.open_run(&json!({})).await.expect("a run");
        let foreign = stage.beta.open_run(&json!({})).await.expect("a run");
        let (known, doubtful, second, theirs) = (refused(&run).await, refused(&run).await, refused(&run).await, refused(&foreign).await);
        for call in [&doubtful, &second, &theirs] {
            doubted(&db, call).await;
        }
        let calls = async || db.texts("SELECT id || coalesce(finding, '') || coalesce(note, '') FROM tool_calls ORDER BY id").await;
        let before = calls().await;
        let took = finding("took_effect");
        for (path, body, status, code) in [
            (reconcile(&run, &known), &took, 409, "already_settled"),
            (reconcile(&sibling, &doubtful), &took, 404, "not_found"),
            (reconcile(&run, ABSENT), &took, 404, "not_found"),
            (reconcile(&foreign, &theirs), &took, 404, "not_found"),
            (reconcile(&run, &theirs), &took, 404, "not_found"),
            (reconcile(&run, "x"), &took, 400, "malformed_id"),
            (reconcile(&run, &doubtful), &json!({"finding": "perhaps", "note": "x"}), 422, "invalid_value"),
            (reconcile(&run, &doubtful), &json!({"finding": "took_effect", "note": ""}), 422, "invalid_value"),
            (reconcile(&run, &doubtful), &json!({"finding": "took_effect", "note": "x".repeat(2001)}), 422, "invalid_value"),
            (reconcile(&run, &doubtful), &json!({"finding": "took_effect", "note": "a\u{1b}[31mb"}), 422, "invalid_value"),
            (reconcile(&run, &doubtful), &json!({"finding": "took_effect"}), 422, "invalid_value"),
            (reconcile(&run, &doubtful), &json!({"finding": "took_effect", "note": "x", "outcome": "ok"}), 422, "unknown_field"),
        ] {
            let reply = member.post(&path, body).await.expect("an answer");
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{path} {body}: {reply:?}");
        }
        assert_eq!(calls().await, before, "nothing was stored");

        let done = member.post(&reconcile(&run, &doubtful), &took).await.expect("an answer");
        assert_eq!((done.status, &done.json()["note"]), (200, &took["note"]), "{done:?}");
        assert_eq!(newest_line(&db).await, format!("call.reconcile done operator_token {doubtful}"));
        stage.setup.run(&stage.place, &["runs", &run.id, "--settle", &second, "had_no_effect", "--note", "looked"]).expect("settled");
        assert_eq!(newest_line(&db).await, format!("call.reconcile done host {second}"));
        let lines = async || db.number("SELECT count(*) FROM audit").await;
        let count = lines().await;
        stage.setup.run(&stage.place, &["runs", &run.id, "--settle", &second, "had_no_effect", "--note", "looked"]).expect_err("once");
        assert_eq!(lines().await, count);
    }

    /// One read: what each agent can do, on whose account, and what waits for a person; a member sees their agents (L8, W9).
    async fn an_overview_tells_what_each_agent_has_chromium(db) {
        let site = site_with("<h1>Here</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let owner = db.owner(&stage.client, "Owner").await.client;
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let call = run.call(None, "browser_navigate", &json!({"url": "nowhere"})).await.expect("a refusal").json();
        doubted(&db, call["id"].as_str().expect("an id")).await;
        let alpha = agent_id(&db, "alpha").await;
        let beta = agent_id(&db, "beta").await;
        set_browser(&db, Some(&beta), "disabled").await;
        let all = items(&owner, "/api/overview").await;
        assert_eq!(all.iter().map(|agent| (&agent["slug"], &agent["uncertain_calls"])).collect::<Vec<_>>(), [(&json!("beta"), &json!(0)), (&json!("alpha"), &json!(1))]);
        let of = |agent: &Value, capability: &str| {
            agent["capabilities"].as_array().expect("capabilities").iter().find(|one| one["capability"] == capability).expect("the capability").clone()
        };
        assert_eq!(of(&all[1], "browser"), json!({"capability": "browser", "available": true, "unavailable_reason": "", "effective_provider": "local",
            "credential_source": "install", "account_source": "environment", "requests_per_run": null, "meter": null}));
        assert_eq!(of(&all[1], "search"), json!({"capability": "search", "available": false, "unavailable_reason": "no_account", "effective_provider": "",
            "credential_source": "", "account_source": "", "requests_per_run": null, "meter": null}));
        assert_eq!((&of(&all[0], "browser")["available"], &of(&all[0], "browser")["unavailable_reason"]), (&json!(false), &json!("disabled")));
        assert_eq!(items(&member, "/api/overview").await, all[1..], "a member's agents");
        assert_eq!(items(&owner, &format!("/api/overview?after={beta}")).await, all[1..]);
        assert_eq!(items(&member, &format!("/api/overview?after={alpha}")).await, Vec::<Value>::new());
        assert_eq!(get(&owner, "/api/overview?after=x").await.code(), "malformed_id");
    }

    /// A run that an operator ends is over at once: its call in flight is cut, its browser closed, and the next call says so.
    async fn an_operator_ends_a_run_and_its_call_in_flight_chromium(db) {
        let site = site_with("<a href='/slow'>Go</a>").await;
        let stage = Stage::of(&db, browsing(&site));
        let member = db.member(&stage.client, "Member", &["alpha"]).await.client;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let page = run.does("browser_navigate", &at("/")).await.expect("the page opens");
        let click = json!({"action": "click", "ref": reference(&page, "Go").expect("a link")});
        site.hold(Hold::Answers("/slow"));
        let caller = run.clone();
        let asked = tokio::spawn(async move { caller.call(None, "browser_act", &click).await });
        assert!(site.sees("/slow", within(20)).await, "it is on its way");
        let path = format!("/api/runs/{}/cancel", run.id);
        let ended = member.post(&path, &json!({})).await.expect("an answer");
        assert_eq!((ended.status, &ended.json()["state"], &ended.json()["ended_by"]), (200, &json!("over"), &json!("cancelled")), "{ended:?}");
        assert_eq!(newest_line(&db).await, format!("run.cancel done operator_token {}", run.id));
        let cut = tokio::time::timeout(within(10), asked).await.expect("it is cut").expect("no panic").expect("an answer").json();
        site.release();
        assert_eq!(cut["outcome"], "input_dispatched", "the click went out, and nobody waits for what it led to: {cut}");
        let next = run.call(None, "browser_read", &json!({})).await.expect("an answer").json();
        assert_eq!(next["observation"]["refusal"]["reason"], "run_over", "{next}");
        assert!(comes_true(within(20), || stage.place.browser_processes().is_empty()).await, "its browser is closed");
        let again = member.post(&path, &json!({})).await.expect("an answer");
        assert_eq!(again.json()["ended_at"], ended.json()["ended_at"], "it stays as it ended: {again:?}");
        let finished = stage.alpha.open_run(&json!({})).await.expect("a run");
        finished.finish().await.expect("it ends");
        let late = member.post(&format!("/api/runs/{}/cancel", finished.id), &json!({})).await.expect("an answer").json();
        assert_eq!(late["ended_by"], "finished");
    }
}
