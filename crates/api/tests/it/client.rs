//! A server with routes of the test's own behind the real door and loop, and a client that speaks bytes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{FromRef, State},
};
use formation_api::{App, Body, ServerConfig, Timers};
use formation_core::Entropy;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_util::sync::CancellationToken;
use utoipa_axum::{router::OpenApiRouter, routes};

/// A body every route of ours could have.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parcel {
    /// Anything.
    #[serde(default)]
    pub(crate) content: serde_json::Value,
}

#[derive(Debug, Clone)]
struct Shared {
    timers: Timers,
    begun: Arc<Notify>,
}

impl FromRef<Shared> for Timers {
    fn from_ref(shared: &Shared) -> Self {
        shared.timers
    }
}

#[utoipa::path(post, path = "/parcels")]
async fn take(Body(parcel): Body<Parcel>) -> Json<Parcel> {
    Json(parcel)
}

#[utoipa::path(get, path = "/parcels")]
async fn give() -> String {
    "parcel ".repeat(64 * 1024)
}

/// Says that it has begun, and answers after a second.
#[utoipa::path(get, path = "/slowly")]
async fn slowly(State(shared): State<Shared>) -> &'static str {
    shared.begun.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    "at last"
}

/// A server of the test's own; it ends with the value.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Notified when `/slowly` has begun.
    pub(crate) begun: Arc<Notify>,
    pub(crate) stop: CancellationToken,
    pub(crate) task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Starts on a free port of loopback.
    pub(crate) async fn start(adjust: impl FnOnce(&mut ServerConfig)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound address");
        let public = url::Url::parse(&format!("http://{address}")).expect("a URL");
        let mut config = ServerConfig::new(public, address, Entropy::counting(7));
        adjust(&mut config);
        let begun = Arc::new(Notify::new());
        let (router, _) = OpenApiRouter::new().routes(routes!(take, give)).routes(routes!(slowly)).split_for_parts();
        let router: Router = router.with_state(Shared { timers: config.timers, begun: Arc::clone(&begun) });
        let app = App::around(router, &config, CancellationToken::new());
        let stop = CancellationToken::new();
        let task = tokio::spawn(formation_api::serve(listener, app, config, stop.clone()));
        Self { address, begun, stop, task }
    }

    /// A fresh connection.
    #[expect(clippy::disallowed_methods, reason = "the test is the client")]
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the server listens")
    }

    /// A request's head, with the Host the door wants and `lines` of the test's own.
    pub(crate) fn head(&self, request_line: &str, lines: &[&str]) -> String {
        let host = format!("host: {}", self.address);
        let lines: Vec<&str> = std::iter::once(host.as_str()).chain(lines.iter().copied()).collect();
        format!("{request_line} HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"))
    }

    /// Sends `bytes` on a connection of their own and reads to the end, or to the end of an answer of known length.
    pub(crate) async fn ask(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect().await;
        let (mut reading, mut writing) = stream.split();
        let write = async {
            // A server that refuses stops reading: the rest of the request is lost, which is the point.
            let _ = writing.write_all(bytes).await;
        };
        let (reply, ()) = tokio::join!(Reply::read(&mut reading), write);
        reply
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    /// Reads one answer, bounded to ten seconds.
    pub(crate) async fn read(reading: &mut (impl AsyncReadExt + Unpin)) -> Self {
        let mut bytes = Vec::new();
        let read = async {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = reading.read(&mut buffer).await {
                bytes.extend_from_slice(&buffer[..count]);
                if Self::is_whole(&bytes) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), read).await.expect("an answer within ten seconds");
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn is_whole(bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length =
            head.to_ascii_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        length.is_some_and(|length| body.len() >= length)
    }

    /// The problem's code, or nothing.
    pub(crate) fn code(&self) -> String {
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }
}
