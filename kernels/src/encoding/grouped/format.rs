//! Group blocks made from the parts that folders store, and back.

use super::super::GROUP;
use super::codes::{Bytes, Integers, Nibbles};
use amk::encoding::Encoding;
use amk::ir::DType;

/// The kind of a group's codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCodes {
    /// Integers from 0 to 15, minus 8 or a zero point.
    Int4,
    /// Integers from 0 to 255, minus 128 or a zero point.
    Int8,
    /// e4m3.
    Fp8,
}

/// An encoding by groups: each group of `len` elements has its own scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupFormat {
    /// The kind of the codes.
    pub codes: GroupCodes,
    /// Whether each group has its own zero point.
    pub zero: bool,
    /// The type of the scales: f16, bf16 or f32.
    pub scale: DType,
    /// Elements of a group: 32, 64 or 128.
    pub len: usize,
}

impl GroupFormat {
    /// The format of an encoding, if it is by groups.
    pub fn of(encoding: &Encoding) -> Option<Self> {
        Self::all().find(|format| format.name() == encoding.name)
    }

    /// The name of the encoding: `int4:128`, `int8:32:zero:bf16`, `fp8:64`. The default type of
    /// scales is omitted: f16, or f32 for fp8.
    pub fn name(self) -> String {
        let (codes, usual) = match self.codes {
            GroupCodes::Int4 => ("int4", DType::F16),
            GroupCodes::Int8 => ("int8", DType::F16),
            GroupCodes::Fp8 => ("fp8", DType::F32),
        };
        let zero = if self.zero { ":zero" } else { "" };
        let scale = if self.scale == usual { String::new() } else { format!(":{}", self.scale) };
        format!("{codes}:{}{zero}{scale}", self.len)
    }

    /// Returns the encoding with these parts, if it exists.
    pub fn encoding(self) -> Option<&'static Encoding> {
        Encoding::find(&self.name())
    }

    fn all() -> impl Iterator<Item = Self> {
        let codes = [GroupCodes::Int4, GroupCodes::Int8, GroupCodes::Fp8].into_iter();
        let zeros = codes.flat_map(|codes| [false, true].map(|zero| (codes, zero)));
        let scales = zeros.flat_map(|(codes, zero)| {
            [DType::F16, DType::BF16, DType::F32].map(|scale| Self { codes, zero, scale, len: 0 })
        });
        scales.flat_map(|format| [32, 64, 128].map(|len| Self { len, ..format }))
    }

    /// Bytes of a scale.
    pub fn scale_bytes(self) -> usize {
        self.scale.bytes() as usize
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.head() + self.len / GROUP * self.step()
    }

    /// Bytes before the codes.
    fn head(self) -> usize {
        self.scale_bytes() + usize::from(self.zero)
    }

    /// Writes a block from a scale, little endian, a zero point, which a format without zero points
    /// does not store, and the codes of its elements, one byte each.
    ///
    /// # Panics
    /// If the length of a slice does not match the block.
    pub fn join(self, scale: &[u8], zero: u8, codes: &[u8], block: &mut [u8]) {
        assert_eq!(codes.len(), self.len, "codes of a group");
        let (head, to) = block.split_at_mut(self.head());
        head[..scale.len()].copy_from_slice(scale);
        head[scale.len()..].fill(zero);
        for (codes, to) in codes.as_chunks::<GROUP>().0.iter().zip(to.chunks_exact_mut(self.step())) {
            match self.codes {
                GroupCodes::Int4 => Nibbles::set_codes(to, *codes),
                GroupCodes::Int8 | GroupCodes::Fp8 => Bytes::set_codes(to, *codes),
            }
        }
    }

    /// Returns the scale, the zero point, if there is one, and the codes of a block: the inverse of
    /// [`Self::join`].
    ///
    /// # Panics
    /// If the length of a slice does not match the block.
    pub fn split<'b>(self, block: &'b [u8], codes: &mut [u8]) -> (&'b [u8], Option<u8>) {
        assert_eq!(codes.len(), self.len, "codes of a group");
        let (head, from) = block.split_at(self.head());
        for (codes, from) in codes.as_chunks_mut::<GROUP>().0.iter_mut().zip(from.chunks_exact(self.step())) {
            *codes = match self.codes {
                GroupCodes::Int4 => Nibbles::codes(from),
                GroupCodes::Int8 | GroupCodes::Fp8 => Bytes::codes(from),
            };
        }
        let (scale, zero) = head.split_at(self.scale_bytes());
        (scale, zero.first().copied())
    }

    /// Bytes of 32 codes.
    fn step(self) -> usize {
        match self.codes {
            GroupCodes::Int4 => GROUP / 2,
            GroupCodes::Int8 | GroupCodes::Fp8 => GROUP,
        }
    }
}
