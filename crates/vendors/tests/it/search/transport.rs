//! The way to the provider: its certificate, redirects, proxies, silence, and connections that break.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use formation_testkit::brave::{FakeBrave, KEY};
use formation_wire::{Names, Outside};
use tokio::net::TcpListener;

use super::{Bench, PATIENT, adapter, outside, search};

/// Counts who knocks.
async fn decoy() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let knocks = Arc::new(AtomicUsize::new(0));
    let counted = knocks.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, knocks)
}

/// S-03: a redirect is a reply like another, and neither query nor key goes where it points.
#[tokio::test]
async fn bar_s03_redirects_of_a_provider_are_refused() {
    let fake = FakeBrave::start().await.expect("a fake");
    let (elsewhere, knocks) = decoy().await;
    let names = Names::none().with("api.search.brave.com", 443, fake.address()).expect("loopback");
    let names = names.with("elsewhere.example", 443, elsewhere).expect("loopback");
    let brave = adapter(&Outside { names: Arc::new(names), ..outside(&fake, PATIENT) });
    for status in [300, 301, 302, 303, 304, 305, 307, 308] {
        let query = format!("scenario:redirect-{status}");
        let failure = search(&brave, KEY, &query, 5).await.expect_err("a redirect");
        assert_eq!((failure.reason.as_str(), failure.http_status), ("provider_unavailable", Some(status)));
        assert_eq!(fake.count(&query), 1);
    }
    assert_eq!(knocks.load(Ordering::SeqCst), 0);
}

/// S-03: proxies of the environment are not asked. The environment is a process's, so the search runs in one of its own.
#[tokio::test(flavor = "multi_thread")]
async fn bar_s03_proxies_of_the_environment_are_not_asked() {
    let (address, knocks) = decoy().await;
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "search::transport::a_search_in_a_process_of_its_own", "--ignored"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        child.env(name, format!("http://{address}"));
    }
    child.env("NO_PROXY", "").env("no_proxy", "");
    let output = tokio::task::spawn_blocking(move || child.output()).await.expect("no panic").expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(knocks.load(Ordering::SeqCst), 0);
}

#[tokio::test]
#[ignore = "bar_s03_proxies_of_the_environment_are_not_asked runs it"]
async fn a_search_in_a_process_of_its_own() {
    let bench = Bench::start().await;
    assert_eq!(bench.search("tides", 5).await.map(|hits| hits.len()), Ok(5));
    assert_eq!(bench.fake.count("tides"), 1);
}

/// T7, O14: our own time is a class of its own, whatever has come by then.
#[tokio::test]
async fn silence_ends_in_time() {
    for word in ["silent", "stall"] {
        let bench = Bench::waiting(Duration::from_millis(700)).await;
        let started = Instant::now();
        let failure = bench.failure(&format!("scenario:{word}")).await;
        assert_eq!((failure.stage.as_str(), failure.reason.as_str()), ("reply", "timeout"), "{word}");
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert_eq!(bench.fake.count(word), 1);
    }
}

/// A connection that breaks during a reply is a failure, and nothing is sent again.
#[tokio::test]
async fn a_reply_that_breaks_off_is_not_asked_for_again() {
    let bench = Bench::start().await;
    for word in ["cut", "hang-up"] {
        bench.search("tides", 1).await.expect("results");
        let failure = bench.failure(&format!("scenario:{word}")).await;
        assert_eq!((failure.stage.as_str(), failure.reason.as_str()), ("reply", "provider_unavailable"), "{word}");
        assert_eq!(bench.fake.count(&format!("scenario:{word}")), 1, "{word}");
    }
}

/// The second search has no handshake to wait for. One that the provider closes in between costs a new connection, or the call when
/// the request was on its way already; never a second request.
#[tokio::test]
async fn a_kept_connection_that_breaks_sends_nothing_twice() {
    let bench = Bench::start().await;
    for query in ["first", "second"] {
        bench.search(query, 1).await.expect("results");
    }
    let used: Vec<usize> = bench.fake.sends().iter().map(|sent| sent.connection).collect();
    assert_eq!(used, [1, 1]);
    let mut renewed = 0;
    for round in 0..40 {
        let (last, next) = (format!("scenario:last {round}."), format!("next {round}."));
        bench.search(&last, 1).await.expect("results");
        match bench.search(&next, 1).await {
            Ok(_) => renewed += 1,
            Err(failure) => assert_eq!(failure.reason.as_str(), "provider_unavailable"),
        }
        assert_eq!(bench.fake.count(&last), 1);
        assert!(bench.fake.count(&next) <= 1, "{next} was sent twice");
    }
    assert!(renewed > 0, "no call found the connection closed in time");
}

/// Revocation and cancelling drop a call under way: its connection goes with it, and nothing of its answer meets the next call.
#[tokio::test]
async fn a_call_that_is_dropped_takes_its_connection_along() {
    let bench = Bench::start().await;
    bench.search("before", 1).await.expect("results");
    bench.fake.hold("dropped");
    tokio::select! {
        answer = bench.search("dropped", 3) => panic!("{answer:?}"),
        seen = bench.fake.sees("dropped", PATIENT) => assert!(seen),
    }
    bench.fake.release();
    assert_eq!(bench.search("after", 2).await.map(|hits| hits.len()), Ok(2));
    let used: Vec<(String, usize)> = bench.fake.sends().into_iter().map(|sent| (sent.query, sent.connection)).collect();
    assert_eq!(used, [("before".to_owned(), 1), ("dropped".to_owned(), 1), ("after".to_owned(), 2)]);
}

/// Somebody else's root, a name the certificate isn't for, nobody there: no request, and the class says that nothing was sent.
#[tokio::test]
async fn only_the_provider_itself_is_spoken_to() {
    let fake = FakeBrave::start().await.expect("a fake");
    let stranger = FakeBrave::start().await.expect("a fake");
    let misnamed = FakeBrave::start_as("api.elsewhere.example").await.expect("a fake");
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let nobody = Names::none().with("api.search.brave.com", 443, gone.local_addr().expect("bound")).expect("loopback");
    drop(gone);
    let cases = [
        ("another root", Outside { only_roots: Some(vec![stranger.ca()]), ..outside(&fake, PATIENT) }),
        ("the built-in roots", Outside { only_roots: None, ..outside(&fake, PATIENT) }),
        ("another name", outside(&misnamed, PATIENT)),
        ("nobody", Outside { names: Arc::new(nobody), ..outside(&fake, PATIENT) }),
        ("no such name", Outside { names: Arc::new(Names::none()), resolver: Arc::new(Nowhere), ..outside(&fake, PATIENT) }),
    ];
    for (what, outside) in cases {
        let failure = search(&adapter(&outside), KEY, "tides", 1).await.expect_err(what);
        assert_eq!((failure.stage.as_str(), failure.reason.as_str()), ("connect", "provider_unavailable"), "{what}");
    }
    assert_eq!((fake.sends(), misnamed.sends()), (vec![], vec![]));
}

/// Knows no name.
#[derive(Debug)]
struct Nowhere;

impl formation_wire::Resolver for Nowhere {
    fn resolve<'a>(&'a self, _host: &'a str) -> formation_wire::Lookup<'a> {
        Box::pin(async { Err(std::io::Error::other("no such name")) })
    }
}

/// SC-38, and the fake's own strictness: what isn't exactly right is noticed.
#[tokio::test]
async fn the_fake_notices_what_is_wrong() {
    formation_wire::install_tls_provider();
    let fake = FakeBrave::start().await.expect("a fake");
    let client = formation_wire::Client::vendor("https://api.search.brave.com", &outside(&fake, PATIENT)).expect("a client");
    let key = formation_core::Secret::new(KEY.as_bytes());
    let good = [("q", "tides"), ("count", "5"), ("result_filter", "web"), ("text_decorations", "false")];
    let request = formation_wire::Request {
        query: &good,
        credential: Some(formation_wire::Credential::Header("x-subscription-token", &key)),
        accept: Some("application/json"),
        ..formation_wire::Request::get("/res/v1/web/search")
    };
    let send = async |request| client.send(request, 1 << 20, PATIENT).await.expect("a reply").status;
    assert_eq!(send(request.clone()).await, 200);
    assert_eq!(fake.violations(), Vec::<String>::new());
    let body = serde_json::json!({});
    let more = [&good[..], &[("offset", "1")]].concat();
    let twice = [&good[..], &[("q", "again")]].concat();
    let leaking = [&good[..], &[("key", KEY)]].concat();
    let wrong = [
        formation_wire::Request { path: "/res/v1/web/search/", ..request.clone() },
        formation_wire::Request { method: formation_wire::Method::POST, body: Some(&body), ..request.clone() },
        formation_wire::Request { query: &more, ..request.clone() },
        formation_wire::Request { query: &twice, ..request.clone() },
        formation_wire::Request { query: &leaking, ..request.clone() },
        formation_wire::Request { query: &good[..3], ..request.clone() },
        formation_wire::Request { accept: Some("text/html"), ..request.clone() },
        formation_wire::Request { accept: None, ..request.clone() },
        formation_wire::Request { credential: Some(formation_wire::Credential::Bearer(&key)), ..request.clone() },
        formation_wire::Request { credential: Some(formation_wire::Credential::Header("api-version", &key)), ..request.clone() },
        formation_wire::Request { credential: Some(formation_wire::Credential::Header("cache-control", &key)), ..request.clone() },
    ];
    for request in wrong {
        let what = format!("{request:?}");
        assert_eq!(send(request).await, 422, "{what}");
        assert!(!fake.violations().is_empty(), "{what}");
    }
}
