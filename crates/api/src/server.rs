//! The accept loop: HTTP/1.1 with a bound on everything a peer can make us wait for or hold.
//!
//! `axum::serve` sets no timer, so hyper's own header timeout does nothing there; here each connection has one. A head must be
//! complete within [`Timers::head`], a body within [`Timers::body`] (the guard sees to that one), and an answer that the peer does not
//! read for [`Timers::write`] ends the connection. Past [`ServerConfig::connections`] a newcomer gets 503 `overloaded` at once.
//!
//! What hyper answers by itself, with an empty body: 400 for what is not HTTP, 414 for a target past 65,534 bytes, 431 for a head
//! past [`HEAD_BUFFER`] or of more than 100 lines. Smaller excesses meet the door ([`crate::door`]) and get a problem.

mod shed;
mod socket;

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body, response::Response};
use formation_core::Entropy;
use futures::FutureExt;
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use url::Url;

use crate::{
    door::{self, Door},
    health::Checks,
    measure,
    problem::Problem,
};

/// What hyper buffers of a head before it gives up.
pub const HEAD_BUFFER: usize = 96 * 1024;

/// How the server listens and what it is called.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// How callers reach it: gives the allowed Host and Origin (contract.md 1).
    pub public_url: Url,
    /// The address it listens on, with the port that was really bound.
    pub listen: SocketAddr,
    /// Where request ids come from.
    pub entropy: Entropy,
    /// How long peers may take.
    pub timers: Timers,
    /// How many connections are served at once; the next one gets 503 `overloaded`.
    pub connections: usize,
    /// What `GET /api/health` tries.
    pub checks: Checks,
}

impl ServerConfig {
    /// With the timers of the contract and room for 2,048 connections.
    pub fn new(public_url: Url, listen: SocketAddr, entropy: Entropy) -> Self {
        Self { public_url, listen, entropy, timers: Timers::default(), connections: 2_048, checks: Checks::none() }
    }
}

/// How long peers may take; tests shrink them.
#[derive(Debug, Clone, Copy)]
pub struct Timers {
    /// From the moment a head is awaited to its last byte; an idle connection ends by it too.
    pub head: Duration,
    /// For a whole body.
    pub body: Duration,
    /// For a peer that reads nothing while we have something to say.
    pub write: Duration,
    /// How long the rest of a refused request is swallowed after the answer, so that the peer gets to read it.
    pub linger: Duration,
    /// A tool call that takes longer is answered as a stream, with comments that keep the connection alive.
    pub quiet: Duration,
    /// Between two such comments, and on the stream of notices.
    pub keep_alive: Duration,
    /// What open connections have to end in when the server stops.
    pub shutdown: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(15),
            body: Duration::from_secs(30),
            write: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            quiet: Duration::from_secs(10),
            keep_alive: Duration::from_secs(15),
            shutdown: Duration::from_secs(15),
        }
    }
}

/// Routes behind the door. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    door: Arc<Door>,
    router: Router,
    /// Cancelled when the server begins to stop: streams that would go on for ever end.
    closing: CancellationToken,
}

impl App {
    /// Puts `router` behind the door. Its streams end when `closing` is cancelled, which [`serve`] does when it begins to stop.
    pub fn around(router: Router, config: &ServerConfig, closing: CancellationToken) -> Self {
        Self { door: Arc::new(Door::new(config)), router, closing }
    }

    /// The same for a listener that answers to any name.
    pub(crate) fn of_any_name(router: Router, config: &ServerConfig) -> Self {
        Self { door: Arc::new(Door::of_any_name(config)), router, closing: CancellationToken::new() }
    }

    /// Answers one request.
    pub async fn answer(&self, mut request: Request<Body>) -> Response {
        let id = self.door.request_id();
        request.extensions_mut().insert(door::RequestId(id.clone()));
        let span = tracing::info_span!("request", request.id = %id, http.method = %request.method());
        async {
            let began = tokio::time::Instant::now();
            let response = door::finish(self.route(request).await, &id);
            let route = response.extensions().get::<Matched>().map_or("", |matched| &matched.0);
            measure::answered(route, response.status());
            let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(http.route = route, http.status = response.status().as_u16(), duration_ms = milliseconds, "answered");
            response
        }
        .instrument(span)
        .await
    }

    async fn route(&self, request: Request<Body>) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        self.door.check(&parts)?;
        let routed = tower::ServiceExt::oneshot(self.router.clone(), Request::from_parts(parts, body));
        match std::panic::AssertUnwindSafe(routed).catch_unwind().await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(_) => {
                tracing::error!("a handler panicked");
                Err(Problem::new(formation_core::refusal::Code::Internal))
            }
        }
    }
}

/// Where a request came from: the other end of its connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The template of the route that answered, for the log.
#[derive(Debug, Clone)]
pub(crate) struct Matched(pub(crate) String);

/// Serves `app` until `shutdown` is cancelled and the open connections have ended, or had [`Timers::shutdown`] to do so.
pub async fn serve(listener: TcpListener, app: App, config: ServerConfig, shutdown: CancellationToken) {
    let room = Arc::new(Semaphore::new(config.connections));
    let shedding = Arc::new(Semaphore::new(shed::AT_ONCE));
    let mut connections = JoinSet::new();
    let mut upkeep = tokio::time::interval(measure::UPKEEP);
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: the waiting peer stays in the queue while others end.
                    tracing::warn!(error.kind = ?error.kind(), "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            _ = upkeep.tick() => {
                measure::keep_up();
                continue;
            }
            () = shutdown.cancelled() => break,
        };
        // Small answers leave at once; a peer that went meanwhile shows at the first read.
        let _ = stream.set_nodelay(true);
        if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
            let connection = connection(stream, peer.ip(), app.clone(), config.timers, shutdown.clone());
            connections.spawn(async move {
                connection.await;
                drop(permit);
            });
        } else if let Ok(permit) = Arc::clone(&shedding).try_acquire_owned() {
            connections.spawn(async move {
                shed::turn_away(stream).await;
                drop(permit);
            });
        }
    }
    drop(listener);
    app.closing.cancel();
    let ended = tokio::time::timeout(config.timers.shutdown, async { while connections.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        tracing::warn!(connections = connections.len(), "connections were cut");
        connections.shutdown().await;
    }
}

/// One connection, from its first byte to its end.
async fn connection(stream: TcpStream, peer: IpAddr, app: App, timers: Timers, shutdown: CancellationToken) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        let app = app.clone();
        request.extensions_mut().insert(Peer(peer));
        async move { Ok::<_, Infallible>(app.answer(request.map(Body::new)).await) }
    });
    let socket = TokioIo::new(socket::Socket::new(stream, timers.write, timers.linger));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timers.head)
        .max_buf_size(HEAD_BUFFER)
        .serve_connection(socket, service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A peer that hung up, was too slow or did not speak HTTP: nothing to tell and nobody to tell it to.
    if let Err(error) = ended {
        tracing::debug!(timed_out = error.is_timeout(), parse = error.is_parse(), "a connection ended early");
    }
}
