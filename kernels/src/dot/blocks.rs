//! Decoded blocks, and inner products computed directly from blocks, bit-identical to those with
//! the decoded elements.

use super::fold::{self, Fold, Plain, Sums};
use super::{LANES, quarters};
use crate::encoding::{Blocks, GROUP};

/// Decodes whole blocks.
///
/// # Panics
/// If there are not as many elements as the blocks have.
pub(crate) fn decode<const BYTES: usize, B: Blocks<BYTES>>(blocks: &[u8], out: &mut [f32]) {
    assert_eq!(blocks.len() * GROUP * B::GROUPS, out.len() * BYTES, "elements of blocks of {BYTES} bytes");
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            // SAFETY: the processor supports the function's target features.
            return unsafe { decode_avx512::<BYTES, B>(blocks, out) };
        }
        if has_avx2() {
            // SAFETY: the processor supports the function's target features.
            return unsafe { decode_avx2::<BYTES, B>(blocks, out) };
        }
    }
    decode_plain::<BYTES, B>(blocks, out);
}

/// Inner products of `x` with `out.len()` rows of whole blocks, whose first blocks are `stride`
/// bytes apart.
///
/// # Panics
/// If `rows` ends before the last row, or a row is not as long as `x`.
pub(crate) fn block_products<const BYTES: usize, B: Blocks<BYTES>>(
    x: &[f32],
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    assert!(x.len().is_multiple_of(GROUP * B::GROUPS), "{} elements are not whole blocks", x.len());
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            // SAFETY: the processor supports the function's target features.
            return unsafe { products_avx512::<BYTES, B>(x, rows, stride, out) };
        }
        if has_avx2() {
            // SAFETY: the processor supports the function's target features.
            return unsafe { products_avx2::<BYTES, B>(x, rows, stride, out) };
        }
    }
    products_of::<BYTES, B>(Plain, x, rows, stride, out);
}

/// Whether there are 16-lane registers with byte operations.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq") && has!("f16c")
}

/// Whether there are 8-lane registers.
#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("fma") && has!("f16c")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c")]
fn decode_avx512<const BYTES: usize, B: Blocks<BYTES>>(blocks: &[u8], out: &mut [f32]) {
    decode_plain::<BYTES, B>(blocks, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn decode_avx2<const BYTES: usize, B: Blocks<BYTES>>(blocks: &[u8], out: &mut [f32]) {
    decode_plain::<BYTES, B>(blocks, out);
}

#[inline(always)]
fn decode_plain<const BYTES: usize, B: Blocks<BYTES>>(blocks: &[u8], out: &mut [f32]) {
    for (block, out) in blocks.as_chunks().0.iter().zip(out.chunks_exact_mut(GROUP * B::GROUPS)) {
        for (group, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
            *out = B::group(block, group);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c")]
fn products_avx512<const BYTES: usize, B: Blocks<BYTES>>(x: &[f32], rows: &[u8], stride: usize, out: &mut [f32]) {
    // SAFETY: AVX-512 includes AVX.
    products_of::<BYTES, B>(unsafe { fold::Avx::new() }, x, rows, stride, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn products_avx2<const BYTES: usize, B: Blocks<BYTES>>(x: &[f32], rows: &[u8], stride: usize, out: &mut [f32]) {
    // SAFETY: AVX2 includes AVX.
    products_of::<BYTES, B>(unsafe { fold::Avx::new() }, x, rows, stride, out);
}

#[inline(always)]
fn products_of<const BYTES: usize, B: Blocks<BYTES>>(
    fold: impl Fold,
    x: &[f32],
    rows: &[u8],
    stride: usize,
    out: &mut [f32],
) {
    let bytes = x.len() / (GROUP * B::GROUPS) * BYTES;
    let (eights, rest) = out.as_chunks_mut::<8>();
    let done = eights.len() * 8;
    // Loops, because a closure would not be compiled for the caller's instruction set.
    for (number, out) in eights.iter_mut().enumerate() {
        let mut eight = [[0.0; 16]; 8];
        for (at, row) in eight.iter_mut().enumerate() {
            *row = sums::<BYTES, B>(x, rows[(number * 8 + at) * stride..][..bytes].as_chunks().0);
        }
        *out = fold.eight(&eight);
    }
    for (number, out) in rest.iter_mut().enumerate() {
        *out = fold::one(&sums::<BYTES, B>(x, rows[(done + number) * stride..][..bytes].as_chunks().0));
    }
}

/// Sums in the order that the parent's module documentation defines, up to 16 lanes: two groups
/// cover all lanes.
#[inline(always)]
fn sums<const BYTES: usize, B: Blocks<BYTES>>(x: &[f32], row: &[[u8; BYTES]]) -> Sums {
    let mut lanes = [[0.0f32; GROUP]; LANES / GROUP];
    let x = x.as_chunks::<GROUP>().0;
    if B::GROUPS == 1 {
        let ((pairs, last), (blocks, last_block)) = (x.as_chunks::<2>(), row.as_chunks::<2>());
        for (x, blocks) in pairs.iter().zip(blocks) {
            add(&mut lanes[0], &x[0], B::group(&blocks[0], 0));
            add(&mut lanes[1], &x[1], B::group(&blocks[1], 0));
        }
        for (x, block) in last.iter().zip(last_block) {
            add(&mut lanes[0], x, B::group(block, 0));
        }
    } else if B::GROUPS == 8 {
        for (x, block) in x.as_chunks::<8>().0.iter().zip(row) {
            // Written out, so that the group numbers are constants in the code.
            add(&mut lanes[0], &x[0], B::group(block, 0));
            add(&mut lanes[1], &x[1], B::group(block, 1));
            add(&mut lanes[0], &x[2], B::group(block, 2));
            add(&mut lanes[1], &x[3], B::group(block, 3));
            add(&mut lanes[0], &x[4], B::group(block, 4));
            add(&mut lanes[1], &x[5], B::group(block, 5));
            add(&mut lanes[0], &x[6], B::group(block, 6));
            add(&mut lanes[1], &x[7], B::group(block, 7));
        }
    } else {
        for (x, block) in x.chunks_exact(B::GROUPS).zip(row) {
            for (pair, x) in x.as_chunks::<2>().0.iter().enumerate() {
                add(&mut lanes[0], &x[0], B::group(block, 2 * pair));
                add(&mut lanes[1], &x[1], B::group(block, 2 * pair + 1));
            }
        }
    }
    quarters(lanes.as_flattened().as_array().unwrap_or(&[0.0; LANES]))
}

#[inline(always)]
fn add(lanes: &mut [f32; GROUP], x: &[f32; GROUP], w: [f32; GROUP]) {
    for ((lane, x), w) in lanes.iter_mut().zip(x).zip(w) {
        *lane = x.mul_add(w, *lane);
    }
}
