//! Checks every registered instruction by itself: calls on operands of random sizes, cut into tiles
//! and run by a VM at several positions, against the instruction's formula in f64
//! ([`mod@amk::formula`]) and its Rust function. The device's fused bodies compute several calls at
//! once; they are checked in decoders of random sizes ([`decoder_on_cuda`]).
//!
//! | run | compared with | bound |
//! |---|---|---|
//! | the Rust function, and tiles of it on several workers of the CPU VM | each other | the same bits |
//! | both, and a device body in f32 or over bf16 weights | the formula | [`MOST_EPSILONS`] of the sum of magnitudes |
//! | an instruction without a formula on a GPU | the Rust function | [`MOST_EPSILONS_OF_FUNCTION`] of the largest element |
//! | an annotated function in f32 | its formulas | [`MOST_DEVIATIONS_OF_F32`] |
//! | fused bodies in bf16 | the annotated function's formulas | [`MOST_DEVIATIONS`] |

mod case;
mod decoder;
mod draw;
mod encodings;
mod exact;
mod function;
mod measure;

pub use decoder::{
    Decoder, DecoderRun, Expected, Logits, MOST_DEVIATIONS, MOST_DEVIATIONS_OF_F32, decoder_on_cpu, decoder_on_cuda,
    fused_as_a_whole, path,
};
pub use encodings::encodings_on_device;
pub use measure::{Against, Bodies, Checked, Difference, Oracle};

use amk::formula::{Exact, Formula, FormulaError};
use amk::ir::DType;
use amk::ir::schedule::{Schedule, Tile};
use amk::ir::signature::TensorClass;
use amk::ir::verify::verify;
use amk::registry::{Entry, Output, Registry, RegistryError};
use amk::vm::cpu;
use amk::{Pos, Token};
use amk_cuda::{self as cuda, CudaError, GpuTarget, Precision, RunOptions, VmOptions};
use case::{Case, Operand};
use draw::Draw;
use exact::Machine;
use function::Given;
use measure::{Off, farthest, from_exact, from_function, same};
use std::path::Path;

/// The largest error against a formula, in epsilons of f32, relative to the sum of the magnitudes
/// of an element's terms: a few roundings, and functions of the device that are two units off.
/// Longer sums round more often, but not all in one direction.
pub const MOST_EPSILONS: f64 = 4.0;
/// The largest error against a Rust function, in epsilons of f32, relative to the largest element
/// of the results.
pub const MOST_EPSILONS_OF_FUNCTION: f64 = 64.0;

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The registry or a signature cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A formula is for no linked instruction, or for one that has another.
    #[error(transparent)]
    Formulas(#[from] FormulaError),
    /// The sequences of a step cannot be placed.
    #[error(transparent)]
    Rows(#[from] amk::rows::RowsError),
    /// No operands were found that the function takes.
    #[error("no sizes were found on which `{0}` runs; does its `multiples` say what it needs?")]
    NoShape(String),
    /// An operand cannot be made.
    #[error(transparent)]
    Shape(#[from] amk::tensor::ShapeError),
    /// A model of random sizes cannot be made.
    #[error(transparent)]
    Model(#[from] amk_models::model::ModelError),
    /// A formula panics, or returns fewer elements than its results have.
    #[error("the formula of `{0}` panics, or gives fewer elements than the results have")]
    Formula(String),
    /// A weight has no values.
    #[error("`{0}` is bound to nothing")]
    Unbound(String),
    /// The graph of the call cannot be written.
    #[error("the graph of the call cannot be written: {0}")]
    Graph(String),
    /// The call cannot be lowered.
    #[error(transparent)]
    Megakernel(#[from] amk::MegakernelError),
    /// The verifier refused the program.
    #[error("`{path}` with {shapes}: {report}")]
    Rejected {
        /// The instruction.
        path: String,
        /// The sizes.
        shapes: String,
        /// The verifier's report.
        report: String,
    },
    /// The CPU VM failed.
    #[error(transparent)]
    Cpu(#[from] cpu::VmError),
    /// The CUDA VM failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Results of running a case.
struct Seen {
    /// Results of each step, one after the other.
    results: Vec<Vec<f32>>,
    /// All states after the last.
    states: Vec<f32>,
}

/// Checks an instruction on the CPU: the Rust function, and tiles of it on several workers of the
/// CPU VM, which must agree bit for bit.
///
/// # Errors
/// Any [`CheckError`].
pub fn on_cpu(entry: &Entry, weights: DType, cases: usize, seed: u64) -> Result<Checked, CheckError> {
    let mut draw = Draw::new(seed);
    let mut checked = Checked::new(entry.path, weights, Oracle::F64, MOST_EPSILONS);
    for _ in 0..cases {
        let case = Case::random(entry, &mut draw, weights, 1)?;
        // A state that the function changes belongs to one task on one worker.
        let whole = run_on_cpu(&case, 1, Tile::Whole)?;
        let cut = run_on_cpu(&case, 2 + draw.below(6), Tile::PerWorker)?;
        let function = case.reference(entry).unwrap_or_default();
        let steps = case.positions.iter().zip(whole.results.iter().zip(&cut.results));
        let tiles = steps.map(|(&pos, (whole, cut))| same(Some(pos), whole, cut));
        let first = same(case.positions.first().copied(), &function, &whole.results[0]);
        let mut off = farthest(tiles.chain([first, same(None, &whole.states, &cut.states)]));
        match exact(&case)? {
            Some(exact) => off = farthest([off, distance(&case, &exact, &whole)]),
            None => (checked.oracle, checked.bound) = (Oracle::Function, 0.0),
        }
        checked.note_case(&case, off);
    }
    Ok(checked)
}

fn run_on_cpu(case: &Case, workers: u32, tile: Tile) -> Result<Seen, CheckError> {
    let tiles = case.signature.tiles.iter().map(|_| (case.signature.name.clone(), tile)).collect();
    let schedule = Schedule { workers, weights: case.weights, tiles, ..Schedule::default() };
    let program = case.kernel.lower(&case.instance, Some(&schedule))?.program;
    let rejected = |report: amk::ir::verify::Rejected| CheckError::Rejected {
        path: case.signature.path.clone(),
        shapes: case.shapes(),
        report: report.to_string(),
    };
    let verified = verify(program).map_err(rejected)?;
    let mut vm = cpu::Vm::new(verified, &case.bindings(false)?)?;
    let mut tokens = Vec::new();
    for (name, operand) in &case.operands {
        match operand {
            Operand::Tensor(tensor) => vm.set_input(name, tensor)?,
            Operand::Token(token) => tokens.push(Token(*token)),
            _ => {}
        }
    }
    let mut results = Vec::new();
    for &pos in &case.positions {
        let outputs = vm.run(vec![cpu::Step { pos: Pos(pos), tokens: tokens.clone() }])?;
        let values = |output: &Output| match output {
            Output::Tensor(tensor) => tensor.data().to_vec(),
            Output::Token(token) => vec![token.0 as f32],
        };
        results.push(outputs.iter().flat_map(values).collect());
    }
    let states = case.states().filter_map(|name| vm.state(&name)).flat_map(|state| state.to_vec()).collect();
    Ok(Seen { results, states })
}

/// Results of a case in exact arithmetic: of each step, and the states after the last.
type ExactCase = (Vec<Vec<Exact>>, Vec<Exact>);

/// `None` where the instruction has no formula.
fn exact(case: &Case) -> Result<Option<ExactCase>, CheckError> {
    let bindings = case.bindings(false)?;
    let Some(mut machine) = Machine::new(&case.kernel, &case.instance, &bindings, case.weights, None)? else {
        return Ok(None);
    };
    for (name, operand) in &case.operands {
        if let Operand::Tensor(tensor) = operand {
            machine.set(name, tensor.data().iter().copied().map(f64::from));
        }
    }
    // A vector is copied by the next call, which rounds nothing; a row is that call's.
    let call = usize::from(case.given == Given::Row);
    let result = |&pos: &u32| machine.step(case.token, pos).map(|mut results| results.swap_remove(call));
    let results = case.positions.iter().map(result).collect::<Result<_, _>>()?;
    let states = case.states().flat_map(|name| machine.state(&name).unwrap_or_default().to_vec());
    Ok(Some((results, states.map(Exact::product).collect())))
}

/// The largest error of results and states.
fn distance(case: &Case, (results, states): &ExactCase, seen: &Seen) -> Off {
    let steps = case.positions.iter().zip(results.iter().zip(&seen.results));
    let of_results = steps.map(|(&pos, (exact, found))| from_exact(Some(pos), exact, found, MOST_EPSILONS));
    farthest(of_results.chain([from_exact(None, states, &seen.states, MOST_EPSILONS)]))
}

/// The largest difference from the Rust function, of results and states.
fn distance_of_function(case: &Case, function: &Seen, seen: &Seen) -> Off {
    let off = |pos, expected, found| from_function(pos, expected, found, MOST_EPSILONS_OF_FUNCTION);
    let steps = case.positions.iter().zip(function.results.iter().zip(&seen.results));
    let of_results = steps.map(|(&pos, (expected, found))| off(Some(pos), expected, found));
    farthest(of_results.chain([off(None, &function.states, &seen.states)]))
}

/// Checks an instruction's device body on the first GPU, on tiles of 1 to all workers. `cache`
/// keeps compiled device code.
///
/// # Errors
/// Any [`CheckError`].
pub fn on_cuda(entry: &Entry, weights: DType, cases: usize, seed: u64, cache: &Path) -> Result<Checked, CheckError> {
    let mut checked = Checked::new(entry.path, weights, Oracle::F64, MOST_EPSILONS);
    checked.skipped = not_on_device(entry)?;
    if checked.skipped.is_some() {
        return Ok(checked);
    }
    let target = cuda::probe()?;
    let mut draw = Draw::new(seed);
    for _ in 0..cases {
        let case = Case::random(entry, &mut draw, weights, 8)?;
        let options = device_options(target, weights, &mut draw);
        let found = run_on_cuda(&case, &options, cache)?;
        let off = match exact(&case)? {
            Some(exact) => distance(&case, &exact, &found),
            None => {
                (checked.oracle, checked.bound) = (Oracle::Function, MOST_EPSILONS_OF_FUNCTION);
                distance_of_function(&case, &run_on_cpu(&case, 1, Tile::Whole)?, &found)
            }
        };
        checked.note_case(&case, off);
    }
    Ok(checked)
}

/// Generic bodies alone, on a random number of workers.
fn device_options(target: &GpuTarget, weights: DType, draw: &mut Draw) -> VmOptions {
    let workers = 1 + draw.below(target.schedule().workers);
    let schedule = Schedule { workers, fusion: false, ..target.schedule() };
    let precision = if weights == DType::BF16 { Precision::BF16 } else { Precision::F32 };
    VmOptions { schedule: Some(schedule.into()), precision, ..VmOptions::default() }
}

fn run_on_cuda(case: &Case, options: &VmOptions, cache: &Path) -> Result<Seen, CheckError> {
    let bindings = case.bindings(true)?;
    let mut vm = cuda::Vm::new(&case.kernel, &case.instance, &bindings, cache, options, &mut |_| {})?;
    let run = RunOptions { logits: true, ..RunOptions::default() };
    let mut results = Vec::new();
    for &pos in &case.positions {
        results.push(vm.run(&[case.token], pos, 1, &run, &mut |_| {})?.logits);
    }
    let mut states = Vec::new();
    for name in case.states() {
        states.extend(vm.state(&name)?.unwrap_or_default());
    }
    Ok(Seen { results, states })
}

/// Why an instruction cannot be run by itself on a GPU.
fn not_on_device(entry: &Entry) -> Result<Option<&'static str>, CheckError> {
    Ok(match (entry.cuda, function::given(&entry.signature()?)) {
        (None, _) => Some("no device body"),
        (_, Given::Results) => Some("its results are not one vector or token"),
        _ => None,
    })
}

/// The linked instructions, each with one formula at most.
///
/// # Errors
/// [`CheckError::Registry`], [`CheckError::Formulas`].
pub fn instructions() -> Result<Vec<&'static Entry>, CheckError> {
    let registry = Registry::linked()?;
    Formula::check_linked(&registry)?;
    Ok(registry.iter().collect())
}

/// The element types in which an instruction's weights may be on the CPU, or on a GPU: one where it
/// takes none.
///
/// # Errors
/// [`CheckError::Registry`].
pub fn dtypes(entry: &Entry, device: bool) -> Result<&'static [DType], CheckError> {
    Ok(match (function::takes(&entry.signature()?, TensorClass::Weight), device) {
        (false, _) => &[DType::F32],
        (true, false) => &[DType::F32, DType::F16, DType::BF16],
        (true, true) => &[DType::F32, DType::BF16],
    })
}

#[cfg(test)]
mod tests;
