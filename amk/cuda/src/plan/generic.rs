//! Calls by their generic device bodies: tiles of the instruction's own `task` clause, spread over the workers.

use super::flow::Flow;
use super::group::{Group, Groups};
use super::operand::read;
use super::phase::same;
use super::planner::Planner;
use super::{Phase, PhaseKind, Plan, TaskCalls, UNIT, Unsupported, Work};
use crate::image::{Encoder, Record};
use amk::registry::Registry;
use amk_ir::lower::{self, parts::Cut, parts::parts};
use amk_ir::program::BufferKind;
use amk_ir::signature::Signature;
use amk_ir::{BufferId, Call, DType, Exchange, InstructionId, Operand, Region};
use std::collections::HashMap;
use std::slice::from_ref;

/// A phase of tasks by one generic device body.
#[derive(Clone, Debug, PartialEq)]
pub struct Generic {
    /// Number in [`super::Plan::bodies`].
    pub body: usize,
    /// What it is of: the call's name and its loop index.
    pub label: String,
    /// The calls of the tasks, one a tile.
    pub tiles: Vec<Call>,
}

/// A generic device body.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The instruction's signature.
    pub signature: Signature,
    /// The instruction in the program's table.
    pub instruction: InstructionId,
    /// CUDA C++ text that defines a function of the instruction's name.
    pub text: &'static str,
}

impl PhaseKind for Generic {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        self.call(work).cloned().into_iter().for_each(|call| task.push(call));
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        self.call(work).map_or(Record::default(), |call| encoder.generic(self.body, call))
    }

    fn weight_bytes(&self, plan: &Plan) -> u64 {
        let gathers = self.tiles.iter().any(|call| call.operands.iter().any(|o| o.buffer == plan.token));
        let bytes = |operand: &Operand| {
            let dtype = plan.program.buffers[operand.buffer.index()].dtype;
            operand.region.len_at(0) * u64::from(dtype.bytes())
        };
        let weights = self.tiles.iter().flat_map(|call| &call.operands).filter(|operand| operand.early);
        // Of a table from which a token takes a row, that row.
        if gathers { 0 } else { weights.map(bytes).sum() }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

impl Generic {
    /// The call of a task.
    fn call(&self, work: &Work) -> Option<&Call> {
        let &Work::Tile(tile) = work else { return None };
        self.tiles.get(tile as usize)
    }
}

/// The tiles of a generic call, over the buffers of the unrolled function, and the worker of each.
pub(super) struct Tiled {
    calls: Vec<Call>,
    workers: Vec<u32>,
}

/// Cuts the generic calls of a function into tiles and gives each a worker. Tiles that touch the same elements of a state have the
/// same worker, whose queue then keeps their order.
pub(super) fn tiled(flow: &Flow<'_>, groups: &Groups, workers: u32) -> Result<HashMap<usize, Tiled>, Unsupported> {
    let mut all = HashMap::new();
    let mut owners = Owners::default();
    let mut in_order: Vec<usize> =
        groups.list.iter().filter_map(|group| if let Group::Call(at) = group { Some(*at) } else { None }).collect();
    in_order.sort_unstable();
    for &at in &in_order {
        let cut = Cut { workers, unit: UNIT };
        let calls =
            parts(flow.graph, flow.unrolled, flow.call(at), cut).map_err(|error| flow.refuse(at, error.to_string()))?;
        for (tile, call) in calls.iter().enumerate() {
            let states = call.operands.iter().filter(|operand| flow.kind(operand.buffer) == BufferKind::State);
            states.for_each(|operand| owners.touch((at, tile), operand.buffer, operand.region));
        }
        all.insert(at, calls);
    }
    let mut placed = HashMap::new();
    for at in in_order {
        let Some(calls) = all.remove(&at) else { continue };
        // Calls that do not wait for one another should not meet on the same workers; the logits' rows stay in order.
        let output = flow.result(at).is_some_and(|result| flow.kind(result) == BufferKind::Output);
        let shift = if output { 0 } else { at as u64 * 29 };
        let worker = |tile: usize| {
            let spread = (tile as u64 * u64::from(workers) / calls.len() as u64 + shift) % u64::from(workers);
            owners.of((at, tile)).map_or(spread as u32, |owner| owner % workers)
        };
        let workers = (0..calls.len()).map(worker).collect();
        placed.insert(at, Tiled { calls, workers });
    }
    Ok(placed)
}

/// The device body of a call's instruction.
fn body(flow: &Flow<'_>, at: usize, instruction: InstructionId) -> Result<Body, Unsupported> {
    let signature = flow.signature(at).ok_or_else(|| flow.refuse(at, "the call names no instruction"))?;
    let entry = Registry::linked()
        .and_then(|registry| registry.get(&signature.path))
        .map_err(|error| flow.refuse(at, error.to_string()))?;
    let none = || {
        let what =
            format!("`{}` has no device body; name one in its `#[instruction(.., cuda = \"..\")]`", signature.path);
        flow.refuse(at, what)
    };
    Ok(Body { signature: signature.clone(), instruction, text: entry.cuda.ok_or_else(none)? })
}

impl Planner<'_> {
    /// The phase of a generic call.
    pub(super) fn generic(&mut self, at: usize, tiled: Tiled) -> Result<(), Unsupported> {
        let body = self.body(at)?;
        let name = self.flow.signature(at).map_or("", |signature| signature.name.as_str());
        let label = match self.flow.call(at).indices.values().next() {
            Some(layer) => format!("{name} {layer}"),
            None => name.to_owned(),
        };
        let Tiled { calls, workers } = tiled;
        let mut tiles = Vec::with_capacity(calls.len());
        for (mut call, &worker) in calls.into_iter().zip(&workers) {
            for operand in &mut call.operands {
                self.operand(at, operand, worker)?;
            }
            call.instruction = self.plan.bodies[body].instruction;
            tiles.push(call);
        }
        let phase = self.begin_phase(Phase::new(Generic { body, label, tiles }));
        for (tile, &worker) in (0..).zip(&workers) {
            self.task(phase, worker as usize, Work::Tile(tile));
        }
        Ok(())
    }

    /// Makes an operand one of the program.
    fn operand(&mut self, at: usize, operand: &mut Operand, worker: u32) -> Result<(), Unsupported> {
        let buffer = self.flow.buffer(operand.buffer);
        let moves = operand.region.intervals().iter().any(|interval| interval.lo.pos || interval.hi.pos);
        if moves && buffer.kind != BufferKind::State {
            return Err(self.flow.refuse(at, format!("the tile of `{}` moves with the position", buffer.name)));
        }
        operand.buffer = match (buffer.kind, buffer.dtype) {
            (BufferKind::Input, DType::U32) => {
                let own = worker..worker + 1;
                *operand = read(self.plan.token, from_ref(&own));
                return Ok(());
            }
            (BufferKind::State, dtype) => match self.buffers.get(&operand.buffer) {
                Some(&state) => state,
                None => {
                    let state = self.buffer(&buffer.name, BufferKind::State, dtype, &buffer.shape, Exchange::Counter);
                    self.buffers.insert(operand.buffer, state);
                    state
                }
            },
            (BufferKind::Activation, DType::F32) if self.groups.packed.contains(&operand.buffer) => {
                self.value(operand.buffer, DType::BF16)
            }
            (BufferKind::Activation, dtype @ (DType::F32 | DType::U32)) => self.value(operand.buffer, dtype),
            (BufferKind::Output, _) => {
                let interval = operand.region.intervals()[0];
                let (first, last) = (interval.lo.base, interval.hi.base);
                if !first.is_multiple_of(UNIT) || !last.is_multiple_of(UNIT) {
                    return Err(self.flow.refuse(at, "a tile of the logits is no multiple of 8"));
                }
                let rows = &mut self.rows[worker as usize];
                *rows = if rows.start == rows.end { first..last } else { rows.start..last };
                self.plan.logits
            }
            (BufferKind::Weight, DType::F32 | DType::BF16) | (BufferKind::Input, DType::F32) => {
                self.known(operand.buffer)
            }
            (_, dtype) => return Err(self.flow.refuse(at, format!("`{}` is {dtype:?}", buffer.name))),
        };
        Ok(())
    }

    /// The number of the body of a call's instruction.
    fn body(&mut self, at: usize) -> Result<usize, Unsupported> {
        let path = self.flow.path(at);
        if let Some(known) = self.plan.bodies.iter().position(|body| body.signature.path == path) {
            return Ok(known);
        }
        let table = &mut self.plan.program.instructions;
        let instruction = table.iter().position(|instruction| instruction.path == path).unwrap_or_else(|| {
            table.extend(self.flow.signature(at).map(lower::instruction));
            table.len() - 1
        });
        self.plan.bodies.push(body(self.flow, at, InstructionId::from(instruction))?);
        Ok(self.plan.bodies.len() - 1)
    }
}

/// A tile of a call.
type Tile = (usize, usize);

/// Sets of tiles that touch the same elements of a state.
#[derive(Default)]
struct Owners {
    touched: HashMap<BufferId, Vec<(Tile, Region)>>,
    /// A tile of the same set, or itself.
    same: HashMap<Tile, Tile>,
    /// Numbers of the sets, by their first tiles.
    numbers: HashMap<Tile, u32>,
}

impl Owners {
    fn touch(&mut self, tile: Tile, state: BufferId, region: Region) {
        self.same.entry(tile).or_insert(tile);
        let before = self.touched.entry(state).or_default();
        let meets: Vec<Tile> =
            before.iter().filter(|(_, other)| overlap(other, &region)).map(|(tile, _)| *tile).collect();
        before.push((tile, region));
        let mut first = self.first(tile);
        for other in meets {
            let other = self.first(other);
            let (low, high) = if other < first { (other, first) } else { (first, other) };
            self.same.insert(high, low);
            first = low;
        }
        let next = self.numbers.len() as u32;
        self.numbers.entry(first).or_insert(next);
    }

    fn first(&self, mut tile: Tile) -> Tile {
        while let Some(&next) = self.same.get(&tile).filter(|&&next| next != tile) {
            tile = next;
        }
        tile
    }

    fn of(&self, tile: Tile) -> Option<u32> {
        self.same.contains_key(&tile).then(|| self.numbers.get(&self.first(tile)).copied().unwrap_or(0))
    }
}

/// Whether two regions may share elements at some positions.
fn overlap(a: &Region, b: &Region) -> bool {
    a.intervals().iter().zip(b.intervals()).all(|(a, b)| {
        let moves = [a.lo, a.hi, b.lo, b.hi].iter().any(|bound| bound.pos);
        moves || (a.lo.base < b.hi.base && b.lo.base < a.hi.base)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_ir::{Bound, Interval};

    fn region(head: u32, to: Interval) -> Region {
        Region::new(&[Interval::fixed(head, head + 1), to]).expect("rank 2")
    }

    #[test]
    fn tiles_of_one_head_have_one_owner() {
        let mut owners = Owners::default();
        let now = Interval { lo: Bound::at_pos(0), hi: Bound::at_pos(1) };
        let past = Interval { lo: Bound::fixed(0), hi: Bound::at_pos(1) };
        for head in 0..2 {
            owners.touch((0, head), BufferId(0), region(head as u32, now));
            owners.touch((1, head), BufferId(1), region(head as u32, now));
        }
        // Two query heads a key head read both caches.
        for query in 0..4 {
            owners.touch((2, query), BufferId(0), region(query as u32 / 2, past));
            owners.touch((2, query), BufferId(1), region(query as u32 / 2, past));
        }
        let of = |call, tile| owners.of((call, tile)).expect("an owner");
        for query in 0..4 {
            assert_eq!([of(0, query / 2), of(1, query / 2)], [of(2, query); 2]);
        }
        assert_ne!(of(0, 0), of(0, 1));
        assert_eq!(owners.of((3, 0)), None);
    }
}
