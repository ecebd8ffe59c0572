//! Blocks of 16 rows side by side, for inner products of integers.

use super::IntegerBlocks;

/// Rows side by side.
pub const ROWS: usize = 16;

/// The same bits of 16 consecutive bytes of a block.
#[derive(Clone, Copy)]
pub struct Place {
    /// The first of the bytes.
    pub at: usize,
    /// How far the bits are from the lowest.
    pub shift: u32,
    /// The bits, once they are shifted.
    pub mask: u8,
}

/// The places of the codes of half a group.
#[derive(Clone, Copy)]
pub struct Places {
    /// Their lower bits.
    pub low: Place,
    /// The upper bits, and the number of bits below them.
    pub high: Option<(Place, u32)>,
    /// Bits that are the other way round.
    pub flipped: u8,
}

impl Places {
    /// Codes of bits that are together.
    pub const fn of(at: usize, shift: u32, mask: u8) -> Self {
        Self { low: Place { at, shift, mask }, high: None, flipped: 0 }
    }
}

/// Multipliers of a group's dots, in each row.
#[derive(Clone, Copy)]
pub struct Factors<F> {
    /// [`IntegerBlocks::scales`].
    pub scales: [F; 2],
    /// [`IntegerBlocks::addend`].
    pub addend: F,
}

/// Integers and floats for each of 16 rows, in the registers of a processor.
pub trait Lanes: Copy {
    /// 32 bits for each row.
    type Ints: Copy;
    /// A float for each row.
    type Floats: Copy;

    /// These integers.
    fn ints(self, ints: [u32; ROWS]) -> Self::Ints;
    /// The four words of each row's 16 bytes, the first byte of a word the lowest.
    fn words(self, bytes: &[&[u8; 16]; ROWS]) -> [Self::Ints; 4];
    /// Shifts right, then keeps the bits of the mask.
    fn bits(self, ints: Self::Ints, shift: u32, mask: u32) -> Self::Ints;
    /// The bits of either.
    fn or(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Integers from 0 on, below 2^24.
    fn unsigned(self, ints: Self::Ints) -> Self::Floats;
    /// The signed byte that is `shift` bits from the lowest.
    fn signed_byte(self, ints: Self::Ints, shift: u32) -> Self::Floats;
    /// The binary16 in the lower 16 bits, which is finite.
    fn half(self, ints: Self::Ints) -> Self::Floats;
    /// These floats.
    fn floats(self, floats: [f32; ROWS]) -> Self::Floats;
    /// Products.
    fn times(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// With the other sign.
    fn negated(self, floats: Self::Floats) -> Self::Floats;
}

/// The words at byte `at` of each row.
#[inline(always)]
pub(super) fn words_at<const BYTES: usize, L: Lanes>(lanes: L, blocks: &[&[u8; BYTES]; ROWS], at: usize) -> L::Ints {
    let mut words = [0; ROWS];
    for (word, block) in words.iter_mut().zip(blocks) {
        *word = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    }
    lanes.ints(words)
}

/// The four words from byte `at` of each row on.
#[inline(always)]
pub(super) fn four_words_at<const BYTES: usize, L: Lanes>(
    lanes: L,
    blocks: &[&[u8; BYTES]; ROWS],
    at: usize,
) -> [L::Ints; 4] {
    let mut bytes = [&[0; 16]; ROWS];
    for (bytes, block) in bytes.iter_mut().zip(blocks) {
        *bytes = sixteen_at(block, at);
    }
    lanes.words(&bytes)
}

/// 16 bytes of a block.
#[inline(always)]
pub(crate) fn sixteen_at<const BYTES: usize>(block: &[u8; BYTES], at: usize) -> &[u8; 16] {
    &block[at..].as_chunks::<16>().0[0]
}

/// Factors of blocks of one group that begin with a binary16.
#[inline(always)]
pub(super) fn half_factors<const BYTES: usize, L: Lanes>(
    lanes: L,
    blocks: &[&[u8; BYTES]; ROWS],
    factors: &mut [Factors<L::Floats>],
) {
    let scale = lanes.half(words_at(lanes, blocks, 0));
    factors[0] = Factors { scales: [scale; 2], addend: scale };
}

/// Factors of blocks of one group that begin with two binary16 numbers, the scale and the addend.
#[inline(always)]
pub(super) fn two_half_factors<const BYTES: usize, L: Lanes>(
    lanes: L,
    blocks: &[&[u8; BYTES]; ROWS],
    factors: &mut [Factors<L::Floats>],
) {
    let words = words_at(lanes, blocks, 0);
    let addend = lanes.half(lanes.bits(words, 16, 0xffff));
    factors[0] = Factors { scales: [lanes.half(words); 2], addend };
}

/// Factors by the functions of single blocks.
#[inline(always)]
pub(super) fn factors_of_each<const BYTES: usize, B: IntegerBlocks<BYTES>, L: Lanes>(
    lanes: L,
    blocks: &[&[u8; BYTES]; ROWS],
    factors: &mut [Factors<L::Floats>],
) {
    for (group, factors) in factors.iter_mut().enumerate() {
        let (mut scales, mut addends) = ([[0.0; ROWS]; 2], [0.0; ROWS]);
        for (at, block) in blocks.iter().enumerate() {
            [scales[0][at], scales[1][at]] = B::scales(block, group);
            if B::ADDEND {
                addends[at] = B::addend(block, group);
            }
        }
        let [first, last] = scales;
        let scales = [lanes.floats(first), lanes.floats(last)];
        *factors = Factors { scales, addend: lanes.floats(addends) };
    }
}
