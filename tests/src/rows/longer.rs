//! A program with more positions: the same tiles, where there is room for all rows of a sequence.

use amk_ir::{BufferKind, Interval, Program};

/// The program as one without rows, in which each call is for all of its rows, and states have room
/// for all rows after the last position.
pub fn ordinary(program: &Program) -> Program {
    let mut ordinary = Program { rows: None, positions: program.positions, ..longer(program) };
    ordinary.tasks.iter_mut().flat_map(|task| &mut task.calls).for_each(|call| call.rows = None);
    ordinary
}

/// The program with a position more for each row after the first. Dimensions in which tiles move
/// become longer, and tiles that end where these do.
pub fn longer(program: &Program) -> Program {
    let more = program.rows.unwrap_or(1).saturating_sub(1);
    let mut longer = program.clone();
    longer.positions += more;
    for (id, buffer) in longer.buffers.iter_mut().enumerate() {
        if !matches!(buffer.kind, BufferKind::State | BufferKind::Weight) {
            continue;
        }
        let calls = || program.tasks.iter().flat_map(|task| &task.calls);
        let tiles = || calls().flat_map(|call| &call.operands).filter(|operand| operand.buffer.index() == id);
        for (dim, extent) in buffer.shape.iter_mut().enumerate() {
            let of = |interval: &Interval| interval.moves();
            if tiles().filter_map(|tile| tile.region.intervals().get(dim)).any(of) {
                *extent += more;
            }
        }
    }
    for operand in longer.tasks.iter_mut().flat_map(|task| &mut task.calls).flat_map(|call| &mut call.operands) {
        let (Some(old), Some(new)) =
            (program.buffers.get(operand.buffer.index()), longer.buffers.get(operand.buffer.index()))
        else {
            continue;
        };
        let extents = old.shape.iter().zip(&new.shape);
        for (interval, (&old, &new)) in operand.region.intervals_mut().iter_mut().zip(extents) {
            let hi = &mut interval.hi;
            if !hi.pos && hi.base == old && new > old {
                hi.base = new;
            }
        }
    }
    longer
}
