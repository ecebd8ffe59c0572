//! Layouts: the fields of the structs of weights and states.

use super::super::cursor::{Cursor, Parsed};
use super::super::print::{quoted, word};
use super::parse::{Source, exprs};
use super::print::write_exprs;
use crate::layout::{Field, FieldKind, Layout};
use core::fmt::{self, Write};

/// The layout of a parameter.
pub(super) fn write_layout(out: &mut String, param: &str, layout: &Layout) -> fmt::Result {
    write!(out, "layout {}: ", word(param))?;
    write_struct(out, layout, 0)
}

/// Writes the name, place and fields of a struct.
fn write_struct(out: &mut String, layout: &Layout, depth: usize) -> fmt::Result {
    write!(out, "{}", word(&layout.name))?;
    if !layout.declared_at.is_empty() {
        write!(out, " at {}", quoted(&layout.declared_at))?;
    }
    writeln!(out, " {{")?;
    for field in &layout.fields {
        write_field(out, field, depth + 1)?;
    }
    writeln!(out, "{}}}", "    ".repeat(depth))
}

fn write_field(out: &mut String, field: &Field, depth: usize) -> fmt::Result {
    write!(out, "{}{}: ", "    ".repeat(depth), word(&field.name))?;
    match &field.kind {
        FieldKind::Weight { source, fallback, shape } => {
            write!(out, "weight")?;
            write_exprs(out, shape)?;
            write!(out, " {}", quoted(source))?;
            match fallback {
                Some(fallback) => writeln!(out, " or {}", quoted(fallback)),
                None => writeln!(out),
            }
        }
        FieldKind::State { shape } => write_tensor(out, "state", shape),
        FieldKind::Table { shape } => write_tensor(out, "table", shape),
        FieldKind::Param => writeln!(out, "param"),
        FieldKind::Dim(value) => writeln!(out, "dim {value}"),
        FieldKind::Flag => writeln!(out, "flag"),
        FieldKind::Struct(layout) => {
            write!(out, "struct ")?;
            write_struct(out, layout, depth)
        }
        FieldKind::List { layout, length } => {
            write!(out, "list[{length}] of ")?;
            write_struct(out, layout, depth)
        }
    }
}

fn write_tensor(out: &mut String, class: &str, shape: &[crate::expr::Expr]) -> fmt::Result {
    write!(out, "{class}")?;
    write_exprs(out, shape)?;
    writeln!(out)
}

/// Reads the parameter's name and its layout from behind the first word.
pub(super) fn layout(cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<(String, Layout)> {
    let param = cursor.word_or_quoted("the name of a parameter")?;
    cursor.expect(":", "`:`")?;
    Ok((param, fields(cursor, source)?))
}

/// A struct from its name to the end of its block.
fn fields(cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<Layout> {
    let name = cursor.word_or_quoted("the name of a struct")?;
    let declared_at = if cursor.eat_word("at") { cursor.quoted()? } else { String::new() };
    cursor.expect("{", "`at` or `{`")?;
    cursor.end()?;
    let mut fields = Vec::new();
    source.block("layout", |cursor, source| {
        let name = cursor.word_or_quoted("the name of a field or `}`")?;
        cursor.expect(":", "`:`")?;
        fields.push(Field { name, kind: kind(cursor, source)? });
        Ok(())
    })?;
    Ok(Layout { name, declared_at, fields })
}

fn kind(cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<FieldKind> {
    if cursor.eat_word("weight") {
        let shape = exprs(cursor)?;
        let source = cursor.quoted()?;
        let fallback = if cursor.eat_word("or") { Some(cursor.quoted()?) } else { None };
        Ok(FieldKind::Weight { source, fallback, shape })
    } else if cursor.eat_word("state") {
        Ok(FieldKind::State { shape: exprs(cursor)? })
    } else if cursor.eat_word("table") {
        Ok(FieldKind::Table { shape: exprs(cursor)? })
    } else if cursor.eat_word("param") {
        Ok(FieldKind::Param)
    } else if cursor.eat_word("dim") {
        cursor.expr().map(FieldKind::Dim)
    } else if cursor.eat_word("flag") {
        Ok(FieldKind::Flag)
    } else if cursor.eat_word("struct") {
        fields(cursor, source).map(FieldKind::Struct)
    } else if cursor.eat_word("list") {
        cursor.expect("[", "`[`")?;
        let length = cursor.expr()?;
        cursor.expect("]", "`]`")?;
        if !cursor.eat_word("of") {
            return cursor.expected("`of` and a struct");
        }
        Ok(FieldKind::List { layout: fields(cursor, source)?, length })
    } else {
        cursor.expected("`weight`, `state`, `table`, `param`, `dim`, `flag`, `struct` or `list`")
    }
}
