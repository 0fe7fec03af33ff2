//! Calls under way, by the id their client gave them: `notifications/cancelled` names that id and nothing else.
//!
//! A cancel counts until admission and on this replica; one that comes later, or to another replica, changes nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use formation_core::TokenId;
use rmcp::model::RequestId;
use tokio_util::sync::CancellationToken;

/// Whose request it is: ids are unique within a session, and a token without sessions is one of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) token: TokenId,
    /// The session's id, or nothing.
    pub(super) session: String,
    pub(super) request: RequestId,
}

/// Calls under way.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlight(Arc<Mutex<HashMap<Key, CancellationToken>>>);

/// Keeps one call in the table.
#[derive(Debug)]
pub(super) struct Registered {
    calls: InFlight,
    key: Key,
    pub(super) cancel: CancellationToken,
}

impl InFlight {
    /// Puts a call in for as long as the answer lives. A client that uses an id twice at once can cancel the later call only.
    pub(super) fn register(&self, key: Key) -> Registered {
        let cancel = CancellationToken::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), cancel.clone());
        Registered { calls: self.clone(), key, cancel }
    }

    /// The client gave up on a request.
    pub(super) fn cancel(&self, key: &Key) {
        if let Some(cancel) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            cancel.cancel();
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.calls.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_session_s_same_request_is_cancelled() {
        let calls = InFlight::default();
        let key =
            |session: &str, request| Key { token: TokenId::fixed(1), session: session.into(), request: RequestId::Number(request) };
        let call = calls.register(key("s", 1));
        for other in [key("s", 2), key("t", 1), Key { token: TokenId::fixed(2), ..key("s", 1) }] {
            calls.cancel(&other);
        }
        assert!(!call.cancel.is_cancelled());
        calls.cancel(&key("s", 1));
        assert!(call.cancel.is_cancelled());
        drop(call);
        assert!(calls.0.lock().expect("nobody panicked").is_empty());
    }
}
