//! The names that templates may use.

use std::collections::BTreeSet;

use super::schema::Schema;
use crate::config::nearest;

/// What the templates of a request may name.
pub(super) struct Vocabulary<'a> {
    /// The schema of the arguments, if it is good.
    pub(super) arguments: Option<&'a Schema>,
    /// Whether the target's credential is one tenant's alone.
    pub(super) exclusive: bool,
}

impl Vocabulary<'_> {
    /// Refuses a name that will never have a value.
    pub(super) fn check(&self, names: &BTreeSet<String>) -> Result<(), String> {
        names.iter().try_for_each(|name| self.check_one(name))
    }

    fn check_one(&self, name: &str) -> Result<(), String> {
        let (root, member) = match name.split_once('.') {
            Some((root, rest)) => (root, rest.split('.').next()),
            None => (name, None),
        };
        match (root, member) {
            ("key" | "marker", None) => Ok(()),
            ("operation_id", None) if self.exclusive => Ok(()),
            ("operation_id", None) => Err("`operation_id` is the caller's own text, and two tenants \
                may choose the same; use `marker` or `key`, or declare the credential exclusive with \
                [credential] exclusive_to"
                .into()),
            ("args", None) => Ok(()),
            ("args", Some(member)) => {
                let Some(schema) = self.arguments.filter(|schema| schema.is_closed()) else {
                    return Ok(());
                };
                if schema.properties().any(|it| it == member) {
                    return Ok(());
                }
                let known = schema.properties().map(str::to_owned);
                Err(match nearest(member, known, 3.max(member.len() / 3)) {
                    Some(near) => {
                        format!("`args.{member}` is no argument of the tool; use args.{near}")
                    }
                    None => format!("`args.{member}` is no argument of the tool; declare it"),
                })
            }
            _ => Err(format!(
                "there is no `{name}` in a template; use args.NAME, key, marker or operation_id"
            )),
        }
    }
}

/// Refuses every name but those of a result: `reply` and `external_id`.
pub(super) fn check_result(names: &BTreeSet<String>) -> Result<(), String> {
    let root = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    match names.iter().find(|name| !["reply", "external_id"].contains(&root(name).as_str())) {
        None => Ok(()),
        Some(name) => {
            Err(format!("there is no `{name}` in a result; use reply.NAME or external_id"))
        }
    }
}
