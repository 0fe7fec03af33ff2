//! The proxy as a raw client sees it: what a browser wouldn't send is what an attacker would.

use std::{sync::Arc, time::Duration};

use formation_wire::{AddressPolicy, Forbidden, Names, SystemResolver};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
    time::timeout,
};

use super::*;

const WAIT: Duration = Duration::from_secs(10);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// A proxy to which `site.test` is `target`, on ports 80 and 443.
async fn proxy(target: SocketAddr, hosts: &str) -> Proxy {
    let names = [80, 443].into_iter().fold(Names::none(), |names, port| names.with("site.test", port, target).expect("loopback"));
    let policy = AddressPolicy { allow_private: false, forbidden: Forbidden::default() };
    let dialler = Dialler::new(Arc::new(SystemResolver), Arc::new(names), policy);
    Proxy::start(HostList::parse(hosts).expect("a list"), dialler).await.expect("listens")
}

#[expect(clippy::disallowed_methods, reason = "a test's own client")]
async fn client(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.shared().address()).await.expect("it listens")
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match timeout(WAIT, stream.read_u8()).await.expect("in time") {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).expect("ASCII")
}

/// All that comes back for one request.
async fn exchange(proxy: &Proxy, request: &str) -> String {
    let mut stream = client(proxy).await;
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    // A connection that is reset has been closed, too.
    drop(timeout(WAIT, stream.read_to_end(&mut answer)).await.expect("in time"));
    String::from_utf8(answer).expect("ASCII")
}

/// Answers one request with `reply`; the request it got, head only.
fn site(listener: TcpListener, reply: &'static str) -> JoinHandle<String> {
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let request = head(&mut stream).await;
        stream.write_all(reply.as_bytes()).await.expect("sent");
        request
    })
}

#[tokio::test]
async fn a_plain_request_goes_on_without_what_belongs_to_one_connection() {
    let (listener, address) = listen().await;
    let served = site(
        listener,
        "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Kept: 2\r\ncontent-length: 2\r\n\r\nhi",
    );
    let proxy = proxy(address, "").await;
    let request = "GET http://site.test/a?b=c HTTP/1.1\r\nHost: other.test\r\nProxy-Connection: keep-alive\r\nConnection: X-Secret\r\n\
                   X-Secret: 1\r\nProxy-Authorization: Basic x\r\nTE: trailers\r\nCookie: kept=1\r\n\r\n";
    let answer = exchange(&proxy, request).await;
    let seen = served.await.expect("served");
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
    let lower = seen.to_ascii_lowercase();
    assert!(lower.contains("\r\nhost: site.test\r\n") && !lower.contains("other.test"), "{seen}");
    assert!(lower.contains("\r\ncookie: kept=1\r\n"), "{seen}");
    for gone in ["proxy-", "x-secret", "te: "] {
        assert!(!lower.contains(gone), "{gone} in {seen}");
    }
    let lower = answer.to_ascii_lowercase();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhi"), "{answer}");
    assert!(lower.contains("x-kept: 2") && !lower.contains("x-hop") && !lower.contains("keep-alive"), "{answer}");
    assert_eq!((proxy.shared().requests(), proxy.shared().refused()), (1, 0));
}

#[tokio::test]
async fn what_is_refused_in_the_clear_gets_no_answer_and_a_tunnel_gets_403() {
    let (_listener, address) = listen().await;
    let open = proxy(address, "").await;
    let closed = proxy(address, "listed.test").await;
    let own = open.shared().address();
    let requests = [
        // Not on the list.
        (&closed, "GET http://site.test/ HTTP/1.1\r\nHost: listed.test\r\n\r\n".to_owned()),
        (&closed, "GET http://listed.test@site.test/ HTTP/1.1\r\nHost: listed.test\r\n\r\n".to_owned()),
        (&closed, "GET http://hello.formation.test/ HTTP/1.1\r\nHost: listed.test\r\n\r\n".to_owned()),
        // Not an address for a page.
        (&open, format!("GET http://{address}/ HTTP/1.1\r\nHost: site.test\r\n\r\n")),
        (&open, format!("GET http://{own}/ HTTP/1.1\r\nHost: site.test\r\n\r\n")),
        // Not a request to a proxy.
        (&open, "GET / HTTP/1.1\r\nHost: site.test\r\n\r\n".to_owned()),
        (&open, "GET https://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n".to_owned()),
    ];
    for (proxy, request) in requests {
        assert_eq!(exchange(proxy, &request).await, "", "{request}");
    }
    for (proxy, to, status) in [
        (&closed, "site.test:443".to_owned(), "403"),
        (&open, address.to_string(), "403"),
        (&open, own.to_string(), "403"),
        (&open, "169.254.169.254:80".to_owned(), "403"),
        (&open, "nowhere.invalid:443".to_owned(), "502"),
        (&closed, "listed.test@site.test:443".to_owned(), "400"),
    ] {
        let answer = exchange(proxy, &format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{to}: {answer}");
    }
    assert_eq!(closed.shared().refusals().take("site.test", 443), Some(Reason::HostnameNotAllowed));
    assert_eq!(open.shared().refusals().take("nowhere.invalid", 443), Some(Reason::DnsFailed));
}

#[tokio::test]
async fn a_tunnel_carries_both_ways_and_ends_with_the_session() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await
    });
    let proxy = proxy(address, "site.test").await;
    let mut stream = client(&proxy).await;
    stream.write_all(b"CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\n\r\n").await.expect("sent");
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    stream.write_all(b"echo").await.expect("sent");
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.expect("echoed");
    assert_eq!(&echo, b"echo");
    drop(proxy);
    let ended = timeout(WAIT, stream.read(&mut echo)).await.expect("in time");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn a_web_socket_in_the_clear_is_carried_on() {
    let (listener, address) = listen().await;
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let request = head(&mut stream).await;
        let reply =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";
        stream.write_all(reply.as_bytes()).await.expect("sent");
        let mut frame = [0; 5];
        stream.read_exact(&mut frame).await.expect("a frame");
        stream.write_all(&frame).await.expect("sent");
        request
    });
    let proxy = proxy(address, "").await;
    let mut stream = client(&proxy).await;
    let request = "GET http://site.test/socket HTTP/1.1\r\nHost: site.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: k\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let answer = head(&mut stream).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("\r\nupgrade: websocket\r\n") && answer.contains("\r\nsec-websocket-accept: x\r\n"), "{answer}");
    stream.write_all(b"frame").await.expect("sent");
    let mut echo = [0; 5];
    timeout(WAIT, stream.read_exact(&mut echo)).await.expect("in time").expect("echoed");
    assert_eq!(&echo, b"frame");
    let seen = served.await.expect("served").to_ascii_lowercase();
    assert!(seen.contains("\r\nconnection: upgrade\r\n") && seen.contains("\r\nupgrade: websocket\r\n"), "{seen}");
}

#[tokio::test]
async fn bodies_are_streamed_as_they_come() {
    let (listener, address) = listen().await;
    let (more, wait) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let request = head(&mut stream).await;
        let mut first = [0; 5];
        // The first half of the request's body arrives while the second isn't sent yet.
        stream.read_exact(&mut first).await.expect("a body");
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n").await.expect("sent");
        wait.await.expect("told to");
        stream.write_all(b"data: 2\n\n").await.expect("sent");
        (request, first)
    });
    let proxy = proxy(address, "").await;
    let mut stream = client(&proxy).await;
    stream.write_all(b"POST http://site.test/ HTTP/1.1\r\nHost: site.test\r\nContent-Length: 10\r\n\r\n01234").await.expect("sent");
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    let mut seen = String::new();
    while !seen.contains("data: 1") {
        let mut piece = [0; 64];
        let length = timeout(WAIT, stream.read(&mut piece)).await.expect("in time").expect("open");
        assert_ne!(length, 0, "{seen}");
        seen.push_str(std::str::from_utf8(&piece[..length]).expect("ASCII"));
    }
    assert!(!seen.contains("data: 2"));
    more.send(()).expect("waited for");
    let mut rest = Vec::new();
    drop(timeout(WAIT, stream.read_to_end(&mut rest)).await.expect("in time"));
    assert!(String::from_utf8_lossy(&rest).contains("data: 2"));
    let (request, first) = served.await.expect("served");
    assert!(request.to_ascii_lowercase().contains("content-length: 10"), "{request}");
    assert_eq!(&first, b"01234");
}

#[tokio::test]
async fn a_request_that_was_sent_and_not_answered_is_a_502() {
    let (listener, address) = listen().await;
    let served = site(listener, "");
    let proxy = proxy(address, "").await;
    let answer = exchange(&proxy, "POST http://site.test/ HTTP/1.1\r\nHost: site.test\r\nContent-Length: 0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    served.await.expect("served");
    assert_eq!(proxy.shared().refusals().take("site.test", 80), Some(Reason::ConnectionFailed));
}

#[tokio::test]
async fn a_proxy_that_is_gone_is_no_longer_one_of_our_sockets() {
    let (_listener, address) = listen().await;
    let proxy = proxy(address, "").await;
    let (own, policy) = (proxy.shared().address(), proxy.shared().dialler.policy().clone());
    assert!(policy.forbidden.covers(own));
    drop(proxy);
    assert!(!policy.forbidden.covers(own));
}
