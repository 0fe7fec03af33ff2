//! What a vendor implements.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use formation_browser::{CdpWire, ProxyRefusals};
use formation_core::{
    BrowserSessionId, Secret,
    arguments::InvalidArguments,
    failure::{CallFailure, VendorFailure},
    hostlist::HostList,
    search::Hit,
};
use serde_json::Value;

/// A search provider.
#[async_trait]
pub trait Search: Send + Sync + fmt::Debug {
    /// The provider's own limits, before anything is spent; the sentence says what to send instead. A query is never cut.
    fn check(&self, query: &str) -> Result<(), InvalidArguments>;

    /// Sends one request and reads one bounded reply; repeats nothing. The hits are clean and at most `limit`.
    async fn search(&self, account: Account<'_>, config: &Value, query: &str, limit: u8) -> Result<Vec<Hit>, CallFailure>;
}

/// Where browsers come from. What they are told is the `browser` crate's business.
///
/// Nothing here repeats a request by itself: `open` is called once a session.
#[async_trait]
pub trait Browsers: Send + Sync + fmt::Debug {
    /// Opens one browser, with no trace of any before it, and returns once it answers `Browser.getVersion`.
    async fn open(&self, account: Account<'_>, want: Wanted) -> Result<OpenedBrowser, VendorFailure>;

    /// Connects to a session again. `None`: it is gone, or can't be connected to a second time; its run needs a new one.
    async fn attach(&self, account: Account<'_>, remote: &RemoteSession) -> Result<Option<CdpWire>, VendorFailure>;

    /// Ends a session. A session nobody knows is closed.
    async fn close(&self, account: Account<'_>, remote: &RemoteSession) -> Result<Closed, VendorFailure>;
}

/// The credential of one request, opened for it and gone after it.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// The key, where the vendor wants one.
    pub key: Option<&'a Secret>,
    /// The account's settings, a JSON object.
    pub config: &'a Value,
}

/// What is asked of a browser.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Our id of the session.
    pub session: BrowserSessionId,
    /// Hosts it may be used for, where the vendor can enforce that.
    pub hosts: HostList,
    /// How long it may live; a vendor that can ends it then by itself.
    pub remaining: Duration,
}

/// A browser that answers.
#[derive(Debug)]
pub struct OpenedBrowser {
    /// How to find it again.
    pub remote: RemoteSession,
    /// The connection.
    pub wire: CdpWire,
    /// What its proxy refused, where the proxy is ours.
    pub refusals: Option<Arc<dyn ProxyRefusals>>,
}

/// A vendor's own name for a session, for the database. It may open the session for whoever has it, so it isn't printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteSession(String);

impl RemoteSession {
    /// As stored.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// For storage.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RemoteSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteSession(****)")
    }
}

/// How sure it is that a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It is gone.
    Certain,
    /// The vendor took the request; ask again later.
    Asked,
}
