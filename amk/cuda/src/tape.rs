//! Tapes: a worker's weights for a step in the order in which its warps consume them.

use super::layout::{Layout, LayoutError};
use amk::tensor::Weight;
use amk_ir::BufferId;
use std::borrow::Cow;
use std::collections::HashSet;
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

/// Rows of a piece that are packed together.
pub(super) struct Part<'p> {
    piece: &'p Piece,
    /// Those of the piece's rows.
    rows: Range<u32>,
    /// The matrix of each of the piece's parts.
    weights: Vec<&'p Weight>,
    /// Whether they are unpacked again for comparison: the first part of a shape.
    checked: bool,
}

/// The shapes of rows that have been packed: layout, number of rows and their columns.
#[derive(Default)]
pub(super) struct Shapes(HashSet<(&'static str, &'static str, u32, u32)>);

impl<'p> Part<'p> {
    /// The parts of a piece, each with as many groups of rows as fit in this many bytes, or one
    /// group.
    ///
    /// # Errors
    /// [`LayoutError::Groups`].
    pub(super) fn all(
        piece: &'p Piece,
        weights: &[&'p Weight],
        most: u64,
        known: &mut Shapes,
    ) -> Result<Vec<Self>, LayoutError> {
        let Layout { name: layout, encoding, group, bytes, .. } = piece.layout;
        let (rows, group) = (piece.rows(), group.max(1));
        let step =
            (most / bytes(group, piece.k).max(1)).clamp(1, u64::from(rows.div_ceil(group)).max(1)) as u32 * group;
        let part = |first: u32| {
            let rows = first..rows.min(first.saturating_add(step));
            let checked = known.0.insert((layout, encoding.name, rows.end - rows.start, piece.k));
            Self { piece, rows, weights: weights.to_vec(), checked }
        };
        let parts: Vec<Self> = (0..rows).step_by(step as usize).map(part).collect();
        match parts.iter().map(Self::bytes).sum::<u64>() == piece.bytes() {
            true => Ok(parts),
            false => Err(LayoutError::Groups { layout, group }),
        }
    }

    /// Bytes on the tape.
    pub(super) fn bytes(&self) -> u64 {
        (self.piece.layout.bytes)(self.rows.end - self.rows.start, self.piece.k)
    }

    /// Writes these bytes.
    ///
    /// # Errors
    /// [`LayoutError`] of the piece's layout.
    pub(super) fn pack(&self, to: &mut [u8]) -> Result<(), LayoutError> {
        let Piece { layout, k, .. } = self.piece;
        let places = self.rows.clone().filter_map(|n| self.piece.row(n));
        let rows: Result<Vec<_>, _> = places.map(|(part, at)| row(layout, self.weights[part], at as usize)).collect();
        let rows = rows?;
        let rows: Vec<&[u8]> = rows.iter().map(|row| &**row).collect();
        (layout.pack)(&rows, to);
        if self.checked { layout.check(&rows, *k, to) } else { Ok(()) }
    }
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

    /// The bytes of a piece whose weights have rows of numbers of their own.
    fn packed(piece: &Piece, most: u64, known: &mut Shapes) -> Result<(Vec<u8>, Vec<bool>), LayoutError> {
        let weight = |first: u16| {
            let elements = (0..32 * 32).map(|at| bf16::from_bits(first + at)).collect();
            Weight::bf16(&[32, 32], elements).unwrap()
        };
        let weights = [weight(0), weight(0x4000)];
        let parts = Part::all(piece, &weights.iter().collect::<Vec<_>>(), most, known)?;
        let mut out = Vec::new();
        for part in &parts {
            let mut bytes = vec![0; part.bytes() as usize];
            part.pack(&mut bytes)?;
            out.extend(bytes);
        }
        Ok((out, parts.iter().map(|part| part.checked).collect()))
    }

    #[test]
    fn a_piece_is_packed_in_parts_of_whole_groups() {
        for interleaved in [false, true] {
            let whole = packed(&piece(interleaved), 1 << 20, &mut Shapes::default()).unwrap().0;
            let rows = (0..8).filter_map(|n| piece(interleaved).row(n));
            // Number 8 of the first matrix begins with element 256.
            let first = |(part, row): (usize, u32)| (part as u16 * 0x4000 + row as u16 * 32).to_le_bytes();
            assert_eq!(
                whole.chunks(64).map(|row| [row[0], row[1]]).collect::<Vec<_>>(),
                rows.map(first).collect::<Vec<_>>()
            );
            for (most, parts) in [(0, 8), (64, 8), (191, 4), (511, 2), (512, 1)] {
                let (bytes, checked) = packed(&piece(interleaved), most, &mut Shapes::default()).unwrap();
                assert_eq!((bytes == whole, checked.len()), (true, parts), "{most}");
            }
            let of_three = Layout { group: 3, ..ROWS };
            let piece = Piece { layout: of_three, ..piece(interleaved) };
            assert_eq!(packed(&piece, 64, &mut Shapes::default()), Ok((whole, vec![true, false, true])));
        }
        let alone = Layout { group: 1, bytes: |rows, columns| u64::from(rows.div_ceil(4) * columns * 8), ..ROWS };
        let error = packed(&Piece { layout: alone, ..piece(false) }, 64, &mut Shapes::default()).unwrap_err();
        assert_eq!(error, LayoutError::Groups { layout: "rows", group: 1 });
    }

    #[test]
    fn the_first_rows_of_each_shape_are_unpacked() {
        let mut known = Shapes::default();
        let wrong = Layout { unpack: |packed, _| vec![0; packed.len()], ..ROWS };
        let wrong = Piece { layout: wrong, ..piece(true) };
        assert_eq!(packed(&wrong, 512, &mut known), Err(LayoutError::Unpacked { layout: "rows", row: 0 }));
        assert_eq!(packed(&wrong, 512, &mut known).unwrap().1, [false]);
        assert!(packed(&wrong, 256, &mut known).is_err());
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
