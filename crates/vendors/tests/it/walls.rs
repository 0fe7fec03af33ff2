//! What a page can and can't reach.

use std::time::Duration;

use formation_core::failure::Reason;
use formation_wire::Forbidden;
use serde_json::json;

use crate::{
    browser::{Page, Rules, Vendor},
    pages::{html, redirect, serve},
};

const EMPTY: &str = "net::ERR_EMPTY_RESPONSE";

#[tokio::test]
async fn loopback_is_refused_by_default_and_reached_when_private_ranges_are_allowed() {
    let (address, seen) = serve(|_| html("<title>private</title>")).await;
    let (port, url) = (address.port(), format!("http://{address}/"));
    let vendor = Vendor::start(Rules::default()).await;
    let mut page = Page::of(vendor.open(1).await).await;
    for host in ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433"] {
        assert_eq!(page.navigate(&format!("http://{host}:{port}/")).await, EMPTY, "{host}");
    }
    assert_eq!(page.refusals.take("127.0.0.1", port), Some(Reason::AddressNotAllowed));
    assert_eq!(page.refusals.take("localhost", port), Some(Reason::AddressNotAllowed));
    assert_eq!(page.refusals.take("localhost", port), None);
    assert_eq!(page.navigate(&format!("https://{address}/")).await, "net::ERR_TUNNEL_CONNECTION_FAILED");
    assert_eq!(page.refusals.take("127.0.0.1", port), Some(Reason::AddressNotAllowed));
    assert_eq!(seen.all(), Vec::<String>::new());
    vendor.close(&page.remote).await;

    let vendor = Vendor::start(Rules::private()).await;
    let mut page = Page::of(vendor.open(1).await).await;
    assert_eq!(page.navigate(&url).await, "");
    assert_eq!(page.evaluate("document.title").await, json!("private"));
    assert_eq!(page.refusals.take("127.0.0.1", port), None);
    vendor.close(&page.remote).await;
}

#[tokio::test]
async fn our_own_sockets_and_link_local_are_refused_whatever_the_switches_say() {
    let (listener, seen) = serve(|_| html("our API")).await;
    let (open, _) = serve(|_| html("<title>neighbour</title>")).await;
    let vendor = Vendor::start(Rules { forbidden: Forbidden::new([listener]), ..Rules::private() }).await;
    let mut page = Page::of(vendor.open(1).await).await;
    for host in ["127.0.0.1", "localhost", "127.0.0.2", "0.0.0.0", "[::1]"] {
        assert_eq!(page.navigate(&format!("http://{host}:{}/", listener.port())).await, EMPTY, "{host}");
    }
    let proxy = vendor.local.proxy(&page.remote).expect("it lives");
    assert_eq!(page.navigate(&format!("http://{proxy}/")).await, EMPTY);
    assert_eq!(page.refusals.take("127.0.0.1", proxy.port()), Some(Reason::AddressNotAllowed));
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1]"] {
        assert_eq!(page.navigate(&format!("http://{host}/latest/meta-data/")).await, EMPTY, "{host}");
    }
    assert_eq!(page.refusals.take("169.254.169.254", 80), Some(Reason::AddressNotAllowed));
    assert_eq!(page.navigate(&format!("http://{open}/")).await, "");
    assert_eq!(seen.all(), Vec::<String>::new());
    vendor.close(&page.remote).await;
}

#[tokio::test]
async fn a_mapped_name_reaches_its_loopback_page_and_nothing_else() {
    let (address, seen) = serve(|_| html("<title>article</title>")).await;
    let vendor = Vendor::start(Rules::default().name("articles.example.org", address)).await;
    let mut page = Page::of(vendor.open(1).await).await;
    assert_eq!(page.navigate("http://articles.example.org/a?b").await, "");
    assert_eq!(page.evaluate("document.title + location.href").await, json!("articlehttp://articles.example.org/a?b"));
    assert!(seen.all().contains(&"GET /a?b articles.example.org".to_owned()), "{:?}", seen.all());
    assert_eq!(page.navigate(&format!("http://{address}/")).await, EMPTY);
    vendor.close(&page.remote).await;
}

#[tokio::test]
async fn names_that_lead_nowhere_say_so() {
    let vendor = Vendor::start(Rules::private()).await;
    let mut page = Page::of(vendor.open(1).await).await;
    assert_eq!(page.navigate("http://nowhere.invalid/").await, EMPTY);
    assert_eq!(page.refusals.take("nowhere.invalid", 80), Some(Reason::DnsFailed));
    // Port 1 is one of those a browser refuses by itself; this one was free a moment ago.
    let (address, _) = serve(|_| String::new()).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    assert_eq!(page.navigate(&format!("http://{gone}/")).await, EMPTY);
    assert_eq!(page.refusals.take("127.0.0.1", gone.port()), Some(Reason::ConnectionFailed));
    // Sent, and no answer came: known to have failed, and not sent again.
    assert_ne!(page.navigate(&format!("http://{address}/once")).await, "");
    assert_eq!(page.refusals.take("127.0.0.1", address.port()), Some(Reason::ConnectionFailed));
    vendor.close(&page.remote).await;
}

/// B3: with a list, redirects, subresources, frames and web sockets to other hosts don't leave the machine.
#[tokio::test]
async fn a_hostname_list_holds_for_every_request() {
    let (other, other_seen) = serve(|_| html("<title>other</title>")).await;
    let (listed, listed_seen) = serve(|path| match path {
        "/redirect" => redirect("http://other.example/landed"),
        "/pixel" => html(""),
        _ => html("<title>listed</title><img src='http://other.example/pixel'><img src='/pixel'><iframe src='http://other.example/frame'></iframe>"),
    })
    .await;
    let rules = Rules::private().name("listed.example", listed).name("other.example", other).only("listed.example");
    let vendor = Vendor::start(rules).await;
    let mut page = Page::of(vendor.open(1).await).await;

    assert_eq!(page.navigate("http://listed.example/").await, "");
    let socket = "new Promise(done => { const s = new WebSocket('ws://other.example/socket'); s.onerror = () => done('error'); s.onopen = () => done('open'); })";
    assert_eq!(page.evaluate(socket).await, json!("error"));
    let fetched = "fetch('http://other.example/fetch', {mode: 'no-cors'}).then(() => 'sent', () => 'refused')";
    assert_eq!(page.evaluate(fetched).await, json!("refused"));
    assert_eq!(page.evaluate("fetch('/pixel').then(r => r.status)").await, json!(200));
    assert_eq!(page.navigate("http://listed.example/redirect").await, EMPTY);
    assert_eq!(page.refusals.take("other.example", 80), Some(Reason::HostnameNotAllowed));
    assert_eq!(page.navigate("http://hello.formation.test/").await, EMPTY);

    assert_eq!(listed_seen.count("/redirect"), 1);
    assert!(listed_seen.count("/pixel") >= 1);
    assert_eq!(other_seen.all(), Vec::<String>::new());
    vendor.close(&page.remote).await;
}

#[tokio::test]
async fn the_hello_page_needs_no_network_and_has_a_button_that_answers() {
    let vendor = Vendor::start(Rules::default()).await;
    let mut page = Page::of(vendor.open(1).await).await;
    assert_eq!(page.navigate("http://hello.formation.test/").await, "");
    assert_eq!(page.evaluate("document.querySelector('h1').textContent").await, json!("Hello from Formation"));
    page.evaluate("document.querySelector('button').click()").await;
    assert_eq!(
        page.evaluate("document.querySelector('[role=status]').textContent").await,
        json!("Hello! The button was pressed once.")
    );
    assert_eq!(page.evaluate("fetch('/nothing').then(r => r.status)").await, json!(404));
    assert_eq!(page.refusals.take("hello.formation.test", 80), None);
    vendor.close(&page.remote).await;
}

/// What doesn't go through a proxy doesn't go at all: peer connections speak UDP.
#[tokio::test]
async fn a_peer_connection_sends_nothing_and_learns_no_address() {
    let stun = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let vendor = Vendor::start(Rules::private()).await;
    let mut page = Page::of(vendor.open(1).await).await;
    assert_eq!(page.navigate("http://hello.formation.test/").await, "");
    let gather = format!(
        "new Promise(async done => {{
            const peer = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{}'}}]}});
            const candidates = [];
            peer.onicecandidate = event => event.candidate ? candidates.push(event.candidate.candidate) : done(candidates);
            peer.createDataChannel('x');
            await peer.setLocalDescription(await peer.createOffer());
            setTimeout(() => done(candidates), 3000);
        }})",
        stun.local_addr().expect("bound")
    );
    assert_eq!(page.evaluate(&gather).await, json!([]));
    let mut packet = [0; 64];
    assert!(tokio::time::timeout(Duration::from_millis(200), stun.recv(&mut packet)).await.is_err());
    vendor.close(&page.remote).await;
}

/// S-03: a browser that was told to do nothing asks for nothing.
#[tokio::test]
async fn bar_s03_an_idle_browser_makes_no_request() {
    let vendor = Vendor::start(Rules::private()).await;
    let page = Page::of(vendor.open(1).await).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(vendor.local.requests(&page.remote), Some(0));
    vendor.close(&page.remote).await;
}
