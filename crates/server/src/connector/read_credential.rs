//! Reads the credential of a connector, and how it sends its idempotency key.

use counterfoil_core::identity::Tenant;
use http::HeaderName;

use super::credential::{Credential, CredentialKind, SecretSource};
use super::form::Form;
use super::header;

/// Keys under which people write secrets.
const INLINE: &[&str] =
    &["token", "secret", "password", "pass", "key", "value", "bearer", "api_key", "apikey"];

/// How a request carries its idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// In this header; `None` where the body's template has it.
    pub header: Option<HeaderName>,
    /// What the key is.
    pub key: KeyKind,
}

/// What an idempotency key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// A keyed digest of ledger, tenant and operation ID.
    Digest,
    /// The caller's operation ID itself: the credential is one tenant's alone.
    OperationId,
}

/// The `[credential]` table.
pub(super) fn credential(form: &Form<'_>) -> Option<Credential> {
    let table = form.table("credential")?;
    // Named first, so that its value is shown by no other message.
    for (name, _, field) in table.members() {
        if INLINE.contains(&name.to_lowercase().as_str()) {
            field.secret_problem(
                "a secret never stands in this file; name the variable or the file that holds it: \
                 env = \"NAME\" or file = \"PATH\", and renew a secret that stood here",
            );
            return None;
        }
    }
    let kind = kind(&table);
    let source = source(&table);
    let account = table.needed(
        "account",
        "name the account whose credential this is, as the target knows it; a repeat is never made \
         as another",
        |text| {
            let good =
                !text.trim().is_empty() && text.len() <= 256 && !text.chars().any(char::is_control);
            if good {
                Ok(text.to_owned())
            } else {
                Err("an account is 1 to 256 bytes of text".into())
            }
        },
    );
    let exclusive_to = table.field("exclusive_to");
    let is_exclusive = exclusive_to.is_some();
    let exclusive_to = exclusive_to.and_then(|field| {
        field.parsed(|text| Tenant::parse(text).map_err(|error| error.to_string()))
    });
    table.finish();
    if is_exclusive && exclusive_to.is_none() {
        return None;
    }
    Some(Credential { kind: kind?, source: source?, account: account?, exclusive_to })
}

fn kind(table: &Form<'_>) -> Option<CredentialKind> {
    const KINDS: &str = "use \"bearer\", \"basic\", \"header\" or \"path\"";
    let word = table.needed("type", KINDS, |text| Ok(text.to_owned()));
    let username = table.field("username");
    let name = table.field("header");
    let unused = |field: Option<super::form::Field<'_>>, of: &str| {
        if let Some(field) = field {
            field.problem(format!("only type = \"{of}\" has this; remove it"));
        }
    };
    match word?.as_str() {
        "bearer" | "path" if username.is_some() || name.is_some() => {
            unused(username, "basic");
            unused(name, "header");
            None
        }
        "bearer" => Some(CredentialKind::Bearer),
        "path" => Some(CredentialKind::Path),
        "basic" => {
            unused(name, "header");
            let Some(username) = username else {
                table.missing("username", "give the user's name; the secret is the password");
                return None;
            };
            username.parsed(|text| {
                // RFC 7617, section 2: a colon would end it.
                let good = !text.is_empty() && !text.chars().any(|c| c.is_control() || c == ':');
                if good {
                    Ok(CredentialKind::Basic { username: text.to_owned() })
                } else {
                    Err("a user's name is not empty and has no `:`".into())
                }
            })
        }
        "header" => {
            unused(username, "basic");
            let Some(name) = name else {
                table.missing("header", "give the header that carries the secret");
                return None;
            };
            name.parsed(|text| Ok(CredentialKind::Header { name: header::name(text)? }))
        }
        _ => {
            table.field("type")?.problem(format!("there is no such type; {KINDS}"));
            None
        }
    }
}

fn source(table: &Form<'_>) -> Option<SecretSource> {
    let (env, file) = (table.field("env"), table.field("file"));
    match (env, file) {
        (Some(env), None) => env.parsed(|text| {
            let of_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            let good = !text.is_empty()
                && text.bytes().all(of_name)
                && !text.as_bytes()[0].is_ascii_digit();
            if good {
                Ok(SecretSource::Env(text.to_owned()))
            } else {
                Err("that is no variable's name; give its name, not its value".into())
            }
        }),
        (None, Some(file)) => {
            let base = table.file().path.parent().map(std::path::Path::to_owned);
            file.parsed(|text| {
                if text.is_empty() || text.contains('\0') {
                    return Err("the path is empty; name the file that holds the secret".into());
                }
                Ok(SecretSource::File(base.unwrap_or_default().join(text)))
            })
        }
        (None, None) => {
            table
                .missing("env", "name where the secret is kept: env = \"NAME\" or file = \"PATH\"");
            None
        }
        (Some(_), Some(file)) => {
            file.problem("there is an env already; give one of the two");
            None
        }
    }
}

/// The `[idempotency]` table.
pub(super) fn idempotency(form: &Form<'_>, exclusive: bool) -> Option<Idempotency> {
    let table = form.table("idempotency")?;
    let header_field = table.field("header");
    let has_header = header_field.is_some();
    let header = header_field.and_then(|field| field.parsed(header::plain_name));
    let key = match table.field("key") {
        None => Some(KeyKind::Digest),
        Some(field) => field.parsed(|text| match text {
            "digest" => Ok(KeyKind::Digest),
            "operation_id" if exclusive => Ok(KeyKind::OperationId),
            "operation_id" => Err("two tenants may choose the same operation ID; declare the \
                                   credential exclusive with [credential] exclusive_to, or use \
                                   \"digest\""
                .into()),
            _ => Err("use \"digest\", or \"operation_id\" with an exclusive credential".into()),
        }),
    };
    if let (Some(name), Some(headers)) = (&header, form.table("headers"))
        && headers.members().iter().any(|(it, _, _)| it.eq_ignore_ascii_case(name.as_str()))
    {
        table.problem(format!("sets `{name}`, which [headers] sets too; remove it there"));
    }
    table.finish();
    if has_header && header.is_none() {
        return None;
    }
    Some(Idempotency { header, key: key? })
}
