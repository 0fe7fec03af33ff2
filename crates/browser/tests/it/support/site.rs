//! A site on loopback under as many names as a test wants: Chromium resolves `*.localhost` to loopback by itself, and
//! `a.localhost` and `b.localhost` are two sites.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What a path answers.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    delay: Duration,
}

impl Reply {
    pub(crate) fn html(body: &str) -> Self {
        let document = format!("<!doctype html><meta charset=utf-8><title>{TITLE}</title>{JUDGE}{body}");
        Self::new(200, document.into_bytes()).header("content-type", "text/html")
    }

    pub(crate) fn new(status: u16, body: Vec<u8>) -> Self {
        Self { status, headers: Vec::new(), body, delay: Duration::ZERO }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// A script that runs `change` when the test [`Site::release`]s `/go`: the moment is the test's, however busy the machine is.
pub(crate) fn on_release(change: &str) -> String {
    format!("<script>fetch('/go').then(()=>{{{change}}})</script>")
}

/// Title of every page of [`Reply::html`].
pub(crate) const TITLE: &str = "Test page";

/// A page tells what happened in it by `say(…)`; what is said can be read by the test and by nobody else.
const JUDGE: &str = "<script>globalThis.say=what=>navigator.sendBeacon('/said',String(what))</script>";

/// A running site.
#[derive(Debug)]
pub(crate) struct Site {
    port: u16,
    heard: Arc<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    replies: Mutex<HashMap<String, Reply>>,
    requests: Mutex<Vec<String>>,
    released: tokio::sync::watch::Sender<bool>,
    said: Mutex<Vec<String>>,
}

impl Site {
    /// Serves `pages`: path and what it answers. `PORT` in a body becomes the port.
    pub(crate) async fn start(pages: impl IntoIterator<Item = (&'static str, Reply)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let port = listener.local_addr().expect("it is bound").port();
        let heard = Arc::new(Heard::default());
        {
            let mut replies = heard.replies.lock().expect("nobody panicked");
            for (path, mut reply) in pages {
                if let Ok(text) = std::str::from_utf8(&reply.body) {
                    reply.body = text.replace("PORT", &port.to_string()).into_bytes();
                }
                for (_, value) in &mut reply.headers {
                    *value = value.replace("PORT", &port.to_string());
                }
                replies.insert(path.to_owned(), reply);
            }
        }
        let serving = heard.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, serving.clone()));
            }
        });
        Self { port, heard }
    }

    /// One page, at `/`.
    pub(crate) async fn page(body: &str) -> Self {
        Self::start([("/", Reply::html(body))]).await
    }

    /// Address of a path on a host.
    pub(crate) fn at(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    /// Address of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        self.at("a.localhost", path)
    }

    /// Everything said so far.
    pub(crate) fn said(&self) -> Vec<String> {
        self.heard.said.lock().expect("nobody panicked").clone()
    }

    /// Waits until `what` was said; 5 s at most.
    pub(crate) async fn hears(&self, what: &str) -> bool {
        for _ in 0..250 {
            if self.said().iter().any(|said| said == what) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// Answers what waits at `/go`, and gives the page a moment to act on it.
    pub(crate) async fn release(&self) {
        self.heard.released.send_replace(true);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }

    /// `METHOD path` of each request.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.heard.requests.lock().expect("nobody panicked").clone()
    }
}

async fn serve(mut stream: TcpStream, heard: Arc<Heard>) {
    while let Some((line, body)) = request(&mut stream).await {
        let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
        let path = path.split('?').next().unwrap_or("/").to_owned();
        if path == "/said" {
            heard.said.lock().expect("nobody panicked").push(String::from_utf8_lossy(&body).into_owned());
        } else {
            heard.requests.lock().expect("nobody panicked").push(line.rsplit_once(' ').map_or("", |(line, _)| line).to_owned());
        }
        let known = heard.replies.lock().expect("nobody panicked").get(&path).cloned();
        let reply =
            known.unwrap_or_else(|| Reply::new(if matches!(path.as_str(), "/said" | "/go") { 204 } else { 404 }, Vec::new()));
        tokio::time::sleep(reply.delay).await;
        if path == "/go" {
            let _ = heard.released.subscribe().wait_for(|released| *released).await;
        }
        let length = if reply.status == 204 { String::new() } else { format!("content-length: {}\r\n", reply.body.len()) };
        let mut answer = format!("HTTP/1.1 {} X\r\n{length}", reply.status);
        for (name, value) in &reply.headers {
            for part in [name, ": ", value, "\r\n"] {
                answer.push_str(part);
            }
        }
        answer.push_str("\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() || stream.write_all(&reply.body).await.is_err() {
            return;
        }
    }
}

/// Request line and body.
async fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break String::from_utf8_lossy(&bytes[..end]).into_owned();
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if bytes.first() == Some(&0x16) {
            // A TLS greeting: this is no TLS server, and says so.
            stream.write_all(b"HTTP/1.1 400 X\r\n\r\n").await.ok()?;
            return None;
        }
    };
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .unwrap_or(0);
    let mut body = bytes.split_off(head.len() + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head.lines().next()?.to_owned(), body))
}
