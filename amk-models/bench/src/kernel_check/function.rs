//! The annotated function that is one call of an instruction.
//!
//! A device program returns one vector in tiles of 8 and takes its position from a state. Auxiliary
//! calls around the one under test provide both: the sum of its result and zeros, or the row of a
//! table that identifies the chosen token; an append to a cache.

use super::CheckError;
use amk::Megakernel;
use amk::ir::expr::Expr;
use amk::ir::graph::{Arg, CallNode, Graph, KernelParam, KernelParamKind, Node, Value};
use amk::ir::layout::{Field, FieldKind, FieldPath, Layout, PathStep};
use amk::ir::schedule::PartialSchedule;
use amk::ir::signature::{ParamKind, Signature, TensorClass};
use amk::ir::{DType, ValueId};
use amk::registry::Registry;
use std::collections::BTreeMap;

/// Rows of the table that distinguishes tokens.
pub(super) const TOKENS: u32 = 1024;
/// Positions where no operand bounds them.
pub(super) const POSITIONS: u32 = 8192;
/// Elements of a row of both.
pub(super) const WIDTH: u32 = 8;
/// The table. No parameter in Rust has a name with a dot.
pub(super) const ROWS: &str = "check.rows";
/// The token where the instruction takes none.
pub(super) const STEP: &str = "check.step";
/// The addend of a vector: negative zeros, which leave every element unchanged.
pub(super) const ZEROS: &str = "check.zeros";
/// The cache.
pub(super) const CLOCK: &str = "check.clock";
/// The values appended to it.
pub(super) const NOW: &str = "check.now";

/// The kinds of results of a generated function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Given {
    /// The instruction's one result, a vector, copied.
    Vector,
    /// The row of the token that the instruction chose, or of the step's where it chooses none.
    Row,
    /// The instruction's results, which a GPU does not return.
    Results,
}

/// Returns the kind of result of a function with this call.
pub(super) fn given(signature: &Signature) -> Given {
    match &signature.results[..] {
        [result] if result.dtype == DType::F32 && result.shape.len() == 1 => Given::Vector,
        [result] if result.dtype == DType::U32 => Given::Row,
        [] => Given::Row,
        _ => Given::Results,
    }
}

/// Whether the call takes a position that none of its states bounds.
pub(super) fn needs_clock(signature: &Signature) -> bool {
    takes_pos(signature) && !takes(signature, TensorClass::State)
}

pub(super) fn takes_pos(signature: &Signature) -> bool {
    signature.params.iter().any(|param| matches!(param.kind, ParamKind::Pos))
}

/// Whether the call takes a tensor of this class.
pub(super) fn takes(signature: &Signature, class: TensorClass) -> bool {
    let tensor = |kind: &ParamKind| matches!(kind, ParamKind::Tensor { class: of, .. } if *of == class);
    signature.params.iter().any(|param| tensor(&param.kind))
}

/// The function. Weights and states are the fields of its parameter `w`; `floats` are the call's
/// float parameters by name.
pub(super) fn function(
    signature: &Signature,
    dims: impl Iterator<Item = String>,
    floats: &BTreeMap<String, f32>,
    weights: DType,
) -> Result<Megakernel, CheckError> {
    let mut builder = Builder::default();
    let args = signature.params.iter().map(|param| builder.param(&param.name, &param.kind, floats)).collect();
    let mut results = builder.call(signature.clone(), args);
    let width = Expr::Const(i64::from(WIDTH));
    if let (Given::Vector, [result]) = (given(signature), &signature.results[..]) {
        let zeros = builder.input(ZEROS, DType::F32, result.shape.clone(), KernelParamKind::Tensor);
        let args = vec![Arg::Value(results[0]), Arg::Value(zeros)];
        results = builder.companion("amk_kernels::add", args, &result.shape[0])?;
    }
    if given(signature) == Given::Row {
        let token = results.pop().unwrap_or_else(|| builder.token(signature));
        let table = builder.field(ROWS, |name| FieldKind::Weight {
            source: name,
            fallback: None,
            shape: vec![Expr::Const(i64::from(TOKENS)), width.clone()],
        });
        results = builder.companion("amk_kernels::embed", vec![table, Arg::Value(token)], &width)?;
    }
    if needs_clock(signature) {
        let shape = vec![Expr::Const(1), Expr::Const(i64::from(POSITIONS)), width.clone()];
        let cache = builder.field(CLOCK, |_| FieldKind::State { shape });
        let x = builder.input(NOW, DType::F32, vec![width.clone()], KernelParamKind::Tensor);
        builder.companion("amk_kernels::kv_append", vec![cache, Arg::Value(x), Arg::Pos], &width)?;
    }
    let graph = builder.graph(&signature.name, dims.collect(), results, weights);
    // A megakernel is a static in every other program; here each case leaves a few hundred bytes
    // behind.
    let json = serde_json::to_string(&graph).map_err(|error| CheckError::Graph(error.to_string()))?;
    Ok(Megakernel::new("case", json.leak(), &[]))
}

#[derive(Default)]
struct Builder {
    params: Vec<KernelParam>,
    fields: Vec<Field>,
    values: Vec<Value>,
    nodes: Vec<Node>,
    signatures: Vec<Signature>,
}

impl Builder {
    fn param(&mut self, name: &str, kind: &ParamKind, floats: &BTreeMap<String, f32>) -> Arg {
        match kind {
            ParamKind::Tensor { class, shape, .. } => {
                let shape = shape.clone();
                match class {
                    TensorClass::Tensor => Arg::Value(self.input(name, DType::F32, shape, KernelParamKind::Tensor)),
                    TensorClass::Token => Arg::Value(self.input(name, DType::U32, shape, KernelParamKind::Token)),
                    TensorClass::State => self.field(name, |_| FieldKind::State { shape }),
                    TensorClass::Weight => {
                        self.field(name, |source| FieldKind::Weight { source, fallback: None, shape })
                    }
                }
            }
            ParamKind::Float => Arg::Float(floats.get(name).copied().unwrap_or(0.0)),
            ParamKind::Dim(expr) => Arg::Int(expr.clone()),
            ParamKind::Pos => Arg::Pos,
        }
    }

    fn input(&mut self, name: &str, dtype: DType, shape: Vec<Expr>, kind: fn(ValueId) -> KernelParamKind) -> ValueId {
        let id = self.value(name, dtype, shape);
        self.params.push(KernelParam { name: name.to_owned(), kind: kind(id) });
        id
    }

    /// The token that the call takes, or one of the function's own.
    fn token(&mut self, signature: &Signature) -> ValueId {
        let known = self.params.iter().find_map(|param| match param.kind {
            KernelParamKind::Token(id) if takes(signature, TensorClass::Token) => Some(id),
            _ => None,
        });
        known.unwrap_or_else(|| self.input(STEP, DType::U32, vec![Expr::Const(1)], KernelParamKind::Token))
    }

    fn value(&mut self, name: &str, dtype: DType, shape: Vec<Expr>) -> ValueId {
        self.values.push(Value { name: name.to_owned(), dtype, shape });
        ValueId::from(self.values.len() - 1)
    }

    fn field(&mut self, name: &str, kind: impl FnOnce(String) -> FieldKind) -> Arg {
        self.fields.push(Field { name: name.to_owned(), kind: kind(name.to_owned()) });
        Arg::Field(FieldPath { root: "w".into(), steps: vec![PathStep { field: name.to_owned(), index: None }] })
    }

    fn call(&mut self, signature: Signature, args: Vec<Arg>) -> Vec<ValueId> {
        let results: Vec<ValueId> =
            signature.results.iter().map(|r| self.value(&r.name, r.dtype, r.shape.clone())).collect();
        let (site, number) = (self.nodes.len() as u32, self.signatures.len() as u32);
        let (signals, waits) = (Vec::new(), Vec::new());
        let node = CallNode { site, signature: number, args, results: results.clone(), signals, waits };
        self.nodes.push(Node::Call(node));
        self.signatures.push(signature);
        results
    }

    /// A call of another instruction, whose results have this width.
    fn companion(&mut self, path: &str, args: Vec<Arg>, width: &Expr) -> Result<Vec<ValueId>, CheckError> {
        let results = self.call(Registry::linked()?.get(path)?.signature()?, args);
        for result in &results {
            self.values[result.index()].shape = vec![width.clone()];
        }
        Ok(results)
    }

    fn graph(mut self, name: &str, dims: Vec<String>, results: Vec<ValueId>, weights: DType) -> Graph {
        let layout = Layout { name: "Operands".into(), declared_at: String::new(), fields: self.fields };
        self.params.push(KernelParam { name: "pos".into(), kind: KernelParamKind::Pos });
        self.params.push(KernelParam { name: "w".into(), kind: KernelParamKind::Layout(layout) });
        Graph {
            name: name.to_owned(),
            dims,
            multiples: Vec::new(),
            equalities: Vec::new(),
            signatures: self.signatures,
            params: self.params,
            events: Vec::new(),
            values: self.values,
            body: self.nodes,
            results,
            instances: Vec::new(),
            schedule: PartialSchedule { weights: Some(weights), ..PartialSchedule::default() },
        }
    }
}
