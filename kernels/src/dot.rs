//! Inner products and scaled sums, by the widest registers of the machine.
//!
//! The order of summation is fixed, so a result depends neither on the tile nor on the machine: element `i` is added to lane
//! `i mod 64` by a fused multiply-add, in order of `i`; then lanes 16 apart are added as `(0 + 1) + (2 + 3)`, then those 8, 4,
//! 2 and 1 apart.

use amk::tensor::Row;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

const LANES: usize = 64;

/// An element type of weights.
trait Element: Copy {
    /// The elements as f32.
    fn widen(chunk: &[Self; LANES]) -> [f32; LANES];

    /// An element as f32.
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

/// The inner product of a vector and a row of a weight.
///
/// # Panics
/// When their lengths differ.
pub(crate) fn dot(x: &[f32], row: Row<'_>) -> f32 {
    assert_eq!(x.len(), row.len(), "the inner product of vectors of different lengths");
    match row {
        Row::F32(row) => dispatch(x, row),
        Row::F16(row) => dispatch(x, row),
        Row::BF16(row) => dispatch(x, row),
    }
}

#[inline(always)]
fn dispatch<E: Element>(x: &[f32], row: &[E]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { sum_avx512(x, row) };
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { sum_avx2(x, row) };
        }
    }
    // On aarch64 the baseline has vectors and fused multiply-add.
    sum(x, row)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_avx512<E: Element>(x: &[f32], row: &[E]) -> f32 {
    sum(x, row)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn sum_avx2<E: Element>(x: &[f32], row: &[E]) -> f32 {
    sum(x, row)
}

/// The sum of the head comment; compiled once for each kind of registers.
#[inline(always)]
fn sum<E: Element>(x: &[f32], row: &[E]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (row, row_rest) = row.as_chunks::<LANES>();
    for (x, row) in x.iter().zip(row) {
        let row = E::widen(row);
        for ((lane, x), w) in lanes.iter_mut().zip(x).zip(row) {
            *lane = x.mul_add(w, *lane);
        }
    }
    for ((lane, x), w) in lanes.iter_mut().zip(x_rest).zip(row_rest) {
        *lane = x.mul_add(w.widen_one(), *lane);
    }
    reduce(&lanes)
}

#[inline(always)]
fn reduce(lanes: &[f32; LANES]) -> f32 {
    let mut sums: [f32; 16] = core::array::from_fn(|i| (lanes[i] + lanes[i + 16]) + (lanes[i + 32] + lanes[i + 48]));
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
    }
    sums[0]
}

/// Adds `factor * row` to `out`, element by element, with one rounding each.
///
/// # Panics
/// When their lengths differ.
pub(crate) fn add_scaled(out: &mut [f32], factor: f32, row: &[f32]) {
    assert_eq!(out.len(), row.len(), "the sum of vectors of different lengths");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { add_scaled_avx2(out, factor, row) };
    }
    add_scaled_lanes(out, factor, row);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_scaled_avx2(out: &mut [f32], factor: f32, row: &[f32]) {
    add_scaled_lanes(out, factor, row);
}

#[inline(always)]
fn add_scaled_lanes(out: &mut [f32], factor: f32, row: &[f32]) {
    for (out, x) in out.iter_mut().zip(row) {
        *out = factor.mul_add(*x, *out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn all_registers_give_the_same_bits() {
        for len in [0, 1, 5, 63, 64, 65, 128, 576, 1000] {
            let (x, w) = (random(1, len), random(2, len));
            let narrow: Vec<bf16> = w.iter().map(|&w| bf16::from_f32(w)).collect();
            let half: Vec<f16> = w.iter().map(|&w| f16::from_f32(w)).collect();
            assert_eq!(dot(&x, Row::F32(&w)).to_bits(), sum(&x, &w).to_bits(), "f32, {len} elements");
            assert_eq!(dot(&x, Row::BF16(&narrow)).to_bits(), sum(&x, &narrow).to_bits(), "bf16, {len} elements");
            assert_eq!(dot(&x, Row::F16(&half)).to_bits(), sum(&x, &half).to_bits(), "f16, {len} elements");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn avx2_gives_the_bits_of_avx512() {
        if !(std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")) {
            return;
        }
        let (x, w) = (random(1, 1000), random(2, 1000));
        // SAFETY: checked above.
        assert_eq!(unsafe { sum_avx2(&x, &w) }.to_bits(), dot(&x, Row::F32(&w)).to_bits());
    }

    #[test]
    fn the_sum_is_that_of_f64() {
        let (x, w) = (random(3, 1536), random(4, 1536));
        let exact: f64 = x.iter().zip(&w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
        assert!((f64::from(dot(&x, Row::F32(&w))) - exact).abs() < 1e-5);
    }
}
