//! Hands the compiler what only a build script is told: target, profile and compiler. It runs no
//! network, no git, and fails for nothing: what is not known is left out.

#![allow(clippy::print_stdout, reason = "stdout is how a build script speaks to cargo")]

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (name, variable) in
        [("TARGET", "COUNTERFOIL_BUILT_FOR"), ("PROFILE", "COUNTERFOIL_BUILT_AS")]
    {
        if let Ok(value) = std::env::var(name) {
            println!("cargo::rustc-env={variable}={value}");
        }
    }
    if let Some(version) = compiler() {
        println!("cargo::rustc-env=COUNTERFOIL_BUILT_WITH={version}");
    }
}

/// The first line of `rustc --version`, of the very compiler that builds.
fn compiler() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}
