//! The eager order, run in memory whose every cell knows its contents.

use super::cells::{Cells, elements, footprint, read_only};
use super::source::{Kind, Operand, Source};
use super::{Fault, Reason};
use std::collections::BTreeSet;

/// The contents of a cell: an element of a buffer as a step wrote it; `None` for the step before
/// the launch.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Content {
    buffer: usize,
    element: u64,
    step: Option<u64>,
}

/// Runs the tasks in order for the steps from `first`, each at the next position (all at 0 where
/// there is only one).
///
/// # Errors
/// The first access that cannot have the value the function gives it.
pub fn run(source: &Source, cells: &Cells, first: u64, steps: u64) -> Result<(), Reason> {
    let mut run = Run { source, cells, memory: vec![None; cells.count as usize], locals: BTreeSet::new() };
    run.fill(|kind| matches!(kind, Kind::Weight | Kind::Input | Kind::State));
    for step in 0..steps {
        run.step(step, position(source, first, step))?;
    }
    Ok(())
}

/// The position of a step of a launch.
pub fn position(source: &Source, first: u64, step: u64) -> u64 {
    if source.positions == 1 { 0 } else { first + step }
}

struct Run<'a> {
    source: &'a Source,
    cells: &'a Cells,
    memory: Vec<Option<Content>>,
    /// Elements of local buffers that the running task has written.
    locals: BTreeSet<(usize, u64)>,
}

impl Run<'_> {
    /// Puts the initial values of all buffers of some kinds in memory.
    fn fill(&mut self, kinds: impl Fn(Kind) -> bool) {
        for (buffer, shape) in self.source.buffers.iter().enumerate().filter(|(_, b)| kinds(b.kind) && !read_only(b)) {
            for element in 0..shape.elements() {
                for slot in 0..shape.slots.unwrap_or(1) {
                    let cells = self.cells.of(self.source, buffer, element, slot);
                    self.memory[cells].fill(Some(Content { buffer, element, step: None }));
                }
            }
        }
    }

    fn step(&mut self, step: u64, position: u64) -> Result<(), Reason> {
        let source = self.source;
        let mut packets = BTreeSet::new();
        for (task, body) in source.tasks.iter().enumerate() {
            self.locals.clear();
            for call in &body.calls {
                apart(source, self.cells, &call.operands, task, position)?;
                for operand in call.operands.iter().filter(|operand| operand.access.reads()) {
                    self.read(operand, Fault { task, buffer: operand.buffer, element: 0, position }, step)?;
                }
                for operand in call.operands.iter().filter(|operand| operand.access.writes()) {
                    for element in elements(&source.buffers[operand.buffer], operand, position) {
                        let twice = !packets.insert((operand.buffer, element));
                        if twice && source.buffers[operand.buffer].slots.is_some() {
                            return Err(Reason::Rewritten(Fault { task, buffer: operand.buffer, element, position }));
                        }
                    }
                    self.write(operand, position, step);
                }
            }
        }
        self.end(step)
    }

    fn read(&self, operand: &Operand, at: Fault, step: u64) -> Result<(), Reason> {
        let buffer = &self.source.buffers[operand.buffer];
        if read_only(buffer) {
            return Ok(());
        }
        for element in elements(buffer, operand, at.position) {
            let at = Fault { element, ..at };
            if buffer.kind == Kind::Local {
                if !self.locals.contains(&(operand.buffer, element)) {
                    return Err(Reason::Uninitialised(at));
                }
                continue;
            }
            for content in &self.memory[self.cells.of(self.source, operand.buffer, element, step)] {
                let own = content.filter(|c| (c.buffer, c.element) == (operand.buffer, element));
                let kept = !matches!(buffer.kind, Kind::Activation | Kind::Output);
                match own {
                    Some(own) if kept || own.step == Some(step) => {}
                    None if content.is_some() => return Err(Reason::Clobbered(at)),
                    _ => return Err(Reason::Uninitialised(at)),
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, operand: &Operand, position: u64, step: u64) {
        let id = operand.buffer;
        for element in elements(&self.source.buffers[id], operand, position) {
            if self.source.buffers[id].kind == Kind::Local {
                self.locals.insert((id, element));
            } else {
                let cells = self.cells.of(self.source, id, element, step);
                self.memory[cells].fill(Some(Content { buffer: id, element, step: Some(step) }));
            }
        }
    }

    /// After a step the host reads the outputs, and kept buffers must be intact.
    fn end(&self, step: u64) -> Result<(), Reason> {
        for (id, buffer) in self.source.buffers.iter().enumerate().filter(|(_, buffer)| !read_only(buffer)) {
            let output = buffer.kind == Kind::Output;
            if !output && !matches!(buffer.kind, Kind::Weight | Kind::Input | Kind::State) {
                continue;
            }
            for element in (0..buffer.elements()).filter(|element| !buffer.unread.contains(element)) {
                for content in &self.memory[self.cells.of(self.source, id, element, step)] {
                    match content.filter(|c| (c.buffer, c.element) == (id, element)) {
                        Some(own) if !output || own.step == Some(step) => {}
                        None if content.is_some() => return Err(Reason::Lost { buffer: id }),
                        _ => return Err(Reason::Unwritten { buffer: id }),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Within a call, written regions are disjoint from all other operands.
fn apart(source: &Source, cells: &Cells, operands: &[Operand], task: usize, position: u64) -> Result<(), Reason> {
    for (at, one) in operands.iter().enumerate() {
        let mine = footprint(source, cells, one, position, 0);
        for other in operands[..at].iter().filter(|other| one.access.writes() || other.access.writes()) {
            let theirs = footprint(source, cells, other, position, 0);
            if mine.iter().any(|cell| theirs.contains(cell)) {
                let element = elements(&source.buffers[one.buffer], one, position)[0];
                return Err(Reason::Overlap(Fault { task, buffer: one.buffer, element, position }));
            }
        }
    }
    Ok(())
}

/// Early reads only touch elements that no task writes at any position.
///
/// # Errors
/// The first that is not.
pub fn early_reads(source: &Source, cells: &Cells) -> Result<(), Reason> {
    let operands = || {
        source.tasks.iter().enumerate().flat_map(|(task, body)| {
            body.calls.iter().flat_map(|call| &call.operands).map(move |operand| (task, operand))
        })
    };
    let early = || operands().filter(|(_, operand)| operand.early);
    if early().next().is_none() {
        return Ok(());
    }
    let mut written = BTreeSet::new();
    for position in 0..source.positions {
        for (_, operand) in operands().filter(|(_, operand)| operand.access.writes()) {
            for slot in 0..source.buffers[operand.buffer].slots.unwrap_or(1) {
                written.extend(footprint(source, cells, operand, position, slot));
            }
        }
    }
    for position in 0..source.positions {
        for (task, operand) in early() {
            for slot in 0..source.buffers[operand.buffer].slots.unwrap_or(1) {
                if footprint(source, cells, operand, position, slot).iter().any(|cell| written.contains(cell)) {
                    let element = elements(&source.buffers[operand.buffer], operand, position)[0];
                    return Err(Reason::Early(Fault { task, buffer: operand.buffer, element, position }));
                }
            }
        }
    }
    Ok(())
}
