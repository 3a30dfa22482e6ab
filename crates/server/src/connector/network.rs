//! Networks that a connector may reach though they are private, link-local or loopback.

use std::fmt;
use std::net::IpAddr;

/// An address with the length of its prefix, such as `10.0.0.0/8` or `::1/128`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// Reads `address/bits`, or one address.
    ///
    /// # Errors
    /// [`String`] with the rule and the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write an address and its prefix, for example \"10.0.0.0/8\" or \"::1\"";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| format!("that is no network; {FORM}"))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits: u8 = match bits {
            None => width,
            Some(bits) if !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(|| format!("the prefix is at most {width}; {FORM}"))?,
            Some(_) => return Err(format!("that is no network; {FORM}")),
        };
        // An IPv4 address inside an IPv6 one is the same place.
        let (address, prefix_bits) = match (address.to_canonical(), prefix_bits.checked_sub(96)) {
            (inside @ IpAddr::V4(_), Some(rest)) if address.is_ipv6() => (inside, rest),
            _ => (address, prefix_bits),
        };
        let network = Self { address, prefix_bits };
        if masked(address, prefix_bits) != bits_of(address) {
            return Err(format!("the address has bits behind its prefix; {FORM}"));
        }
        if prefix_bits == 0 {
            return Err(format!("that is every address, so it says nothing; {FORM}"));
        }
        Ok(network)
    }

    /// Whether `address` lies in it. An IPv4 address inside an IPv6 one counts as what it is inside.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && masked(address, self.prefix_bits) == bits_of(self.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => address.into(),
    }
}

fn masked(address: IpAddr, prefix_bits: u8) -> u128 {
    let kept = u128::MAX.checked_shl(128 - u32::from(prefix_bits)).unwrap_or(0);
    bits_of(address) & kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_own_addresses_alone() {
        // Promise: naming one private network opens no other.
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("10.0.0.0/8", &["10.255.0.1", "::ffff:10.0.0.1"], &["11.0.0.1", "::1"]),
            ("127.0.0.1", &["127.0.0.1"], &["127.0.0.2"]),
            ("::1", &["::1"], &["::2", "127.0.0.1"]),
            ("fd00::/8", &["fd12::1"], &["fe80::1"]),
            ("::ffff:10.0.0.0/104", &["10.255.0.1", "::ffff:10.0.0.1"], &["11.0.0.1"]),
        ];
        for (text, inside, outside) in cases {
            let network = Network::parse(text).expect(text);
            let holds = |address: &&str| network.contains(address.parse().expect("an address"));
            assert!(inside.iter().all(holds), "{text}");
            assert!(!outside.iter().any(holds), "{text}");
        }
        for bad in [
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "0.0.0.0/0",
            "::/0",
            "::ffff:0:0/96",
            "a",
            "",
            "/8",
        ] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
    }
}
