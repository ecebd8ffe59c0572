//! Attributes that no statement has read: Rust would act on them or drop them, and the graph would
//! not reflect them.

use super::Lowering;
use crate::chain::key;
use crate::parse::event::{HARMLESS, is_event, misspelt_event};
use syn::visit::Visit;
use syn::{Attribute, ItemFn};

impl Lowering<'_> {
    /// Reports the attributes of the parameters and of the body that are neither harmless nor a
    /// read signal or wait.
    pub(super) fn unread_attributes(&mut self, function: &ItemFn) {
        // Where something else was reported, attributes may be unread because of it.
        let clean = self.diagnostics.is_empty();
        let mut all = All(Vec::new());
        function.sig.inputs.iter().for_each(|input| all.visit_fn_arg(input));
        all.visit_block(&function.block);
        for attribute in all.0 {
            if let Some(meant) = misspelt_event(attribute) {
                let headline = format!("unknown attribute `{}`", key(attribute.path()));
                self.report("AMK0934", attribute, headline, format!("did you mean `#[{meant}(..)]`?"));
            } else if !is_event(attribute) {
                if !harmless(attribute) {
                    let headline = "an attribute that would change the function, not the graph";
                    self.report("AMK0910", attribute, headline, "remove it; for variants write `if` on a `#[flag]`");
                }
            } else if clean && !self.read.contains(&std::ptr::from_ref(attribute)) {
                let headline = "a signal or a wait that does not stand on the statement of an op";
                let help = "put it before the statement: `#[signal(e[n])] let y = linear(&x, &w.up);`";
                self.report("AMK0934", attribute, headline, help);
            }
        }
    }
}

fn harmless(attribute: &Attribute) -> bool {
    attribute.path().segments.first().is_some_and(|first| HARMLESS.iter().any(|name| first.ident == name))
}

struct All<'ast>(Vec<&'ast Attribute>);

impl<'ast> Visit<'ast> for All<'ast> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        self.0.push(attribute);
    }

    // An item is refused as a whole.
    fn visit_item(&mut self, _: &'ast syn::Item) {}
}
