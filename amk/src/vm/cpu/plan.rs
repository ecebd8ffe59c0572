//! The program made ready to run: functions instead of paths, memory instead of buffers, counters instead of events.

use super::area::Area;
use super::error::VmError;
use super::fit::{Fit, Slot};
use super::memory::{Bound, Memory};
use super::packets::Packets;
use super::table::{PickedWeight, RoutedArea, RoutedTask, Table};
use crate::registry::{Frame, Registry};
use crate::tensor::{State, Weight};
use crate::vm::Bindings;
use amk_ir::{Call, InstructionId, Operand, Param, Program, Region, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the workers execute.
pub(super) struct Plan {
    pub(super) tasks: Vec<TaskPlan>,
    /// Signals of each counter in a step.
    pub(super) fan_in: Vec<u64>,
    pub(super) memory: Memory,
}

/// A task.
pub(super) struct TaskPlan {
    pub(super) calls: Vec<CallPlan>,
    pub(super) waits: Vec<WaitPlan>,
    /// Counters, each signalled once.
    pub(super) signals: Vec<usize>,
    /// What depends on tables; `None` where nothing does and the task writes none.
    pub(super) routed: Option<Box<RoutedTask>>,
}

/// A wait on a counter.
pub(super) struct WaitPlan {
    pub(super) counter: usize,
    /// Signals of this step to wait for.
    pub(super) threshold: u64,
    /// Of a packet: it is waited for only at positions where the two regions overlap.
    pub(super) overlap: Option<Box<(Region, Region)>>,
}

/// A call.
pub(super) struct CallPlan {
    pub(super) run: fn(&mut Frame<'_>),
    pub(super) arguments: Vec<ArgumentPlan>,
    pub(super) results: Vec<ResultPlan>,
}

/// How an argument is made.
pub(super) enum ArgumentPlan {
    Tensor(Area),
    RoutedTensor(RoutedArea),
    Weight(Weight),
    PickedWeight(PickedWeight),
    State {
        state: State,
        region: Region,
    },
    /// The token that the step gives for this input.
    TokenInput(usize),
    Token(Area),
    Float(f32),
    Dim(usize),
    Pos,
}

/// Where a result goes.
pub(super) enum ResultPlan {
    Tensor(Area),
    RoutedTensor(RoutedArea),
    Token(Area),
}

impl Plan {
    pub(super) fn new(program: &Program, bindings: &Bindings, registry: &Registry) -> Result<Self, VmError> {
        let fits = fits(program, registry)?;
        let memory = Memory::new(program, bindings)?;
        let packets = Packets::new(program);
        let (bases, counters) = program.counter_bases();
        let tables = Table::all(program, &memory, &bases)?;
        let counter = |element: amk_ir::Element| bases[element.event.index()] as usize + element.index as usize;
        let mut fan_in = vec![0; counters as usize + packets.writers()];
        let mut tasks = Vec::with_capacity(program.tasks.len());
        for (index, task) in program.tasks.iter().enumerate() {
            let id = TaskId::from(index);
            let operands = Operands { program, memory: &memory, tables: &tables };
            let calls =
                task.calls.iter().map(|call| call_plan(id, call, &operands, &fits)).collect::<Result<_, _>>()?;
            let written = packets.counter_of(id).map(|number| counters as usize + number);
            let signals: Vec<usize> = task.signals.iter().map(|&element| counter(element)).chain(written).collect();
            signals.iter().for_each(|&signal| fan_in[signal] += 1);
            let own = task.waits.iter().map(|wait| WaitPlan {
                counter: counter(wait.on),
                threshold: u64::from(wait.threshold),
                overlap: None,
            });
            let waits = own.chain(packets.waits(program, id, counters as usize)).collect();
            let routed = (!tables.is_empty()).then(|| Box::new(RoutedTask::new(program, task, &tables, &bases)));
            tasks.push(TaskPlan { calls, waits, signals, routed });
        }
        Ok(Self { tasks, fan_in, memory })
    }
}

/// The linked instructions that the program calls.
fn fits(program: &Program, registry: &Registry) -> Result<BTreeMap<InstructionId, Fit>, VmError> {
    let called: BTreeSet<InstructionId> =
        program.tasks.iter().flat_map(|task| &task.calls).map(|call| call.instruction).collect();
    let fit = |id: InstructionId| Ok((id, Fit::new(&program.instructions[id.index()], registry)?));
    called.into_iter().map(fit).collect()
}

/// What operands are made of.
struct Operands<'a> {
    program: &'a Program,
    memory: &'a Memory,
    tables: &'a [Arc<Table>],
}

impl Operands<'_> {
    fn tensor(&self, operand: &Operand) -> Result<ArgumentPlan, &'static str> {
        let area = self.memory.area(self.program, operand)?;
        Ok(match operand.routed {
            Some(routed) => ArgumentPlan::RoutedTensor(RoutedArea::new(area, self.tables, routed)),
            None => ArgumentPlan::Tensor(area),
        })
    }

    fn result(&self, operand: &Operand) -> Result<ResultPlan, &'static str> {
        let area = self.memory.area(self.program, operand)?;
        Ok(match operand.routed {
            Some(routed) => ResultPlan::RoutedTensor(RoutedArea::new(area, self.tables, routed)),
            None => ResultPlan::Tensor(area),
        })
    }
}

fn call_plan(
    task: TaskId,
    call: &Call,
    operands: &Operands<'_>,
    fits: &BTreeMap<InstructionId, Fit>,
) -> Result<CallPlan, VmError> {
    let &Operands { program, memory, .. } = operands;
    let fit = &fits[&call.instruction];
    let instruction = &program.instructions[call.instruction.index()];
    let refuse = |operand: usize, why: &'static str| {
        let buffer =
            call.operands.get(operand).map_or("nothing", |operand| &program.buffers[operand.buffer.index()].name);
        VmError::Operand {
            task,
            instruction: instruction.name.clone(),
            operand: instruction.operands.get(operand).map(|spec| spec.name.clone()).unwrap_or_default(),
            buffer: buffer.to_owned(),
            why,
        }
    };
    let argument = |slot: &Slot| {
        let operand = |number: usize| call.operands.get(number).ok_or_else(|| refuse(number, "it is missing"));
        let param = |number: usize| call.params.get(number);
        match *slot {
            Slot::Tensor(number) => operands.tensor(operand(number)?).map_err(|why| refuse(number, why)),
            Slot::Weight(number) => weight(operands, operand(number)?).map_err(|why| refuse(number, why)),
            Slot::State(number) => match memory.bound(operand(number)?.buffer) {
                Bound::State(state) => {
                    Ok(ArgumentPlan::State { state: state.handle(), region: operand(number)?.region })
                }
                _ => Err(refuse(number, "it is no state")),
            },
            Slot::Token(number) => match memory.bound(operand(number)?.buffer) {
                Bound::TokenInput(input) => Ok(ArgumentPlan::TokenInput(*input)),
                _ => memory.word(program, operand(number)?).map(ArgumentPlan::Token).map_err(|why| refuse(number, why)),
            },
            Slot::Float(number) => match param(number) {
                Some(&Param::F32(value)) => Ok(ArgumentPlan::Float(value)),
                _ => Err(fit.unfit(instruction, "a parameter is no float")),
            },
            Slot::Dim(number) => match param(number) {
                Some(&Param::U32(value)) => Ok(ArgumentPlan::Dim(value as usize)),
                _ => Err(fit.unfit(instruction, "a parameter is no unsigned integer")),
            },
            Slot::Pos => Ok(ArgumentPlan::Pos),
        }
    };
    let arguments = fit.arguments.iter().map(argument).collect::<Result<_, _>>()?;
    let result = |&(number, token): &(usize, bool)| {
        let operand = call.operands.get(number).ok_or_else(|| refuse(number, "it is missing"))?;
        let area = if token { memory.word(program, operand).map(ResultPlan::Token) } else { operands.result(operand) };
        area.map_err(|why| refuse(number, why))
    };
    let results = fit.results.iter().map(result).collect::<Result<_, _>>()?;
    Ok(CallPlan { run: fit.run, arguments, results })
}

/// The tile of a weight; a dimension that moves with the position is whole.
fn weight(operands: &Operands<'_>, operand: &Operand) -> Result<ArgumentPlan, &'static str> {
    let Bound::Weight(weight) = operands.memory.bound(operand.buffer) else { return Err("it is no weight") };
    if let Some(routed) = operand.routed {
        let picked = PickedWeight::new(weight, operands.tables, operand, routed);
        return picked.map(ArgumentPlan::PickedWeight).ok_or("a weight is picked by an entry, and does not move");
    }
    let ranges: Vec<_> = operand
        .region
        .intervals()
        .iter()
        .zip(weight.shape())
        .map(|(interval, &extent)| match interval.lo.pos || interval.hi.pos {
            true => 0..extent,
            false => interval.lo.base as usize..interval.hi.base as usize,
        })
        .collect();
    Ok(ArgumentPlan::Weight(weight.slice(&ranges)))
}
