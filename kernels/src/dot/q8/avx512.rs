//! Integers in 16-lane registers, with sums of four products.

use super::{Integers, avx2, products_of, words_of};
use crate::encoding::{IntegerBlocks, Lanes, ROWS};
use amk::tensor::Q8Block;
use core::arch::x86_64::{
    __m128i, __m512, __m512i, _mm_loadu_si128, _mm_setr_epi32, _mm512_add_epi32, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_castsi128_si512, _mm512_cvtepi32_epi16, _mm512_cvtepi32_ps, _mm512_cvtph_ps,
    _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_inserti32x4, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps,
    _mm512_or_si512, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_shuffle_epi8, _mm512_sll_epi16,
    _mm512_sll_epi32, _mm512_srai_epi32, _mm512_srl_epi16, _mm512_srl_epi32, _mm512_storeu_ps, _mm512_storeu_si512,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_ps,
    _mm512_xor_si512,
};

/// Whether there are such registers and sums.
pub(super) fn is_there() -> bool {
    use std::arch::is_x86_feature_detected as has;
    avx2::is_there()
        && has!("avx512f")
        && has!("avx512bw")
        && has!("avx512vl")
        && has!("avx512dq")
        && has!("avx512vnni")
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn products<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    xs: &[Q8Block],
    vectors: usize,
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    products_of::<BYTES, B>(Sixteen(()), xs, vectors, rows, stride, out);
}

/// 16 rows in a register. Created only if the processor supports AVX-512 with VNNI.
#[derive(Clone, Copy)]
struct Sixteen(());

impl Lanes for Sixteen {
    type Ints = __m512i;
    type Floats = __m512;

    #[inline(always)]
    fn ints(self, [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]: [u32; ROWS]) -> Self::Ints {
        // Through registers: sixteen small writes followed by one wide read would stall.
        // SAFETY: the processor supports AVX-512 with VNNI.
        unsafe {
            let four = |a: u32, b: u32, c: u32, d: u32| {
                _mm_setr_epi32(a.cast_signed(), b.cast_signed(), c.cast_signed(), d.cast_signed())
            };
            joined([four(a, b, c, d), four(e, f, g, h), four(i, j, k, l), four(m, n, o, p)])
        }
    }

    #[inline(always)]
    fn words(self, bytes: &[&[u8; 16]; ROWS]) -> [Self::Ints; 4] {
        words_of(self, bytes)
    }

    #[inline(always)]
    fn bits(self, ints: Self::Ints, shift: u32, mask: u32) -> Self::Ints {
        // SAFETY: as in `ints`.
        unsafe { _mm512_and_si512(_mm512_srl_epi32(ints, avx2::count(shift)), _mm512_set1_epi32(mask.cast_signed())) }
    }

    #[inline(always)]
    fn or(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: as in `ints`.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn unsigned(self, ints: Self::Ints) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { _mm512_cvtepi32_ps(ints) }
    }

    #[inline(always)]
    fn signed_byte(self, ints: Self::Ints, shift: u32) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(_mm512_sll_epi32(ints, avx2::count(24 - shift)))) }
    }

    #[inline(always)]
    fn half(self, ints: Self::Ints) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(ints)) }
    }

    #[inline(always)]
    fn floats(self, floats: [f32; ROWS]) -> Self::Floats {
        // SAFETY: as in `ints`; there are 16 floats.
        unsafe { _mm512_loadu_ps(floats.as_ptr()) }
    }

    #[inline(always)]
    fn times(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn negated(self, floats: Self::Floats) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { _mm512_xor_ps(floats, _mm512_set1_ps(-0.0)) }
    }
}

/// Four registers as one.
#[inline]
#[target_feature(enable = "avx512f")]
fn joined([a, b, c, d]: [__m128i; 4]) -> __m512i {
    let all = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(all, c), d)
}

impl Integers for Sixteen {
    type Bytes = __m512i;
    type Fours = __m512i;

    #[inline(always)]
    fn bytes(self, rows: [&[u8; 16]; 4]) -> Self::Bytes {
        // SAFETY: as in `ints`; each row has 16 bytes.
        unsafe { joined(rows.map(|row| _mm_loadu_si128(row.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn at(self, bytes: Self::Bytes, shift: u32, mask: u8) -> Self::Bytes {
        // SAFETY: as in `ints`.
        unsafe {
            let bytes = _mm512_srl_epi16(bytes, avx2::count(shift));
            _mm512_and_si512(bytes, _mm512_set1_epi8(mask.cast_signed()))
        }
    }

    #[inline(always)]
    fn above(self, low: Self::Bytes, high: Self::Bytes, shift: u32) -> Self::Bytes {
        // SAFETY: as in `ints`.
        unsafe { _mm512_or_si512(low, _mm512_sll_epi16(high, avx2::count(shift))) }
    }

    #[inline(always)]
    fn flip(self, bytes: Self::Bytes, bits: u8) -> Self::Bytes {
        // SAFETY: as in `ints`.
        unsafe { _mm512_xor_si512(bytes, _mm512_set1_epi8(bits.cast_signed())) }
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes {
        // SAFETY: as in `ints`; the table has 16 bytes.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, codes)
        }
    }

    #[inline(always)]
    fn transposed(self, [a, b, c, d]: [Self::Bytes; 4]) -> [Self::Ints; 4] {
        // SAFETY: as in `ints`.
        unsafe {
            let [ab, cd] = [_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d)];
            let [ab_high, cd_high] = [_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d)];
            [
                _mm512_unpacklo_epi64(ab, cd),
                _mm512_unpackhi_epi64(ab, cd),
                _mm512_unpacklo_epi64(ab_high, cd_high),
                _mm512_unpackhi_epi64(ab_high, cd_high),
            ]
        }
    }

    #[inline(always)]
    fn fours(self) -> Self::Fours {
        self.same(0)
    }

    #[inline(always)]
    fn multiply_bytes(self, fours: Self::Fours, codes: Self::Bytes, x: &[i8; 16], _: u8) -> Self::Fours {
        // SAFETY: as in `ints`; there are 16 inputs.
        unsafe { _mm512_dpbusd_epi32(fours, codes, _mm512_broadcast_i32x4(_mm_loadu_si128(x.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn rows(self, quarters: [Self::Fours; 4]) -> Self::Ints {
        let [a, b, c, d] = quarters;
        // SAFETY: as in `ints`.
        unsafe {
            let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
        }
    }

    #[inline(always)]
    fn same(self, value: i32) -> Self::Ints {
        // SAFETY: as in `ints`.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    fn plus(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: as in `ints`.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn multiply(self, dots: Self::Ints, codes: &[[u8; 4]; ROWS], x: [i8; 4], _: u8) -> Self::Ints {
        // SAFETY: as in `ints`; there are 64 codes.
        unsafe {
            let x = _mm512_set1_epi32(i32::from_le_bytes(x.map(i8::cast_unsigned)));
            _mm512_dpbusd_epi32(dots, _mm512_loadu_si512(codes.as_ptr().cast()), x)
        }
    }

    #[inline(always)]
    fn add(self, sums: Self::Floats, dots: Self::Ints, scale: f32, factors: Self::Floats) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { _mm512_fmadd_ps(factors, _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_cvtepi32_ps(dots)), sums) }
    }

    #[inline(always)]
    fn add_value(self, sums: Self::Floats, value: f32, factors: Self::Floats) -> Self::Floats {
        // SAFETY: as in `ints`.
        unsafe { _mm512_fmadd_ps(factors, _mm512_set1_ps(value), sums) }
    }

    #[inline(always)]
    fn bytes_of(self, ints: Self::Ints) -> [[u8; 4]; ROWS] {
        let mut out = [[0; 4]; ROWS];
        // SAFETY: as in `ints`; there are 64 bytes.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), ints) };
        out
    }

    #[inline(always)]
    fn floats_of(self, floats: Self::Floats) -> [f32; ROWS] {
        let mut out = [0.0; ROWS];
        // SAFETY: as in `ints`; there are 16 floats.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), floats) };
        out
    }

    #[inline(always)]
    fn fetch(self, address: *const u8) {
        avx2::fetch(address);
    }
}
