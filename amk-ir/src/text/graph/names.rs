//! Names of values: plain, quoted, or with their number.

use super::super::cursor::{Cursor, Parsed, is_digits, is_plain_word};
use super::super::error::ParseCause;
use super::super::print::{quoted, word};
use crate::ValueId;
use crate::expr::Expr;
use crate::graph::Graph;
use crate::layout::{FieldPath, PathStep};
use core::fmt::{self, Write};
use std::collections::HashMap;

/// Whether a word begins a statement or is a complete argument: `pos`, or a float such as `inf` and
/// `nan`.
fn is_reserved(word: &str) -> bool {
    matches!(word, "for" | "if" | "return" | "pos") || word.parse::<f32>().is_ok()
}

/// Whether a name needs no quotes as a value: a word, or one with numbers behind it as in
/// `linear.2`.
fn is_plain(name: &str) -> bool {
    let mut parts = name.split('.');
    let first = parts.next().unwrap_or("");
    is_plain_word(first) && parts.all(is_digits) && !is_reserved(name)
}

/// Whether a word can be a call's instruction without being taken for something else.
pub(super) fn is_call_word(name: &str) -> bool {
    let is_id = name.strip_prefix('i').is_some_and(is_digits);
    is_plain_word(name) && !is_id && !is_reserved(name)
}

/// How a graph's values are referred to.
pub(super) struct Names<'g> {
    graph: &'g Graph,
    /// `None` where several values have the name.
    by_name: HashMap<&'g str, Option<ValueId>>,
}

impl<'g> Names<'g> {
    pub(super) fn of(graph: &'g Graph) -> Self {
        let mut by_name = HashMap::new();
        for (index, value) in graph.values.iter().enumerate() {
            let id = ValueId::from(index);
            by_name.entry(value.name.as_str()).and_modify(|known| *known = None).or_insert(Some(id));
        }
        Self { graph, by_name }
    }

    /// Whether the value can be referred to by its name.
    pub(super) fn has_own_name(&self, value: ValueId) -> bool {
        let name = self.graph.values.get(value.index()).map(|value| value.name.as_str());
        name.is_some_and(|name| self.by_name.get(name) == Some(&Some(value)))
    }

    /// The value as the text shows it.
    pub(super) fn value(&self, value: ValueId) -> String {
        match self.graph.values.get(value.index()).filter(|_| self.has_own_name(value)) {
            Some(named) => name(&named.name),
            None => format!("%{}", value.0),
        }
    }

    /// An integer argument, which must not be taken for a value.
    pub(super) fn integer(&self, expr: &Expr) -> String {
        let text = expr.to_string();
        let first = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or("");
        let number = first.starts_with(|c: char| c.is_ascii_digit());
        let free = is_plain_word(first) && !self.by_name.contains_key(first) && !is_reserved(first);
        if number || free || (first.is_empty() && text.starts_with('(')) { text } else { format!("({text})") }
    }
}

/// A value's name, in quotes where it must be.
pub(super) fn name(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { quoted(name) }
}

/// A path to a field; one without fields ends in a dot.
pub(super) fn write_path(out: &mut String, path: &FieldPath) -> fmt::Result {
    write!(out, "{}", word(&path.root))?;
    for step in &path.steps {
        write!(out, ".{}", word(&step.field))?;
        if let Some(index) = &step.index {
            write!(out, "[{index}]")?;
        }
    }
    if path.steps.is_empty() { write!(out, ".") } else { Ok(()) }
}

/// A reference to a value.
pub(super) enum Reference {
    /// `x`
    Name(String),
    /// `%3`
    Number(ValueId),
}

/// A reference to a value, which need not be declared.
pub(super) fn reference(cursor: &mut Cursor<'_>) -> Parsed<Reference> {
    const EXPECTED: &str = "a value, as `x` or `%0`";
    if cursor.eat("%") {
        return cursor.u32("the number of a value").map(|number| Reference::Number(ValueId(number)));
    }
    if cursor.at_symbol("\"") {
        return cursor.quoted().map(Reference::Name);
    }
    if cursor.at_digit() {
        return cursor.expected(EXPECTED);
    }
    let start = cursor.clone();
    cursor.word(EXPECTED)?;
    while cursor.eat_numbered() {}
    let name = cursor.since(&start);
    match is_plain(name) {
        true => Ok(Reference::Name(name.to_owned())),
        false => start.expected(EXPECTED),
    }
}

/// Whether a path to a field comes next: a word or a string, and then a dot that no number follows.
pub(super) fn at_path(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    let root = !ahead.at_digit() && ahead.word_or_quoted("").is_ok();
    root && !ahead.eat_numbered() && ahead.at_symbol(".") && !ahead.at_symbol("..")
}

/// A path to a field.
pub(super) fn path(cursor: &mut Cursor<'_>) -> Parsed<FieldPath> {
    let root = cursor.word_or_quoted("the name of a parameter")?;
    let mut steps = Vec::new();
    if !cursor.at_symbol(".") {
        return cursor.expected("`.` and a field");
    }
    while cursor.eat(".") {
        let named = cursor.at_symbol("\"") || !cursor.peek_word().is_empty();
        if steps.is_empty() && !named {
            break;
        }
        let field = cursor.word_or_quoted("the name of a field")?;
        let index = if cursor.eat("[") { Some(closed(cursor)?) } else { None };
        steps.push(PathStep { field, index });
    }
    Ok(FieldPath { root, steps })
}

/// An expression and the bracket after it.
fn closed(cursor: &mut Cursor<'_>) -> Parsed<Expr> {
    let expr = cursor.expr()?;
    cursor.expect("]", "`]`")?;
    Ok(expr)
}

/// The values that the text has declared so far.
#[derive(Default)]
pub(super) struct Declared {
    /// `None` where several have the name.
    by_name: HashMap<String, Option<ValueId>>,
}

impl Declared {
    pub(super) fn add(&mut self, name: &str, value: ValueId) {
        self.by_name.entry(name.to_owned()).and_modify(|known| *known = None).or_insert(Some(value));
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The value of this name, if there is one.
    pub(super) fn get(&self, start: &Cursor<'_>, name: &str) -> Parsed<Option<ValueId>> {
        match self.by_name.get(name) {
            Some(None) => {
                let mut error = start.error(ParseCause::Ambiguous { kind: "values", name: name.to_owned() });
                error.help = Some("refer to one by its number, as `%0`".to_owned());
                Err(error)
            }
            known => Ok(known.copied().flatten()),
        }
    }

    /// A value that is declared.
    pub(super) fn known(&self, cursor: &mut Cursor<'_>) -> Parsed<ValueId> {
        let start = cursor.clone();
        match reference(cursor)? {
            Reference::Number(value) => Ok(value),
            Reference::Name(name) => {
                self.get(&start, &name)?.ok_or_else(|| start.error(ParseCause::NotDeclared { kind: "value", name }))
            }
        }
    }
}
