//! Classes of IP addresses. Whoever connects judges the address it dials with these, after resolving and before dialling (S-01,
//! S-12): the name says nothing.
//!
//! The table is the one of the `web_fetch` rules. The standard library's `is_global` isn't used: it disagrees with the registry
//! on several blocks and changes with its version.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Into the internet.
    Public,
    /// Into this machine, a private network or a reserved block: only where an operator allows it.
    Private,
    /// To a link-local neighbour or the metadata service of a cloud, which hands out credentials: nowhere and never.
    LinkLocal,
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

/// From the first 64 bits.
const fn v6(high: u64, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_bits((high as u128) << 64), prefix)
}

/// Every IPv4 block that isn't the internet's, `169.254/16` aside.
const PRIVATE_V4: [Ipv4Net; 17] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 31, 196, 0, 24),
    v4(192, 52, 193, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(192, 175, 48, 0, 24),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
];

/// The metadata services that don't sit at `169.254.169.254`: Alibaba's, Oracle's older one, Azure's wire server.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];

/// The only IPv6 block that is the internet's; mapped, NAT64, unique local, site local and multicast all lie outside.
const GLOBAL_V6: Ipv6Net = v6(0x2000_0000_0000_0000, 3);

/// What isn't the internet's inside of it: protocol assignments with Teredo, documentation, 6to4, AS112, documentation again.
const PRIVATE_V6: [Ipv6Net; 5] = [
    v6(0x2001_0000_0000_0000, 23),
    v6(0x2001_0db8_0000_0000, 32),
    v6(0x2002_0000_0000_0000, 16),
    v6(0x2620_004f_8000_0000, 48),
    v6(0x3fff_0000_0000_0000, 20),
];

const LINK_LOCAL_V6: Ipv6Net = v6(0xfe80_0000_0000_0000, 10);

/// The metadata services of AWS and of Google over IPv6, which are unique local addresses.
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// Judges an address. An IPv6 address that carries an IPv4 one is never public, and link-local when what it carries is.
pub fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => class_v6(address),
    }
}

fn class_v4(address: Ipv4Addr) -> Class {
    if address.is_link_local() || METADATA_V4.contains(&address) {
        Class::LinkLocal
    } else if PRIVATE_V4.iter().any(|block| block.contains(&address)) {
        Class::Private
    } else {
        Class::Public
    }
}

fn class_v6(address: Ipv6Addr) -> Class {
    let carries_link_local = embedded(address).is_some_and(|inner| class_v4(inner) == Class::LinkLocal);
    if LINK_LOCAL_V6.contains(&address) || METADATA_V6.contains(&address) || carries_link_local {
        Class::LinkLocal
    } else if GLOBAL_V6.contains(&address) && !PRIVATE_V6.iter().any(|block| block.contains(&address)) {
        Class::Public
    } else {
        Class::Private
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, translated (SIIT), NAT64 with either prefix, 6to4,
/// Teredo.
pub fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let first = |count: u32| bits >> (128 - count);
    let inner = |offset: u32| Ipv4Addr::from_bits(u32::try_from((bits >> offset) & 0xffff_ffff).unwrap_or(u32::MAX));
    match (first(96), first(48), first(32), first(16)) {
        // Compatible; `::` and `::1` and their like are no IPv4 addresses.
        (0, ..) if bits > 0xffff => Some(inner(0)),
        // Mapped, translated, NAT64 with the well-known and with the local prefix.
        (0xffff | 0xffff_0000 | 0x64_ff9b_0000_0000_0000_0000, ..) | (_, 0x64_ff9b_0001, ..) => Some(inner(0)),
        (.., 0x2002) => Some(inner(80)),
        (_, _, 0x2001_0000, _) => Some(Ipv4Addr::from_bits(!inner(0).to_bits())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Class {
        class(text.parse().expect("an address"))
    }

    #[test]
    fn every_block_starts_and_ends_where_the_registry_says() {
        for block in PRIVATE_V4 {
            for inside in [block.network(), block.broadcast()] {
                assert_ne!(class_v4(inside), Class::Public, "{inside}");
            }
        }
        for public in ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0"] {
            assert_eq!(of(public), Class::Public, "{public}");
        }
        for public in
            ["172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "198.17.255.255", "198.20.0.0", "223.255.255.255"]
        {
            assert_eq!(of(public), Class::Public, "{public}");
        }
        for public in ["2000::", "2001:200::", "2606:4700:4700::1111", "2a00:1450::", "3fff:1000::", "3ffe::1"] {
            assert_eq!(of(public), Class::Public, "{public}");
        }
        for private in
            ["::", "::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::", "2001::1", "2001:db8::1", "fd00::1", "fec0::1"]
        {
            assert_eq!(of(private), Class::Private, "{private}");
        }
        for private in ["ff02::1", "100::1", "2620:4f:8000::1", "3fff::1", "5f00::1", "4000::", "1fff::"] {
            assert_eq!(of(private), Class::Private, "{private}");
        }
    }

    /// The metadata address in every spelling an IPv6 address has for it.
    #[test]
    fn link_local_is_seen_through_every_translation() {
        for never in [
            "169.254.169.254",
            "169.254.0.0",
            "169.254.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "::ffff:a9fe:a9fe",
            "::169.254.169.254",
            "::ffff:0:a9fe:a9fe",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2001:0:1::5601:5601",
        ] {
            assert_eq!(of(never), Class::LinkLocal, "{never}");
        }
    }

    proptest! {
        /// Carrying an IPv4 address makes nothing reachable that the address itself doesn't reach.
        #[test]
        fn a_carried_address_is_never_public(bits in any::<u32>()) {
            let inner = Ipv4Addr::from_bits(bits);
            for carrier in [inner.to_ipv6_mapped().to_string(), format!("64:ff9b::{inner}"), format!("::ffff:0:{inner}")] {
                let carried = of(&carrier);
                prop_assert_ne!(carried, Class::Public);
                prop_assert_eq!(carried == Class::LinkLocal, class_v4(inner) == Class::LinkLocal);
            }
        }
    }
}
