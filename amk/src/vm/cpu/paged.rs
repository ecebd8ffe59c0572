//! The paged states of a program with rows.

use super::error::VmError;
use super::memory::{out_of_memory, shape};
use crate::rows::{PageGroup, PoolSize};
use crate::tensor::State;
use amk_ir::rows::PageGroups;
use amk_ir::schedule::CACHES;
use amk_ir::{Bound, Buffer, BufferId, BufferKind, Interval, Operand, Program};
use std::collections::BTreeMap;

/// For each state its axis of positions and its group, and the pages of each group.
pub(super) struct Paged {
    pub(super) groups: Vec<PageGroup>,
    of: PageGroups,
    dims: BTreeMap<BufferId, usize>,
}

impl Paged {
    /// Finds the axis of positions: the dimension in which the tiles of a state move.
    ///
    /// # Errors
    /// [`VmError::NotPaged`] for a state in which no dimension or several move, or whose tiles
    /// reach beyond the position of their row, where there is no page.
    pub(super) fn new(program: &Program, rows: u32, pages: Option<&PoolSize>) -> Result<Self, VmError> {
        let one = PoolSize::sequences(1, program.positions as usize);
        let of = PageGroups::of(program);
        let reaches = of.reaches().iter().map(|reach| reach.map(|reach| reach as usize));
        let groups = pages.unwrap_or(&one).groups(reaches, rows as usize);
        let mut dims = BTreeMap::new();
        for (index, buffer) in program.buffers.iter().enumerate() {
            if buffer.kind == BufferKind::State {
                let id = BufferId::from(index);
                let refuse = |why| VmError::NotPaged { state: buffer.name.clone(), why };
                dims.insert(id, position_dim(program, id).map_err(refuse)?);
            }
        }
        Ok(Self { groups, of, dims })
    }

    /// The pool of pages of a state.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(super) fn state(&self, id: BufferId, buffer: &Buffer) -> Result<State, VmError> {
        let refuse = |why| VmError::NotPaged { state: buffer.name.clone(), why };
        if !CACHES.contains(&buffer.dtype) {
            return Err(refuse("its elements are none of f32, bf16 and e4m3"));
        }
        let dim = *self.dims.get(&id).ok_or_else(|| refuse("it has no dimension of positions"))?;
        let bytes = buffer.bytes();
        let shape = shape(buffer).ok_or_else(|| out_of_memory(&buffer.name, bytes))?;
        let group = self.of.group(id).ok_or_else(|| refuse("it has no group"))?;
        State::pool(self.groups[group].pages, shape, (dim, group), buffer.dtype)
            .ok_or_else(|| out_of_memory(&buffer.name, bytes))
    }
}

/// The dimension of positions of a state.
fn position_dim(program: &Program, state: BufferId) -> Result<usize, &'static str> {
    let calls = program.tasks.iter().flat_map(|task| &task.calls);
    let tiles = calls.flat_map(|call| {
        let rows = call.rows;
        let own = move |operand: &&Operand| operand.buffer == state;
        call.operands.iter().filter(own).filter_map(move |operand| rows?.region(&operand.region))
    });
    let tiles: Vec<_> = tiles.collect();
    let moves = |interval: &Interval| interval.moves();
    let moving = tiles.iter().flat_map(|tile| tile.intervals().iter().enumerate()).filter(|(_, one)| moves(one));
    let mut dims: Vec<usize> = moving.map(|(dim, _)| dim).collect();
    dims.sort_unstable();
    dims.dedup();
    let last = tiles.first().map(|tile| tile.intervals().len() - 1);
    match dims[..] {
        [dim] if Some(dim) == last => Err("positions are its last dimension, of which a page would cut the rows"),
        [dim] if tiles.iter().all(|tile| [Bound::at_pos(0), Bound::at_pos(1)].contains(&tile.intervals()[dim].hi)) => {
            Ok(dim)
        }
        [_] => Err("a row touches it at another position than its own and those before"),
        [] => Err("it has no dimension of positions, so rows of a sequence would share it"),
        _ => Err("its tiles move in several dimensions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a state of this shape, to which two rows append at this tile, does not lie in pages.
    fn refused(shape: &str, tile: &str) -> Option<String> {
        let text = format!(
            "program @p\npositions 4\nrows 2\ninstruction i0 \"ops::append\" append(mut cache)\n\
             buffer b0 @cache state f32[{shape}]\ntask t0: append(mut b0[{tile}]) rows 0..2\nworker w0: t0"
        );
        let program = amk_ir::text::parse(&text).expect("a program");
        Paged::new(&program, 2, None).err().map(|error| error.to_string())
    }

    #[test]
    fn the_dimension_of_positions_is_one_before_the_last() {
        assert_eq!(refused("4, 2", "pos..pos+2, .."), None);
        assert_eq!(refused("4, 2", "0..pos+2, .."), None);
        assert_eq!(refused("4, 2", "0..pos+1, .."), None, "each row has the positions before its own");
        assert!(refused("6, 2", "pos..pos+3, ..").is_some_and(|why| why.contains("another position")));
        assert!(refused("2, 4", ".., pos..pos+2").is_some_and(|why| why.contains("its last dimension")));
        assert!(refused("4", "pos..pos+2").is_some_and(|why| why.contains("its last dimension")));
        assert!(refused("4, 2", "..,  ..").is_some_and(|why| why.contains("no dimension of positions")));
    }
}
