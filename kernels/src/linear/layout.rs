//! The tile layout of the fused projections.
//!
//! The units of 8 rows are in groups; each group has the passes over the columns, each pass the
//! units, each unit the tiles. `fused.cuh` consumes them in this order.
//!
//! Rows that the last unit lacks are all-ones bytes, which are NaNs: the code multiplies them like
//! any others, and neither argmax nor a draw picks the resulting NaNs.

use super::tile::Tile;
use crate::abi::{MOST_DEPTH, TILE_K};
use amk::encoding::Encoding;
use amk_cuda::image::abi::{GROUP_UNITS, UNIT, WARPS};
use amk_cuda::{Layout, PADDING};

/// The layout of the fused projections over tiles `T` of an encoding.
pub(super) const fn projection<T: Tile>(encoding: &'static Encoding) -> Layout {
    let group = GROUP_UNITS * UNIT;
    Layout {
        name: T::LAYOUT,
        encoding,
        group,
        bytes: bytes::<T>,
        apart: apart::<T>,
        pack: pack::<T>,
        unpack: unpack::<T>,
    }
}

/// Returns how a projection reads an input of `k` elements: tiles per warp of a block of weights,
/// and passes.
///
/// Passes are alike, so that no warp lacks work in the last one. Or they are `deep`, if then half
/// the warps still have tiles in the last one.
pub(super) fn cut(k: u32, deep: bool) -> (u32, u32) {
    let tiles = k.div_ceil(TILE_K).max(1);
    let each = tiles.div_ceil(WARPS);
    let passes = each.div_ceil(MOST_DEPTH);
    let last = tiles - (passes - 1) * MOST_DEPTH * WARPS;
    let fills = deep && passes > 1 && 2 * last >= MOST_DEPTH * WARPS;
    (if fills { MOST_DEPTH } else { each.div_ceil(passes) }, passes)
}

/// Whether a warp's tiles have the same places in their packs in every block: see `STEADY` in
/// `tile.cuh`.
pub(super) fn is_steady(k: u32, pack: u32) -> bool {
    let (depth, _) = cut(k, false);
    depth.is_multiple_of(pack) || pack.is_multiple_of(depth)
}

/// Calls `each` with the first row of a unit and the first column of `width`, in the order of the
/// tape.
fn in_order(rows: usize, columns: usize, width: usize, deep: bool, mut each: impl FnMut(usize, usize)) {
    let pass = (cut(columns as u32, deep).0 * WARPS * TILE_K) as usize;
    let (unit, group) = (UNIT as usize, (GROUP_UNITS * UNIT) as usize);
    for first in (0..rows).step_by(group) {
        for from in (0..columns).step_by(pass) {
            for unit_at in (first..rows.min(first + group)).step_by(unit) {
                for at in (from..columns.min(from + pass)).step_by(width) {
                    each(unit_at, at);
                }
            }
        }
    }
}

fn bytes<T: Tile>(rows: u32, columns: u32) -> u64 {
    u64::from(rows.div_ceil(UNIT)) * u64::from(columns / T::COLUMNS as u32) * T::BYTES as u64
}

/// Bytes between the tiles of neighbouring units: a whole pass of one unit, and its last pass.
fn apart<T: Tile>(columns: u32) -> Vec<u32> {
    let (depth, passes) = cut(columns, T::DEEP);
    let (whole, all) = (depth * WARPS * TILE_K, columns);
    let of = |columns: u32| columns / T::COLUMNS as u32 * T::BYTES as u32;
    let mut apart = vec![of(whole.min(all)), of(all - (passes - 1) * whole)];
    apart.retain(|bytes| bytes.is_multiple_of(16));
    apart
}

fn pack<T: Tile>(rows: &[&[u8]], packed: &mut [u8]) {
    let columns = rows.first().map_or(0, |row| row.len() / T::ROW * T::COLUMNS);
    let mut packs = packed.chunks_exact_mut(T::BYTES);
    let padding = vec![PADDING; T::ROW];
    in_order(rows.len(), columns, T::COLUMNS, T::DEEP, |unit, column| {
        let Some(pack) = packs.next() else { return };
        for n in 0..UNIT as usize {
            let row = rows.get(unit + n).map_or(&padding[..], |row| &row[column / T::COLUMNS * T::ROW..][..T::ROW]);
            T::pack(n, row, pack);
        }
    });
}

fn unpack<T: Tile>(packed: &[u8], columns: u32) -> Vec<u8> {
    let columns = columns as usize;
    let (row_bytes, units) = (columns / T::COLUMNS * T::ROW, packed.len() / T::BYTES / (columns / T::COLUMNS).max(1));
    let count = units * UNIT as usize;
    let mut rows = vec![0; count * row_bytes];
    let mut packs = packed.chunks_exact(T::BYTES);
    in_order(count, columns, T::COLUMNS, T::DEEP, |unit, column| {
        let Some(pack) = packs.next() else { return };
        for n in 0..UNIT as usize {
            let at = (unit + n) * row_bytes + column / T::COLUMNS * T::ROW;
            T::unpack(n, pack, &mut rows[at..at + T::ROW]);
        }
    });
    rows
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::abi::TILE;
    use crate::linear::tile::TileKind;
    use crate::linear::tile::reference::Defined;
    use amk_cuda::image::abi::CHUNK;

    #[test]
    fn every_tile_of_an_input_has_a_warp_and_a_pass_and_a_block_fits_a_slot() {
        for k in (TILE_K..40_000).step_by(TILE_K as usize) {
            for (depth, passes) in [cut(k, false), cut(k, true)] {
                let tiles = k / TILE_K;
                assert!((1..=MOST_DEPTH).contains(&depth) && depth * WARPS * TILE <= CHUNK, "{k}");
                assert!((depth * WARPS * (passes - 1)..=depth * WARPS * passes).contains(&tiles), "{k}");
            }
        }
    }

    #[test]
    fn deep_passes_leave_tiles_for_half_the_warps() {
        for (k, alike, deep) in [
            (2048, (4, 1), (4, 1)),
            (2560, (3, 2), (3, 2)),
            (3072, (3, 2), (4, 2)),
            (4608, (3, 3), (3, 3)),
            (14_336, (4, 7), (4, 7)),
        ] {
            assert_eq!((cut(k, false), cut(k, true)), (alike, deep), "{k}");
        }
    }

    #[test]
    fn tiles_of_neighbouring_units_are_apart_as_the_layout_says() {
        let plain = TileKind::of(None, 0);
        for columns in [32_u32, 576, 1536, 2048, 3072, 4096, 14_336] {
            let kind = plain.for_units(columns, 2);
            let mut at = Vec::new();
            in_order(32, columns as usize, TILE_K as usize, kind.deep, |unit, column| at.push((column, unit)));
            let place =
                |unit, column| at.iter().position(|&of| of == (column, unit)).expect("a tile") as u32 * kind.bytes;
            let mut found: Vec<u32> =
                (0..columns as usize).step_by(TILE_K as usize).map(|k| place(8, k) - place(0, k)).collect();
            let mut stated = (kind.layout.apart)(columns);
            for all in [&mut found, &mut stated] {
                all.sort_unstable();
                all.dedup();
            }
            assert_eq!(found, stated, "{columns}");
        }
    }

    /// Rows of many different bytes.
    pub(crate) fn bytes_of_rows(encoding: &Encoding, rows: usize, columns: usize) -> Vec<u8> {
        (0..rows * encoding.bytes_of(columns)).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
    }

    /// The tape of rows, packed as their tiles are defined.
    pub(crate) fn straight<T: Defined>(rows: &[&[u8]]) -> Vec<u8> {
        let columns = rows[0].len() / T::ROW * T::COLUMNS;
        let mut packed = Vec::new();
        in_order(rows.len(), columns, T::COLUMNS, T::DEEP, |unit, column| {
            let mut pack = vec![0; T::BYTES];
            for n in 0..UNIT as usize {
                let padding = vec![PADDING; T::ROW];
                let row = rows.get(unit + n).map_or(&padding[..], |row| &row[column / T::COLUMNS * T::ROW..][..T::ROW]);
                T::pack_defined(n, row, &mut pack);
            }
            packed.extend(pack);
        });
        packed
    }

    /// Checks that a layout keeps rows of many different bytes.
    pub(crate) fn check(kind: &TileKind, rows: u32, columns: u32) {
        let encoding = kind.layout.encoding;
        let matrix = bytes_of_rows(encoding, rows as usize, columns as usize);
        let of_rows: Vec<&[u8]> = matrix.chunks_exact(encoding.bytes_of(columns as usize)).collect();
        let packed = kind.layout.packed(&of_rows, columns).expect("the layout should keep the rows");
        assert_eq!(packed.len() as u32, rows.div_ceil(8) * (columns / TILE_K) * kind.bytes, "{kind:?}");
    }

    #[test]
    fn units_of_a_group_lie_together_in_a_pass() {
        let mut order = Vec::new();
        in_order(144, 4096, 32, false, |row, column| order.push((row, column)));
        let of = |tiles: usize| order[tiles];
        assert_eq!([of(0), of(1), of(64), of(16 * 64)], [(0, 0), (0, 32), (8, 0), (0, 2048)]);
        assert_eq!(of(2 * 16 * 64), (128, 0));
    }
}
