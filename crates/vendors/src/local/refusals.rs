//! What a session's proxy refused, for the navigation that wants to know why.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use formation_browser::ProxyRefusals;
use formation_core::failure::Reason;

/// How many are kept: a page may ask for hundreds of refused images, and only the newest matter.
const KEPT: usize = 64;

/// The newest refusals of one session.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<VecDeque<(String, u16, Reason)>>);

impl Refusals {
    pub(super) fn put(&self, host: &str, port: u16, reason: Reason) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back((plain(host), port, reason));
    }
}

impl ProxyRefusals for Refusals {
    fn take(&self, host: &str, port: u16) -> Option<Reason> {
        let host = plain(host);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = kept.iter().rev().find(|(at, on, _)| *at == host && *on == port).map(|(.., reason)| *reason);
        kept.retain(|(at, on, _)| *at != host || *on != port);
        newest
    }
}

fn plain(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_answered_once() {
        let refusals = Refusals::default();
        refusals.put("A.test.", 80, Reason::DnsFailed);
        refusals.put("a.test", 80, Reason::AddressNotAllowed);
        refusals.put("[::1]", 443, Reason::HostnameNotAllowed);
        assert_eq!(refusals.take("a.test", 81), None);
        assert_eq!(refusals.take("a.test", 80), Some(Reason::AddressNotAllowed));
        assert_eq!(refusals.take("a.test", 80), None);
        assert_eq!(refusals.take("::1", 443), Some(Reason::HostnameNotAllowed));
        for port in 1..=100 {
            refusals.put("b.test", port, Reason::DnsFailed);
        }
        assert_eq!(refusals.take("b.test", 36), None);
        assert_eq!(refusals.take("b.test", 37), Some(Reason::DnsFailed));
    }
}
