//! Every failure Brave is known for, and the one word each of them gets (vendors/search.md 6.4).

use formation_core::{AccountRef, AgentId, Binding, CallId, Capability, Observation, Scope, Tool, failure::CallFailure};
use formation_testkit::brave::{self, Answer, End, SCENARIOS};
use serde_json::json;

use super::{Bench, search};

/// T7: the class is read from the code before the status, and one request is all there is.
#[tokio::test]
async fn each_failure_has_its_word() {
    let bench = Bench::start().await;
    let table = [
        // SC-20 and SC-02: one status, two classes.
        ("bad-key", "credential_rejected", 422),
        ("bad-key-list", "credential_rejected", 422),
        ("key-header", "credential_rejected", 422),
        ("refused", "query_not_accepted", 422),
        ("echo-query", "query_not_accepted", 422),
        ("echo-key", "credential_rejected", 422),
        ("plan", "permission_denied", 400),
        ("no-subscription", "permission_denied", 404),
        // SC-12: too fast is not used up, and a limit of 0 is none.
        ("quota", "payment_required", 429),
        ("used-up", "payment_required", 429),
        ("fast", "rate_limited", 429),
        ("fast-plan", "rate_limited", 429),
        ("retry-after", "rate_limited", 429),
        ("status-400", "query_not_accepted", 400),
        ("status-401", "credential_rejected", 401),
        ("status-402", "payment_required", 402),
        ("status-403", "credential_rejected", 403),
        ("status-404", "provider_unavailable", 404),
        ("status-408", "timeout", 408),
        ("status-418", "provider_unavailable", 418),
        ("status-422", "query_not_accepted", 422),
        ("status-429", "rate_limited", 429),
        ("status-500", "provider_unavailable", 500),
        ("status-503", "provider_unavailable", 503),
        ("status-201", "invalid_reply", 201),
        ("redirect-301", "provider_unavailable", 301),
    ];
    for (word, reason, status) in table {
        let query = format!("scenario:{word}");
        let failure = bench.failure(&query).await;
        assert_eq!((failure.reason.as_str(), failure.http_status), (reason, Some(status)), "{word}");
        assert!(failure.provider_codes.is_empty() && failure.request_id.is_none() && failure.hint.is_none(), "{failure:?}");
        // SC-10, SC-15.
        assert_eq!(bench.fake.count(&query), 1, "{word} was sent again");
    }
}

/// The fake's own list of scenarios has none that it doesn't know.
#[tokio::test]
async fn every_scenario_is_there() {
    let bench = Bench::waiting(std::time::Duration::from_millis(500)).await;
    for (word, _) in SCENARIOS {
        // What comes of it is shown elsewhere.
        drop(bench.search(&format!("scenario:{word}"), 5).await);
    }
    assert_eq!(bench.fake.violations(), Vec::<String>::new());
    drop(bench.search("scenario:no-such", 5).await);
    assert_eq!(bench.fake.violations(), ["no scenario is called `no-such`"]);
}

/// SC-14: advice to wait comes from windows that have a limit, and only where waiting is what helps.
#[tokio::test]
async fn advice_to_wait_comes_from_real_windows() {
    let bench = Bench::start().await;
    for (word, seconds) in
        [("fast", Some(1)), ("fast-plan", Some(1)), ("retry-after", Some(1)), ("status-429", None), ("quota", None)]
    {
        let failure = bench.failure(&format!("scenario:{word}")).await;
        assert_eq!(failure.after_seconds, seconds, "{word}");
    }
}

/// SC-20: a key that was good and is no more.
#[tokio::test]
async fn a_revoked_key_is_told_from_a_bad_query() {
    let bench = Bench::start().await;
    bench.search("tides", 1).await.expect("results");
    bench.fake.revoke(brave::KEY);
    assert_eq!(bench.failure("tides").await.reason.as_str(), "credential_rejected");
    let wrong = search(&bench.brave, "of-another-vendor", "tides", 1).await.expect_err("a bad key");
    assert_eq!(wrong.reason.as_str(), "credential_rejected");
    search(&bench.brave, "BSA-another", "tides", 1).await.expect("results");
}

/// S4: 16 KiB of an error body are looked at, however much comes and however it is packed.
#[tokio::test]
async fn a_long_error_is_not_read_to_its_end() {
    let bench = Bench::start().await;
    let at = |offset: usize| {
        let error = json!({"error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}});
        format!("{}{error}", " ".repeat(offset))
    };
    for (word, body, end, reason) in [
        ("near", at(10_000), End::Whole, "credential_rejected"),
        ("far", at(17_000), End::Whole, "query_not_accepted"),
        ("packed", at(8 * 1024 * 1024), End::Whole, "query_not_accepted"),
        ("endless", at(0), End::Endless, "query_not_accepted"),
    ] {
        bench.fake.answer(word, Answer::new(422, "application/json", body).ends(end));
        let failure = bench.failure(word).await;
        assert_eq!((failure.reason.as_str(), failure.http_status), (reason, Some(422)), "{word}");
    }
    // What was left unread belongs to nobody's next call.
    assert_eq!(bench.search("tides", 2).await.map(|hits| hits.len()), Ok(2));
}

/// SC-66, SC-28: what an agent is told says class, status, what was spent and whether waiting helps.
#[tokio::test]
async fn a_failure_is_an_observation_one_can_act_on() {
    let bench = Bench::start().await;
    let told = observation(&bench.failure("scenario:fast-plan").await);
    insta::assert_snapshot!(told);
}

/// SC-11: calls at the same time fail and succeed each by itself.
#[tokio::test]
async fn calls_at_the_same_time_do_not_touch_each_other() {
    let bench = Bench::start().await;
    bench.fake.hold("held");
    let others = async {
        assert!(bench.fake.sees("held", super::PATIENT).await);
        let (good, fast) = tokio::join!(bench.search("tides", 2), bench.search("scenario:fast", 2));
        assert_eq!(good.map(|hits| hits.len()), Ok(2));
        assert_eq!(fast.map_err(|failure| failure.reason.as_str()), Err("rate_limited"));
        bench.fake.release();
    };
    let (held, ()) = tokio::join!(bench.search("held tides", 3), others);
    assert_eq!(held.map(|hits| hits.len()), Ok(3));
}

/// As the tool says it.
pub(super) fn observation(failure: &CallFailure) -> String {
    Observation::failure(Tool::WebSearch, &binding(), call(), failure).text()
}

pub(super) fn call() -> CallId {
    CallId::fixed(7)
}

pub(super) fn binding() -> Binding {
    Binding {
        agent: AgentId::fixed(1),
        capability: Capability::Search,
        vendor: formation_vendors::brave::VENDOR,
        owner: Scope::Install,
        account: AccountRef::Environment { fingerprint: "0123456789abcdef".to_owned() },
        install_version: Some(1),
        agent_version: 0,
    }
}
