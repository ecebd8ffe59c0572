//! One call of an instruction on operands of random sizes, at some positions.

use super::CheckError;
use super::draw::Draw;
use super::exact::unrolled;
use super::function::{self, CLOCK, Given, NOW, POSITIONS, ROWS, STEP, TOKENS, WIDTH, ZEROS, function};
use amk::ir::DType;
use amk::ir::expr::Expr;
use amk::ir::graph::Instance;
use amk::ir::signature::{ParamKind, Signature, TensorClass};
use amk::registry::{Argument, Entry, Output};
use amk::vm::Bindings;
use amk::{Megakernel, Pos, State, Tensor, Token, Weight};
use half::{bf16, f16};
use std::collections::{BTreeMap, BTreeSet};

/// An argument.
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
    /// Operands of the call, then of its auxiliary calls.
    pub(super) operands: Vec<(String, Operand)>,
    /// Positions of the steps: one where the call takes none.
    pub(super) positions: Vec<u32>,
    /// The token of every step.
    pub(super) token: u32,
    /// The function that is this call.
    pub(super) kernel: Megakernel,
    pub(super) instance: Instance,
    pub(super) given: Given,
    /// Element type of the weights.
    pub(super) weights: DType,
}

/// Sizes from which dims are drawn: multiples of tile sizes, and others.
const SIZES: [u32; 14] = [1, 2, 3, 5, 8, 16, 24, 32, 40, 64, 96, 128, 192, 320];
/// Positions of a state: around the first block of a cache, and some blocks.
const CONTEXTS: [u32; 7] = [1, 40, 64, 65, 66, 200, 640];
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
        let (names, contexts) = (names(&signature), contexts(&signature));
        for _ in 0..TRIES {
            let mut size = |name: &String| match contexts.contains(name) {
                true => draw.of(&CONTEXTS),
                false => draw.of(&SIZES) * (1 + draw.below(2)),
            };
            let dims: BTreeMap<String, u32> = names.iter().map(|name| (name.clone(), size(name))).collect();
            if fits(&signature, &dims, rows) {
                let case = Self::fill(signature.clone(), dims, draw, weights)?;
                // A condition that the signature does not state ends in a panic of the function.
                if case.reference(entry).is_some() {
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
        // Half of the cases are exact in f32, half are not.
        let values = if draw.below(2) == 0 { Draw::eighths } else { Draw::reals };
        let token = draw.below(vocabulary(&signature, &dims));
        let mut operands = Vec::new();
        for param in &signature.params {
            let operand = match &param.kind {
                ParamKind::Tensor { class: TensorClass::Token, .. } => Operand::Token(token),
                ParamKind::Tensor { class, shape, .. } => {
                    let shape = extents(shape, &dims);
                    let values = values(draw, shape.iter().product());
                    match class {
                        TensorClass::Weight => Operand::Weight(weight(&shape, values, weights)?),
                        TensorClass::State => Operand::State(state(&shape, &values)?),
                        _ => Operand::Tensor(Tensor::new(&shape, values)?),
                    }
                }
                ParamKind::Float => Operand::Float((1 + draw.below(8)) as f32 / 16.0),
                ParamKind::Dim(expr) => Operand::Dim(value(expr, &dims).unwrap_or(0) as usize),
                ParamKind::Pos => Operand::Pos,
            };
            operands.push((param.name.clone(), operand));
        }
        let given = function::given(&signature);
        auxiliary(&signature, &dims, token, weights, &mut operands)?;
        let float = |(name, operand): &(String, Operand)| match operand {
            Operand::Float(value) => Some((name.clone(), *value)),
            _ => None,
        };
        let floats = operands.iter().filter_map(float).collect();
        let kernel = function(&signature, dims.keys().cloned(), &floats, weights)?;
        let (flags, floats) = (BTreeMap::new(), BTreeMap::new());
        let instance = Instance { name: "case".into(), dims, flags, floats, schedule: None };
        let positions = positions(&signature, unrolled(&kernel, &instance, weights)?.positions, draw);
        Ok(Self { signature, operands, positions, token, kernel, instance, given, weights })
    }

    /// Returns the function's result on the whole operands at the first position: a token as its
    /// row. `None` where it panics.
    pub(super) fn reference(&self, entry: &Entry) -> Option<Vec<f32>> {
        let pos = Pos(self.positions[0]);
        let operands = &self.operands[..self.signature.params.len()];
        let call = || {
            entry.call(operands.iter().map(|(_, operand)| match operand {
                Operand::Tensor(tensor) => Argument::Tensor(tensor.clone()),
                Operand::Weight(weight) => Argument::Weight(weight),
                Operand::State(state) => Argument::State(state.clone()),
                Operand::Token(token) => Argument::Token(Token(*token)),
                Operand::Float(value) => Argument::Float(*value),
                Operand::Dim(value) => Argument::Dim(*value),
                Operand::Pos => Argument::Pos(pos),
            }))
        };
        let outputs = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).ok()?;
        if outputs.is_empty() {
            return Some(row(self.token));
        }
        let values = |output: Output| match (output, self.given) {
            (Output::Tensor(tensor), _) => tensor.into_vec(),
            (Output::Token(token), Given::Row) => row(token.0),
            (Output::Token(token), _) => vec![token.0 as f32],
        };
        Some(outputs.into_iter().flat_map(values).collect())
    }

    /// Weights and first states. `inputs`: also the tensors, which a GPU takes as weights.
    pub(super) fn bindings(&self, inputs: bool) -> Result<Bindings, CheckError> {
        let mut bindings = Bindings::new();
        for (name, operand) in &self.operands {
            bindings = match operand {
                Operand::Weight(weight) => bindings.weight(&format!("w.{name}"), weight.clone()),
                Operand::State(state) => bindings.state(&format!("w.{name}"), state.clone()),
                Operand::Tensor(tensor) if inputs => {
                    bindings.weight(name, Weight::f32(tensor.shape(), tensor.data().to_vec())?)
                }
                _ => bindings,
            };
        }
        Ok(bindings)
    }

    /// The buffers of the call's states.
    pub(super) fn states(&self) -> impl Iterator<Item = String> + '_ {
        let states = self.operands.iter().filter(|(_, operand)| matches!(operand, Operand::State(_)));
        states.map(|(name, _)| format!("w.{name}"))
    }

    /// The shapes, as in `K = 24, N = 64 at 0, 63`.
    pub(super) fn shapes(&self) -> String {
        let dims = self.instance.dims.iter().map(|(name, value)| format!("{name} = {value}"));
        let dims = dims.collect::<Vec<_>>().join(", ");
        if !function::takes_pos(&self.signature) {
            return dims;
        }
        let positions: Vec<String> = self.positions.iter().map(u32::to_string).collect();
        format!("{dims} at {}", positions.join(", "))
    }
}

/// Adds the operands of the auxiliary calls around the one under test.
fn auxiliary(
    signature: &Signature,
    dims: &BTreeMap<String, u32>,
    token: u32,
    weights: DType,
    operands: &mut Vec<(String, Operand)>,
) -> Result<(), CheckError> {
    let mut add = |name: &str, operand| operands.push((name.to_owned(), operand));
    let given = function::given(signature);
    if let (Given::Vector, [result]) = (given, &signature.results[..]) {
        let shape = extents(&result.shape, dims);
        add(ZEROS, Operand::Tensor(Tensor::new(&shape, vec![-0.0; shape[0]])?));
    }
    if given == Given::Row {
        let rows = (0..TOKENS).flat_map(row).collect();
        add(ROWS, Operand::Weight(weight(&[TOKENS as usize, WIDTH as usize], rows, weights)?));
        if signature.results.is_empty() && !function::takes(signature, TensorClass::Token) {
            add(STEP, Operand::Token(token));
        }
    }
    if function::needs_clock(signature) {
        add(CLOCK, Operand::State(State::zeros(&[1, POSITIONS as usize, WIDTH as usize])?));
        add(NOW, Operand::Tensor((0..WIDTH).map(|i| i as f32).collect()));
    }
    Ok(())
}

/// The row that identifies its token: two digits in turn, as bf16 cannot represent all integers
/// below [`TOKENS`].
fn row(token: u32) -> Vec<f32> {
    (0..WIDTH).map(|i| if i % 2 == 0 { token % 32 } else { token / 32 } as f32).collect()
}

/// Where the call is made: at the first position, around the end of the first block of a cache, and
/// far beyond it.
fn positions(signature: &Signature, extent: u32, draw: &mut Draw) -> Vec<u32> {
    if !function::takes_pos(signature) {
        return vec![0];
    }
    let far = if extent > 65 { 65 + draw.below(extent - 65) } else { draw.below(extent) };
    let mut positions: Vec<u32> = [0, 63, 64, far].into_iter().filter(|&pos| pos < extent).collect();
    positions.sort_unstable();
    positions.dedup();
    positions
}

fn weight(shape: &[usize], values: Vec<f32>, dtype: DType) -> Result<Weight, CheckError> {
    Ok(match dtype {
        DType::BF16 => Weight::bf16(shape, values.into_iter().map(bf16::from_f32).collect())?,
        DType::F16 => Weight::f16(shape, values.into_iter().map(f16::from_f32).collect())?,
        _ => Weight::f32(shape, values)?,
    })
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

/// The dims that positions run over: the last but one of a state with rows.
fn contexts(signature: &Signature) -> BTreeSet<String> {
    let context = |kind: &ParamKind| match kind {
        ParamKind::Tensor { class: TensorClass::State, shape, .. } => match shape.iter().nth_back(1) {
            Some(Expr::Name(name)) if function::takes_pos(signature) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    signature.params.iter().filter_map(|param| context(&param.kind)).collect()
}

/// How many tokens there are: the rows of the first weight.
fn vocabulary(signature: &Signature, dims: &BTreeMap<String, u32>) -> u32 {
    let rows = |kind: &ParamKind| match kind {
        ParamKind::Tensor { class: TensorClass::Weight, shape, .. } => extents(shape, dims).first().copied(),
        _ => None,
    };
    signature.params.iter().find_map(|param| rows(&param.kind)).unwrap_or(1) as u32
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
