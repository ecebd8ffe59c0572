//! Many vectors, by tiles of 16 rows: a tile is unpacked once and stays in the nearest cache.

use super::{Integers, Rows, biases, blocks_of, codes_of, factors_of};
use crate::encoding::{GROUP, IntegerBlocks, ROWS};
use amk::tensor::Q8Block;

/// Number of vectors whose sums are in registers.
const VECTORS: usize = 8;

/// A group of 16 rows.
#[derive(Clone)]
#[repr(align(64))]
struct Group {
    /// Four codes of each row, then the next four of each.
    codes: [[[u8; 4]; ROWS]; GROUP / 4],
    scales: [[f32; ROWS]; 2],
    addends: [f32; ROWS],
}

const EMPTY: Group = Group { codes: [[[0; 4]; ROWS]; GROUP / 4], scales: [[0.0; ROWS]; 2], addends: [0.0; ROWS] };

/// All products.
#[inline(always)]
pub(super) fn products<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    integers: impl Integers,
    xs: &[Q8Block],
    vectors: usize,
    rows: &Rows<'_, BYTES>,
    out: &mut [f32],
) {
    let groups = rows.blocks * B::GROUPS;
    let mut tile = vec![EMPTY; groups];
    for first in (0..rows.count).step_by(ROWS) {
        unpack::<BYTES, B, _>(integers, &rows.some(first), &mut tile);
        let columns = first..rows.count.min(first + ROWS);
        let mut at = 0;
        while at < vectors {
            let (xs, out) = (&xs[at * groups..], &mut out[at * rows.count..]);
            at += match vectors - at {
                VECTORS.. => some::<BYTES, B, VECTORS>(integers, xs, &tile, columns.clone(), rows.count, out),
                4.. => some::<BYTES, B, 4>(integers, xs, &tile, columns.clone(), rows.count, out),
                2.. => some::<BYTES, B, 2>(integers, xs, &tile, columns.clone(), rows.count, out),
                _ => some::<BYTES, B, 1>(integers, xs, &tile, columns.clone(), rows.count, out),
            };
        }
    }
}

#[inline(always)]
fn unpack<const BYTES: usize, B: IntegerBlocks<BYTES>, I: Integers>(
    integers: I,
    rows: &[&[[u8; BYTES]]; ROWS],
    tile: &mut [Group],
) {
    for (number, tile) in tile.chunks_exact_mut(B::GROUPS).enumerate() {
        let blocks = blocks_of(rows, number);
        let factors = factors_of::<BYTES, B, I>(integers, &blocks);
        for (group, (tile, factors)) in tile.iter_mut().zip(&factors).enumerate() {
            let mut quarters = [codes_of::<BYTES, B, I>(integers, &blocks, group, 0); 4];
            for (quarter, codes) in quarters.iter_mut().enumerate().skip(1) {
                *codes = codes_of::<BYTES, B, I>(integers, &blocks, group, quarter);
            }
            let [[a, e], [b, f], [c, g], [d, h]] = quarters;
            let halves = [integers.transposed([a, b, c, d]), integers.transposed([e, f, g, h])];
            for (to, ints) in tile.codes.iter_mut().zip(halves.as_flattened()) {
                *to = integers.bytes_of(*ints);
            }
            for (to, scales) in tile.scales.iter_mut().zip(factors.scales) {
                *to = integers.floats_of(scales);
            }
            tile.addends = integers.floats_of(factors.addend);
        }
    }
}

/// The products of the first `X` vectors with a tile, which are `columns` of `count` in `out`.
/// Returns how many vectors these are.
#[inline(always)]
fn some<const BYTES: usize, B: IntegerBlocks<BYTES>, const X: usize>(
    integers: impl Integers,
    xs: &[Q8Block],
    tile: &[Group],
    columns: core::ops::Range<usize>,
    count: usize,
    out: &mut [f32],
) -> usize {
    let mut vectors = [&xs[..0]; X];
    for (number, x) in vectors.iter_mut().enumerate() {
        *x = &xs[number * tile.len()..][..tile.len()];
    }
    let mut sums = [integers.floats([0.0; ROWS]); X];
    for (number, tile) in tile.iter().enumerate() {
        let mut inputs = [&vectors[0][number]; X];
        for (input, vector) in inputs.iter_mut().zip(&vectors) {
            *input = &vector[number];
        }
        add_group::<BYTES, B, _, X>(integers, &inputs, tile, &mut sums);
    }
    for (sums, out) in sums.into_iter().zip(out.chunks_mut(count)) {
        let out = &mut out[columns.clone()];
        out.copy_from_slice(&integers.floats_of(sums)[..out.len()]);
    }
    X
}

/// Adds the products of a group.
#[inline(always)]
fn add_group<const BYTES: usize, B: IntegerBlocks<BYTES>, I: Integers, const X: usize>(
    integers: I,
    inputs: &[&Q8Block; X],
    tile: &Group,
    sums: &mut [I::Floats; X],
) {
    let mut dots = [integers.same(0); X];
    let parts = if B::HALVES { 2 } else { 1 };
    for (part, codes) in tile.codes.chunks_exact(tile.codes.len() / parts).enumerate() {
        for (dots, x) in dots.iter_mut().zip(inputs) {
            *dots = integers.same(biases::<BYTES, B>(x)[part]);
        }
        multiply(integers, &mut dots, codes, inputs, part * codes.len(), B::MOST);
        for ((sums, &dots), x) in sums.iter_mut().zip(&dots).zip(inputs) {
            *sums = integers.add(*sums, dots, x.scale, integers.floats(tile.scales[part]));
        }
    }
    if B::ADDEND {
        for (sums, x) in sums.iter_mut().zip(inputs) {
            let value = x.scale * (x.sums[0] + x.sums[1]) as f32;
            *sums = integers.add_value(*sums, value, integers.floats(tile.addends));
        }
    }
}

/// Adds the inner products of groups of four codes with groups of four inputs, starting at `first`.
#[inline(always)]
fn multiply<I: Integers, const X: usize>(
    integers: I,
    dots: &mut [I::Ints; X],
    codes: &[[[u8; 4]; ROWS]],
    inputs: &[&Q8Block; X],
    first: usize,
    most: u8,
) {
    for (four, codes) in codes.iter().enumerate() {
        for (dots, x) in dots.iter_mut().zip(inputs) {
            *dots = integers.multiply(*dots, codes, x.codes.as_chunks().0[first + four], most);
        }
    }
}
