//! Integers in registers of 8 lanes, with sums of four products where the processor has them.

use super::{EIGHT, Integers, SIXTEEN, products_of};
use crate::encoding::{GROUP, IntegerBlocks};
use amk::tensor::Q8Block;
use core::arch::x86_64::{
    __m256, __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_cvtepi32_ps, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_permute2x128_si256, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi16,
    _mm256_srai_epi16, _mm256_srli_epi16, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_unpackhi_epi32,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

/// Whether there are registers of 8 lanes.
pub(super) fn is_there() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("fma") && has!("f16c")
}

/// Whether there are also sums of four products.
pub(super) fn has_vnni() -> bool {
    is_there() && std::arch::is_x86_feature_detected!("avxvnni")
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn products<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    xs: &[Q8Block],
    vectors: usize,
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    products_of::<BYTES, B>(Lanes(Pairs(())), xs, vectors, rows, stride, out);
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) fn vnni_products<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    xs: &[Q8Block],
    vectors: usize,
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    products_of::<BYTES, B>(Lanes(Fours(())), xs, vectors, rows, stride, out);
}

/// Sums of four products in each of 8 lanes.
pub(super) trait Four: Copy {
    /// Adds to each lane the products of four codes up to `most` with four inputs.
    fn four(self, sums: __m256i, codes: __m256i, x: __m256i, most: u8) -> __m256i;
}

/// From sums of two products. Made where the processor supports AVX2 alone.
#[derive(Clone, Copy)]
struct Pairs(());

/// By one instruction. Made where the processor supports AVX-VNNI alone.
#[derive(Clone, Copy)]
struct Fours(());

impl Four for Pairs {
    #[inline(always)]
    fn four(self, sums: __m256i, codes: __m256i, x: __m256i, most: u8) -> __m256i {
        // SAFETY: the processor supports AVX2.
        unsafe { if most <= 127 { narrow_pairs(sums, codes, x) } else { wide_pairs(sums, codes, x) } }
    }
}

/// For codes up to 127: two products are at most 2 * 127 * 127, which i16 holds.
#[inline]
#[target_feature(enable = "avx2")]
fn narrow_pairs(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(codes, x);
    _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// The elements of even and of odd number, each widened to i16.
#[inline]
#[target_feature(enable = "avx2")]
fn wide_pairs(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    let even = _mm256_and_si256(codes, _mm256_set1_epi16(0xff));
    let even = _mm256_madd_epi16(even, _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x)));
    let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(codes), _mm256_srai_epi16::<8>(x));
    _mm256_add_epi32(sums, _mm256_add_epi32(even, odd))
}

impl Four for Fours {
    #[inline(always)]
    fn four(self, sums: __m256i, codes: __m256i, x: __m256i, _: u8) -> __m256i {
        // SAFETY: the processor supports AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sums, codes, x) }
    }
}

/// `table[code]` for each code.
#[inline]
#[target_feature(enable = "avx2")]
fn shuffled(table: &[u8; 16], codes: &[u8; GROUP]) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    // SAFETY: the table has 16 bytes, codes and output have 32.
    unsafe {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_shuffle_epi8(table, load(codes.as_ptr())));
    }
    out
}

/// `table[code]` for each code, which is below 16.
#[inline(always)]
pub(super) fn look_up(_: impl Four, table: &[u8; 16], codes: &[u8; GROUP]) -> [u8; GROUP] {
    // SAFETY: the processor supports AVX2, as it does what a `Four` needs.
    unsafe { shuffled(table, codes) }
}

/// The inner products of the halves of 8 rows.
#[inline(always)]
pub(super) fn halves(four: impl Four, codes: &[[u8; GROUP]; EIGHT], x: &[i8; GROUP], most: u8) -> [[i32; EIGHT]; 2] {
    // SAFETY: the processor supports AVX2, as it does what `four` needs.
    unsafe {
        let x = load(x.as_ptr().cast());
        let mut sums = [_mm256_setzero_si256(); EIGHT];
        for (sum, codes) in sums.iter_mut().zip(codes) {
            *sum = four.four(*sum, load(codes.as_ptr()), x, most);
        }
        lanes_added(&sums)
    }
}

/// Adds the four lanes of each half of 8 registers.
#[inline]
#[target_feature(enable = "avx2")]
fn lanes_added(sums: &[__m256i; EIGHT]) -> [[i32; EIGHT]; 2] {
    let [a, b, c, d, e, f, g, h] = *sums;
    let first = twos(fours(a, b), fours(c, d));
    let last = twos(fours(e, f), fours(g, h));
    let mut out = [[0; EIGHT]; 2];
    // SAFETY: each half has 8 elements.
    unsafe {
        let [low, high] = out.each_mut().map(|half| half.as_mut_ptr().cast());
        _mm256_storeu_si256(low, _mm256_permute2x128_si256::<0x20>(first, last));
        _mm256_storeu_si256(high, _mm256_permute2x128_si256::<0x31>(first, last));
    }
    out
}

/// Adds lanes two apart: those of `a` and of `b` by turns.
#[inline]
#[target_feature(enable = "avx2")]
fn fours(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b))
}

/// Adds the lanes that [`fours`] left.
#[inline]
#[target_feature(enable = "avx2")]
fn twos(ab: __m256i, cd: __m256i) -> __m256i {
    _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd))
}

/// # Safety
/// There are 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(bytes: *const u8) -> __m256i {
    // SAFETY: as the caller promises.
    unsafe { _mm256_loadu_si256(bytes.cast()) }
}

/// 16 rows in two registers of 8 lanes.
#[derive(Clone, Copy)]
struct Lanes<F>(F);

impl<F: Four> Integers for Lanes<F> {
    type Dots = [__m256i; 2];
    type Sums = [__m256; 2];

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: [u8; GROUP]) -> [u8; GROUP] {
        look_up(self.0, table, &codes)
    }

    #[inline(always)]
    fn halves(self, codes: &[[u8; GROUP]; EIGHT], x: &[i8; GROUP], most: u8) -> [[i32; EIGHT]; 2] {
        halves(self.0, codes, x, most)
    }

    #[inline(always)]
    fn dots(self, value: i32) -> Self::Dots {
        // SAFETY: the processor supports AVX2, as it does what `F` needs.
        unsafe { [_mm256_set1_epi32(value); 2] }
    }

    #[inline(always)]
    fn multiply(self, dots: Self::Dots, codes: &[[u8; 4]; SIXTEEN], x: [i8; 4], most: u8) -> Self::Dots {
        let codes = codes.as_flattened().as_ptr();
        // SAFETY: as in `dots`; there are 64 codes.
        unsafe {
            let x = _mm256_set1_epi32(i32::from_le_bytes(x.map(i8::cast_unsigned)));
            [self.0.four(dots[0], load(codes), x, most), self.0.four(dots[1], load(codes.add(GROUP)), x, most)]
        }
    }

    #[inline(always)]
    fn sums(self) -> Self::Sums {
        // SAFETY: as in `dots`.
        unsafe { [_mm256_setzero_ps(); 2] }
    }

    #[inline(always)]
    fn add(self, sums: Self::Sums, dots: Self::Dots, scale: f32, factors: &[f32; SIXTEEN]) -> Self::Sums {
        // SAFETY: as in `dots`.
        unsafe {
            let scale = _mm256_set1_ps(scale);
            let values = dots.map(|dots| _mm256_mul_ps(scale, _mm256_cvtepi32_ps(dots)));
            added(sums, values, factors)
        }
    }

    #[inline(always)]
    fn add_value(self, sums: Self::Sums, value: f32, factors: &[f32; SIXTEEN]) -> Self::Sums {
        // SAFETY: as in `dots`.
        unsafe { added(sums, [_mm256_set1_ps(value); 2], factors) }
    }

    #[inline(always)]
    fn floats(self, sums: Self::Sums) -> [f32; SIXTEEN] {
        let mut out = [0.0f32; SIXTEEN];
        // SAFETY: as in `dots`; there are 16 floats.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(EIGHT), sums[1]);
        }
        out
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn added(sums: [__m256; 2], values: [__m256; 2], factors: &[f32; SIXTEEN]) -> [__m256; 2] {
    // SAFETY: there are 16 factors.
    let factors = unsafe { [_mm256_loadu_ps(factors.as_ptr()), _mm256_loadu_ps(factors.as_ptr().add(EIGHT))] };
    [_mm256_fmadd_ps(factors[0], values[0], sums[0]), _mm256_fmadd_ps(factors[1], values[1], sums[1])]
}
