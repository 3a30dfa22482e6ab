//! Which addresses a service may have. A name is resolved first and its addresses are vetted then:
//! what a name means can change between a check and a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::connector::Network;

/// Public addresses, and the networks that were named; or those networks alone.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    allowed: Vec<Network>,
    is_named_alone: bool,
}

impl AddressPolicy {
    /// Every public address, and every one in these networks.
    #[must_use]
    pub const fn new(allowed: Vec<Network>) -> Self {
        Self { allowed, is_named_alone: false }
    }

    /// Addresses in these networks and no other: for what goes without TLS, whose credential anybody
    /// on the way could read if its name led to the internet one day.
    #[must_use]
    pub const fn only(allowed: Vec<Network>) -> Self {
        Self { allowed, is_named_alone: true }
    }

    /// Whether a connection may go there.
    #[must_use]
    pub fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        (is_public(address) && !self.is_named_alone)
            || self.allowed.iter().any(|network| network.contains(address))
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_v4(four),
        IpAddr::V6(six) => is_public_v6(six),
    }
}

/// By the IANA registry of special-purpose addresses: everything that is not globally reachable is
/// out, among it loopback, private, link-local (with the metadata service of clouds), shared
/// (100.64/10), benchmark, documentation, multicast and reserved.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match a {
        0 | 10 | 127 => true,
        100 => (64..128).contains(&b),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => matches!((b, c), (0, 0 | 2) | (168, _) | (88, 99)),
        198 => matches!((b, c), (18 | 19, _) | (51, 100)),
        203 => (b, c) == (0, 113),
        224.. => true,
        _ => false,
    };
    !special
}

/// Only what is allocated to the internet (2000::/3), without documentation and tunnels: those
/// carry an IPv4 address that nobody vetted.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let global = first & 0xe000 == 0x2000;
    let documentation = (first == 0x2001 && second == 0x0db8) || first == 0x3fff;
    let protocol_assignments = first == 0x2001 && second < 0x0200;
    let six_to_four = first == 0x2002;
    global && !documentation && !protocol_assignments && !six_to_four
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_that_are_not_public_are_refused_unless_they_are_named() {
        // Promise: no connector reaches the metadata service, the loopback or the private network
        // by a name that somebody else controls.
        let public = AddressPolicy::default();
        for bad in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.5",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:a00:1::",
            "3fff::1",
            "::10.0.0.1",
        ] {
            assert!(!public.admits(ip(bad)), "{bad}");
            // A mapped address is what it holds, and is named as that.
            let plain = ip(bad).to_canonical().to_string();
            let named = AddressPolicy::new(vec![Network::parse(&plain).expect("a network")]);
            assert!(named.admits(ip(bad)), "{bad} was named");
        }
        for good in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
        ] {
            assert!(public.admits(ip(good)), "{good}");
            let ten = vec![Network::parse("10.0.0.0/8").expect("a network")];
            assert!(!AddressPolicy::only(ten).admits(ip(good)), "{good} was not named");
        }
    }
}
