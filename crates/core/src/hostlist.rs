//! Exact hostname lists (B3).

use std::{fmt, net::Ipv6Addr};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{SeqAccess, Visitor},
};
use url::Host;

/// Longest label and longest name of the DNS, in bytes.
const LABEL_BYTES: usize = 63;
const NAME_BYTES: usize = 253;

/// Hosts that may be visited; empty means any.
///
/// Each entry is one host, compared exactly: a name doesn't cover its subdomains, an address doesn't cover the names that lead to
/// it. Ports are free. Written as a JSON array of normal forms (lower case, punycode, no trailing dot, IPv6 in brackets), read
/// from that or from one comma-separated string.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct HostList(Vec<String>);

/// An entry that is no host: a wildcard, a URL, a port, a network, an empty entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {position} of the hostname list is not a host name or an IP address")]
pub struct NotAHost {
    /// Counted from 1.
    pub position: usize,
}

impl HostList {
    /// No restriction.
    pub fn any() -> Self {
        Self(Vec::new())
    }

    /// Reads the comma-separated form. Spaces round entries are dropped, duplicates too; a blank text is no restriction, an empty
    /// entry beside others is an error, since it may stand for a host that got lost.
    pub fn parse(text: &str) -> Result<Self, NotAHost> {
        if text.bytes().all(|b| b == b' ') {
            return Ok(Self::any());
        }
        Self::of(text.split(','))
    }

    /// Reads one host per entry. No entries are no restriction.
    pub fn of<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, NotAHost> {
        let mut hosts = Vec::new();
        for (index, entry) in entries.into_iter().enumerate() {
            let host = normal_form(entry.trim_matches(' ')).ok_or(NotAHost { position: index + 1 })?;
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        Ok(Self(hosts))
    }

    /// Whether there is no restriction.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a host, as a URL or a request names it (IPv6 in brackets), may be visited. One trailing dot is the same name.
    pub fn allows(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        self.is_open() || self.0.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    /// The normal forms, in the order they were given.
    pub fn hosts(&self) -> &[String] {
        &self.0
    }
}

/// The spelling a parsed URL would have for this host; `None` for whatever is more or less than one host.
fn normal_form(entry: &str) -> Option<String> {
    if let Some(address) = entry.strip_prefix('[') {
        return address.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(bracketed);
    }
    if entry.contains(':') {
        return entry.parse::<Ipv6Addr>().ok().map(bracketed);
    }
    if entry.contains('%') {
        return None;
    }
    match Host::parse(entry).ok()? {
        // `127.1` or `2130706433` reads differently to people and to parsers.
        Host::Ipv4(address) => {
            let quad = address.to_string();
            (entry.strip_suffix('.').unwrap_or(entry) == quad).then_some(quad)
        }
        Host::Ipv6(_) => None,
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(&name);
            let is_label = |label: &str| {
                !label.is_empty()
                    && label.len() <= LABEL_BYTES
                    && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            };
            (name.len() <= NAME_BYTES && name.split('.').all(is_label)).then(|| name.to_owned())
        }
    }
}

fn bracketed(address: Ipv6Addr) -> String {
    // The URL Standard's spelling, which differs from the standard library's for mapped addresses.
    Host::<String>::Ipv6(address).to_string()
}

impl<'de> Deserialize<'de> for HostList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = HostList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of host names or one comma-separated string")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<HostList, E> {
                HostList::parse(text).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<HostList, A::Error> {
                let mut entries: Vec<String> = Vec::new();
                while let Some(entry) = items.next_element()? {
                    entries.push(entry);
                }
                HostList::of(entries.iter().map(String::as_str)).map_err(serde::de::Error::custom)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// S-02: every row of the hostname lists.
    #[test]
    fn bar_s02_every_row_of_the_hostname_lists_agrees() {
        let rows: Vec<Vec<&str>> = include_str!("../../../testdata/browser_hostlists.tsv")
            .lines()
            .skip(1)
            .map(|line| line.split('\t').collect())
            .collect();
        assert_eq!(rows.len(), 47);
        for row in rows {
            let [id, input, verdict, normalised, ..] = row.as_slice() else { panic!("columns of {row:?}") };
            let input: String =
                serde_json::from_str(&format!("\"{}\"", if *input == "-" { "" } else { input })).expect("a JSON text");
            let list = HostList::parse(&input);
            assert_eq!(list.is_ok(), *verdict == "accept", "{id}: {list:?}");
            if let Ok(list) = list {
                let expected = if *normalised == "-" { "" } else { normalised };
                assert_eq!(list.hosts().join(","), expected, "{id}");
            }
        }
    }

    #[test]
    fn both_forms_are_read_and_the_array_is_written() {
        let read = |value| serde_json::from_value::<HostList>(value);
        let list = read(json!("B\u{fc}cher.de, ::1")).expect("valid");
        assert_eq!(json!(list), json!(["xn--bcher-kva.de", "[::1]"]));
        assert_eq!(read(json!(["xn--bcher-kva.de", "[::1]"])).expect("valid"), list);
        assert_eq!(read(json!([])).expect("valid"), HostList::any());
        for bad in [json!(["a.com,b.com"]), json!([""]), json!([1]), json!(1), json!(null), json!({"a": 1})] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
        assert_eq!(HostList::parse("a.com,*.b.com"), Err(NotAHost { position: 2 }));
    }

    #[test]
    fn the_order_of_checks_leaves_no_second_spelling() {
        for bad in
            ["a.com..", ".", "a b", "\u{ff0a}.com", "a.com:80", "[::1]:80", "[::1", "::1]", "1.2.3.4.5", "a.0x1", "a\u{3002}.com"]
        {
            assert!(HostList::of([bad]).is_err(), "{bad}");
        }
        assert!(HostList::of(["127.0.0.1."]).expect("valid").allows("127.0.0.1"));
    }

    proptest! {
        /// A list reads its own normal form, and allows exactly what a URL of it says.
        #[test]
        fn a_normal_form_is_its_own_normal_form(text in "[a-zA-Z0-9._:*%ü\\[\\]@/ -]{0,24}(,[a-z0-9.]{1,12})?") {
            if let Ok(list) = HostList::parse(&text) {
                prop_assert_eq!(HostList::parse(&list.hosts().join(",")), Ok(list.clone()));
                for host in list.hosts() {
                    let url = url::Url::parse(&format!("https://{host}/")).expect("a normal form is a host");
                    prop_assert_eq!(url.host_str(), Some(host.as_str()));
                    prop_assert!(list.allows(host));
                    let subdomain = format!("www.{host}");
                    prop_assert!(!list.allows(&subdomain) || list.hosts().contains(&subdomain));
                }
            }
        }
    }
}
