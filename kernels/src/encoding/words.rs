//! Codes of a group, taken from their bytes four at a time: for packing, which does nothing else
//! with them.

use super::GROUP;

/// The nibbles of 16 bytes, first the low ones.
pub(super) fn nibbles(bytes: &[u8]) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    let (low, high) = out.split_at_mut(GROUP / 2);
    let halves = low.as_chunks_mut::<4>().0.iter_mut().zip(high.as_chunks_mut::<4>().0);
    for ((low, high), word) in halves.zip(bytes[..GROUP / 2].as_chunks().0) {
        let word = u32::from_le_bytes(*word);
        (*low, *high) = ((word & 0x0f0f_0f0f).to_le_bytes(), (word >> 4 & 0x0f0f_0f0f).to_le_bytes());
    }
    out
}

/// A code of each byte.
#[inline(always)]
pub(super) fn each(bytes: &[u8], code: impl Fn(u32) -> u32) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    for (to, word) in out.as_chunks_mut().0.iter_mut().zip(bytes[..GROUP].as_chunks().0) {
        *to = code(u32::from_le_bytes(*word)).to_le_bytes();
    }
    out
}

/// A code of a byte each of two parts.
#[inline(always)]
pub(super) fn both(low: &[u8], high: &[u8], code: impl Fn(u32, u32) -> u32) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    let words = low[..GROUP].as_chunks().0.iter().zip(high[..GROUP].as_chunks().0);
    for (to, (low, high)) in out.as_chunks_mut().0.iter_mut().zip(words) {
        *to = code(u32::from_le_bytes(*low), u32::from_le_bytes(*high)).to_le_bytes();
    }
    out
}
