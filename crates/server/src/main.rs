//! The counterfoil command.

use std::process::ExitCode;

fn main() -> ExitCode {
    counterfoil::cli::main(std::env::args_os()).into()
}
