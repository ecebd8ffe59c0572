//! Tapes: a worker's weights for a step in the order in which its warps consume them, in the tile
//! order of the tensor cores.

use super::image::abi::{GROUP_UNITS, MOST_DEPTH, TILE, TILE_K, WARPS};
use super::stream::{Stream, StreamError};
use amk::tensor::{Row, Weight};
use amk_ir::BufferId;
use half::bf16;
use std::borrow::Cow;
use std::ops::Range;

/// Elements of a tile.
const TILE_LEN: usize = (TILE / 2) as usize;
/// Rows of a tile.
const UNIT: u32 = super::plan::UNIT;

/// A piece of a tape, consumed by one projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Elements of a row.
    pub k: u32,
    /// Whether the rows of the parts are interleaved; otherwise the parts are concatenated.
    pub in_turn: bool,
    /// The layout of the rows.
    pub layout: Layout,
    /// The rows.
    pub parts: Vec<WeightRows>,
}

/// Layout of rows on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The tiles of the fused projections.
    Projection,
    /// A layout registered by a crate.
    Registered(&'static Stream),
}

impl Layout {
    /// Returns the bytes handed out by one `acquire` of a registered layout, for rows of `k`
    /// elements.
    pub(super) fn block(self, k: u32) -> u32 {
        match self {
            Self::Projection => 0,
            Self::Registered(stream) => (stream.block)(k),
        }
    }
}

/// Rows of a weight matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightRows {
    /// The matrix.
    pub weight: BufferId,
    /// The rows.
    pub rows: Range<u32>,
}

impl Piece {
    /// Returns the rows of all parts.
    pub fn rows(&self) -> u32 {
        self.parts.iter().map(|part| part.rows.end.saturating_sub(part.rows.start)).sum()
    }

    /// Returns the bytes on the tape.
    pub fn bytes(&self) -> u64 {
        u64::from(self.rows()) * u64::from(self.k) * 2
    }

    /// Returns the part and the row of the weight of row `n` of the piece.
    fn row(&self, n: u32) -> Option<(usize, u32)> {
        if self.in_turn {
            let parts = self.parts.len() as u32;
            let part = n.checked_rem(parts)? as usize;
            return Some((part, self.parts[part].rows.start + n / parts));
        }
        let mut n = n;
        for (part, WeightRows { rows, .. }) in self.parts.iter().enumerate() {
            if n < rows.end - rows.start {
                return Some((part, rows.start + n));
            }
            n -= rows.end - rows.start;
        }
        None
    }
}

/// Returns how a projection reads its input: tiles per warp of a block of weights, and passes.
pub fn cut(k: u32) -> (u32, u32) {
    let tiles = k.div_ceil(TILE_K).div_ceil(WARPS).max(1);
    let passes = tiles.div_ceil(MOST_DEPTH);
    (tiles.div_ceil(passes), passes)
}

/// Returns a row as bf16.
fn row(weight: &Weight, at: usize) -> Cow<'_, [bf16]> {
    match weight.row(at) {
        Row::BF16(row) => Cow::Borrowed(row),
        other => Cow::Owned(other.to_f32().iter().map(|&value| bf16::from_f32(value)).collect()),
    }
}

/// Offset in a tile of element `k` (0..32) of row `r` (0..8): the A fragment of `mma.m16n8k16`
/// whose rows 0-7 hold the even half of k and rows 8-15 the odd half; a lane's 16 bytes are (k,
/// k+1) of both halves, then (k+2, k+3) of both.
fn place(r: usize, k: usize) -> usize {
    let (half, quad, pair, element) = (k / 16, k % 16 / 4, k % 4 / 2, k % 2);
    (r * 4 + quad) * 8 + pair * 4 + half * 2 + element
}

/// Appends a piece, whose parts are rows of `weights`.
///
/// # Errors
/// [`StreamError::Packed`] or [`StreamError::Unpacked`] from a registered layout.
pub(super) fn pack(piece: &Piece, weights: &[&Weight], out: &mut Vec<bf16>) -> Result<(), StreamError> {
    let Layout::Registered(stream) = piece.layout else {
        pack_projection(piece, weights, out);
        return Ok(());
    };
    let rows = (0..piece.rows()).filter_map(|n| piece.row(n).map(|(part, at)| row(weights[part], at as usize)));
    let rows: Vec<Cow<'_, [bf16]>> = rows.collect();
    let packed = stream.packed(&rows.iter().map(|row| &**row).collect::<Vec<_>>())?;
    out.extend(packed.as_chunks::<2>().0.iter().map(|&bytes| bf16::from_le_bytes(bytes)));
    Ok(())
}

/// Appends the groups of units: per group the passes over k, per pass the units, per unit the
/// tiles.
fn pack_projection(piece: &Piece, weights: &[&Weight], out: &mut Vec<bf16>) {
    let tiles = piece.k / TILE_K;
    let pass_tiles = cut(piece.k).0 * WARPS;
    let units = piece.rows() / UNIT;
    let mut rows: Vec<Vec<Cow<'_, [bf16]>>> = Vec::new();
    for first in (0..units).step_by(GROUP_UNITS as usize) {
        let group = first..(first + GROUP_UNITS).min(units);
        rows.clear();
        rows.extend(group.map(|unit| {
            (unit * UNIT..(unit + 1) * UNIT)
                .filter_map(|n| piece.row(n).map(|(part, at)| row(weights[part], at as usize)))
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
        // Lane 5 = row 1, quad 1: its first pair is k = 4, 5 of the even half, its second k = 20,
        // 21 of the odd half.
        assert_eq!([place(1, 4), place(1, 5), place(1, 20), place(1, 6)], [40, 41, 42, 44]);
    }

    fn piece(in_turn: bool) -> Piece {
        let parts = [(3, 8..12), (5, 20..24)];
        let parts = parts.map(|(weight, rows)| WeightRows { weight: BufferId(weight), rows }).to_vec();
        Piece { k: 32, in_turn, layout: Layout::Projection, parts }
    }

    #[test]
    fn the_rows_of_a_piece_are_those_of_its_parts_in_order_or_in_turn() {
        let rows = |piece: Piece| (0..8).filter_map(|n| piece.row(n)).collect::<Vec<_>>();
        assert_eq!(rows(piece(false)), [(0, 8), (0, 9), (0, 10), (0, 11), (1, 20), (1, 21), (1, 22), (1, 23)]);
        assert_eq!(rows(piece(true)), [(0, 8), (1, 20), (0, 9), (1, 21), (0, 10), (1, 22), (0, 11), (1, 23)]);
        assert_eq!((piece(true).rows(), piece(true).bytes(), piece(false).row(8)), (8, 512, None));
    }
}
