//! A web server on loopback that counts what reaches it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Requests a server has seen, as `METHOD path host`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn count(&self, path: &str) -> usize {
        self.all().iter().filter(|line| line.split(' ').nth(1) == Some(path)).count()
    }
}

/// Serves `answer(path)`, a whole HTTP response, until the test ends.
pub(crate) async fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let seen = Seen::default();
    let (noted, answer) = (seen.clone(), Arc::new(answer));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(one(stream, noted.clone(), answer.clone()));
        }
    });
    (address, seen)
}

async fn one(mut stream: TcpStream, seen: Seen, answer: Arc<impl Fn(&str) -> String>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).await.is_err() {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let host = head.lines().find_map(|line| line.strip_prefix("Host: ").or(line.strip_prefix("host: "))).unwrap_or("");
    seen.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{method} {path} {host}"));
    let response = answer(path);
    // A browser that goes away has its reasons.
    drop(stream.write_all(response.as_bytes()).await);
    drop(stream.shutdown().await);
}

/// An HTML page.
pub(crate) fn html(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A redirect.
pub(crate) fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
}
