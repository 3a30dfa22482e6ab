//! Reads one `[wrap]` table. Every mistake is noted.

use std::time::Duration;

use counterfoil_core::identity::ToolVersion;
use toml::de::DeValue;

use super::{ErrorMeans, MissingId, Origin, ToolEffect, ToolSettings, UpstreamKey};
use crate::config::Place;
use crate::connector::form::{Field, Form};
use crate::wrap::lookup::{read_lookup, read_marker};

/// A cap below this would cut what every client takes.
const LEAST_RESULT_BYTES: i64 = 64 * 1024;
/// No call without an ID joins an operation older than this.
const LONGEST_JOIN_AGE: Duration = Duration::from_secs(30 * 86_400);
/// A table says so much about tools at most.
const MOST_TOOLS: usize = 1000;

/// What one file says, before it is put over another.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) name: Option<UpstreamKey>,
    pub(super) environment: Option<Vec<String>>,
    pub(super) trust_annotations: Option<bool>,
    pub(super) missing_id: Option<MissingId>,
    pub(super) join_age: Option<Duration>,
    pub(super) max_result_bytes: Option<usize>,
    pub(super) tools: Vec<DraftTool>,
}

/// What one file says of a tool.
pub(super) struct DraftTool {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) settings: ToolSettings,
}

/// Reads the table; `None` has mistakes, which are noted.
pub(super) fn draft(form: Form<'_>, preset: Option<&'static str>) -> Option<Draft> {
    let before = form.problems_count();
    let name = form.parsed("name", UpstreamKey::parse);
    let environment = form.field("environment").and_then(|field| variables(&field));
    let trust = form.flag("trust_annotations");
    let trust_annotations = form.has("trust_annotations").then_some(trust);
    let missing_id = form.parsed("missing_id", MissingId::parse);
    let join_age = form.field("join_age").and_then(|field| {
        let age = field.span()?;
        if age.is_zero() || age > LONGEST_JOIN_AGE {
            field.problem(
                "this is more than 0 and at most 30 days; missing_id = \"mint\" joins nothing",
            );
            return None;
        }
        Some(age)
    });
    let most = i64::try_from(counterfoil_core::limits::MAX_RESULT_BYTES).unwrap_or(i64::MAX);
    let max = form.count("max_result_bytes", (LEAST_RESULT_BYTES, most), most);
    let max = max.filter(|_| form.has("max_result_bytes"));
    let max_result_bytes = max.and_then(|bytes| usize::try_from(bytes).ok());
    let tools = form.table("tools").map(|tools| all_tools(&tools, preset)).unwrap_or_default();
    let is_clean = form.finish() == before;
    let draft = Draft {
        name,
        environment,
        trust_annotations,
        missing_id,
        join_age,
        max_result_bytes,
        tools,
    };
    is_clean.then_some(draft)
}

/// Reads `[preset]`: for which packages the preset is, and with which versions it was tested.
pub(super) fn preset_about(form: Form<'_>) {
    if let Some(field) = form.field("packages") {
        field.texts();
    }
    form.parsed("tested", |text| Ok(text.to_owned()));
    form.finish();
}

fn all_tools(form: &Form<'_>, preset: Option<&'static str>) -> Vec<DraftTool> {
    let mut found = Vec::new();
    let members = form.members();
    if members.len() > MOST_TOOLS {
        form.problem(format!("has over {MOST_TOOLS} tools; remove some"));
        return found;
    }
    for (name, at, field) in members {
        let DeValue::Table(table) = field.value.get_ref() else {
            field.problem(format!("a tool's settings are a table; write [wrap.tools.{name}]"));
            continue;
        };
        let inner = form.inside(field.name.clone(), table, at);
        let place = inner.place();
        let settings = tool(inner, preset);
        found.extend(settings.map(|settings| DraftTool { name, place, settings }));
    }
    found
}

fn tool(form: Form<'_>, preset: Option<&'static str>) -> Option<ToolSettings> {
    let before = form.problems_count();
    let origin = Origin::of(&form.place(), preset);
    let effect = form.parsed("effect", ToolEffect::parse);
    let version = form
        .parsed("version", |text| ToolVersion::parse(text).map_err(|error| error.to_string()))
        .or_else(|| ToolVersion::parse("1").ok());
    let missing_id = form.parsed("missing_id", MissingId::parse);
    let error_means = form.parsed("error_means", ErrorMeans::parse).unwrap_or(ErrorMeans::Unknown);
    let error_texts = form.field("error_texts").and_then(|field| {
        let texts = field.texts()?;
        if texts.iter().any(String::is_empty) {
            field.problem("an empty text begins every result; remove it");
        }
        Some(texts)
    });
    let marker = form.table("marker").and_then(read_marker);
    let lookup = form.table("lookup").and_then(|it| read_lookup(it, marker.as_ref()));
    if effect == Some(ToolEffect::Read) {
        let of_writes = ["version", "missing_id", "error_means", "error_texts", "marker", "lookup"];
        if let Some(key) = of_writes.iter().find(|key| form.has(key)) {
            form.problem(format!(
                "says that the tool changes nothing, so it is passed on and {key} has no use; \
                 remove one of the two"
            ));
        }
    }
    let is_clean = form.finish() == before;
    let settings = ToolSettings {
        effect,
        version: version?,
        missing_id,
        error_means,
        error_texts: error_texts.unwrap_or_default(),
        marker,
        lookup,
        origin,
    };
    is_clean.then_some(settings)
}

/// Names of variables.
fn variables(field: &Field<'_>) -> Option<Vec<String>> {
    let names = field.texts()?;
    let good = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
    if !names.iter().all(good) {
        field.problem("these are names of environment variables, without values");
        return None;
    }
    Some(names)
}
