//! Tapes: a worker's weights for a step in the order in which its warps consume them, in the tile order of the tensor cores.

use super::plan::{Gemv, Output, UNIT};
use super::source::{GROUP_UNITS, TILE, TILE_K, WARPS, cut};
use amk::tensor::{Row, Weight};
use half::bf16;
use std::borrow::Cow;
use std::ops::Range;

/// Elements of a tile.
const TILE_LEN: usize = (TILE / 2) as usize;

/// A row as bf16.
fn row(weight: &Weight, at: usize) -> Cow<'_, [bf16]> {
    match weight.row(at) {
        Row::BF16(row) => Cow::Borrowed(row),
        other => Cow::Owned(other.to_f32().iter().map(|&value| bf16::from_f32(value)).collect()),
    }
}

/// The weight and its row behind row `n` of a projection's output as the device counts it: weights one below the other, or
/// (gated) row by row in turn.
pub(super) fn source_row<'w>(gemv: &Gemv, weights: &[&'w Weight], n: usize) -> Option<(&'w Weight, usize)> {
    if matches!(gemv.output, Output::Gated(_)) {
        return weights.get(n % 2).map(|weight| (*weight, n / 2));
    }
    let mut n = n;
    for weight in weights {
        if n < weight.rows() {
            return Some((weight, n));
        }
        n -= weight.rows();
    }
    None
}

/// Offset in a tile of element `k` (0..32) of row `r` (0..8): the A fragment of `mma.m16n8k16` whose rows 0-7 hold the even half
/// of k and rows 8-15 the odd half; a lane's 16 bytes are (k, k+1) of both halves, then (k+2, k+3) of both.
fn place(r: usize, k: usize) -> usize {
    let (half, quad, pair, element) = (k / 16, k % 16 / 4, k % 4 / 2, k % 2);
    (r * 4 + quad) * 8 + pair * 4 + half * 2 + element
}

/// Appends the units `units` of a projection: groups of units, in each the passes over k, in each the units, in each the tiles.
pub(super) fn pack(gemv: &Gemv, weights: &[&Weight], units: Range<u32>, out: &mut Vec<bf16>) {
    let tiles = gemv.k / TILE_K;
    let pass_tiles = cut(gemv.k).0 * WARPS;
    let mut rows: Vec<Vec<Cow<'_, [bf16]>>> = Vec::new();
    for first in units.clone().step_by(GROUP_UNITS as usize) {
        let group = first..(first + GROUP_UNITS).min(units.end);
        rows.clear();
        rows.extend(group.map(|unit| {
            let first = (unit * UNIT) as usize;
            (first..first + UNIT as usize)
                .filter_map(|n| source_row(gemv, weights, n).map(|(weight, at)| row(weight, at)))
                .collect()
        }));
        for pass in (0..tiles).step_by(pass_tiles as usize) {
            for unit in &rows {
                for tile in pass..(pass + pass_tiles).min(tiles) {
                    let at = out.len();
                    out.resize(at + TILE_LEN, bf16::ZERO);
                    let to = &mut out[at..];
                    for (r, row) in unit.iter().enumerate() {
                        let from = &row[(tile * TILE_K) as usize..((tile + 1) * TILE_K) as usize];
                        from.iter().enumerate().for_each(|(k, &value)| to[place(r, k)] = value);
                    }
                }
            }
        }
    }
}

/// Bytes that [`pack`] appends.
pub(super) fn packed_bytes(k: u32, units: u32) -> u32 {
    units * (k / TILE_K) * TILE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_holds_every_element_once() {
        let mut seen = [0; TILE_LEN];
        for r in 0..8 {
            for k in 0..32 {
                seen[place(r, k)] += 1;
            }
        }
        assert!(seen.iter().all(|&n| n == 1));
        // Lane 5 = row 1, quad 1: its first pair is k = 4, 5 of the even half, its second k = 20, 21 of the odd half.
        assert_eq!([place(1, 4), place(1, 5), place(1, 20), place(1, 6)], [40, 41, 42, 44]);
    }
}
