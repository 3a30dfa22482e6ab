//! TLS from a certificate and its key in PEM files, by rustls on ring.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};

/// Why a certificate and its key cannot be used. No message holds anything of the key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds no such thing.
    #[error("{} cannot be used as {what}: {cause}; give {flag} a PEM file", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// The flag that names it.
        flag: &'static str,
        /// What was found instead.
        cause: String,
    },
    /// The key is of a kind that rustls does not take, or belongs to another certificate.
    #[error(
        "the certificate {} and the key {} cannot be used together: {cause}; give the key that the \
         certificate was made for",
        .cert.display(), .key.display()
    )]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls says.
        cause: Error,
    },
}

/// Loads a chain of certificates, the server's own first, and the key of the first.
///
/// # Errors
/// [`TlsError`], which names the file.
pub fn load(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let certificate = |cause| file_error(cert, "a certificate", "--tls-cert", cause);
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|cause| certificate(words(&cause)))?;
    if chain.is_empty() {
        return Err(certificate("it holds no CERTIFICATE section".into()));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|cause| file_error(key, "a private key", "--tls-key", words(&cause)))?;
    let pair = |cause| TlsError::Pair { cert: cert.to_owned(), key: key.to_owned(), cause };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What is wrong with a PEM file, without its content.
fn words(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it holds no such section".into(),
        _ => "it is not PEM".into(),
    }
}

fn file_error(path: &Path, what: &'static str, flag: &'static str, cause: String) -> TlsError {
    TlsError::File { path: path.to_owned(), what, flag, cause }
}
