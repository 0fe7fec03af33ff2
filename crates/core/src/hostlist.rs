//! Exact hostname lists (B3).

/// Hosts that may be visited; empty means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList(Vec<String>);

impl HostList {
    /// No restriction.
    pub fn any() -> Self {
        Self(Vec::new())
    }

    /// Whether there is no restriction.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a host, as a URL or a request names it, may be visited.
    pub fn allows(&self, host: &str) -> bool {
        self.is_open() || self.0.iter().any(|allowed| allowed == host)
    }
}
