//! What `--version` tells: the facts of the build that a report of a problem needs.

use std::sync::LazyLock;

use counterfoil_store::sqlite::{SCHEMA_VERSION, sqlite_version};

use crate::wire::supported_versions;

/// The version and, below it, the facts of the build, one a line.
///
/// The commit is known where the build was told: `COUNTERFOIL_BUILD_COMMIT=$(git rev-parse HEAD)
/// cargo build --release`. Asking git while building would break builds without it, and tell the
/// wrong commit after a rebuild from a cache.
pub(super) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let known = |fact: Option<&'static str>| fact.unwrap_or("unknown").to_owned();
        let revisions = supported_versions();
        let revisions: Vec<&str> = revisions.iter().map(|version| version.as_str()).collect();
        let facts = [
            ("commit", known(option_env!("COUNTERFOIL_BUILD_COMMIT"))),
            ("target", known(option_env!("COUNTERFOIL_BUILT_FOR"))),
            ("profile", known(option_env!("COUNTERFOIL_BUILT_AS"))),
            ("compiler", known(option_env!("COUNTERFOIL_BUILT_WITH"))),
            ("sqlite", sqlite_version().to_owned()),
            ("schema", SCHEMA_VERSION.to_string()),
            ("mcp", revisions.join(", ")),
        ];
        let lines = facts.iter().map(|(name, fact)| format!("\n{name:<8}  {fact}"));
        format!("{}{}", env!("CARGO_PKG_VERSION"), lines.collect::<String>())
    });
    &TEXT
}
