//! Under which key the ledger knows a wrapped server, so that two of them on one ledger never meet.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use counterfoil_core::fingerprint::SecretKey;

use super::WrapSettings;
use crate::config::Environment;

/// What makes this use of a key differ from every other.
const LABEL: &[u8] = b"counterfoil upstream key v1\0";
/// A key of a server has at most this many bytes, so that a tool's name fits beside it.
const MAX_BYTES: usize = 64;

/// The key of a wrapped server: part of every fingerprint of its tools.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamKey(String);

impl UpstreamKey {
    /// Takes a name.
    ///
    /// # Errors
    /// [`String`] with the rule, if it is not 1 to 64 of `A-Z a-z 0-9 _ - .`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(of_name) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("a server's name is 1 to {MAX_BYTES} of A-Z, a-z, 0-9, `_`, `-` and `.`"))
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a wrapped server is started.
#[derive(Debug, Clone, Copy)]
pub struct Upstream<'a> {
    /// The command.
    pub command: &'a OsStr,
    /// Its arguments, which may hold secrets.
    pub arguments: &'a [std::ffi::OsString],
    /// The directory that it is started in.
    pub directory: &'a Path,
}

impl WrapSettings {
    /// The key of the server that is started so: its configured name, else a digest of command,
    /// arguments, directory, and the variables that [`environment`](Self::environment) names. The
    /// digest is keyed, because arguments may be secrets that could be guessed from it. The same
    /// `key` must be used for as long as the ledger lives, or the server becomes another.
    #[must_use]
    pub fn upstream_key(
        &self,
        upstream: Upstream<'_>,
        env: &Environment,
        key: &SecretKey,
    ) -> UpstreamKey {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let mut parts: Vec<&[u8]> =
            vec![upstream.command.as_bytes(), upstream.directory.as_os_str().as_bytes()];
        let count = (upstream.arguments.len() as u64).to_be_bytes();
        parts.push(&count);
        parts.extend(upstream.arguments.iter().map(|it| it.as_bytes()));
        for name in &self.environment {
            parts.push(name.as_bytes());
            // A variable that is not set differs from one that is empty.
            match env.get(name) {
                Some(value) => parts.extend([b"=".as_slice(), value.as_bytes()]),
                None => parts.push(b"-"),
            }
        }
        let digest = key.digest_of(LABEL, &parts);
        let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        UpstreamKey(format!("up-{hex}"))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn key_of(
        settings: &WrapSettings,
        command: &str,
        arguments: &[&str],
        env: &[(&str, &str)],
    ) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let upstream = Upstream {
            command: OsStr::new(command),
            arguments: &arguments,
            directory: Path::new("/srv"),
        };
        let env: Environment = env.iter().copied().collect();
        let key = SecretKey::from_bytes(&[7; 32]).expect("a key");
        settings.upstream_key(upstream, &env, &key).as_str().to_owned()
    }

    #[test]
    fn two_servers_never_have_one_key() {
        // Promise: wraps of different servers do not meet on a ledger, and one finds itself again.
        let settings = WrapSettings { environment: vec!["FILE".into()], ..WrapSettings::default() };
        type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)]);
        let cases: &[Case<'_>] = &[
            ("npx", &["a", "b"], &[]),
            ("npx", &["ab"], &[]),
            ("npx", &["a", "b", ""], &[]),
            ("npx", &["b", "a"], &[]),
            ("npxa", &["b"], &[]),
            ("npx", &["a", "b"], &[("FILE", "")]),
            ("npx", &["a", "b"], &[("FILE", "x")]),
            ("npx", &["a", "b", "FILE"], &[]),
        ];
        let keys: std::collections::BTreeSet<String> =
            cases.iter().map(|(c, a, e)| key_of(&settings, c, a, e)).collect();
        assert_eq!(keys.len(), cases.len());
        let again = key_of(&settings, "npx", &["a", "b"], &[("OTHER", "1")]);
        assert!(keys.contains(&again), "variables that say nothing do not count");
        assert!(UpstreamKey::parse(&again).is_ok());
        let named = WrapSettings {
            name: Some(UpstreamKey::parse("memory").expect("a name")),
            ..WrapSettings::default()
        };
        assert_eq!(key_of(&named, "npx", &["s3cret"], &[]), "memory");
        for bad in ["", "a b", "a/b", "é", &"a".repeat(65)] {
            assert!(UpstreamKey::parse(bad).is_err(), "{bad}");
        }
    }
}
