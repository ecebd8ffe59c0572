//! Tile layouts: the order of a task's weights on its worker's tape.

use amk::encoding::Encoding;

/// The bytes of rows that a layout adds to fill its last unit.
pub const PADDING: u8 = 0xff;

/// A tile layout. A stream or a fused body names the one in which it consumes its weights.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name, for messages. Two layouts of one name and encoding are the same.
    pub name: &'static str,
    /// The encoding of the weights. Weights in floats of another type are rounded to it.
    pub encoding: &'static Encoding,
    /// Bytes on the tape of so many rows of so many columns.
    pub bytes: fn(rows: u32, columns: u32) -> u64,
    /// The bytes of a task's rows, all of one length, in the order in which the body consumes them.
    pub pack: fn(rows: &[&[u8]]) -> Vec<u8>,
    /// The inverse of `pack`: the bytes of the rows, of so many columns each, one after the other.
    /// Rows of [`PADDING`] may follow.
    pub unpack: fn(packed: &[u8], columns: u32) -> Vec<u8>,
}

/// A layout that loses or moves an element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// `pack` gives other bytes than `bytes` says.
    #[error("`pack` of the layout `{layout}` gives {found} bytes, expected {expected}")]
    Packed {
        /// Name of the layout.
        layout: &'static str,
        /// Bytes that it gave.
        found: u64,
        /// Bytes of the rows on the tape.
        expected: u64,
    },
    /// A weight is in other blocks than the layout takes.
    #[error("the layout `{layout}` takes weights in {expected}, this one is in {found}")]
    Encoding {
        /// Name of the layout.
        layout: &'static str,
        /// The encoding of the weight.
        found: &'static Encoding,
        /// The encoding of the layout.
        expected: &'static Encoding,
    },
    /// A weight's columns are not in order.
    #[error("the layout `{layout}` takes weights whose columns are in order, those of this one are not")]
    Order {
        /// Name of the layout.
        layout: &'static str,
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
        (self.name, self.encoding) == (other.name, other.encoding)
    }
}

impl Eq for Layout {}

impl Layout {
    /// Packs the rows of a task, of so many columns, and checks that unpacking gives them back.
    ///
    /// # Errors
    /// [`LayoutError::Packed`] or [`LayoutError::Unpacked`].
    pub fn packed(&self, rows: &[&[u8]], columns: u32) -> Result<Vec<u8>, LayoutError> {
        let layout = self.name;
        let packed = (self.pack)(rows);
        let (found, expected) = (packed.len() as u64, (self.bytes)(rows.len() as u32, columns));
        if found != expected {
            return Err(LayoutError::Packed { layout, found, expected });
        }
        let back = (self.unpack)(&packed, columns);
        let mut left = &back[..];
        for (row, expected) in rows.iter().enumerate() {
            left = left.strip_prefix(*expected).ok_or(LayoutError::Unpacked { layout, row })?;
        }
        match left.iter().all(|&byte| byte == PADDING) {
            true => Ok(packed),
            false => Err(LayoutError::Unpacked { layout, row: rows.len() }),
        }
    }
}

/// Bytes of rows of bf16 elements: `bytes` of a layout that only orders them.
pub fn bf16_bytes(rows: u32, columns: u32) -> u64 {
    u64::from(rows) * u64::from(columns) * 2
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use amk::encoding::BF16;

    /// Rows of bf16 elements one after the other.
    pub(crate) const ROWS: Layout = Layout {
        name: "rows",
        encoding: &BF16,
        bytes: bf16_bytes,
        pack: |rows| rows.concat(),
        unpack: |packed, _| packed.to_vec(),
    };

    /// Two elements a byte, 0 to 15.
    pub(crate) static PAIRS: Encoding = Encoding {
        name: "PAIRS",
        block: 2,
        bytes: 1,
        float: None,
        decode: |bytes, out| {
            for (byte, out) in bytes.iter().zip(out.as_chunks_mut().0) {
                *out = [f32::from(byte & 15), f32::from(byte >> 4)];
            }
        },
        encode: None,
        check: |_| Ok(()),
        dot: None,
        dot_q8: None,
    };

    #[test]
    fn a_layout_keeps_the_rows() {
        let layout = "rows";
        let rows: Vec<Vec<u8>> = (0..16).map(|row| vec![row; 64]).collect();
        let rows: Vec<&[u8]> = rows.iter().map(|row| &row[..]).collect();
        assert_eq!(ROWS.packed(&rows, 32), Ok(rows.concat()));
        let short = Layout { pack: |rows| rows[1..].concat(), ..ROWS };
        assert_eq!(short.packed(&rows, 32), Err(LayoutError::Packed { layout, found: 960, expected: 1024 }));
        let swapped = |rows: &[&[u8]]| {
            let mut rows = rows.to_vec();
            rows.swap(3, 4);
            rows.concat()
        };
        let wrong = Layout { pack: swapped, ..ROWS };
        assert_eq!(wrong.packed(&rows, 32), Err(LayoutError::Unpacked { layout, row: 3 }));
        let longer = Layout { unpack: |packed, _| [packed, &[0]].concat(), ..ROWS };
        assert_eq!(longer.packed(&rows, 32), Err(LayoutError::Unpacked { layout, row: 16 }));
        let padded = Layout { unpack: |packed, _| [packed, &[PADDING; 64]].concat(), ..ROWS };
        assert_eq!(padded.packed(&rows, 32), Ok(rows.concat()));
    }
}
