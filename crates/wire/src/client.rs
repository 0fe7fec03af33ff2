//! A bounded HTTP client for one origin: no redirects, no proxies, no repeats, no endless replies.
//!
//! A connection is kept for the next request. One that the other side has closed meanwhile is replaced before anything of a
//! request is written; once a byte of it may have left, a broken connection is an error and nothing is sent again.

use std::{fmt, io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use formation_core::{Secret, limits};
use reqwest::{
    Method,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
    redirect, retry,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::{Host, Url};

use crate::Outside;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept: shorter than the patience of what lies between us and a vendor.
const IDLE: Duration = Duration::from_secs(30);
/// What a vendor is told of us.
const AGENT: &str = concat!("formation/", env!("CARGO_PKG_VERSION"));

/// Why there is no reply. No variant holds a text of the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The origin is neither `https` nor plain HTTP on this machine, or carries more than an origin.
    #[error("the server must be an https URL, or an http URL of this machine")]
    Origin,
    /// No TLS client could be made; the process has no provider or no roots.
    #[error("TLS is not available")]
    Tls,
    /// No connection was made; nothing was sent.
    #[error("no connection to the server")]
    NotConnected,
    /// Sent, perhaps; no whole reply came.
    #[error("the connection broke before the reply was complete")]
    Broken,
    /// Sent; no reply in time.
    #[error("the server did not answer in time")]
    Late,
    /// The reply is over the limit.
    #[error("the reply is too large")]
    TooLarge,
    /// The reply is not what was expected.
    #[error("the reply has another shape than expected")]
    Shape,
    /// The credential has bytes that no header can carry; nothing was sent.
    #[error("the credential can't be sent in a header")]
    Credential,
}

/// A whole reply. `Debug` shows no text of the other side.
#[derive(Clone)]
pub struct Reply {
    /// The status.
    pub status: u16,
    headers: HeaderMap,
    /// The body, decompressed.
    pub body: Bytes,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl Reply {
    /// Reads the body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body).map_err(|_| ClientError::Shape)
    }

    /// The first header of that name, if it is visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Speaks to one origin.
#[derive(Debug, Clone)]
pub struct Client {
    origin: Url,
    http: reqwest::Client,
    /// Of a reply that is no success, what is kept; the rest isn't read.
    error_bytes: Option<usize>,
}

impl Client {
    /// For `origin`: an `https` URL, or an `http` URL whose host is a loopback address or `localhost`, which then means loopback
    /// whatever the resolver thinks. A token would cross the network in the clear otherwise.
    pub fn new(origin: &Url) -> Result<Self, ClientError> {
        let is_loopback = match origin.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        if !is_bare(origin) || !(origin.scheme() == "https" || (origin.scheme() == "http" && is_loopback)) {
            return Err(ClientError::Origin);
        }
        let port = origin.port_or_known_default().unwrap_or(443);
        let http = bounded()
            .https_only(origin.scheme() == "https")
            .resolve_to_addrs(
                "localhost",
                &[SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port))],
            )
            .build()
            .map_err(|_| ClientError::Tls)?;
        Ok(Self { origin: origin.clone(), http, error_bytes: None })
    }

    /// For a vendor's fixed `https` origin, reached as `outside` says. Of an error body 16 KiB are read and no more.
    ///
    /// HTTP/1.1: a call has its connection to itself, so one that breaks or stalls takes no other call with it.
    pub fn vendor(origin: &str, outside: &Outside) -> Result<Self, ClientError> {
        let origin = Url::parse(origin).map_err(|_| ClientError::Origin)?;
        if origin.scheme() != "https" || !is_bare(&origin) {
            return Err(ClientError::Origin);
        }
        let port = origin.port_or_known_default().unwrap_or(443);
        let http = outside
            .roots()
            .and_then(|roots| {
                bounded()
                    .https_only(true)
                    .http1_only()
                    .pool_idle_timeout(IDLE)
                    .user_agent(AGENT)
                    .tls_certs_only(roots)
                    .dns_resolver(outside.names_for(port))
                    .build()
            })
            .map_err(|_| ClientError::Tls)?;
        Ok(Self { origin, http, error_bytes: Some(limits::WIRE_ERROR_BYTES) })
    }

    /// Sends one request and reads at most `limit` bytes of its reply, all within `wait`. Every status is a reply.
    ///
    /// `path` is our own and starts with `/`.
    pub async fn send(&self, request: Request<'_>, limit: usize, wait: Duration) -> Result<Reply, ClientError> {
        let mut url = self.origin.join(request.path).map_err(|_| ClientError::Origin)?;
        if url.origin() != self.origin.origin() {
            return Err(ClientError::Origin);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(request.query);
        }
        let mut sent = self.http.request(request.method, url).timeout(wait);
        if let Some(credential) = request.credential {
            let (name, value) = credential.header()?;
            sent = sent.header(name, value);
        }
        if let Some(media) = request.accept {
            sent = sent.header(ACCEPT, media);
        }
        if let Some(body) = request.body {
            sent = sent.json(body);
        }
        let answer = sent.send().await.map_err(|error| classify(&error))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = match self.error_bytes {
            Some(most) if !status.is_success() => read(answer, most, Excess::Dropped).await?,
            _ => read(answer, limit, Excess::Refused).await?,
        };
        Ok(Reply { status: status.as_u16(), headers, body })
    }
}

/// What becomes of bytes over a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    Refused,
    Dropped,
}

async fn read(mut answer: reqwest::Response, limit: usize, excess: Excess) -> Result<Bytes, ClientError> {
    if excess == Excess::Refused && answer.content_length().is_some_and(|length| length > limit as u64) {
        return Err(ClientError::TooLarge);
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| classify(&error))? {
        let room = limit - body.len();
        if chunk.len() > room {
            if excess == Excess::Refused {
                return Err(ClientError::TooLarge);
            }
            body.extend_from_slice(&chunk[..room]);
            break;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

/// What every client here has in common.
#[expect(clippy::disallowed_methods, reason = "this is where the ban sends everybody")]
fn bounded() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .connect_timeout(CONNECT)
}

/// Whether a URL is an origin and nothing else.
fn is_bare(origin: &Url) -> bool {
    origin.username().is_empty()
        && origin.password().is_none()
        && origin.path() == "/"
        && origin.query().is_none()
        && origin.fragment().is_none()
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// Below the origin.
    pub path: &'a str,
    /// Goes into the URL, encoded here. No secret belongs there.
    pub query: &'a [(&'a str, &'a str)],
    /// On whose behalf.
    pub credential: Option<Credential<'a>>,
    /// The one media type that is wanted.
    pub accept: Option<&'static str>,
    /// Goes out as JSON.
    pub body: Option<&'a Value>,
}

/// A secret and the header it goes out in, marked as sensitive there.
#[derive(Debug, Clone, Copy)]
pub enum Credential<'a> {
    /// `Authorization: Bearer …`.
    Bearer(&'a Secret),
    /// A header of the vendor's own; its name is in lower case.
    Header(&'static str, &'a Secret),
}

impl<'a> Request<'a> {
    /// Reads `path`.
    pub const fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, query: &[], credential: None, accept: None, body: None }
    }

    /// Posts a body to `path`.
    pub const fn post(path: &'a str, body: &'a Value) -> Self {
        Self { method: Method::POST, path, query: &[], credential: None, accept: None, body: Some(body) }
    }

    /// On behalf of whoever holds `token`.
    pub const fn with_token(mut self, token: &'a Secret) -> Self {
        self.credential = Some(Credential::Bearer(token));
        self
    }
}

impl Credential<'_> {
    /// The one place that exposes a credential: it becomes the header and is wiped by whoever owns it.
    fn header(self) -> Result<(HeaderName, HeaderValue), ClientError> {
        let (name, value) = match self {
            Self::Bearer(token) => (AUTHORIZATION, HeaderValue::from_bytes(&[b"Bearer ", token.expose()].concat())),
            Self::Header(name, key) => (HeaderName::from_static(name), HeaderValue::from_bytes(key.expose())),
        };
        let mut value = value.map_err(|_| ClientError::Credential)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

fn classify(error: &reqwest::Error) -> ClientError {
    if error.is_connect() {
        ClientError::NotConnected
    } else if error.is_timeout() {
        ClientError::Late
    } else if error.is_decode() && is_garbled(error) {
        ClientError::Shape
    } else {
        ClientError::Broken
    }
}

/// Whether it came and could not be decompressed; a connection that breaks during decompression has another cause.
fn is_garbled(error: &reqwest::Error) -> bool {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| matches!(cause.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinHandle,
    };

    use super::*;

    fn client(origin: &str) -> Result<Client, ClientError> {
        crate::install_tls_provider();
        Client::new(&Url::parse(origin).expect("a URL"))
    }

    /// Answers the first connection with `reply` and returns what it was sent.
    async fn server(reply: Vec<u8>) -> (String, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.expect("a request");
            // A client that has seen enough hangs up, which is its right.
            drop(stream.write_all(&reply).await);
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        (format!("http://localhost:{port}/"), served)
    }

    const WAIT: Duration = Duration::from_secs(5);

    #[test]
    fn only_https_or_this_machine_is_an_origin() {
        for good in ["http://127.0.0.1:8420", "http://[::1]:8420/", "http://localhost:8420", "https://formation.example.org"] {
            assert!(client(good).is_ok(), "{good}");
        }
        for bad in [
            "http://formation.example.org",
            "http://10.0.0.1/",
            "http://localhost.example.org/",
            "https://user:pass@example.org/",
            "https://example.org/path",
            "ftp://127.0.0.1/",
        ] {
            assert_eq!(client(bad).map(drop), Err(ClientError::Origin), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_request_carries_its_token_and_body_once() {
        let reply = b"HTTP/1.1 422 Unprocessable\r\ncontent-type: application/json\r\ncontent-length: 8\r\n\r\n{\"a\": 1}";
        let (origin, served) = server(reply.to_vec()).await;
        let token = Secret::new(b"t0ken".to_vec());
        let body = json!({"tool": "browser_read"});
        let request = Request::post("/v1/run/tool-calls", &body).with_token(&token);
        let reply = client(&origin).expect("loopback").send(request, 100, WAIT).await.expect("a reply");
        assert_eq!((reply.status, reply.header("Content-Type")), (422, Some("application/json")));
        assert_eq!(reply.json::<Value>().expect("JSON"), json!({"a": 1}));
        let sent = served.await.expect("served");
        assert!(sent.starts_with("POST /v1/run/tool-calls HTTP/1.1\r\n"), "{sent}");
        assert!(sent.contains("authorization: Bearer t0ken\r\n"), "{sent}");
        assert!(sent.ends_with("{\"tool\":\"browser_read\"}"), "{sent}");
    }

    #[tokio::test]
    async fn a_query_is_encoded_and_a_vendors_header_carries_its_key() {
        let (origin, served) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()).await;
        let key = Secret::new(b"k3y".to_vec());
        let request = Request {
            query: &[("q", "a&b =\n#%+"), ("n", "5")],
            credential: Some(Credential::Header("x-key", &key)),
            accept: Some("application/json"),
            ..Request::get("/search")
        };
        assert!(!format!("{request:?}").contains("k3y"));
        client(&origin).expect("loopback").send(request, 100, WAIT).await.expect("a reply");
        let sent = served.await.expect("served");
        assert!(sent.starts_with("GET /search?q=a%26b+%3D%0A%23%25%2B&n=5 HTTP/1.1\r\n"), "{sent}");
        assert!(sent.contains("x-key: k3y\r\n") && sent.contains("accept: application/json\r\n"), "{sent}");
        let broken = Secret::new(b"two\nlines".to_vec());
        let answer = client(&origin).expect("loopback").send(Request::get("/").with_token(&broken), 100, WAIT).await;
        assert_eq!(answer.map(drop), Err(ClientError::Credential));
    }

    #[test]
    fn a_vendor_is_an_https_origin() {
        crate::install_tls_provider();
        let outside = Outside {
            resolver: std::sync::Arc::new(crate::SystemResolver),
            names: std::sync::Arc::default(),
            only_roots: None,
            call: WAIT,
        };
        assert!(Client::vendor("https://api.example", &outside).is_ok());
        for bad in ["http://127.0.0.1/", "https://api.example/v1", "https://u@api.example/", "api.example"] {
            assert_eq!(Client::vendor(bad, &outside).map(drop), Err(ClientError::Origin), "{bad}");
        }
    }

    #[tokio::test]
    async fn redirects_are_replies_and_long_replies_are_cut() {
        let redirect = b"HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_vec();
        let (origin, _served) = server(redirect).await;
        let reply = client(&origin).expect("loopback").send(Request::get("/"), 100, WAIT).await.expect("a reply");
        assert_eq!(reply.status, 307);
        for head in ["content-length: 101\r\n", ""] {
            let mut long = format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes();
            long.extend_from_slice(&[b'a'; 101]);
            let (origin, _served) = server(long).await;
            let answer = client(&origin).expect("loopback").send(Request::get("/"), 100, WAIT).await;
            assert_eq!(answer.map(drop), Err(ClientError::TooLarge));
        }
    }

    #[tokio::test]
    async fn silence_and_absence_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("bound"));
        let silent = client(&origin).expect("loopback");
        let answer = silent.send(Request::get("/"), 100, Duration::from_millis(200)).await;
        assert_eq!(answer.map(drop), Err(ClientError::Late));
        drop(listener);
        let answer = silent.send(Request::get("/"), 100, WAIT).await;
        assert_eq!(answer.map(drop), Err(ClientError::NotConnected));
        assert_eq!(silent.send(Request::get("//elsewhere.example/"), 100, WAIT).await.map(drop), Err(ClientError::Origin));
    }
}
