//! Calls with generic device bodies: tiles of the instruction's own `task` clause, spread over the
//! workers; if a weight streams, its rows are distributed over all of them.

use super::chain::{Chain, cut, named};
use super::group::Groups;
use super::missed::{Because, Lacks, Missed};
use super::operand::read;
use super::phase::same;
use super::planner::Planner;
use super::{Phase, PhaseKind, Plan, TaskCalls, UNIT, Unsupported, Work};
use crate::image::{Encoder, GenericTask, Record, has_strides};
use crate::stream::Stream;
use crate::tape::Piece;
use amk::registry::Registry;
use amk_ir::lower::flow::Flow;
use amk_ir::lower::join::Tiles;
use amk_ir::lower::owners::Owners;
use amk_ir::lower::place::level;
use amk_ir::lower::tile::{Part, PartOperand};
use amk_ir::program::BufferKind;
use amk_ir::schedule::Schedule;
use amk_ir::signature::{ParamKind, Signature};
use amk_ir::{
    Bound, Buffer, BufferId, Call, CallRows, DType, Exchange, InstructionId, Interval, Operand, Region, TensorId,
};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::slice::from_ref;

/// A phase of tasks with generic device bodies.
#[derive(Clone, Debug, PartialEq)]
pub struct Generic {
    /// Number in [`super::Plan::sequences`].
    pub sequence: usize,
    /// The calls' names and their loop index.
    pub label: String,
    /// The calls of the tasks, one tile of each call per task.
    pub tiles: Vec<Vec<Call>>,
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

impl Body {
    /// The path, from its package on, of the file with the text, which is next to the
    /// instruction's.
    pub fn file(&self) -> String {
        let Signature { declared_at, cuda, path, .. } = &self.signature;
        let source = declared_at.rsplit_once(':').map_or(declared_at.as_str(), |(file, _)| file);
        let name = cuda.as_deref().unwrap_or(path);
        Path::new(source).with_file_name(name).display().to_string()
    }
}

/// The bodies of a task, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// The bodies, and the sources of their operands.
    pub steps: Vec<Step>,
    /// How the weight of the first one streams.
    pub stream: Option<&'static Stream>,
}

/// A body of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Number in [`super::Plan::bodies`].
    pub body: usize,
    /// How each operand comes or goes.
    pub views: Vec<View>,
}

/// The source of a body's operand, or the destination of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// From or to its buffer.
    Buffer,
    /// From or to another body of the task.
    Local,
    /// Through the ring.
    Stream,
    /// Packets of bf16 that the body requests itself.
    Packets,
}

impl PhaseKind for Generic {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let &Work::Tile(tile) = work else { return };
        let calls = self.tiles.get(tile as usize).into_iter().flatten();
        calls.cloned().for_each(|call| task.push(call));
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let (plan, &Work::Tile(tile)) = (encoder.plan, work) else { return Record::default() };
        GenericTask::of(plan, self, tile).map_or(Record::default(), |task| encoder.generic(&task))
    }

    fn piece(&self, plan: &Plan, work: &Work) -> Option<Piece> {
        let &Work::Tile(tile) = work else { return None };
        GenericTask::of(plan, self, tile)?.piece()
    }

    /// Of a table from which a token takes a row, that row is nothing.
    fn weight_bytes(&self, plan: &Plan) -> u64 {
        let calls = || self.tiles.iter().flatten();
        let gathers = calls().any(|call| call.operands.iter().any(|o| o.buffer == plan.token));
        let bytes = |operand: &Operand| {
            let dtype = plan.program.buffers[operand.buffer.index()].dtype;
            operand.region.len_at(0) * u64::from(dtype.bytes())
        };
        let weights = calls().flat_map(|call| &call.operands).filter(|operand| operand.early);
        if gathers { 0 } else { weights.map(bytes).sum() }
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}

/// The tiles of a chain's calls, each with the rows that it is for, if steps have rows, and its
/// worker.
pub(super) struct Tiled {
    tiles: Vec<(Vec<Part>, Option<Range<u32>>)>,
    workers: Vec<u32>,
}

/// Tiles the generic calls of a function that do not stream, and assigns a worker to each tile.
/// Tiles that touch the same elements of a state get the same worker, whose queue then keeps their
/// order. With rows, counters order them.
pub(super) fn tiled(
    flow: &Flow<'_>,
    groups: &Groups,
    schedule: &Schedule,
) -> Result<HashMap<usize, Tiled>, Unsupported> {
    let workers = schedule.workers;
    let mut all = HashMap::new();
    let mut owners = Owners::default();
    let mut in_order: Vec<&Chain> = groups.chains().filter(|chain| chain.stream.is_none()).collect();
    in_order.sort_unstable_by_key(|chain| chain.calls[0]);
    for chain in &in_order {
        let at = chain.calls[0];
        let tiles = in_rows(tiles(flow, chain, workers)?, schedule);
        for (tile, (calls, _)) in tiles.iter().enumerate().filter(|_| schedule.rows.is_none()) {
            let operands = calls.iter().flat_map(|call| &call.operands);
            let states = operands.filter(|operand| flow.kind(operand.tensor) == BufferKind::State);
            states.for_each(|operand| owners.touch((at, tile), operand.tensor, operand.region));
        }
        all.insert(at, tiles);
    }
    let mut placed = HashMap::new();
    for chain in in_order {
        let at = chain.calls[0];
        let Some(tiles) = all.remove(&at) else { continue };
        // Calls that do not wait for one another should not meet on the same workers; the logits'
        // rows stay in order.
        let output = last_result(flow, chain).is_some_and(|result| flow.kind(result) == BufferKind::Output);
        let shift = if output { 0 } else { at as u64 * 29 };
        let worker = |tile: usize| {
            let spread = (tile as u64 * u64::from(workers) / tiles.len() as u64 + shift) % u64::from(workers);
            owners.of((at, tile)).map_or(spread as u32, |owner| owner % workers)
        };
        let workers = (0..tiles.len()).map(worker).collect();
        placed.insert(at, Tiled { tiles, workers });
    }
    Ok(placed)
}

/// Returns the tiles, each for a number of rows of a step such that every worker gets a part.
fn in_rows(tiles: Vec<Vec<Part>>, schedule: &Schedule) -> Vec<(Vec<Part>, Option<Range<u32>>)> {
    let Some(rows) = schedule.rows.map(|rows| rows.most) else {
        return tiles.into_iter().map(|tile| (tile, None)).collect();
    };
    let blocks = (schedule.workers / tiles.len().max(1) as u32).clamp(1, rows.max(1));
    let block = rows.div_ceil(blocks).max(1);
    let starts = || (0..rows).step_by(block as usize);
    let of_rows = |tile: Vec<Part>| starts().map(move |at| (tile.clone(), Some(at..rows.min(at + block))));
    tiles.into_iter().flat_map(of_rows).collect()
}

/// The tiles of a chain that does not stream.
fn tiles(flow: &Flow<'_>, chain: &Chain, workers: u32) -> Result<Vec<Vec<Part>>, Unsupported> {
    let cut = cut(workers);
    let mut of_calls: Vec<Tiles> = Vec::with_capacity(chain.calls.len());
    for &at in &chain.calls {
        let tiles = match of_calls.last() {
            Some(before) => before.follower(flow, at, cut),
            None => Tiles::alone(flow, at, cut),
        };
        of_calls.push(tiles.map_err(|error| Unsupported::at(flow, at, error.to_string()))?);
    }
    Ok(by_tile(of_calls.into_iter().map(|tiles| tiles.parts)))
}

/// From the tiles of each call to the calls of each tile.
fn by_tile(of_calls: impl IntoIterator<Item = Vec<Part>>) -> Vec<Vec<Part>> {
    let mut tiles: Vec<Vec<Part>> = Vec::new();
    for calls in of_calls {
        tiles.resize_with(calls.len(), Vec::new);
        tiles.iter_mut().zip(calls).for_each(|(tile, call)| tile.push(call));
    }
    tiles
}

/// The device body of a call's instruction.
fn body(flow: &Flow<'_>, at: usize, instruction: InstructionId) -> Result<Body, Unsupported> {
    let signature = flow.signature(at).ok_or_else(|| Unsupported::at(flow, at, "the call names no instruction"))?;
    let entry = Registry::linked()
        .and_then(|registry| registry.get(&signature.path))
        .map_err(|error| Unsupported::at(flow, at, error.to_string()))?;
    let none = || {
        let what =
            format!("`{}` has no device body; name one in its `#[instruction(.., cuda = \"..\")]`", signature.path);
        Unsupported::at(flow, at, what)
    };
    Ok(Body { signature: signature.clone(), instruction, text: entry.cuda.ok_or_else(none)? })
}

impl Planner<'_> {
    /// The phase of a chain; `tiled` is there unless it streams.
    pub(super) fn chain(&mut self, chain: &Chain, tiled: Option<Tiled>) -> Result<(), Unsupported> {
        let Some(Tiled { tiles, workers }) = tiled.map_or_else(|| self.dealt(chain), |tiled| Ok(Some(tiled)))? else {
            return Ok(());
        };
        let sequence = self.sequence(chain)?;
        let names = chain.calls.iter().filter_map(|&at| self.flow.signature(at)).map(|signature| &signature.name[..]);
        let name = names.collect::<Vec<_>>().join("+");
        let label = match self.flow.call(chain.calls[0]).indices.values().next() {
            Some(layer) => format!("{name} {layer}"),
            None => name,
        };
        let passed = passed(self.flow, chain);
        let wanted = last_result(self.flow, chain).is_some_and(|result| self.flow.kind(result) == BufferKind::Output);
        let mut of_program = Vec::with_capacity(tiles.len());
        for ((parts, rows), &worker) in tiles.into_iter().zip(&workers) {
            let rows = rows.map(|rows| CallRows { first: rows.start, end: rows.end, wanted });
            let mut locals = HashMap::new();
            let mut calls = Vec::with_capacity(parts.len());
            for (number, (part, &at)) in parts.iter().zip(&chain.calls).enumerate() {
                let mut operands = Vec::with_capacity(part.operands.len());
                for operand in &part.operands {
                    operands.push(match passed.contains(&operand.tensor) {
                        true => self.local(operand, &mut locals),
                        false => self.operand(at, operand, worker)?,
                    });
                }
                let instruction = self.plan.bodies[self.plan.sequences[sequence].steps[number].body].instruction;
                calls.push(Call { instruction, operands, params: part.params.clone(), rows });
            }
            of_program.push(calls);
        }
        let phase = self.begin_phase(Phase::new(Generic { sequence, label, tiles: of_program }));
        for (tile, &worker) in (0..).zip(&workers) {
            self.task(phase, worker as usize, Work::Tile(tile));
        }
        Ok(())
    }

    /// Distributes the rows of a chain that streams over the workers, in whole units, so that the
    /// sizes of their tapes stay balanced.
    fn dealt(&mut self, chain: &Chain) -> Result<Option<Tiled>, Unsupported> {
        let (Some(stream), at) = (chain.stream, chain.calls[0]) else { return Ok(None) };
        let weight = named(self.flow, at, stream.operand).map_or(&[][..], |weight| self.flow.shape(weight));
        let &[rows, columns] = weight else { return Ok(None) };
        stream.check_shape(rows, columns).map_err(|error| Unsupported::at(self.flow, at, error.to_string()))?;
        let mut order: Vec<usize> = (0..self.load.len()).collect();
        order.sort_by_key(|&worker| self.load[worker]);
        let units = level(rows / stream.unit, &order, &[]);
        let dealt: Vec<(u32, Range<u32>)> = (0..).zip(units).filter(|(_, units)| !units.is_empty()).collect();
        let rows = |units: &Range<u32>| i64::from(units.start * stream.unit)..i64::from(units.end * stream.unit);
        let cuts: Vec<Range<i64>> = dealt.iter().map(|(_, units)| rows(units)).collect();
        for (worker, units) in &dealt {
            self.stream(*worker as usize, (stream.layout.bytes)(units.len() as u32 * stream.unit, columns));
        }
        let mut of_calls = Vec::with_capacity(chain.calls.len());
        for &at in &chain.calls {
            let tiles = Tiles::at(self.flow, at, &cuts);
            let tiles = tiles.map_err(|error| Unsupported::at(self.flow, at, error.to_string()))?;
            let tiles =
                tiles.ok_or_else(|| Unsupported::at(self.flow, at, "its tiles are not rows of a streamed weight"))?;
            of_calls.push(tiles.parts);
        }
        let workers = dealt.iter().map(|&(worker, _)| worker).collect();
        let tiles = by_tile(of_calls).into_iter().map(|tile| (tile, None)).collect();
        Ok(Some(Tiled { tiles, workers }))
    }

    /// The number of the sequence of a chain's bodies.
    fn sequence(&mut self, chain: &Chain) -> Result<usize, Unsupported> {
        let passed = passed(self.flow, chain);
        let mut steps = Vec::with_capacity(chain.calls.len());
        for (number, &at) in chain.calls.iter().enumerate() {
            let stream = chain.stream.filter(|_| number == 0);
            let params = self.flow.signature(at).map_or(&[][..], |signature| &signature.params);
            let mut tensors = params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor { .. }));
            let mut view = |tensor: TensorId| {
                let name = tensors.next().map_or("", |param| param.name.as_str());
                match stream {
                    _ if passed.contains(&tensor) => View::Local,
                    Some(stream) if stream.operand == name => View::Stream,
                    Some(stream) if stream.arrives.contains(&name) => View::Packets,
                    _ => View::Buffer,
                }
            };
            let views = self.flow.call(at).operands.iter().map(|operand| view(operand.tensor)).collect();
            steps.push(Step { body: self.body(at)?, views });
        }
        let sequence = Sequence { steps, stream: chain.stream };
        let known = self.plan.sequences.iter().position(|known| *known == sequence);
        Ok(known.unwrap_or_else(|| {
            self.plan.sequences.push(sequence);
            self.plan.sequences.len() - 1
        }))
    }

    /// A value passed between two calls of a task, as a buffer of the task.
    fn local(&mut self, operand: &PartOperand, locals: &mut HashMap<TensorId, BufferId>) -> Operand {
        let shape: Vec<u32> = operand.region.intervals().iter().map(|i| i.hi.base - i.lo.base).collect();
        let buffer = *locals.entry(operand.tensor).or_insert_with(|| {
            let name = format!("local{}", self.plan.program.buffers.len());
            self.buffer(&name, BufferKind::Local, DType::F32, &shape, Exchange::Counter)
        });
        Operand { buffer, region: Region::full(&shape), access: operand.access, early: false, routed: None }
    }

    /// An operand of a tile as one of the program.
    fn operand(&mut self, at: usize, operand: &PartOperand, worker: u32) -> Result<Operand, Unsupported> {
        let &PartOperand { tensor: id, region, access } = operand;
        let tensor = self.flow.tensor(id);
        let rows = self.plan.rows().is_some();
        let moves = region.intervals().iter().any(|interval| interval.moves());
        if moves && tensor.kind != BufferKind::State {
            return Err(Unsupported::at(
                self.flow,
                at,
                format!("the tile of `{}` moves with the position", tensor.name),
            ));
        }
        let buffer = match (tensor.kind, tensor.dtype) {
            (BufferKind::Input, DType::U32) => {
                let own = if rows { 0..1 } else { worker..worker + 1 };
                return Ok(read(self.plan.token, from_ref(&own)));
            }
            (BufferKind::Input, _) if rows => {
                let what = format!("`{}` is an input of floats, and the schedule has rows", tensor.name);
                return Err(Unsupported::at(self.flow, at, what));
            }
            (BufferKind::State, dtype) => {
                if dtype != DType::F32 {
                    let why = self.why_generic(id).map_or(String::new(), |missed| format!(": {missed}"));
                    let name = &tensor.name;
                    let what = format!("`{name}` is kept in {dtype}, and states of generic tasks in f32{why}");
                    return Err(Unsupported::at(self.flow, at, what));
                }
                if rows {
                    self.check_pages(at, operand)?;
                }
                self.state(id)
            }
            (BufferKind::Activation, DType::F32) if self.groups.packed.contains(&id) => self.value(id, DType::BF16),
            (BufferKind::Activation, dtype @ (DType::F32 | DType::U32)) => self.value(id, dtype),
            (BufferKind::Output, _) => {
                let interval = region.intervals()[0];
                let (first, last) = (interval.lo.base, interval.hi.base);
                let whole = |row: u32| row.is_multiple_of(UNIT) || row == self.plan.sizes.vocab;
                if !first.is_multiple_of(UNIT) || !whole(last) {
                    return Err(Unsupported::at(self.flow, at, "a tile of the logits cuts a unit of 8"));
                }
                let rows = &mut self.rows[worker as usize];
                *rows = if rows.start == rows.end { first..last } else { rows.start..last };
                self.plan.logits
            }
            (BufferKind::Weight, DType::F32 | DType::BF16) | (BufferKind::Input, DType::F32) => self.known(id),
            (_, dtype) => return Err(Unsupported::at(self.flow, at, format!("`{}` is {dtype:?}", tensor.name))),
        };
        let operand = Operand { buffer, region, access, early: tensor.kind == BufferKind::Weight, routed: None };
        if !has_strides(&self.plan, &operand) {
            let what = format!("`{}` is {:?}, too large to be addressed", tensor.name, tensor.shape);
            return Err(Unsupported::at(self.flow, at, what));
        }
        Ok(operand)
    }

    /// Why a call that uses a state runs by its generic body, where more is known than that no
    /// fusion takes it.
    fn why_generic(&self, state: TensorId) -> Option<&Missed> {
        let is_known = |missed: &&Missed| {
            missed.lacks == Lacks::FusedBody && !matches!(missed.because, Because::NoRule | Because::Joined { .. })
        };
        let users = self.flow.users(state);
        self.plan.missed.iter().filter(is_known).find(|missed| users.contains(&missed.call))
    }

    /// The program's buffer of a state. With rows, any worker may have its tiles.
    pub(super) fn state(&mut self, id: TensorId) -> BufferId {
        if let Some(&known) = self.buffers.get(&id) {
            return known;
        }
        let Buffer { name, dtype, shape, .. } = self.flow.tensor(id);
        let state = self.buffer(name, BufferKind::State, *dtype, shape, Exchange::Counter);
        self.buffers.insert(id, state);
        match self.plan.rows() {
            Some(_) => self.exchange(state),
            None => state,
        }
    }

    /// Checks that a tile of a state can be paged: it moves in one dimension, the same as the
    /// state's other tiles, and ends at the position of its row.
    fn check_pages(&mut self, at: usize, operand: &PartOperand) -> Result<(), Unsupported> {
        let &PartOperand { tensor: id, region, .. } = operand;
        let tensor = self.flow.tensor(id);
        let moves = |interval: &Interval| interval.moves();
        let mut moving = region.intervals().iter().enumerate().filter(|(_, interval)| moves(interval));
        if let (Some((dim, interval)), None) = (moving.next(), moving.next())
            && interval.hi == Bound::at_pos(1)
            && tensor.shape.get(dim) == Some(&self.plan.sizes.context)
            && *self.positions.entry(id).or_insert(dim) == dim
        {
            return Ok(());
        }
        let what = format!("the tile {region} of `{}` does not lie in pages of positions", tensor.name);
        Err(Unsupported::at(self.flow, at, what))
    }

    /// The number of the body of a call's instruction.
    fn body(&mut self, at: usize) -> Result<usize, Unsupported> {
        let path = self.flow.path(at);
        if let Some(known) = self.plan.bodies.iter().position(|body| body.signature.path == path) {
            return Ok(known);
        }
        let instruction = self.instruction(at);
        self.plan.bodies.push(body(self.flow, at, instruction)?);
        Ok(self.plan.bodies.len() - 1)
    }
}

/// The value that a chain leaves.
fn last_result(flow: &Flow<'_>, chain: &Chain) -> Option<TensorId> {
    chain.calls.last().and_then(|&last| flow.result(last))
}

/// The values that pass between the calls of a chain: the results of all but the last call.
fn passed(flow: &Flow<'_>, chain: &Chain) -> Vec<TensorId> {
    chain.calls[..chain.calls.len() - 1].iter().filter_map(|&at| flow.result(at)).collect()
}
