//! R-12 in small: peers that take for ever are closed, and nobody else notices. The timers are the product's, shrunk 30-fold.

use std::time::{Duration, Instant};

use formation_api::{ServerConfig, Timers};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::client::{Reply, Server};

const HEAD: Duration = Duration::from_millis(500);
const BODY: Duration = Duration::from_secs(1);

fn shrunk(config: &mut ServerConfig) {
    config.timers = Timers { head: HEAD, body: BODY, write: BODY, linger: Duration::from_millis(100), ..Timers::default() };
}

/// Sends `first`, then one byte each 50 ms, until the server closes; how long that took.
async fn dribble(mut stream: TcpStream, first: String) -> Duration {
    let began = Instant::now();
    stream.write_all(first.as_bytes()).await.expect("a fresh connection takes a few bytes");
    let (mut reading, mut writing) = stream.split();
    let write = async {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let read = async {
        let mut buffer = [0; 4096];
        while let Ok(1..) = reading.read(&mut buffer).await {}
    };
    tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(read, write) }).await.expect("the server closes");
    began.elapsed()
}

/// Asks for more than the buffers hold, again and again, and reads nothing; how long until the server has closed.
async fn never_read(mut stream: TcpStream, request: String) -> Duration {
    let began = Instant::now();
    for _ in 0..64 {
        // Fails once the server is gone, which is what is waited for.
        let _ = stream.write_all(request.as_bytes()).await;
    }
    tokio::time::timeout(Duration::from_secs(10), async {
        // A failing write is the only sign for someone who doesn't read.
        while stream.write_all(b"\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("the server closes");
    began.elapsed()
}

#[tokio::test]
async fn bar_r12_slow_peers_are_closed_and_honest_ones_served() {
    let server = Server::start(shrunk).await;
    let mut peers = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let stream = server.connect().await;
        peers.spawn(async { ("headers", HEAD, dribble(stream, "GET / HTTP/1.1\r\nx-slow: ".into()).await) });
        let stream = server.connect().await;
        let head = server.head("POST /parcels", &["content-type: application/json", "content-length: 60000"]);
        peers.spawn(async { ("body", BODY, dribble(stream, head).await) });
        let stream = server.connect().await;
        let request = server.head("GET /parcels", &[]);
        peers.spawn(async { ("reading", BODY, never_read(stream, request).await) });
        // Says nothing at all.
        let stream = server.connect().await;
        peers.spawn(async { ("silence", HEAD, dribble(stream, String::new()).await) });
    }
    let began = Instant::now();
    while began.elapsed() < HEAD {
        let asked = Instant::now();
        let reply = server.ask(server.head("POST /parcels", &["content-length: 0"]).as_bytes()).await;
        assert_eq!(reply.status, 200);
        assert!(asked.elapsed() < Duration::from_secs(1), "an honest request took {:?}", asked.elapsed());
    }
    while let Some(ended) = peers.join_next().await {
        let (kind, bound, took) = ended.expect("no panic");
        // Room for a busy machine: what counts is that the bound decides, not the peer.
        assert!(took < bound + Duration::from_secs(3), "{kind}: closed after {took:?}");
    }
}

/// The body's time is for all of it: one that comes in steady drops is no better than one that stops.
#[tokio::test]
async fn a_body_that_is_too_slow_is_told() {
    let server = Server::start(shrunk).await;
    let mut stream = server.connect().await;
    let head = server.head("POST /parcels", &["content-type: application/json", "content-length: 100"]);
    stream.write_all(head.as_bytes()).await.expect("the head is read");
    let reply = Reply::read(&mut stream).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_json"));
    assert!(reply.head.contains("connection: close"), "{}", reply.head);
}
