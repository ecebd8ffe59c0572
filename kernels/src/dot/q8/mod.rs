//! Inner products of integers: inputs that were rounded to bytes with blocks of codes.
//!
//! The order of rounding is fixed, so a result depends on neither tile nor machine. For each group
//! of 32 elements, in order, with the input block `x` of the same elements:
//!
//! ```text
//! dot[h] = sum of (code - BIAS) * x.codes                        for each half h, exact in i32
//! y = fma(scales[h], x.scale * dot[h], y)                        for each half, where it has a scale
//! y = fma(scales[0], x.scale * (dot[0] + dot[1]), y)             where the scale is of both
//! y = fma(addend, x.scale * (x.sums[0] + x.sums[1]), y)          where the group has an addend
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;
mod round;
#[cfg(test)]
mod tests;
mod tile;

pub(crate) use round::rounded;

use crate::encoding::lanes::sixteen_at;
use crate::encoding::{Factors, GROUP, IntegerBlocks, Lanes, Place, Places, ROWS};
use amk::tensor::Q8Block;
use plain::Plain;

/// Number of vectors from which making a tile pays off.
const MANY: usize = 3;
/// Groups in a block at most.
const MOST_GROUPS: usize = 8;
/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Integer arithmetic of a processor on 16 rows. Rows 4 apart share a quarter of them: number `q`
/// has rows `q`, `q + 4`, `q + 8` and `q + 12`.
trait Integers: Lanes {
    /// 16 bytes of each row of a quarter.
    type Bytes: Copy;
    /// Four integers for each row of a quarter.
    type Fours: Copy;

    /// Bytes of a quarter.
    fn bytes(self, rows: [&[u8; 16]; 4]) -> Self::Bytes;
    /// The bits of a place.
    fn at(self, bytes: Self::Bytes, shift: u32, mask: u8) -> Self::Bytes;
    /// `low | high << shift`, where no bit crosses its byte.
    fn above(self, low: Self::Bytes, high: Self::Bytes, shift: u32) -> Self::Bytes;
    /// Flips the `bits` of each byte.
    fn flip(self, bytes: Self::Bytes, bits: u8) -> Self::Bytes;
    /// `table[code]` for each code, which is below 16.
    fn look_up(self, table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes;
    /// Word `i` of each row's bytes, for each `i`.
    fn transposed(self, quarters: [Self::Bytes; 4]) -> [Self::Ints; 4];

    /// Zeros.
    fn fours(self) -> Self::Fours;
    /// Adds products of codes up to `most` with `x`, four to each integer.
    fn multiply_bytes(self, fours: Self::Fours, codes: Self::Bytes, x: &[i8; 16], most: u8) -> Self::Fours;
    /// The sum of each row.
    fn rows(self, quarters: [Self::Fours; 4]) -> Self::Ints;

    /// The same integer for all rows.
    fn same(self, value: i32) -> Self::Ints;
    /// Sums.
    fn plus(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Adds the inner product of each row's four codes up to `most` with `x`.
    fn multiply(self, dots: Self::Ints, codes: &[[u8; 4]; ROWS], x: [i8; 4], most: u8) -> Self::Ints;
    /// `fma(factors, scale * dots, sums)`.
    fn add(self, sums: Self::Floats, dots: Self::Ints, scale: f32, factors: Self::Floats) -> Self::Floats;
    /// `fma(factors, value, sums)`.
    fn add_value(self, sums: Self::Floats, value: f32, factors: Self::Floats) -> Self::Floats;

    /// Bytes of the integers.
    fn bytes_of(self, ints: Self::Ints) -> [[u8; 4]; ROWS];
    /// The floats.
    fn floats_of(self, floats: Self::Floats) -> [f32; ROWS];

    /// Prefetches the cache line of an address, which need not be mapped.
    #[inline(always)]
    fn fetch(self, _: *const u8) {}
}

/// [`Lanes::words`] of rows.
#[inline(always)]
fn words_of<I: Integers>(integers: I, rows: &[&[u8; 16]; ROWS]) -> [I::Ints; 4] {
    let mut quarters = [integers.bytes(quarter(rows, 0)); 4];
    for (at, bytes) in quarters.iter_mut().enumerate().skip(1) {
        *bytes = integers.bytes(quarter(rows, at));
    }
    integers.transposed(quarters)
}

/// The items of a quarter's rows.
#[inline(always)]
fn quarter<T: Copy>(rows: &[T; ROWS], at: usize) -> [T; 4] {
    [rows[at], rows[at + 4], rows[at + 8], rows[at + 12]]
}

/// [`amk::encoding::DotQ8`] of an encoding.
///
/// # Panics
/// If `rows` ends before the last row, or a row is not as long as a vector.
pub(crate) fn q8_products<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    xs: &[Q8Block],
    vectors: usize,
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    let groups = xs.len() / vectors.max(1);
    assert!(groups.is_multiple_of(B::GROUPS), "{groups} groups of {GROUP} are not whole blocks");
    #[cfg(target_arch = "x86_64")]
    {
        if avx512::is_there() {
            // SAFETY: the processor supports the function's target features.
            return unsafe { avx512::products::<BYTES, B>(xs, vectors, rows, stride, out) };
        }
        if avx2::has_vnni() {
            // SAFETY: the processor supports the function's target features.
            return unsafe { avx2::vnni_products::<BYTES, B>(xs, vectors, rows, stride, out) };
        }
        if avx2::is_there() {
            // SAFETY: the processor supports the function's target features.
            return unsafe { avx2::products::<BYTES, B>(xs, vectors, rows, stride, out) };
        }
    }
    products_of::<BYTES, B>(Plain, xs, vectors, rows, stride, out);
}

/// Compiled once for each instruction set.
#[inline(always)]
fn products_of<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    integers: impl Integers,
    xs: &[Q8Block],
    vectors: usize,
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    if xs.is_empty() {
        return out.fill(0.0);
    }
    let (groups, count) = (xs.len() / vectors, out.len() / vectors);
    let rows = Rows::<BYTES> { bytes: rows, stride, blocks: groups / B::GROUPS, count };
    if vectors >= MANY {
        return tile::products::<BYTES, B>(integers, xs, vectors, &rows, out);
    }
    // Loops, because a closure would not be compiled for the caller's instruction set.
    for (x, out) in xs.chunks_exact(groups).zip(out.chunks_exact_mut(count.max(1))) {
        for (number, out) in out.chunks_mut(ROWS).enumerate() {
            let sums = sixteen::<BYTES, B>(integers, x, &rows, number * ROWS);
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// Rows of blocks.
struct Rows<'r, const BYTES: usize> {
    bytes: &'r [u8],
    /// Bytes from one row to the next.
    stride: usize,
    /// Blocks in a row.
    blocks: usize,
    count: usize,
}

impl<'r, const BYTES: usize> Rows<'r, BYTES> {
    /// The rows from `first` on; the last row is repeated as often as needed.
    #[inline(always)]
    fn some<const N: usize>(&self, first: usize) -> [&'r [[u8; BYTES]]; N] {
        let mut rows = [&[][..]; N];
        for (at, row) in rows.iter_mut().enumerate() {
            let bytes = &self.bytes[(first + at).min(self.count - 1) * self.stride..];
            *row = bytes[..self.blocks * BYTES].as_chunks().0;
        }
        rows
    }
}

/// A block of each of 16 rows.
type Blocks<'r, const BYTES: usize> = [&'r [u8; BYTES]; ROWS];

/// Block number `number` of the rows.
#[inline(always)]
fn blocks_of<'r, const BYTES: usize>(rows: &[&'r [[u8; BYTES]]; ROWS], number: usize) -> Blocks<'r, BYTES> {
    let mut blocks = [&[0; BYTES]; ROWS];
    for (block, row) in blocks.iter_mut().zip(rows) {
        *block = &row[number];
    }
    blocks
}

/// The factors of the groups of blocks, [`IntegerBlocks::GROUPS`] in number.
#[inline(always)]
fn factors_of<const BYTES: usize, B: IntegerBlocks<BYTES>, I: Integers>(
    integers: I,
    blocks: &Blocks<'_, BYTES>,
) -> [Factors<I::Floats>; MOST_GROUPS] {
    const { assert!(B::GROUPS <= MOST_GROUPS, "a block has at most 8 groups") };
    let none = integers.floats([0.0; ROWS]);
    let mut factors = [Factors { scales: [none; 2], addend: none }; MOST_GROUPS];
    B::factors(integers, blocks, &mut factors[..B::GROUPS]);
    factors
}

/// The codes of the halves of a group of a quarter, looked up in the table if there is one.
#[inline(always)]
fn codes_of<const BYTES: usize, B: IntegerBlocks<BYTES>, I: Integers>(
    integers: I,
    blocks: &Blocks<'_, BYTES>,
    group: usize,
    quarter: usize,
) -> [I::Bytes; 2] {
    let rows = self::quarter(blocks, quarter);
    let mut halves = match [B::places(group, 0), B::places(group, 1)] {
        [Some(first), Some(last)] => [bytes_at(integers, &rows, first), bytes_at(integers, &rows, last)],
        _ => {
            let mut codes = [[[0; 16]; 2]; 4];
            for (codes, row) in codes.iter_mut().zip(rows) {
                codes.as_flattened_mut().copy_from_slice(&B::codes(row, group));
            }
            let [[a, e], [b, f], [c, g], [d, h]] = &codes;
            [integers.bytes([a, b, c, d]), integers.bytes([e, f, g, h])]
        }
    };
    if let Some(table) = B::TABLE {
        for half in &mut halves {
            *half = integers.look_up(table, *half);
        }
    }
    halves
}

/// The codes at places.
#[inline(always)]
fn bytes_at<const BYTES: usize, I: Integers>(integers: I, rows: &[&[u8; BYTES]; 4], places: Places) -> I::Bytes {
    let mut codes = place(integers, rows, places.low);
    if let Some((high, shift)) = places.high {
        codes = integers.above(codes, place(integers, rows, high), shift);
    }
    if places.flipped != 0 { integers.flip(codes, places.flipped) } else { codes }
}

/// The bits at a place.
#[inline(always)]
fn place<const BYTES: usize, I: Integers>(integers: I, rows: &[&[u8; BYTES]; 4], place: Place) -> I::Bytes {
    let mut bytes = [&[0; 16]; 4];
    for (bytes, row) in bytes.iter_mut().zip(rows) {
        *bytes = sixteen_at(row, place.at);
    }
    integers.at(integers.bytes(bytes), place.shift, place.mask)
}

/// The products of a vector with 16 rows, starting at row `first`.
#[inline(always)]
fn sixteen<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    integers: impl Integers,
    x: &[Q8Block],
    rows: &Rows<'_, BYTES>,
    first: usize,
) -> [f32; ROWS] {
    // Prefetches an equal part of the next rows.
    let mut next = rows.bytes.as_ptr().wrapping_add((first + ROWS) * rows.stride);
    // The nibbles of one byte often belong to two groups, which then share one read.
    let together = if B::GROUPS.is_multiple_of(2) { 2 } else { 1 };
    let fetched = ROWS * BYTES / B::GROUPS;
    let rows = rows.some(first);
    let mut sums = integers.floats([0.0; ROWS]);
    for (number, x) in x.chunks_exact(B::GROUPS).enumerate() {
        let blocks = blocks_of(&rows, number);
        let factors = factors_of::<BYTES, B, _>(integers, &blocks);
        for group in 0..B::GROUPS / together {
            for group in group * together..(group + 1) * together {
                for line in 0..fetched.div_ceil(LINE) {
                    integers.fetch(next.wrapping_add(line * LINE));
                }
                next = next.wrapping_add(fetched);
                let dots = dots_of::<BYTES, B, _>(integers, &x[group], &blocks, group);
                sums = add_group::<BYTES, B, _>(integers, sums, dots, &x[group], &factors[group]);
            }
        }
    }
    integers.floats_of(sums)
}

/// The inner products of the halves of a group; without [`IntegerBlocks::HALVES`] the first covers
/// both.
#[inline(always)]
fn dots_of<const BYTES: usize, B: IntegerBlocks<BYTES>, I: Integers>(
    integers: I,
    x: &Q8Block,
    blocks: &Blocks<'_, BYTES>,
    group: usize,
) -> [I::Ints; 2] {
    let (mut firsts, mut lasts) = ([integers.fours(); 4], [integers.fours(); 4]);
    let [first_x, last_x] = halves_of(x);
    for (quarter, (first, last)) in firsts.iter_mut().zip(&mut lasts).enumerate() {
        let [first_codes, last_codes] = codes_of::<BYTES, B, I>(integers, blocks, group, quarter);
        *first = integers.multiply_bytes(integers.fours(), first_codes, first_x, B::MOST);
        let before = if B::HALVES { integers.fours() } else { *first };
        *last = integers.multiply_bytes(before, last_codes, last_x, B::MOST);
    }
    let biases = biases::<BYTES, B>(x);
    let last = integers.plus(integers.rows(lasts), integers.same(biases[1]));
    if !B::HALVES {
        return [last; 2];
    }
    [integers.plus(integers.rows(firsts), integers.same(biases[0])), last]
}

/// The codes of the halves.
#[inline(always)]
fn halves_of(x: &Q8Block) -> [&[i8; 16]; 2] {
    let halves = x.codes.as_chunks::<16>().0;
    [&halves[0], &halves[1]]
}

/// The excess of the inner products of codes, times -1.
#[inline(always)]
fn biases<const BYTES: usize, B: IntegerBlocks<BYTES>>(x: &Q8Block) -> [i32; 2] {
    let [first, last] = x.sums;
    if B::HALVES { [-B::BIAS * first, -B::BIAS * last] } else { [-B::BIAS * (first + last); 2] }
}

/// Adds the products of a group with these inner products.
#[inline(always)]
fn add_group<const BYTES: usize, B: IntegerBlocks<BYTES>, I: Integers>(
    integers: I,
    sums: I::Floats,
    dots: [I::Ints; 2],
    x: &Q8Block,
    factors: &Factors<I::Floats>,
) -> I::Floats {
    let mut sums = integers.add(sums, dots[0], x.scale, factors.scales[0]);
    if B::HALVES {
        sums = integers.add(sums, dots[1], x.scale, factors.scales[1]);
    }
    if B::ADDEND {
        sums = integers.add_value(sums, x.scale * (x.sums[0] + x.sums[1]) as f32, factors.addend);
    }
    sums
}
