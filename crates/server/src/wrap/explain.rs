//! What `counterfoil wrap --explain` shows: for each tool what happens to it, and why.

use serde_json::{Value, json};

use super::lookup::{Lookup, Marker};
use super::tools::{Handling, IdField, MetaOnly, Plans, ToolPlan, Why};
use crate::output::printable;

/// The table, as people read it, with what is doubtful below.
#[must_use]
pub fn text(plans: &Plans) -> String {
    let head = ["TOOL", "CALLS ARE", "WHY", "ID IN", "WITHOUT ID", "IF THE REPLY IS LOST"];
    let mut rows = vec![head.map(str::to_owned)];
    let shown = |row: [String; 6]| row.map(|cell| printable(&cell).replace('\n', " "));
    rows.extend(plans.iter().map(|plan| shown(row(plan))));
    rows.push(own_row(plans));
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.extend(doubts(plans).into_iter().map(|doubt| format!("note: {doubt}")));
    printable(&lines.join("\n"))
}

/// The same for programs.
#[must_use]
pub fn json(plans: &Plans) -> Value {
    let tools: Vec<Value> = plans
        .iter()
        .map(|plan| {
            json!({
                "tool": plan.name,
                "handling": handling(plan.handling),
                "why": why(&plan.why),
                "idField": id_argument(&plan.id_field),
                "idInMetaAloneBecause": meta_only(plan),
                "repeatField": repeat_argument(&plan.id_field),
                "missingId": plan.is_guarded().then(|| plan.missing_id.as_str()),
                "version": plan.is_guarded().then(|| plan.version.as_str()),
                "errorMeans": plan.is_guarded().then(|| plan.error_means.as_str()),
                "marker": plan.marker().map(|it| it.argument()),
                "lookup": plan.lookup().map(|it| json!({
                    "tool": it.tool(),
                    "provesAbsenceAfterMs": absence_ms(it),
                })),
            })
        })
        .collect();
    json!({
        "tools": tools,
        "statusTool": plans.status_tool(),
        "notes": doubts(plans),
    })
}

/// What is allowed and hardly meant: settings that no tool of the list has.
#[must_use]
pub fn doubts(plans: &Plans) -> Vec<String> {
    let mut found = Vec::new();
    for (name, tool) in &plans.settings().tools {
        if plans.get(name).is_none() {
            found.push(format!(
                "{} has settings for {name}, which the server does not list; calls of it would \
                 follow them all the same",
                tool.origin
            ));
        }
        if let Some(lookup) = &tool.lookup
            && plans.get(lookup.tool()).is_none()
        {
            found.push(format!(
                "{name} is looked for with {}, which the server does not list: nothing will be \
                 found",
                lookup.tool()
            ));
        }
        found.extend(plans.get(name).into_iter().flat_map(|plan| unmade(plan)));
    }
    found
}

/// Templates that ask a call for what its tool's schema does not have: a slip, for the most part.
fn unmade(plan: &ToolPlan) -> Vec<String> {
    let lacks = |name: &String| plan.lacks_argument(name);
    let looks = plan.lookup().into_iter().flat_map(Lookup::needs).filter(lacks).map(|argument| {
        format!(
            "{} is looked for by its argument {argument}, which its schema does not have: \
             without it a look asks for less than was meant, or cannot be made",
            plan.name
        )
    });
    let marks = plan.marker().into_iter().flat_map(Marker::needs).filter(lacks).map(|argument| {
        format!(
            "the marker of {} is made from its argument {argument}, which its schema does not have: \
             without it the marker is not what was meant, or the call is refused",
            plan.name
        )
    });
    looks.chain(marks).collect()
}

fn row(plan: &ToolPlan) -> [String; 6] {
    let guarded = plan.is_guarded();
    let dash = || "-".to_owned();
    let id = match &plan.id_field {
        IdField::Arguments { operation_id, .. } => (*operation_id).to_owned(),
        IdField::MetaOnly(_) => match meta_only(plan) {
            Some(why) => format!("_meta ({why})"),
            None => dash(),
        },
    };
    [
        plan.name.clone(),
        handling(plan.handling).to_owned(),
        why(&plan.why),
        id,
        if guarded { plan.missing_id.as_str().to_owned() } else { dash() },
        if guarded { recovery(plan) } else { dash() },
    ]
}

fn own_row(plans: &Plans) -> [String; 6] {
    let dash = || "-".to_owned();
    [
        plans.status_tool(),
        "answered here".into(),
        "added by counterfoil".into(),
        dash(),
        dash(),
        dash(),
    ]
}

fn handling(handling: Handling) -> &'static str {
    match handling {
        Handling::Guarded => "guarded",
        Handling::PassedOn => "passed on",
    }
}

fn why(why: &Why) -> String {
    match why {
        Why::Said(origin) => origin.to_string(),
        Why::TrustedHint => "calls itself read-only (trust_annotations)".into(),
        Why::Default => "nothing says that it only reads".into(),
    }
}

fn id_argument(field: &IdField) -> Option<&'static str> {
    match field {
        IdField::Arguments { operation_id, .. } => Some(operation_id),
        IdField::MetaOnly(_) => None,
    }
}

fn repeat_argument(field: &IdField) -> Option<&'static str> {
    match field {
        IdField::Arguments { repeat_of, .. } => *repeat_of,
        IdField::MetaOnly(_) => None,
    }
}

/// Why a guarded tool's arguments carry no ID.
fn meta_only(plan: &ToolPlan) -> Option<String> {
    let IdField::MetaOnly(why) = &plan.id_field else { return None };
    match why {
        MetaOnly::NotGuarded => None,
        MetaOnly::NotListed => Some("the server does not list it".into()),
        MetaOnly::NotPlain(word) => Some(format!("its schema's root has `{word}`")),
        MetaOnly::Unreadable => Some("its schema cannot be read".into()),
        MetaOnly::NamesTaken => Some("it has arguments of these names".into()),
    }
}

fn recovery(plan: &ToolPlan) -> String {
    match plan.lookup() {
        Some(lookup) if lookup.absence_after().is_some() => {
            format!("looked for with {}, absence too", lookup.tool())
        }
        Some(lookup) => format!("looked for with {}", lookup.tool()),
        None => "in doubt, for a person".into(),
    }
}

fn absence_ms(lookup: &Lookup) -> Option<u64> {
    lookup.absence_after().map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX))
}
