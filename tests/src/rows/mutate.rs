//! Small changes of programs with rows, which mostly make them wrong.

use crate::generate::Rng;
use crate::mutate::{self, Class};
use amk_ir::{Bound, BufferKind, Call, CallRows, Interval, Operand, Program, Region};

/// How a program was changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// As drawn.
    Drawn,
    /// As lowered from a graph.
    Lowered,
    /// A call is made for wanted rows alone, or no longer.
    Wanted,
    /// A call is for other rows, and its tiles stay.
    Rows,
    /// A call is for other rows, with their tiles.
    MoveRows,
    /// A call becomes two of its task, each for some of its rows.
    SplitCall,
    /// Two calls of a task change places.
    SwapCalls,
    /// A row's tile of a state has other bounds.
    Retile,
    /// A step has one row more or less.
    MostRows,
    /// A change that programs without rows have too.
    Plain(Class),
    /// Several changes.
    Several,
}

impl Change {
    /// The single changes of rows.
    pub const ROWS: [Self; 7] =
        [Self::Wanted, Self::Rows, Self::MoveRows, Self::SplitCall, Self::SwapCalls, Self::Retile, Self::MostRows];

    /// The changes that programs without rows have too.
    pub const PLAIN: [Class; 27] = [
        Class::DropWait,
        Class::LowerWait,
        Class::RedirectWait,
        Class::DropSignal,
        Class::RedirectSignal,
        Class::SwapQueue,
        Class::MoveTask,
        Class::SplitWorker,
        Class::StaticToTicket,
        Class::SwapEager,
        Class::ShiftTile,
        Class::WidenTile,
        Class::NarrowTile,
        Class::FollowPosition,
        Class::FollowBound,
        Class::FallBehind,
        Class::Early,
        Class::PacketToCounter,
        Class::CounterToPacket,
        Class::Alias,
        Class::Pipeline,
        Class::MorePositions,
        Class::FewerPositions,
        Class::ForgetState,
        Class::DropCall,
        Class::DropOperand,
        Class::ChangeAccess,
    ];
}

/// Makes a random change, if one that is drawn applies.
pub fn change(rng: &mut Rng, program: &mut Program) -> Option<Change> {
    if rng.chance(50) {
        let class = *rng.pick(&Change::PLAIN)?;
        let mutation = rng.pick(&mutate::sites(program, class)).copied()?;
        *program = mutation.apply(program);
        return Some(Change::Plain(class));
    }
    let change = *rng.pick(&Change::ROWS)?;
    apply(rng, program, change).then_some(change)
}

/// Changes what is about rows; `false` where the change does not apply.
fn apply(rng: &mut Rng, program: &mut Program, change: Change) -> bool {
    if change == Change::MostRows {
        let rows = program.rows.unwrap_or(1);
        program.rows = Some(if rng.chance(50) { rows + 1 } else { rows.saturating_sub(1) });
        return true;
    }
    let most = program.rows.unwrap_or(1).max(1);
    let count = program.tasks.len() as u32;
    let task = rng.below(count) as usize;
    if change == Change::Retile {
        return retile(rng, program);
    }
    let Some(calls) = program.tasks.get_mut(task).map(|task| &mut task.calls) else { return false };
    let at = rng.below(calls.len() as u32) as usize;
    let Some(rows) = calls.get(at).and_then(|call| call.rows) else { return false };
    match change {
        Change::Wanted => calls[at].rows = Some(CallRows { wanted: !rows.wanted, ..rows }),
        Change::Rows => calls[at].rows = Some(other_rows(rng, rows, most)),
        Change::MoveRows => {
            let to = other_rows(rng, rows, most);
            let kind = |operand: &Operand| program.buffers.get(operand.buffer.index()).map(|buffer| buffer.kind);
            return lift(&mut calls[at], rows, to, kind).is_some();
        }
        Change::SplitCall => {
            if rows.len() < 2 {
                return false;
            }
            let middle = rng.between(rows.first + 1, rows.end - 1);
            let mut second = calls[at].clone();
            let kind = |operand: &Operand| program.buffers.get(operand.buffer.index()).map(|buffer| buffer.kind);
            let done = lift(&mut calls[at], rows, CallRows { end: middle, ..rows }, kind)
                .and_then(|()| lift(&mut second, rows, CallRows { first: middle, ..rows }, kind));
            calls.insert(at + 1, second);
            return done.is_some();
        }
        Change::SwapCalls => {
            if at + 1 >= calls.len() {
                return false;
            }
            calls.swap(at, at + 1);
        }
        _ => return false,
    }
    true
}

fn other_rows(rng: &mut Rng, rows: CallRows, most: u32) -> CallRows {
    match rng.below(5) {
        0 => CallRows { end: rows.end + 1, ..rows },
        1 => CallRows { first: rows.first.saturating_sub(1), ..rows },
        2 => CallRows { end: rows.end.saturating_sub(1), ..rows },
        3 if rng.chance(50) => CallRows { first: rows.first + 1, end: rows.end + 1, ..rows },
        3 => CallRows { first: rows.first.saturating_sub(1), end: rows.end.saturating_sub(1), ..rows },
        _ => {
            let first = rng.below(most);
            CallRows { first, end: rng.between(first + 1, most), ..rows }
        }
    }
}

/// Gives a call other rows, with their tiles; `None` where the tiles are not of rows.
fn lift(call: &mut Call, from: CallRows, to: CallRows, kind: impl Fn(&Operand) -> Option<BufferKind>) -> Option<()> {
    if to.is_empty() {
        return None;
    }
    for operand in &mut call.operands {
        match kind(operand)? {
            BufferKind::Weight => {}
            BufferKind::State => operand.region = to.hull(&from.region(&operand.region)?)?,
            BufferKind::Local => *operand.region.intervals_mut().first_mut()? = Interval::fixed(0, to.len()),
            _ => *operand.region.intervals_mut().first_mut()? = Interval::fixed(to.first, to.end),
        }
    }
    call.rows = Some(to);
    Some(())
}

/// Gives rows another tile of a state, in a dimension in which it moves.
fn retile(rng: &mut Rng, program: &mut Program) -> bool {
    let mut found = Vec::new();
    for (task, call) in (0..program.tasks.len()).flat_map(|t| (0..program.tasks[t].calls.len()).map(move |c| (t, c))) {
        for (n, operand) in program.tasks[task].calls[call].operands.iter().enumerate() {
            let buffer = &program.buffers[operand.buffer.index()];
            let moving = operand.region.intervals().iter().position(|interval| interval.moves());
            if let Some(dim) = moving.filter(|_| buffer.kind == BufferKind::State) {
                found.push((task, call, n, dim, buffer.shape[dim]));
            }
        }
    }
    let Some(&(task, call, n, dim, extent)) = rng.pick(&found) else { return false };
    let call = &mut program.tasks[task].calls[call];
    let Some(rows) = call.rows else { return false };
    let operand = &mut call.operands[n];
    let Some(own) = rows.region(&operand.region) else { return false };
    let (zero, all) = (Bound::fixed(0), Bound::fixed(extent));
    let bounds = [
        (zero, Bound::at_pos(0)),
        (zero, Bound::at_pos(1)),
        (zero, Bound::at_pos(2)),
        (zero, all),
        (Bound::behind(1), Bound::at_pos(1)),
        (Bound::behind(2), Bound::at_pos(1)),
        (Bound::behind(1), Bound::at_pos(0)),
        (Bound::at_pos(0), Bound::at_pos(1)),
        (Bound::at_pos(1), Bound::at_pos(2)),
        (Bound::at_pos(0), Bound::at_pos(2)),
        (Bound::at_pos(0), all),
        (Bound::at_pos(1), all),
        (zero, Bound::fixed(1)),
    ];
    let Some(&(lo, hi)) = rng.pick(&bounds) else { return false };
    let mut intervals = own.intervals().to_vec();
    intervals[dim] = Interval { lo, hi };
    let Some(region) = Region::new(&intervals).and_then(|own| rows.hull(&own)) else { return false };
    operand.region = region;
    true
}
