//! Names in clauses: operands have to be parameters or results, everything else has to have a
//! value.

use super::Reader;
use crate::diag::Diagnostic;
use crate::names::{list, suggestion};
use crate::parse::clause::{Extents, ShapeClause};
use crate::parse::function::Parameter;
use amk_ir::expr::Expr;
use amk_ir::signature::Span;
use std::collections::BTreeSet;
use syn::LitStr;
use syn::ext::IdentExt;

impl Reader<'_> {
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
        let shapes = clauses.shape.params.iter().flat_map(|(_, extents)| match extents {
            Extents::Shape(shape) => shape.as_slice(),
            Extents::Size(size) => std::slice::from_ref(size),
        });
        let shapes: Vec<&Expr> = shapes.chain(clauses.shape.results.iter().flat_map(|(_, shape)| shape)).collect();
        self.check_names(&shapes, &bound, &clauses.shape_at, &mut BTreeSet::new());
        let mut reported = BTreeSet::new();
        let grid: Vec<&Expr> = clauses.task.grid.iter().flat_map(|grid| [&grid.extent, &grid.step]).collect();
        self.check_names(&grid, &steps, &clauses.task_at, &mut reported);
        let spans = clauses.task.writes.iter().chain(&clauses.task.reads).flat_map(|(_, spans)| spans);
        let bounds: Vec<&Expr> = spans
            .flat_map(|span| match span {
                Span::Full => Vec::new(),
                Span::Range { lo, hi } => vec![lo, hi],
            })
            .collect();
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

/// The dims that appear alone as an extent of an operand or as a size: a call binds them.
fn bound_dims(shape: &ShapeClause) -> BTreeSet<String> {
    let exprs = shape.params.iter().flat_map(|(_, extents)| match extents {
        Extents::Shape(shape) => shape.as_slice(),
        Extents::Size(size) => std::slice::from_ref(size),
    });
    exprs
        .filter_map(|expr| match expr {
            Expr::Name(name) => Some(name.clone()),
            _ => None,
        })
        .collect()
}
