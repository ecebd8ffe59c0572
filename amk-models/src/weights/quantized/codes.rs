//! Small integers, or fp8, of a matrix as a tensor stores them.

use super::super::row_source::Extent;

/// The codes, or the zeros, of a matrix.
#[derive(Debug)]
pub(crate) struct Codes {
    extent: Extent,
    packing: Packing,
    /// Distances between adjacent codes in a column and in a row, in bytes or in int32 words.
    strides: [usize; 2],
}

/// How codes are packed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packing {
    /// A byte each, to which `plus` is added: half of the range for signed integers.
    Bytes {
        /// The number added.
        plus: u8,
    },
    /// Consecutive codes of a row share an int32, from its lowest bits on.
    AlongRows {
        /// Bits of a code.
        bits: u32,
    },
    /// Neighbours in a column share an int32.
    AlongColumns {
        /// Bits of a code.
        bits: u32,
        /// The place of each row in its int32, counted from the lowest bits.
        places: [u8; 8],
        /// The number added to each int32 before it is unpacked.
        plus: u32,
    },
}

/// Rows in their own order.
pub(super) const IN_ORDER: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

impl Codes {
    pub(super) fn new(extent: Extent, packing: Packing, strides: [usize; 2]) -> Self {
        Self { extent, packing, strides }
    }

    pub(crate) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// The codes of a row from its first column on.
    pub(super) fn row(&self, row: usize, codes: &mut [u8]) {
        let [down, right] = self.strides;
        match self.packing {
            Packing::Bytes { plus } => {
                let bytes = &self.extent.bytes()[row * down..];
                codes.iter_mut().enumerate().for_each(|(at, code)| *code = bytes[at * right].wrapping_add(plus));
            }
            Packing::AlongRows { bits } => {
                let per = (u32::BITS / bits) as usize;
                for (number, codes) in codes.chunks_mut(per).enumerate() {
                    let mut word = self.word(row * down + number * right);
                    for code in codes {
                        *code = (word & mask(bits)) as u8;
                        word >>= bits;
                    }
                }
            }
            Packing::AlongColumns { bits, places, plus } => {
                let per = (u32::BITS / bits) as usize;
                let (first, shift) = (row / per * down, bits * u32::from(places[row % per]));
                for (at, code) in codes.iter_mut().enumerate() {
                    *code = (self.word(first + at * right).wrapping_add(plus) >> shift & mask(bits)) as u8;
                }
            }
        }
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = &self.extent.bytes()[4 * at..][..4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

fn mask(bits: u32) -> u32 {
    (1 << bits) - 1
}
