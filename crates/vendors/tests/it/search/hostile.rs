//! S-17 for Brave: what a vendor says in a failure is said to nobody.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use formation_testkit::brave::{Answer, KEY};
use serde_json::{Value, json};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, util::SubscriberInitExt as _};

use super::{Bench, failures::observation};

/// In everything a hostile reply says, with a number behind it.
const CANARY: &str = "cAnArY";

/// 200 replies, each a status with a body: JSON in every shape that is known and some that aren't, HTML, and noise.
fn replies() -> Vec<Answer> {
    let statuses = [200, 206, 301, 307, 400, 401, 402, 403, 404, 408, 409, 422, 429, 500, 502, 503];
    let mut replies = Vec::new();
    for round in 0..13 {
        for status in statuses {
            let word = format!("{CANARY}-{}", replies.len());
            let answer = match round {
                0 => Answer::json(status, &error("error", &json!({"code": word, "detail": word, "meta": {"component": word}}))),
                1 => Answer::json(
                    status,
                    &error("error", &json!({"code": "SUBSCRIPTION_TOKEN_INVALID", "detail": word, "id": word})),
                ),
                2 => Answer::json(status, &error("errors", &json!([{"code": "VALIDATION", "message": word, "meta": echo(&word)}]))),
                3 => Answer::json(
                    status,
                    &error("error", &json!({"code": "RATE_LIMITED", "meta": {"quota_limit": word, "plan": word}})),
                ),
                4 => Answer::json(status, &error("error", &json!({"code": [word], "status": word}))),
                5 => Answer::json(status, &error("error", &json!(word))),
                6 => Answer::json(status, &error("errors", &json!({"0": {"code": word}, "detail": word}))),
                7 => Answer::json(status, &json!({"message": word, "web": word, "detail": [{"loc": [word]}]})),
                8 => Answer::json(status, &json!([word, {"error": word}])),
                9 => Answer::json(
                    status,
                    &error("error", &json!({"code": 4_294_967_296_u64, "codes": [1, -1, 1e300], "detail": word})),
                ),
                10 => Answer::new(status, "text/html", format!("<title>{word}</title><p>{KEY}")),
                11 => Answer::new(
                    status,
                    "application/json",
                    format!("{{\"error\":{{\"code\":\"{word}\",\"detail\":\"{}", "x".repeat(40_000)),
                ),
                _ => Answer::new(status, &word, [b"\xff\xfe\x00".as_slice(), word.as_bytes()].concat()),
            };
            replies.push(
                answer
                    .reason(&format!("{word} {KEY}"))
                    .header("x-request-id", &word)
                    .header("retry-after", if round % 2 == 0 { &word } else { "99999999999999999999" })
                    .header("x-ratelimit-limit", "1, 1")
                    .header("x-ratelimit-remaining", "0, 0")
                    .header("x-ratelimit-reset", if round % 3 == 0 { "18446744073709551615, 1e9" } else { &word })
                    .header("set-cookie", &format!("{word}={KEY}"))
                    .header("location", &format!("https://elsewhere.example/{word}"))
                    .header(&format!("x-{word}"), KEY),
            );
        }
    }
    replies
}

fn error(name: &str, error: &Value) -> Value {
    json!({"type": "ErrorResponse", name: error})
}

fn echo(word: &str) -> Value {
    json!({"errors": [{"loc": ["query", word], "input": word, "ctx": {"key": KEY}}]})
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// 0 canaries and 0 keys in the failure, in its `Debug`, in the observation, and in a log that shows all we say and what others
/// may say.
#[tokio::test]
async fn bar_s17_no_word_of_a_hostile_reply_gets_past_the_adapter() {
    let log = Log::default();
    let filter = EnvFilter::new("info,formation_vendors=trace,formation_wire=trace,formation_core=trace");
    let _shown = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log.clone()).finish().set_default();
    tracing::info!("the log is written");

    let bench = Bench::start().await;
    let replies = replies();
    assert!(replies.len() >= 200, "{}", replies.len());
    for (number, reply) in replies.iter().enumerate() {
        let query = format!("hostile {number}.");
        bench.fake.answer(&query, reply.clone());
        let failure = bench.failure(&query).await;
        assert!(failure.provider_codes.is_empty() && failure.request_id.is_none(), "{number}: {failure:?}");
        assert!(failure.after_seconds.is_none_or(|seconds| seconds <= 2_678_400), "{number}: {failure:?}");
        let said = format!("{failure:?} {failure} {}", observation(&failure));
        assert!(!said.contains(CANARY) && !said.contains(KEY) && !said.contains(&query), "{number}: {said}");
        assert_eq!(bench.fake.count(&query), 1, "{number} was sent again");
    }
    let log = String::from_utf8_lossy(&log.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    assert!(log.contains("the log is written"));
    assert!(!log.contains(CANARY) && !log.contains(KEY), "{log}");
}

/// SC-63: neither the adapter nor a request shows the key.
#[tokio::test]
async fn the_key_is_in_no_debug_output() {
    let bench = Bench::start().await;
    let key = formation_core::Secret::new(KEY.as_bytes());
    let config = json!({});
    let account = formation_vendors::Account { key: Some(&key), config: &config };
    let credential = formation_wire::Credential::Header("x-subscription-token", &key);
    let request = formation_wire::Request { credential: Some(credential), ..formation_wire::Request::get("/") };
    bench.search("tides", 1).await.expect("results");
    let failure = bench.failure("scenario:echo-key").await;
    let shown = format!("{:?} {account:?} {request:?} {failure:?} {}", bench.brave, observation(&failure));
    assert!(shown.contains("****") && !shown.contains(KEY), "{shown}");
}
