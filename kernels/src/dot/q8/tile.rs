//! Many vectors by tiles of 16 rows: a tile is unpacked once and stays in the nearest cache.

use super::{Integers, Rows, SIXTEEN, codes_of};
use crate::encoding::{GROUP, IntegerBlocks};
use amk::tensor::Q8Block;

/// Vectors whose sums are in registers.
const VECTORS: usize = 8;

/// A group of 16 rows.
#[derive(Clone)]
#[repr(align(64))]
struct Group {
    /// Four codes of each row, then the next four.
    codes: [[[u8; 4]; SIXTEEN]; GROUP / 4],
    scales: [[f32; SIXTEEN]; 2],
    addends: [f32; SIXTEEN],
}

const EMPTY: Group =
    Group { codes: [[[0; 4]; SIXTEEN]; GROUP / 4], scales: [[0.0; SIXTEEN]; 2], addends: [0.0; SIXTEEN] };

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
    for first in (0..rows.count).step_by(SIXTEEN) {
        unpack::<BYTES, B>(integers, &rows.some(first), &mut tile);
        let columns = first..rows.count.min(first + SIXTEEN);
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
fn unpack<const BYTES: usize, B: IntegerBlocks<BYTES>>(
    integers: impl Integers,
    rows: &[&[[u8; BYTES]]; SIXTEEN],
    tile: &mut [Group],
) {
    for (number, tile) in tile.chunks_exact_mut(B::GROUPS).enumerate() {
        for (group, tile) in tile.iter_mut().enumerate() {
            for (at, row) in rows.iter().enumerate() {
                let block = &row[number];
                let codes = codes_of::<BYTES, B>(integers, block, group);
                for (tile, codes) in tile.codes.iter_mut().zip(codes.as_chunks().0) {
                    tile[at] = *codes;
                }
                [tile.scales[0][at], tile.scales[1][at]] = B::scales(block, group);
                if B::ADDEND {
                    tile.addends[at] = B::addend(block, group);
                }
            }
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
    let mut sums = [integers.sums(); X];
    for (number, tile) in tile.iter().enumerate() {
        let mut inputs = [&vectors[0][number]; X];
        for (input, vector) in inputs.iter_mut().zip(&vectors) {
            *input = &vector[number];
        }
        add_group::<BYTES, B, _, X>(integers, &inputs, tile, &mut sums);
    }
    for (sums, out) in sums.into_iter().zip(out.chunks_mut(count)) {
        let out = &mut out[columns.clone()];
        out.copy_from_slice(&integers.floats(sums)[..out.len()]);
    }
    X
}

/// Adds the products of a group.
#[inline(always)]
fn add_group<const BYTES: usize, B: IntegerBlocks<BYTES>, I: Integers, const X: usize>(
    integers: I,
    inputs: &[&Q8Block; X],
    tile: &Group,
    sums: &mut [I::Sums; X],
) {
    let (first, last) = tile.codes.split_at(GROUP / 8);
    let mut dots = [integers.dots(0); X];
    if B::HALVES {
        for (half, codes) in [first, last].into_iter().enumerate() {
            for (dots, x) in dots.iter_mut().zip(inputs) {
                *dots = integers.dots(-B::BIAS * x.sums[half]);
            }
            multiply(integers, &mut dots, codes, inputs, half * first.len(), B::MOST);
            for ((sums, &dots), x) in sums.iter_mut().zip(&dots).zip(inputs) {
                *sums = integers.add(*sums, dots, x.scale, &tile.scales[half]);
            }
        }
    } else {
        for (dots, x) in dots.iter_mut().zip(inputs) {
            *dots = integers.dots(-B::BIAS * (x.sums[0] + x.sums[1]));
        }
        multiply(integers, &mut dots, &tile.codes, inputs, 0, B::MOST);
        for ((sums, &dots), x) in sums.iter_mut().zip(&dots).zip(inputs) {
            *sums = integers.add(*sums, dots, x.scale, &tile.scales[0]);
        }
    }
    if B::ADDEND {
        for (sums, x) in sums.iter_mut().zip(inputs) {
            *sums = integers.add_value(*sums, x.scale * (x.sums[0] + x.sums[1]) as f32, &tile.addends);
        }
    }
}

/// Adds the inner products of fours of codes with the fours of inputs from number `first` on.
#[inline(always)]
fn multiply<I: Integers, const X: usize>(
    integers: I,
    dots: &mut [I::Dots; X],
    codes: &[[[u8; 4]; SIXTEEN]],
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
