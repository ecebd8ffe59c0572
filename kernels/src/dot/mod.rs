//! Inner products and scaled sums with the widest vector registers of the machine.
//!
//! The order of summation is fixed, so a result depends on neither tile nor machine: element `i` is
//! added to lane `i mod 64` by a fused multiply-add, in order of `i`. Then lanes 16 apart are added
//! as `(0 + 1) + (2 + 3)`, followed by lanes 8, 4, 2 and 1 apart.

mod blocks;
mod fold;
mod level;
mod panels;
mod q8;
mod rows;

pub(crate) use blocks::{block_products, decode};
pub(crate) use level::Level;
pub(crate) use q8::q8_products;

use amk::tensor::{Inputs, Row};
use amk::{Encoding, Weight};
use fold::{Fold, Plain, Sums};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use q8::rounded;
use rows::products_of_rows;

const LANES: usize = 64;

/// An element type of weights.
trait Element: Copy {
    /// Widens the elements to f32.
    fn widen(chunk: &[Self; LANES]) -> [f32; LANES];

    /// Widens an element to f32.
    fn widen_one(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn widen(chunk: &[Self; LANES]) -> [f32; LANES] {
        *chunk
    }

    #[inline(always)]
    fn widen_one(self) -> f32 {
        self
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(chunk: &[Self; LANES]) -> [f32; LANES] {
        chunk.map(|element| f32::from_bits(u32::from(element.to_bits()) << 16))
    }

    #[inline(always)]
    fn widen_one(self) -> f32 {
        self.to_f32()
    }
}

impl Element for f16 {
    #[inline(always)]
    fn widen(chunk: &[Self; LANES]) -> [f32; LANES] {
        let mut wide = [0.0; LANES];
        chunk.convert_to_f32_slice(&mut wide);
        wide
    }

    #[inline(always)]
    fn widen_one(self) -> f32 {
        self.to_f32()
    }
}

/// Returns the inner product of two vectors.
///
/// # Panics
/// If their lengths differ.
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len(), "the inner product of vectors of different lengths");
    let mut out = [0.0];
    products(x, Row::F32(y), x.len(), &mut out);
    out[0]
}

/// Computes `out[r, n] = sum over k of xs[r, k] * w[n, k]` for `vectors` vectors, stored one after
/// the other in `xs`, with inputs in the form that the weight takes.
///
/// # Panics
/// If `w` is not a matrix, or `out` does not have an element for each of its rows and each vector.
pub(crate) fn weight_products(xs: &[f32], vectors: usize, w: &Weight, out: &mut [f32]) {
    let (rows, stride) = w.matrix();
    match (w.inputs(), rows, vectors) {
        (Inputs::Q8, Row::Blocks(encoding @ Encoding { dot_q8: Some(dot), .. }, rows), _) => {
            dot(&rounded(xs), vectors, rows, encoding.bytes_of(stride), out);
        }
        (Inputs::Q8, Row::Reordered(encoding @ Encoding { dot_q8: Some(dot), .. }, rows, order), _) => {
            dot(&rounded(&gathered(xs, order)), vectors, rows, encoding.bytes_of(stride), out);
        }
        (_, rows, 1) => products(xs, rows, stride, out),
        (_, rows, _) => products_of_rows(xs, w.row_len(), rows, (w.rows(), stride), out),
    }
}

/// Computes the inner products of a vector with `out.len()` rows, whose first elements are `stride`
/// apart in `rows`; for blocks, rows of whole blocks.
///
/// # Panics
/// If `rows` ends before the last row.
pub(crate) fn products(x: &[f32], rows: Row<'_>, stride: usize, out: &mut [f32]) {
    match rows {
        Row::F32(rows) => dispatch(x, rows, stride, out),
        Row::F16(rows) => dispatch(x, rows, stride, out),
        Row::BF16(rows) => dispatch(x, rows, stride, out),
        Row::Blocks(encoding, rows) => match encoding.dot {
            Some(dot) => dot(x, rows, encoding.bytes_of(stride), out),
            None => decoded_products(x, encoding, rows, encoding.bytes_of(stride), out),
        },
        Row::Reordered(encoding, rows, order) => {
            products(&gathered(x, order), Row::Blocks(encoding, rows), stride, out);
        }
    }
}

/// Vectors in the stored order of columns.
fn gathered(xs: &[f32], order: &[u32]) -> Vec<f32> {
    xs.chunks(order.len()).flat_map(|x| order.iter().map(|&column| x[column as usize])).collect()
}

/// The products with rows of blocks that are `stride` bytes apart, decoded one by one.
fn decoded_products(x: &[f32], encoding: &Encoding, rows: &[u8], stride: usize, out: &mut [f32]) {
    let mut row = vec![0.0; x.len()];
    let bytes = encoding.bytes_of(x.len());
    for (number, out) in out.iter_mut().enumerate() {
        (encoding.decode)(&rows[number * stride..][..bytes], &mut row);
        dispatch(x, &row, row.len(), core::slice::from_mut(out));
    }
}

#[inline(always)]
fn dispatch<E: Element>(x: &[f32], rows: &[E], stride: usize, out: &mut [f32]) {
    match Level::best() {
        // SAFETY: the processor supports the function's target features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { products_avx512(x, rows, stride, out) },
        // SAFETY: the processor supports the function's target features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { products_avx2(x, rows, stride, out) },
        Level::Plain => products_of::<1, E>(Plain, x, rows, stride, out),
    }
}

/// The sums of 4 rows take 16 of 32 registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn products_avx512<E: Element>(x: &[f32], rows: &[E], stride: usize, out: &mut [f32]) {
    // SAFETY: AVX-512 includes AVX.
    products_of::<4, E>(unsafe { fold::Avx::new() }, x, rows, stride, out);
}

/// The sums of a row take 8 of 16 registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn products_avx2<E: Element>(x: &[f32], rows: &[E], stride: usize, out: &mut [f32]) {
    // SAFETY: AVX2 includes AVX.
    products_of::<1, E>(unsafe { fold::Avx::new() }, x, rows, stride, out);
}

/// Compiled once per instruction set. One call serves many rows, `W` of them side by side.
#[inline(always)]
fn products_of<const W: usize, E: Element>(fold: impl Fold, x: &[f32], rows: &[E], stride: usize, out: &mut [f32]) {
    let (eights, rest) = out.as_chunks_mut::<8>();
    let done = eights.len() * 8;
    for (number, out) in eights.iter_mut().enumerate() {
        let mut eight = [[0.0; 16]; 8];
        for (part, sums) in eight.as_chunks_mut::<W>().0.iter_mut().enumerate() {
            *sums = self::sums(x, &rows[(number * 8 + part * W) * stride..], stride);
        }
        *out = fold.eight(&eight);
    }
    for (number, out) in rest.iter_mut().enumerate() {
        let [sums] = self::sums(x, &rows[(done + number) * stride..], stride);
        *out = fold::one(&sums);
    }
}

/// Sums of `W` rows in the order that the module documentation defines, up to 16 lanes.
#[inline(always)]
fn sums<const W: usize, E: Element>(x: &[f32], rows: &[E], stride: usize) -> [Sums; W] {
    let mut each = [&rows[..0]; W];
    for (number, row) in each.iter_mut().enumerate() {
        *row = &rows[number * stride..][..x.len()];
    }
    let (chunks, rest) = x.as_chunks::<LANES>();
    // Separate: the variable index below would move the lanes out of registers here too.
    if rest.is_empty() {
        return all_quarters(&chunk_lanes(chunks, &each));
    }
    let mut lanes = chunk_lanes(chunks, &each);
    for (lanes, row) in lanes.iter_mut().zip(&each) {
        for ((lane, x), w) in lanes.iter_mut().zip(rest).zip(&row[chunks.len() * LANES..]) {
            *lane = x.mul_add(w.widen_one(), *lane);
        }
    }
    all_quarters(&lanes)
}

/// Lanes with the products of whole chunks.
#[inline(always)]
fn chunk_lanes<const W: usize, E: Element>(chunks: &[[f32; LANES]], rows: &[&[E]; W]) -> [[f32; LANES]; W] {
    let mut lanes = [[0.0f32; LANES]; W];
    for (number, x) in chunks.iter().enumerate() {
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            let row = E::widen(&row.as_chunks().0[number]);
            for ((lane, x), w) in lanes.iter_mut().zip(x).zip(row) {
                *lane = x.mul_add(w, *lane);
            }
        }
    }
    lanes
}

/// Adds lanes 16 apart, of several sums.
#[inline(always)]
fn all_quarters<const W: usize>(lanes: &[[f32; LANES]; W]) -> [Sums; W] {
    let mut sums = [[0.0; 16]; W];
    for (sums, lanes) in sums.iter_mut().zip(lanes) {
        *sums = quarters(lanes);
    }
    sums
}

/// Adds lanes 16 apart.
#[inline(always)]
fn quarters(lanes: &[f32; LANES]) -> Sums {
    let mut sums = [0.0; 16];
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum = (lanes[i] + lanes[i + 16]) + (lanes[i + 32] + lanes[i + 48]);
    }
    sums
}

/// Computes the scaled sum of rows `out[d] = sum over t of factors[t] * rows[t, d]`, with one
/// rounding per term, in order of `t`. The rows come in runs of several, as a state gives them.
///
/// # Panics
/// If there are more rows of `out.len()` elements than factors.
pub(crate) fn combine<'r>(factors: &[f32], runs: impl IntoIterator<Item = &'r [f32]>, out: &mut [f32]) {
    out.fill(0.0);
    let mut rest = factors;
    for rows in runs {
        let (factors, after) = rest.split_at(rows.len() / out.len().max(1));
        add_scaled(factors, rows, out);
        rest = after;
    }
}

fn add_scaled(factors: &[f32], rows: &[f32], out: &mut [f32]) {
    match Level::best() {
        // SAFETY: the processor supports the function's target features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { add_scaled_avx512(factors, rows, out) },
        // SAFETY: the processor supports the function's target features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { add_scaled_avx2(factors, rows, out) },
        Level::Plain => add_scaled_rows(factors, rows, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn add_scaled_avx512(factors: &[f32], rows: &[f32], out: &mut [f32]) {
    add_scaled_rows(factors, rows, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_scaled_avx2(factors: &[f32], rows: &[f32], out: &mut [f32]) {
    add_scaled_rows(factors, rows, out);
}

#[inline(always)]
fn add_scaled_rows(factors: &[f32], rows: &[f32], out: &mut [f32]) {
    let len = out.len().max(1);
    let (parts, rest) = out.as_chunks_mut::<LANES>();
    // A part stays in registers for all rows.
    for (number, part) in parts.iter_mut().enumerate() {
        let mut sums = *part;
        for (factor, row) in factors.iter().zip(rows.chunks_exact(len)) {
            for (sum, x) in sums.iter_mut().zip(&row[number * LANES..][..LANES]) {
                *sum = factor.mul_add(*x, *sum);
            }
        }
        *part = sums;
    }
    let at = len - rest.len();
    for (factor, row) in factors.iter().zip(rows.chunks_exact(len)) {
        for (out, x) in rest.iter_mut().zip(&row[at.min(row.len())..]) {
            *out = factor.mul_add(*x, *out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    /// Computes the products with the registers of this machine.
    fn fast<E: Element>(x: &[f32], rows: &[E], stride: usize, count: usize) -> Vec<u32> {
        let mut out = vec![0.0; count];
        dispatch(x, rows, stride, &mut out);
        out.iter().map(|x| x.to_bits()).collect()
    }

    fn reduce(lanes: &[f32; LANES]) -> f32 {
        let mut sums: Vec<f32> =
            (0..16).map(|i| (lanes[i] + lanes[i + 16]) + (lanes[i + 32] + lanes[i + 48])).collect();
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|i| sums[i] += sums[i + half]);
        }
        sums[0]
    }

    /// Computes the products by the definition in the head comment.
    fn slow<E: Element>(x: &[f32], rows: &[E], stride: usize, count: usize) -> Vec<u32> {
        let mut lanes = vec![[0.0f32; LANES]; count];
        for (row, lanes) in lanes.iter_mut().enumerate() {
            for (i, x) in x.iter().enumerate() {
                lanes[i % LANES] = x.mul_add(rows[row * stride + i].widen_one(), lanes[i % LANES]);
            }
        }
        lanes.iter().map(|lanes| reduce(lanes).to_bits()).collect()
    }

    #[test]
    fn all_registers_give_the_bits_of_the_head_comment() {
        for len in [0, 1, 5, 63, 64, 65, 128, 576, 1000] {
            let (stride, count) = (len + 3, 19);
            let (x, w) = (random(1, len), random(2, stride * count));
            let narrow: Vec<bf16> = w.iter().map(|&w| bf16::from_f32(w)).collect();
            let half: Vec<f16> = w.iter().map(|&w| f16::from_f32(w)).collect();
            assert_eq!(fast(&x, &w, stride, count), slow(&x, &w, stride, count), "f32, {len} elements");
            assert_eq!(fast(&x, &narrow, stride, count), slow(&x, &narrow, stride, count), "bf16, {len} elements");
            assert_eq!(fast(&x, &half, stride, count), slow(&x, &half, stride, count), "f16, {len} elements");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn avx2_gives_the_same_bits() {
        if !(std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")) {
            return;
        }
        let (x, w) = (random(1, 1000), random(2, 3000));
        let mut out = [0.0; 3];
        // SAFETY: checked above.
        unsafe { products_avx2(&x, &w, 1000, &mut out) };
        assert_eq!(out.map(f32::to_bits).to_vec(), slow(&x, &w, 1000, 3));
        let mut sums = [vec![0.0; 200], vec![0.0; 200]];
        add_scaled(&x[..15], &w, &mut sums[0]);
        // SAFETY: checked above.
        unsafe { add_scaled_avx2(&x[..15], &w, &mut sums[1]) };
        assert_eq!(sums[0], sums[1]);
    }

    #[test]
    fn the_sum_is_that_of_f64() {
        let (x, w) = (random(3, 1536), random(4, 1536));
        let exact: f64 = x.iter().zip(&w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
        assert!((f64::from(dot(&x, &w)) - exact).abs() < 1e-5);
    }

    #[test]
    fn a_combination_adds_scaled_rows() {
        let mut out = [9.0; 2];
        combine(&[2.0, 3.0], [[1.0, 10.0, 100.0, 1000.0].as_slice()], &mut out);
        assert_eq!(out, [302.0, 3020.0]);
        combine(&[2.0, 3.0], [[1.0, 10.0].as_slice(), &[100.0, 1000.0]], &mut out);
        assert_eq!(out, [302.0, 3020.0]);
    }

    #[test]
    fn a_long_combination_has_the_bits_of_the_sum_in_order() {
        for len in [63, 64, 80, 128, 200] {
            let (factors, rows) = (random(5, 9), random(6, 9 * len));
            let mut out = vec![0.0; len];
            combine(&factors, [&rows[..4 * len], &rows[4 * len..]], &mut out);
            let sum = |d: usize| (0..9).fold(0.0f32, |sum, t| factors[t].mul_add(rows[t * len + d], sum));
            assert_eq!(out, (0..len).map(sum).collect::<Vec<_>>(), "{len} elements");
        }
    }
}
