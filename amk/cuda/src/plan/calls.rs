//! The calls of a task.

use super::{Plan, Work};
use amk::registry::Registry;
use amk_ir::lower::instruction;
use amk_ir::program::{Buffer, BufferKind, Exchange};
use amk_ir::{BufferId, Call, CallRows, DType, InstructionId, Operand, Param};
use std::ops::Range;

/// The calls of a task, as added by a phase.
pub struct TaskCalls<'p> {
    /// The plan so far.
    pub plan: &'p mut Plan,
    /// The rows of a step that its calls are for; `None`: all.
    rows: Option<CallRows>,
    calls: Vec<Call>,
}

impl TaskCalls<'_> {
    /// A buffer `[len]` of f32 that is private to the task.
    pub fn local(&mut self, len: u32) -> BufferId {
        let buffers = &mut self.plan.program.buffers;
        let name = format!("local{}", buffers.len());
        buffers.push(Buffer {
            name,
            kind: BufferKind::Local,
            dtype: DType::F32,
            shape: vec![len],
            exchange: Exchange::Counter,
            place: None,
        });
        BufferId::from(buffers.len() - 1)
    }

    /// Adds a call of the instruction with this path, which is one of a registered set.
    pub fn call(&mut self, path: &str, operands: Vec<Operand>, params: Vec<Param>) {
        let instruction = self.instruction(path);
        self.calls.push(Call { instruction, operands, params, rows: self.rows });
    }

    /// Adds a call for some of the rows.
    pub fn call_of_rows(&mut self, rows: &Range<u32>, path: &str, operands: Vec<Operand>, params: Vec<Param>) {
        self.lifted(CallRows { first: rows.start, end: rows.end, wanted: false }, path, operands, params);
    }

    /// Adds a call for some rows, as far as their outputs are wanted.
    pub fn call_of_wanted_rows(&mut self, rows: &Range<u32>, path: &str, operands: Vec<Operand>, params: Vec<Param>) {
        self.lifted(CallRows { first: rows.start, end: rows.end, wanted: true }, path, operands, params);
    }

    fn lifted(&mut self, rows: CallRows, path: &str, operands: Vec<Operand>, params: Vec<Param>) {
        let instruction = self.instruction(path);
        self.calls.push(Call { instruction, operands, params, rows: Some(rows) });
    }

    /// The number of a linked instruction in the program's table, to which it is added.
    fn instruction(&mut self, path: &str) -> InstructionId {
        let table = &mut self.plan.program.instructions;
        if let Some(known) = table.iter().position(|known| known.path == path) {
            return InstructionId::from(known);
        }
        let linked = Registry::linked().and_then(|registry| registry.get(path)?.signature());
        // The verifier rejects a call of an instruction that is not in the table.
        let Ok(signature) = linked else { return InstructionId(u32::MAX) };
        table.push(instruction(&signature));
        InstructionId::from(table.len() - 1)
    }

    /// Adds a call as it is.
    pub(super) fn push(&mut self, call: Call) {
        self.calls.push(call);
    }
}

impl Plan {
    /// The calls of a worker's part of a phase; adds their local buffers to the program.
    pub(super) fn calls(&mut self, phase: usize, worker: u32, work: &Work) -> Vec<Call> {
        let Some(phase) = self.phases.get(phase).cloned() else { return Vec::new() };
        let rows = work.rows().map(|rows| CallRows { first: rows.start, end: rows.end, wanted: false });
        let mut task = TaskCalls { plan: self, rows, calls: Vec::new() };
        phase.kind().calls(&mut task, worker, work);
        task.calls
    }
}
