//! TLS towards a server: rustls on ring, and the authorities that are trusted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// No certificate could be checked.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    /// The file cannot be read, or has no certificate in it.
    #[error("{} cannot be used: {cause}; give a PEM file of certificates", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The system trusts nobody.
    #[error(
        "this system has no certificates of authorities to trust; install them (often the package \
         ca-certificates), or give a PEM file of your own"
    )]
    NoAuthorities,
    /// rustls has none of its usual versions.
    #[error("TLS cannot be set up: {0}")]
    Rustls(#[from] Error),
}

/// Trusts the authorities in the file, else those of the system.
pub(super) fn config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, TlsSetupError> {
    let roots = match ca_file {
        Some(path) => roots_in(path)?,
        None => system_roots()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // rustls sends no early data unless it is told to, and offers no HTTP/2 by itself.
    Ok(Arc::new(config))
}

fn roots_in(path: &Path) -> Result<RootCertStore, TlsSetupError> {
    let unusable = |cause: String| TlsSetupError::File { path: path.to_owned(), cause };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|cause| unusable(cause.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|cause| unusable(cause.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("it holds no CERTIFICATE section".into()));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsSetupError> {
    let mut roots = RootCertStore::empty();
    // What cannot be read or used is left out: one odd file must not shut out all servers.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsSetupError::NoAuthorities) } else { Ok(roots) }
}
