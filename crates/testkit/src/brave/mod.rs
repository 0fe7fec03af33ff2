//! A Brave of our own on loopback: real TLS under a root of its own, its path, its checks, and every way to answer that
//! vendors/search.md knows.
//!
//! It is strict: a request that isn't exactly right is a violation, and one that nobody asked for by [`FakeBrave::violations`] fails
//! the test when the fake is dropped. A word in the query chooses the answer (`scenario:quota`, see [`SCENARIOS`]), or a test hands
//! one in ([`FakeBrave::answer`]). A send is on the log as soon as its head has arrived, so a held one counts.
//!
//! Results are invented here.

mod answer;
mod rules;
mod script;
mod tls;

use std::{
    collections::HashSet,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    sync::watch,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

pub use answer::{Answer, End};
pub use script::SCENARIOS;

/// Its name, as `--name` of the server under test and a map of names want it.
pub const NAME: &str = "api.search.brave.com:443";

/// A key it takes; any that begins with `BSA` is good until it is revoked.
pub const KEY: &str = "BSA-formation-fixture-key";

/// One request that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// What was searched for, decoded.
    pub query: String,
    /// `count`, as it was sent.
    pub count: String,
    /// The key.
    pub key: String,
    /// The request line and the headers, lines parted by `\n`.
    pub head: String,
    /// Which connection it came on, counted from 1.
    pub connection: usize,
}

/// A running fake. It ends with the runtime it was started on.
#[derive(Debug)]
pub struct FakeBrave {
    address: SocketAddr,
    authority: tls::Authority,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sent: watch::Sender<Vec<Sent>>,
    held: watch::Sender<Option<String>>,
    answers: Mutex<Vec<(String, Answer)>>,
    violations: Mutex<Vec<String>>,
    revoked: Mutex<HashSet<String>>,
    /// Characters and words of a query.
    limits: Mutex<(usize, usize)>,
    delay: Mutex<Duration>,
    connections: AtomicUsize,
    /// Whether connections are taken and nothing on them is read.
    deaf: watch::Sender<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeBrave {
    /// On a free port.
    pub async fn start() -> anyhow::Result<Self> {
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// With a certificate for another name, which nobody who wants Brave should take.
    pub async fn start_as(host: &str) -> anyhow::Result<Self> {
        Self::serve(SocketAddr::from(([127, 0, 0, 1], 0)), host).await
    }

    /// On `address`.
    pub async fn listen(address: SocketAddr) -> anyhow::Result<Self> {
        Self::serve(address, "api.search.brave.com").await
    }

    async fn serve(address: SocketAddr, host: &str) -> anyhow::Result<Self> {
        let (authority, config) = tls::Authority::for_host(host)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            sent: watch::Sender::new(Vec::new()),
            held: watch::Sender::new(None),
            answers: Mutex::default(),
            violations: Mutex::default(),
            revoked: Mutex::default(),
            limits: Mutex::new((600, 75)),
            delay: Mutex::default(),
            connections: AtomicUsize::new(0),
            deaf: watch::Sender::new(false),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), serving.clone());
                tokio::spawn(async move {
                    drop(stream.set_nodelay(true));
                    // A handshake that fails is the client's verdict on us, which its own side shows.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, &shared).await;
                    }
                });
            }
        });
        Ok(Self { address, authority, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The root that signed its certificate, as DER.
    pub fn ca(&self) -> Vec<u8> {
        self.authority.der().to_vec()
    }

    /// The same as PEM, in a file: for `--root-ca` of the server under test.
    pub fn ca_file(&self) -> &Path {
        self.authority.file()
    }

    /// Every request so far, in the order they came.
    pub fn sends(&self) -> Vec<Sent> {
        self.shared.sent.borrow().clone()
    }

    /// How many requests so far have `word` in their query.
    pub fn count(&self, word: &str) -> usize {
        self.shared.sent.borrow().iter().filter(|sent| sent.query.contains(word)).count()
    }

    /// Waits until a request with `word` in its query has come; `false` when none did `within` that time.
    pub async fn sees(&self, word: &str, within: Duration) -> bool {
        let mut sent = self.shared.sent.subscribe();
        timeout(within, sent.wait_for(|sent| sent.iter().any(|sent| sent.query.contains(word)))).await.is_ok()
    }

    /// From now on answers to queries that contain `word` wait; the empty word is in all of them.
    pub fn hold(&self, word: &str) {
        self.shared.held.send_replace(Some(word.to_owned()));
    }

    /// From now on connections are taken, TLS and all, and nothing on them is ever read: a request stays in between.
    pub fn stop_reading(&self) {
        self.shared.deaf.send_replace(true);
    }

    /// How many connections have been taken so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Lets every held answer go; hangs up what was not to be read, and reads again.
    pub fn release(&self) {
        self.shared.held.send_replace(None);
        self.shared.deaf.send_replace(false);
    }

    /// Answers queries that contain `word` so from now on, whatever scenario they name. The newest word that fits counts.
    pub fn answer(&self, word: &str, answer: Answer) {
        lock(&self.shared.answers).push((word.to_owned(), answer));
    }

    /// From now on each answer takes so long.
    pub fn delay(&self, by: Duration) {
        *lock(&self.shared.delay) = by;
    }

    /// From now on this key is a bad one.
    pub fn revoke(&self, key: &str) {
        lock(&self.shared.revoked).insert(key.to_owned());
    }

    /// Takes queries of that many characters and words; 600 and 75 at the start, 400 and 50 on older plans.
    pub fn limit_queries(&self, characters: usize, words: usize) {
        *lock(&self.shared.limits) = (characters, words);
    }

    /// What was wrong with requests since this was last asked. Not asking fails the test at the end.
    pub fn violations(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.violations))
    }
}

impl Drop for FakeBrave {
    fn drop(&mut self) {
        let violations = self.violations();
        assert!(violations.is_empty() || std::thread::panicking(), "requests were not right: {violations:#?}");
    }
}

/// Longest silence of a client.
const SILENCE: Duration = Duration::from_mins(5);

async fn serve(mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>, shared: &Shared) {
    let connection = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
    let mut deaf = shared.deaf.subscribe();
    if *deaf.borrow() {
        // What it was sent stays unread for good; an error is the end of the fake.
        let _ = deaf.wait_for(|deaf| !deaf).await;
        return;
    }
    let mut buffer = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut buffer).await {
        let request = rules::Request::read(&head, buffer.len());
        lock(&shared.violations).extend(request.violations.iter().cloned());
        let (query, key) = (request.query.clone(), request.key.clone());
        let sent = Sent { query: query.clone(), count: request.count.clone(), key, head, connection };
        shared.sent.send_modify(|log| log.push(sent));
        let mut held = shared.held.subscribe();
        if held.wait_for(|held| held.as_ref().is_none_or(|word| !query.contains(word.as_str()))).await.is_err() {
            return;
        }
        let delay = *lock(&shared.delay);
        tokio::time::sleep(delay).await;
        let answer = choose(shared, &request);
        if !write(&mut stream, answer, request.takes_gzip).await {
            return;
        }
    }
}

fn choose(shared: &Shared, request: &rules::Request) -> Answer {
    let own = lock(&shared.answers).iter().rev().find(|(word, _)| request.query.contains(word)).map(|(_, answer)| answer.clone());
    if let Some(answer) = own {
        return answer;
    }
    let is_good = request.key.starts_with("BSA") && !lock(&shared.revoked).contains(&request.key);
    let (characters, words) = *lock(&shared.limits);
    let is_long = request.query.chars().count() > characters || request.query.split_whitespace().count() > words;
    if request.key.is_empty() {
        script::key_missing()
    } else if !is_good {
        script::bad_key()
    } else if is_long || !request.violations.is_empty() {
        script::not_valid()
    } else {
        script::answer(request).unwrap_or_else(|unknown| {
            lock(&shared.violations).push(format!("no scenario is called `{unknown}`"));
            script::not_valid()
        })
    }
}

async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = buffer.drain(..end + 4).collect::<Vec<_>>();
            return Some(String::from_utf8_lossy(&head[..end]).replace("\r\n", "\n"));
        }
        let read = timeout(SILENCE, stream.read_buf(buffer)).await.ok()?.ok()?;
        if read == 0 || buffer.len() > 64 * 1024 {
            return None;
        }
    }
}

/// Writes an answer the way it ends; whether the connection is good for another.
async fn write(stream: &mut (impl AsyncWrite + Unpin), answer: Answer, takes_gzip: bool) -> bool {
    let end = answer.end;
    let (head, body) = answer.into_bytes(takes_gzip);
    let written = async {
        match end {
            End::Silence => tokio::time::sleep(SILENCE).await,
            End::HangUp => {}
            End::Whole | End::Close => {
                stream.write_all(&head).await?;
                stream.write_all(&body).await?;
            }
            End::Stall | End::Cut => {
                stream.write_all(&head).await?;
                stream.write_all(&body[..body.len() / 2]).await?;
                stream.flush().await?;
                if end == End::Stall {
                    tokio::time::sleep(SILENCE).await;
                }
            }
            End::Endless => {
                stream.write_all(&head).await?;
                let chunk = format!("{:x}\r\n{}\r\n", body.len(), String::from_utf8_lossy(&body));
                loop {
                    stream.write_all(chunk.as_bytes()).await?;
                }
            }
        }
        stream.flush().await
    };
    let is_written = written.await.is_ok();
    if end != End::Whole {
        drop(stream.shutdown().await);
    }
    is_written && end == End::Whole
}
