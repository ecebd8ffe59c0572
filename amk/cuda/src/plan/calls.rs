//! The calls of a task.

use super::{Plan, Work};
use amk_ir::program::{Buffer, BufferKind, Exchange};
use amk_ir::{BufferId, Call, DType, InstructionId, Operand, Param};

/// The calls of a task as a phase makes them.
pub struct TaskCalls<'p> {
    /// The plan so far.
    pub plan: &'p mut Plan,
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
        let table = &self.plan.program.instructions;
        let number = table.iter().position(|known| known.path == path);
        // The verifier refuses a call of what is not in the table.
        let instruction = number.map_or(InstructionId(u32::MAX), InstructionId::from);
        self.calls.push(Call { instruction, operands, params, rows: None });
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
        let mut task = TaskCalls { plan: self, calls: Vec::new() };
        phase.kind().calls(&mut task, worker, work);
        task.calls
    }
}
