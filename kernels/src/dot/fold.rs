//! The last part of an inner product: from the sums of 16 lanes to one.

/// The sums of 16 lanes.
pub(super) type Sums = [f32; 16];

/// Adds lanes 8 apart, then 4, 2 and 1.
pub(super) trait Fold: Copy {
    /// The totals of 8 sums.
    fn eight(self, sums: &[Sums; 8]) -> [f32; 8];
}

/// The total of one sum.
#[inline(always)]
pub(super) fn one(sums: &Sums) -> f32 {
    let [a, b] = sums.as_chunks::<8>().0 else { return 0.0 };
    let mut eight = [0.0; 8];
    for ((sum, a), b) in eight.iter_mut().zip(a).zip(b) {
        *sum = a + b;
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7] = eight;
    let (s0, s1, s2, s3) = (s0 + s4, s1 + s5, s2 + s6, s3 + s7);
    (s0 + s2) + (s1 + s3)
}

/// The totals of any number of sums.
#[inline(always)]
pub(super) fn all(fold: impl Fold, sums: &[Sums], mut each: impl FnMut(usize, f32)) {
    let (eights, rest) = sums.as_chunks::<8>();
    for (number, sums) in eights.iter().enumerate() {
        let totals = fold.eight(sums);
        for (lane, total) in totals.into_iter().enumerate() {
            each(number * 8 + lane, total);
        }
    }
    for (number, sums) in rest.iter().enumerate() {
        each(eights.len() * 8 + number, one(sums));
    }
}

/// One after the other, for processors without wider registers.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Fold for Plain {
    #[inline(always)]
    fn eight(self, sums: &[Sums; 8]) -> [f32; 8] {
        sums.each_ref().map(one)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use avx::Avx;

#[cfg(target_arch = "x86_64")]
mod avx {
    use super::{Fold, Sums};
    use core::arch::x86_64::{
        __m256, _mm256_add_ps, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
    };

    /// Eight at once in registers of 8 lanes.
    #[derive(Clone, Copy)]
    pub(in crate::dot) struct Avx(());

    impl Avx {
        /// # Safety
        /// The processor supports AVX.
        #[inline(always)]
        pub(in crate::dot) unsafe fn new() -> Self {
            Self(())
        }
    }

    impl Fold for Avx {
        #[inline(always)]
        fn eight(self, sums: &[Sums; 8]) -> [f32; 8] {
            // SAFETY: the processor supports AVX, as `new` was promised.
            unsafe { eight(sums) }
        }
    }

    #[inline]
    #[target_feature(enable = "avx")]
    fn eight(sums: &[Sums; 8]) -> [f32; 8] {
        // The shuffles below leave the totals in the order 0, 2, 4, 6, 1, 3, 5, 7.
        let [a, b, c, d, e, f, g, h] = [0, 4, 1, 5, 2, 6, 3, 7].map(|number| halves(&sums[number]));
        let (ab, cd, ef, gh) = (fours(a, b), fours(c, d), fours(e, f), fours(g, h));
        let totals = ones(twos(ab, cd), twos(ef, gh));
        let mut out = [0.0; 8];
        // SAFETY: `out` has 8 elements.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), totals) };
        out
    }

    /// Adds lanes 8 apart.
    #[inline]
    #[target_feature(enable = "avx")]
    fn halves(sums: &Sums) -> __m256 {
        // SAFETY: there are 16 elements.
        unsafe { _mm256_add_ps(_mm256_loadu_ps(sums.as_ptr()), _mm256_loadu_ps(sums.as_ptr().add(8))) }
    }

    /// Adds lanes 4 apart.
    #[inline]
    #[target_feature(enable = "avx")]
    fn fours(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
    }

    /// Adds lanes 2 apart.
    #[inline]
    #[target_feature(enable = "avx")]
    fn twos(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xEE>(a, b))
    }

    /// Adds neighbours.
    #[inline]
    #[target_feature(enable = "avx")]
    fn ones(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xDD>(a, b))
    }
}
