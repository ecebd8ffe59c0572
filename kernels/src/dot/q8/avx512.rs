//! Integers in registers of 16 lanes, with sums of four products.

use super::avx2::{self, Four};
use super::{EIGHT, Integers, SIXTEEN, products_of};
use crate::encoding::{GROUP, IntegerBlocks};
use amk::tensor::Q8Block;
use core::arch::x86_64::{
    __m256i, __m512, __m512i, _mm256_dpbusd_epi32, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
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
    products_of::<BYTES, B>(Lanes(()), xs, vectors, rows, stride, out);
}

/// 16 rows in a register. Made where the processor supports AVX-512 with VNNI alone.
#[derive(Clone, Copy)]
struct Lanes(());

impl Four for Lanes {
    #[inline(always)]
    fn four(self, sums: __m256i, codes: __m256i, x: __m256i, _: u8) -> __m256i {
        // SAFETY: the processor supports AVX-512 with VNNI.
        unsafe { _mm256_dpbusd_epi32(sums, codes, x) }
    }
}

impl Integers for Lanes {
    type Dots = __m512i;
    type Sums = __m512;

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: [u8; GROUP]) -> [u8; GROUP] {
        avx2::look_up(self, table, &codes)
    }

    #[inline(always)]
    fn halves(self, codes: &[[u8; GROUP]; EIGHT], x: &[i8; GROUP], most: u8) -> [[i32; EIGHT]; 2] {
        avx2::halves(self, codes, x, most)
    }

    #[inline(always)]
    fn dots(self, value: i32) -> Self::Dots {
        // SAFETY: as in `four`.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    fn multiply(self, dots: Self::Dots, codes: &[[u8; 4]; SIXTEEN], x: [i8; 4], _: u8) -> Self::Dots {
        // SAFETY: as in `four`; there are 64 codes.
        unsafe {
            let x = _mm512_set1_epi32(i32::from_le_bytes(x.map(i8::cast_unsigned)));
            _mm512_dpbusd_epi32(dots, _mm512_loadu_si512(codes.as_ptr().cast()), x)
        }
    }

    #[inline(always)]
    fn sums(self) -> Self::Sums {
        // SAFETY: as in `four`.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    fn add(self, sums: Self::Sums, dots: Self::Dots, scale: f32, factors: &[f32; SIXTEEN]) -> Self::Sums {
        // SAFETY: as in `four`; there are 16 factors.
        unsafe {
            let values = _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_cvtepi32_ps(dots));
            _mm512_fmadd_ps(_mm512_loadu_ps(factors.as_ptr()), values, sums)
        }
    }

    #[inline(always)]
    fn add_value(self, sums: Self::Sums, value: f32, factors: &[f32; SIXTEEN]) -> Self::Sums {
        // SAFETY: as in `four`; there are 16 factors.
        unsafe { _mm512_fmadd_ps(_mm512_loadu_ps(factors.as_ptr()), _mm512_set1_ps(value), sums) }
    }

    #[inline(always)]
    fn floats(self, sums: Self::Sums) -> [f32; SIXTEEN] {
        let mut out = [0.0; SIXTEEN];
        // SAFETY: as in `four`; there are 16 floats.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sums) };
        out
    }
}
