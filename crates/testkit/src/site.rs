//! A site on loopback whose pages a browser opens under a mapped name: it logs every request, holds answers back when it is told
//! to, and hears what pages say.
//!
//! A request is on the log as soon as its head has arrived, so a held one counts as seen.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

/// What a path answers.
#[derive(Debug, Clone)]
pub struct Page {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Page {
    /// An HTML page. `{KEY}` in it becomes the query's `key`, and `say(word)` tells the site something, `ask(word)` does so and
    /// blocks the page until the site has answered.
    pub fn html(body: &str) -> Self {
        let page = format!("<!doctype html><meta charset=utf-8><title>Test page</title>{VOICE}{body}");
        Self::new(200, page.into_bytes()).with_header("content-type", "text/html")
    }

    /// Any answer.
    pub fn new(status: u16, body: Vec<u8>) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    /// With one more header.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Beacons go where the log is; what a page asks blocks its thread.
const VOICE: &str = "<link rel=icon href=data:,><script>
    const say = word => navigator.sendBeacon('/said?word=' + encodeURIComponent(word));
    const ask = word => { const x = new XMLHttpRequest(); x.open('POST', '/said?word=' + encodeURIComponent(word), false); x.send() };
    </script>";

/// Which answers wait until they are let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hold {
    /// None.
    #[default]
    Nothing,
    /// Those whose target contains the word: nothing of them is sent.
    Answers(&'static str),
    /// The same, after their head and the first half of the body.
    Bodies(&'static str),
}

impl Hold {
    fn answer(self, target: &str) -> bool {
        matches!(self, Self::Answers(word) if target.contains(word))
    }

    fn body(self, target: &str) -> bool {
        matches!(self, Self::Bodies(word) if target.contains(word))
    }
}

/// A running site. It ends with the runtime it was started on.
#[derive(Debug, Clone)]
pub struct Site {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pages: Mutex<HashMap<String, Page>>,
    log: watch::Sender<Vec<String>>,
    hold: watch::Sender<Hold>,
    halves: watch::Sender<Vec<String>>,
}

impl Shared {
    fn pages(&self) -> MutexGuard<'_, HashMap<String, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Site {
    /// Starts a site without pages.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            pages: Mutex::default(),
            log: watch::Sender::new(Vec::new()),
            hold: watch::Sender::new(Hold::Nothing),
            halves: watch::Sender::new(Vec::new()),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        Ok(Self { address, shared })
    }

    /// With a page at `path`.
    pub fn with(self, path: &str, page: Page) -> Self {
        self.shared.pages().insert(path.to_owned(), page);
        self
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on these answers wait; those that waited under the last word are let go.
    pub fn hold(&self, hold: Hold) {
        self.shared.hold.send_replace(hold);
    }

    /// Lets every held answer go.
    pub fn release(&self) {
        self.hold(Hold::Nothing);
    }

    /// `METHOD target` of every request so far, beacons included.
    pub fn log(&self) -> Vec<String> {
        self.shared.log.borrow().clone()
    }

    /// How many requests so far have `word` in their target.
    pub fn count(&self, word: &str) -> usize {
        self.shared.log.borrow().iter().filter(|line| line.contains(word)).count()
    }

    /// How many requests so far have a target that ends with `word`: keys that begin alike are told apart.
    pub fn count_ending(&self, word: &str) -> usize {
        self.shared.log.borrow().iter().filter(|line| line.ends_with(word)).count()
    }

    /// Waits until a request with `word` in its target has come; `false` when none did `within` that time.
    pub async fn sees(&self, word: &str, within: Duration) -> bool {
        has(&self.shared.log, word, within).await
    }

    /// Waits until an answer with `word` in its target is halfway out; `false` when none was `within` that time.
    pub async fn answers_half(&self, word: &str, within: Duration) -> bool {
        has(&self.shared.halves, word, within).await
    }
}

async fn has(lines: &watch::Sender<Vec<String>>, word: &str, within: Duration) -> bool {
    let mut lines = lines.subscribe();
    timeout(within, lines.wait_for(|lines| lines.iter().any(|line| line.contains(word)))).await.is_ok()
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut buffer).await {
        let line = head.lines().next().unwrap_or_default();
        let (method, target) = line.split_once(' ').unwrap_or(("", line));
        let target = target.rsplit_once(' ').map_or(target, |(target, _)| target).to_owned();
        let entry = format!("{method} {target}");
        shared.log.send_modify(|log| log.push(entry));
        if !read_body(&mut stream, &mut buffer, &head).await {
            return;
        }
        let (head, body) = answer(&shared, &target);
        let mut hold = shared.hold.subscribe();
        if hold.wait_for(|hold| !hold.answer(&target)).await.is_err() || stream.write_all(&head).await.is_err() {
            return;
        }
        let half = body.len() / 2;
        let sent = async {
            stream.write_all(&body[..half]).await?;
            shared.halves.send_modify(|halves| halves.push(target.clone()));
            let _ = hold.wait_for(|hold| !hold.body(&target)).await;
            stream.write_all(&body[half..]).await
        };
        if sent.await.is_err() {
            return;
        }
    }
}

fn answer(shared: &Shared, target: &str) -> (Vec<u8>, Vec<u8>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let page = shared.pages().get(path).cloned();
    let page = page.unwrap_or_else(|| Page::new(if path == "/said" { 200 } else { 404 }, Vec::new()));
    let key = query.split('&').find_map(|pair| pair.strip_prefix("key=")).unwrap_or_default();
    let body = match std::str::from_utf8(&page.body) {
        Ok(text) => text.replace("{KEY}", key).into_bytes(),
        Err(_) => page.body,
    };
    let (status, length) = (page.status, body.len());
    let mut lines = vec![format!("HTTP/1.1 {status} X"), format!("content-length: {length}"), "cache-control: no-store".to_owned()];
    lines.extend(page.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    (format!("{}\r\n\r\n", lines.join("\r\n")).into_bytes(), body)
}

/// Longest head and longest silence of a client of the test's own.
const HEAD_BYTES: usize = 64 * 1024;
const SILENCE: Duration = Duration::from_mins(5);

async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = buffer.drain(..end + 4).collect::<Vec<_>>();
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        let read = timeout(SILENCE, stream.read_buf(buffer)).await.ok()?.ok()?;
        if read == 0 || buffer.len() > HEAD_BYTES {
            return None;
        }
    }
}

async fn read_body(stream: &mut TcpStream, buffer: &mut Vec<u8>, head: &str) -> bool {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let length =
        fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).find_map(|(_, value)| value.trim().parse().ok());
    let length: usize = length.unwrap_or(0);
    while buffer.len() < length {
        if !matches!(timeout(SILENCE, stream.read_buf(buffer)).await, Ok(Ok(1..))) {
            return false;
        }
    }
    buffer.drain(..length);
    true
}
