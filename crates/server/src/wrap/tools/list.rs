//! Reads and rewrites a page of the server's `tools/list`, by splicing: what need not be understood
//! stays as it was written.

use std::sync::Arc;

use super::schema::Root;
use super::{IdField, MetaOnly, Plans};
use crate::wrap::raw::{Edits, Member, Raw, Span, only};

/// A page that is no list of tools; the only cause is the server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server's list of tools cannot be read: a result with a list `tools` is expected; report it \
     to the server's authors"
)]
pub struct UnreadableList;

/// A page, as far as it must be understood.
struct Page {
    span: Span,
    members: Vec<Member>,
    tools: (Span, Vec<Span>),
    /// As it is written; `None` on the last page.
    next_cursor: Option<String>,
}

impl Plans {
    /// Learns the tools of a page (the bytes of `result`) that we asked for ourselves. Gives the
    /// cursor of the next page.
    ///
    /// # Errors
    /// [`UnreadableList`].
    pub fn learn(&mut self, result: &[u8]) -> Result<Option<String>, UnreadableList> {
        let raw = Raw::json(result);
        let page = Page::read(&raw)?;
        for tool in &page.tools.1 {
            self.tool(&raw, tool, &mut Edits::default());
        }
        self.is_whole |= page.next_cursor.is_none();
        Ok(page.next_cursor)
    }

    /// A page for the client: as [`learn`](Self::learn), and with the ID declared in the schemas of
    /// guarded tools and our own tool on the last page. `is_private` says that the list depends on
    /// who asks: then no cache may share it. What the server says of how long it may be kept stays.
    ///
    /// # Errors
    /// [`UnreadableList`].
    pub fn rewrite(&mut self, result: &[u8], is_private: bool) -> Result<Vec<u8>, UnreadableList> {
        let raw = Raw::json(result);
        let page = Page::read(&raw)?;
        let mut edits = Edits::default();
        for tool in &page.tools.1 {
            self.tool(&raw, tool, &mut edits);
        }
        if page.next_cursor.is_none() {
            self.is_whole = true;
            edits.add_element(&page.tools.0, &page.tools.1, &self.status_definition());
        }
        if is_private {
            page.make_private(&raw, &mut edits);
        }
        Ok(edits.apply(result))
    }

    /// Plans one tool and declares our arguments in its schema. One without a name that can be read
    /// is left as it is: a call of it is guarded like one of any other tool that no list has told.
    fn tool(&mut self, raw: &Raw<'_>, span: &Span, edits: &mut Edits) {
        let Some(members) = raw.members(span) else { return };
        let name = only(&members, "name").and_then(|it| raw.string(&it.value));
        let Some(name) = name else { return };
        let read_only =
            only(&members, "annotations").and_then(|it| raw.members(&it.value)).and_then(|hints| {
                only(&hints, "readOnlyHint").map(|it| raw.bytes(&it.value) == b"true")
            });
        let mut plan = match self.known.get(&name) {
            Some(plan) => (**plan).clone(),
            None => self.decide(&name, read_only == Some(true)),
        };
        let output = only(&members, "outputSchema").map(|it| raw.bytes(&it.value));
        plan.output_schema = output.filter(|it| *it != b"null").map(Arc::from);
        let root = only(&members, "inputSchema")
            .ok_or(MetaOnly::Unreadable)
            .and_then(|it| Root::read(raw, &it.value));
        plan.id_field = match (&root, plan.is_guarded()) {
            (_, false) => IdField::MetaOnly(MetaOnly::NotGuarded),
            (Ok(root), true) => root.id_field(raw, plan.missing_id),
            (Err(why), true) => IdField::MetaOnly(why.clone()),
        };
        plan.declared = root.as_ref().ok().map(|root| root.names(raw).into());
        if let Ok(root) = &root {
            root.declare(&plan.id_field, plan.missing_id, edits);
        }
        self.known.insert(name, Arc::new(plan));
    }
}

impl Page {
    fn read(raw: &Raw<'_>) -> Result<Self, UnreadableList> {
        let span = raw.whole().ok_or(UnreadableList)?;
        let members = raw.members(&span).ok_or(UnreadableList)?;
        let tools = only(&members, "tools").ok_or(UnreadableList)?.value.clone();
        let elements = raw.elements(&tools).ok_or(UnreadableList)?;
        let cursor = members.iter().rfind(|it| it.name.as_deref() == Some("nextCursor"));
        let next_cursor = cursor.map(|it| raw.bytes(&it.value)).filter(|it| *it != b"null");
        let next_cursor = next_cursor.map(|it| String::from_utf8_lossy(it).into_owned());
        Ok(Self { span, members, tools: (tools, elements), next_cursor })
    }

    fn make_private(&self, raw: &Raw<'_>, edits: &mut Edits) {
        const PRIVATE: &str = "\"private\"";
        match only(&self.members, "cacheScope") {
            Some(scope) if raw.bytes(&scope.value) != PRIVATE.as_bytes() => {
                edits.replace(scope.value.clone(), PRIVATE);
            }
            Some(_) => {}
            // Without a time to live there is nothing that a cache would keep.
            None if only(&self.members, "ttlMs").is_some() => {
                edits.add_member(&self.span, &self.members, &format!("\"cacheScope\":{PRIVATE}"));
            }
            None => {}
        }
    }
}
