//! Integers in 8-lane registers, with sums of four products if the processor supports them.

use super::{Integers, products_of, words_of};
use crate::encoding::{IntegerBlocks, Lanes, ROWS};
use amk::tensor::Q8Block;
use core::arch::x86_64::{
    __m128i, __m256, __m256i, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_prefetch, _mm256_add_epi32,
    _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_castsi128_si256, _mm256_castsi256_si128, _mm256_cvtepi32_ps,
    _mm256_cvtph_ps, _mm256_dpbusd_avx_epi32, _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_inserti128_si256,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256,
    _mm256_packus_epi32, _mm256_permute4x64_epi64, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_shuffle_epi8, _mm256_sll_epi16, _mm256_sll_epi32, _mm256_slli_epi16,
    _mm256_srai_epi16, _mm256_srai_epi32, _mm256_srl_epi16, _mm256_srl_epi32, _mm256_srli_epi16, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
    _mm256_xor_ps, _mm256_xor_si256,
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
    products_of::<BYTES, B>(Eights(Pairs(())), xs, vectors, rows, stride, out);
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) fn vnni_products<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    xs: &[Q8Block],
    vectors: usize,
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    products_of::<BYTES, B>(Eights(Fours(())), xs, vectors, rows, stride, out);
}

/// Sums of four products in each of 8 lanes.
trait Four: Copy {
    /// Adds to each lane the products of four codes up to `most` with four inputs.
    fn four(self, sums: __m256i, codes: __m256i, x: __m256i, most: u8) -> __m256i;
}

/// By sums of two products. Created only if the processor supports AVX2.
#[derive(Clone, Copy)]
struct Pairs(());

/// By one instruction. Created only if the processor supports AVX-VNNI.
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

/// The even and the odd elements, each widened to i16.
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

/// Prefetches the cache line of an address, which need not be mapped.
#[inline(always)]
pub(super) fn fetch(address: *const u8) {
    // SAFETY: every processor of this kind supports SSE, and this reads nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// 16 rows in two 8-lane registers. For a quarter `q`, the first has rows `q` and `q + 4`, the
/// second `q + 8` and `q + 12`.
#[derive(Clone, Copy)]
struct Eights<F>(F);

impl<F: Four> Lanes for Eights<F> {
    type Ints = [__m256i; 2];
    type Floats = [__m256; 2];

    #[inline(always)]
    fn ints(self, ints: [u32; ROWS]) -> Self::Ints {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = ints.map(u32::cast_signed);
        // Through registers: several small writes followed by one wide read would stall.
        // SAFETY: the processor supports AVX2, and everything that `F` needs.
        unsafe { [_mm256_setr_epi32(a, b, c, d, e, f, g, h), _mm256_setr_epi32(i, j, k, l, m, n, o, p)] }
    }

    #[inline(always)]
    fn words(self, bytes: &[&[u8; 16]; ROWS]) -> [Self::Ints; 4] {
        words_of(self, bytes)
    }

    #[inline(always)]
    fn bits(self, ints: Self::Ints, shift: u32, mask: u32) -> Self::Ints {
        // SAFETY: as in `ints`.
        ints.map(|ints| unsafe {
            _mm256_and_si256(_mm256_srl_epi32(ints, count(shift)), _mm256_set1_epi32(mask.cast_signed()))
        })
    }

    #[inline(always)]
    fn or(self, [a, b]: Self::Ints, [c, d]: Self::Ints) -> Self::Ints {
        // SAFETY: as in `ints`.
        unsafe { [_mm256_or_si256(a, c), _mm256_or_si256(b, d)] }
    }

    #[inline(always)]
    fn unsigned(self, ints: Self::Ints) -> Self::Floats {
        // SAFETY: as in `ints`.
        ints.map(|ints| unsafe { _mm256_cvtepi32_ps(ints) })
    }

    #[inline(always)]
    fn signed_byte(self, ints: Self::Ints, shift: u32) -> Self::Floats {
        // SAFETY: as in `ints`.
        ints.map(|ints| unsafe {
            _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(_mm256_sll_epi32(ints, count(24 - shift))))
        })
    }

    #[inline(always)]
    fn half(self, ints: Self::Ints) -> Self::Floats {
        // SAFETY: as in `ints`; `F` needs F16C, too.
        unsafe {
            let [low, high] = ints.map(|ints| _mm256_and_si256(ints, _mm256_set1_epi32(0xffff)));
            let all = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
            [_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all)].map(|half| _mm256_cvtph_ps(half))
        }
    }

    #[inline(always)]
    fn floats(self, floats: [f32; ROWS]) -> Self::Floats {
        // SAFETY: as in `ints`; there are 16 floats.
        unsafe { [_mm256_loadu_ps(floats.as_ptr()), _mm256_loadu_ps(floats.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn times(self, [a, b]: Self::Floats, [c, d]: Self::Floats) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { [_mm256_mul_ps(a, c), _mm256_mul_ps(b, d)] }
    }

    #[inline(always)]
    fn negated(self, floats: Self::Floats) -> Self::Floats {
        // SAFETY: as in `ints`.
        floats.map(|floats| unsafe { _mm256_xor_ps(floats, _mm256_set1_ps(-0.0)) })
    }
}

/// A shift count, which is part of the instruction if it is known at compile time.
#[inline(always)]
pub(super) fn count(shift: u32) -> __m128i {
    // SAFETY: every processor of this kind supports SSE2.
    unsafe { _mm_cvtsi32_si128(shift.cast_signed()) }
}

/// Adds lanes two apart, of `a` and of `b` alternately.
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

/// Word `i` of each four, for each `i`.
#[inline]
#[target_feature(enable = "avx2")]
fn words_of_fours(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> [__m256i; 4] {
    let [ab, cd] = [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)];
    let [ab_high, cd_high] = [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)];
    [
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}

impl<F: Four> Integers for Eights<F> {
    type Bytes = [__m256i; 2];
    type Fours = [__m256i; 2];

    #[inline(always)]
    fn bytes(self, [a, b, c, d]: [&[u8; 16]; 4]) -> Self::Bytes {
        // SAFETY: as in `ints`; each row has 16 bytes.
        [[a, b], [c, d]].map(|[a, b]| unsafe {
            let [a, b] = [_mm_loadu_si128(a.as_ptr().cast()), _mm_loadu_si128(b.as_ptr().cast())];
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b)
        })
    }

    #[inline(always)]
    fn at(self, bytes: Self::Bytes, shift: u32, mask: u8) -> Self::Bytes {
        // SAFETY: as in `ints`.
        bytes.map(|bytes| unsafe {
            _mm256_and_si256(_mm256_srl_epi16(bytes, count(shift)), _mm256_set1_epi8(mask.cast_signed()))
        })
    }

    #[inline(always)]
    fn above(self, [a, b]: Self::Bytes, high: Self::Bytes, shift: u32) -> Self::Bytes {
        // SAFETY: as in `ints`.
        unsafe {
            let [c, d] = high.map(|high| _mm256_sll_epi16(high, count(shift)));
            [_mm256_or_si256(a, c), _mm256_or_si256(b, d)]
        }
    }

    #[inline(always)]
    fn flip(self, bytes: Self::Bytes, bits: u8) -> Self::Bytes {
        // SAFETY: as in `ints`.
        bytes.map(|bytes| unsafe { _mm256_xor_si256(bytes, _mm256_set1_epi8(bits.cast_signed())) })
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes {
        // SAFETY: as in `ints`; the table has 16 bytes.
        codes.map(|codes| unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, codes)
        })
    }

    #[inline(always)]
    fn transposed(self, [a, b, c, d]: [Self::Bytes; 4]) -> [Self::Ints; 4] {
        // SAFETY: as in `ints`.
        let [low, high] = [0, 1].map(|part| unsafe { words_of_fours(a[part], b[part], c[part], d[part]) });
        [[low[0], high[0]], [low[1], high[1]], [low[2], high[2]], [low[3], high[3]]]
    }

    #[inline(always)]
    fn fours(self) -> Self::Fours {
        self.same(0)
    }

    #[inline(always)]
    fn multiply_bytes(self, [a, b]: Self::Fours, codes: Self::Bytes, x: &[i8; 16], most: u8) -> Self::Fours {
        // SAFETY: as in `ints`; there are 16 inputs.
        let x = unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(x.as_ptr().cast())) };
        [self.0.four(a, codes[0], x, most), self.0.four(b, codes[1], x, most)]
    }

    #[inline(always)]
    fn rows(self, [a, b, c, d]: [Self::Fours; 4]) -> Self::Ints {
        // SAFETY: as in `ints`.
        [0, 1].map(|part| unsafe { twos(fours(a[part], b[part]), fours(c[part], d[part])) })
    }

    #[inline(always)]
    fn same(self, value: i32) -> Self::Ints {
        // SAFETY: as in `ints`.
        unsafe { [_mm256_set1_epi32(value); 2] }
    }

    #[inline(always)]
    fn plus(self, [a, b]: Self::Ints, [c, d]: Self::Ints) -> Self::Ints {
        // SAFETY: as in `ints`.
        unsafe { [_mm256_add_epi32(a, c), _mm256_add_epi32(b, d)] }
    }

    #[inline(always)]
    fn multiply(self, [a, b]: Self::Ints, codes: &[[u8; 4]; ROWS], x: [i8; 4], most: u8) -> Self::Ints {
        let codes = codes.as_flattened().as_ptr();
        // SAFETY: as in `ints`; there are 64 codes.
        unsafe {
            let x = _mm256_set1_epi32(i32::from_le_bytes(x.map(i8::cast_unsigned)));
            let [first, last] = [_mm256_loadu_si256(codes.cast()), _mm256_loadu_si256(codes.add(32).cast())];
            [self.0.four(a, first, x, most), self.0.four(b, last, x, most)]
        }
    }

    #[inline(always)]
    fn add(self, sums: Self::Floats, dots: Self::Ints, scale: f32, factors: Self::Floats) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe {
            let scale = _mm256_set1_ps(scale);
            added(sums, dots.map(|dots| _mm256_mul_ps(scale, _mm256_cvtepi32_ps(dots))), factors)
        }
    }

    #[inline(always)]
    fn add_value(self, sums: Self::Floats, value: f32, factors: Self::Floats) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { added(sums, [_mm256_set1_ps(value); 2], factors) }
    }

    #[inline(always)]
    fn bytes_of(self, [low, high]: Self::Ints) -> [[u8; 4]; ROWS] {
        let mut out = [[0; 4]; ROWS];
        // SAFETY: as in `ints`; there are 64 bytes.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(out.as_mut_ptr().add(8).cast(), high);
        }
        out
    }

    #[inline(always)]
    fn floats_of(self, [low, high]: Self::Floats) -> [f32; ROWS] {
        let mut out = [0.0; ROWS];
        // SAFETY: as in `ints`; there are 16 floats.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), low);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), high);
        }
        out
    }

    #[inline(always)]
    fn fetch(self, address: *const u8) {
        fetch(address);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn added([a, b]: [__m256; 2], values: [__m256; 2], factors: [__m256; 2]) -> [__m256; 2] {
    [_mm256_fmadd_ps(factors[0], values[0], a), _mm256_fmadd_ps(factors[1], values[1], b)]
}
