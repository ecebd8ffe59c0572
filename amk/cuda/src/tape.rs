//! Tapes: a worker's weights for a step in the order in which its warps consume them.

use super::layout::{Layout, LayoutError};
use amk::tensor::Weight;
use amk_ir::BufferId;
use std::borrow::Cow;
use std::ops::Range;

/// A piece of a tape, consumed by one projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Elements of a row.
    pub k: u32,
    /// Whether the rows of the parts are interleaved; otherwise the parts are concatenated.
    pub interleaved: bool,
    /// The tile layout of the rows.
    pub layout: Layout,
    /// The rows.
    pub parts: Vec<WeightRows>,
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
        (self.layout.bytes)(self.rows(), self.k)
    }

    /// Returns the part and the row of the weight of row `n` of the piece.
    fn row(&self, n: u32) -> Option<(usize, u32)> {
        if self.interleaved {
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

/// Returns the bytes of a row in the encoding of a layout.
fn row<'w>(layout: &Layout, weight: &'w Weight, at: usize) -> Result<Cow<'w, [u8]>, LayoutError> {
    let (found, expected) = (weight.encoding(), layout.encoding);
    if found == expected && weight.order().is_none() {
        return Ok(Cow::Borrowed(weight.row_bytes(at)));
    }
    let Some(encode) = expected.encode.filter(|_| expected.float.is_some()) else {
        return Err(match found == expected {
            true => LayoutError::Order { layout: layout.name },
            false => LayoutError::Encoding { layout: layout.name, found, expected },
        });
    };
    let elements = weight.row(at).to_f32();
    let mut bytes = vec![0; expected.bytes_of(elements.len())];
    encode(&elements, &mut bytes);
    Ok(Cow::Owned(bytes))
}

/// Appends a piece, whose parts are rows of `weights`.
///
/// # Errors
/// [`LayoutError`] of the piece's layout.
pub(super) fn pack(piece: &Piece, weights: &[&Weight], out: &mut Vec<u8>) -> Result<(), LayoutError> {
    let places = (0..piece.rows()).filter_map(|n| piece.row(n));
    let rows: Result<Vec<_>, _> = places.map(|(part, at)| row(&piece.layout, weights[part], at as usize)).collect();
    let rows = rows?;
    out.extend(piece.layout.packed(&rows.iter().map(|row| &**row).collect::<Vec<_>>(), piece.k)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::{PAIRS, ROWS};
    use half::bf16;

    fn piece(interleaved: bool) -> Piece {
        let parts = [(3, 8..12), (5, 20..24)];
        let parts = parts.map(|(weight, rows)| WeightRows { weight: BufferId(weight), rows }).to_vec();
        Piece { k: 32, interleaved, layout: ROWS, parts }
    }

    #[test]
    fn the_rows_of_a_piece_are_those_of_its_parts_in_order_or_interleaved() {
        let rows = |piece: Piece| (0..8).filter_map(|n| piece.row(n)).collect::<Vec<_>>();
        assert_eq!(rows(piece(false)), [(0, 8), (0, 9), (0, 10), (0, 11), (1, 20), (1, 21), (1, 22), (1, 23)]);
        assert_eq!(rows(piece(true)), [(0, 8), (1, 20), (0, 9), (1, 21), (0, 10), (1, 22), (0, 11), (1, 23)]);
        assert_eq!((piece(true).rows(), piece(true).bytes(), piece(false).row(8)), (8, 512, None));
    }

    #[test]
    fn columns_out_of_order_are_decoded_or_refused() {
        let weight = Weight::from_vec(&PAIRS, &[1, 4], vec![0x10, 0x32]).unwrap();
        let weight = weight.with_order([2, 0, 3, 1].as_slice().into()).unwrap();
        let expected: Vec<u8> = [1.0, 3.0, 0.0, 2.0].iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
        assert_eq!(row(&ROWS, &weight, 0).as_deref(), Ok(&expected[..]));
        let pairs = Layout { encoding: &PAIRS, ..ROWS };
        assert_eq!(row(&pairs, &weight, 0), Err(LayoutError::Order { layout: "rows" }));
    }
}
