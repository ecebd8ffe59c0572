//! The function without `#[signal]` and `#[wait]`, which Rust itself does not know.

use crate::parse::event::{is_event, misspelt_event};
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Block, ExprForLoop, Meta, Pat, parse_quote};

/// Takes the attributes out, and misspelt ones, which are reported. Loop indices they name are
/// named in their place, or Rust would call them unused.
#[derive(Default)]
pub(crate) struct Strip {
    /// The names that the loops around bind.
    bound: Vec<Ident>,
    /// Those that the attributes of the statement name.
    named: Vec<Ident>,
}

impl Strip {
    fn bind(&mut self, pattern: &Pat) {
        match pattern {
            Pat::Ident(name) => self.bound.push(name.ident.clone()),
            Pat::Tuple(tuple) => tuple.elems.iter().for_each(|element| self.bind(element)),
            Pat::Paren(inner) => self.bind(&inner.pat),
            _ => {}
        }
    }

    fn name(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.name(group.stream()),
                TokenTree::Ident(ident) => self.named.extend(self.bound.iter().find(|bound| **bound == ident).cloned()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl VisitMut for Strip {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        for attribute in
            attributes.extract_if(.., |attribute| is_event(attribute) || misspelt_event(attribute).is_some())
        {
            if let Meta::List(list) = attribute.meta {
                self.name(list.tokens);
            }
        }
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        for mut statement in std::mem::take(&mut block.stmts) {
            self.visit_stmt_mut(&mut statement);
            block.stmts.extend(self.named.drain(..).map(|name| parse_quote!(let _ = #name;)));
            block.stmts.push(statement);
        }
    }

    fn visit_expr_for_loop_mut(&mut self, repeat: &mut ExprForLoop) {
        let around = self.bound.len();
        self.bind(&repeat.pat);
        visit_mut::visit_expr_for_loop_mut(self, repeat);
        self.bound.truncate(around);
    }
}
