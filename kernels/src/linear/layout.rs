//! The tile layout of the fused projections: A fragments of `mma.m16n8k16`, 8 rows by 32 columns.
//!
//! Rows 0-7 of a fragment hold the even half of a tile's columns, rows 8-15 the odd half. The units
//! of 8 rows come in groups; in each group the passes over the columns, in each pass the units, in
//! each unit the tiles. `fused.cuh` consumes them in this order.

use crate::abi::{MOST_DEPTH, TILE_K};
use amk_cuda::Layout;
use amk_cuda::image::abi::{GROUP_UNITS, UNIT, WARPS};
use half::bf16;

/// The layout of the fused projections.
pub(super) const PROJECTION: Layout = Layout { name: "projection", pack, unpack };

/// Returns how a projection reads its input: tiles per warp of a block of weights, and passes.
pub(super) fn cut(k: u32) -> (u32, u32) {
    let tiles = k.div_ceil(TILE_K).div_ceil(WARPS).max(1);
    let passes = tiles.div_ceil(MOST_DEPTH);
    (tiles.div_ceil(passes), passes)
}

/// Calls `each` with the row and the first column of every two elements, in the order of the tape.
fn pairs(rows: usize, columns: usize, mut each: impl FnMut(usize, usize)) {
    let (tile, pass) = (TILE_K as usize, (cut(columns as u32).0 * WARPS * TILE_K) as usize);
    let (unit, group) = (UNIT as usize, (GROUP_UNITS * UNIT) as usize);
    for first in (0..rows).step_by(group) {
        for from in (0..columns).step_by(pass) {
            for unit_at in (first..rows.min(first + group)).step_by(unit) {
                for tile_at in (from..columns.min(from + pass)).step_by(tile) {
                    for pair in 0..unit * tile / 2 {
                        let (row, column) = in_tile(pair);
                        each(unit_at + row, tile_at + column);
                    }
                }
            }
        }
    }
}

/// Returns row and first column of a pair in a tile. A lane's 16 bytes are a pair of both halves of
/// the columns, then the next pair of both.
fn in_tile(pair: usize) -> (usize, usize) {
    let (lane, next, half) = (pair / 4, pair / 2 % 2, pair % 2);
    (lane / 4, half * 16 + lane % 4 * 4 + next * 2)
}

fn pack(rows: &[&[bf16]]) -> Vec<u8> {
    let columns = rows.first().map_or(0, |row| row.len());
    let mut packed = Vec::with_capacity(rows.len() * columns * 2);
    pairs(rows.len(), columns, |row, column| {
        let [a, b] = [rows[row][column], rows[row][column + 1]].map(|element| u32::from(element.to_bits()));
        packed.extend_from_slice(&(a | b << 16).to_le_bytes());
    });
    packed
}

fn unpack(packed: &[u8], columns: u32) -> Vec<bf16> {
    let columns = columns as usize;
    let packed = packed.as_chunks::<4>().0;
    let mut rows = vec![bf16::ZERO; packed.len() * 2];
    let mut next = packed.iter();
    pairs(rows.len() / columns.max(1), columns, |row, column| {
        if let Some(&[a, b, c, d]) = next.next() {
            rows[row * columns + column] = bf16::from_le_bytes([a, b]);
            rows[row * columns + column + 1] = bf16::from_le_bytes([c, d]);
        }
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::TILE;
    use amk_cuda::image::abi::CHUNK;
    use std::collections::BTreeSet;

    #[test]
    fn every_tile_of_an_input_has_a_warp_and_a_pass_and_a_block_fits_a_slot() {
        for k in (TILE_K..40_000).step_by(TILE_K as usize) {
            let (depth, passes) = cut(k);
            let tiles = k / TILE_K;
            assert!((1..=MOST_DEPTH).contains(&depth) && depth * WARPS * TILE <= CHUNK, "{k}");
            assert!((depth * WARPS * (passes - 1)..=depth * WARPS * passes).contains(&tiles), "{k}");
        }
    }

    #[test]
    fn a_tile_has_every_element_once() {
        let places: BTreeSet<(usize, usize)> = (0..128).map(in_tile).collect();
        assert_eq!((places.len(), places.last()), (128, Some(&(7, 30))));
        // Lane 5 is row 1, quad 1: columns 4, 5 of the first half, 20, 21 of the second, then 6, 7.
        assert_eq!([in_tile(20), in_tile(21), in_tile(22)], [(1, 4), (1, 20), (1, 6)]);
    }

    #[test]
    fn rows_come_back_and_units_of_a_group_lie_together_in_a_pass() {
        for (rows, columns) in [(8, 32), (136, 576), (16, 4864), (280, 2048)] {
            let element = |at: usize| bf16::from_bits((at % 0x7f00) as u16);
            let matrix: Vec<Vec<bf16>> =
                (0..rows).map(|row| (0..columns).map(|column| element(row * columns + column)).collect()).collect();
            let of_rows: Vec<&[bf16]> = matrix.iter().map(|row| &row[..]).collect();
            assert!(PROJECTION.packed(&of_rows).is_ok(), "{rows} x {columns}");
        }
        let mut order = Vec::new();
        pairs(144, 4096, |row, column| order.push((row, column)));
        let of = |tiles: usize| order[tiles * 128];
        assert_eq!([of(0), of(1), of(64), of(16 * 64)], [(0, 0), (0, 32), (8, 0), (0, 2048)]);
        assert_eq!(of(2 * 16 * 64), (128, 0));
    }
}
