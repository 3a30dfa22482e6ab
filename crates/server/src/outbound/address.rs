//! Which addresses a service may have. A name is resolved first and its addresses are vetted then:
//! what a name means can change between a check and a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Public addresses, and the networks that were named.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    allowed: Vec<Network>,
}

impl AddressPolicy {
    /// Every public address, and every one in these networks.
    #[must_use]
    pub const fn new(allowed: Vec<Network>) -> Self {
        Self { allowed }
    }

    /// Whether a connection may go there.
    #[must_use]
    pub fn admits(&self, address: IpAddr) -> bool {
        let address = plain(address);
        is_public(address) || self.allowed.iter().any(|network| network.contains(address))
    }
}

/// An address or a block of them, as `127.0.0.1`, `10.0.0.0/8` or `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

/// The text names no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no network; write an address such as 127.0.0.1, or a block such as 10.0.0.0/8")]
pub struct NotANetwork(String);

impl Network {
    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = plain(address);
        let (ours, theirs, width) = match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                (u128::from(ours.to_bits()), u128::from(theirs.to_bits()), 32)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
            _ => return false,
        };
        let differing = (ours ^ theirs).checked_shr(width - self.prefix_bits);
        self.prefix_bits == 0 || differing == Some(0)
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let refuse = || NotANetwork(text.chars().take(64).collect());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = plain(address.parse().map_err(|_| refuse())?);
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            None => width,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= width).ok_or_else(refuse)?
            }
            Some(_) => return Err(refuse()),
        };
        Ok(Self { address, prefix_bits })
    }
}

/// An IPv4 address in the clothes of an IPv6 one is that IPv4 address.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
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
            let named = AddressPolicy::new(vec![bad.parse().expect("a network")]);
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
        }
    }

    #[test]
    fn a_network_holds_what_its_prefix_says() {
        // Promise: naming a block opens that block and nothing else.
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/8", "10.9.9.9", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("127.0.0.1", "::1", false),
            ("0.0.0.0/0", "192.168.1.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "fe80::1", true),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("192.168.1.128/25", "192.168.1.127", false),
        ];
        for (network, address, expected) in cases {
            let network: Network = network.parse().expect("a network");
            assert_eq!(network.contains(ip(address)), expected, "{network:?} {address}");
        }
        for bad in [
            "",
            "10",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "::/129",
            "localhost",
            "10.0.0.0/8/8",
        ] {
            bad.parse::<Network>().expect_err(bad);
        }
    }
}
