//! The CPU VM: runs a verified program on threads, with the counters of the device.
//!
//! ```text
//! Verified ──Plan──► functions, memory, counters ──► Pool: one thread a worker      (or Shuffle: one thread, any legal order)
//! Bindings ──┘
//! ```
//!
//! A task is a call of the instruction's own function on views of the task's tiles, so a step
//! agrees bit for bit with a call of the annotated function. Buffers of bf16, which the programs of
//! GPUs have, and caches of bf16 and e4m3 round on stores.
//!
//! Safety: workers share memory without locks. [`Verified`] guarantees that no two workers access
//! an element at the same time if one writes it, for any program whose instructions keep to their
//! region clauses; [`Registry::link`] checks that operands have the classes and extents that the
//! linked functions take, and states check their regions row by row. One obligation remains with
//! the author of an instruction: its body must not move a state out of the `&mut State` that it was
//! given.

mod area;
mod engine;
mod error;
mod memory;
mod observer;
mod packets;
mod paged;
mod plan;
mod pool;
mod rng;
mod rows;
mod shuffle;
mod table;
mod task;
mod worker;

pub use engine::Step;
pub use error::{Breach, Role, Stall, VmError};
pub use observer::{ObservedCall, Observer};

use super::Bindings;
use crate::megakernel::Megakernel;
use crate::registry::{Output, Registry};
use crate::rows::{PageGroup, PoolSize};
use crate::tensor::{Pos, State, Tensor, Token};
use amk_ir::graph::Instance;
use amk_ir::text::Shown;
use amk_ir::verify::Verified;
use amk_ir::{Buffer, BufferId, BufferKind, DType, Program, Region};
use area::{Area, Home, Moment};
use core::time::Duration;
use engine::{Engine, Launch};
use memory::Bound;
use plan::Plan;
use pool::Pool;
use rng::Rng;
use std::sync::Arc;

/// How the VM runs a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// In which order.
    pub mode: Mode,
    /// How long a worker waits for a counter before it reports a stall.
    pub deadline: Duration,
    /// Pages for the sequences of a program with rows; `None`: as many as one sequence can have.
    pub pages: Option<PoolSize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: Mode::Threads, deadline: Duration::from_secs(60), pages: None }
    }
}

/// In which order the VM runs tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// One thread a worker.
    Threads,
    /// One thread per worker, with random delays.
    Delayed {
        /// Seed of the delays.
        seed: u64,
    },
    /// One thread for all workers, which each time runs a random one of the tasks that could run.
    Shuffled {
        /// Seed of the order.
        seed: u64,
    },
}

/// A program that is ready to run, with its states.
pub struct Vm {
    engine: Arc<Engine>,
    runner: Runner,
    /// Steps since the VM was made.
    steps: u64,
    outputs: Vec<Output>,
    /// Whether the position is limited to the program's.
    moves: bool,
    /// The groups of its states; none in a program without rows.
    groups: Vec<PageGroup>,
}

enum Runner {
    Pool(Pool),
    Shuffle(Rng),
}

impl Vm {
    /// Returns a VM for an instance of an annotated function, with the instance's schedule; the
    /// bindings provide floats and flags that the instance does not declare.
    ///
    /// # Errors
    /// If the function has no safe program for the instance, and as for [`Self::new`].
    pub fn of(kernel: &Megakernel, instance: &Instance, bindings: &Bindings) -> Result<Self, VmError> {
        Self::new(kernel.verified(&bindings.complete(instance), None)?, bindings)
    }

    /// Returns a VM for a program, with the linked instructions.
    ///
    /// # Errors
    /// If an instruction is not linked or a call does not match its function, a weight is not bound
    /// or has a different shape, a bound float or flag differs from the program's, or there is not
    /// enough memory.
    pub fn new(verified: impl Into<Arc<Verified>>, bindings: &Bindings) -> Result<Self, VmError> {
        Self::with(verified, bindings, &Registry::linked()?, Options::default())
    }

    /// Returns a VM for a program, with the instructions of a registry.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn with(
        verified: impl Into<Arc<Verified>>,
        bindings: &Bindings,
        registry: &Registry,
        options: Options,
    ) -> Result<Self, VmError> {
        Self::build(verified.into(), bindings, registry, options, None)
    }

    /// Like [`Self::with`], with an observer of all calls.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn observed(
        verified: impl Into<Arc<Verified>>,
        bindings: &Bindings,
        registry: &Registry,
        options: Options,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, VmError> {
        Self::build(verified.into(), bindings, registry, options, Some(observer))
    }

    fn build(
        verified: Arc<Verified>,
        bindings: &Bindings,
        registry: &Registry,
        options: Options,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self, VmError> {
        bindings.check(verified.constants())?;
        let plan = Plan::new(verified.program(), bindings, registry, options.pages.as_ref())?;
        let moves = moves(verified.program());
        let groups = plan.memory.groups.clone();
        let engine = Arc::new(Engine::new(verified, plan, options.deadline, observer)?);
        let runner = match options.mode {
            Mode::Threads => Runner::Pool(Pool::new(Arc::clone(&engine), None)?),
            Mode::Delayed { seed } => Runner::Pool(Pool::new(Arc::clone(&engine), Some(seed))?),
            Mode::Shuffled { seed } => Runner::Shuffle(Rng::new(seed)),
        };
        Ok(Self { engine, runner, steps: 0, outputs: Vec::new(), moves, groups })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        self.engine.program()
    }

    /// Runs one step and returns the first output, the logits of a decoder.
    ///
    /// # Errors
    /// As for [`Self::run`], and if the first output is not a tensor.
    pub fn step(&mut self, token: Token, pos: Pos) -> Result<&Tensor, VmError> {
        let tokens = vec![token; self.engine.plan.memory.token_inputs.len().min(1)];
        match self.run(vec![Step { pos, tokens }])?.first() {
            Some(Output::Tensor(tensor)) => Ok(tensor),
            Some(Output::Token(_)) | None => Err(VmError::NoTensor),
        }
    }

    /// Runs steps without returning in between. Returns the outputs of the last step in the order
    /// of the program's buffers, which is the order of the function's results. The `tokens` of a
    /// step bind the program's token inputs in the order of its buffers.
    ///
    /// # Errors
    /// If a step has the wrong number of tokens or a position outside the program's, in which case
    /// nothing has run. If an instruction panics or returns a result of a different shape, or a
    /// wait is not satisfied before the deadline, after which the VM can no longer be used.
    pub fn run(&mut self, steps: Vec<Step>) -> Result<&[Output], VmError> {
        self.check(&steps)?;
        if steps.is_empty() {
            return Ok(&self.outputs);
        }
        self.launch(Launch { first: self.steps, steps, rows: Vec::new() })?;
        self.outputs = self.read_outputs(Moment { step: self.steps - 1, ..Moment::REST });
        Ok(&self.outputs)
    }

    /// Runs a launch; the outputs are still to be read.
    fn launch(&mut self, launch: Launch) -> Result<(), VmError> {
        self.outputs.clear();
        match &mut self.runner {
            Runner::Pool(pool) => {
                self.steps += launch.steps.len() as u64;
                pool.run(launch);
            }
            Runner::Shuffle(rng) => {
                // A failure is in the engine.
                let _ = shuffle::run(&self.engine, &launch, rng);
                self.steps += launch.steps.len() as u64;
            }
        }
        self.engine.failure().map_or(Ok(()), Err)
    }

    fn check(&self, steps: &[Step]) -> Result<(), VmError> {
        if self.engine.failure().is_some() {
            return Err(VmError::Poisoned);
        }
        if self.program().rows.is_some() {
            return Err(VmError::HasRows);
        }
        let expected = self.engine.plan.memory.token_inputs.len();
        let positions = self.program().positions;
        for step in steps {
            if step.tokens.len() != expected {
                return Err(VmError::Tokens { expected, found: step.tokens.len() });
            }
            if self.moves && step.pos.0 >= positions {
                return Err(VmError::Position { pos: step.pos.0, positions });
            }
        }
        Ok(())
    }

    fn read_outputs(&self, last: Moment) -> Vec<Output> {
        let program = self.program();
        let outputs = program.buffers.iter().enumerate().filter(|(_, buffer)| buffer.kind == BufferKind::Output);
        let read = |(index, buffer): (usize, &Buffer)| {
            let Bound::Home(home) = self.engine.plan.memory.bound(BufferId::from(index)) else { return None };
            let area = whole(home, buffer)?;
            match buffer.dtype {
                // SAFETY: no worker runs before the next launch, which drops the view first.
                DType::F32 | DType::BF16 => Some(Output::Tensor(unsafe { area.tensor(last) })),
                // SAFETY: no worker runs now.
                DType::U32 if program.rows.is_none() => Some(Output::Token(Token(unsafe { area.load_word(last) }))),
                _ => None,
            }
        };
        outputs.filter_map(read).collect()
    }

    /// Sets a tensor input for the next steps.
    ///
    /// # Errors
    /// If the program has no such input, or it has a different shape.
    pub fn set_input(&mut self, name: &str, tensor: &Tensor) -> Result<(), VmError> {
        let unknown = || VmError::Input { input: name.to_owned(), wanted: "tensor" };
        let program = self.program();
        let index = program.buffers.iter().position(|buffer| buffer.kind == BufferKind::Input && buffer.name == name);
        let (index, buffer) = index.and_then(|index| Some((index, program.buffers.get(index)?))).ok_or_else(unknown)?;
        memory::misshaped(buffer, tensor.shape())?;
        let Bound::Home(home) = self.engine.plan.memory.bound(BufferId::from(index)) else { return Err(unknown()) };
        if buffer.dtype != DType::F32 {
            return Err(unknown());
        }
        let area = whole(home, buffer).ok_or_else(unknown)?;
        // SAFETY: no worker runs now, and no view of an input is kept.
        unsafe { area.store(Moment::REST, tensor.data()) };
        Ok(())
    }

    /// Sets a token state, one token per element, such as the state of a program that feeds back
    /// the tokens it chooses.
    ///
    /// # Errors
    /// If the program has no such state, or it holds a different number of tokens.
    pub fn set_tokens(&mut self, name: &str, tokens: &[Token]) -> Result<(), VmError> {
        let (buffer, area) = self.tokens_of(name).ok_or_else(|| VmError::NoTokens { state: name.to_owned() })?;
        memory::misshaped(buffer, &[tokens.len()])?;
        let words: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        // SAFETY: no worker runs now.
        unsafe { area.store_all(Moment::REST, &words) };
        Ok(())
    }

    /// The current tokens of a state.
    pub fn tokens(&self, name: &str) -> Option<Vec<Token>> {
        // SAFETY: no worker runs now.
        self.tokens_of(name).map(|(_, area)| unsafe { area.load_words(Moment::REST) }.into_iter().map(Token).collect())
    }

    fn tokens_of(&self, name: &str) -> Option<(&Buffer, Area)> {
        let buffers = &self.program().buffers;
        let holds_tokens = |buffer: &Buffer| (buffer.kind, buffer.dtype) == (BufferKind::State, DType::U32);
        let index = buffers.iter().position(|buffer| buffer.name == name && holds_tokens(buffer))?;
        match self.engine.plan.memory.bound(BufferId::from(index)) {
            Bound::Home(home) => Some((&buffers[index], whole(home, &buffers[index])?)),
            _ => None,
        }
    }

    /// A copy of the current state: `kv.layers[3].k`.
    pub fn state(&self, name: &str) -> Option<State> {
        let index = self.program().buffers.iter().position(|buffer| buffer.name == name)?;
        match self.engine.plan.memory.bound(BufferId::from(index)) {
            // No worker runs now, so the copy sees no write.
            Bound::State(state) => Some(state.clone()),
            _ => None,
        }
    }
}

impl core::fmt::Debug for Vm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let program = self.program();
        write!(f, "Vm({}: {} tasks, {} workers)", Shown(&program.name), program.tasks.len(), program.queues.workers())
    }
}

/// All of a buffer.
fn whole(home: &Home, buffer: &Buffer) -> Option<Area> {
    Some(Area::new(home.clone(), buffer.dtype, memory::shape(buffer)?, Region::full(&buffer.shape)))
}

/// Whether a region moves with the position.
fn moves(program: &Program) -> bool {
    let operands = program.tasks.iter().flat_map(|task| &task.calls).flat_map(|call| &call.operands);
    operands.flat_map(|operand| operand.region.intervals().to_vec()).any(|interval| interval.moves())
}
