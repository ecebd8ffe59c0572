//! Inner products of integers: inputs that were rounded to bytes with blocks of codes.
//!
//! The order of what is rounded is fixed, so a result depends on neither tile nor machine. For each
//! group of 32 elements, in their order, with the input block `x` of the same elements:
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

use crate::encoding::{GROUP, IntegerBlocks};
use amk::tensor::Q8Block;
use plain::Plain;

/// Rows whose products with one vector are computed side by side.
const EIGHT: usize = 8;
/// Rows of a tile, by which many vectors are multiplied.
const SIXTEEN: usize = 16;
/// Vectors for which a tile is worth its making.
const MANY: usize = 3;

/// What a processor does with integers.
trait Integers: Copy {
    /// An integer for each of 16 rows.
    type Dots: Copy;
    /// A float for each of 16 rows.
    type Sums: Copy;

    /// `table[code]` for each code, which is below 16.
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: [u8; GROUP]) -> [u8; GROUP] {
        codes.map(|code| table[usize::from(code & 0xf)])
    }

    /// The inner products of 8 rows of codes up to `most` with `x`: of the first 16 elements, and
    /// of the others.
    fn halves(self, codes: &[[u8; GROUP]; EIGHT], x: &[i8; GROUP], most: u8) -> [[i32; EIGHT]; 2];

    /// The same integer for all rows.
    fn dots(self, value: i32) -> Self::Dots;
    /// Adds the inner product of each row's four codes up to `most` with `x`.
    fn multiply(self, dots: Self::Dots, codes: &[[u8; 4]; SIXTEEN], x: [i8; 4], most: u8) -> Self::Dots;
    /// Zeros.
    fn sums(self) -> Self::Sums;
    /// `fma(factors, scale * dots, sums)`.
    fn add(self, sums: Self::Sums, dots: Self::Dots, scale: f32, factors: &[f32; SIXTEEN]) -> Self::Sums;
    /// `fma(factors, value, sums)`.
    fn add_value(self, sums: Self::Sums, value: f32, factors: &[f32; SIXTEEN]) -> Self::Sums;
    /// The floats.
    fn floats(self, sums: Self::Sums) -> [f32; SIXTEEN];
}

/// [`amk::encoding::DotQ8`] of an encoding.
///
/// # Panics
/// When `rows` ends before the last row, or a row is not as long as a vector.
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
    // Loops, as a closure would not be compiled for the caller's instruction set.
    for (x, out) in xs.chunks_exact(groups).zip(out.chunks_exact_mut(count.max(1))) {
        for (number, out) in out.chunks_mut(EIGHT).enumerate() {
            let sums = eight::<BYTES, B>(integers, x, &rows.some(number * EIGHT));
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
    /// The rows from `first` on; after the last row it again, as often as needed.
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

/// The codes of a group, from the table where there is one.
#[inline(always)]
fn codes_of<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    integers: impl Integers,
    block: &[u8; BYTES],
    group: usize,
) -> [u8; GROUP] {
    let codes = B::codes(block, group);
    match B::TABLE {
        Some(table) => integers.look_up(table, codes),
        None => codes,
    }
}

/// The products of a vector with 8 rows.
#[inline(always)]
fn eight<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    integers: impl Integers,
    x: &[Q8Block],
    rows: &[&[[u8; BYTES]]; EIGHT],
) -> [f32; EIGHT] {
    let mut sums = [0.0f32; EIGHT];
    for (number, x) in x.chunks_exact(B::GROUPS).enumerate() {
        let mut blocks = [&[0; BYTES]; EIGHT];
        for (block, row) in blocks.iter_mut().zip(rows) {
            *block = &row[number];
        }
        for (group, x) in x.iter().enumerate() {
            add_group::<BYTES, B>(integers, x, &blocks, group, &mut sums);
        }
    }
    sums
}

/// Adds the products of a group of 8 rows.
#[inline(always)]
fn add_group<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    integers: impl Integers,
    x: &Q8Block,
    blocks: &[&[u8; BYTES]; EIGHT],
    group: usize,
    sums: &mut [f32; EIGHT],
) {
    let (mut codes, mut scales) = ([[0; GROUP]; EIGHT], [[0.0f32; EIGHT]; 2]);
    for (at, block) in blocks.iter().enumerate() {
        codes[at] = codes_of::<BYTES, B>(integers, block, group);
        [scales[0][at], scales[1][at]] = B::scales(block, group);
    }
    let [first, last] = integers.halves(&codes, &x.codes, B::MOST);
    let total = x.sums[0] + x.sums[1];
    for at in 0..EIGHT {
        if B::HALVES {
            let dots = [first[at] - B::BIAS * x.sums[0], last[at] - B::BIAS * x.sums[1]];
            sums[at] = scales[0][at].mul_add(x.scale * dots[0] as f32, sums[at]);
            sums[at] = scales[1][at].mul_add(x.scale * dots[1] as f32, sums[at]);
        } else {
            let dot = first[at] + last[at] - B::BIAS * total;
            sums[at] = scales[0][at].mul_add(x.scale * dot as f32, sums[at]);
        }
    }
    if B::ADDEND {
        let value = x.scale * total as f32;
        for (sum, block) in sums.iter_mut().zip(blocks) {
            *sum = B::addend(block, group).mul_add(value, *sum);
        }
    }
}
