//! Private networks an owner opens for connections beside the internet (S-12). The addresses that are never allowed, the metadata
//! services among them, stay refused inside an open network: whoever dials judges each address by its class.

use ipnet::IpNet;

use crate::address::{Class, class};

/// The most networks one list has.
pub const MOST: usize = 64;

/// Not a network that can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotANetwork {
    /// Not CIDR, or an address inside a network instead of the network's own.
    #[error("Write a network as its first address and its prefix length, such as 10.20.0.0/16.")]
    Form,
    /// All of it is link-local or a metadata service.
    #[error("Link-local addresses and metadata services are never reached.")]
    Never,
}

/// Reads one network; it prints in its normal form.
pub fn parse(text: &str) -> Result<IpNet, NotANetwork> {
    let network: IpNet = text.parse().map_err(|_| NotANetwork::Form)?;
    if network != network.trunc() {
        return Err(NotANetwork::Form);
    }
    let is_never = [network.network(), network.broadcast()].map(class) == [Class::LinkLocal; 2];
    if is_never { Err(NotANetwork::Never) } else { Ok(network) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_what_is_never_reached_is_refused() {
        let good = ["10.0.0.0/8", "192.168.7.0/24", "10.1.2.3/32", "fd00::/8", "100.64.0.0/10", "0.0.0.0/0"];
        for text in good {
            assert_eq!(parse(text).map(|network| network.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(parse("FD00:0:0::/8").map(|network| network.to_string()), Ok("fd00::/8".to_owned()));
        for text in
            ["", "10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "10/8", "localhost/8", "10.0.0.0/8 ", "::1", "10.0.0.0/8,10.1.0.0/16"]
        {
            assert_eq!(parse(text), Err(NotANetwork::Form), "{text}");
        }
        for text in
            ["169.254.0.0/16", "169.254.169.254/32", "fe80::/10", "fe80::/64", "100.100.100.200/32", "::ffff:169.254.0.0/112"]
        {
            assert_eq!(parse(text), Err(NotANetwork::Never), "{text}");
        }
    }
}
