//! The record in an expansion, for tests and benches that run a chain without a compiler.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

/// The record in an expansion: the first text that is JSON; `None` of an item with errors.
pub(crate) fn record(expansion: &TokenStream) -> Option<String> {
    struct Json(Option<String>);
    impl<'ast> Visit<'ast> for Json {
        fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
            if literal.value().starts_with('{') {
                self.0.get_or_insert(literal.value());
            }
        }

        fn visit_macro(&mut self, call: &'ast syn::Macro) {
            let literals = call.tokens.clone().into_iter().flat_map(flatten);
            for literal in literals.filter_map(|tree| syn::parse2::<syn::LitStr>(tree.into()).ok()) {
                self.visit_lit_str(&literal);
            }
        }
    }
    let mut found = Json(None);
    found.visit_file(&syn::parse2(expansion.clone()).expect("items"));
    found.0
}

fn flatten(tree: TokenTree) -> Vec<TokenTree> {
    match tree {
        TokenTree::Group(group) => group.stream().into_iter().flat_map(flatten).collect(),
        tree => vec![tree],
    }
}
