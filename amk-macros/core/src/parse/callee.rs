//! The functions that a body calls, as far as tokens identify them.

use crate::chain::{callee, key};
use crate::diag::Diagnostic;
use std::collections::HashSet;
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprCall, ExprForLoop, ItemFn, Local, Pat, Path};

/// A called path, classified by its tokens alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Callee {
    /// Possibly an instruction: its companion decides.
    Function,
    /// A parameter or a variable: a closure.
    Variable,
    /// The annotated function itself.
    Itself,
    /// `Some`, `Layer`: a name in upper case makes a value.
    Constructor,
    /// `Tensor::zeros`: a function of a type.
    Associated,
}

impl Callee {
    /// The callee of this path in `function`; `variable` tells the names that are bound at the
    /// call.
    pub(crate) fn of(path: &Path, function: &str, variable: impl Fn(&str) -> bool) -> Self {
        let upper = |ident: &syn::Ident| ident.unraw().to_string().starts_with(char::is_uppercase);
        if let Some(name) = path.get_ident() {
            if variable(&name.to_string()) {
                return Self::Variable;
            }
            if name.unraw() == function {
                return Self::Itself;
            }
        }
        let mut segments = path.segments.iter().rev();
        match segments.next() {
            Some(last) if upper(&last.ident) => Self::Constructor,
            _ if segments.any(|segment| upper(&segment.ident)) => Self::Associated,
            _ => Self::Function,
        }
    }
}

/// The call of a function without `#[instruction]`.
pub(crate) fn not_an_instruction(path: &Path) -> Diagnostic {
    let name = path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    let headline = format!("`{name}` is not an instruction, so the graph cannot have this call");
    let help = format!("give `fn {name}` `#[instruction(..)]`, or write the calls it makes here");
    Diagnostic::new("AMK0923", path, headline, help)
}

/// The paths that are called where a graph may have a call, each once, and may be instructions.
pub(crate) fn functions(function: &ItemFn) -> Vec<Path> {
    let name = function.sig.ident.unraw().to_string();
    let mut calls = Calls { name, bound: Vec::new(), found: Vec::new() };
    for input in &function.sig.inputs {
        if let syn::FnArg::Typed(typed) = input {
            calls.bind(&typed.pat);
        }
    }
    calls.visit_block(&function.block);
    let mut seen = HashSet::new();
    calls.found.retain(|path| seen.insert(key(path)));
    calls.found
}

struct Calls {
    /// The annotated function.
    name: String,
    /// The names that are bound so far.
    bound: Vec<String>,
    found: Vec<Path>,
}

impl Calls {
    fn bind(&mut self, pattern: &Pat) {
        match pattern {
            Pat::Ident(name) => self.bound.push(name.ident.to_string()),
            Pat::Tuple(tuple) => tuple.elems.iter().for_each(|element| self.bind(element)),
            Pat::Paren(inner) => self.bind(&inner.pat),
            Pat::Type(typed) => self.bind(&typed.pat),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Calls {
    /// Lowering refuses the other expressions as they stand, whatever is called in them.
    fn visit_expr(&mut self, expr: &'ast Expr) {
        if matches!(
            expr,
            Expr::Assign(_)
                | Expr::Binary(_)
                | Expr::Block(_)
                | Expr::Call(_)
                | Expr::Field(_)
                | Expr::ForLoop(_)
                | Expr::Group(_)
                | Expr::If(_)
                | Expr::Index(_)
                | Expr::Paren(_)
                | Expr::Reference(_)
                | Expr::Tuple(_)
                | Expr::Unary(_)
        ) {
            visit::visit_expr(self, expr);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Some(callee) = callee(&call.func) {
            let variable = |name: &str| self.bound.iter().any(|bound| bound == name);
            if Callee::of(&callee.path, &self.name, variable) == Callee::Function {
                self.found.push(callee.path.clone());
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_block(&mut self, block: &'ast Block) {
        let around = self.bound.len();
        visit::visit_block(self, block);
        self.bound.truncate(around);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        // The names are bound behind the value: `let up = up(x);`.
        visit::visit_local(self, local);
        self.bind(&local.pat);
    }

    fn visit_expr_for_loop(&mut self, repeat: &'ast ExprForLoop) {
        let around = self.bound.len();
        self.visit_expr(&repeat.expr);
        self.bind(&repeat.pat);
        self.visit_block(&repeat.body);
        self.bound.truncate(around);
    }

    // A nested item has a separate scope, and is refused.
    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(function: ItemFn) -> Vec<String> {
        functions(&function).iter().map(key).collect()
    }

    #[test]
    fn a_name_is_a_variable_behind_its_binding_only() {
        let found = found(syn::parse_quote! {
            fn f(x: &Tensor, g: &Tensor) -> Tensor {
                let up = up(x);
                { let down = ops::down(&up); }
                for norm in 0..norm(x) { norm(x); }
                (up(x), down(x), g(x))
            }
        });
        assert_eq!(found, ["up", "ops::down", "down"]);
    }

    #[test]
    fn what_can_be_no_instruction_is_not_asked() {
        let found = found(syn::parse_quote! {
            fn f(x: &Tensor) -> Tensor {
                let sq = |x: &Tensor| plain(x);
                let y = Some(add(x, x))?;
                while more(x) { mul(x, x); }
                println!("{}", norm(x));
                f(&Tensor::zeros(relu(x)))
            }
        });
        assert_eq!(found, ["relu"]);
    }
}
