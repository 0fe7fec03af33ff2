//! Where names lead.

use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
};

/// What a lookup answers.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Turns a name into addresses; an IP literal never gets here.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// All addresses of `host`, in the order they should be tried.
    fn resolve<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// The machine's own resolver. `localhost` and every name below it lead to loopback without being asked for: not every machine's
/// resolver knows RFC 6761, and such a name must not leave the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    #[expect(clippy::disallowed_methods, reason = "this is where the ban sends everybody")]
    fn resolve<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            if is_localhost(host) {
                return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
            }
            // The port is not part of the question; the resolver's signature wants one.
            Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}

fn is_localhost(host: &str) -> bool {
    let host = plain(host);
    host == "localhost" || host.ends_with(".localhost")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_below_localhost_never_leave_the_machine() {
        for host in ["localhost", "a.localhost", "Pay.A.LOCALHOST", "b.localhost."] {
            let addresses = SystemResolver.resolve(host).await.expect("loopback");
            assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{host}");
        }
        assert!(!is_localhost("localhost.example") && !is_localhost("notlocalhost"));
    }
}
