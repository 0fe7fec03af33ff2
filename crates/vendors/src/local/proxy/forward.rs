//! Plain HTTP: the request goes on as it came, minus what belongs to one connection.

use std::sync::Arc;

use bytes::Bytes;
use formation_core::failure::Reason;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{self, CONNECTION, HOST, UPGRADE},
    uri::{PathAndQuery, Scheme},
};
use http_body_util::{Either, Full};
use hyper::{body::Incoming, client::conn::http1, upgrade};
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;

use super::{Body, IDLE, Idle, Shared, Unanswered, short, tie};

/// Answered from the binary, so that a first call works without a network.
const HELLO: &str = "hello.formation.test";
const HELLO_PAGE: &str = include_str!("hello.html");

/// Headers about one connection, beside those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    UPGRADE,
];

/// Sends a request on and its answer back. Refused, or nobody there: no answer. Sent and no answer came: 502, which a browser
/// doesn't take for an invitation to send it again.
pub(super) async fn forward(
    shared: &Arc<Shared>,
    slot: Arc<OwnedSemaphorePermit>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Unanswered> {
    let uri = request.uri();
    // A request that names no host was made to a web server, which this isn't.
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else { return Err(Unanswered) };
    if *scheme != Scheme::HTTP || authority.as_str().contains('@') {
        return Err(Unanswered);
    }
    let host = authority.host().to_owned();
    let port = authority.port_u16().unwrap_or(80);
    if port == 80 && host.strip_suffix('.').unwrap_or(&host).eq_ignore_ascii_case(HELLO) {
        shared.admit(&host, port).map_err(|_| Unanswered)?;
        return Ok(hello(request.method(), uri.path()));
    }
    let stream = shared.reach(&host, port).await.map_err(|_| Unanswered)?;
    Ok(send(shared, Idle::new(stream, IDLE), slot, request).await.unwrap_or_else(|_| {
        shared.refuse(&host, port, Reason::ConnectionFailed);
        short(StatusCode::BAD_GATEWAY)
    }))
}

#[expect(clippy::disallowed_methods, reason = "the stream is one that `wire` has dialled")]
async fn send(
    shared: &Arc<Shared>,
    stream: Idle<tokio::net::TcpStream>,
    slot: Arc<OwnedSemaphorePermit>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let (mut sender, connection) =
        http1::Builder::new().preserve_header_case(true).handshake::<_, Incoming>(TokioIo::new(stream)).await?;
    shared.spawn(async move { drop(connection.with_upgrades().await) });
    let wants_upgrade = upgrade_of(request.headers());
    let client = wants_upgrade.is_some().then(|| upgrade::on(&mut request));
    let mut response = sender.send_request(onward(request, wants_upgrade.as_ref())).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else { return Ok(short(StatusCode::BAD_GATEWAY)) };
        let upstream = upgrade::on(&mut response);
        shared.spawn(async move {
            if let Ok(upstream) = upstream.await {
                tie(client, TokioIo::new(upstream), slot).await;
            }
        });
    }
    let (mut parts, body) = response.into_parts();
    let switched = (parts.status == StatusCode::SWITCHING_PROTOCOLS).then(|| upgrade_of(&parts.headers)).flatten();
    strip(&mut parts.headers, switched.as_ref());
    Ok(Response::from_parts(parts, Either::Left(body)))
}

/// The request as its server expects it: path only, host from the address that was judged, nothing about this connection.
fn onward(request: Request<Incoming>, wants_upgrade: Option<&HeaderValue>) -> Request<Incoming> {
    let (mut parts, body) = request.into_parts();
    strip(&mut parts.headers, wants_upgrade);
    if wants_upgrade.is_none() {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    // Never the header the page's process sent: it could name a host that the list doesn't have.
    if let Some(host) = parts.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        parts.headers.insert(HOST, host);
    }
    parts.uri = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")).into();
    // A page's browser may speak HTTP/1.0 to us; what we speak is our business.
    parts.version = http::Version::HTTP_11;
    Request::from_parts(parts, body)
}

/// What a message wants to become, when it says so properly.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    named.map(str::trim).any(|name| name.eq_ignore_ascii_case("upgrade")).then(|| headers.get(UPGRADE).cloned()).flatten()
}

/// Removes what belongs to one connection, and puts an upgrade back.
fn strip(headers: &mut HeaderMap, kept_upgrade: Option<&HeaderValue>) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if let Some(upgrade) = kept_upgrade {
        headers.insert(UPGRADE, upgrade.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

fn hello(method: &Method, path: &str) -> Response<Body> {
    let status = match (method, path) {
        (&Method::GET | &Method::HEAD, "/") => StatusCode::OK,
        (&Method::GET | &Method::HEAD, _) => StatusCode::NOT_FOUND,
        _ => StatusCode::METHOD_NOT_ALLOWED,
    };
    let text = if status == StatusCode::OK { HELLO_PAGE } else { "There is only the page at /." };
    let kind = if status == StatusCode::OK { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
    let mut response = Response::new(Either::Right(Full::new(Bytes::from_static(text.as_bytes()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
