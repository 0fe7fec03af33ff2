//! What leaves: one golden request, and queries that must arrive as they were said.

use formation_core::limits;
use formation_testkit::brave::KEY;
use formation_vendors::Search as _;

use super::Bench;

/// S7, SC-68: the documented parameters and headers and no other; the key in its header and nowhere else.
#[tokio::test]
async fn a_request_is_exactly_this() {
    let bench = Bench::start().await;
    bench.search("tide tables, northern harbours", 7).await.expect("results");
    let [sent] = &bench.fake.sends()[..] else { panic!("one request: {:?}", bench.fake.sends()) };
    let head = sent.head.replace(concat!("formation/", env!("CARGO_PKG_VERSION")), "formation/VERSION");
    insta::assert_snapshot!(head);
    assert_eq!(sent.head.matches(KEY).count(), 1, "{}", sent.head);
}

/// SC-04: the string goes through once, whatever stands in it.
#[tokio::test]
async fn queries_arrive_as_they_were_said() {
    let bench = Bench::start().await;
    for query in [
        "a&b#c+d%20e=f?g",
        "two\nlines\tand a tab",
        "{\"input\": \"tides\"}",
        "Gezeiten für Nørrebro 🌊 «heute»",
        "\"exact\" -not site:a.example",
    ] {
        bench.search(query, 1).await.expect("results");
        assert_eq!(bench.fake.sends().last().map(|sent| sent.query.clone()).as_deref(), Some(query));
    }
}

/// SC-01: the limit itself is good, one more is refused here, and then nothing is sent.
#[tokio::test]
async fn a_query_over_the_limit_is_refused_before_anything_is_sent() {
    let bench = Bench::start().await;
    let characters = |count: usize| "é".repeat(count);
    let words = |count: usize| vec!["tide"; count].join(" \n ");
    for good in [characters(600), words(75), "🌊".repeat(500)] {
        assert_eq!(bench.brave.check(&good), Ok(()));
        assert!(good.len() > limits::QUERY_BYTES || bench.search(&good, 1).await.is_ok(), "{good}");
    }
    let sent = bench.fake.sends().len();
    for (bad, says) in [(characters(601), "601 characters and 1 words"), (words(76), "76 words")] {
        let refused = bench.brave.check(&bad).expect_err("too long").to_string();
        for part in ["600 characters and 75 words", "400 characters and 50 words", says] {
            assert!(refused.contains(part), "{refused}");
        }
    }
    assert_eq!(bench.fake.sends().len(), sent);
}

/// A plan that takes less says so itself; the agent is told to shorten, not to look for another key.
#[tokio::test]
async fn an_older_plan_refuses_what_is_good_elsewhere() {
    let bench = Bench::start().await;
    bench.fake.limit_queries(400, 50);
    let failure = bench.failure(&"tide ".repeat(60)).await;
    assert_eq!((failure.reason.as_str(), failure.http_status), ("query_not_accepted", Some(422)));
    bench.search(&"tide ".repeat(50), 1).await.expect("results");
}

#[tokio::test]
async fn a_key_that_no_header_can_carry_is_rejected_here() {
    let bench = Bench::start().await;
    for key in ["BSA-two\nlines", "BSA\u{0}"] {
        let failure = super::search(&bench.brave, key, "tides", 1).await.expect_err("no such header");
        assert_eq!((failure.stage.as_str(), failure.reason.as_str()), ("request", "credential_rejected"));
    }
    assert_eq!(bench.fake.sends(), []);
}
