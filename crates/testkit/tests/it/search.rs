//! `web_search` by Brave, from an agent's door to the provider and back, with what it costs.

use formation_core::limits;
use formation_testkit::{
    brave::{FakeBrave, KEY},
    databases::TestDb,
    grants::{INSTALL, of_agent},
    http::Run,
    mcp::{Mcp, message},
    on_both_databases,
    operators::Person,
    server::Setup,
};
use serde_json::{Value, json};

use crate::stage::{Stage, plain};

/// A server whose install has an account at Brave.
pub(crate) struct Searching {
    pub(crate) stage: Stage,
    pub(crate) brave: FakeBrave,
    pub(crate) owner: Person,
}

impl Searching {
    pub(crate) async fn start(db: &TestDb) -> Self {
        Self::with(db, |setup| setup).await
    }

    pub(crate) async fn with(db: &TestDb, change: impl FnOnce(Setup) -> Setup) -> Self {
        let brave = FakeBrave::start().await.expect("a fake");
        let stage = Stage::of(db, change(plain().with_brave(&brave)));
        let owner = db.owner(&stage.client, "owner").await;
        owner.client.connect(INSTALL, "brave", KEY).await.expect("an account");
        Self { stage, brave, owner }
    }

    /// A run of `alpha`.
    pub(crate) async fn run(&self) -> Run {
        self.stage.alpha.open_run(&json!({"max_tool_calls": 10_000})).await.expect("a run")
    }

    async fn limit(&self, base: &str, mode: &str, limits: Value) {
        let settings = json!({"mode": mode, "provider": "", "config": {}, "limits": limits});
        self.owner.client.set(base, "search", settings).await.expect("limits");
    }
}

pub(crate) fn query(text: &str) -> Value {
    json!({"query": text})
}

/// The observation of one call, whatever it says.
pub(crate) async fn observed(run: &Run, key: Option<&str>, arguments: &Value) -> Value {
    let reply = run.call(key, "web_search", arguments).await.expect("an answer");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["observation"].take()
}

async fn units(db: &TestDb) -> i64 {
    db.number("SELECT count(*) FROM reservations").await
}

on_both_databases! {
    /// S1, S5, T3, O10: ranked results with what they come from, over both doors, and nothing else is asked for.
    async fn s1_results_are_ranked_and_say_where_they_come_from(db) {
        let searching = Searching::start(&db).await;
        let run = searching.run().await;
        let offers = run.client.get("/v1/run/tools").await.expect("offers").json();
        let offer = &offers.as_array().expect("a list")[0];
        assert_eq!(offer["name"], "web_search");
        assert_eq!(offer["annotations"], json!({"read_only": true, "destructive": false, "open_world": true}));
        let seen = run.does("web_search", &json!({"query": "tide tables scenario:dates", "limit": 3})).await.expect("results");
        assert_eq!((&seen["tool"], &seen["capability"], &seen["provider"]), (&json!("web_search"), &json!("search"), &json!("brave")));
        assert_eq!((&seen["credential_owner"], &seen["external"], &seen["is_error"]), (&json!("install"), &json!(true), &json!(false)));
        assert!(seen["evidence"].is_string() && seen["notice"].as_str().is_some_and(|text| text.contains("evidence")), "{seen}");
        let results = seen["results"].as_array().expect("a list");
        assert_eq!(results.len(), 3, "{seen}");
        for (index, result) in results.iter().enumerate() {
            assert_eq!(result["rank"], index + 1);
            assert!(result["url"].as_str().is_some_and(|url| url.starts_with("http")), "{result}");
            assert!(result["title"].is_string() && result["excerpt"].is_string() && result["truncated"].is_boolean(), "{result}");
        }
        assert!(results.iter().any(|result| result["date"].is_string()), "{seen}");
        assert_eq!(searching.brave.sends()[0].count, "3");

        let mcp = Mcp::legacy(&searching.stage.beta).await.expect("a session");
        assert!(mcp.tools().await.expect("tools").contains(&"web_search".to_owned()));
        let over_mcp = mcp.call("web_search", &query("harbour lights")).await.expect("results");
        assert_eq!(over_mcp["results"].as_array().expect("a list").len(), 5, "five without a limit: {over_mcp}");
        let nothing = mcp.call("web_search", &query("scenario:absent")).await.expect("an answer");
        assert_eq!((&nothing["results"], &nothing["is_error"]), (&json!([]), &json!(false)));
        assert_eq!(searching.brave.sends().len(), 3, "one request a call");
        assert!(searching.brave.sends().iter().all(|sent| sent.key == KEY));
    }

    /// S4, S7, L5: what is wrong with the arguments is said before anything is spent, the provider's own limits included.
    async fn s4_s7_arguments_are_checked_before_anything_is_spent(db) {
        let searching = Searching::start(&db).await;
        let run = searching.run().await;
        let long = "a".repeat(601);
        let words = vec!["word"; 76].join(" ");
        for (arguments, says) in [
            (json!({}), "query"),
            (query(""), "query"),
            (query(" \n\t "), "query"),
            (query(&"a".repeat(2_001)), "2000"),
            (query(&long), "600"),
            (query(&words), "75"),
            (json!({"query": "x", "limit": 0}), "limit"),
            (json!({"query": "x", "limit": 11}), "limit"),
            (json!({"query": "x", "limit": "3"}), "schema"),
            (json!({"query": ["x"]}), "schema"),
            (json!({"query": "x", "country": "fi"}), "country"),
            (json!({"query": "x", "freshness": "pd"}), "freshness"),
            (json!({"query": "x", "summary": true}), "summary"),
        ] {
            let seen = observed(&run, None, &arguments).await;
            assert_eq!(seen["refusal"]["reason"], "invalid_arguments", "{arguments}: {seen}");
            assert!(seen["refusal"]["explanation"].as_str().expect("a sentence").contains(says), "{arguments}: {seen}");
        }
        assert_eq!((searching.brave.sends().len(), units(&db).await), (0, 0));
        // At its limits the query goes as it is.
        for text in ["b".repeat(600), vec!["w"; 75].join(" "), "#&+% and\na line".to_owned()] {
            observed(&run, None, &query(&text)).await;
            assert_eq!(searching.brave.sends().last().expect("a send").query, text);
        }
    }

    /// S4, S5: whatever comes back, the observation stays within 32 KiB of one MCP text block, and no result is lost.
    async fn s4_s5_observations_are_bounded(db) {
        let searching = Searching::start(&db).await;
        let mcp = Mcp::modern(&searching.stage.alpha, None);
        for (scenario, least) in [("long", 10), ("hostile", 1), ("many", 10), ("odd-items", 1)] {
            let parameters = json!({"name": "web_search", "arguments": {"query": format!("scenario:{scenario}"), "limit": 10}});
            let reply = mcp.post("tools/call", &parameters).await.expect("an answer");
            let message = message(&reply).expect("a message");
            let block = serde_json::to_string(&message["result"]["content"][0]["text"]).expect("a text");
            assert!(block.len() <= limits::SEARCH_OBSERVATION_BYTES, "{scenario}: {}", block.len());
            let text = message["result"]["content"][0]["text"].as_str().expect("a text");
            let seen: Value = serde_json::from_str(text).expect("JSON");
            let results = seen["results"].as_array().unwrap_or_else(|| panic!("{scenario}: {seen}"));
            assert!((least..=10).contains(&results.len()), "{scenario}: {}", results.len());
            for result in results {
                let url = result["url"].as_str().expect("a URL");
                assert!(url.starts_with("http://") || url.starts_with("https://"), "{url}");
                assert!(!text.contains('\u{202e}') && !text.contains("\\u0000"));
            }
            if scenario == "long" {
                assert_eq!((results.len(), &seen["truncated"]), (10, &json!(true)));
                assert!(results.iter().all(|result| result["truncated"] == true));
            }
        }
    }

    /// S6: no returned address is opened, and nothing but the ledger is written.
    async fn s6_nothing_is_opened_and_no_artifact_is_made(db) {
        let searching = Searching::start(&db).await;
        let run = searching.run().await;
        for round in 0..3 {
            run.does("web_search", &query(&format!("round {round}"))).await.expect("results");
        }
        assert_eq!((searching.brave.sends().len(), units(&db).await), (3, 3));
        assert_eq!(db.number("SELECT count(*) FROM artifacts").await, 0);
        assert_eq!(db.number("SELECT count(*) FROM browser_sessions").await, 0);
    }

    /// T7, L6, L7: a failure has one reason of the closed set, says its unit is used and whether trying again can help; nothing is
    /// tried again and nobody else is asked.
    async fn t7_l7_failures_say_what_happened_and_nothing_is_repeated(db) {
        let searching = Searching::with(&db, |setup| setup.timing("vendor_call_ms=3000")).await;
        let run = searching.run().await;
        for (scenario, stage, reason, status, may_retry) in [
            ("bad-key", "request", "credential_rejected", 422, false),
            ("plan", "request", "permission_denied", 400, false),
            ("quota", "request", "payment_required", 429, false),
            ("fast", "request", "rate_limited", 429, true),
            ("refused", "request", "query_not_accepted", 422, false),
            ("status-503", "request", "provider_unavailable", 503, true),
            ("redirect-307", "reply", "provider_unavailable", 307, true),
            ("html", "reply", "invalid_reply", 200, false),
            ("large", "reply", "invalid_reply", 0, false),
            ("silent", "reply", "timeout", 0, true),
        ] {
            let text = format!("scenario:{scenario}");
            let before = searching.brave.count(&text);
            let seen = observed(&run, None, &query(&text)).await;
            let failure = &seen["failure"];
            assert_eq!((failure["stage"].as_str(), failure["reason"].as_str()), (Some(stage), Some(reason)), "{scenario}: {seen}");
            assert_eq!(failure["http_status"].as_u64().unwrap_or(0), status, "{scenario}: {seen}");
            assert_eq!(failure["retry"]["automatic"], false);
            assert_eq!((&failure["retry"]["may_retry"], &failure["unit_used"]), (&json!(may_retry), &json!(true)), "{scenario}: {seen}");
            assert_eq!((&seen["is_error"], seen.get("results")), (&json!(true), None));
            assert_eq!(searching.brave.count(&text) - before, 1, "{scenario} was sent once");
        }
        assert_eq!(units(&db).await, 10);
        let outcomes = db.texts("SELECT DISTINCT execution || ' ' || outcome FROM tool_calls").await;
        assert_eq!(outcomes, ["succeeded failed"]);
        // The failures were Brave's: none of its words is anywhere.
        let stored = db.texts("SELECT observation FROM tool_calls").await.join("\n");
        for word in ["SUBSCRIPTION_TOKEN_INVALID", "rate_limiter", "<html", "meta", KEY] {
            assert!(!stored.contains(word), "{word}");
        }
    }

    /// L1–L3, L8, L9: the run's allowance, with what it says when it is used; a repeat costs nothing and sends nothing.
    async fn l3_l9_a_run_has_its_allowance(db) {
        let searching = Searching::start(&db).await;
        searching.limit(INSTALL, "auto", json!({"requests_per_minute": 6_000, "requests_per_run": 2})).await;
        let run = searching.run().await;
        let first = observed(&run, Some("one"), &query("first")).await;
        assert_eq!(first["is_error"], false, "{first}");
        assert_eq!(observed(&run, Some("one"), &query("first")).await, first, "a repeat answers what is stored");
        observed(&run, Some("two"), &query("second")).await;
        let third = observed(&run, Some("three"), &query("third")).await;
        assert_eq!(third["refusal"]["reason"], "run_limit", "{third}");
        assert!(third["refusal"]["explanation"].as_str().is_some_and(|text| text.contains("2 search requests")), "{third}");
        assert_eq!(third["refusal"].get("retry_after_seconds"), None);
        assert_eq!((searching.brave.sends().len(), units(&db).await), (2, 2));
        let other = searching.run().await;
        assert_eq!(observed(&other, None, &query("fourth")).await["is_error"], false, "another run has its own");

        // An inheriting agent can lower it, for its own runs alone.
        searching.limit(&of_agent("beta"), "inherit", json!({"requests_per_run": 1})).await;
        let beta = searching.stage.beta.open_run(&json!({})).await.expect("a run");
        assert_eq!(observed(&beta, None, &query("fifth")).await["is_error"], false);
        assert_eq!(observed(&beta, None, &query("sixth")).await["refusal"]["reason"], "run_limit");
    }

    /// L8, L9: the minute is shared by the agents of a connection, and a full one says when it ends. The meter can be read.
    async fn l8_l9_a_minute_is_shared(db) {
        // The clock stands still, else the test straddles two windows.
        let searching = Searching::with(&db, |setup| setup.option("--clock-frozen", "2026-11-30T12:00:20Z")).await;
        searching.limit(INSTALL, "auto", json!({"requests_per_minute": 2, "requests_per_run": 10_000})).await;
        let alpha = searching.run().await;
        let beta = searching.stage.beta.open_run(&json!({})).await.expect("a run");
        assert_eq!(observed(&alpha, None, &query("first")).await["is_error"], false);
        assert_eq!(observed(&beta, None, &query("second")).await["is_error"], false);
        for run in [&alpha, &beta] {
            let seen = observed(run, None, &query("third")).await;
            assert_eq!((seen["refusal"]["reason"].as_str(), seen["refusal"]["retry_after_seconds"].as_u64()), (Some("rate_limited"), Some(40)), "{seen}");
        }
        assert_eq!(searching.brave.sends().len(), 2);
        let listing = searching.owner.client.get(INSTALL).await.expect("a listing").json();
        let search = listing["capabilities"].as_array().expect("a list").iter().find(|one| one["capability"] == "search").expect("search");
        assert_eq!(search["meter"], json!({"minute_used": 2, "minute_limit": 2, "window_ends": "2026-11-30T12:01:00.000Z"}), "{listing}");
    }
}
