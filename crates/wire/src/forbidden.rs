//! Sockets of ours that no page may reach, whatever the switches say.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, PoisonError, RwLock},
};

use formation_core::address;

/// Formation's own listeners and its database. Shared: listeners come and go while the policy is in use.
#[derive(Debug, Clone, Default)]
pub struct Forbidden(Arc<RwLock<Vec<SocketAddr>>>);

impl Forbidden {
    /// From the addresses known at start.
    pub fn new(sockets: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self(Arc::new(RwLock::new(sockets.into_iter().collect())))
    }

    /// Forbids one more.
    pub fn add(&self, socket: SocketAddr) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(socket);
    }

    /// Takes back one [`Forbidden::add`], when a listener is gone.
    pub fn remove(&self, socket: SocketAddr) {
        let mut sockets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = sockets.iter().position(|other| *other == socket) {
            sockets.swap_remove(index);
        }
    }

    /// Whether dialling `target` could reach one of them: the address itself, or, for one on this machine, every address of this
    /// machine on that port. `127.0.0.1`, `::1`, `0.0.0.0` and the address of the network card are spellings of one listener.
    pub fn covers(&self, target: SocketAddr) -> bool {
        let sockets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut same_port = sockets.iter().filter(|socket| socket.port() == target.port()).peekable();
        if same_port.peek().is_none() {
            return false;
        }
        let spellings = spellings(target.ip());
        let is_here = spellings.iter().any(|ip| is_local(*ip));
        same_port.any(|socket| spellings.contains(&socket.ip().to_canonical()) || (is_here && is_local(socket.ip())))
    }
}

/// The address and the IPv4 address it may stand for.
fn spellings(ip: IpAddr) -> Vec<IpAddr> {
    let carried = match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => address::embedded(v6).map(IpAddr::V4),
    };
    std::iter::once(ip).chain(carried).collect()
}

/// Whether an address is one of this machine's: only those can be bound. Nothing is sent.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect("a socket address")
    }

    #[test]
    fn every_spelling_of_a_local_listener_is_covered() {
        let forbidden = Forbidden::new([socket("127.0.0.1:8420"), socket("10.9.8.7:5432")]);
        for spelling in
            ["127.0.0.1", "127.9.9.9", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"]
        {
            assert!(forbidden.covers(socket(&format!("{spelling}:8420"))), "{spelling}");
        }
        assert!(forbidden.covers(socket("10.9.8.7:5432")));
        assert!(forbidden.covers(socket("[::ffff:10.9.8.7]:5432")));
        for other in ["127.0.0.1:8421", "127.0.0.1:5432", "192.0.2.1:8420", "10.9.8.8:5432"] {
            assert!(!forbidden.covers(socket(other)), "{other}");
        }
    }

    #[test]
    fn a_listener_that_is_gone_is_forgotten_once() {
        let forbidden = Forbidden::default();
        forbidden.add(socket("127.0.0.1:9"));
        forbidden.add(socket("127.0.0.1:9"));
        forbidden.remove(socket("127.0.0.1:9"));
        assert!(forbidden.covers(socket("127.0.0.1:9")));
        forbidden.remove(socket("127.0.0.1:9"));
        assert!(!forbidden.covers(socket("127.0.0.1:9")));
    }
}
