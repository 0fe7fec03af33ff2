//! The session cookie of an operator, and what stands against requests that a page of somebody else's makes with it.
//!
//! `__Host-formation` is `HttpOnly`, `Secure`, `SameSite=Strict` and bound to this host. A change by cookie also needs an `Origin`,
//! which the door has compared with ours, and the session's own word in `X-Formation-Csrf`.

use formation_core::refusal::Code;
use formation_runtime::people;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::problem::Problem;

const NAME: &str = "__Host-formation";
/// Carries the word of `GET /api/session`.
pub(crate) const CSRF: HeaderName = HeaderName::from_static("x-formation-csrf");

/// The one session cookie of a request; two of them are none.
pub(super) fn session(headers: &HeaderMap) -> Option<String> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut named =
        texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('=')).filter(|(name, _)| *name == NAME);
    match (named.next(), named.next()) {
        (Some((_, value)), None) => Some(value.to_owned()),
        _ => None,
    }
}

/// Refuses a change that doesn't come from a page of ours.
pub(super) fn check_change(session: &str, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if method.is_safe() {
        return Ok(());
    }
    has_origin(headers)?;
    let mut values = headers.get_all(CSRF).iter();
    let is_own = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().is_ok_and(|word| people::is_csrf_of(session, word)),
        _ => false,
    };
    if is_own {
        return Ok(());
    }
    Err(Problem::new(Code::Forbidden).detail("Send `X-Formation-Csrf` with the `csrf` of `GET /api/session`."))
}

/// Refuses a request without an Origin; a foreign one hasn't come past the door.
pub(crate) fn has_origin(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    Err(Problem::new(Code::Forbidden).detail("Send an `Origin` of this server: only its own pages change something by cookie."))
}

/// Sets the cookie for as long as a session can last. `None`: the text is none of ours.
pub(crate) fn set(session: &str) -> Option<HeaderValue> {
    let seconds = people::SESSION_LIFE.as_secs();
    cookie(session, seconds)
}

/// Takes the cookie away.
pub(crate) fn clear() -> Option<HeaderValue> {
    cookie("", 0)
}

fn cookie(value: &str, seconds: u64) -> Option<HeaderValue> {
    let text = format!("{NAME}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Strict");
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a header value"))).fold(
            HeaderMap::new(),
            |mut map, (name, value)| {
                map.append(name, value);
                map
            },
        )
    }

    #[test]
    fn one_cookie_is_a_session_and_two_are_none() {
        let found = |lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| (header::COOKIE, *line)).collect();
            session(&headers(&lines))
        };
        assert_eq!(found(&["a=b; __Host-formation=word; c=d"]).as_deref(), Some("word"));
        assert_eq!(found(&["__Host-formation=one", "__Host-formation=two"]), None);
        assert_eq!(found(&["__Host-formation=one; __Host-formation=one"]), None);
        for other in ["", "formation=x", "__host-formation=x", "x__Host-formation=x", "__Host-formation"] {
            assert_eq!(found(&[other]), None, "{other}");
        }
    }

    /// S-10: a page of another origin can make a browser send the cookie, and no more than that.
    #[test]
    fn a_change_by_cookie_needs_an_origin_and_the_session_s_word() {
        let (session, word) = ("s".repeat(64), people::csrf_of(&"s".repeat(64)));
        let origin = (header::ORIGIN, "http://127.0.0.1:8420");
        let says = |method: &Method, lines: &[(HeaderName, &str)]| check_change(&session, method, &headers(lines)).is_ok();
        assert!(says(&Method::GET, &[]));
        assert!(says(&Method::POST, &[origin.clone(), (CSRF, &word)]));
        for lines in [
            &[][..],
            &[(CSRF, word.as_str())],
            std::slice::from_ref(&origin),
            &[origin.clone(), (CSRF, "")],
            &[origin.clone(), (CSRF, session.as_str())],
            &[origin.clone(), (CSRF, word.as_str()), (CSRF, word.as_str())],
        ] {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                assert!(!says(&method, lines), "{method} {lines:?}");
            }
        }
    }
}
