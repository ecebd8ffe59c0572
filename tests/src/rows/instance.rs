//! A step of a program with rows as an ordinary program: each call is made once for each of its
//! rows that is in the step, on the memory of the row's sequence.

use super::form::{has_rows, of_row, whole};
use super::step::{GROUPS, Step};
use crate::oracle::source::{Access, Bound, Buffer, Call, Kind, Operand, Rows, Signature, Source, Task};
use std::collections::BTreeMap;

/// The program of a step.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The program, with one position.
    pub source: Source,
    /// Of each task: where each of its calls comes from.
    pub made: Vec<Vec<Made>>,
    /// Of each buffer: the buffer of the program with rows, and which of its memories this is.
    pub memories: Vec<(usize, usize)>,
    /// Buffers that are pages of several sequences.
    pub shared: Vec<usize>,
}

/// A call of a step: one of the program's, for one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// The call's number in its task.
    pub call: usize,
    /// The row.
    pub row: usize,
}

/// The dimension of positions of each state that lies in pages: tiles move in it alone, and no row
/// reaches beyond its own position there.
pub fn paged(source: &Source) -> BTreeMap<usize, usize> {
    let mut dims = BTreeMap::new();
    for id in (0..source.buffers.len()).filter(|&id| source.buffers[id].kind == Kind::State) {
        let buffer = &source.buffers[id];
        let calls = source.tasks.iter().flat_map(|task| &task.calls);
        let tiles = calls.flat_map(|call| call.operands.iter().filter_map(move |operand| Some((call.rows?, operand))));
        let tiles: Vec<_> = tiles.filter(|(_, operand)| operand.buffer == id).collect();
        let moving = tiles.iter().flat_map(|(_, operand)| whole(buffer, operand).into_iter().enumerate());
        let mut moving: Vec<usize> = moving.filter(|(_, (lo, hi))| lo.pos || hi.pos).map(|(dim, _)| dim).collect();
        moving.sort_unstable();
        moving.dedup();
        let [dim] = moving[..] else { continue };
        let behind = |(rows, operand): &(Rows, &Operand)| {
            let hi = of_row(buffer, whole(buffer, operand)[dim], *rows, 0).map(|(_, hi)| hi);
            whole(buffer, operand)[dim].1.pos && hi.is_some_and(|hi| hi <= 1)
        };
        if buffer.place.is_none() && tiles.iter().all(behind) {
            dims.insert(id, dim);
        }
    }
    dims
}

/// The program of a step; the form has been checked.
pub fn instance(source: &Source, step: &Step) -> Instance {
    let out = Source { rows: None, positions: 1, instructions: Vec::new(), tasks: Vec::new(), ..source.clone() };
    let mut built = Builder {
        source,
        step,
        paged: paged(source),
        memory: BTreeMap::new(),
        out: Instance {
            source: out,
            made: Vec::new(),
            memories: (0..source.buffers.len()).map(|id| (id, 0)).collect(),
            shared: Vec::new(),
        },
    };
    built.outputs();
    source.tasks.iter().for_each(|task| built.task(task));
    built.out
}

struct Builder<'a> {
    source: &'a Source,
    step: &'a Step,
    paged: BTreeMap<usize, usize>,
    /// Of a state and a sequence or page of it: its buffer.
    memory: BTreeMap<(usize, usize), usize>,
    out: Instance,
}

impl Builder<'_> {
    /// The host reads outputs of wanted rows.
    fn outputs(&mut self) {
        for buffer in self.out.source.buffers.iter_mut().filter(|buffer| buffer.kind == Kind::Output) {
            let row = buffer.elements() / buffer.shape[0];
            let unread =
                (0..buffer.shape[0]).filter(|&n| !self.step.rows.get(n as usize).is_some_and(|row| row.wanted));
            buffer.unread = unread.flat_map(|n| n * row..(n + 1) * row).collect();
        }
    }

    fn task(&mut self, task: &Task) {
        let mut built = Task { calls: Vec::new(), waits: task.waits.clone(), signals: task.signals.clone() };
        let mut made = Vec::new();
        for (number, call) in task.calls.iter().enumerate() {
            let Some(rows) = call.rows else { continue };
            for n in rows.first as usize..(rows.end as usize).min(self.step.rows.len()) {
                if self.step.rows[n].wanted || !rows.wanted {
                    built.calls.push(self.call(call, rows, n));
                    made.push(Made { call: number, row: n });
                }
            }
        }
        self.out.source.tasks.push(built);
        self.out.made.push(made);
    }

    /// A call for one row. Empty tiles are left out, so it has an instruction of its own.
    fn call(&mut self, call: &Call, rows: Rows, n: usize) -> Call {
        let operands: Vec<Operand> = call.operands.iter().flat_map(|operand| self.operand(operand, rows, n)).collect();
        let accesses: Vec<Access> = operands.iter().map(|operand| operand.access).collect();
        let known = self.out.source.instructions.iter().position(|signature| signature.accesses == accesses);
        let number = known.unwrap_or_else(|| {
            let name = format!("f{}", self.out.source.instructions.len());
            self.out.source.instructions.push(Signature { name, accesses, params: 0 });
            self.out.source.instructions.len() - 1
        });
        Call { name: format!("f{number}"), operands, params: 0, rows: None }
    }

    /// The tile of a row, in pieces where it lies in several pages.
    fn operand(&mut self, operand: &Operand, rows: Rows, n: usize) -> Vec<Operand> {
        let (buffer, row) = (&self.source.buffers[operand.buffer], self.step.rows[n]);
        let mut tile: Vec<(u64, u64)> = Vec::new();
        for (dim, interval) in whole(buffer, operand).into_iter().enumerate() {
            let at = if buffer.kind == Kind::Local { n as u64 - rows.first } else { n as u64 };
            let own = match dim {
                0 if has_rows(buffer.kind) => Some((at, at + 1)),
                _ => of_row(buffer, interval, rows, row.position),
            };
            tile.push(own.unwrap_or((0, 0)));
        }
        if tile.iter().any(|(lo, hi)| lo >= hi) {
            return Vec::new();
        }
        if buffer.kind != Kind::State {
            return vec![piece(operand, operand.buffer, &tile)];
        }
        let Some(&dim) = self.paged.get(&operand.buffer) else {
            let own = self.memory(operand.buffer, row.sequence, buffer.clone());
            return vec![piece(operand, own, &tile)];
        };
        let (size, (lo, hi)) = (self.step.page, tile[dim]);
        let mut pieces = Vec::new();
        for block in lo / size..hi.div_ceil(size) {
            let page = self.step.tables[operand.buffer % GROUPS][row.sequence][block as usize];
            let mut shape = buffer.clone();
            shape.shape[dim] = size;
            let own = self.memory(operand.buffer, page, shape);
            let inside = |at: u64| at.clamp(block * size, (block + 1) * size) - block * size;
            tile[dim] = (inside(lo), inside(hi));
            pieces.push(piece(operand, own, &tile));
        }
        pieces
    }

    /// The buffer of a state for a sequence, or for a page.
    fn memory(&mut self, state: usize, part: usize, shape: Buffer) -> usize {
        let Instance { source: Source { buffers, .. }, memories, .. } = &mut self.out;
        let in_pages = self.paged.contains_key(&state);
        let id = *self.memory.entry((state, part)).or_insert_with(|| {
            // The first sequence has the buffer that is there.
            if part == 0 && !in_pages {
                return state;
            }
            buffers.push(Buffer { place: None, ..shape });
            memories.push((state, part + 1));
            buffers.len() - 1
        });
        if in_pages && self.step.users(state % GROUPS, part) > 1 && !self.out.shared.contains(&id) {
            self.out.shared.push(id);
        }
        id
    }
}

fn piece(operand: &Operand, buffer: usize, tile: &[(u64, u64)]) -> Operand {
    let fixed = |base| Bound { pos: false, base, back: false };
    let tile = tile.iter().map(|&(lo, hi)| Some((fixed(lo), fixed(hi)))).collect();
    Operand { buffer, tile, ..operand.clone() }
}
