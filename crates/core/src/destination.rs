//! Destination verdicts: which URL a browser may be sent to, and which page may be looked at (browser.md 1.1, S-02).
//!
//! The text is judged before it is parsed, because parsing forgives what two parsers read differently: blanks, backslashes,
//! escapes in the host. What is used afterwards is the parsed URL and never the text.

use url::Url;

use crate::{failure::Reason, hostlist::HostList, limits, words};

words! {
    /// Why a URL is turned away.
    pub enum Verdict {
        /// Not a URL.
        Malformed = "malformed",
        /// Not HTTP or HTTPS.
        SchemeNotHttp = "scheme_not_http",
        /// User name or password in it.
        Credentials = "credentials",
        /// A control character or blank.
        ControlOrSpace = "control_or_space",
        /// A backslash.
        Backslash = "backslash",
        /// Percent escapes in the host.
        EscapedHost = "escaped_host",
        /// Over 4,096 bytes.
        TooLong = "too_long",
    }
}

impl Verdict {
    /// A sentence for the model.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Malformed => "The URL must be absolute and complete, like https://example.com/path.",
            Self::SchemeNotHttp => "Only http and https URLs can be opened.",
            Self::Credentials => "A URL with a user name or password in it is refused: open it without the part before the @.",
            Self::ControlOrSpace => {
                "The URL contains a space or a control character: percent-encode it in the path or query, or remove it."
            }
            Self::Backslash => "The URL contains a backslash: use / instead, or %5C where a backslash is meant.",
            Self::EscapedHost => "The host contains a percent escape: write the host name out.",
            Self::TooLong => "The URL is longer than 4,096 bytes.",
        }
    }
}

/// Judges a URL for `browser_navigate`. Private hosts, numeric spellings and any port pass: which addresses may be reached is for
/// whoever connects to say. A hostname list is compared with the URL this returns ([`HostList::allows`]).
pub fn browser(text: &str) -> Result<Url, Verdict> {
    if text.len() > limits::URL_BYTES {
        return Err(Verdict::TooLong);
    }
    if text.chars().any(|c| c <= ' ' || c == '\u{7f}') {
        return Err(Verdict::ControlOrSpace);
    }
    let rest = after_scheme(text)?;
    let before_query = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
    let authority = &before_query[..before_query.find(['/', '\\']).unwrap_or(before_query.len())];
    if authority.is_empty() {
        return Err(if rest.starts_with('\\') { Verdict::Backslash } else { Verdict::Malformed });
    }
    // An `@` counts with nothing before it too: what stands left of it is for some parsers the host.
    if authority.contains('@') {
        return Err(Verdict::Credentials);
    }
    if before_query.contains('\\') {
        return Err(Verdict::Backslash);
    }
    if authority.contains('%') {
        return Err(Verdict::EscapedHost);
    }
    let url = Url::parse(text).map_err(|_| Verdict::Malformed)?;
    // The canonical form can be three times as long as the text, and it is what everybody downstream stores.
    if url.as_str().len() > limits::URL_BYTES {
        return Err(Verdict::TooLong);
    }
    Ok(url)
}

/// What follows `http://` or `https://`, in any case.
fn after_scheme(text: &str) -> Result<&str, Verdict> {
    let (scheme, rest) = text.split_once(':').ok_or(Verdict::Malformed)?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    if !is_scheme {
        return Err(Verdict::Malformed);
    }
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(Verdict::SchemeNotHttp);
    }
    if rest.starts_with('\\') || rest.starts_with("/\\") {
        return Err(Verdict::Backslash);
    }
    rest.strip_prefix("//").ok_or(Verdict::Malformed)
}

/// Judges the URL of a page that is about to be observed: where a link, a script or a redirect led counts like where the agent
/// asked to go.
///
/// `scheme_not_allowed` for anything but HTTP, HTTPS and, without a hostname list, `about:blank`, `data:` and `blob:`, whose
/// content a page made itself. `hostname_not_allowed` for a host that isn't on the list. The empty text is a window that has
/// opened no document yet and counts as `about:blank`.
pub fn observed(url: &str, hosts: &HostList) -> Result<(), Reason> {
    if url.is_empty() {
        return if hosts.is_open() { Ok(()) } else { Err(Reason::SchemeNotAllowed) };
    }
    let url = Url::parse(url).map_err(|_| Reason::SchemeNotAllowed)?;
    match url.scheme() {
        "http" | "https" => match url.host_str() {
            Some(host) if hosts.allows(host) => Ok(()),
            _ => Err(Reason::HostnameNotAllowed),
        },
        "data" | "blob" if hosts.is_open() => Ok(()),
        "about" if hosts.is_open() && url.path() == "blank" => Ok(()),
        _ => Err(Reason::SchemeNotAllowed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One field of our corpora is the inside of a JSON string.
    fn text(field: &str) -> String {
        serde_json::from_str(&format!("\"{field}\"")).expect("a field is the inside of a JSON string")
    }

    /// S-02: every row, verdict, code and canonical form.
    #[test]
    fn bar_s02_every_row_of_the_url_corpus_agrees() {
        let rows: Vec<Vec<&str>> =
            include_str!("../../../testdata/browser_urls.tsv").lines().skip(1).map(|line| line.split('\t').collect()).collect();
        assert_eq!(rows.len(), 132);
        for row in rows {
            let [id, list, input, verdict, _, reason, canonical, ..] = row.as_slice() else { panic!("columns of {row:?}") };
            let hosts = HostList::parse(&text(if *list == "-" { "" } else { list })).expect("the corpus has valid lists");
            let answer = browser(&text(input)).map_err(Verdict::as_str).and_then(|url| {
                // An observation of that page meets the same list.
                let seen = observed(url.as_str(), &hosts);
                let allowed = url.host_str().is_some_and(|host| hosts.allows(host));
                assert_eq!(seen.is_ok(), allowed, "{id}");
                if allowed { Ok(url) } else { Err("host_not_allowed") }
            });
            assert_eq!(answer.is_ok(), *verdict == "accept", "{id}: {answer:?}");
            match answer {
                Ok(url) => assert_eq!(url.as_str(), text(canonical), "{id}"),
                Err(code) => assert_eq!(code, *reason, "{id}"),
            }
        }
    }

    #[test]
    fn the_length_is_bounded_before_and_after_parsing() {
        let path = |length: usize| format!("https://example.com/{}", "a".repeat(length - 20));
        assert!(browser(&path(4096)).is_ok());
        assert_eq!(browser(&path(4097)), Err(Verdict::TooLong));
        assert_eq!(browser(&format!("https://example.com/{}", "ü".repeat(1000))), Err(Verdict::TooLong));
    }

    #[test]
    fn a_backslash_in_the_query_is_no_backslash_in_the_path() {
        assert!(browser("https://example.com/?a\\b").is_ok());
        assert!(browser("https://example.com/#a\\b").is_ok());
    }

    /// browser.md 1.1, row "non-HTTP page".
    #[test]
    fn pages_without_a_site_are_refused_as_the_table_says() {
        let list = HostList::parse("example.com").expect("valid");
        for url in ["file:///etc/passwd", "chrome://version/", "devtools://devtools/x", "view-source:https://example.com/", "x"] {
            assert_eq!(observed(url, &HostList::any()), Err(Reason::SchemeNotAllowed), "{url}");
            assert_eq!(observed(url, &list), Err(Reason::SchemeNotAllowed), "{url}");
        }
        for url in ["", "about:blank", "about:blank#x", "data:text/html,example.com", "blob:https://example.com/uuid"] {
            assert_eq!(observed(url, &HostList::any()), Ok(()), "{url}");
            assert_eq!(observed(url, &list), Err(Reason::SchemeNotAllowed), "{url}");
        }
        assert_eq!(observed("about:srcdoc", &HostList::any()), Err(Reason::SchemeNotAllowed));
        assert_eq!(observed("https://example.com./x", &list), Ok(()));
        assert_eq!(observed("https://www.example.com/", &list), Err(Reason::HostnameNotAllowed));
    }

    /// Pieces that have confused URL parsers, in any order.
    fn mutated() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            prop::sample::select(vec![
                "http://",
                "HTTPS://",
                "https:",
                "//",
                "/",
                "\\",
                "@",
                "%",
                "%40",
                "%2e",
                "#",
                "?",
                ":",
                ":80",
                ":65536",
                "[::1]",
                "]",
                "127.1",
                "0x7f",
                "example.com",
                ".",
                "xn--",
                "ü",
                "\u{ad}",
                "\u{3002}",
                "\u{ff20}",
                "\t",
                " ",
                "\0",
                "user:pass",
                "javascript:",
                "&",
                ";",
                "localhost",
            ])
            .prop_map(str::to_owned),
            "[ -~]{0,6}",
        ];
        prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// S-02: what is accepted is HTTP, has a host and no credentials, and is its own canonical form.
        #[test]
        fn an_accepted_url_is_its_own_canonical_form(tail in mutated(), plain in any::<bool>()) {
            let text = if plain { format!("https://{tail}") } else { tail };
            if let Ok(url) = browser(&text) {
                prop_assert!(matches!(url.scheme(), "http" | "https"));
                prop_assert!(url.username().is_empty() && url.password().is_none());
                prop_assert!(url.host_str().is_some_and(|host| !host.is_empty()));
                prop_assert_eq!(browser(url.as_str()), Ok(url.clone()));
                prop_assert_eq!(observed(url.as_str(), &HostList::any()), Ok(()));
            }
        }

        /// S-02: with a list, nothing but its hosts is ever observed.
        #[test]
        fn with_a_list_only_its_hosts_are_observed(text in mutated()) {
            let list = HostList::parse("example.com").expect("valid");
            for url in [text.clone(), format!("https://{text}")] {
                if observed(&url, &list).is_ok() {
                    let parsed = Url::parse(&url).expect("observed only what parses");
                    prop_assert!(matches!(parsed.host_str(), Some("example.com" | "example.com.")));
                }
            }
        }
    }
}
