//! `counterfoil completions`: a script that lets a shell complete our command line.

use clap::{Args, ValueEnum};
use clap_complete::generate;
use clap_complete::shells;

use crate::cli::exit::Exit;
use crate::output;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil completions bash > ~/.local/share/bash-completion/completions/counterfoil
  counterfoil completions zsh > ~/.zfunc/_counterfoil     (a directory of your $fpath)
  counterfoil completions fish > ~/.config/fish/completions/counterfoil.fish")]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// A shell that we have a script for.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
///
/// # Errors
/// If stdout cannot be written.
pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut command = super::public_command();
    // Into memory first: the generator panics where a reader has gone.
    let mut script = Vec::new();
    let name = "counterfoil";
    match args.shell {
        Shell::Bash => generate(shells::Bash, &mut command, name, &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut command, name, &mut script),
        Shell::Fish => generate(shells::Fish, &mut command, name, &mut script),
    }
    output::data(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
