//! Rows: one step computes the annotated function for up to [`crate::Program::rows`] rows.
//!
//! A row is a token at a position of a sequence. The meaning of a step is the function called for
//! row 0, then for row 1, and so on, each with the states of its sequence. Rows of a sequence are
//! adjacent and have consecutive positions.
//!
//! In a program with rows, activations, outputs, inputs and locals have the rows as their first
//! dimension, and each call names its rows ([`CallRows`]). A step with fewer rows omits the others.
//! Tiles of states are written as if all rows belonged to one sequence whose row 0 is at `pos`: an
//! append of rows 2 to 5 is to `pos+2..pos+5`. The tile of row `j` of a call for `j0..j1` is the
//! call's tile with a moving lower bound raised by `j - j0` and a moving upper bound lowered by
//! `j1 - 1 - j` ([`CallRows::region`]).

use crate::{Bound, BufferId, BufferKind, Call, Interval, Operand, Program, Region};
use core::cmp::Reverse;
use core::fmt;
use core::ops::Range;
use serde::{Deserialize, Serialize};

/// The rows that a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRows {
    /// The first row.
    pub first: u32,
    /// One past the last row.
    pub end: u32,
    /// Only rows whose outputs are wanted are computed.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub wanted: bool,
}

impl CallRows {
    /// The rows as a range.
    pub const fn range(self) -> Range<u32> {
        self.first..self.end
    }

    /// Number of rows.
    pub const fn len(self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the tile of any row on a state, relative to the position of that row; a lower bound
    /// before position 0 becomes 0. `None` if an upper bound would be before the row.
    pub fn region(self, tile: &Region) -> Option<Region> {
        let mut row = *tile;
        for interval in row.intervals_mut() {
            *interval = Interval {
                lo: moved(interval.lo, -i64::from(self.first))?,
                hi: moved(interval.hi, -i64::from(self.end.saturating_sub(1))).filter(|hi| !hi.behind)?,
            };
        }
        Some(row)
    }

    /// Returns the tile of all rows on a state, given one row's tile relative to its position;
    /// `None` beyond 32 bits.
    pub fn hull(self, row: &Region) -> Option<Region> {
        let mut tile = *row;
        for interval in tile.intervals_mut() {
            *interval = Interval {
                lo: moved(interval.lo, self.first.into())?,
                hi: moved(interval.hi, self.end.checked_sub(1)?.into())?,
            };
        }
        Some(tile)
    }
}

/// The states of a program with rows, grouped by how far back rows read them: the states of a group
/// share one page table for each sequence, and their pages are allocated and returned together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageGroups {
    reaches: Vec<Reach>,
    /// By buffer, the group of a state.
    of: Vec<Option<usize>>,
}

/// The number of positions from the first that a row reads of a state up to and including its own:
/// `None` if some row reads from the first position on, or if no tile of the state moves.
pub type Reach = Option<u32>;

impl PageGroups {
    /// The groups of a program: one for each distinct [`Reach`] of its states.
    pub fn of(program: &Program) -> Self {
        let of_states = reaches(program);
        let reaches = distinct(of_states.iter().copied().flatten());
        let number = |reach| reaches.iter().position(|&known| known == reach);
        let of = of_states.into_iter().map(|reach| reach.and_then(number)).collect();
        Self { reaches, of }
    }

    /// The reach of each group.
    pub fn reaches(&self) -> &[Reach] {
        &self.reaches
    }

    /// The group of a state.
    pub fn group(&self, state: BufferId) -> Option<usize> {
        self.of.get(state.index()).copied().flatten()
    }
}

/// Returns the reaches of groups in order, given some states' reaches: all positions first, then in
/// descending order. Without states there is still one group, with the reach of a row's own
/// position.
pub fn distinct(reaches: impl IntoIterator<Item = Reach>) -> Vec<Reach> {
    let mut distinct: Vec<Reach> = reaches.into_iter().collect();
    distinct.sort_unstable_by_key(|reach| Reverse(reach.unwrap_or(u32::MAX)));
    distinct.dedup();
    if distinct.is_empty() { vec![Some(1)] } else { distinct }
}

/// The reach of each state, by buffer. A row writes only at its own position (AMK0802).
fn reaches(program: &Program) -> Vec<Option<Reach>> {
    let states = program.buffers.iter().map(|buffer| buffer.kind == BufferKind::State);
    let mut reaches: Vec<Option<Reach>> = states.map(|state| state.then_some(Some(1))).collect();
    for call in program.tasks.iter().flat_map(|task| &task.calls) {
        for operand in call.operands.iter().filter(|operand| operand.access.reads()) {
            if let Some(Some(reach)) = reaches.get_mut(operand.buffer.index()) {
                *reach = reach.zip(read_back(call, operand)).map(|(known, found)| known.max(found));
            }
        }
    }
    let all = program.positions;
    reaches.iter_mut().flatten().for_each(|reach| *reach = reach.filter(|&reach| reach < all));
    reaches
}

/// The reach of a call's read of a state.
fn read_back(call: &Call, operand: &Operand) -> Reach {
    let row = call.rows?.region(&operand.region)?;
    let moving = row.intervals().iter().find(|interval| interval.moves())?;
    let behind = moving.lo.pos.then(|| u32::try_from(-moving.lo.offset()).unwrap_or(0))?;
    behind.checked_add(1)
}

/// Shifts a bound that moves with the position by this many positions.
fn moved(bound: Bound, by: i64) -> Option<Bound> {
    if bound.pos { Bound::from_pos(bound.offset() + by) } else { Some(bound) }
}

impl fmt::Display for CallRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = if self.wanted { " wanted" } else { "" };
        write!(f, "rows {}..{}{wanted}", self.first, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(lo: Bound, hi: Bound) -> Region {
        Region::new(&[Interval { lo, hi }]).expect("a region")
    }

    #[test]
    fn the_tile_of_rows_is_the_union_of_the_tiles_of_each() {
        let rows = CallRows { first: 2, end: 5, wanted: false };
        let append = interval(Bound::at_pos(0), Bound::at_pos(1));
        assert_eq!(rows.hull(&append), Some(interval(Bound::at_pos(2), Bound::at_pos(5))));
        let read = interval(Bound::fixed(0), Bound::at_pos(1));
        assert_eq!(rows.hull(&read), Some(interval(Bound::fixed(0), Bound::at_pos(5))));
        let last = |window: u32| interval(Bound::behind(window - 1), Bound::at_pos(1));
        assert_eq!(rows.hull(&last(2)), Some(interval(Bound::at_pos(1), Bound::at_pos(5))));
        assert_eq!(rows.hull(&last(4)), Some(interval(Bound::behind(1), Bound::at_pos(5))));
        for row in [append, read, last(2), last(3), last(4)] {
            assert_eq!(rows.hull(&row).and_then(|tile| rows.region(&tile)), Some(row));
        }
        assert_eq!(rows.region(&append), None, "row 4 would end before its position");
        assert_eq!(rows.to_string(), "rows 2..5");
    }

    #[test]
    fn states_are_grouped_by_what_is_read_furthest_back() {
        let program = |reads: &str| {
            let text = format!(
                "program @p\npositions 100\nrows 2\ninstruction i0 \"ops::read\" read(a, b, c)\n\
                 buffer b0 @a state f32[100, 2]\nbuffer b1 @b state f32[2, 100, 2]\nbuffer b2 @c state f32[100, 2]\n\
                 task t0: read({reads}) rows 0..2\nworker w0: t0"
            );
            crate::text::parse(&text).expect("a program")
        };
        for (reads, reaches, groups) in [
            ("max(0, pos-3)..pos+2 | max(0, pos-9)..pos+2 | max(0, pos-3)..pos+2", &[Some(10), Some(4)][..], [1, 0, 1]),
            ("pos..pos+2 | pos..pos+2 | pos..pos+2", &[Some(1)], [0, 0, 0]),
            ("max(0, pos-3)..pos+2 | 0..pos+2 | pos..pos+2", &[None, Some(4), Some(1)], [1, 0, 2]),
            ("max(0, pos-3)..pos+2 | .. | 0..pos+2", &[None, Some(4)], [1, 0, 0]),
            ("max(0, pos-3)..pos+2 | max(0, pos-99)..pos+2 | max(0, pos-3)..pos+2", &[None, Some(4)], [1, 0, 1]),
        ] {
            let [a, b, c] = <[&str; 3]>::try_from(reads.split(" | ").collect::<Vec<_>>()).expect("three");
            let found = PageGroups::of(&program(&format!("b0[{a}, ..], b1[.., {b}, ..], b2[{c}, ..]")));
            assert_eq!(found.reaches(), reaches, "{reads}");
            assert_eq!([0, 1, 2].map(|state| found.group(BufferId(state))), groups.map(Some), "{reads}");
        }
    }

    #[test]
    fn a_program_without_states_has_a_group_all_the_same() {
        assert_eq!(distinct([]), [Some(1)]);
        assert_eq!(distinct([Some(3), None, Some(7), Some(3)]), [None, Some(7), Some(3)]);
    }
}
