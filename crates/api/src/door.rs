//! The door: what every request passes before routing, and every answer after it.
//!
//! Sizes first, then Host and Origin (a page on another site, or a name rebound to this address, reaches no route: S-10), then the
//! request's id, which stands in the log's span, in `X-Request-Id` and in the problems that are our fault. Answers leave with headers
//! that keep browsers from sniffing, framing, caching and telling.
//!
//! A missing, repeated or foreign Host is 403 `forbidden`, like a foreign Origin. A request line or headers past what hyper itself
//! buffers ([`crate::server`]) end in hyper's bare 414 or 431; below that the answer is a problem.

use axum::response::{IntoResponse, Response};
use formation_core::{Entropy, refusal::Code};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header, request::Parts, uri::Authority};
use url::Url;

use crate::{problem::Problem, server::ServerConfig};

/// The longest request target: path and query.
pub const URI_BYTES: usize = 8 * 1024;
/// All header lines together.
pub const HEADER_BYTES: usize = 32 * 1024;

/// Carries the request's id back.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The request's id, for those who answer it.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// What is allowed in, and who numbers what came.
#[derive(Debug)]
pub(crate) struct Door {
    /// `None`: whatever it is called.
    hosts: Option<Vec<Host>>,
    origins: Vec<String>,
    entropy: Entropy,
}

/// A host, the port it answers at and the port a Host header may leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    name: String,
    port: u16,
    unsaid: u16,
}

impl Door {
    /// `public_url` gives the allowed Host and Origin; with a loopback listener also `localhost` at its port (contract.md 1).
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let mut urls = vec![config.public_url.clone()];
        if config.listen.ip().is_loopback() {
            urls.extend(Url::parse(&format!("http://localhost:{}", config.listen.port())));
        }
        let hosts = urls.iter().filter_map(Host::of).collect();
        let origins = urls.iter().map(|url| url.origin().ascii_serialization()).collect();
        Self { hosts: Some(hosts), origins, entropy: config.entropy.clone() }
    }

    /// For a listener of its own that tells nothing of anybody: whoever reaches it may call it what they like, but pages of other
    /// sites stay out.
    pub(crate) fn of_any_name(config: &ServerConfig) -> Self {
        Self { hosts: None, ..Self::new(config) }
    }

    /// The allowed host names for rmcp's second fence, which compares a port only when it is written out: the first one did.
    pub(crate) fn host_names(&self) -> impl Iterator<Item = String> {
        self.hosts.iter().flatten().map(|host| host.name.clone())
    }

    /// The allowed origins, each with its port, for rmcp's second fence.
    pub(crate) fn origins(&self) -> impl Iterator<Item = String> {
        let with_port = |origin: &String| {
            let url = Url::parse(origin).ok()?;
            Some(format!("{}://{}:{}", url.scheme(), url.host_str()?, url.port_or_known_default()?))
        };
        self.origins.iter().filter_map(with_port)
    }

    /// A fresh id: 16 hexadecimal digits.
    pub(crate) fn request_id(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.entropy.bytes()))
    }

    /// Refuses what may not be routed.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), Problem> {
        let target = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
        if target > URI_BYTES {
            let detail = format!("Path and query together hold at most {URI_BYTES} bytes.");
            return Err(Problem::new(Code::UriTooLong).detail(detail).closing());
        }
        let headers: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if headers > HEADER_BYTES {
            let detail = format!("All headers together hold at most {HEADER_BYTES} bytes.");
            return Err(Problem::new(Code::HeadersTooLarge).detail(detail).closing());
        }
        if !self.knows_host(&parts.uri, &parts.headers) {
            return Err(Problem::new(Code::Forbidden).detail("Use the server's own address: this Host is not one of its names."));
        }
        if !self.knows_origin(&parts.headers) {
            return Err(Problem::new(Code::Forbidden).detail("Requests from pages of other origins are refused."));
        }
        Ok(())
    }

    /// Exactly one Host, one of ours, and in an absolute request target none but ours either.
    fn knows_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let mut values = headers.get_all(header::HOST).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let named = value.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
        let is_ours = |authority: &Authority| !authority.as_str().contains('@') && hosts.iter().any(|host| host.is(authority));
        named.as_ref().is_some_and(is_ours) && uri.authority().is_none_or(is_ours)
    }

    /// No Origin, or exactly one of ours.
    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::ORIGIN).iter();
        match (values.next(), values.next()) {
            (None, _) => true,
            (Some(value), None) => self.origins.iter().any(|origin| origin.as_bytes() == value.as_bytes()),
            (Some(_), Some(_)) => false,
        }
    }
}

impl Host {
    fn of(url: &Url) -> Option<Self> {
        let unsaid = if url.scheme() == "https" { 443 } else { 80 };
        Some(Self { name: url.host_str()?.to_ascii_lowercase(), port: url.port().unwrap_or(unsaid), unsaid })
    }

    fn is(&self, named: &Authority) -> bool {
        let port = match named.port_u16() {
            Some(port) => port,
            None if named.as_str() == named.host() => self.unsaid,
            None => return false,
        };
        self.name.eq_ignore_ascii_case(named.host()) && self.port == port
    }
}

/// What every answer carries.
pub(crate) fn finish(answer: Result<Response, Problem>, request_id: &str) -> Response {
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    if response.status().is_server_error()
        && let Some(problem) = response.extensions_mut().remove::<Problem>()
    {
        *response.body_mut() = problem.document(Some(request_id)).into();
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn door(public_url: &str, listen: &str) -> Door {
        let listen = listen.parse().expect("an address");
        Door::new(&ServerConfig::new(Url::parse(public_url).expect("a URL"), listen, Entropy::counting(1)))
    }

    fn says(door: &Door, target: &str, headers: &[(&str, &str)]) -> u16 {
        let request = headers.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        door.check(&parts).map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    /// S-10: every other name and every other origin is turned away before routing.
    #[test]
    fn only_our_own_names_get_in() {
        let local = door("http://127.0.0.1:8420", "127.0.0.1:8420");
        for (expected, host) in [
            (200, "127.0.0.1:8420"),
            (200, "localhost:8420"),
            (200, "LOCALHOST:8420"),
            (403, "localhost"),
            (403, "localhost.:8420"),
            (403, "127.0.0.1:8421"),
            (403, "127.0.0.1"),
            (403, "[::1]:8420"),
            (403, "evil.example:8420"),
            (403, "user@localhost:8420"),
            (403, "localhost:8420,evil.example"),
            (403, ""),
        ] {
            assert_eq!(says(&local, "/", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(says(&local, "/", &[]), 403);
        assert_eq!(says(&local, "/", &[("host", "localhost:8420"), ("host", "localhost:8420")]), 403);
        assert_eq!(says(&local, "http://localhost:8420/", &[("host", "localhost:8420")]), 200);
        assert_eq!(says(&local, "http://evil.example/", &[("host", "localhost:8420")]), 403);
    }

    #[test]
    fn the_public_address_may_leave_out_its_port() {
        let public = door("https://formation.example.org", "0.0.0.0:8420");
        for (expected, host) in [
            (200, "formation.example.org"),
            (200, "formation.example.org:443"),
            (403, "formation.example.org:80"),
            (403, "localhost:8420"),
        ] {
            assert_eq!(says(&public, "/", &[("host", host)]), expected, "{host}");
        }
        let plain = door("http://127.0.0.1", "127.0.0.1:80");
        assert_eq!(says(&plain, "/", &[("host", "127.0.0.1")]), 200);
        assert_eq!(says(&plain, "/", &[("host", "127.0.0.1:80")]), 200);
        let six = door("http://[::1]:8420", "[::1]:8420");
        assert_eq!(says(&six, "/", &[("host", "[::1]:8420")]), 200);
    }

    #[test]
    fn only_our_own_origins_get_in() {
        let local = door("http://127.0.0.1:8420", "127.0.0.1:8420");
        let host = ("host", "127.0.0.1:8420");
        for (expected, origin) in [
            (200, "http://127.0.0.1:8420"),
            (200, "http://localhost:8420"),
            (403, "https://localhost:8420"),
            (403, "http://localhost"),
            (403, "http://localhost:8420.evil.example"),
            (403, "null"),
            (403, ""),
        ] {
            assert_eq!(says(&local, "/", &[host, ("origin", origin)]), expected, "{origin}");
        }
        assert_eq!(says(&local, "/", &[host, ("origin", "http://localhost:8420"), ("origin", "http://localhost:8420")]), 403);
    }

    #[test]
    fn rmcp_gets_the_same_lists() {
        let public = door("https://formation.example.org", "127.0.0.1:8420");
        let hosts: Vec<_> = public.host_names().collect();
        let origins: Vec<_> = public.origins().collect();
        assert_eq!(hosts, ["formation.example.org", "localhost"]);
        assert_eq!(origins, ["https://formation.example.org:443", "http://localhost:8420"]);
    }
}
