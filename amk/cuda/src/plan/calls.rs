//! The calls of a fused task: what a worker's part of a phase computes, as instructions on tiles.

#![allow(clippy::single_range_in_vec_init, reason = "a region is a list of ranges, one a dimension")]

use super::instruction::Op;
use super::operand::{early, operand, read, write};
use super::{BLOCK, Gemv, Input, LayerBuffers, Output, Phase, Plan, SLICE, Sizes, Work};
use crate::choose::{Choosing, FIELDS, LEVELS, ROUNDS, SEARCH, SHARES};
use amk_ir::{Access, Buffer, BufferId, BufferKind, Call, DType, Exchange, InstructionId, Operand, Param};
use std::ops::Range;
use std::slice::from_ref;

/// The calls of a task.
struct Calls<'p> {
    plan: &'p mut Plan,
    calls: Vec<Call>,
}

impl Calls<'_> {
    fn of(&mut self, phase: usize, worker: u32, work: &Work) {
        let Some(kind) = self.plan.phases.get(phase).cloned() else { return };
        match (kind, work) {
            (Phase::Embed { to }, Work::Rows(rows)) => self.embed(worker, rows.clone(), to),
            (Phase::Adopt { from, to, .. }, Work::Rows(rows)) => {
                self.call(Op::Adopt, vec![read(from, from_ref(rows)), write(to, from_ref(rows))], Vec::new());
            }
            (Phase::Gemv(gemv), Work::Rows(rows)) => self.gemv(&gemv, worker, rows),
            (Phase::Attend { layer }, &Work::Split { head, split }) => self.attend(layer, head, split),
            (Phase::Combine { layer }, Work::Rows(slices)) => self.combine(layer, slices),
            (Phase::Best, Work::Rows(rows)) => {
                let Choosing { best, shares, .. } = self.plan.choosing;
                let own = worker..worker + 1;
                let mut operands = self.rows(rows);
                let (op, params) = match operands.is_empty() {
                    true => (Op::NoBest, Vec::new()),
                    false => (Op::Best, vec![Param::U32(rows.start)]),
                };
                operands.extend([write(best, &[own.clone(), 0..2]), write(shares, &[own, 0..SHARES])]);
                self.call(op, operands, params);
            }
            (Phase::Probe { round }, Work::Rows(rows)) => self.probe(round, worker, rows),
            (Phase::Choose, _) => {
                let Choosing { best, found, search, .. } = self.plan.choosing;
                let (own, all) = (worker..worker + 1, 0..self.plan.schedule.workers);
                let operands = vec![
                    read(best, &[all.clone(), 0..2]),
                    read(found[ROUNDS - 1], &[all, 0..LEVELS, 0..FIELDS]),
                    read(search[ROUNDS - 1], &[own.clone(), 0..SEARCH]),
                    write(self.plan.token, &[own]),
                ];
                self.call(Op::Choose, operands, Vec::new());
            }
            _ => {}
        }
    }

    fn embed(&mut self, worker: u32, columns: Range<u32>, to: BufferId) {
        let Some(table) = self.plan.embedding else { return };
        let (token, vocab) = (self.plan.token, self.plan.extent(table));
        let local = self.plan.buffer_kind(to) == BufferKind::Local;
        let to = if local { write(to, &[0..columns.end - columns.start]) } else { write(to, from_ref(&columns)) };
        self.call(
            Op::Embed,
            vec![early(table, &[0..vocab, columns]), read(token, &[worker..worker + 1]), to],
            Vec::new(),
        );
    }

    fn gemv(&mut self, gemv: &Gemv, worker: u32, rows: &Range<u32>) {
        let k = gemv.k;
        let mut x = match gemv.input {
            Input::Packets(buffer) => buffer,
            Input::Embedding => {
                let x = self.local(k);
                self.embed(worker, 0..k, x);
                x
            }
        };
        if let Some(weight) = gemv.norm {
            let h = self.local(k);
            let eps = Param::F32(self.plan.eps);
            self.call(Op::RmsNorm, vec![read(x, &[0..k]), early(weight, &[0..k]), write(h, &[0..k])], vec![eps]);
            x = h;
        }
        let x = read(x, &[0..k]);
        let n = rows.end - rows.start;
        match &gemv.output {
            Output::Store(outputs) => {
                let mut before = 0;
                for ((&weight, &bias), &to) in gemv.weights.iter().zip(&gemv.biases).zip(outputs) {
                    let extent = self.plan.extent(to);
                    let part = rows.start.max(before).saturating_sub(before)
                        ..rows.end.min(before + extent).saturating_sub(before);
                    before += extent;
                    if part.is_empty() {
                        continue;
                    }
                    let Some(bias) = bias else {
                        self.linear(x, weight, part.clone(), write(to, &[part]));
                        continue;
                    };
                    let len = part.end - part.start;
                    let y = self.local(len);
                    self.linear(x, weight, part.clone(), write(y, &[0..len]));
                    self.call(
                        Op::AddBias,
                        vec![read(y, &[0..len]), early(bias, from_ref(&part)), write(to, &[part])],
                        Vec::new(),
                    );
                }
            }
            &Output::Residual { before, after, packets } => {
                let y = self.local(n);
                self.linear(x, gemv.weights[0], rows.clone(), write(y, &[0..n]));
                for to in [after, packets] {
                    self.call(
                        Op::Add,
                        vec![read(before, from_ref(rows)), read(y, &[0..n]), write(to, from_ref(rows))],
                        Vec::new(),
                    );
                }
            }
            &Output::Gated(to) => {
                let [gate, up] = [0, 1].map(|part| {
                    let y = self.local(n);
                    self.linear(x, gemv.weights[part], rows.clone(), write(y, &[0..n]));
                    y
                });
                self.call(
                    Op::SiluMul,
                    vec![read(gate, &[0..n]), read(up, &[0..n]), write(to, from_ref(rows))],
                    Vec::new(),
                );
            }
            &Output::Logits(to) => self.linear(x, gemv.weights[0], rows.clone(), write(to, from_ref(rows))),
        }
    }

    /// A worker's rows of the logits, where it has some.
    fn rows(&self, rows: &Range<u32>) -> Vec<Operand> {
        if rows.is_empty() { Vec::new() } else { vec![read(self.plan.logits, from_ref(rows))] }
    }

    fn probe(&mut self, round: usize, worker: u32, rows: &Range<u32>) {
        let Choosing { best, shares, found, search } = self.plan.choosing;
        let (own, all) = (worker..worker + 1, 0..self.plan.schedule.workers);
        let mut operands = self.rows(rows);
        let (op, before) = match round.checked_sub(1) {
            None => (
                if operands.is_empty() { Op::NoFirstProbe } else { Op::FirstProbe },
                [read(best, &[all.clone(), 0..2]), read(shares, &[all, 0..SHARES])],
            ),
            Some(before) => (
                if operands.is_empty() { Op::NoProbe } else { Op::Probe },
                [read(found[before], &[all, 0..LEVELS, 0..FIELDS]), read(search[before], &[own.clone(), 0..SEARCH])],
            ),
        };
        operands.extend(before);
        operands.push(write(found[round], &[own.clone(), 0..LEVELS, 0..FIELDS]));
        operands.push(write(search[round], &[own, 0..SEARCH]));
        self.call(op, operands, Vec::new());
    }

    fn linear(&mut self, x: Operand, weight: BufferId, rows: Range<u32>, to: Operand) {
        let k = self.plan.row_len(weight);
        self.call(Op::Linear, vec![x, early(weight, &[rows, 0..k]), to], Vec::new());
    }

    fn attend(&mut self, layer: usize, head: u32, split: u32) {
        let Sizes { heads, kv_heads, head_dim, splits, .. } = self.plan.sizes;
        let group = heads / kv_heads;
        let (queries, share) = (head * group..(head + 1) * group, self.plan.share(layer));
        let (Some(freqs), Some(buffers)) = (self.plan.freqs, self.plan.layers.get(layer).cloned()) else {
            return;
        };
        let LayerBuffers { qkv: [q, k, v], caches: [keys, values], partial, lse, head_norms, .. } = buffers;
        let own = head * head_dim..(head + 1) * head_dim;
        let cache =
            |buffer| operand(buffer, &[head..head + 1, split..split + 1, 0..share, 0..head_dim], Access::Update, false);
        let mut operands = vec![
            read(q, &[queries.start * head_dim..queries.end * head_dim]),
            read(k, std::slice::from_ref(&own)),
            read(v, &[own]),
        ];
        operands.extend(head_norms.into_iter().flatten().map(|norm| early(norm, &[0..head_dim])));
        operands.extend([
            early(freqs, &[0..head_dim / 2]),
            cache(keys),
            cache(values),
            write(partial, &[queries.clone(), split..split + 1, 0..head_dim]),
            write(lse, &[queries, split..split + 1]),
        ]);
        let mut params = [group, BLOCK * self.plan.schedule.run, splits, split].map(Param::U32).to_vec();
        let (eps, rope_scale, score_scale) = (self.plan.eps, self.plan.rope_scale, self.plan.score_scale);
        params.extend(head_norms.map(|_| Param::F32(eps)));
        params.extend([Param::F32(rope_scale), Param::F32(score_scale), Param::Pos]);
        self.call(if head_norms.is_some() { Op::AttendNormed } else { Op::Attend }, operands, params);
    }

    fn combine(&mut self, layer: usize, slices: &Range<u32>) {
        let Sizes { head_dim, splits, .. } = self.plan.sizes;
        let Some(LayerBuffers { partial, lse, attended, .. }) = self.plan.layers.get(layer).cloned() else { return };
        let each = head_dim / SLICE;
        for slice in slices.clone() {
            let (head, d) = (slice / each, slice % each * SLICE);
            let operands = vec![
                read(partial, &[head..head + 1, 0..splits, d..d + SLICE]),
                read(lse, &[head..head + 1, 0..splits]),
                write(attended, &[slice * SLICE..(slice + 1) * SLICE]),
            ];
            self.call(Op::Combine, operands, Vec::new());
        }
    }

    fn local(&mut self, len: u32) -> BufferId {
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

    fn call(&mut self, op: Op, operands: Vec<Operand>, params: Vec<Param>) {
        self.calls.push(Call { instruction: InstructionId(op as u32), operands, params });
    }
}

impl Plan {
    /// The calls of a worker's part of a phase; adds their local buffers to the program.
    pub(super) fn calls(&mut self, phase: usize, worker: u32, work: &Work) -> Vec<Call> {
        if let (Some(Phase::Generic(generic)), &Work::Tile(tile)) = (self.phases.get(phase), work) {
            return generic.tiles.get(tile as usize).cloned().unwrap_or_default();
        }
        let mut calls = Calls { plan: self, calls: Vec::new() };
        calls.of(phase, worker, work);
        calls.calls
    }

    pub(crate) fn shape(&self, buffer: BufferId) -> &[u32] {
        self.program.buffers.get(buffer.index()).map_or(&[], |buffer| &buffer.shape)
    }

    fn buffer_kind(&self, buffer: BufferId) -> BufferKind {
        self.program.buffers.get(buffer.index()).map_or(BufferKind::Local, |buffer| buffer.kind)
    }

    /// Elements of a buffer of rank 1, rows of a matrix.
    pub(crate) fn extent(&self, buffer: BufferId) -> u32 {
        self.shape(buffer).first().copied().unwrap_or(0)
    }

    fn row_len(&self, buffer: BufferId) -> u32 {
        self.shape(buffer).get(1).copied().unwrap_or(0)
    }

    fn share(&self, layer: usize) -> u32 {
        self.layers.get(layer).map_or(0, |layer| self.shape(layer.caches[0]).get(2).copied().unwrap_or(0))
    }
}
