//! How a service's name becomes addresses. Each connection asks anew and once: what was vetted is what
//! is connected to.

use std::net::SocketAddr;

use tokio::net::lookup_host;

/// What a test says that a name means.
#[cfg(test)]
type Say = Box<dyn Fn(&str) -> Vec<std::net::IpAddr> + Send + Sync>;

/// Who is asked.
#[derive(Default)]
pub(super) enum Names {
    /// The system's resolver.
    #[default]
    System,
    /// The test, which may say something else each time.
    #[cfg(test)]
    Told(Say),
}

impl Names {
    /// The addresses of a name.
    ///
    /// # Errors
    /// [`std::io::Error`] if it does not resolve.
    pub(super) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Self::System => Ok(lookup_host((host, port)).await?.collect()),
            #[cfg(test)]
            Self::Told(say) => {
                Ok(say(host).into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
            }
        }
    }
}
