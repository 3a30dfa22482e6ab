//! Who decides, where no flag says so: the name that the audit trail keeps.

use super::operation::note_text;
use crate::config::Environment;

/// The accounts of the system, passwd(5).
const ACCOUNTS: &str = "/etc/passwd";

/// The user's name from the environment, else from the system's accounts, else `uid N`: in a
/// container often neither is there.
pub(super) fn of_process(env: &Environment) -> String {
    let accounts = std::fs::read(ACCOUNTS).unwrap_or_default();
    named(env, &String::from_utf8_lossy(&accounts), rustix::process::getuid().as_raw())
}

fn named(env: &Environment, accounts: &str, uid: u32) -> String {
    let variables = ["USER", "LOGNAME"].iter().filter_map(|name| env.get(name)?.to_str());
    variables
        .chain(account_name(accounts, uid))
        .find_map(|name| note_text(name).ok())
        .unwrap_or_else(|| format!("uid {uid}"))
}

/// The name of the first account with that number.
fn account_name(accounts: &str, uid: u32) -> Option<&str> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_decides_has_a_name_everywhere() {
        // Promise: a decision is never refused, and never anonymous, for want of a variable.
        let accounts = "# none\nroot:x:0:0:root:/root:/bin/sh\n:x:7::\nmara:x:1000:1000::/:\n\
                        second:x:1000:1::/:\n";
        type Case<'a> = (&'a [(&'a str, &'a str)], u32, &'a str);
        let cases: &[Case<'_>] = &[
            (&[("USER", "anna"), ("LOGNAME", "bert")], 1000, "anna"),
            (&[("LOGNAME", "bert")], 1000, "bert"),
            (&[("USER", ""), ("LOGNAME", "a\u{1b}b")], 1000, "mara"),
            (&[], 0, "root"),
            (&[], 7, "uid 7"),
            (&[], 4711, "uid 4711"),
        ];
        for (variables, uid, expected) in cases {
            let env: Environment = variables.iter().copied().collect();
            assert_eq!(named(&env, accounts, *uid), *expected, "{variables:?} {uid}");
        }
    }
}
