//! Calls of instructions.

use super::item::{Dest, Item};
use super::statement::strip;
use super::{Lowering, refuse};
use crate::chain::{Record, callee, key};
use crate::parse::callee::Callee;
use amk_ir::graph::{Arg, CallNode, Node};
use amk_ir::signature::{ParamKind, Signature};
use amk_ir::{DType, ValueId};
use quote::ToTokens;
use syn::{Expr, ExprCall, ExprPath};

/// Whether the instruction writes a state.
fn writes(signature: &Signature) -> bool {
    let writes = |kind: &ParamKind| matches!(kind, ParamKind::Tensor { access, .. } if access.writes());
    signature.params.iter().any(|param| writes(&param.kind))
}

impl Lowering<'_> {
    pub(super) fn call(&mut self, call: &ExprCall, dest: &Dest) -> Item {
        let Some(callee) = callee(&call.func) else {
            return self.report(
                "AMK0911",
                &call.func,
                "the graph cannot see what this expression calls",
                "call an instruction by its name: `linear(&x, &w.up)`",
            );
        };
        let records = self.records;
        let signature = match (self.callee(callee), records.get(&key(&callee.path))) {
            (Callee::Function, Some(Record::Instruction(signature))) => Some(signature),
            (Callee::Function, Some(Record::Error)) => None,
            (kind, _) => return self.uncallable(kind, callee),
        };
        let dests = self.one_by_one(&call.args);
        let float = |at: usize| signature.and_then(|signature| signature.params.get(at)).map(|param| &param.kind);
        let args = call.args.iter().zip(&dests).enumerate().map(|(at, (arg, dest))| match strip(arg) {
            Expr::Path(path) if float(at) == Some(&ParamKind::Float) && self.is_constant(path) => {
                self.constant_number(path)
            }
            _ => self.argument(arg, dest),
        });
        let args: Vec<Option<Arg>> = args.collect();
        let Some(signature) = signature else { return Item::Unknown };
        let Some(args) = args.into_iter().collect::<Option<Vec<Arg>>>() else { return Item::Unknown };
        if *dest == Dest::Nothing && !signature.results.is_empty() && !writes(signature) {
            let headline = format!("the result of `{}` is dropped, and every step would compute it", signature.name);
            return self.report("AMK0910", call, headline, "remove the call, or use its result: `let y = ..;`");
        }
        let Some(number) = self.signature(callee, signature) else { return Item::Unknown };
        let site = self.site(callee, call.args.iter().map(ToTokens::to_token_stream).collect());
        let results = self.targets(signature, dest);
        let item = match results.as_slice() {
            [] => Item::Unit,
            [value] => Item::Value(*value),
            several => Item::Tuple(several.iter().map(|value| Item::Value(*value)).collect()),
        };
        let (signals, waits) = (Vec::new(), Vec::new());
        self.nodes.push(Node::Call(CallNode { site, signature: number, args, results, signals, waits }));
        item
    }

    /// Returns the item that the called path names here.
    fn callee(&self, callee: &ExprPath) -> Callee {
        let variable = |name: &str| self.scopes.iter().any(|scope| scope.contains_key(name));
        Callee::of(&callee.path, &self.function, variable)
    }

    /// Reports a call of an item without a signature.
    fn uncallable(&mut self, kind: Callee, callee: &ExprPath) -> Item {
        if kind == Callee::Variable && matches!(self.name(callee), Item::Unknown) {
            // The defect of its initialiser has been reported.
            return Item::Unknown;
        }
        self.diagnostics.push(refuse::callee(kind, &callee.path));
        Item::Unknown
    }

    /// Reports a constant where a number is due, which is not a dim.
    fn constant_number(&mut self, path: &ExprPath) -> Option<Arg> {
        let headline = format!("`{}` is a constant, whose value the macro cannot see", key(&path.path));
        self.report("AMK0915", path, headline, "write the number, as in `1e-5`, or pass a `#[param]` of a layout");
        None
    }

    fn argument(&mut self, arg: &Expr, dest: &Dest) -> Option<Arg> {
        match self.expression(arg, dest) {
            Item::Value(value) => Some(Arg::Value(value)),
            Item::Leaf(path) | Item::Flag(path) => Some(Arg::Field(path)),
            Item::Int(size) => Some(Arg::Int(size)),
            Item::Float(value) => Some(Arg::Float(value)),
            Item::Pos => Some(Arg::Pos),
            Item::Unknown => None,
            other => {
                let headline = format!("{} is not an argument of an instruction", other.what());
                self.report("AMK0918", arg, headline, "pass tensors, fields, numbers or `pos`, one by one");
                None
            }
        }
    }

    fn targets(&mut self, signature: &Signature, dest: &Dest) -> Vec<ValueId> {
        let name = format!("{}.{}", signature.name, self.calls);
        self.calls += 1;
        let results = signature.results.iter();
        if let [result] = signature.results.as_slice() {
            return vec![self.target(dest, &name, result.dtype)];
        }
        match self.elements(dest, signature.results.len()) {
            Some(dests) => results.zip(&dests).map(|(result, dest)| self.target(dest, &name, result.dtype)).collect(),
            None => {
                results.map(|result| self.value(&format!("{name}.{}", result.name), result.dtype, Vec::new())).collect()
            }
        }
    }

    /// The value for `dest`; `name` is the name of a new value.
    pub(super) fn target(&mut self, dest: &Dest, name: &str, dtype: DType) -> ValueId {
        match dest {
            Dest::Value(value) => *value,
            Dest::Join(join) => self.joined_value(*join, dtype),
            Dest::Named(name) => self.value(name, dtype, Vec::new()),
            Dest::Temp | Dest::Nothing | Dest::Tuple(_) => self.value(name, dtype, Vec::new()),
        }
    }

    /// The number of the signature. A path is a crate and a name, so two instructions of a crate
    /// may have the same.
    fn signature(&mut self, callee: &ExprPath, signature: &Signature) -> Option<u32> {
        let Some(at) = self.signatures.iter().position(|known| known.path == signature.path) else {
            self.signatures.push(signature.clone());
            return Some(self.signatures.len() as u32 - 1);
        };
        if self.signatures[at] == *signature {
            return Some(at as u32);
        }
        let Signature { path, name, declared_at, .. } = signature;
        let headline =
            format!("two instructions are `{path}`: of {} and of {declared_at}", self.signatures[at].declared_at);
        self.report("AMK0905", callee, headline, format!("rename one of them: `{name}_2`"));
        None
    }
}
