//! Random tasks in eager order.

use super::{Draft, intersects};
use amk_ir::{Access, Buffer, BufferId, BufferKind, Call, DType, Exchange, Operand, Region, Task};

impl Draft<'_> {
    pub(super) fn tasks(&mut self, count: u32) {
        for _ in 0..count {
            let mut calls = Vec::new();
            if self.rng.chance(15) {
                self.fused(&mut calls);
            } else {
                let first = self.reads();
                self.call(&mut calls, first);
                if self.rng.chance(12) {
                    let second = self.reads();
                    self.call(&mut calls, second);
                }
            }
            self.program.tasks.push(Task { calls, ..Task::default() });
        }
        self.cover_outputs();
    }

    /// Two calls, and a local buffer between them.
    fn fused(&mut self, calls: &mut Vec<Call>) {
        let shape = vec![self.rng.between(1, 3)];
        let whole = Region::full(&shape);
        let (kind, exchange) = (BufferKind::Local, Exchange::Counter);
        let local = self.add(Buffer { name: String::new(), kind, dtype: DType::F32, shape, exchange, place: None });
        let mut first = self.reads();
        first.push(Operand { buffer: local, region: whole, access: Access::Write, early: false, routed: None });
        self.push(calls, first);
        let mut second = self.reads();
        second.push(Operand { buffer: local, region: whole, access: Access::Read, early: false, routed: None });
        self.call(calls, second);
    }

    /// Up to three operands that are read.
    fn reads(&mut self) -> Vec<Operand> {
        let mut operands = Vec::new();
        for _ in 0..self.rng.between(0, 3) {
            let buffer = self.any_buffer();
            if self.program.buffers[buffer.index()].kind == BufferKind::Local {
                continue;
            }
            if let Some(region) = self.readable(buffer) {
                let kind = self.program.buffers[buffer.index()].kind;
                let percent = match kind {
                    BufferKind::Weight | BufferKind::Input => 40,
                    BufferKind::State if self.careless => 6,
                    _ => 0,
                };
                let early = self.rng.chance(percent);
                operands.push(Operand { buffer, region, access: Access::Read, early, routed: None });
            }
        }
        operands
    }

    /// A call that writes or updates something, in addition to its reads.
    fn call(&mut self, calls: &mut Vec<Call>, mut operands: Vec<Operand>) {
        for _ in 0..6 {
            let buffer = self.any_buffer();
            let of = &self.program.buffers[buffer.index()];
            if matches!(of.kind, BufferKind::Local | BufferKind::Weight | BufferKind::Input) {
                continue;
            }
            let update = of.exchange == Exchange::Counter && self.rng.chance(15);
            let region = if update { self.readable(buffer) } else { self.writable(buffer) };
            let Some(region) = region else { continue };
            let positions = self.program.positions;
            let apart = |o: &Operand| o.buffer != buffer || !intersects(&o.region, &region, positions);
            if operands.iter().all(apart) {
                let access = if update { Access::Update } else { Access::Write };
                operands.push(Operand { buffer, region, access, early: false, routed: None });
                if self.rng.chance(80) {
                    break;
                }
            }
        }
        self.push(calls, operands);
    }

    pub(super) fn push(&mut self, calls: &mut Vec<Call>, mut operands: Vec<Operand>) {
        operands.sort_by_key(|operand| match operand.access {
            Access::Read => 0,
            Access::Update => 1,
            Access::Write => 2,
        });
        for operand in operands.iter().filter(|operand| operand.access.writes()) {
            self.written[operand.buffer.index()].push(operand.region);
        }
        let accesses: Vec<Access> = operands.iter().map(|operand| operand.access).collect();
        calls.push(Call { instruction: self.instruction(&accesses), operands, params: Vec::new(), rows: None });
    }

    fn any_buffer(&mut self) -> BufferId {
        BufferId(self.rng.below(self.program.buffers.len() as u32))
    }

    /// The last tasks write the outputs that are not yet whole.
    fn cover_outputs(&mut self) {
        for at in 0..self.program.buffers.len() {
            let whole = Region::full(&self.program.buffers[at].shape);
            if self.program.buffers[at].kind != BufferKind::Output || self.written[at].contains(&whole) {
                continue;
            }
            let task = self.rng.below(self.program.tasks.len() as u32) as usize;
            let mut calls = core::mem::take(&mut self.program.tasks[task].calls);
            self.push(
                &mut calls,
                vec![Operand { buffer: at.into(), region: whole, access: Access::Write, early: false, routed: None }],
            );
            self.program.tasks[task].calls = calls;
        }
    }
}
