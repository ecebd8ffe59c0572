//! One call of an instruction on operands of random sizes: as arguments of its Rust function, and as a graph of that one call.

use super::CheckError;
use super::draw::Draw;
use amk::ir::expr::Expr;
use amk::ir::graph::{Arg, CallNode, Graph, Instance, KernelParam, KernelParamKind, Node, Value};
use amk::ir::layout::{Field, FieldKind, FieldPath, Layout, PathStep};
use amk::ir::schedule::Schedule;
use amk::ir::signature::{ParamKind, Signature, TensorClass};
use amk::ir::{DType, ValueId};
use amk::registry::{Argument, Entry, Output};
use amk::{Megakernel, Pos, State, Tensor, Token, Weight};
use half::bf16;
use std::collections::{BTreeMap, BTreeSet};

/// What a parameter is given.
#[derive(Clone)]
pub(super) enum Operand {
    Tensor(Tensor),
    Weight(Weight),
    State(State),
    Token(u32),
    Float(f32),
    Dim(usize),
    Pos,
}

/// A call.
pub(super) struct Case {
    pub(super) signature: Signature,
    pub(super) dims: BTreeMap<String, u32>,
    pub(super) operands: Vec<(String, Operand)>,
    pub(super) pos: u32,
    pub(super) token: u32,
}

/// Sizes that dims are drawn from: what tiles divide, and what they do not.
const SIZES: [u32; 14] = [1, 2, 3, 5, 8, 16, 24, 32, 40, 64, 96, 128, 192, 320];
/// Tries to find sizes that fit the instruction's conditions.
const TRIES: usize = 4000;
/// Elements of an operand at most.
const MOST_ELEMENTS: i64 = 1 << 18;

impl Case {
    /// A random case. `rows`: the results' rows are multiples of this, as the GPU wants them.
    ///
    /// # Errors
    /// [`CheckError::NoShape`] where no sizes were found on which the function runs.
    pub(super) fn random(entry: &Entry, draw: &mut Draw, weights: DType, rows: i64) -> Result<Self, CheckError> {
        let signature = entry.signature()?;
        let names = names(&signature);
        for _ in 0..TRIES {
            let mut size = || SIZES[draw.below(SIZES.len() as u32) as usize] * (1 + draw.below(2));
            let dims: BTreeMap<String, u32> = names.iter().map(|name| (name.clone(), size())).collect();
            if fits(&signature, &dims, rows) {
                let case = Self::fill(signature.clone(), dims, draw, weights)?;
                // A condition that the signature does not tell ends in a panic of the function.
                if case.reference(entry).is_ok() {
                    return Ok(case);
                }
            }
        }
        Err(CheckError::NoShape(signature.path))
    }

    fn fill(
        signature: Signature,
        dims: BTreeMap<String, u32>,
        draw: &mut Draw,
        weights: DType,
    ) -> Result<Self, CheckError> {
        let mut positions = 1;
        let mut operands = Vec::new();
        let mut token = 0;
        for param in &signature.params {
            let operand = match &param.kind {
                ParamKind::Tensor { class, shape, .. } => {
                    let shape = extents(shape, &dims);
                    let values = draw.eighths(shape.iter().product());
                    match class {
                        TensorClass::Tensor => Operand::Tensor(Tensor::new(&shape, values)?),
                        TensorClass::Weight if weights == DType::BF16 => {
                            Operand::Weight(Weight::bf16(&shape, values.into_iter().map(bf16::from_f32).collect())?)
                        }
                        TensorClass::Weight => Operand::Weight(Weight::f32(&shape, values)?),
                        TensorClass::State => {
                            positions = shape.get(1).copied().unwrap_or(1) as u32;
                            Operand::State(state(&shape, &values)?)
                        }
                        TensorClass::Token => {
                            // Of a table of as many rows: the first dim of the first weight.
                            let rows = operands.iter().find_map(|(_, operand)| match operand {
                                Operand::Weight(weight) => Some(weight.rows() as u32),
                                _ => None,
                            });
                            token = draw.below(rows.unwrap_or(1));
                            Operand::Token(token)
                        }
                    }
                }
                ParamKind::Float => Operand::Float((1 + draw.below(8)) as f32 / 16.0),
                ParamKind::Dim(expr) => Operand::Dim(value(expr, &dims).unwrap_or(0) as usize),
                ParamKind::Pos => Operand::Pos,
            };
            operands.push((param.name.clone(), operand));
        }
        let pos = draw.below(positions);
        Ok(Self { signature, dims, operands, pos, token })
    }

    /// What the Rust function gives for the whole operands.
    pub(super) fn reference(&self, entry: &Entry) -> Result<Vec<Output>, CheckError> {
        let pos = Pos(self.pos);
        let call = || {
            entry.call(self.operands.iter().map(|(_, operand)| match operand {
                Operand::Tensor(tensor) => Argument::Tensor(tensor.clone()),
                Operand::Weight(weight) => Argument::Weight(weight),
                Operand::State(state) => Argument::State(state.clone()),
                Operand::Token(token) => Argument::Token(Token(*token)),
                Operand::Float(value) => Argument::Float(*value),
                Operand::Dim(value) => Argument::Dim(*value),
                Operand::Pos => Argument::Pos(pos),
            }))
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(call))
            .map_err(|_| CheckError::NoShape(self.signature.path.clone()))
    }

    /// The shapes, as in `N = 64, K = 24`.
    pub(super) fn shapes(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let pos = if self.operands.iter().any(|(_, operand)| matches!(operand, Operand::Pos)) {
            format!(", pos = {}", self.pos)
        } else {
            String::new()
        };
        dims.join(", ") + &pos
    }

    /// The annotated function that is this call and nothing else; weights and states are the fields of its parameter `w`.
    pub(super) fn kernel(&self, weights: DType) -> Result<(Megakernel, Instance), CheckError> {
        let (mut params, mut fields, mut values, mut args) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for param in &self.signature.params {
            let name = param.name.clone();
            args.push(match &param.kind {
                ParamKind::Tensor { class: class @ (TensorClass::Tensor | TensorClass::Token), shape, .. } => {
                    let token = *class == TensorClass::Token;
                    let dtype = if token { DType::U32 } else { DType::F32 };
                    let id = ValueId::from(values.len());
                    values.push(Value { name: name.clone(), dtype, shape: shape.clone() });
                    let kind = if token { KernelParamKind::Token(id) } else { KernelParamKind::Tensor(id) };
                    params.push(KernelParam { name, kind });
                    Arg::Value(id)
                }
                ParamKind::Tensor { class, shape, .. } => {
                    let (shape, source) = (shape.clone(), name.clone());
                    let kind = match class {
                        TensorClass::State => FieldKind::State { shape },
                        _ => FieldKind::Weight { source, fallback: None, shape },
                    };
                    fields.push(Field { name: name.clone(), kind });
                    Arg::Field(FieldPath { root: "w".into(), steps: vec![PathStep { field: name, index: None }] })
                }
                ParamKind::Float => {
                    let given = self.operands.iter().find(|(known, _)| *known == name);
                    Arg::Float(if let Some((_, Operand::Float(value))) = given { *value } else { 0.0 })
                }
                ParamKind::Dim(expr) => Arg::Int(expr.clone()),
                ParamKind::Pos => {
                    params.push(KernelParam { name, kind: KernelParamKind::Pos });
                    Arg::Pos
                }
            });
        }
        let layout = Layout { name: "Operands".into(), declared_at: String::new(), fields };
        params.push(KernelParam { name: "w".into(), kind: KernelParamKind::Layout(layout) });
        let mut results = Vec::new();
        for result in &self.signature.results {
            results.push(ValueId::from(values.len()));
            values.push(Value { name: result.name.clone(), dtype: result.dtype, shape: result.shape.clone() });
        }
        let node =
            CallNode { site: 0, signature: 0, args, results: results.clone(), signals: Vec::new(), waits: Vec::new() };
        let schedule = Schedule { weights, ..Schedule::default() };
        let instance = Instance {
            name: "case".into(),
            dims: self.dims.clone(),
            flags: BTreeMap::new(),
            floats: BTreeMap::new(),
            schedule: None,
        };
        let graph = Graph {
            name: self.signature.name.clone(),
            dims: self.dims.keys().cloned().collect(),
            multiples: Vec::new(),
            equalities: Vec::new(),
            signatures: vec![self.signature.clone()],
            params,
            events: Vec::new(),
            values,
            body: vec![Node::Call(node)],
            results,
            instances: Vec::new(),
            schedule,
        };
        // A megakernel is a static in every other program; here each case leaves a few hundred bytes behind.
        let json = serde_json::to_string(&graph).map_err(|error| CheckError::Graph(error.to_string()))?;
        Ok((Megakernel::new("case", json.leak()), instance))
    }
}

/// A state with these values.
fn state(shape: &[usize], values: &[f32]) -> Result<State, CheckError> {
    let mut state = State::zeros(shape)?;
    let &[groups, rows, width] = shape else { return Ok(state) };
    for at in 0..groups * rows {
        state.row_mut([at / rows, at % rows]).copy_from_slice(&values[at * width..(at + 1) * width]);
    }
    Ok(state)
}

/// The dims of a signature's shapes.
fn names(signature: &Signature) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut of = |expr: &Expr| {
        expr.names(&mut |name| {
            names.insert(name.to_owned());
        });
    };
    for param in &signature.params {
        match &param.kind {
            ParamKind::Tensor { shape, .. } => shape.iter().for_each(&mut of),
            ParamKind::Dim(expr) => of(expr),
            ParamKind::Float | ParamKind::Pos => {}
        }
    }
    signature.results.iter().flat_map(|result| &result.shape).for_each(of);
    names
}

fn value(expr: &Expr, dims: &BTreeMap<String, u32>) -> Option<i64> {
    expr.eval(&|name| dims.get(name).map(|&value| i64::from(value))).ok()
}

fn extents(shape: &[Expr], dims: &BTreeMap<String, u32>) -> Vec<usize> {
    shape.iter().map(|expr| value(expr, dims).unwrap_or(0).max(0) as usize).collect()
}

/// Whether the sizes fulfil the signature's conditions.
fn fits(signature: &Signature, dims: &BTreeMap<String, u32>, rows: i64) -> bool {
    let multiple = |(a, b): &(Expr, Expr)| match (value(a, dims), value(b, dims)) {
        (Some(a), Some(b)) => b > 0 && a > 0 && a % b == 0,
        _ => false,
    };
    let small = |shape: &[Expr]| {
        let len: i64 = extents(shape, dims).iter().map(|&extent| extent as i64).product();
        (1..=MOST_ELEMENTS).contains(&len)
    };
    let tensors = signature.params.iter().all(|param| match &param.kind {
        ParamKind::Tensor { shape, .. } => small(shape),
        _ => true,
    });
    let result = |expr: &Expr| value(expr, dims).is_some_and(|extent| extent % rows == 0);
    tensors
        && signature.multiples.iter().all(multiple)
        && signature.results.iter().filter(|result| result.dtype == DType::F32).flat_map(|r| &r.shape).all(result)
}
