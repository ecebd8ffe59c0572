//! The inputs of projections, seen while a model runs a text.
//!
//! ```text
//! text ─► Session ─► CPU VM ─Observer─► rows of a step by input ─► Gram of each input
//! ```
//!
//! Projections of one value, as those to queries, keys and values are, have one input. Rows are
//! kept until the step is over and added in their order, so that sums have the same bits whatever
//! the number of workers.

use crate::error::QuantizeError;
use crate::gram::Gram;
use amk::Token;
use amk::ir::schedule::Schedule;
use amk::ir::verify::Verified;
use amk::ir::{BufferId, BufferKind, Program, TaskId};
use amk::registry::{Argument, Registry};
use amk::rows::PoolSize;
use amk::session::Session;
use amk::vm::Bindings;
use amk::vm::cpu::{ObservedCall, Observer, Options, Vm};
use amk_models::model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The path of the instruction whose inputs are seen.
const PROJECTION: &str = "amk_kernels::linear";

/// A value that projections multiply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    buffer: BufferId,
    /// Its elements.
    pub size: usize,
    /// The buffers of the weights that multiply it, in the order of the program.
    pub weights: Vec<String>,
}

/// Runs of a model over a text.
pub struct Calibration<'a> {
    model: &'a Model,
    verified: Arc<Verified>,
    tokens: &'a [Token],
    /// Positions of a window of the text.
    context: usize,
}

impl<'a> Calibration<'a> {
    /// Prepares runs over `tokens` in windows of the model's context, by a schedule with rows.
    ///
    /// # Errors
    /// When there are no tokens, or there is no safe program.
    pub fn new(model: &'a Model, schedule: &Schedule, tokens: &'a [Token]) -> Result<Self, QuantizeError> {
        if tokens.is_empty() {
            return Err(QuantizeError::EmptyText);
        }
        let verified = Arc::new(model.family.kernel.verified(&model.instance, Some(schedule))?);
        let context = verified.program().positions as usize;
        Ok(Self { model, verified, tokens, context })
    }

    /// The inputs of the projections with these weights, in the order of the program.
    pub fn inputs(&self, weights: &BTreeSet<&str>) -> Vec<Input> {
        let program = self.verified.program();
        let mut inputs: Vec<Input> = Vec::new();
        for (_, _, call) in projections(program, weights) {
            let at = inputs.iter().position(|input| input.buffer == call.buffer).unwrap_or_else(|| {
                let size = program.buffers[call.buffer.index()].shape.last().map_or(0, |&extent| extent as usize);
                inputs.push(Input { buffer: call.buffer, size, weights: Vec::new() });
                inputs.len() - 1
            });
            if !inputs[at].weights.contains(call.weight) {
                inputs[at].weights.push(call.weight.clone());
            }
        }
        inputs
    }

    /// Runs the text with `bindings` and sums up the inputs; `progress` sees the fraction done.
    ///
    /// # Errors
    /// When the run fails.
    pub fn run(
        &self,
        bindings: &Bindings,
        inputs: &[Input],
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<Gram>, QuantizeError> {
        let capture = Arc::new(Capture::new(self.verified.program(), inputs));
        let registry = Registry::linked().map_err(amk::vm::cpu::VmError::from)?;
        let options = Options { pages: Some(PoolSize::sequences(1, self.context)), ..Options::default() };
        let observer: Arc<dyn Observer> = Arc::clone(&capture) as _;
        let vm = Vm::observed(Arc::clone(&self.verified), bindings, &registry, options, observer)?;
        let mut session = Session::new(vm);
        let mut grams: Vec<Gram> = inputs.iter().map(|input| Gram::new(input.size)).collect();
        let mut done = 0;
        for window in self.tokens.chunks(self.context) {
            let id = session.add();
            for rows in window.chunks(session.limits().rows.max(1)) {
                // The last layer is computed for rows whose logits are wanted alone.
                session.push_draft(id, rows).map_err(amk::session::SessionError::from)?;
                session.step()?;
                capture.move_into(&mut grams);
                done += rows.len();
                progress(done as f64 / self.tokens.len() as f64);
            }
            session.drop(id).map_err(amk::session::SessionError::from)?;
        }
        Ok(grams)
    }

    /// The model whose weights are bound where nothing was quantised yet.
    pub fn model(&self) -> &Model {
        self.model
    }
}

/// A call of a projection.
struct Projection<'p> {
    /// Of the input.
    buffer: BufferId,
    /// The weight's buffer.
    weight: &'p String,
    /// Whether its tile has the first row of the weight.
    first: bool,
}

/// The calls of projections with these weights.
fn projections<'p>(
    program: &'p Program,
    weights: &'p BTreeSet<&str>,
) -> impl Iterator<Item = (TaskId, usize, Projection<'p>)> {
    let calls = program.tasks.iter().enumerate().flat_map(|(task, of)| {
        of.calls.iter().enumerate().map(move |(number, call)| (TaskId::from(task), number, call))
    });
    calls.filter_map(|(task, number, call)| {
        if program.instructions[call.instruction.index()].path != PROJECTION {
            return None;
        }
        let [input, weight, ..] = &call.operands[..] else { return None };
        let held = &program.buffers[weight.buffer.index()];
        let first = weight.region.intervals().first().is_some_and(|rows| rows.lo.base == 0);
        let known = held.kind == BufferKind::Weight && weights.contains(held.name.as_str());
        known.then_some((task, number, Projection { buffer: input.buffer, weight: &held.name, first }))
    })
}

/// The rows of the current step, by input.
struct Capture {
    /// From a call to its input.
    calls: BTreeMap<(TaskId, usize), usize>,
    steps: Vec<Mutex<Rows>>,
}

/// Rows `[ROWS, K]` of an input.
struct Rows {
    size: usize,
    elements: Vec<f32>,
    /// Rows that the step has.
    count: usize,
}

impl Capture {
    fn new(program: &Program, inputs: &[Input]) -> Self {
        // All tiles and all weights of an input see the same rows; one weight's are enough.
        let firsts: BTreeMap<&str, usize> =
            inputs.iter().enumerate().filter_map(|(at, input)| Some((input.weights.first()?.as_str(), at))).collect();
        let weights = firsts.keys().copied().collect();
        let calls = projections(program, &weights).filter(|(_, _, call)| call.first);
        let calls = calls.map(|(task, number, call)| ((task, number), firsts[call.weight.as_str()])).collect();
        let rows = program.rows.unwrap_or(1) as usize;
        let empty = |input: &Input| Rows { size: input.size, elements: vec![0.0; rows * input.size], count: 0 };
        Self { calls, steps: inputs.iter().map(|input| Mutex::new(empty(input))).collect() }
    }

    /// Adds the rows of the step that is over.
    fn move_into(&self, grams: &mut [Gram]) {
        let work: Mutex<Vec<_>> = Mutex::new(self.steps.iter().zip(grams).collect());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let one = || {
                while let Some((rows, gram)) = { work.lock().unwrap_or_else(PoisonError::into_inner).pop() } {
                    let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
                    gram.add(&rows.elements[..rows.count * rows.size]);
                    rows.count = 0;
                }
            };
            (1..threads).for_each(|_| _ = scope.spawn(one));
            one();
        });
    }
}

impl Observer for Capture {
    fn see(&self, call: &ObservedCall<'_>) {
        let Some(&input) = self.calls.get(&(call.task, call.number)) else { return };
        let Some(Argument::Tensor(x)) = call.arguments.first() else { return };
        let mut rows = self.steps[input].lock().unwrap_or_else(PoisonError::into_inner);
        let size = rows.size;
        for (&row, elements) in call.rows.iter().zip(x.data().chunks_exact(size)) {
            rows.elements[row * size..][..size].copy_from_slice(elements);
            rows.count = rows.count.max(row + 1);
        }
    }
}
