//! The memory of a program's buffers.

use super::area::{Area, Home};
use super::error::VmError;
use super::paged::Paged;
use crate::rows::{PageGroup, PoolSize};
use crate::tensor::{Cells, Shape, State, Weight};
use crate::vm::Bindings;
use amk_ir::schedule::CACHES;
use amk_ir::{Buffer, BufferId, BufferKind, DType, Exchange, Operand, Program, Region};
use std::sync::Arc;

/// The binding of each buffer.
pub(super) struct Memory {
    bound: Vec<Bound>,
    /// Bytes of local memory per worker.
    pub(super) local_bytes: usize,
    /// Names of the token inputs in order.
    pub(super) token_inputs: Vec<String>,
    /// The groups of the states; none in a program without rows.
    pub(super) groups: Vec<PageGroup>,
}

/// The kinds of bindings.
pub(super) enum Bound {
    Weight(Weight),
    State(State),
    /// A token that is an argument of each step; the number of the input.
    TokenInput(usize),
    /// Memory.
    Home(Home),
}

impl Memory {
    pub(super) fn new(program: &Program, bindings: &Bindings, pages: Option<&PoolSize>) -> Result<Self, VmError> {
        let pages = program.rows.map(|rows| Paged::new(program, rows, pages)).transpose()?;
        let arena = arena(program)?;
        let (locals, local_bytes) = locals(program)?;
        let mut memory = Self {
            bound: Vec::with_capacity(program.buffers.len()),
            local_bytes,
            token_inputs: Vec::new(),
            groups: pages.as_ref().map_or_else(Vec::new, |pages| pages.groups.clone()),
        };
        for (index, buffer) in program.buffers.iter().enumerate() {
            let bound = match buffer.kind {
                BufferKind::Weight => Bound::Weight(bound_weight(buffer, bindings)?),
                BufferKind::Input if is_token(program, buffer) => {
                    memory.token_inputs.push(buffer.name.clone());
                    Bound::TokenInput(memory.token_inputs.len() - 1)
                }
                BufferKind::Local => Bound::Home(Home::Local { offset: locals[index] }),
                BufferKind::State if CACHES.contains(&buffer.dtype) => Bound::State(match &pages {
                    Some(pages) => pages.state(BufferId::from(index), buffer)?,
                    None => state(buffer, bindings, arena.as_ref())?,
                }),
                _ => {
                    let (cells, offset, slots) = cells(buffer, arena.as_ref())?;
                    Bound::Home(Home::Shared { cells, offset, slots, slot_bytes: buffer.bytes() as usize })
                }
            };
            memory.bound.push(bound);
        }
        Ok(memory)
    }

    pub(super) fn all(&self) -> &[Bound] {
        &self.bound
    }

    pub(super) fn bound(&self, buffer: BufferId) -> &Bound {
        &self.bound[buffer.index()]
    }

    /// The memory of a tensor operand.
    pub(super) fn area(&self, program: &Program, operand: &Operand) -> Result<Area, &'static str> {
        let buffer = &program.buffers[operand.buffer.index()];
        match self.bound(operand.buffer) {
            Bound::Home(home) if matches!(buffer.dtype, DType::F32 | DType::BF16) => tile(program, home, operand),
            Bound::Home(_) | Bound::TokenInput(_) => Err("its elements are neither f32 nor bf16"),
            Bound::Weight(_) => Err("it is a weight, not a tensor of the step"),
            Bound::State(_) => Err("it is a state, not a tensor of the step"),
        }
    }

    /// The memory of a token operand.
    pub(super) fn word(&self, program: &Program, operand: &Operand) -> Result<Area, &'static str> {
        let buffer = &program.buffers[operand.buffer.index()];
        match self.bound(operand.buffer) {
            Bound::Home(home) if buffer.dtype == DType::U32 => {
                tile(program, home, operand).and_then(|area| area.is_one().then_some(area).ok_or("it is not a token"))
            }
            _ => Err("it is not a token"),
        }
    }
}

/// The memory of an operand: in a program with rows, of one row.
fn tile(program: &Program, home: &Home, operand: &Operand) -> Result<Area, &'static str> {
    let buffer = &program.buffers[operand.buffer.index()];
    let whole = shape(buffer).ok_or("it does not fit into memory")?;
    if program.rows.is_none() || buffer.kind == BufferKind::State {
        return Ok(Area::new(home.clone(), buffer.dtype, whole, operand.region));
    }
    let row = whole.get(1..).and_then(|extents| Shape::new(extents).ok());
    let region = operand.region.intervals().get(1..).and_then(Region::new);
    let (row, region) = row.zip(region).ok_or("it has no dimension of rows")?;
    Ok(Area::new(home.clone(), buffer.dtype, row, region).in_rows())
}

/// Whether an input is a token of each step, or of each row.
fn is_token(program: &Program, buffer: &Buffer) -> bool {
    buffer.dtype == DType::U32 && buffer.len() == u64::from(program.rows.unwrap_or(1))
}

pub(super) fn out_of_memory(buffer: &str, bytes: u64) -> VmError {
    VmError::Memory { buffer: buffer.to_owned(), bytes }
}

/// The extents, if they fit in memory.
pub(super) fn shape(buffer: &Buffer) -> Option<Shape> {
    Shape::new(&buffer.shape.iter().map(|&extent| extent as usize).collect::<Vec<_>>()).ok()
}

fn allocate(name: &str, bytes: u64) -> Result<Arc<Cells>, VmError> {
    let cells = usize::try_from(bytes).ok().and_then(Cells::zeroed);
    cells.map(Arc::new).ok_or_else(|| out_of_memory(name, bytes))
}

/// Returns a value for each counter; a program may have very many.
pub(super) fn of_counters<T: Default>(count: usize) -> Result<Vec<T>, VmError> {
    let mut values = Vec::new();
    let bytes = count.saturating_mul(size_of::<T>()) as u64;
    values.try_reserve_exact(count).map_err(|_| out_of_memory("counters", bytes))?;
    values.resize_with(count, T::default);
    Ok(values)
}

/// The memory that placed buffers share.
fn arena(program: &Program) -> Result<Option<Arc<Cells>>, VmError> {
    let ends =
        program.buffers.iter().filter_map(|buffer| buffer.place.map(|place| place.saturating_add(bytes_of(buffer))));
    ends.max().map(|bytes| allocate("the arena", bytes)).transpose()
}

const fn slots(buffer: &Buffer) -> u64 {
    match buffer.exchange {
        Exchange::Counter => 1,
        Exchange::Packet { slots } => slots as u64,
    }
}

/// All copies of a buffer.
fn bytes_of(buffer: &Buffer) -> u64 {
    buffer.bytes().saturating_mul(slots(buffer))
}

/// The memory of a shared buffer, its first byte and its number of copies.
fn cells(buffer: &Buffer, arena: Option<&Arc<Cells>>) -> Result<(Arc<Cells>, usize, u64), VmError> {
    shape(buffer).ok_or_else(|| out_of_memory(&buffer.name, buffer.bytes()))?;
    match (buffer.place, arena) {
        (Some(place), Some(arena)) => Ok((Arc::clone(arena), place as usize, slots(buffer))),
        _ => Ok((allocate(&buffer.name, bytes_of(buffer))?, 0, slots(buffer))),
    }
}

/// The offset of each local buffer in its worker's memory, and the size of that memory: a task's
/// buffers are contiguous, and the next task starts again at 0.
fn locals(program: &Program) -> Result<(Vec<usize>, usize), VmError> {
    let mut offsets = vec![None; program.buffers.len()];
    let mut most = 0;
    for task in &program.tasks {
        let mut next = 0usize;
        for operand in task.calls.iter().flat_map(|call| &call.operands) {
            let buffer = &program.buffers[operand.buffer.index()];
            let offset = &mut offsets[operand.buffer.index()];
            if buffer.kind == BufferKind::Local && offset.is_none() {
                *offset = Some(next);
                let bytes = usize::try_from(buffer.bytes()).ok();
                let end = bytes.and_then(|bytes| next.checked_add(bytes)?.checked_next_multiple_of(Cells::ALIGN));
                next = end.ok_or_else(|| out_of_memory(&buffer.name, buffer.bytes()))?;
            }
        }
        most = most.max(next);
    }
    Ok((offsets.into_iter().map(Option::unwrap_or_default).collect(), most))
}

pub(super) fn misshaped(buffer: &Buffer, found: &[usize]) -> Result<(), VmError> {
    if found.iter().map(|&extent| extent as u64).eq(buffer.shape.iter().map(|&extent| u64::from(extent))) {
        return Ok(());
    }
    Err(VmError::Misshaped { buffer: buffer.name.clone(), expected: buffer.shape.clone(), found: found.to_vec() })
}

/// The bound weight. Its element type may be another than the program's: instructions read all of
/// them.
fn bound_weight(buffer: &Buffer, bindings: &Bindings) -> Result<Weight, VmError> {
    let weight =
        bindings.weights().get(&buffer.name).ok_or_else(|| VmError::Unbound { buffer: buffer.name.clone() })?;
    misshaped(buffer, weight.shape())?;
    Ok(weight.clone())
}

/// A state. One of bf16 or e4m3 holds its elements as f32, in separate memory: no other buffer may
/// share a state's bytes.
fn state(buffer: &Buffer, bindings: &Bindings, arena: Option<&Arc<Cells>>) -> Result<State, VmError> {
    let shape = shape(buffer).ok_or_else(|| out_of_memory(&buffer.name, buffer.bytes()))?;
    let (cells, offset) = match buffer.dtype {
        DType::F32 => cells(buffer, arena).map(|(cells, offset, _)| (cells, offset))?,
        _ => (allocate(&buffer.name, buffer.len().saturating_mul(size_of::<f32>() as u64))?, 0),
    };
    let mut state = State::whole(cells, offset / size_of::<f32>(), shape, buffer.dtype);
    if let Some(first) = bindings.states().get(&buffer.name) {
        misshaped(buffer, first.shape())?;
        state.copy_from(first);
    }
    Ok(state)
}
