//! Names in clauses: operands have to be parameters or results, everything else has to have a
//! value.

use super::Reader;
use super::clauses::Clauses;
use crate::diag::Diagnostic;
use crate::names::{list, suggestion};
use crate::parse::clause::{Extents, ShapeClause};
use crate::parse::function::Parameter;
use amk_ir::expr::Expr;
use amk_ir::signature::{Span, TileSig};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::LitStr;
use syn::ext::IdentExt;

/// Words of the clauses, which are no names of sizes.
const RESERVED: [&str; 3] = ["pos", "in", "step"];

impl Reader<'_> {
    /// A name has one meaning in all clauses: `pos` is the position, and a dim, a tile and a grid
    /// variable differ.
    pub(super) fn reserved_names(&mut self, parameters: &[Parameter<'_>]) {
        let clauses = self.clauses;
        let is_pos = |parameter: &&Parameter<'_>| parameter.name.unraw() == "pos" && parameter.type_name() != "Pos";
        if let Some(parameter) = parameters.iter().find(is_pos) {
            self.ambiguous(parameter.name, "`pos` is the position, not an operand".to_owned(), "pos");
        }
        if clauses.shape.results.iter().any(|(name, _)| name == "pos") {
            self.ambiguous(&clauses.shape_at, "`pos` is the position, not a result".to_owned(), "pos");
        }
        let mut dims = BTreeSet::new();
        sizes(&clauses.shape).for_each(|size| size.names(&mut |name| _ = dims.insert(name.to_owned())));
        let tiles = clauses.tiles.iter().map(|tile| (&tile.name, "a tile", clauses.tile_at.as_ref()));
        let grid = clauses.task.grid.iter().map(|grid| (&grid.var, "a grid variable", Some(&clauses.task_at)));
        let dims = dims.iter().map(|dim| (dim, "a dim", Some(&clauses.shape_at)));
        let mut seen: BTreeMap<&String, &str> = BTreeMap::new();
        for (name, what, at) in dims.chain(tiles).chain(grid) {
            let at = at.unwrap_or(&clauses.task_at);
            if RESERVED.contains(&name.as_str()) {
                let means = if name == "pos" { "the position" } else { "a word of the task clause" };
                self.ambiguous(at, format!("`{name}` is {means}, not {what}"), name);
            } else if let Some(other) = seen.insert(name, what) {
                self.ambiguous(at, format!("`{name}` is both {other} and {what}"), name);
            }
        }
    }

    /// A tile has at least one element and cuts something: a schedule may set it.
    pub(super) fn tiles(&mut self) {
        let clauses = self.clauses;
        let Some(at) = &clauses.tile_at else { return };
        let mut used = BTreeSet::new();
        let grid = clauses.task.grid.iter().flat_map(|grid| [&grid.extent, &grid.step]);
        grid.chain(bounds(clauses)).for_each(|expr| expr.names(&mut |name| _ = used.insert(name.to_owned())));
        for TileSig { name, default } in &clauses.tiles {
            if matches!(default, Expr::Const(size) if *size < 1) {
                let headline = format!("a tile of `{name} = {default}` has no elements");
                self.diagnostics.push(Diagnostic::new("AMK0903", at, headline, format!("write `{name} = 16`")));
            }
            if !used.contains(name) {
                let headline = format!("the task clause does not use the tile `{name}`");
                let help = format!("remove `{name}`, or step by it: `n in 0..N step {name}`");
                self.report(at, headline, help);
            }
        }
    }

    fn ambiguous(&mut self, at: impl ToTokens, headline: String, name: &str) {
        let help = format!("choose another name, as in `{name}_1`");
        self.diagnostics.push(Diagnostic::new("AMK0903", at, headline, help));
    }

    /// Names in the clauses that are neither parameters nor results.
    pub(super) fn unknown_operands(&mut self, parameters: &[Parameter<'_>]) {
        let clauses = self.clauses;
        let names: Vec<String> = parameters.iter().map(|parameter| parameter.name.unraw().to_string()).collect();
        let results: Vec<&str> = clauses.shape.results.iter().map(|(name, _)| name.as_str()).collect();
        let params: Vec<&str> = names.iter().map(String::as_str).collect();
        let all: Vec<&str> = params.iter().chain(&results).copied().collect();
        let listed = clauses.shape.params.iter().map(|(name, _)| (name, &clauses.shape_at, &params));
        let written = clauses.task.writes.iter().map(|(name, _)| (name, &clauses.task_at, &all));
        let read = clauses.task.reads.iter().map(|(name, _)| (name, &clauses.task_at, &params));
        for (name, at, known) in listed.chain(written).chain(read) {
            if !known.contains(&name.as_str()) {
                let help = suggestion(name, known.iter().copied());
                self.report(at, format!("`{name}` is not a parameter of `{}`", self.function.sig.ident), help);
            }
        }
    }

    /// Every name in an expression has to be a dim that the operands bind, a tile, a grid variable
    /// or `pos`.
    pub(super) fn names(&mut self, parameters: &[Parameter<'_>]) {
        let clauses = self.clauses;
        let bound = bound_dims(&clauses.shape);
        let tiles = clauses.tiles.iter().map(|tile| tile.name.clone());
        let steps: BTreeSet<String> = bound.iter().cloned().chain(tiles).collect();
        let mut inner: BTreeSet<String> =
            steps.iter().cloned().chain(clauses.task.grid.iter().map(|g| g.var.clone())).collect();
        if parameters.iter().any(|parameter| parameter.type_name() == "Pos") {
            inner.insert("pos".to_owned());
        }
        let shapes: Vec<&Expr> = sizes(&clauses.shape).collect();
        self.check_names(&shapes, &bound, &clauses.shape_at, &mut BTreeSet::new());
        let mut reported = BTreeSet::new();
        let grid: Vec<&Expr> = clauses.task.grid.iter().flat_map(|grid| [&grid.extent, &grid.step]).collect();
        self.check_names(&grid, &steps, &clauses.task_at, &mut reported);
        let bounds: Vec<&Expr> = bounds(clauses).collect();
        self.check_names(&bounds, &inner, &clauses.task_at, &mut reported);
        if let Some(at) = &clauses.multiples_at {
            let both: Vec<&Expr> = clauses.multiples.iter().flat_map(|(of, by)| [of, by]).collect();
            self.check_names(&both, &bound, at, &mut BTreeSet::new());
        }
    }

    /// Reports the names that are not `known`, each once a clause.
    fn check_names(&mut self, exprs: &[&Expr], known: &BTreeSet<String>, at: &LitStr, reported: &mut BTreeSet<String>) {
        let mut unknown = BTreeSet::new();
        for expr in exprs {
            expr.names(&mut |name| {
                if !known.contains(name) && reported.insert(name.to_owned()) {
                    unknown.insert(name.to_owned());
                }
            });
        }
        let in_task = at.value() == self.clauses.task_at.value();
        for name in unknown {
            let (headline, help) = match name.as_str() {
                "pos" => (
                    "the task depends on `pos`, but the function has no parameter `pos: Pos`".to_owned(),
                    "add the parameter `pos: Pos`".to_owned(),
                ),
                _ if in_task => (
                    format!("nothing gives `{name}` a value in the task clause"),
                    format!(
                        "declare it as a tile: `tile = \"{name} = 16\"`, or use one of {}",
                        list(known.iter().map(String::as_str))
                    ),
                ),
                _ => (
                    format!("nothing gives `{name}` a value in this clause"),
                    format!("make `{name}` an extent of an operand: `x: [{name}]`"),
                ),
            };
            self.diagnostics.push(Diagnostic::new("AMK0906", at, headline, help));
        }
    }
}

/// The bounds of the task's regions.
fn bounds(clauses: &Clauses) -> impl Iterator<Item = &Expr> {
    let spans = clauses.task.writes.iter().chain(&clauses.task.reads).flat_map(|(_, spans)| spans);
    spans.flat_map(|span| match span {
        Span::Full => Vec::new(),
        Span::Range { lo, hi } => vec![lo, hi],
    })
}

/// The extents and sizes of a shape clause.
fn sizes(shape: &ShapeClause) -> impl Iterator<Item = &Expr> {
    operand_sizes(shape).chain(shape.results.iter().flat_map(|(_, shape)| shape))
}

fn operand_sizes(shape: &ShapeClause) -> impl Iterator<Item = &Expr> {
    shape.params.iter().flat_map(|(_, extents)| match extents {
        Extents::Shape(shape) => shape.as_slice(),
        Extents::Size(size) => std::slice::from_ref(size),
    })
}

/// The dims that appear alone as an extent of an operand or as a size: a call binds them.
fn bound_dims(shape: &ShapeClause) -> BTreeSet<String> {
    operand_sizes(shape)
        .filter_map(|expr| match expr {
            Expr::Name(name) => Some(name.clone()),
            _ => None,
        })
        .collect()
}
