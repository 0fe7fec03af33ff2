//! A full house turns newcomers away at once, and a server that stops lets answers finish.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use crate::client::{Reply, Server};

#[tokio::test]
async fn a_full_house_answers_503_at_once() {
    let server = Server::start(|config| config.connections = 2).await;
    let mut inside = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect().await;
        stream.write_all(server.head("GET /slowly", &[]).as_bytes()).await.expect("there is room");
        inside.push(stream);
    }
    // Connections are accepted in order: the third one finds both inside.
    let began = Instant::now();
    let reply = server.ask(server.head("GET /slowly", &[]).as_bytes()).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "overloaded"));
    assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    for stream in &mut inside {
        assert_eq!(Reply::read(stream).await.status, 200);
    }
}

#[tokio::test]
async fn a_stopping_server_finishes_its_answers_and_takes_no_more() {
    let mut server = Server::start(|_| {}).await;
    let mut stream = server.connect().await;
    stream.write_all(server.head("GET /slowly", &[]).as_bytes()).await.expect("it listens");
    let idle = server.connect().await;
    server.begun.notified().await;
    server.stop.cancel();
    let reply = Reply::read(&mut stream).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "at last"));
    tokio::time::timeout(Duration::from_secs(3), &mut server.task).await.expect("it ends soon").expect("no panic");
    drop(idle);
}
