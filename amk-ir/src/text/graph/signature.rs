//! Instructions of a graph: their declaration, tiles and task clause.

use super::super::cursor::{Cursor, Parsed, list};
use super::super::error::ParseCause;
use super::super::parse::dtype;
use super::super::print::{access_mark, operand_name, quoted, word, write_list};
use super::parse::{Source, exprs, multiple};
use super::print::{type_text, write_exprs, write_multiple};
use crate::Access;
use crate::expr::{Expr, Op};
use crate::signature::{GridSig, ParamKind, ParamSig, ResultSig, Signature, Span, TensorClass, TileSig};
use core::fmt::{self, Write};

/// Classes of tensors and their names in the text.
const CLASSES: [(TensorClass, &str); 4] = [
    (TensorClass::Tensor, "tensor"),
    (TensorClass::Weight, "weight"),
    (TensorClass::State, "state"),
    (TensorClass::Token, "token"),
];

pub(super) fn write_signature(out: &mut String, signature: &Signature) -> fmt::Result {
    write!(out, "instruction {}(", word(&signature.name))?;
    write_list(out, &signature.params, write_param)?;
    write!(out, ")")?;
    if !signature.results.is_empty() {
        write!(out, " -> (")?;
        write_list(out, &signature.results, |out, result| {
            write!(out, "{}: {}", operand_name(&result.name), type_text(result.dtype, &result.shape))
        })?;
        write!(out, ")")?;
    }
    writeln!(out, " {{")?;
    write_origin(out, signature)?;
    if !signature.tiles.is_empty() {
        write!(out, "    tile ")?;
        write_list(out, &signature.tiles, |out, tile| write!(out, "{} = {}", word(&tile.name), tile.default))?;
        writeln!(out)?;
    }
    write_task(out, signature)?;
    for of in &signature.multiples {
        write!(out, "    ")?;
        write_multiple(out, of)?;
    }
    writeln!(out, "}}")
}

fn write_param(out: &mut String, param: &ParamSig) -> fmt::Result {
    write!(out, "{}: ", operand_name(&param.name))?;
    match &param.kind {
        ParamKind::Tensor { class, access, shape, .. } => {
            let class = CLASSES.iter().find(|(known, _)| known == class).map_or("", |(_, name)| name);
            write!(out, "{}{class}", access_mark(*access))?;
            write_exprs(out, shape)
        }
        ParamKind::Float => write!(out, "float"),
        ParamKind::Dim(value) => write!(out, "dim {value}"),
        ParamKind::Pos => write!(out, "pos"),
    }
}

/// Where the instruction comes from; parts that follow from its name are left out.
fn write_origin(out: &mut String, signature: &Signature) -> fmt::Result {
    let mut parts = Vec::new();
    if signature.path != signature.name {
        parts.push(quoted(&signature.path));
    }
    if !signature.declared_at.is_empty() {
        parts.push(format!("at {}", quoted(&signature.declared_at)));
    }
    if signature.op != signature.name {
        parts.push(format!("op {}", word(&signature.op)));
    }
    if let Some(cuda) = &signature.cuda {
        parts.push(format!("cuda {}", quoted(cuda)));
    }
    if parts.is_empty() { Ok(()) } else { writeln!(out, "    from {}", parts.join(" ")) }
}

fn write_task(out: &mut String, signature: &Signature) -> fmt::Result {
    let tensors = |side: fn(Access) -> bool| {
        signature.params.iter().filter_map(move |param| match &param.kind {
            ParamKind::Tensor { access, region, .. } if side(*access) => Some((&param.name, region)),
            _ => None,
        })
    };
    let results = signature.results.iter().map(|result| (&result.name, &result.region));
    let written: Vec<_> = tensors(Access::writes).chain(results).collect();
    let read: Vec<_> = tensors(|access| !access.writes()).collect();
    if signature.grid.is_empty() && written.is_empty() && read.is_empty() {
        return Ok(());
    }
    write!(out, "    task ")?;
    write_list(out, &signature.grid, |out, grid| {
        write!(out, "{} in 0..{} step {}", word(&grid.var), grid.extent, grid.step)
    })?;
    write!(out, "{}", if signature.grid.is_empty() { "" } else { ": " })?;
    write_list(out, &written, write_region)?;
    write!(out, "{}<-{}", if written.is_empty() { "" } else { " " }, if read.is_empty() { "" } else { " " })?;
    write_list(out, &read, write_region)?;
    writeln!(out)
}

fn write_region(out: &mut String, (name, spans): &(&String, &Vec<Span>)) -> fmt::Result {
    write!(out, "{}[", operand_name(name))?;
    write_list(out, spans, |out, span| match span {
        Span::Full => write!(out, ".."),
        Span::Range { lo, hi } if *hi == next(lo) => write!(out, "{lo}"),
        Span::Range { lo, hi } => write!(out, "{lo}..{hi}"),
    })?;
    write!(out, "]")
}

/// One past the one element `lo`.
fn next(lo: &Expr) -> Expr {
    Expr::binary(Op::Add, lo.clone(), Expr::Const(1))
}

/// The tensors on one side of a task clause, by name, and the regions that they get.
type Regions = Vec<(String, Vec<Span>)>;

/// Reads an instruction from behind its first word.
pub(super) fn signature(cursor: &mut Cursor<'_>, source: &mut Source<'_>) -> Parsed<Signature> {
    let name = cursor.word_or_quoted("the name of the instruction")?;
    let mut signature = Signature {
        path: name.clone(),
        op: name.clone(),
        name,
        declared_at: String::new(),
        params: Vec::new(),
        results: Vec::new(),
        tiles: Vec::new(),
        grid: Vec::new(),
        multiples: Vec::new(),
        cuda: None,
    };
    list(cursor, "(", ")", |cursor| {
        let name = named(cursor, "the name of a parameter")?;
        signature.params.push(ParamSig { name, kind: param(cursor)? });
        Ok(())
    })?;
    if cursor.eat("->") {
        list(cursor, "(", ")", |cursor| {
            let name = named(cursor, "the name of a result")?;
            let (dtype, shape) = (dtype(cursor)?, exprs(cursor)?);
            let region = vec![Span::Full; shape.len()];
            signature.results.push(ResultSig { name, dtype, shape, region });
            Ok(())
        })?;
    }
    cursor.expect("{", "`{`")?;
    cursor.end()?;
    source.block("instruction", |cursor, _| clause(cursor, &mut signature))?;
    Ok(signature)
}

fn named(cursor: &mut Cursor<'_>, expected: &'static str) -> Parsed<String> {
    let name = cursor.word_or_quoted(expected)?;
    cursor.expect(":", "`:`")?;
    Ok(name)
}

fn param(cursor: &mut Cursor<'_>) -> Parsed<ParamKind> {
    if cursor.eat_word("float") {
        return Ok(ParamKind::Float);
    }
    if cursor.eat_word("pos") {
        return Ok(ParamKind::Pos);
    }
    if cursor.eat_word("dim") {
        return cursor.expr().map(ParamKind::Dim);
    }
    let access = if cursor.eat_word("mut") {
        Access::Update
    } else if cursor.eat_word("out") {
        Access::Write
    } else {
        Access::Read
    };
    let Some((class, word)) = CLASSES.iter().find(|(_, name)| *name == cursor.peek_word()) else {
        return cursor.expected("`tensor`, `weight`, `state`, `token`, `float`, `dim` or `pos`");
    };
    cursor.eat_word(word);
    let shape = exprs(cursor)?;
    Ok(ParamKind::Tensor { class: *class, access, region: vec![Span::Full; shape.len()], shape })
}

/// A line of an instruction.
fn clause(cursor: &mut Cursor<'_>, signature: &mut Signature) -> Parsed<()> {
    if cursor.eat_word("from") {
        origin(cursor, signature)
    } else if cursor.eat_word("tile") {
        loop {
            let name = cursor.word_or_quoted("the name of a tile")?;
            cursor.expect("=", "`=`")?;
            signature.tiles.push(TileSig { name, default: cursor.expr()? });
            if !cursor.eat(",") {
                return Ok(());
            }
        }
    } else if cursor.eat_word("task") {
        task(cursor, signature)
    } else if cursor.eat_word("where") {
        signature.multiples.push(multiple(cursor)?);
        Ok(())
    } else {
        cursor.expected("`from`, `tile`, `task`, `where` or `}`")
    }
}

fn origin(cursor: &mut Cursor<'_>, signature: &mut Signature) -> Parsed<()> {
    if cursor.at_symbol("\"") {
        signature.path = cursor.quoted()?;
    }
    while !cursor.at_end() {
        if cursor.eat_word("at") {
            signature.declared_at = cursor.quoted()?;
        } else if cursor.eat_word("op") {
            signature.op = cursor.word_or_quoted("the name of the op")?;
        } else if cursor.eat_word("cuda") {
            signature.cuda = Some(cursor.quoted()?);
        } else {
            return cursor.expected("`at`, `op` or `cuda`");
        }
    }
    Ok(())
}

fn task(cursor: &mut Cursor<'_>, signature: &mut Signature) -> Parsed<()> {
    if at_grid(cursor) {
        loop {
            signature.grid.push(grid(cursor)?);
            if !cursor.eat(",") {
                break;
            }
        }
        cursor.expect(":", "`,` or `:`")?;
    }
    let start = cursor.clone();
    let mut written = regions(cursor)?;
    cursor.expect("<-", "`,` or `<-`")?;
    let mut read = regions(cursor)?;
    for param in &mut signature.params {
        if let ParamKind::Tensor { access, region, .. } = &mut param.kind {
            let (side, regions) = match access.writes() {
                true => ("left", &mut written),
                false => ("right", &mut read),
            };
            *region = take(&start, regions, &param.name, side)?;
        }
    }
    for result in &mut signature.results {
        result.region = take(&start, &mut written, &result.name, "left")?;
    }
    match written.first().or(read.first()) {
        Some((name, _)) => Err(start.error(ParseCause::NotDeclared { kind: "tensor", name: name.clone() })),
        None => Ok(()),
    }
}

/// The first region of this name.
fn take(start: &Cursor<'_>, regions: &mut Regions, name: &str, side: &'static str) -> Parsed<Vec<Span>> {
    let at = regions.iter().position(|(known, _)| known == name);
    let none = || start.error(ParseCause::NoRegion { name: name.to_owned(), side });
    at.map(|at| regions.remove(at).1).ok_or_else(none)
}

fn at_grid(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    ahead.word_or_quoted("").is_ok() && ahead.eat_word("in")
}

/// `n in 0..N step T`
fn grid(cursor: &mut Cursor<'_>) -> Parsed<GridSig> {
    let var = cursor.word_or_quoted("a grid variable")?;
    if !cursor.eat_word("in") {
        return cursor.expected("`in`");
    }
    cursor.expect("0..", "`0..` and an extent")?;
    let extent = cursor.expr()?;
    if !cursor.eat_word("step") {
        return cursor.expected("`step`");
    }
    Ok(GridSig { var, extent, step: cursor.expr()? })
}

/// `y[n..n+T], z[..]`, perhaps none.
fn regions(cursor: &mut Cursor<'_>) -> Parsed<Regions> {
    let mut regions = Regions::new();
    while !cursor.at_end() && !cursor.at_symbol("<-") {
        let name = cursor.word_or_quoted("the name of a tensor")?;
        let mut spans = Vec::new();
        list(cursor, "[", "]", |cursor| {
            spans.push(span(cursor)?);
            Ok(())
        })?;
        regions.push((name, spans));
        if !cursor.eat(",") {
            break;
        }
    }
    Ok(regions)
}

/// `..`, `lo..hi` or one element.
fn span(cursor: &mut Cursor<'_>) -> Parsed<Span> {
    if cursor.eat("..") {
        return Ok(Span::Full);
    }
    let lo = cursor.expr()?;
    let hi = if cursor.eat("..") { cursor.expr()? } else { next(&lo) };
    Ok(Span::Range { lo, hi })
}
