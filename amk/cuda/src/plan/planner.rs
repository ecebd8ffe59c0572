//! From groups to phases and tasks.

use super::generic::tiled;
use super::group::{Group, Groups};
use super::{Phase, PhaseKind, Plan, Sizes, Unsupported, WeightForms, Work};
use crate::image::abi::CHUNK;
use crate::set::{Sampling, body_sets};
use amk::registry::{Registry, RegistryError};
use amk_ir::lower::flow::Flow;
use amk_ir::lower::instruction;
use amk_ir::schedule::{ExchangeBy, Schedule};
use amk_ir::signature::{ParamKind, Signature, TensorClass};
use amk_ir::{
    Buffer, BufferId, BufferKind, Call, DType, Exchange, Instruction, InstructionId, Limits, OpId, Program, Queues,
    Steps, Task, TaskId, TensorId,
};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The reasons why there is no plan of some groups.
pub(super) enum NoPlan {
    /// The device cannot compute a call.
    Unsupported(Unsupported),
    /// The calls of a fused group that reads a value for which there is no buffer.
    Unplaced(Vec<usize>),
}

impl From<Unsupported> for NoPlan {
    fn from(unsupported: Unsupported) -> Self {
        Self::Unsupported(unsupported)
    }
}

/// A plan in the making.
pub struct Planner<'a> {
    /// The data flow of the function.
    pub flow: &'a Flow<'a>,
    /// The plan so far.
    pub plan: Plan,
    /// Bytes of the tape of each worker so far.
    pub tape: Vec<u64>,
    /// Bytes of weights that each worker reads so far: its tape's, unless workers share them in
    /// another way.
    pub load: Vec<u64>,
    /// Each worker's rows of the logits.
    pub rows: Vec<Range<u32>>,
    pub(super) groups: &'a Groups,
    queues: Vec<Vec<TaskId>>,
    /// Buffers of the program by the function's tensors: weights, inputs, states, the packets of
    /// values, the logits.
    pub(super) buffers: HashMap<TensorId, BufferId>,
    /// With rows, the dimension of positions of the states of generic calls.
    pub(super) positions: HashMap<TensorId, usize>,
    names: HashSet<String>,
}

impl<'a> Planner<'a> {
    /// The plan of some groups.
    pub(super) fn run(
        flow: &'a Flow<'a>,
        groups: &'a Groups,
        logits: TensorId,
        schedule: &Schedule,
        forms: &WeightForms,
        sampling: &dyn Sampling,
    ) -> Result<Plan, NoPlan> {
        let workers = schedule.workers as usize;
        let mut planner = Self {
            flow,
            groups,
            plan: empty(flow, groups, schedule, forms)?,
            tape: vec![0; workers],
            load: vec![0; workers],
            queues: vec![Vec::new(); workers],
            buffers: HashMap::new(),
            positions: HashMap::new(),
            names: HashSet::new(),
            rows: vec![0..0; workers],
        };
        planner.begin(logits);
        let rows = schedule.rows.is_some();
        match rows {
            true => planner.begin_states(),
            false => sampling.begin(&mut planner),
        }
        let fused =
            groups.list.iter().filter_map(|group| if let Group::Fused(fused) = group { Some(fused) } else { None });
        fused.for_each(|group| group.begin(&mut planner));
        let mut tiles = tiled(flow, groups, schedule)?;
        for group in &groups.list {
            match group {
                Group::Fused(fused) => {
                    let before = planner.plan.program.tasks.len();
                    fused.plan(&mut planner)?;
                    if planner.lacks_buffers(before) {
                        return Err(NoPlan::Unplaced(fused.calls().to_vec()));
                    }
                }
                Group::Chain(chain) => planner.chain(chain, tiles.remove(&chain.calls[0]))?,
            }
        }
        match rows {
            true => sampling.plan_rows(&mut planner),
            false => sampling.plan(&mut planner),
        }
        planner.plan.program.queues = Queues::Static(planner.queues);
        planner.plan.check_sizes()?;
        Ok(planner.plan)
    }

    /// Adds the buffers of every program: weights, inputs and logits under their names, and tokens.
    fn begin(&mut self, logits: TensorId) {
        for (at, buffer) in self.flow.unrolled.tensors.iter().enumerate() {
            let input = buffer.kind == BufferKind::Input && buffer.dtype == DType::F32;
            if input || matches!(buffer.kind, BufferKind::Weight | BufferKind::Output) {
                self.names.insert(buffer.name.clone());
                self.plan.program.buffers.push(buffer.clone());
                self.buffers.insert(TensorId::from(at), BufferId::from(self.plan.program.buffers.len() - 1));
            }
        }
        let workers = self.plan.schedule.workers;
        self.plan.logits = self.known(logits);
        self.plan.token = match self.plan.rows() {
            None => self.buffer("token", BufferKind::State, DType::U32, &[workers], Exchange::Counter),
            Some(_) => self.buffer("token", BufferKind::Input, DType::U32, &[1], Exchange::Counter),
        };
    }

    /// Adds the states of generic calls, so that they have the same place among the buffers of
    /// steps of any number of rows.
    fn begin_states(&mut self) {
        let mut calls: Vec<usize> = self.groups.chains().flat_map(|chain| chain.calls.iter().copied()).collect();
        calls.sort_unstable();
        for operand in calls.into_iter().flat_map(|at| &self.flow.call(at).operands) {
            if self.flow.kind(operand.tensor) == BufferKind::State {
                self.state(operand.tensor);
            }
        }
    }

    /// The program's buffer for an existing buffer of the function.
    pub fn known(&self, id: TensorId) -> BufferId {
        self.buffers.get(&id).copied().unwrap_or(BufferId(u32::MAX))
    }

    /// Whether a task from number `first` on names a buffer that the program does not have.
    fn lacks_buffers(&self, first: usize) -> bool {
        let Program { buffers, tasks, .. } = &self.plan.program;
        let mut operands = tasks[first..].iter().flat_map(|task| &task.calls).flat_map(|call| &call.operands);
        operands.any(|operand| operand.buffer.index() >= buffers.len())
    }

    /// The packets of a value of the function.
    pub fn value(&mut self, id: TensorId, dtype: DType) -> BufferId {
        if let Some(&known) = self.buffers.get(&id) {
            return known;
        }
        let Buffer { name, shape, .. } = self.flow.tensor(id);
        let packets = self.packets(name, dtype, shape);
        self.buffers.insert(id, packets);
        packets
    }

    /// Returns the instruction of a call of the function in the program's table, and adds it if
    /// necessary.
    pub fn instruction(&mut self, at: usize) -> InstructionId {
        let table = &mut self.plan.program.instructions;
        let known = table.iter().position(|instruction| instruction.path == self.flow.path(at));
        InstructionId::from(known.unwrap_or_else(|| {
            table.extend(self.flow.signature(at).map(instruction));
            table.len() - 1
        }))
    }

    /// Adds a buffer; its name is extended until it is unique.
    pub fn buffer(
        &mut self,
        name: &str,
        kind: BufferKind,
        dtype: DType,
        shape: &[u32],
        exchange: Exchange,
    ) -> BufferId {
        let mut name = name.to_owned();
        while !self.names.insert(name.clone()) {
            name.push('_');
        }
        let shape = shape.to_vec();
        self.plan.program.buffers.push(Buffer { name, kind, dtype, shape, exchange, place: None });
        BufferId::from(self.plan.program.buffers.len() - 1)
    }

    /// Adds an activation.
    pub fn activation(&mut self, name: &str, dtype: DType, shape: &[u32], exchange: Exchange) -> BufferId {
        self.buffer(name, BufferKind::Activation, dtype, shape, exchange)
    }

    /// Adds an activation that passes between workers: in packets, or with rows in plain memory if
    /// a task that does not wait for packets reads it.
    pub fn packets(&mut self, name: &str, dtype: DType, shape: &[u32]) -> BufferId {
        let packet = Exchange::Packet { slots: 1 };
        if self.plan.rows().is_none() {
            return self.activation(name, dtype, shape, packet);
        }
        let by_packets = self.plan.schedule.exchange == ExchangeBy::Packets && self.groups.chains().next().is_none();
        let exchange = if by_packets { packet } else { Exchange::Counter };
        let buffer = self.activation(name, dtype, shape, exchange);
        self.exchange(buffer)
    }

    /// Makes the phases that read a buffer wait for those that write it, if it has no packets.
    pub fn exchange(&mut self, buffer: BufferId) -> BufferId {
        self.plan.exchanged.insert(buffer);
        buffer
    }

    /// Adds bytes to a worker's tape.
    pub fn stream(&mut self, worker: usize, bytes: u64) {
        self.tape[worker] += bytes;
        self.load[worker] += bytes;
    }

    /// Adds a phase, with a task for every worker that has a part of it, or whose tape has one;
    /// `works` is ordered by worker.
    pub fn phase(&mut self, kind: impl PhaseKind, works: Vec<Work>) {
        let (plan, everyone) = (&self.plan, kind.everyone());
        let has_part = |work: &Work| everyone || !work.is_empty() || kind.piece(plan, work).is_some();
        let tasks: Vec<_> = works.into_iter().enumerate().filter(|(_, work)| has_part(work)).collect();
        let at = self.begin_phase(Phase::new(kind));
        tasks.into_iter().for_each(|(worker, work)| self.task(at, worker, work));
    }

    pub(super) fn begin_phase(&mut self, phase: Phase) -> usize {
        self.plan.program.ops.push(phase.kind().label());
        self.plan.phases.push(phase);
        self.plan.phases.len() - 1
    }

    pub(super) fn task(&mut self, phase: usize, worker: usize, work: Work) {
        let calls: Vec<Call> = self.plan.calls(phase, worker as u32, &work);
        let id = TaskId::from(self.plan.program.tasks.len());
        self.plan.program.tasks.push(Task { op: Some(OpId::from(phase)), calls, ..Task::default() });
        self.plan.tasks.push((phase, worker as u32, work));
        self.queues[worker].push(id);
    }
}

/// A plan without phases.
fn empty(flow: &Flow<'_>, groups: &Groups, schedule: &Schedule, forms: &WeightForms) -> Result<Plan, Unsupported> {
    let name = &flow.graph.name;
    let instructions = instructions().map_err(|error| Unsupported { what: error.to_string(), at: name.clone() })?;
    let none = BufferId(u32::MAX);
    let context = flow.unrolled.positions;
    let logits = flow.unrolled.tensors.iter().find(|buffer| buffer.kind == BufferKind::Output);
    let vocab = logits.map_or(0, |logits| logits.shape[0]);
    let sizes = Sizes { vocab, tokens: tokens(flow), context };
    Ok(Plan {
        program: Program {
            name: format!("{name}.cuda"),
            positions: context,
            steps: if schedule.rows.is_some() { Steps::Barrier } else { Steps::Pipelined },
            limits: Limits { workers: schedule.workers, ..Limits::default() },
            instructions,
            ..Program::default()
        },
        constants: flow.unrolled.constants.clone(),
        phases: Vec::new(),
        tasks: Vec::new(),
        bodies: Vec::new(),
        sequences: Vec::new(),
        sizes,
        schedule: schedule.clone(),
        suited_slot: CHUNK,
        forms: forms.clone(),
        token: none,
        logits: none,
        missed: groups.missed.clone(),
        shared: groups.shared.clone(),
        exchanged: HashSet::new(),
        groups: Vec::new(),
    })
}

/// The table of instructions of the fused bodies, from the signatures that they register: the CPU
/// VM runs the same functions.
fn instructions() -> Result<Vec<Instruction>, RegistryError> {
    let registry = Registry::linked()?;
    let paths = body_sets().into_iter().flat_map(|set| set.instructions);
    paths.map(|path| Ok(instruction(&registry.get(path)?.signature()?))).collect()
}

/// The number of rows of the smallest table that a token indexes.
fn tokens(flow: &Flow<'_>) -> u32 {
    let reads_token = |signature: &Signature| {
        signature.params.iter().any(|param| matches!(param.kind, ParamKind::Tensor { class: TensorClass::Token, .. }))
    };
    let calls = (0..flow.unrolled.calls.len()).filter(|&at| flow.signature(at).is_some_and(reads_token));
    let weights = calls.flat_map(|at| &flow.call(at).operands).map(|operand| operand.tensor);
    let tables = weights.filter(|&id| flow.kind(id) == BufferKind::Weight && flow.shape(id).len() == 2);
    tables.map(|id| flow.shape(id)[0]).min().unwrap_or(u32::MAX)
}
