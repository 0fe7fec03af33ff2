//! Where names lead.

use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
};

/// What a lookup answers.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Turns a name into addresses; an IP literal never gets here.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// All addresses of `host`, in the order they should be tried.
    fn resolve<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// The machine's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    #[expect(clippy::disallowed_methods, reason = "this is where the ban sends everybody")]
    fn resolve<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        // The port is not part of the question; the resolver's signature wants one.
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) })
    }
}

/// A map target that is not on loopback.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a mapped name must lead to a loopback address, not to {0}")]
pub struct NotLoopback(pub SocketAddr);

/// Names that lead to a loopback address, given by the binary under test alone. An address that comes from here skips the
/// check for private ranges, so that tests can put a page at `http://articles.example.org/` with all other rules unchanged.
#[derive(Debug, Clone, Default)]
pub struct Names(HashMap<(String, u16), SocketAddr>);

impl Names {
    /// None: what production has.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds `host:port → target`.
    pub fn with(mut self, host: &str, port: u16, target: SocketAddr) -> Result<Self, NotLoopback> {
        if !target.ip().is_loopback() {
            return Err(NotLoopback(target));
        }
        self.0.insert((plain(host), port), target);
        Ok(self)
    }

    /// Where the map leads, if it knows the name.
    pub fn target(&self, host: &str, port: u16) -> Option<SocketAddr> {
        if self.0.is_empty() { None } else { self.0.get(&(plain(host), port)).copied() }
    }
}

fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}
