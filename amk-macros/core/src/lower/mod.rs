//! From the body of an annotated function to a graph.
//!
//! The body is read as Rust reads it: names by scope, arguments before calls, assignments in order.
//! Constructs without a meaning in a graph are refused at their tokens. After an error lowering
//! goes on with [`Item::Unknown`], which is never reported again.

mod attribute;
mod call;
mod condition;
mod equality;
mod expression;
mod instance;
mod item;
mod iteration;
mod join;
mod parameter;
mod place;
mod refuse;
mod statement;
#[cfg(test)]
mod tests;

use crate::chain::Record;
use crate::diag::{Diagnostic, Diagnostics};
use crate::parse::kernel::{KernelAttribute, known_dims};
use amk_ir::expr::Expr;
use amk_ir::graph::{EventDecl, Graph, Node, Value};
use amk_ir::signature::Signature;
use amk_ir::{DType, ValueId};
use item::{Dest, Item};
use join::Join;
use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use std::collections::{BTreeMap, HashMap, HashSet};
use syn::ext::IdentExt;
use syn::{Attribute, ItemFn, ReturnType};

/// The tokens of a call, or of an assignment to an existing variable.
pub(crate) struct Site {
    /// The path that is called, or the value that is assigned.
    pub(crate) callee: TokenStream,
    /// The assignment around it: a variable's further value.
    pub(crate) assignment: Option<TokenStream>,
    /// The arguments.
    pub(crate) args: Vec<TokenStream>,
    /// Its signals and waits that are written by hand.
    pub(crate) events: Vec<EventSite>,
}

/// A signal or a wait that is written by hand.
pub(crate) struct EventSite {
    /// The event tensor's name.
    pub(crate) name: String,
    /// Whether it is a wait.
    pub(crate) wait: bool,
    /// The attribute's tokens.
    pub(crate) tokens: TokenStream,
}

/// A function as a graph, not checked, and the tokens to point at.
pub(crate) struct LoweredFunction {
    /// The graph.
    pub(crate) graph: Graph,
    /// The calls and assignments by [`amk_ir::graph::CallNode::site`].
    pub(crate) sites: Vec<Site>,
    /// Dims that the body uses as values: they have to be constants in scope, for the function also
    /// runs unchanged.
    pub(crate) used_dims: BTreeMap<String, Ident>,
}

/// Lowers the function; `None` where something was reported.
pub(crate) fn lower(
    function: &ItemFn,
    attribute: &KernelAttribute,
    records: &BTreeMap<String, Record>,
    diagnostics: &mut Diagnostics,
) -> Option<LoweredFunction> {
    let mut lowering = Lowering::new(function, attribute, records, diagnostics);
    let params = lowering.parameters(function);
    let results = match function.sig.output {
        ReturnType::Default => {
            lowering.block(&function.block, &Dest::Nothing);
            Vec::new()
        }
        ReturnType::Type(..) => {
            let tail = lowering.block(&function.block, &Dest::Temp);
            lowering.results(function, &tail)
        }
    };
    lowering.unread_attributes(function);
    let events = lowering.events();
    let Lowering { values, nodes, signatures, sites, used_dims, .. } = lowering;
    if !diagnostics.is_empty() {
        return None;
    }
    let graph = Graph {
        name: function.sig.ident.unraw().to_string(),
        dims: attribute.dims.iter().map(ToString::to_string).collect(),
        multiples: attribute.multiples.clone(),
        equalities: attribute
            .equalities
            .iter()
            .map(|equality| (equality.dim.clone(), equality.value.clone()))
            .collect(),
        signatures,
        params,
        events,
        values,
        body: nodes,
        results,
        instances: attribute.instances.iter().map(|argument| argument.instance.clone()).collect(),
        schedule: attribute.schedule.schedule.clone(),
    };
    Some(LoweredFunction { graph, sites, used_dims })
}

/// Loops and branches within each other at most: a deeper graph is not read back from JSON.
const DEEPEST: usize = 32;

struct Lowering<'a> {
    attribute: &'a KernelAttribute,
    records: &'a BTreeMap<String, Record>,
    diagnostics: &'a mut Diagnostics,
    values: Vec<Value>,
    /// The results of the `if`s, by the numbers of [`Dest::Join`].
    joins: Vec<Join>,
    names: HashMap<String, u32>,
    /// The items that names refer to, innermost scope last.
    scopes: Vec<HashMap<String, Item>>,
    /// The indices of the loops around, outermost first.
    indices: Vec<String>,
    /// The statements so far of the innermost block.
    nodes: Vec<Node>,
    /// Loops and branches around it.
    depth: usize,
    signatures: Vec<Signature>,
    sites: Vec<Site>,
    /// How many of the sites are calls.
    calls: usize,
    /// The assignment that is read.
    assignment: Option<TokenStream>,
    /// The annotated function's name.
    function: String,
    /// The signals and waits that statements have read, by where they are in the function.
    read: HashSet<*const Attribute>,
    used_dims: BTreeMap<String, Ident>,
}

impl<'a> Lowering<'a> {
    fn new(
        function: &ItemFn,
        attribute: &'a KernelAttribute,
        records: &'a BTreeMap<String, Record>,
        diagnostics: &'a mut Diagnostics,
    ) -> Self {
        Self {
            attribute,
            records,
            diagnostics,
            values: Vec::new(),
            joins: Vec::new(),
            names: HashMap::new(),
            scopes: vec![HashMap::new()],
            indices: Vec::new(),
            nodes: Vec::new(),
            depth: 0,
            signatures: Vec::new(),
            sites: Vec::new(),
            calls: 0,
            assignment: None,
            function: function.sig.ident.unraw().to_string(),
            read: HashSet::new(),
            used_dims: BTreeMap::new(),
        }
    }

    fn report(
        &mut self,
        code: &'static str,
        tokens: impl ToTokens,
        headline: impl Into<String>,
        help: impl Into<String>,
    ) -> Item {
        self.diagnostics.push(Diagnostic::new(code, tokens, headline, help));
        Item::Unknown
    }

    /// The number of a new site.
    fn site(&mut self, callee: impl ToTokens, args: Vec<TokenStream>) -> u32 {
        let assignment = self.assignment.clone();
        self.sites.push(Site { callee: callee.to_token_stream(), assignment, args, events: Vec::new() });
        self.sites.len() as u32 - 1
    }

    /// A new value; a name that is taken gets a number.
    fn value(&mut self, name: &str, dtype: DType, shape: Vec<Expr>) -> ValueId {
        let count = self.names.entry(name.to_owned()).or_default();
        *count += 1;
        let name = if *count == 1 { name.to_owned() } else { format!("{name}.{count}") };
        self.values.push(Value { name, dtype, shape });
        ValueId::from(self.values.len() - 1)
    }

    fn bind_name(&mut self, name: &Ident, item: Item) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), item);
        }
    }

    /// Whether a loop or branch is within too many others, which is reported.
    fn too_deep(&mut self, at: impl ToTokens) -> bool {
        let deep = self.depth == DEEPEST;
        if deep {
            let headline = format!("more than {DEEPEST} loops and branches within each other");
            self.report("AMK0910", at, headline, "put some of them behind the others; an `else if` is within its `if`");
        }
        deep
    }

    /// As [`Self::nested`], for a statement within the current one.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> (Vec<Node>, T) {
        self.depth += 1;
        let result = self.nested(inner);
        self.depth -= 1;
        result
    }

    /// Runs `inner` in a new scope and returns its statements instead of adding them.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> (Vec<Node>, T) {
        let outer = std::mem::take(&mut self.nodes);
        self.scopes.push(HashMap::new());
        let result = inner(self);
        self.scopes.pop();
        (std::mem::replace(&mut self.nodes, outer), result)
    }

    fn results(&mut self, function: &ItemFn, tail: &Item) -> Vec<ValueId> {
        let items = match tail {
            Item::Tuple(items) => items.clone(),
            Item::Unit => Vec::new(),
            item => vec![item.clone()],
        };
        let mut results = Vec::new();
        for item in items {
            match item {
                Item::Value(value) => results.push(value),
                Item::Unknown => {}
                other => {
                    let headline =
                        format!("`{}` returns {}, not what an op has computed", function.sig.ident, other.what());
                    let last = function.block.stmts.last().map(ToTokens::to_token_stream).unwrap_or_default();
                    self.report("AMK0922", last, headline, "end the function with an op: `linear(&x, &w.lm_head)`");
                }
            }
        }
        results
    }

    fn events(&mut self) -> Vec<EventDecl> {
        let attribute = self.attribute;
        let mut events = Vec::new();
        for event in &attribute.events {
            for extent in &event.shape {
                let known = known_dims(extent, &attribute.dims, &event.name.to_token_stream());
                self.diagnostics.keep(known);
            }
            events.push(EventDecl { name: event.name.to_string(), shape: event.shape.clone() });
        }
        events
    }
}
