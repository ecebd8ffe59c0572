//! Bytes from a table of 16.

use super::GROUP;

/// `table[code]` for each code, which is below 16.
#[inline(always)]
pub(super) fn look_up(table: &[u8; 16], codes: [u8; GROUP]) -> [u8; GROUP] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("ssse3") {
        // SAFETY: the processor supports the function's target features.
        return unsafe { shuffled(table, &codes) };
    }
    codes.map(|code| table[usize::from(code & 0xf)])
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "ssse3")]
fn shuffled(table: &[u8; 16], codes: &[u8; GROUP]) -> [u8; GROUP] {
    use core::arch::x86_64::{_mm_loadu_si128, _mm_shuffle_epi8, _mm_storeu_si128};
    let mut out = [0; GROUP];
    // SAFETY: table and halves of codes have 16 bytes.
    unsafe {
        let table = _mm_loadu_si128(table.as_ptr().cast());
        for (out, codes) in out.as_chunks_mut::<16>().0.iter_mut().zip(codes.as_chunks::<16>().0) {
            let codes = _mm_loadu_si128(codes.as_ptr().cast());
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm_shuffle_epi8(table, codes));
        }
    }
    out
}
