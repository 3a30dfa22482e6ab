//! The presets that are built in: for which servers, and what they say.

/// One preset.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Its name, for `--preset`.
    pub name: &'static str,
    /// The packages of the server that it is for.
    pub packages: &'static [&'static str],
    /// Its file.
    pub text: &'static str,
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "filesystem",
        packages: &["@modelcontextprotocol/server-filesystem"],
        text: include_str!("../../../../../presets/filesystem.toml"),
    },
    Preset {
        name: "git",
        packages: &["mcp-server-git"],
        text: include_str!("../../../../../presets/git.toml"),
    },
    Preset {
        name: "memory",
        packages: &["@modelcontextprotocol/server-memory"],
        text: include_str!("../../../../../presets/memory.toml"),
    },
    Preset {
        name: "sqlite",
        packages: &["mcp-server-sqlite"],
        text: include_str!("../../../../../presets/sqlite.toml"),
    },
];

/// The preset of that name.
pub(super) fn by_name(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The preset for the server that a word of a command line names: a package, a version behind `@`
/// or `==` aside, the path of its program, a package behind an option's `=`, or a module of Python.
#[must_use]
pub fn preset_for_package(word: &str) -> Option<&'static Preset> {
    // npx --package=NAME, uvx --from=NAME
    let behind = |word: &'_ str| word.strip_prefix("--")?.split_once('=').map(|(_, it)| it.len());
    let word = behind(word).map_or(word, |length| &word[word.len() - length..]);
    // python -m mcp_server_git
    let is_module = |package: &str| !package.contains('/') && package.replace('-', "_") == word;
    let is_it = |package: &str| {
        if is_module(package) {
            return Some(());
        }
        let rest = match word.strip_prefix(package) {
            Some(rest) => rest,
            None => {
                // .../bin/mcp-server-git, .../node_modules/@scope/name/dist/index.js
                let (_, rest) = word.split_once(&format!("/{package}"))?;
                rest
            }
        };
        (rest.is_empty() || rest.starts_with(['@', '=', '/', '>', '<', '~', '['])).then_some(())
    };
    PRESETS.iter().find(|preset| preset.packages.iter().any(|it| is_it(it).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_found_by_its_package() {
        // Promise: a preset is proposed for the server that it was tested with, and no other.
        for (word, expected) in [
            ("@modelcontextprotocol/server-memory", Some("memory")),
            ("@modelcontextprotocol/server-memory@2026.8.31", Some("memory")),
            ("mcp-server-git", Some("git")),
            ("mcp-server-sqlite==2025.4.25", Some("sqlite")),
            ("/opt/venv/bin/mcp-server-git", Some("git")),
            (
                "/x/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js",
                Some("filesystem"),
            ),
            ("--package=@modelcontextprotocol/server-memory@1.0.0", Some("memory")),
            ("--from=mcp-server-git==1.0", Some("git")),
            ("mcp_server_git", Some("git")),
            ("mcp_server_github", None),
            ("--repository=mcp-server-github", None),
            ("mcp-server-github", None),
            ("my-mcp-server-git", None),
            ("@other/server-memory", None),
            ("", None),
        ] {
            assert_eq!(preset_for_package(word).map(|it| it.name), expected, "{word}");
        }
    }
}
