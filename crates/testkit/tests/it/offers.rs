//! Grants and offers over the whole server: what changes after an offer stops the call, and the next one runs (W17, W19, T1).

use std::time::Duration;

use formation_testkit::{http::Run, mcp::Mcp, on_both_databases, server::Setup, site::Hold};
use serde_json::{Value, json};

use crate::stage::{HOST, Stage, agent_id, at, browsing, plain, set_browser, site_with};

const LIMIT: Duration = Duration::from_secs(30);

async fn calls(run: &Run, tool: &str, arguments: &Value) -> Value {
    let reply = run.call(None, tool, arguments).await.expect("an answer");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

fn refusal(call: &Value) -> &Value {
    &call["observation"]["refusal"]["reason"]
}

async fn names(run: &Run) -> Vec<String> {
    let offers = run.client.get("/v1/run/tools").await.expect("offers").json();
    offers.as_array().expect("a list").iter().map(|offer| offer["name"].as_str().expect("a name").to_owned()).collect()
}

on_both_databases! {
    /// T1, W9: no grant, no tool; a call of one says so, and nothing is opened.
    async fn t1_without_a_grant_no_tool_is_listed(db) {
        let stage = Stage::of(&db, plain());
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        assert_eq!(names(&run).await, Vec::<String>::new());
        let session = Mcp::legacy(&stage.alpha).await.expect("a session");
        assert_eq!(session.tools().await.expect("a list"), Vec::<String>::new());
        assert_eq!(Mcp::modern(&stage.alpha, None).tools().await.expect("a list"), Vec::<String>::new());
        for tool in ["browser_navigate", "browser_read", "browser_screenshot"] {
            let arguments = if tool == "browser_navigate" { at("/") } else { json!({}) };
            let call = calls(&run, tool, &arguments).await;
            assert_eq!((&call["execution"], refusal(&call)), (&json!("refused"), &json!("not_offered")), "{call}");
            assert_eq!(session.call(tool, &arguments).await.expect("a refusal")["refusal"]["reason"], "not_offered");
        }
        assert_eq!(db.number("SELECT count(*) FROM browser_sessions").await, 0);
    }

    /// W17, W19: an offer made before a settings write is refused, sends nothing, and is made anew: the next call runs.
    async fn w17_a_stale_offer_is_refused_and_the_next_call_runs_chromium(db) {
        let site = site_with("<h1>Site</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        let offers = run.client.get("/v1/run/tools").await.expect("offers").json();
        let old = offers.as_array().expect("a list").iter().find(|offer| offer["name"] == "browser_navigate").expect("an offer")["offer"].clone();
        set_browser(&db, None, "own").await;

        let named = json!({"tool": "browser_navigate", "arguments": at("/"), "offer": old});
        let call = run.client.post("/v1/run/tool-calls", &named).await.expect("an answer").json();
        assert_eq!((&call["execution"], refusal(&call), &call["outcome"]), (&json!("refused"), &json!("grant_revoked"), &Value::Null), "{call}");
        assert!(call["observation"]["refusal"].get("outcome").is_none(), "nothing had been admitted: {call}");
        assert_eq!(site.log(), Vec::<String>::new(), "nothing reached the page");
        assert_eq!(db.number("SELECT count(*) FROM browser_sessions").await, 0);
        assert_eq!(db.number("SELECT count(*) FROM evidence").await, 0);

        // The old offer stays stale; a call without one has the new terms.
        let call = run.client.post("/v1/run/tool-calls", &named).await.expect("an answer").json();
        assert_eq!(refusal(&call), "grant_revoked", "{call}");
        let call = calls(&run, "browser_navigate", &at("/")).await;
        assert_eq!(call["outcome"], "ok", "{call}");
        assert_eq!(site.count("GET / "), 0);
        assert_eq!(site.log(), ["GET /"]);
    }

    /// W19: the run's newest offer is stale too after a change nobody listed since; an agent's own row counts like the install's.
    async fn w19_a_call_without_an_offer_is_not_moved_to_new_terms_chromium(db) {
        let site = site_with("<h1>Site</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let alpha = agent_id(&db, "alpha").await;
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        assert_eq!(names(&run).await.len(), 4);
        set_browser(&db, Some(&alpha), "inherit").await;
        assert_eq!(refusal(&calls(&run, "browser_navigate", &at("/")).await), "grant_revoked");
        assert_eq!(site.log(), Vec::<String>::new());
        set_browser(&db, Some(&alpha), "disabled").await;
        assert_eq!(refusal(&calls(&run, "browser_navigate", &at("/")).await), "not_offered");
        assert_eq!(names(&run).await, Vec::<String>::new());
        let other = stage.beta.open_run(&json!({})).await.expect("a run");
        assert_eq!(names(&other).await.len(), 4, "one agent's grant is its own");
        set_browser(&db, Some(&alpha), "inherit").await;
        assert_eq!(names(&run).await.len(), 4);
        assert_eq!(calls(&run, "browser_navigate", &at("/")).await["outcome"], "ok");
        assert_eq!(site.log(), ["GET /"]);
    }

    /// W17, W20 (browser): the grant goes while a navigation is under way: its outcome is told and on record, its page is not.
    async fn w20_a_navigation_whose_grant_goes_is_withheld_chromium(db) {
        let site = site_with("<h1>Start</h1>").await.with("/held", formation_testkit::site::Page::html("<h1>Nobody may see this</h1>"));
        let stage = Stage::of(&db, browsing(&site));
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        run.does("browser_navigate", &at("/")).await.expect("the page opens");
        site.hold(Hold::Answers("/held"));
        let caller = run.clone();
        let call = tokio::spawn(async move { calls(&caller, "browser_navigate", &at("/held")).await });
        assert!(site.sees("/held", LIMIT).await);
        set_browser(&db, None, "disabled").await;
        site.release();
        let call = call.await.expect("an answer");
        assert_eq!((&call["execution"], refusal(&call)), (&json!("succeeded"), &json!("grant_revoked")), "{call}");
        assert_eq!(call["observation"]["refusal"]["outcome"], call["outcome"], "{call}");
        assert!(!call.to_string().contains("Nobody may see this") && call["observation"].get("page").is_none(), "{call}");
        let trace = stage.setup.run(&stage.place, &["runs", &run.id]).expect("a trace");
        assert!(!trace.contains("Nobody may see this"), "nor does the ledger hold it");
        // The session is closed with the grant (S-05).
        let gone = formation_testkit::processes::comes_true(LIMIT, || stage.place.browsers().is_empty()).await;
        assert!(gone, "the browser is closed");
        assert_eq!(site.count("/held"), 1);
    }

    /// W17: a start with other switches is another account of the environment.
    async fn w17_other_switches_at_a_restart_make_other_offers_chromium(db) {
        let site = site_with("<h1>Site</h1>").await;
        let stage = Stage::of(&db, browsing(&site));
        let run = stage.alpha.open_run(&json!({})).await.expect("a run");
        assert_eq!(names(&run).await.len(), 4);
        let (place, setup) = stage.end();
        let lives = |setup: &Setup, place| {
            let server = setup.start(place).expect("the next life");
            let run = Run { id: run.id.clone(), client: server.client.with_token(run.client.token().expect("a token")) };
            (server, run)
        };
        let (server, same) = lives(&setup.clone().flag("--local-browser-allow-private"), &place);
        assert_eq!(refusal(&calls(&same, "browser_navigate", &at("/")).await), "grant_revoked");
        assert_eq!(site.log(), Vec::<String>::new());
        assert_eq!(calls(&same, "browser_navigate", &at("/")).await["outcome"], "ok");
        server.terminate(LIMIT).expect("it ends");
        // Without a browser nothing is granted.
        let (_server, same) = lives(&plain().name(&format!("{HOST}:80"), site.address()), &place);
        let call = calls(&same, "browser_navigate", &at("/")).await;
        assert!(refusal(&call) == "not_offered" || refusal(&call) == "run_over", "{call}");
        assert_eq!(site.count("GET /"), 1, "{:?}", site.log());
    }
}
