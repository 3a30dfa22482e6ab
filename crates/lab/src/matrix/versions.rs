//! What ran: programs by their digests, libraries and the machine by their versions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// The lock file of the build: it says which `rmcp` is in this program.
const LOCK: &str = include_str!("../../../../Cargo.lock");

/// Of this program, of the product beside it, and of the machine.
pub(super) fn of_here(lab: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let product = lab.with_file_name("counterfoil");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut versions = BTreeMap::from([
        ("counterfoil".into(), env!("CARGO_PKG_VERSION").into()),
        ("rmcp".into(), locked("rmcp").context("Cargo.lock names no rmcp")?.into()),
        ("sqlite".into(), rusqlite::version().into()),
        ("os".into(), format!("{} {}", std::env::consts::OS, kernel.trim())),
        ("arch".into(), std::env::consts::ARCH.into()),
        ("sha256 of counterfoil-lab".into(), digest(lab)?),
    ]);
    // It makes tokens for the other SDKs' cells; the servers are the lab's own program.
    if product.exists() {
        versions.insert("sha256 of counterfoil".into(), digest(&product)?);
    }
    Ok(versions)
}

fn locked(package: &str) -> Option<&'static str> {
    let (_, after) = LOCK.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    after.split_once('"').map(|(version, _)| version)
}

fn digest(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}
