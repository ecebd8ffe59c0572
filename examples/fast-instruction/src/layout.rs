//! The tile layout of the projection: A fragments of `mma.m16n8k16`, 16 rows by 16 columns.
//!
//! A block is 16 rows by `width` columns, in pairs of fragments. A pair has 32 columns, of which
//! quad `q` of a warp holds the eight from `8 q` on, four in each fragment: then its part of the
//! input, for both fragments, is 16 bytes in a row. A task's rows come in groups of 8 units of 16
//! rows; in each group the blocks of columns, in each of these the units. `capped_linear.cuh`
//! consumes them in this order.

use amk::encoding::BF16;
use amk_cuda::{Layout, bf16_bytes};

/// Rows of a fragment: a unit.
pub(crate) const UNIT: usize = 16;
/// Units whose sums the body keeps in shared memory.
const GROUP: usize = 8;
/// Columns of a block at most: then it is a ring slot of 32 KiB.
const MOST: usize = 1024;
/// Columns of a pair of fragments.
pub(crate) const PAIR: usize = 32;

/// The layout of `capped_linear`.
pub(crate) const LAYOUT: Layout = Layout {
    name: "capped_linear",
    encoding: &BF16,
    group: (GROUP * UNIT) as u32,
    bytes: bf16_bytes,
    apart: |_| Vec::new(),
    pack,
    unpack,
};

/// Columns of a block: as many as divide all, in whole pairs.
pub(crate) fn width(columns: usize) -> usize {
    (1..=MOST / PAIR).rev().map(|pairs| pairs * PAIR).find(|width| columns.is_multiple_of(*width)).unwrap_or(PAIR)
}

/// Calls `each` with row and column of every element, in the order of the tape.
fn in_order(rows: usize, columns: usize, mut each: impl FnMut(usize, usize)) {
    let width = width(columns);
    for group in (0..rows).step_by(GROUP * UNIT) {
        for first in (0..columns).step_by(width) {
            for unit in (group..rows.min(group + GROUP * UNIT)).step_by(UNIT) {
                for pair in (first..first + width).step_by(PAIR) {
                    for at in 0..UNIT * PAIR {
                        let (row, column) = in_pair(at);
                        each(unit + row, pair + column);
                    }
                }
            }
        }
    }
}

/// Row and column of element `at` of a pair of fragments: fragment, lane, register, half of it.
fn in_pair(at: usize) -> (usize, usize) {
    let (fragment, lane, register, half) = (at / 256, at / 8 % 32, at / 2 % 4, at % 2);
    (lane / 4 + 8 * (register % 2), 8 * (lane % 4) + 4 * fragment + 2 * (register / 2) + half)
}

/// Writes the bytes of a task's rows in the order of the tape.
fn pack(rows: &[&[u8]], packed: &mut [u8]) {
    let columns = rows.first().map_or(0, |row| row.len() / 2);
    let mut elements = packed.chunks_exact_mut(2);
    in_order(rows.len(), columns, |row, column| {
        if let Some(element) = elements.next() {
            element.copy_from_slice(&rows[row][2 * column..][..2]);
        }
    });
}

/// The rows of what [`pack`] wrote, one after the other.
fn unpack(packed: &[u8], columns: u32) -> Vec<u8> {
    let columns = columns as usize;
    let mut rows = vec![0; packed.len()];
    let mut elements = packed.chunks_exact(2);
    in_order(packed.len() / 2 / columns.max(1), columns, |row, column| {
        if let Some(element) = elements.next() {
            rows[2 * (row * columns + column)..][..2].copy_from_slice(element);
        }
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_pair_of_fragments_has_every_element_once() {
        let places: BTreeSet<(usize, usize)> = (0..UNIT * PAIR).map(in_pair).collect();
        assert_eq!(places.len(), UNIT * PAIR);
        assert_eq!(places.last(), Some(&(UNIT - 1, PAIR - 1)));
        // Lane 5 is row 1, quad 1: its first register has columns 8 and 9, its third 10 and 11.
        assert_eq!([in_pair(40), in_pair(41), in_pair(42), in_pair(44)], [(1, 8), (1, 9), (9, 8), (1, 10)]);
    }

    #[test]
    fn unpacking_gives_the_rows_back() {
        for (rows, columns) in [(16, 32), (32, 96), (144, 1568), (16, 5120)] {
            let elements = (0..rows * columns).flat_map(|at| (at as u16).to_le_bytes());
            let matrix: Vec<u8> = elements.collect();
            let mut packed = vec![0; matrix.len()];
            pack(&matrix.chunks_exact(2 * columns).collect::<Vec<_>>(), &mut packed);
            assert_eq!(unpack(&packed, columns as u32), matrix, "{rows} x {columns}");
        }
    }

    #[test]
    fn blocks_divide_the_columns() {
        assert_eq!([4096, 14336, 576, 2560, 1568].map(width), [1024, 1024, 576, 640, 224]);
    }
}
