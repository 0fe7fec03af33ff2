//! Resolve once, judge, dial what was judged.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use formation_core::{
    address::{self, Class},
    failure::Reason,
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};

use crate::{Forbidden, Names, Resolver};

/// Longest wait for the resolver and for all connection attempts together.
const BOUND: Duration = Duration::from_secs(20);
/// Longest wait for one address while another is left to try.
const ATTEMPT: Duration = Duration::from_secs(4);
/// How many addresses of one name are tried.
const ATTEMPTS: usize = 6;

/// Which addresses may be dialled. Link-local never, private and reserved ones by switch, our own sockets never.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    /// Whether private and reserved ranges may be reached.
    pub allow_private: bool,
    /// Our own sockets.
    pub forbidden: Forbidden,
}

impl AddressPolicy {
    /// Whether `target` may be dialled.
    pub fn permits(&self, target: SocketAddr) -> bool {
        let reachable = match address::class(target.ip()) {
            Class::Public => true,
            Class::Private => self.allow_private,
            Class::LinkLocal => false,
        };
        reachable && !self.forbidden.covers(target)
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The name doesn't resolve.
    #[error("the name does not resolve")]
    Name,
    /// Every address it leads to is refused by policy.
    #[error("the address is not allowed")]
    Refused,
    /// Nobody answers there, or not in time.
    #[error("no connection")]
    Connect,
}

impl DialError {
    /// The word a browser call reports.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Name => Reason::DnsFailed,
            Self::Refused => Reason::AddressNotAllowed,
            Self::Connect => Reason::ConnectionFailed,
        }
    }
}

/// Opens TCP connections to hosts that somebody else named.
#[derive(Debug, Clone)]
pub struct Dialler {
    resolver: Arc<dyn Resolver>,
    names: Arc<Names>,
    policy: AddressPolicy,
}

impl Dialler {
    /// Under one policy.
    pub fn new(resolver: Arc<dyn Resolver>, names: Arc<Names>, policy: AddressPolicy) -> Self {
        Self { resolver, names, policy }
    }

    /// The rules it dials under.
    pub fn policy(&self) -> &AddressPolicy {
        &self.policy
    }

    /// Connects to `host` (IPv6 with or without brackets) on `port`.
    ///
    /// Addresses the policy refuses are left out, so a name with a public and a private address leads to the public one alone;
    /// with nothing left it is `Refused`.
    #[expect(clippy::disallowed_methods, reason = "this is where the ban sends everybody")]
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, DialError> {
        let until = Instant::now() + BOUND;
        let targets = timeout_at(until, self.targets(host, port)).await.map_err(|_| DialError::Name)??;
        for (index, target) in targets.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let wait = if index + 1 < targets.len() { left.min(ATTEMPT) } else { left };
            if let Ok(Ok(stream)) = timeout(wait, TcpStream::connect(target)).await {
                // Bytes pass through us in the pieces they came in; waiting for more would add to each of them.
                drop(stream.set_nodelay(true));
                return Ok(stream);
            }
        }
        Err(DialError::Connect)
    }

    /// The addresses of `host` that may be dialled, at least one.
    async fn targets(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
        let host = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
        if let Some(target) = self.names.target(host, port) {
            return if self.policy.forbidden.covers(target) { Err(DialError::Refused) } else { Ok(vec![target]) };
        }
        let found = match host.parse::<IpAddr>() {
            Ok(literal) => vec![literal],
            Err(_) => self.resolver.resolve(host).await.map_err(|_| DialError::Name)?,
        };
        if found.is_empty() {
            return Err(DialError::Name);
        }
        let mut permitted: Vec<_> =
            found.into_iter().map(|ip| SocketAddr::new(ip, port)).filter(|target| self.policy.permits(*target)).collect();
        permitted.truncate(ATTEMPTS);
        if permitted.is_empty() { Err(DialError::Refused) } else { Ok(permitted) }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::net::TcpListener;

    use super::*;
    use crate::{NotLoopback, resolve::Lookup};

    /// Answers each question with the next list, so a second look-up would be seen.
    #[derive(Debug)]
    struct Rebinding {
        answers: Vec<Vec<IpAddr>>,
        asked: AtomicUsize,
    }

    impl Resolver for Rebinding {
        fn resolve<'a>(&'a self, _host: &'a str) -> Lookup<'a> {
            let index = self.asked.fetch_add(1, Ordering::SeqCst);
            let answer = self.answers.get(index).cloned().ok_or_else(|| io::Error::other("no such name"));
            Box::pin(async move { answer })
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn dialler(answers: &[&[&str]], allow_private: bool) -> (Dialler, Arc<Rebinding>) {
        let answers = answers.iter().map(|list| list.iter().map(|text| ip(text)).collect()).collect();
        let resolver: Arc<Rebinding> = Arc::new(Rebinding { answers, asked: AtomicUsize::new(0) });
        let policy = AddressPolicy { allow_private, forbidden: Forbidden::default() };
        (Dialler::new(resolver.clone(), Arc::new(Names::none()), policy), resolver)
    }

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        (listener, port)
    }

    #[tokio::test]
    async fn loopback_is_refused_unless_private_ranges_are_allowed() {
        let (_listener, port) = listener().await;
        for host in ["127.0.0.1", "a.test", "[::ffff:127.0.0.1]", "0.0.0.0"] {
            let (closed, _) = dialler(&[&["127.0.0.1"]], false);
            assert_eq!(closed.connect(host, port).await.map(drop), Err(DialError::Refused), "{host}");
            let (open, _) = dialler(&[&["127.0.0.1"]], true);
            assert_eq!(open.connect(host, port).await.map(drop), Ok(()), "{host}");
        }
    }

    #[tokio::test]
    async fn link_local_is_refused_whatever_the_switches_say() {
        for host in ["169.254.169.254", "[::ffff:a9fe:a9fe]", "[fe80::1]", "[fd00:ec2::254]", "metadata.test"] {
            let (open, _) = dialler(&[&["169.254.169.254"]], true);
            assert_eq!(open.connect(host, 80).await.map(drop), Err(DialError::Refused), "{host}");
        }
    }

    /// A name that leads elsewhere the second time: there is no second time, and the refused address isn't dialled.
    #[tokio::test]
    async fn a_name_is_resolved_once_and_only_judged_addresses_are_dialled() {
        let (listener, port) = listener().await;
        let (closed, resolver) = dialler(&[&["169.254.169.254", "127.0.0.1"], &["127.0.0.1"]], false);
        assert_eq!(closed.connect("rebind.test", port).await.map(drop), Err(DialError::Refused));
        assert_eq!(resolver.asked.load(Ordering::SeqCst), 1);
        let (open, resolver) = dialler(&[&["169.254.169.254", "127.0.0.1"]], true);
        let stream = open.connect("rebind.test", port).await.expect("the allowed one is dialled");
        assert_eq!(stream.peer_addr().expect("connected").ip(), ip("127.0.0.1"));
        assert_eq!(resolver.asked.load(Ordering::SeqCst), 1);
        drop(listener);
    }

    #[tokio::test]
    async fn our_own_listener_is_refused_with_private_ranges_allowed_and_through_the_map() {
        let (listener, port) = listener().await;
        let (open, _) = dialler(&[&["127.0.0.1"]], true);
        open.policy().forbidden.add(listener.local_addr().expect("bound"));
        for host in ["127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::]", "localhost.test"] {
            assert_eq!(open.connect(host, port).await.map(drop), Err(DialError::Refused), "{host}");
        }
        let names = Names::none().with("Pages.test", 80, listener.local_addr().expect("bound")).expect("loopback");
        let mapped = Dialler::new(Arc::new(crate::SystemResolver), Arc::new(names), open.policy().clone());
        assert_eq!(mapped.connect("pages.test.", 80).await.map(drop), Err(DialError::Refused));
        mapped.policy().forbidden.remove(listener.local_addr().expect("bound"));
        assert_eq!(mapped.connect("pages.test.", 80).await.map(drop), Ok(()));
    }

    #[tokio::test]
    async fn failures_are_told_apart() {
        let (open, _) = dialler(&[], true);
        assert_eq!(open.connect("nowhere.test", 80).await.map(drop), Err(DialError::Name));
        let (listener, port) = listener().await;
        drop(listener);
        assert_eq!(open.connect("127.0.0.1", port).await.map(drop), Err(DialError::Connect));
    }

    #[test]
    fn a_map_leads_to_loopback_only() {
        let target = "10.0.0.1:80".parse().expect("a socket");
        assert_eq!(Names::none().with("a.test", 80, target).map(drop), Err(NotLoopback(target)));
    }
}
