//! Help and usage errors, as people read them.

use clap::error::ErrorKind;

/// Every command with its path, the binary itself first; clap's own `help` is left out.
fn commands() -> Vec<(String, clap::Command)> {
    fn visit(path: &str, command: &clap::Command, found: &mut Vec<(String, clap::Command)>) {
        found.push((path.to_owned(), command.clone()));
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            visit(&format!("{path} {}", sub.get_name()), sub, found);
        }
    }
    let mut root = counterfoil::cli::command().term_width(100);
    root.build();
    let mut found = Vec::new();
    visit("counterfoil", &root, &mut found);
    found
}

#[test]
fn every_help_is_as_it_was_reviewed() {
    // Promise: help explains every command, and changes only with a review.
    for (path, mut command) in commands() {
        let name = path.replace(' ', "_");
        insta::assert_snapshot!(name, command.render_long_help().to_string());
    }
}

#[test]
fn every_command_and_argument_is_explained() {
    // Promise: nothing in the command line has to be guessed.
    for (path, command) in commands() {
        assert!(command.get_about().is_some(), "{path}");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{path} {}", argument.get_id());
        }
    }
}

#[test]
fn usage_errors_are_recognised_before_anything_is_done() {
    // Promise: a slip on the command line changes nothing.
    let check = |line: &str, kind: ErrorKind, words: &str| {
        let error = counterfoil::cli::command()
            .try_get_matches_from(line.split(' ').map(|word| word.replace('_', " ")))
            .expect_err(line);
        assert_eq!(error.kind(), kind, "{line}");
        let text = error.to_string();
        assert!(text.contains(words), "{line}\n{text}");
    };
    use ErrorKind::{
        ArgumentConflict, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
        InvalidSubcommand, InvalidValue, MissingRequiredArgument, UnknownArgument, ValueValidation,
    };
    check("counterfoil", DisplayHelpOnMissingArgumentOrSubcommand, "operation");
    check("counterfoil --version", DisplayVersion, env!("CARGO_PKG_VERSION"));
    check("counterfoil serv", InvalidSubcommand, "serve");
    check("counterfoil serve", MissingRequiredArgument, "--stdio");
    check("counterfoil serve --stdio --lokc-wait 1", UnknownArgument, "--lock-wait");
    check("counterfoil operation show ", ValueValidation, "operation_id is empty");
    check("counterfoil operation show ___", ValueValidation, "operation_id is blank");
    let list = "counterfoil operation list";
    check(&format!("{list} --limit 0"), ValueValidation, "1 to 200 operations");
    check(&format!("{list} --limit 201"), ValueValidation, "1 to 200 operations");
    check(&format!("{list} --limit -1"), UnknownArgument, "-1");
    check(&format!("{list} --state Applied"), ValueValidation, "use one of: in_progress");
    check(&format!("{list} --state applied --unsettled"), ArgumentConflict, "--unsettled");
    check(&format!("{list} --cursor x"), ValueValidation, "the cursor that the last page");
    let digest = "counterfoil fingerprint";
    check(&format!("{digest} --profile strict-v1"), MissingRequiredArgument, "--key-file");
    check(&format!("{digest} --profile md5 --key-file k"), ValueValidation, "strict-v1 or jcs-v1");
    check("counterfoil completions", MissingRequiredArgument, "<SHELL>");
    check("counterfoil completions tcsh", InvalidValue, "bash, zsh, fish");
    check("counterfoil key retire 0", ValueValidation, "1, 2, 3");
    let long = format!("counterfoil operation show {}", "x".repeat(129));
    check(&long, ValueValidation, "at most 128");
    let base = "counterfoil operation resolve x";
    check(&format!("{base} --reason r"), MissingRequiredArgument, "--applied|--not-applied");
    check(&format!("{base} --applied"), MissingRequiredArgument, "--reason");
    check(&format!("{base} --applied --not-applied --reason r"), ArgumentConflict, "--not-applied");
    check(&format!("{base} --applied --reason _"), ValueValidation, "it is blank");
    check(&format!("{base} --applied --reason a\u{7}"), ValueValidation, "control characters");
    check("counterfoil key generate --id 0", ValueValidation, "1, 2, 3");
}

#[test]
fn slips_in_operators_orders_are_recognised_before_anything_is_done() {
    // Promise: as above, for deliveries, targets and revocations.
    let check = |line: &str, kind: ErrorKind, words: &str| {
        let error = counterfoil::cli::command()
            .try_get_matches_from(line.split(' ').map(|word| word.replace('_', " ")))
            .expect_err(line);
        assert_eq!(error.kind(), kind, "{line}");
        let text = error.to_string();
        assert!(text.contains(words), "{line}\n{text}");
    };
    use ErrorKind::{ArgumentConflict, MissingRequiredArgument, ValueValidation};
    let list = "counterfoil delivery list";
    check(&format!("{list} --state dead"), ValueValidation, "use one of: queued, leased");
    check(&format!("{list} --class oops"), ValueValidation, "use one of: dns, connect");
    check(&format!("{list} --older-than -1"), ValueValidation, "cannot be negative");
    check(&format!("{list} --older-than soon"), ValueValidation, "not a time span");
    check(&format!("{list} --limit 201"), ValueValidation, "1 to 200");
    check(&format!("{list} --limit 5 --all"), ArgumentConflict, "--all");
    check(&format!("{list} --cursor tkt"), ValueValidation, "the cursor that the last page");
    for verb in ["redrive", "cancel", "abandon"] {
        let order = format!("counterfoil delivery {verb}");
        check(&format!("{order} x"), MissingRequiredArgument, "--reason");
        check(&format!("{order} x --reason _"), ValueValidation, "it is blank");
        check(&format!("{order} x --reason r --who a\u{7}"), ValueValidation, "control characters");
        let both = format!("{order} --target x --reason r --yes --dry-run");
        check(&both, ArgumentConflict, "--dry-run");
    }
    check("counterfoil delivery show", MissingRequiredArgument, "<ID>");
    check("counterfoil target pause desk", MissingRequiredArgument, "--reason");
    check("counterfoil target pause Desk --reason r", ValueValidation, "cannot name a target");
    check("counterfoil principal revoke alice", MissingRequiredArgument, "--reason");
    check("counterfoil tenant restore --reason r", MissingRequiredArgument, "<NAME>");
    check("counterfoil audit show", MissingRequiredArgument, "<ID>");
}
