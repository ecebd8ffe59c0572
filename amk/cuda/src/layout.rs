//! Tile layouts: the order of a task's weights on its worker's tape.

use amk::encoding::Encoding;

/// The bytes of rows that a layout adds to fill its last unit.
pub const PADDING: u8 = 0xff;

/// A tile layout. A stream or a fused body names the one in which it consumes its weights.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name, for messages. Two layouts with the same name and encoding are the same.
    pub name: &'static str,
    /// The encoding of the weights. Weights in floats of another type are rounded to it.
    pub encoding: &'static Encoding,
    /// The number of rows that are packed together: the tape of a task's rows is the tape of the
    /// first group, then of the next, and so on.
    pub group: u32,
    /// The bytes on the tape of `rows` rows of `columns` columns.
    pub bytes: fn(rows: u32, columns: u32) -> u64,
    /// The distances in bytes, multiples of 16, between runs of
    /// [`BOX_RUN`](crate::image::abi::BOX_RUN) bytes that steps of many rows copy together, in a
    /// tape of `columns` columns.
    pub apart: fn(columns: u32) -> Vec<u32>,
    /// Writes the bytes of a task's rows, all of one length, in the order in which the body
    /// consumes them. Fills all of `packed`, whose length is given by `bytes`.
    pub pack: fn(rows: &[&[u8]], packed: &mut [u8]),
    /// The inverse of `pack`: the bytes of the rows, of `columns` columns each, one row after the
    /// other. Rows of [`PADDING`] may follow.
    pub unpack: fn(packed: &[u8], columns: u32) -> Vec<u8>,
}

/// A layout that loses or moves an element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// `bytes` or `pack` of rows differs from their groups' one after the other.
    #[error("groups of {group} rows do not lie one after the other in the layout `{layout}`")]
    Groups {
        /// Name of the layout.
        layout: &'static str,
        /// Rows of a group.
        group: u32,
    },
    /// A weight has blocks of a different encoding than the layout takes.
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
    #[error("the layout `{layout}` takes weights whose columns are in order, and this one's are not")]
    Order {
        /// Name of the layout.
        layout: &'static str,
    },
    /// `unpack` does not return what was packed.
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
    /// Packs the rows of a task, of `columns` columns, and [checks](Self::check) their bytes.
    ///
    /// # Errors
    /// [`LayoutError::Groups`] and [`LayoutError::Unpacked`].
    pub fn packed(&self, rows: &[&[u8]], columns: u32) -> Result<Vec<u8>, LayoutError> {
        let mut packed = vec![0; (self.bytes)(rows.len() as u32, columns) as usize];
        (self.pack)(rows, &mut packed);
        self.check(rows, columns, &packed)?;
        Ok(packed)
    }

    /// Checks the bytes of rows of `columns` columns: groups are stored one after the other, and
    /// unpacking returns the rows.
    ///
    /// # Errors
    /// [`LayoutError::Groups`] and [`LayoutError::Unpacked`].
    pub fn check(&self, rows: &[&[u8]], columns: u32, packed: &[u8]) -> Result<(), LayoutError> {
        let (layout, group) = (self.name, self.group);
        let mut left = packed;
        for rows in rows.chunks(group.max(1) as usize) {
            let mut own = vec![0; (self.bytes)(rows.len() as u32, columns) as usize];
            (self.pack)(rows, &mut own);
            left = left.strip_prefix(&own[..]).ok_or(LayoutError::Groups { layout, group })?;
        }
        let back = (self.unpack)(packed, columns);
        let mut left = &back[..];
        for (row, expected) in rows.iter().enumerate() {
            left = left.strip_prefix(*expected).ok_or(LayoutError::Unpacked { layout, row })?;
        }
        match left.iter().all(|&byte| byte == PADDING) {
            true => Ok(()),
            false => Err(LayoutError::Unpacked { layout, row: rows.len() }),
        }
    }
}

/// The bytes of rows of bf16 elements: `bytes` of a layout that only reorders them.
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
        group: 1,
        bytes: bf16_bytes,
        apart: |_| Vec::new(),
        pack: |rows, packed| packed.copy_from_slice(&rows.concat()),
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
        check: None,
        dot: None,
        dot_q8: None,
    };

    /// The last row and the others.
    fn turned(rows: &[&[u8]]) -> Vec<u8> {
        let (last, others) = rows.split_last().expect("rows");
        [last, &others.concat()[..]].concat()
    }

    #[test]
    fn a_layout_keeps_the_rows() {
        let layout = "rows";
        let rows: Vec<Vec<u8>> = (0..16).map(|row| vec![row; 64]).collect();
        let rows: Vec<&[u8]> = rows.iter().map(|row| &row[..]).collect();
        assert_eq!(ROWS.packed(&rows, 32), Ok(rows.concat()));
        let short = |rows: &[&[u8]], packed: &mut [u8]| packed[..960].copy_from_slice(&rows[..15].concat());
        let short = Layout { group: 16, pack: short, ..ROWS };
        assert_eq!(short.packed(&rows, 32), Err(LayoutError::Unpacked { layout, row: 15 }));
        let swapped = |rows: &[&[u8]], packed: &mut [u8]| {
            let mut rows = rows.to_vec();
            rows.swap(3, 4);
            packed.copy_from_slice(&rows.concat());
        };
        let wrong = Layout { group: 16, pack: swapped, ..ROWS };
        assert_eq!(wrong.packed(&rows, 32), Err(LayoutError::Unpacked { layout, row: 3 }));
        let across = Layout { group: 8, pack: |rows, packed| packed.copy_from_slice(&turned(rows)), ..ROWS };
        let across = Layout { unpack: |packed, _| [&packed[64..], &packed[..64]].concat(), ..across };
        assert_eq!(across.packed(&rows, 32), Err(LayoutError::Groups { layout, group: 8 }));
        assert!(Layout { group: 16, ..across }.packed(&rows, 32).is_ok());
        let longer = Layout { unpack: |packed, _| [packed, &[0]].concat(), ..ROWS };
        assert_eq!(longer.packed(&rows, 32), Err(LayoutError::Unpacked { layout, row: 16 }));
        let padded = Layout { unpack: |packed, _| [packed, &[PADDING; 64]].concat(), ..ROWS };
        assert_eq!(padded.packed(&rows, 32), Ok(rows.concat()));
    }
}
