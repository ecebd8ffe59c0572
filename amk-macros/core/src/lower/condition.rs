//! `if` on a flag.

use super::Lowering;
use super::item::{Dest, Item};
use super::statement::strip;
use amk_ir::graph::Node;
use amk_ir::layout::FieldPath;
use syn::{Expr, ExprIf, UnOp};

impl Lowering<'_> {
    pub(super) fn condition(&mut self, condition: &ExprIf, dest: &Dest) -> Item {
        if self.too_deep(condition.if_token) {
            return Item::Unknown;
        }
        let flag = self.flag(&condition.cond);
        if condition.else_branch.is_none() && !matches!(dest, Dest::Nothing | Dest::Temp) {
            let help = "add `else { .. }` with the other value";
            return self.report("AMK0914", condition, "an `if` without `else` where a value is expected", help);
        }
        let dest = if condition.else_branch.is_some() { self.shared(dest) } else { Dest::Nothing };
        let (mut then, _) = self.deeper(|inner| inner.block(&condition.then_branch, &dest));
        let (mut otherwise, _) = self.deeper(|inner| match &condition.else_branch {
            Some((_, branch)) => inner.expression(branch, &dest),
            None => Item::Unit,
        });
        if let Some((flag, negated)) = flag {
            if negated {
                std::mem::swap(&mut then, &mut otherwise);
            }
            self.nodes.push(Node::If { flag, then, otherwise });
        }
        self.joined(&dest)
    }

    /// The flag, and whether it is negated.
    fn flag(&mut self, condition: &Expr) -> Option<(FieldPath, bool)> {
        let (inner, negated) = match strip(condition) {
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => (strip(&unary.expr), true),
            other => (other, false),
        };
        let help = "write `if w.flag` or `if !w.flag` on a field with `#[flag]`";
        let item = match inner {
            Expr::Path(_) | Expr::Field(_) => self.expression(inner, &Dest::Temp),
            other => {
                self.report(
                    "AMK0914",
                    other,
                    "a condition that is not a flag: branches are resolved when the graph is lowered",
                    help,
                );
                return None;
            }
        };
        match item {
            Item::Flag(path) => Some((path, negated)),
            Item::Unknown => None,
            other => {
                self.report("AMK0914", condition, format!("{} as a condition", other.what()), help);
                None
            }
        }
    }
}
