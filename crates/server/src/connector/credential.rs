//! The credential of a target: a reference to where it is kept, never the secret itself.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use counterfoil_core::identity::Tenant;
use http::{HeaderName, HeaderValue, header};
use zeroize::Zeroizing;

use crate::config::Environment;

/// A longer secret is none.
const LONGEST_BYTES: u64 = 8 * 1024;

/// What masks a secret where people look.
pub const MASK: &str = "********";

/// How and from where a target's secret comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// How it is sent.
    pub kind: CredentialKind,
    /// Where it is kept.
    pub source: SecretSource,
    /// Whose it is, as the target knows it. Frozen with each request: a repeat must not be made as
    /// somebody else.
    pub account: String,
    /// The only tenant that uses it, if it has been declared exclusive.
    pub exclusive_to: Option<Tenant>,
}

/// How a secret is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialKind {
    /// `Authorization: Bearer SECRET` (RFC 6750).
    Bearer,
    /// `Authorization: Basic` (RFC 7617) of user and secret.
    Basic {
        /// The user's name.
        username: String,
    },
    /// In a header of its own.
    Header {
        /// Its name.
        name: HeaderName,
    },
    /// At the end of the URL's path, as webhooks have it.
    Path,
}

/// Where a secret is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In a variable of the environment.
    Env(String),
    /// In a file, alone; a line feed at its end does not count.
    File(PathBuf),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

/// A secret. Wiped from memory when dropped; `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// A secret in its place in a request.
#[derive(Debug, Clone)]
pub enum Placed {
    /// One more header; its value is marked as sensitive.
    Header(HeaderName, HeaderValue),
    /// More of the path, already as it stands in a URL.
    PathEnd(Secret),
}

impl Secret {
    /// The text. For the request alone.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Why a secret cannot be used. Shows nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The source has none.
    #[error("there is no secret in {source_name}; put it there")]
    Absent {
        /// The source.
        source_name: String,
    },
    /// The source cannot be read.
    #[error("the secret in {source_name} cannot be read: {cause}; put it there")]
    Unreadable {
        /// The source.
        source_name: String,
        /// Why.
        cause: io::Error,
    },
    /// It is no secret of its kind.
    #[error("the secret in {source_name} {rule}")]
    Unusable {
        /// The source.
        source_name: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
}

impl Credential {
    /// Reads the secret: at each use, so that a new one is taken up without a restart.
    ///
    /// # Errors
    /// [`CredentialError`] if it is absent, or cannot stand where it is sent.
    pub fn secret(&self, env: &Environment) -> Result<Secret, CredentialError> {
        let source_name = self.source.to_string();
        let text = match &self.source {
            SecretSource::Env(name) => match env.get(name).map(|value| value.to_str()) {
                Some(Some(text)) => Zeroizing::new(text.to_owned()),
                Some(None) => {
                    let rule = "is not UTF-8; write it as ASCII";
                    return Err(CredentialError::Unusable { source_name, rule });
                }
                None => return Err(CredentialError::Absent { source_name }),
            },
            SecretSource::File(path) => read_file(path).map_err(|cause| {
                CredentialError::Unreadable { source_name: source_name.clone(), cause }
            })?,
        };
        let text = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
        if text.is_empty() {
            return Err(CredentialError::Absent { source_name });
        }
        let unusable = |rule| Err(CredentialError::Unusable { source_name, rule });
        if text.len() as u64 > LONGEST_BYTES {
            return unusable("is over 8 KiB and cannot be one; give the secret alone");
        }
        match self.kind {
            CredentialKind::Path if !is_path(&text) => unusable(
                "cannot stand at the end of an address; give only what follows the configured URL",
            ),
            CredentialKind::Basic { .. } if text.chars().any(char::is_control) => {
                unusable("holds a control character; give the password alone, in one line")
            }
            CredentialKind::Bearer | CredentialKind::Header { .. }
                if !text.bytes().all(|byte| byte.is_ascii_graphic()) =>
            {
                unusable(
                    "holds more than printable ASCII without blanks; give it alone, in one line",
                )
            }
            _ => Ok(Secret(text)),
        }
    }

    /// The secret where it goes in a request.
    #[must_use]
    pub fn place(&self, secret: &Secret) -> Placed {
        let header = |name: HeaderName, text: &str| {
            let mut value = HeaderValue::from_str(text).expect("checked when it was read");
            value.set_sensitive(true);
            Placed::Header(name, value)
        };
        match &self.kind {
            CredentialKind::Bearer => {
                let text = Zeroizing::new(format!("Bearer {}", secret.expose()));
                header(header::AUTHORIZATION, &text)
            }
            CredentialKind::Basic { username } => {
                let pair = Zeroizing::new(format!("{username}:{}", secret.expose()));
                let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
                header(header::AUTHORIZATION, &text)
            }
            CredentialKind::Header { name } => header(name.clone(), secret.expose()),
            CredentialKind::Path => Placed::PathEnd(secret.clone()),
        }
    }

    /// How it would look in a request, with the secret masked: a header's name and value, or the end
    /// of the path.
    #[must_use]
    pub fn masked(&self) -> (Option<String>, String) {
        match &self.kind {
            CredentialKind::Bearer => (Some("authorization".into()), format!("Bearer {MASK}")),
            CredentialKind::Basic { .. } => (Some("authorization".into()), format!("Basic {MASK}")),
            CredentialKind::Header { name } => (Some(name.to_string()), MASK.to_owned()),
            CredentialKind::Path => (None, MASK.to_owned()),
        }
    }
}

/// Path segments as they stand in a URL: no `.` or `..`, no empty one.
fn is_path(text: &str) -> bool {
    text.split('/').all(|segment| {
        let of_segment =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
        !segment.is_empty() && segment.bytes().all(of_segment) && segment != "." && segment != ".."
    })
}

fn read_file(path: &std::path::Path) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    File::open(path)?.take(LONGEST_BYTES + 2).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(kind: CredentialKind) -> Credential {
        Credential {
            kind,
            source: SecretSource::Env("DESK_TOKEN".into()),
            account: "desk-bot".into(),
            exclusive_to: None,
        }
    }

    fn read(kind: CredentialKind, value: &str) -> Result<Placed, String> {
        let env: Environment = [("DESK_TOKEN", value)].into_iter().collect();
        let credential = credential(kind);
        let secret = credential.secret(&env).map_err(|error| error.to_string())?;
        Ok(credential.place(&secret))
    }

    #[test]
    fn a_secret_is_placed_and_never_shown() {
        // Promise: the target gets its credential, and nobody else sees it.
        let basic = CredentialKind::Basic { username: "Aladdin".into() };
        let header = |placed: &Placed| match placed {
            Placed::Header(name, value) => {
                assert!(value.is_sensitive());
                format!("{name}: {}", value.to_str().expect("ASCII"))
            }
            Placed::PathEnd(secret) => secret.expose().to_owned(),
        };
        let key = CredentialKind::Header { name: HeaderName::from_static("x-key") };
        for (kind, value, expected) in [
            (CredentialKind::Bearer, "s3cret\n", "authorization: Bearer s3cret"),
            // RFC 7617, section 2.
            (basic, "open sesame", "authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            (key, "s3cret", "x-key: s3cret"),
            (CredentialKind::Path, "T0/B0/s3cret", "T0/B0/s3cret"),
        ] {
            let shown = credential(kind.clone()).masked();
            let placed = read(kind, value).expect("a secret");
            assert_eq!(header(&placed), expected);
            assert!(!format!("{placed:?} {shown:?}").contains("s3cret"), "{placed:?}");
        }
    }

    #[test]
    fn a_secret_that_would_change_the_request_is_refused() {
        // Promise: a secret file with one line too many is an error that shows nothing of it.
        for (kind, value) in [
            (CredentialKind::Bearer, "s3cret\r\nX-Evil: 1"),
            (CredentialKind::Bearer, "s3cret more"),
            (CredentialKind::Bearer, ""),
            (CredentialKind::Path, "../s3cret"),
            (CredentialKind::Path, "s3cret?x"),
            (CredentialKind::Path, "https://s3cret"),
            (CredentialKind::Basic { username: "u".into() }, "s3cret\nx"),
        ] {
            let error = read(kind, value).expect_err(value);
            assert!(!error.contains("s3cret") && error.contains("DESK_TOKEN"), "{error}");
        }
        let env = Environment::default();
        let error = credential(CredentialKind::Bearer).secret(&env).expect_err("absent");
        assert!(error.to_string().contains("environment variable DESK_TOKEN"), "{error}");
    }
}
