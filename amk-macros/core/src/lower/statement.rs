//! Blocks, `let`, assignments.

use super::item::{Dest, Item};
use super::refuse;
use super::{EventSite, Lowering};
use crate::parse::event;
use amk_ir::graph::{Node, SignalMap, WaitMap};
use quote::quote;
use syn::{Attribute, Block, Expr, Local, Pat, Stmt};

impl Lowering<'_> {
    /// Lowers the statements of a block in the open scope; returns its tail.
    pub(super) fn block(&mut self, block: &Block, dest: &Dest) -> Item {
        let mut tail = Item::Unit;
        for (at, statement) in block.stmts.iter().enumerate() {
            let last = at + 1 == block.stmts.len();
            tail = match statement {
                Stmt::Local(local) => self.local(local),
                Stmt::Expr(expr, None) if last => self.tail(expr, dest),
                Stmt::Expr(Expr::Verbatim(nothing), Some(_)) if nothing.is_empty() => Item::Unit,
                Stmt::Expr(expr, _) => self.statement(expr),
                Stmt::Item(item) => {
                    let (headline, help) = refuse::item(item);
                    self.report("AMK0910", item, headline, help)
                }
                Stmt::Macro(call) => {
                    let (headline, help) = refuse::macro_call(&call.mac);
                    self.report("AMK0910", call, headline, help)
                }
            };
        }
        tail
    }

    fn local(&mut self, local: &Local) -> Item {
        let Some(init) = &local.init else {
            let help = "write its value here: `let x = if w.flag { a } else { b };`";
            self.bind(&local.pat, Item::Unknown);
            return self.report("AMK0910", local, "a variable without a value", help);
        };
        if let Some((_, otherwise)) = &init.diverge {
            let headline = "`let .. else` has no meaning in a graph";
            self.report("AMK0910", otherwise, headline, "write `let` with a pattern that always matches");
        }
        let dest = self.dest(&local.pat);
        let before = self.sites.len();
        let item = self.expression(&init.expr, &dest);
        self.bind(&local.pat, item);
        self.attributes(&local.attrs, &init.expr, before);
        Item::Unit
    }

    /// Where the parts of a value go that is bound by `pattern`.
    fn dest(&mut self, pattern: &Pat) -> Dest {
        match pattern {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                Dest::Named(ident.ident.to_string())
            }
            Pat::Wild(_) => Dest::Temp,
            Pat::Tuple(tuple) => Dest::Tuple(tuple.elems.iter().map(|element| self.dest(element)).collect()),
            Pat::Paren(inner) => self.dest(&inner.pat),
            Pat::Type(typed) => self.dest(&typed.pat),
            other => {
                let help = "bind by names and tuples: `let (q, k) = (..);`";
                self.report("AMK0919", other, "a pattern that a graph does not have", help);
                Dest::Temp
            }
        }
    }

    /// Binds the names of a pattern.
    pub(super) fn bind(&mut self, pattern: &Pat, item: Item) {
        match (pattern, item) {
            (Pat::Ident(ident), item) => self.bind_name(&ident.ident, item),
            (Pat::Paren(inner), item) => self.bind(&inner.pat, item),
            (Pat::Type(typed), item) => self.bind(&typed.pat, item),
            (Pat::Tuple(tuple), Item::Tuple(items)) if tuple.elems.len() == items.len() => {
                for (element, item) in tuple.elems.iter().zip(items) {
                    self.bind(element, item);
                }
            }
            (Pat::Tuple(tuple), item) => {
                if item != Item::Unknown {
                    let headline = format!("this pattern has {} names for {}", tuple.elems.len(), item.what());
                    self.report("AMK0919", tuple, headline, "bind each result by one name");
                }
                for element in &tuple.elems {
                    self.bind(element, Item::Unknown);
                }
            }
            _ => {}
        }
    }

    fn tail(&mut self, expr: &Expr, dest: &Dest) -> Item {
        match expr {
            Expr::Assign(_) | Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) => self.statement(expr),
            _ => {
                let before = self.sites.len();
                let item = self.expression(expr, dest);
                self.attributes(attributes_of(expr), expr, before);
                item
            }
        }
    }

    fn statement(&mut self, expr: &Expr) -> Item {
        let before = self.sites.len();
        match expr {
            Expr::Assign(assign) => {
                if let Some(value) = self.assigned(&assign.left) {
                    let around = self.assignment.replace(quote!(#assign));
                    self.expression(&assign.right, &Dest::Value(value));
                    self.assignment = around;
                }
                self.attributes(attributes_of(&assign.left), &assign.right, before);
                self.attributes(&assign.attrs, &assign.right, before);
            }
            Expr::ForLoop(repeat) => self.repeat(repeat),
            Expr::Call(_) | Expr::If(_) | Expr::Block(_) | Expr::Paren(_) | Expr::Group(_) => {
                self.expression(expr, &Dest::Nothing);
                self.attributes(attributes_of(expr), expr, before);
            }
            Expr::Path(_) | Expr::Field(_) | Expr::Lit(_) | Expr::Tuple(_) | Expr::Reference(_) | Expr::Index(_) => {
                self.report("AMK0910", expr, "this statement does nothing", "remove it");
            }
            other => {
                self.refuse(other);
            }
        }
        Item::Unit
    }

    /// The variable that an assignment writes.
    fn assigned(&mut self, left: &Expr) -> Option<amk_ir::ValueId> {
        let help = "assign tensors to variables, one a statement: `x = add(&x, &y);`";
        match left {
            Expr::Path(path) => match self.name(path) {
                Item::Value(value) => Some(value),
                Item::Unknown => None,
                other => {
                    self.report("AMK0910", left, format!("an assignment to {}", other.what()), help);
                    None
                }
            },
            other => {
                self.report("AMK0910", other, "an assignment to something else than a variable", help);
                None
            }
        }
    }

    /// The attributes of a statement: signals and waits of its op, the last of the calls from site
    /// `before` on.
    fn attributes(&mut self, attributes: &[Attribute], expr: &Expr, before: usize) {
        for attribute in attributes.iter().filter(|attribute| event::is_event(attribute)) {
            self.read.insert(std::ptr::from_ref(attribute));
            let parsed = event::attribute(attribute);
            if let Some(found) = self.diagnostics.keep(parsed) {
                self.event(found, expr, before);
            }
        }
    }

    fn event(&mut self, found: event::EventAttribute, expr: &Expr, before: usize) {
        let name = found.event.name.to_string();
        let known: Vec<String> = self.attribute.events.iter().map(|event| event.name.to_string()).collect();
        if !known.contains(&name) {
            let headline = format!("`{name}` is not in `events(..)`");
            let help = match crate::names::nearest(&name, known.iter().map(String::as_str)) {
                Some(candidate) => format!("did you mean `{candidate}`?"),
                None => format!("declare it in the attribute: `events({name}[..])`"),
            };
            self.report("AMK0934", found.event.name, headline, help);
            return;
        }
        let coordinates: Vec<_> = found.event.shape.iter().map(|size| self.with_indices(size)).collect();
        let threshold = found.threshold.as_ref().map(|threshold| self.with_indices(threshold));
        let calls = matches!(strip(expr), Expr::Call(_)) && self.sites.len() > before;
        match self.nodes.last_mut() {
            Some(Node::Call(call)) if calls => {
                if let Some(site) = self.sites.get_mut(call.site as usize) {
                    site.events.push(EventSite { name: name.clone(), wait: threshold.is_some(), tokens: found.tokens });
                }
                match threshold {
                    Some(threshold) => call.waits.push(WaitMap { event: name, coordinates, threshold }),
                    None => call.signals.push(SignalMap { event: name, coordinates }),
                }
            }
            _ if self.diagnostics.is_empty() => {
                let help = "put it on the statement of one op: `#[signal(e[n])] let y = linear(&x, &w.up);`";
                self.report("AMK0934", found.tokens, "this statement is not a call of an op", help);
            }
            _ => {}
        }
    }

    /// The expression with the loop indices that the names in it mean; other names are tile numbers
    /// and dims.
    fn with_indices(&self, size: &amk_ir::expr::Expr) -> amk_ir::expr::Expr {
        size.substitute(&|name| match self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            Some(Item::Int(index)) => Some(index.clone()),
            _ => None,
        })
    }
}

/// The expression inside parentheses and references.
pub(super) fn strip(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(inner) => strip(&inner.expr),
        Expr::Group(inner) => strip(&inner.expr),
        Expr::Reference(inner) => strip(&inner.expr),
        other => other,
    }
}

/// The attributes of an expression in statement position.
fn attributes_of(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Call(inner) => &inner.attrs,
        Expr::Path(inner) => &inner.attrs,
        Expr::If(inner) => &inner.attrs,
        Expr::Block(inner) => &inner.attrs,
        Expr::ForLoop(inner) => &inner.attrs,
        Expr::Paren(inner) => &inner.attrs,
        Expr::Tuple(inner) => &inner.attrs,
        Expr::Reference(inner) => &inner.attrs,
        _ => &[],
    }
}
