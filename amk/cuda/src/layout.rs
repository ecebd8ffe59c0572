//! Tile layouts: the order of a task's weights on its worker's tape.

use half::bf16;

/// A tile layout. A stream or a fused body names the one in which it consumes its weights.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name, for messages. Two layouts of one name are the same.
    pub name: &'static str,
    /// The bytes of a task's rows, all of one length, in the order in which the body consumes them.
    pub pack: fn(rows: &[&[bf16]]) -> Vec<u8>,
    /// The inverse of `pack`: the rows, of so many columns each, one after the other.
    pub unpack: fn(packed: &[u8], columns: u32) -> Vec<bf16>,
}

/// A layout that loses or moves an element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// `pack` gives other bytes than two an element.
    #[error("`pack` of the layout `{layout}` gives {found} bytes, expected {expected}")]
    Packed {
        /// Name of the layout.
        layout: &'static str,
        /// Bytes that it gave.
        found: u64,
        /// Bytes of the rows.
        expected: u64,
    },
    /// `unpack` does not give back what was packed.
    #[error("`unpack` of the layout `{layout}` does not give back what `pack` was given, from row {row} on")]
    Unpacked {
        /// Name of the layout.
        layout: &'static str,
        /// The first row that differs.
        row: usize,
    },
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Layout {}

impl Layout {
    /// Packs a task's rows and checks that unpacking gives them back.
    ///
    /// # Errors
    /// [`LayoutError::Packed`] or [`LayoutError::Unpacked`].
    pub fn packed(&self, rows: &[&[bf16]]) -> Result<Vec<u8>, LayoutError> {
        let layout = self.name;
        let columns = rows.first().map_or(0, |row| row.len());
        let packed = (self.pack)(rows);
        let (found, expected) = (packed.len() as u64, bytes(rows.len() as u32, columns as u32));
        if found != expected {
            return Err(LayoutError::Packed { layout, found, expected });
        }
        let back = (self.unpack)(&packed, columns as u32);
        let same = |(row, expected): (usize, &&[bf16])| {
            let found = back.get(row * columns..(row + 1) * columns);
            found.is_some_and(|found| found.iter().zip(*expected).all(|(a, b)| a.to_bits() == b.to_bits()))
        };
        match rows.iter().enumerate().find(|&row| !same(row)) {
            Some((row, _)) => Err(LayoutError::Unpacked { layout, row }),
            None if back.len() != rows.len() * columns => Err(LayoutError::Unpacked { layout, row: rows.len() }),
            None => Ok(packed),
        }
    }
}

/// Bytes of rows of bf16 elements.
pub(crate) fn bytes(rows: u32, columns: u32) -> u64 {
    u64::from(rows) * u64::from(columns) * 2
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn pack(rows: &[&[bf16]]) -> Vec<u8> {
        rows.iter().copied().flatten().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn unpack(packed: &[u8], _: u32) -> Vec<bf16> {
        packed.as_chunks::<2>().0.iter().map(|&bytes| bf16::from_le_bytes(bytes)).collect()
    }

    /// Rows one after the other.
    pub(crate) const ROWS: Layout = Layout { name: "rows", pack, unpack };

    #[test]
    fn a_layout_keeps_the_rows() {
        let layout = "rows";
        let rows: Vec<Vec<bf16>> = (0..16).map(|row| vec![bf16::from_f32(row as f32); 32]).collect();
        let rows: Vec<&[bf16]> = rows.iter().map(|row| &row[..]).collect();
        assert_eq!(ROWS.packed(&rows), Ok(pack(&rows)));
        let short = Layout { pack: |rows| pack(&rows[1..]), ..ROWS };
        assert_eq!(short.packed(&rows), Err(LayoutError::Packed { layout, found: 960, expected: 1024 }));
        let swapped = |rows: &[&[bf16]]| {
            let mut rows = rows.to_vec();
            rows.swap(3, 4);
            pack(&rows)
        };
        let wrong = Layout { pack: swapped, ..ROWS };
        assert_eq!(wrong.packed(&rows), Err(LayoutError::Unpacked { layout, row: 3 }));
        let longer = Layout { unpack: |packed, k| [unpack(packed, k), vec![bf16::ZERO]].concat(), ..ROWS };
        assert_eq!(longer.packed(&rows), Err(LayoutError::Unpacked { layout, row: 16 }));
    }
}
