//! Expressions.

use super::Lowering;
use super::item::{Dest, Item};
use super::refuse;
use amk_ir::expr::{Expr as Size, Op};
use amk_ir::graph::Node;
use proc_macro2::Ident;
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{BinOp, Expr, ExprAssign, ExprBinary, ExprLit, ExprPath, ExprTuple, ExprUnary, Lit, Token, UnOp};

impl Lowering<'_> {
    pub(super) fn expression(&mut self, expr: &Expr, dest: &Dest) -> Item {
        match expr {
            Expr::Call(call) => self.call(call, dest),
            Expr::If(condition) => self.condition(condition, dest),
            Expr::Tuple(tuple) => self.tuple(tuple, dest),
            Expr::Paren(inner) => self.expression(&inner.expr, dest),
            Expr::Group(inner) => self.expression(&inner.expr, dest),
            Expr::Block(block) if block.label.is_none() => {
                let (mut nodes, item) = self.nested(|inner| inner.block(&block.block, dest));
                self.nodes.append(&mut nodes);
                item
            }
            // A reference is a copy of the variable: while it lives the variable is not assigned,
            // but its own may be.
            Expr::Reference(inner) => self.expression(&inner.expr, dest),
            other => {
                let item = self.read(other);
                self.deliver(expr, item, dest)
            }
        }
    }

    /// An expression that reads an existing value.
    fn read(&mut self, expr: &Expr) -> Item {
        match expr {
            Expr::Path(path) => self.name(path),
            Expr::Field(field) => self.field(field),
            Expr::Index(index) => self.index(index),
            Expr::Lit(literal) => self.literal(literal),
            Expr::Unary(unary) => self.unary(unary),
            Expr::Binary(binary) => self.binary(binary),
            Expr::MethodCall(method) if method.method == "len" && method.args.is_empty() => self.length(method),
            other => self.refuse(other),
        }
    }

    /// Moves a value that already has a place to its destination.
    fn deliver(&mut self, expr: &Expr, item: Item, dest: &Dest) -> Item {
        match (item, dest) {
            (Item::Value(from), Dest::Named(_) | Dest::Value(_) | Dest::Join(_)) => {
                let dtype = self.values[from.index()].dtype;
                let to = self.target(dest, "", dtype);
                let site = self.site(expr, Vec::new());
                self.nodes.push(Node::Bind { site, to, from });
                Item::Value(to)
            }
            (Item::Tuple(items), Dest::Tuple(_) | Dest::Join(_)) => match self.elements(dest, items.len()) {
                Some(dests) => Item::Tuple(
                    items.into_iter().zip(&dests).map(|(item, dest)| self.deliver(expr, item, dest)).collect(),
                ),
                None => Item::Tuple(items),
            },
            (Item::Unknown, _) => Item::Unknown,
            (item, Dest::Value(_) | Dest::Join(_)) => {
                let headline = format!("{} where a tensor of this step is assigned", item.what());
                let help = "assign the result of an op: `if w.tied { linear(&x, &w.a) } else { linear(&x, &w.b) }`";
                self.report("AMK0918", expr, headline, help)
            }
            (item, _) => item,
        }
    }

    fn tuple(&mut self, tuple: &ExprTuple, dest: &Dest) -> Item {
        if tuple.elems.is_empty() {
            return Item::Unit;
        }
        let dests = match (self.elements(dest, tuple.elems.len()), dest) {
            (Some(dests), _) => dests,
            // A value moved into the tuple keeps its value, even if its variable is assigned again.
            (None, Dest::Named(name)) => (0..tuple.elems.len()).map(|at| Dest::Named(format!("{name}.{at}"))).collect(),
            (None, _) => self.one_by_one(&tuple.elems),
        };
        Item::Tuple(tuple.elems.iter().zip(&dests).map(|(element, dest)| self.expression(element, dest)).collect())
    }

    /// Destinations of values that are computed one after the other: a value read before an
    /// assignment keeps its old contents.
    pub(super) fn one_by_one(&self, exprs: &Punctuated<Expr, Token![,]>) -> Vec<Dest> {
        let last = exprs.iter().rposition(assigns).unwrap_or(0);
        (0..exprs.len()).map(|at| if at < last { Dest::Named("kept".to_owned()) } else { Dest::Temp }).collect()
    }

    /// Whether a path names neither a variable nor a declared dim, and is spelt like a constant.
    pub(super) fn is_constant(&self, path: &ExprPath) -> bool {
        let Some(last) = path.path.segments.last().filter(|_| path.qself.is_none()) else { return false };
        let known = |name: &Ident| {
            self.attribute.dims.contains(name) || self.scopes.iter().any(|scope| scope.contains_key(&name.to_string()))
        };
        !last.ident.to_string().contains(char::is_lowercase) && !path.path.get_ident().is_some_and(known)
    }

    /// Resolves a name: a variable, or a declared dim.
    pub(super) fn name(&mut self, path: &ExprPath) -> Item {
        let Some(ident) = path.path.get_ident().filter(|_| path.qself.is_none()) else {
            let help = "declare the dim in `dims(..)` and import its constant under that name";
            return self.report("AMK0915", path, "the macro cannot see what this path is", help);
        };
        let name = ident.to_string();
        if let Some(item) = self.scopes.iter().rev().find_map(|scope| scope.get(&name)) {
            return item.clone();
        }
        if self.attribute.dims.contains(ident) {
            self.used_dims.entry(name.clone()).or_insert_with(|| ident.clone());
            return Item::Int(super::equality::expr(&Size::name(name), &self.attribute.equalities));
        }
        if name.chars().any(char::is_lowercase) {
            let names: Vec<&str> = self.scopes.iter().flat_map(|scope| scope.keys().map(String::as_str)).collect();
            let help = crate::names::nearest(&name, names)
                .map_or_else(|| format!("bind it first: `let {name} = ..;`"), |near| format!("did you mean `{near}`?"));
            return self.report("AMK0915", path, format!("`{name}` is not a variable of this function"), help);
        }
        let headline = format!("`{name}` is a constant, whose value the macro cannot see");
        self.report("AMK0915", path, headline, format!("add `{name}` to `dims(..)`, and its value to each instance"))
    }

    fn literal(&mut self, literal: &ExprLit) -> Item {
        let item = match &literal.lit {
            Lit::Int(int) if int.suffix() == "f32" => int.base10_parse().ok().map(Item::Float),
            Lit::Int(int) => int.base10_parse().ok().map(|value| Item::Int(Size::Const(value))),
            Lit::Float(float) => float.base10_parse().ok().map(Item::Float),
            _ => None,
        };
        item.unwrap_or_else(|| {
            self.report("AMK0911", literal, "a literal that no op takes", "write a number: `1e-5` or `64`")
        })
    }

    fn unary(&mut self, unary: &ExprUnary) -> Item {
        let inner = self.expression(&unary.expr, &Dest::Temp);
        match (&unary.op, inner) {
            (_, Item::Unknown) => Item::Unknown,
            (UnOp::Neg(_), Item::Float(value)) => Item::Float(-value),
            (UnOp::Deref(_), item) => item,
            (_, item) => self.arithmetic(unary, &item),
        }
    }

    fn binary(&mut self, binary: &ExprBinary) -> Item {
        let left = self.expression(&binary.left, &Dest::Temp);
        let right = self.expression(&binary.right, &Dest::Temp);
        let op = match binary.op {
            BinOp::Add(_) => Some(Op::Add),
            BinOp::Sub(_) => Some(Op::Sub),
            BinOp::Mul(_) => Some(Op::Mul),
            BinOp::Div(_) => Some(Op::Div),
            BinOp::Rem(_) => Some(Op::Rem),
            _ => None,
        };
        match (left, op, right) {
            (Item::Unknown, ..) | (.., Item::Unknown) => Item::Unknown,
            (Item::Int(left), Some(op), Item::Int(right)) => Item::Int(Size::binary(op, left, right)),
            (Item::Int(_), _, item) | (item, ..) => self.arithmetic(binary, &item),
        }
    }

    fn arithmetic(&mut self, tokens: &dyn quote::ToTokens, item: &Item) -> Item {
        let help = match item {
            Item::Value(_) => "call an instruction: `add(&a, &b)`, `mul(&a, &b)`",
            Item::Float(_) | Item::Leaf(_) => "compute it in the loader and pass a `#[param]`",
            Item::Pos => "pass the position itself and compute with it inside an instruction",
            _ => "compute with dims and loop indices by `+ - * / %` only",
        };
        self.report("AMK0917", tokens.to_token_stream(), format!("arithmetic on {}", item.what()), help)
    }

    /// Reports an expression that has no meaning in a graph.
    pub(super) fn refuse(&mut self, expr: &Expr) -> Item {
        let (code, headline, help) = refuse::expression(expr);
        self.report(code, expr, headline, help)
    }
}

/// Whether an assignment is in the expression.
fn assigns(expr: &Expr) -> bool {
    struct Assignments(bool);
    impl<'ast> Visit<'ast> for Assignments {
        fn visit_expr_assign(&mut self, _: &'ast ExprAssign) {
            self.0 = true;
        }
    }
    let mut found = Assignments(false);
    found.visit_expr(expr);
    found.0
}
