//! The filtering proxy of one session: the browser's only way out.
//!
//! It judges every request by host name and every connection by the address it is about to dial, so redirects, frames,
//! subresources, workers and `WebSockets` meet the same rules as the page. It looks into nothing: TLS runs through it.
//!
//! It listens on loopback, and Chromium can't be given a password for it; another user of this machine who finds the port gets
//! what that user can reach anyway, minus what the policy refuses.

mod forward;
mod idle;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use formation_browser::ProxyRefusals;
use formation_core::{failure::Reason, hostlist::HostList};
use formation_wire::Dialler;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::service_fn,
    upgrade::{self, OnUpgrade},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;

use super::refusals::Refusals;
use idle::Idle;

/// A connection on which nothing moves for this long is closed.
const IDLE: Duration = Duration::from_mins(10);
/// Connections of one session at a time. Chromium keeps to 32 for requests and 255 for `WebSockets`.
const CONNECTIONS: usize = 512;

/// What goes back to the browser: a site's own body as it comes, or a short one of ours.
type Body = Either<Incoming, Full<Bytes>>;

/// A connection that is closed without an answer. An answer of ours to a plain request would be shown as the site's page.
#[derive(Debug, thiserror::Error)]
#[error("closed without an answer")]
struct Unanswered;

/// A running proxy; dropping it ends every connection.
#[derive(Debug)]
pub(super) struct Proxy(Arc<Shared>);

/// What its connections share.
#[derive(Debug)]
pub(super) struct Shared {
    address: SocketAddr,
    hosts: HostList,
    dialler: Dialler,
    refusals: Arc<Refusals>,
    requests: AtomicU64,
    refused: AtomicU64,
    over: CancellationToken,
}

impl Proxy {
    /// Listens on a port of its own. No session's pages reach it or any other session's proxy: it is one of our own sockets.
    pub(super) async fn start(hosts: HostList, dialler: Dialler) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        dialler.policy().forbidden.add(address);
        let shared = Arc::new(Shared {
            address,
            hosts,
            dialler,
            refusals: Arc::default(),
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            over: CancellationToken::new(),
        });
        tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self(shared))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.over.cancel();
        self.0.dialler.policy().forbidden.remove(self.0.address);
    }
}

impl Shared {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn refusals(&self) -> Arc<dyn ProxyRefusals> {
        self.refusals.clone()
    }

    /// Whether the list has `host`; a refusal is kept.
    fn admit(&self, host: &str, port: u16) -> Result<(), Reason> {
        if self.hosts.allows(host) { Ok(()) } else { Err(self.refuse(host, port, Reason::HostnameNotAllowed)) }
    }

    /// Connects where the policy lets it; a failure is kept with its reason.
    async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, Reason> {
        self.admit(host, port)?;
        self.dialler.connect(host, port).await.map_err(|error| self.refuse(host, port, error.reason()))
    }

    fn refuse(&self, host: &str, port: u16, reason: Reason) -> Reason {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.refusals.put(host, port, reason);
        reason
    }

    /// Runs `work` beside the connection it belongs to, until it ends or the session does.
    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let over = self.over.clone();
        tokio::spawn(async move { over.run_until_cancelled(work).await });
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let serving = async {
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => shared.spawn(serve(Arc::clone(&shared), stream, Arc::new(slot))),
                // Out of file descriptors, or a client that left before it was greeted; neither is a reason to stop listening.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    shared.over.run_until_cancelled(serving).await;
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, slot: Arc<OwnedSemaphorePermit>) {
    // Small writes of two ends that wait for each other.
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| answer(Arc::clone(&shared), Arc::clone(&slot), request));
    let connection = http1::Builder::new()
        // One request a connection: on a kept one Chromium sends a request again by itself when it is closed without an answer.
        .keep_alive(false)
        .auto_date_header(false)
        .preserve_header_case(true)
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(Idle::new(stream, IDLE)), service)
        .with_upgrades();
    // How a connection of a page ends is the page's business; refusals are counted where they are made.
    drop(connection.await);
}

async fn answer(
    shared: Arc<Shared>,
    slot: Arc<OwnedSemaphorePermit>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Unanswered> {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    if request.method() == Method::CONNECT {
        Ok(connect(&shared, slot, request).await)
    } else {
        forward::forward(&shared, slot, request).await
    }
}

/// Opens a tunnel: how TLS and `WebSockets` go.
async fn connect(shared: &Arc<Shared>, slot: Arc<OwnedSemaphorePermit>, request: Request<Incoming>) -> Response<Body> {
    let Some((host, port)) = request.uri().authority().and_then(|authority| {
        // What stands before an `@` is for some readers the host.
        let bare = !authority.as_str().contains('@');
        authority.port_u16().filter(|_| bare).map(|port| (authority.host().to_owned(), port))
    }) else {
        return short(StatusCode::BAD_REQUEST);
    };
    match shared.reach(&host, port).await {
        Ok(stream) => {
            let client = upgrade::on(request);
            shared.spawn(tie(client, stream, slot));
            short(StatusCode::OK)
        }
        Err(Reason::HostnameNotAllowed | Reason::AddressNotAllowed) => short(StatusCode::FORBIDDEN),
        Err(_) => short(StatusCode::BAD_GATEWAY),
    }
}

/// Carries bytes both ways until either end is done or nothing has moved for long.
async fn tie(
    client: OnUpgrade,
    mut server: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    slot: Arc<OwnedSemaphorePermit>,
) {
    if let Ok(client) = client.await {
        // A tunnel that breaks is seen at both of its ends.
        drop(copy_bidirectional(&mut Idle::new(TokioIo::new(client), IDLE), &mut server).await);
    }
    drop(slot);
}

/// An answer without a body.
fn short(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::default()));
    *response.status_mut() = status;
    response
}
