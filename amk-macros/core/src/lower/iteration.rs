//! `for`: over dims and over lists of layouts.

use super::Lowering;
use super::item::{Dest, Item};
use super::place::element;
use crate::chain::Record;
use amk_ir::expr::Expr as Size;
use amk_ir::graph::Node;
use amk_ir::layout::{FieldPath, Layout};
use syn::{Expr, ExprForLoop, ExprMethodCall, ExprRange, Lit, Pat, RangeLimits};

/// The domain of a loop.
enum Iteration {
    /// `0..extent`
    Range(Size),
    /// A list of a layout.
    List(FieldPath, Layout, Size),
    /// `.enumerate()`
    Enumerate(Box<Self>),
    /// `.zip(..)`
    Zip(Box<Self>, Box<Self>),
}

const FORMS: &str =
    "write `0..w.layers.len()`, `w.layers.iter()`, `&mut kv.layers`, with `.zip(..)` and `.enumerate()`";

impl Lowering<'_> {
    pub(super) fn repeat(&mut self, repeat: &ExprForLoop) {
        if let Some(label) = &repeat.label {
            self.report("AMK0912", label, "a label on a loop", "remove it: there is no `break` to need it");
        }
        if self.too_deep(repeat.for_token) {
            return;
        }
        let iteration = self.iteration(&repeat.expr);
        let extent = iteration.as_ref().map(Iteration::extent);
        let index = self.fresh_index(&repeat.pat, iteration.as_ref());
        self.indices.push(index.clone());
        let (body, ()) = self.deeper(|inner| {
            match &iteration {
                Some(iteration) => inner.bind_loop(&repeat.pat, iteration, &index),
                None => inner.bind_unknown(&repeat.pat),
            }
            inner.block(&repeat.body, &Dest::Nothing);
        });
        self.indices.pop();
        if let Some(extent) = extent {
            self.nodes.push(Node::Loop { index, extent, body });
        }
    }

    /// Returns the domain in the head of a loop; `None` where it was reported.
    fn iteration(&mut self, head: &Expr) -> Option<Iteration> {
        match head {
            Expr::Paren(inner) => self.iteration(&inner.expr),
            Expr::Group(inner) => self.iteration(&inner.expr),
            Expr::Reference(inner) => self.iteration(&inner.expr),
            Expr::Range(range) => self.range(range),
            Expr::MethodCall(call) => self.adapter(call),
            Expr::Path(_) | Expr::Field(_) => match self.expression(head, &Dest::Temp) {
                Item::List(path, layout, length) => Some(Iteration::List(path, layout, length)),
                Item::Unknown => None,
                other => {
                    self.report("AMK0912", head, format!("a loop over {}", other.what()), FORMS);
                    None
                }
            },
            other => {
                self.report("AMK0912", other, "a loop over something that has no symbolic length", FORMS);
                None
            }
        }
    }

    fn adapter(&mut self, call: &ExprMethodCall) -> Option<Iteration> {
        let method = call.method.to_string();
        match (method.as_str(), call.args.first()) {
            ("iter" | "iter_mut", None) => self.iteration(&call.receiver),
            ("enumerate", None) => self.iteration(&call.receiver).map(|inner| Iteration::Enumerate(Box::new(inner))),
            ("zip", Some(other)) => {
                let (left, right) = (self.iteration(&call.receiver)?, self.iteration(other)?);
                let (a, b) = (left.extent(), right.extent());
                if !a.same(&b) {
                    let headline = format!("two lists of different lengths: `{a}` and `{b}`");
                    self.report("AMK0913", other, headline, "zip lists that have the same dim as their length");
                    return None;
                }
                Some(Iteration::Zip(Box::new(left), Box::new(right)))
            }
            _ => {
                self.report("AMK0912", &call.method, format!("`.{method}()` in the head of a loop"), FORMS);
                None
            }
        }
    }

    fn range(&mut self, range: &ExprRange) -> Option<Iteration> {
        let from_zero = match range.start.as_deref() {
            Some(Expr::Lit(start)) => matches!(&start.lit, Lit::Int(int) if int.base10_digits() == "0"),
            _ => false,
        };
        let end = range.end.as_deref().filter(|_| from_zero && matches!(range.limits, RangeLimits::HalfOpen(_)));
        let Some(end) = end else {
            self.report(
                "AMK0912",
                range,
                "a range that is not `0..N`",
                "write `0..N` and compute with the index: `w.layers[l + 1]`",
            );
            return None;
        };
        match self.expression(end, &Dest::Temp) {
            Item::Int(extent) => Some(Iteration::Range(extent)),
            Item::Unknown => None,
            other => {
                let headline = format!("a range that ends at {}", other.what());
                self.report("AMK0912", end, headline, "end it at a dim of `dims(..)` or at `w.layers.len()`");
                None
            }
        }
    }

    /// A name for the loop's index that no loop around it, no dim and no tile number has: the
    /// user's where there is one.
    fn fresh_index(&self, pattern: &Pat, iteration: Option<&Iteration>) -> String {
        let wanted = iteration.and_then(|iteration| index_name(pattern, iteration)).unwrap_or_else(|| "l".to_owned());
        let taken = |name: &String| {
            self.indices.contains(name)
                || self.attribute.dims.iter().any(|dim| dim == name)
                || self.records.values().any(|record| has_tile_number(record, name))
        };
        let numbered = (2..).map(|n| format!("{wanted}_{n}"));
        std::iter::once(wanted.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(wanted)
    }

    fn bind_loop(&mut self, pattern: &Pat, iteration: &Iteration, index: &str) {
        let at = Size::name(index);
        match (pattern, iteration) {
            (Pat::Wild(_), _) => {}
            (Pat::Paren(inner), _) => self.bind_loop(&inner.pat, iteration, index),
            (Pat::Ident(name), Iteration::Range(_)) => self.bind_name(&name.ident, Item::Int(at)),
            (Pat::Ident(name), Iteration::List(path, layout, _)) => {
                self.bind_name(&name.ident, element(path, layout.clone(), at));
            }
            (Pat::Tuple(pair), Iteration::Enumerate(inner)) if pair.elems.len() == 2 => {
                self.bind(&pair.elems[0], Item::Int(at));
                self.bind_loop(&pair.elems[1], inner, index);
            }
            (Pat::Tuple(pair), Iteration::Zip(left, right)) if pair.elems.len() == 2 => {
                self.bind_loop(&pair.elems[0], left, index);
                self.bind_loop(&pair.elems[1], right, index);
            }
            (other, _) => {
                self.report(
                    "AMK0919",
                    other,
                    "a pattern that does not fit the head of the loop",
                    "bind pairs by pairs: `(a, b)`",
                );
                self.bind_unknown(other);
            }
        }
    }

    fn bind_unknown(&mut self, pattern: &Pat) {
        match pattern {
            Pat::Ident(name) => self.bind_name(&name.ident, Item::Unknown),
            Pat::Tuple(tuple) => tuple.elems.iter().for_each(|element| self.bind_unknown(element)),
            Pat::Paren(inner) => self.bind_unknown(&inner.pat),
            _ => {}
        }
    }
}

/// Whether an instruction's tiles are numbered by this name, which signals and waits know them by.
fn has_tile_number(record: &Record, name: &str) -> bool {
    matches!(record, Record::Instruction(signature) if signature.grid.iter().any(|grid| grid.var == name))
}

/// The user's name for the index.
fn index_name(pattern: &Pat, iteration: &Iteration) -> Option<String> {
    match (pattern, iteration) {
        (Pat::Paren(inner), _) => index_name(&inner.pat, iteration),
        (Pat::Ident(name), Iteration::Range(_)) => Some(name.ident.to_string()),
        (Pat::Tuple(pair), Iteration::Enumerate(_)) => match pair.elems.first() {
            Some(Pat::Ident(name)) => Some(name.ident.to_string()),
            _ => None,
        },
        (Pat::Tuple(pair), Iteration::Zip(left, right)) => {
            let mut elements = pair.elems.iter();
            let left = elements.next().and_then(|pattern| index_name(pattern, left));
            left.or_else(|| elements.next().and_then(|pattern| index_name(pattern, right)))
        }
        _ => None,
    }
}

impl Iteration {
    fn extent(&self) -> Size {
        match self {
            Self::Range(extent) | Self::List(_, _, extent) => extent.clone(),
            Self::Enumerate(inner) | Self::Zip(inner, _) => inner.extent(),
        }
    }
}
