//! Inner products of several vectors with the rows of a matrix, which is read once.
//!
//! The bits are the same as from [`super::products`] for each vector. A block of the matrix is
//! widened to f32 and stays in the nearest caches, while the vectors are processed a few at a time.
//! The sums of a few pairs are kept in registers, 16 lanes at a time: lanes are not combined before
//! the end. Many vectors use packed panels ([`super::panels`]).

use super::fold::{self, Fold, Plain, Sums};
use super::{Element, LANES, Level, gathered, panels};
use amk::tensor::Row;

/// Number of rows of the matrix that are widened at a time.
const BLOCK: usize = 16;
/// Lanes of the sums that are in registers.
const PART: usize = 16;

/// Computes `out[r, n] = sum over k of xs[r, k] * rows[n, k]` for vectors of `len` elements, stored
/// one after the other in `xs`, and `count` rows whose first elements are `stride` apart.
///
/// # Panics
/// If `rows` ends before the last row, or `out` does not have `count` elements for each vector.
pub(crate) fn products_of_rows(
    xs: &[f32],
    len: usize,
    rows: Row<'_>,
    (count, stride): (usize, usize),
    out: &mut [f32],
) {
    match rows {
        Row::F32(rows) => by_blocks(xs, len, elements(rows, stride), count, out),
        Row::F16(rows) => by_blocks(xs, len, elements(rows, stride), count, out),
        Row::BF16(rows) => by_blocks(xs, len, elements(rows, stride), count, out),
        Row::Blocks(encoding, rows) => {
            let stride = encoding.bytes_of(stride);
            let decode = |row: usize, wide: &mut [f32]| {
                (encoding.decode)(&rows[row * stride..][..encoding.bytes_of(wide.len())], wide);
            };
            by_blocks(xs, len, decode, count, out);
        }
        Row::Reordered(encoding, rows, order) => {
            products_of_rows(&gathered(xs, order), len, Row::Blocks(encoding, rows), (count, stride), out);
        }
    }
}

/// How a row of plain floats is widened.
fn elements<E: Element>(rows: &[E], stride: usize) -> impl Fn(usize, &mut [f32]) {
    move |row, wide| widen(&rows[row * stride..][..wide.len()], wide)
}

/// Computes all products; `widen` decodes a row to f32.
fn by_blocks(xs: &[f32], len: usize, widen: impl Fn(usize, &mut [f32]), count: usize, out: &mut [f32]) {
    let vectors = xs.len() / len.max(1);
    let done = if vectors < panels::MANY { 0 } else { panels::products(Level::best(), xs, len, &widen, count, out) };
    let mut wide = vec![0.0; BLOCK.min(count - done) * len];
    for first in (done..count).step_by(BLOCK) {
        let block = BLOCK.min(count - first);
        for (row, wide) in wide.chunks_mut(len.max(1)).take(block).enumerate() {
            widen(first + row, wide);
        }
        dispatch(xs, len, &wide[..block * len], Out { all: out, count, first });
    }
}

fn widen<E: Element>(row: &[E], wide: &mut [f32]) {
    let ((chunks, rest), (to, to_rest)) = (row.as_chunks::<LANES>(), wide.as_chunks_mut::<LANES>());
    to.iter_mut().zip(chunks).for_each(|(to, chunk)| *to = E::widen(chunk));
    to_rest.iter_mut().zip(rest).for_each(|(to, element)| *to = element.widen_one());
}

/// The results; a block writes the columns from `first` on.
pub(super) struct Out<'a> {
    pub all: &'a mut [f32],
    pub count: usize,
    pub first: usize,
}

fn dispatch(xs: &[f32], len: usize, wide: &[f32], out: Out<'_>) {
    match Level::best() {
        // SAFETY: the processor supports the function's target features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { block_avx512(xs, len, wide, out) },
        // SAFETY: the processor supports the function's target features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { block_avx2(xs, len, wide, out) },
        Level::Plain => block::<2, 4>(Plain, xs, len, wide, out),
    }
}

/// 24 sums in 32 registers of 16 lanes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn block_avx512(xs: &[f32], len: usize, wide: &[f32], out: Out<'_>) {
    // SAFETY: AVX-512 includes AVX.
    block::<4, 6>(unsafe { fold::Avx::new() }, xs, len, wide, out);
}

/// 4 sums in 8 of 16 registers of 8 lanes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn block_avx2(xs: &[f32], len: usize, wide: &[f32], out: Out<'_>) {
    // SAFETY: AVX2 includes AVX.
    block::<2, 2>(unsafe { fold::Avx::new() }, xs, len, wide, out);
}

/// Multiplies all vectors by a block, `X` vectors and `W` rows at a time, or the next smaller
/// numbers.
#[inline(always)]
fn block<const W: usize, const X: usize>(fold: impl Fold, xs: &[f32], len: usize, wide: &[f32], mut out: Out<'_>) {
    let vectors = xs.len() / len.max(1);
    let mut at = 0;
    while at < vectors {
        at += match vectors - at {
            left if left >= X => by_rows::<W, X>(fold, xs, len, wide, at, &mut out),
            left if left >= 3 => by_rows::<W, 3>(fold, xs, len, wide, at, &mut out),
            2 => by_rows::<W, 2>(fold, xs, len, wide, at, &mut out),
            _ => by_rows::<W, 1>(fold, xs, len, wide, at, &mut out),
        };
    }
}

/// Multiplies `X` vectors by a block, `W` rows at a time.
#[inline(always)]
fn by_rows<const W: usize, const X: usize>(
    fold: impl Fold,
    xs: &[f32],
    len: usize,
    wide: &[f32],
    at: usize,
    out: &mut Out<'_>,
) -> usize {
    let rows = wide.len() / len.max(1);
    let mut row = 0;
    while row + W <= rows {
        pairs::<W, X>(fold, xs, len, wide, (row, at), out);
        row += W;
    }
    while row < rows {
        pairs::<1, X>(fold, xs, len, wide, (row, at), out);
        row += 1;
    }
    X
}

/// The products of `W` rows, starting at `row`, with `X` vectors, starting at `at`.
#[inline(always)]
fn pairs<const W: usize, const X: usize>(
    fold: impl Fold,
    xs: &[f32],
    len: usize,
    wide: &[f32],
    (row, at): (usize, usize),
    out: &mut Out<'_>,
) {
    let (x, w): ([&[f32]; X], [&[f32]; W]) = (vectors(xs, len, at), vectors(wide, len, row));
    let mut parts = [[[[0.0f32; PART]; X]; W]; LANES / PART];
    let (x_chunks, w_chunks) = (chunks(&x), chunks(&w));
    for (number, part) in parts.iter_mut().enumerate() {
        *part = part_of(&x_chunks, &w_chunks, number);
    }
    add_rest(&x, &w, &mut parts);
    let [a, b, c, d] = &parts;
    let mut sums = [[[0.0f32; PART]; X]; W];
    for w in 0..W {
        for x in 0..X {
            for lane in 0..PART {
                sums[w][x][lane] = (a[w][x][lane] + b[w][x][lane]) + (c[w][x][lane] + d[w][x][lane]);
            }
        }
    }
    let first = at * out.count + out.first + row;
    fold::all(fold, sums.as_flattened(), |pair, total| out.all[first + pair % X * out.count + pair / X] = total);
}

/// `N` vectors from number `first` on.
#[inline(always)]
fn vectors<const N: usize>(all: &[f32], len: usize, first: usize) -> [&[f32]; N] {
    let mut vectors = [&all[..0]; N];
    for (number, vector) in vectors.iter_mut().enumerate() {
        *vector = &all[(first + number) * len..][..len];
    }
    vectors
}

/// The whole chunks of a vector.
type Chunks<'v> = &'v [[f32; LANES]];

#[inline(always)]
fn chunks<'v, const N: usize>(vectors: &[&'v [f32]; N]) -> [Chunks<'v>; N] {
    let mut chunks: [Chunks<'v>; N] = [&[]; N];
    for (chunks, vector) in chunks.iter_mut().zip(vectors) {
        *chunks = vector.as_chunks().0;
    }
    chunks
}

/// Adds the elements after the last whole chunk.
#[inline(always)]
fn add_rest<const W: usize, const X: usize>(
    xs: &[&[f32]; X],
    ws: &[&[f32]; W],
    parts: &mut [[[Sums; X]; W]; LANES / PART],
) {
    let len = xs[0].len();
    for at in len / LANES * LANES..len {
        let (part, lane) = (at % LANES / PART, at % PART);
        for (w, sums) in ws.iter().zip(&mut parts[part]) {
            for (x, sums) in xs.iter().zip(sums) {
                sums[lane] = x[at].mul_add(w[at], sums[lane]);
            }
        }
    }
}

/// The sums of one part of the lanes.
#[inline(always)]
fn part_of<const W: usize, const X: usize>(xs: &[Chunks<'_>; X], ws: &[Chunks<'_>; W], part: usize) -> [[Sums; X]; W] {
    let whole = xs[0].len();
    let (mut x_rows, mut w_rows) = (*xs, *ws);
    // Of equal lengths, so that the compiler knows it.
    x_rows.iter_mut().chain(&mut w_rows).for_each(|row| *row = &row[..whole]);
    let mut sums = [[[0.0f32; PART]; X]; W];
    for chunk in 0..whole {
        let mut w = [[0.0f32; PART]; W];
        for (w, row) in w.iter_mut().zip(&w_rows) {
            *w = row[chunk].as_chunks().0[part];
        }
        for (number, row) in x_rows.iter().enumerate() {
            let x: Sums = row[chunk].as_chunks().0[part];
            for (sums, w) in sums.iter_mut().zip(&w) {
                for lane in 0..PART {
                    sums[number][lane] = x[lane].mul_add(w[lane], sums[number][lane]);
                }
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dot::products;
    use crate::testing::random;
    use half::bf16;

    #[test]
    fn every_vector_gets_the_bits_of_its_own_products() {
        for len in [1, 5, 64, 65, 200, 576] {
            for (vectors, count) in [(2, 1), (7, 21), (16, 16), (6, 4), (1, 5), (5, 17), (3, 9), (33, 37)] {
                let (xs, stride) = (random(1, vectors * len), len + 3);
                let wide = random(2, stride * count);
                let narrow: Vec<bf16> = wide.iter().map(|&w| bf16::from_f32(w)).collect();
                for rows in [Row::F32(&wide), Row::BF16(&narrow)] {
                    let mut out = vec![0.0; vectors * count];
                    products_of_rows(&xs, len, rows, (count, stride), &mut out);
                    for (x, out) in xs.chunks(len).zip(out.chunks(count)) {
                        let mut alone = vec![0.0; count];
                        products(x, rows, stride, &mut alone);
                        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        assert_eq!(bits(out), bits(&alone), "{vectors} vectors of {len}, {count} rows");
                    }
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn avx2_gives_the_same_bits() {
        if !(std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")) {
            return;
        }
        let (xs, wide) = (random(1, 5 * 130), random(2, 7 * 130));
        let mut out = [[0.0; 5 * 7]; 2];
        dispatch(&xs, 130, &wide, Out { all: &mut out[0], count: 7, first: 0 });
        // SAFETY: checked above.
        unsafe { block_avx2(&xs, 130, &wide, Out { all: &mut out[1], count: 7, first: 0 }) };
        assert_eq!(out[0].map(f32::to_bits), out[1].map(f32::to_bits));
    }
}
