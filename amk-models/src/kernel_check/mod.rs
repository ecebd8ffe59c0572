//! Checks every registered instruction by itself: one call on operands of random sizes, cut into tiles and run by a VM, against the
//! instruction's Rust function on the whole operands.
//!
//! The operands are eighths, so the function's sums of products are exact in f32: where an instruction is made of such sums alone, its
//! result is that of exact arithmetic, and so must be the VM's. Elsewhere (roots, exponentials) the error is told in epsilons of f32,
//! relative to the largest element of the result.

mod case;
mod draw;

use amk::ir::DType;
use amk::ir::schedule::{Schedule, Tile};
use amk::ir::verify::verify;
use amk::registry::{Entry, Output, Registry, RegistryError};
use amk::vm::cuda::{self, CudaError, Precision, RunOptions, VmOptions};
use amk::vm::{Bindings, cpu};
use amk::{Pos, Tensor, Token, Weight};
use case::{Case, Operand};
use draw::Draw;
use std::path::Path;

/// The largest error that a device body may have, in epsilons of f32.
pub const MOST_EPSILONS: f64 = 64.0;

/// What the checks of an instruction found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The instruction's path.
    pub path: String,
    /// Cases that were run.
    pub cases: usize,
    /// The largest error, in epsilons of f32.
    pub epsilons: f64,
    /// The sizes of the case with the largest error.
    pub worst: String,
    /// Why there is nothing to run, as where an instruction has no device body.
    pub skipped: Option<&'static str>,
}

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The registry or a signature cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// No operands were found that the function takes.
    #[error("no sizes were found on which `{0}` runs; does its `multiples` say what it needs?")]
    NoShape(String),
    /// An operand cannot be made.
    #[error(transparent)]
    Shape(#[from] amk::tensor::ShapeError),
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

/// Checks an instruction on the CPU VM: tiles and several workers against the whole function. It must agree bit for bit, so any error
/// is too large.
///
/// # Errors
/// Any [`CheckError`].
pub fn on_cpu(entry: &Entry, cases: usize, seed: u64) -> Result<Checked, CheckError> {
    let mut draw = Draw::new(seed);
    let mut checked = Checked::new(entry);
    for n in 0..cases {
        let weights = if n % 2 == 0 { DType::BF16 } else { DType::F32 };
        let case = Case::random(entry, &mut draw, weights, 1)?;
        let expected = case.reference(entry)?;
        // A state that the function changes is compared with that of one task on one worker.
        let whole = run_on_cpu(&case, weights, 1, Tile::Whole)?;
        let found = run_on_cpu(&case, weights, 2 + draw.below(6), Tile::PerWorker)?;
        checked.note(&case, difference(&expected, &found.0).max(apart(&whole.1, &found.1)));
    }
    Ok(checked)
}

/// The outputs, and the states after the step.
fn run_on_cpu(case: &Case, weights: DType, workers: u32, tile: Tile) -> Result<(Vec<Output>, Vec<f32>), CheckError> {
    let (kernel, instance) = case.kernel(weights)?;
    let tiles = case.signature.tiles.iter().map(|_| (case.signature.name.clone(), tile)).collect();
    let schedule = Schedule { workers, weights, tiles, ..Schedule::default() };
    let program = kernel.lower(&instance, Some(&schedule))?.program;
    let rejected = |report: Box<amk::ir::verify::Rejected>| CheckError::Rejected {
        path: case.signature.path.clone(),
        shapes: case.shapes(),
        report: report.to_string(),
    };
    let verified = verify(program).map_err(|report| rejected(Box::new(report)))?;
    let mut bindings = Bindings::new();
    for (name, operand) in &case.operands {
        bindings = match operand {
            Operand::Weight(weight) => bindings.weight(&format!("w.{name}"), weight.clone()),
            Operand::State(state) => bindings.state(&format!("w.{name}"), state.clone()),
            _ => bindings,
        };
    }
    let mut vm = cpu::Vm::new(verified, &bindings)?;
    let mut tokens = Vec::new();
    for (name, operand) in &case.operands {
        match operand {
            Operand::Tensor(tensor) => vm.set_input(name, tensor)?,
            Operand::Token(token) => tokens.push(Token(*token)),
            _ => {}
        }
    }
    let outputs = vm.run(vec![cpu::Step { pos: Pos(case.pos), tokens }])?.to_vec();
    let named = case.operands.iter().filter(|(_, operand)| matches!(operand, Operand::State(_)));
    let states = named.filter_map(|(name, _)| vm.state(&format!("w.{name}"))).flat_map(|state| state.to_vec());
    Ok((outputs, states.collect()))
}

/// Checks an instruction's device body on the first GPU, in f32. `cache` keeps compiled device code.
///
/// # Errors
/// Any [`CheckError`].
pub fn on_cuda(entry: &Entry, cases: usize, seed: u64, cache: &Path) -> Result<Checked, CheckError> {
    let mut checked = Checked::new(entry);
    checked.skipped = not_on_device(entry)?;
    if checked.skipped.is_some() {
        return Ok(checked);
    }
    let mut draw = Draw::new(seed);
    for _ in 0..cases {
        let case = Case::random(entry, &mut draw, DType::F32, 8)?;
        let (kernel, instance) = case.kernel(DType::F32)?;
        let mut bindings = Bindings::new();
        for (name, operand) in &case.operands {
            bindings = match operand {
                Operand::Weight(weight) => bindings.weight(&format!("w.{name}"), weight.clone()),
                Operand::State(state) => bindings.state(&format!("w.{name}"), state.clone()),
                Operand::Tensor(tensor) => bindings.weight(name, Weight::f32(tensor.shape(), tensor.data().to_vec())?),
                _ => bindings,
            };
        }
        let options = VmOptions { precision: Precision::F32, ..VmOptions::default() };
        let code = amk_kernels::cuda::DEVICE;
        let mut vm = cuda::Vm::new(&kernel, &instance, &bindings, code, cache, &options, &mut |_| {})?;
        let options = RunOptions { logits: true, ..RunOptions::default() };
        let run = vm.run(&[case.token], case.pos, 1, &options, &mut |_| {})?;
        let found = [Output::Tensor(Tensor::new(&[run.logits.len()], run.logits)?)];
        checked.note(&case, difference(&case.reference(entry)?, &found));
    }
    Ok(checked)
}

/// Why an instruction cannot be run by itself on a GPU.
fn not_on_device(entry: &Entry) -> Result<Option<&'static str>, CheckError> {
    let signature = entry.signature()?;
    let vector = matches!(&signature.results[..], [result] if result.dtype == DType::F32 && result.shape.len() == 1);
    Ok(match (entry.cuda, vector) {
        (None, _) => Some("no device body"),
        (_, false) => Some("no vector as its result; models run it"),
        _ => None,
    })
}

/// The linked instructions.
///
/// # Errors
/// [`CheckError::Registry`].
pub fn instructions() -> Result<Vec<&'static Entry>, CheckError> {
    Ok(Registry::linked()?.iter().collect())
}

impl Checked {
    fn new(entry: &Entry) -> Self {
        Self { path: entry.path.to_owned(), cases: 0, epsilons: 0.0, worst: String::new(), skipped: None }
    }

    fn note(&mut self, case: &Case, epsilons: f64) {
        self.cases += 1;
        // NaN is the worst of all.
        if self.worst.is_empty() || epsilons.is_nan() || epsilons > self.epsilons {
            (self.epsilons, self.worst) = (epsilons, case.shapes());
        }
    }
}

/// The largest difference of results, in epsilons of f32.
fn difference(expected: &[Output], found: &[Output]) -> f64 {
    if expected.len() != found.len() {
        return f64::INFINITY;
    }
    let of = |(expected, found): (&Output, &Output)| match (expected, found) {
        (Output::Tensor(expected), Output::Tensor(found)) => apart(expected.data(), found.data()),
        (expected, found) if expected == found => 0.0,
        _ => f64::INFINITY,
    };
    expected.iter().zip(found).map(of).fold(0.0, |worst, next| if next > worst || next.is_nan() { next } else { worst })
}

/// The largest difference of elements in epsilons of f32, relative to the largest element.
fn apart(expected: &[f32], found: &[f32]) -> f64 {
    if expected.len() != found.len() {
        return f64::INFINITY;
    }
    let largest = expected.iter().map(|x| f64::from(x.abs())).fold(f64::from(f32::MIN_POSITIVE), f64::max);
    let off =
        |(a, b): (&f32, &f32)| if a.to_bits() == b.to_bits() { 0.0 } else { (f64::from(*a) - f64::from(*b)).abs() };
    let worst = expected
        .iter()
        .zip(found)
        .map(off)
        .fold(0.0, |worst: f64, next| if next > worst || next.is_nan() { next } else { worst });
    worst / largest / f64::from(f32::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_every_instruction_give_what_the_whole_function_gives() {
        amk_kernels::link();
        let entries = instructions().expect("the registry");
        assert!(entries.len() >= 12);
        for entry in entries {
            let checked = on_cpu(entry, 12, 5).unwrap_or_else(|error| panic!("{}: {error}", entry.path));
            assert_eq!(checked.epsilons, 0.0, "{checked:?}");
        }
    }

    /// What a GPU would run: planned, verified, encoded and compiled for one target.
    #[test]
    fn device_bodies_of_single_calls_are_planned_and_compiled() {
        use amk::vm::cuda::{Image, TARGETS, compile, plan_for, source};
        amk_kernels::link();
        let target = TARGETS.iter().find(|target| target.name == "h200").expect("a record");
        let mut planned = Vec::new();
        for entry in instructions().expect("the registry") {
            if not_on_device(entry).expect("a signature").is_some() {
                continue;
            }
            let case = Case::random(entry, &mut Draw::new(3), DType::F32, 8).expect("a case");
            let (kernel, instance) = case.kernel(DType::F32).expect("a graph");
            let plan = plan_for(&kernel, &instance, &target.schedule, Precision::F32)
                .unwrap_or_else(|error| panic!("{} with {}: {error}", entry.path, case.shapes()));
            let verified = verify(plan.program.clone()).unwrap_or_else(|report| panic!("{}: {report}", entry.path));
            Image::build(&verified, &plan).expect("the image should be the program");
            planned.push(entry.path);
            let options = VmOptions { precision: Precision::F32, ..VmOptions::default() };
            match compile(&source::generate(amk_kernels::cuda::DEVICE, &plan, &options), target.architecture) {
                Ok(_) => {}
                Err(CudaError::NoNvrtc) => println!("{} is not compiled: no NVRTC", entry.path),
                Err(error) => panic!("{}: {error}", entry.path),
            }
        }
        println!("{planned:?}");
        assert!(planned.len() >= 10, "{planned:?}");
    }

    #[test]
    fn differences_are_seen() {
        assert_eq!(apart(&[1.0, -2.0], &[1.0, -2.0]), 0.0);
        assert_eq!(apart(&[1.0, -2.0], &[1.0 + 4.0 * f32::EPSILON, -2.0]), 2.0);
        assert!(apart(&[1.0], &[f32::NAN]).is_nan());
        assert_eq!(apart(&[1.0], &[1.0, 1.0]), f64::INFINITY);
        assert_eq!(difference(&[Output::Token(Token(1))], &[Output::Token(Token(2))]), f64::INFINITY);
    }
}
