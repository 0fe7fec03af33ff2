//! What comes back as results, golden; and nothing found against a broken reply.

use formation_core::{
    Binding, CallId, Observation, Tool, limits,
    observation::escaped_len,
    search::{self, Hit},
};
use serde_json::json;

use super::Bench;

#[tokio::test]
async fn results_are_exactly_these() {
    let bench = Bench::start().await;
    let hits = bench.search("tides", 5).await.expect("results");
    insta::assert_json_snapshot!("normal", hits);
    let hits = bench.search("scenario:dates", 9).await.expect("results");
    insta::assert_json_snapshot!("dates", hits);
    let mut hits = bench.search("scenario:hostile", 10).await.expect("results");
    let long = hits.iter_mut().find(|hit| hit.truncated).expect("a long one");
    assert!((1_900..=2_000).contains(&long.excerpt.len()), "{}", long.excerpt.len());
    long.excerpt.truncate(120);
    insta::assert_json_snapshot!("hostile", hits);
}

/// SC-30, SC-67: the provider found nothing, which is no failure.
#[tokio::test]
async fn nothing_found_is_a_success() {
    let bench = Bench::start().await;
    for word in ["absent", "null", "empty"] {
        assert_eq!(bench.search(&format!("scenario:{word}"), 5).await, Ok(vec![]), "{word}");
    }
}

/// SC-32, SC-33, SC-34: whatever isn't a search reply is a failure, never an empty list.
#[tokio::test]
async fn a_broken_reply_is_not_nothing_found() {
    let bench = Bench::start().await;
    for word in ["web-text", "web-object", "html", "cut-json", "error-inside", "bad-gzip", "large", "bomb", "endless"] {
        let failure = bench.failure(&format!("scenario:{word}")).await;
        assert_eq!((failure.stage.as_str(), failure.reason.as_str()), ("reply", "invalid_reply"), "{word}");
        assert_eq!(bench.fake.count(&format!("scenario:{word}")), 1, "{word}");
    }
}

/// SC-32: what is no result takes none with it, and ranks have no gaps.
#[tokio::test]
async fn odd_items_are_left_out_alone() {
    let bench = Bench::start().await;
    let hits = bench.search("scenario:odd-items", 5).await.expect("results");
    assert_eq!(hits.iter().map(|hit| hit.rank).collect::<Vec<_>>(), [1, 2]);
}

/// S1: never more than were asked for, whatever the provider sends.
#[tokio::test]
async fn more_results_than_asked_for_are_cut() {
    let bench = Bench::start().await;
    for limit in [1, 5, 10] {
        let hits = bench.search("scenario:many", limit).await.expect("results");
        assert_eq!(hits.len(), usize::from(limit));
        let asked = bench.fake.sends().last().map(|sent| sent.count.clone());
        assert_eq!(asked, Some(limit.to_string()));
    }
}

/// SC-50, SC-54, S4, S5: ten long texts fit into an observation, all ten stay, and each says that it was cut.
#[tokio::test]
async fn ten_long_texts_fit_and_all_stay() {
    let bench = Bench::start().await;
    let mut hits: Vec<Hit> = bench.search("scenario:long", 10).await.expect("results");
    assert!(hits.iter().all(|hit| hit.truncated && hit.excerpt.len() <= 2_000));
    let own = |results: &[Hit]| json!({"query": "scenario:long", "results": results, "truncated": true});
    let binding: Binding = super::failures::binding();
    let call: CallId = super::failures::call();
    let envelope = Observation::of(Tool::WebSearch, &binding, call, own(&[]));
    search::bound(&mut hits, limits::SEARCH_OBSERVATION_BYTES - escaped_len(&envelope.text()));
    let text = Observation::of(Tool::WebSearch, &binding, call, own(&hits)).text();
    assert!(escaped_len(&text) <= limits::SEARCH_OBSERVATION_BYTES, "{}", escaped_len(&text));
    assert_eq!(hits.len(), 10);
}
