//! The program prepared for execution: functions instead of paths, memory instead of buffers,
//! counters instead of events.

use super::area::Area;
use super::error::{Role, VmError};
use super::memory::{Bound, Memory, of_counters};
use super::packets::Packets;
use super::table::{PickedWeight, RoutedArea, RoutedTask, Table};
use crate::registry::{Frame, Function, Registry};
use crate::rows::PoolSize;
use crate::tensor::{State, Weight};
use crate::vm::Bindings;
use amk_ir::callee::{Argument, Place};
use amk_ir::signature::TensorClass;
use amk_ir::{Call, CallRows, InstructionId, Operand, Param, Program, Region, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The work of the workers.
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
    /// The part that depends on tables; `None` if nothing does and the task writes no table.
    pub(super) routed: Option<Box<RoutedTask>>,
}

/// A wait on a counter.
pub(super) struct WaitPlan {
    pub(super) counter: usize,
    /// Signals of this step to wait for.
    pub(super) threshold: u64,
    /// For a packet: the wait applies only at positions where the two regions overlap.
    pub(super) overlap: Option<Box<(Region, Region)>>,
}

/// A call.
pub(super) struct CallPlan {
    pub(super) run: fn(&mut Frame<'_>),
    /// The function for several rows at once, if the instruction has one.
    pub(super) many: Option<fn(&mut Frame<'_>)>,
    /// The rows that it is for; `None` in programs without rows.
    pub(super) rows: Option<CallRows>,
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
    /// The step's token for this input.
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
    pub(super) fn new(
        program: &Program,
        bindings: &Bindings,
        registry: &Registry,
        pages: Option<&PoolSize>,
    ) -> Result<Self, VmError> {
        let functions = functions(program, registry)?;
        let memory = Memory::new(program, bindings, pages)?;
        let packets = Packets::new(program);
        let (bases, counters) = program.counter_bases();
        let tables = Table::all(program, &memory, &bases)?;
        let counter = |element: amk_ir::Element| bases[element.event.index()] as usize + element.index as usize;
        let mut fan_in = of_counters(counters as usize + packets.writers())?;
        let mut tasks = Vec::with_capacity(program.tasks.len());
        for (index, task) in program.tasks.iter().enumerate() {
            let id = TaskId::from(index);
            let operands = Operands { program, memory: &memory, tables: &tables };
            let calls = task.calls.iter().map(|call| operands.call(id, call, &functions)).collect::<Result<_, _>>()?;
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

/// The functions that the program calls.
fn functions(program: &Program, registry: &Registry) -> Result<BTreeMap<InstructionId, Function>, VmError> {
    let linked = registry.link(program);
    if let Some(missing) = linked.missing.into_iter().next() {
        return Err(missing.into());
    }
    match linked.unfit.first() {
        Some(unfit) => Err(VmError::Unfit(Box::new(unfit.message(program)))),
        None => Ok(linked.functions),
    }
}

/// The sources of operands.
struct Operands<'a> {
    program: &'a Program,
    memory: &'a Memory,
    tables: &'a [Arc<Table>],
}

impl Operands<'_> {
    fn call(
        &self,
        task: TaskId,
        call: &Call,
        functions: &BTreeMap<InstructionId, Function>,
    ) -> Result<CallPlan, VmError> {
        let Function { run, many, callee } = &functions[&call.instruction];
        let argument = |argument: &Argument| match *argument {
            Argument::Operand(place) => self.argument(place, &call.operands[place.number], call.rows, task),
            // The types are those that the function takes: linking has compared them.
            Argument::Float(number) | Argument::Dim(number) | Argument::Pos(number) => Ok(match call.params[number] {
                Param::F32(value) => ArgumentPlan::Float(value),
                Param::U32(value) => ArgumentPlan::Dim(value as usize),
                Param::Pos => ArgumentPlan::Pos,
            }),
        };
        let arguments = callee.arguments().iter().map(argument).collect::<Result<_, _>>()?;
        let results = callee.results().iter().map(|&place| self.result(place, &call.operands[place.number], task));
        let results = results.collect::<Result<_, _>>()?;
        Ok(CallPlan { run: *run, many: *many, rows: call.rows, arguments, results })
    }

    fn argument(
        &self,
        place: Place,
        operand: &Operand,
        rows: Option<CallRows>,
        task: TaskId,
    ) -> Result<ArgumentPlan, VmError> {
        let plan = match place.class {
            TensorClass::Tensor => self.tensor(operand),
            TensorClass::Weight => self.weight(operand),
            TensorClass::State => match self.memory.bound(operand.buffer) {
                Bound::State(state) => match rows.map_or(Some(operand.region), |rows| rows.region(&operand.region)) {
                    Some(region) => Ok(ArgumentPlan::State { state: state.handle(), region }),
                    None => Err("a row would be before its position"),
                },
                _ => Err("it is not a state"),
            },
            TensorClass::Token => match self.memory.bound(operand.buffer) {
                Bound::TokenInput(input) => Ok(ArgumentPlan::TokenInput(*input)),
                _ => self.memory.word(self.program, operand).map(ArgumentPlan::Token),
            },
        };
        plan.map_err(|why| self.refuse(operand, task, why))
    }

    fn result(&self, place: Place, operand: &Operand, task: TaskId) -> Result<ResultPlan, VmError> {
        let plan = match (place.class, operand.routed) {
            (TensorClass::Token, _) => self.memory.word(self.program, operand).map(ResultPlan::Token),
            (_, None) => self.memory.area(self.program, operand).map(ResultPlan::Tensor),
            (_, Some(routed)) => {
                let area = self.memory.area(self.program, operand);
                area.map(|area| ResultPlan::RoutedTensor(RoutedArea::new(area, self.tables, routed)))
            }
        };
        plan.map_err(|why| self.refuse(operand, task, why))
    }

    fn refuse(&self, operand: &Operand, task: TaskId, why: &'static str) -> VmError {
        let buffer = self.program.buffers[operand.buffer.index()].name.clone();
        VmError::Buffer { buffer, role: Role::Operand(task), why }
    }

    fn tensor(&self, operand: &Operand) -> Result<ArgumentPlan, &'static str> {
        let area = self.memory.area(self.program, operand)?;
        Ok(match operand.routed {
            Some(routed) => ArgumentPlan::RoutedTensor(RoutedArea::new(area, self.tables, routed)),
            None => ArgumentPlan::Tensor(area),
        })
    }

    /// The tile of a weight; a dimension that moves with the position is whole.
    fn weight(&self, operand: &Operand) -> Result<ArgumentPlan, &'static str> {
        let Bound::Weight(weight) = self.memory.bound(operand.buffer) else { return Err("it is not a weight") };
        if let Some(routed) = operand.routed {
            let picked = PickedWeight::new(weight, self.tables, operand, routed);
            return picked.map(ArgumentPlan::PickedWeight).ok_or("a weight is picked by an entry, and does not move");
        }
        let intervals = operand.region.intervals().iter().zip(weight.shape());
        let ranges: Vec<_> = intervals
            .map(|(interval, &extent)| match interval.moves() {
                true => 0..extent,
                false => interval.lo.base as usize..interval.hi.base as usize,
            })
            .collect();
        Ok(ArgumentPlan::Weight(weight.slice(&ranges)))
    }
}
