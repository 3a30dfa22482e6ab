//! Where the operation ID goes in a tool's arguments, and how the tool's schema says so.

use counterfoil_core::limits::MAX_OPERATION_ID_BYTES;
use serde_json::json;

use crate::wrap::raw::{Edits, Member, Raw, Span, has, only};
use crate::wrap::settings::MissingId;

/// Names for the ID, in the order of preference.
const ID_NAMES: &[&str] = &["operation_id", "counterfoil_operation_id"];
/// Names for the ID of what is to be done again.
const REPEAT_NAMES: &[&str] = &["repeat_of", "counterfoil_repeat_of"];

/// What makes a root more than a list of properties: one more property could then change what it
/// takes.
const NOT_PLAIN: &[&str] = &[
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "const",
    "enum",
    "dependencies",
    "dependentSchemas",
    "dependentRequired",
    "patternProperties",
    "propertyNames",
    "maxProperties",
    "minProperties",
];

/// Where a call of a guarded tool carries its operation ID, besides `_meta`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdField {
    /// In arguments of these names.
    Arguments {
        /// The ID.
        operation_id: &'static str,
        /// The ID of what is to be done again; `None` where another call never joins, or the tool
        /// has arguments of these names.
        repeat_of: Option<&'static str>,
    },
    /// In `_meta` alone.
    MetaOnly(MetaOnly),
}

/// Why arguments cannot carry the ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaOnly {
    /// No list has told the tool.
    NotListed,
    /// It is passed on.
    NotGuarded,
    /// The root of its schema is more than a list of properties: it has this word.
    NotPlain(String),
    /// Its schema cannot be read.
    Unreadable,
    /// It has arguments of its own with the names that are ours.
    NamesTaken,
}

/// A schema's root, as far as it must be understood.
pub(super) struct Root {
    span: Span,
    members: Vec<Member>,
    /// The object of its properties, if there is one.
    properties: Option<(Span, Vec<Member>)>,
    required: Option<(Span, Vec<Span>)>,
}

impl Root {
    /// Reads the root of a schema; or why nothing can be put into it.
    pub(super) fn read(raw: &Raw<'_>, span: &Span) -> Result<Self, MetaOnly> {
        let members = raw.members(span).ok_or(MetaOnly::Unreadable)?;
        let known = |word: &&&str| has(&members, word);
        if let Some(word) = NOT_PLAIN.iter().find(known) {
            return Err(MetaOnly::NotPlain((*word).to_owned()));
        }
        let kind = only(&members, "type").and_then(|it| raw.string(&it.value));
        if kind.as_deref() != Some("object") {
            return Err(MetaOnly::NotPlain("type".into()));
        }
        let properties = match only(&members, "properties") {
            Some(member) => {
                let inner = raw.members(&member.value).ok_or(MetaOnly::Unreadable)?;
                Some((member.value.clone(), inner))
            }
            None if has(&members, "properties") => return Err(MetaOnly::Unreadable),
            None => None,
        };
        let required = match only(&members, "required") {
            Some(member) => {
                let inner = raw.elements(&member.value).ok_or(MetaOnly::Unreadable)?;
                Some((member.value.clone(), inner))
            }
            None if has(&members, "required") => return Err(MetaOnly::Unreadable),
            None => None,
        };
        Ok(Self { span: span.clone(), members, properties, required })
    }

    /// The tool's own arguments. A name that is only required is its own too.
    pub(super) fn names(&self, raw: &Raw<'_>) -> Vec<String> {
        let properties = self.properties.iter().flat_map(|(_, members)| members);
        let required = self.required.iter().flat_map(|(_, elements)| elements);
        let properties = properties.filter_map(|it| it.name.clone());
        properties.chain(required.filter_map(|it| raw.string(it))).collect()
    }

    /// The names that are free for us.
    pub(super) fn id_field(&self, raw: &Raw<'_>, missing_id: MissingId) -> IdField {
        let own = self.names(raw);
        let is_free = |name: &&&'static str| !own.iter().any(|it| it == **name);
        let free = |names: &'static [&'static str]| names.iter().find(is_free).copied();
        let joins = missing_id == MissingId::Join;
        match free(ID_NAMES) {
            Some(operation_id) => IdField::Arguments {
                operation_id,
                repeat_of: joins.then(|| free(REPEAT_NAMES)).flatten(),
            },
            None => IdField::MetaOnly(MetaOnly::NamesTaken),
        }
    }

    /// Declares our arguments.
    pub(super) fn declare(&self, field: &IdField, missing_id: MissingId, edits: &mut Edits) {
        let IdField::Arguments { operation_id, repeat_of } = field else { return };
        let mut written = format!("\"{operation_id}\":{}", id_schema(missing_id));
        if let Some(repeat_of) = repeat_of {
            written.push_str(&format!(",\"{repeat_of}\":{}", repeat_schema()));
        }
        match &self.properties {
            Some((span, members)) => edits.add_member(span, members, &written),
            None => {
                edits.add_member(
                    &self.span,
                    &self.members,
                    &format!("\"properties\":{{{written}}}"),
                );
            }
        }
        if missing_id != MissingId::Reject {
            return;
        }
        let needed = format!("\"{operation_id}\"");
        match &self.required {
            Some((span, elements)) => edits.add_element(span, elements, &needed),
            None => {
                // Where the properties were added too, the root is not empty: it has a type.
                edits.add_member(&self.span, &self.members, &format!("\"required\":[{needed}]"));
            }
        }
    }
}

/// Every tool carries these words, and a model reads them each time: they are short.
fn id_schema(missing_id: MissingId) -> String {
    let needed = if missing_id == MissingId::Reject { "Needed" } else { "Optional" };
    let words = format!(
        "{needed}: a new UUID of your own for this one action. If the reply is lost or unclear, call \
         again with the same ID and the same arguments: it is done at most once. Another action \
         needs another ID."
    );
    let schema = json!({
        "type": "string",
        "maxLength": MAX_OPERATION_ID_BYTES,
        "description": words,
    });
    schema.to_string()
}

fn repeat_schema() -> String {
    let schema = json!({
        "type": "string",
        "maxLength": MAX_OPERATION_ID_BYTES,
        "description": "Only to do the same once more on purpose: the operation ID that an earlier \
                        reply told.",
    });
    schema.to_string()
}
