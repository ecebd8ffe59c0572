//! Inner products of many vectors with the rows of a matrix, which is read once.
//!
//! The bits are the same as from [`super::products`] for each vector. Sixteen rows are side by side
//! in a register, and the elements of a vector are processed one after the other, so the lanes of a
//! register never interact. For this, a panel of rows is widened to f32, and rows and vectors are
//! packed in the order in which they are read.

use super::fold::Sums;
use super::rows::Out;
use super::{LANES, Level};
use std::cell::RefCell;

/// Number of vectors from which packing the rows pays off.
pub(super) const MANY: usize = 32;
/// Rows side by side.
const SIDE: usize = 16;
/// Number of elements of a column of the rows or vectors that are transposed at a time.
type Eight = [f32; 8];

/// The bits of a lane of the sums, from the last of its leaf: lanes 16 apart are added as
/// `(0 + 1) + (2 + 3)`, then those 8, 4, 2 and 1 apart.
const BITS: [u8; 6] = [4, 5, 3, 2, 1, 0];
/// The lane at each leaf of the tree of sums.
const LANE_OF: [u8; LANES] = leaves().0;
/// The leaf of each lane.
const LEAF_OF: [u8; LANES] = leaves().1;

const fn leaves() -> ([u8; LANES], [u8; LANES]) {
    let (mut lanes, mut leaves) = ([0; LANES], [0; LANES]);
    let mut leaf = 0;
    while leaf < LANES {
        let mut bit = 0;
        while bit < BITS.len() {
            lanes[leaf] |= (leaf as u8 >> bit & 1) << BITS[bit];
            bit += 1;
        }
        leaves[lanes[leaf] as usize] = leaf as u8;
        leaf += 1;
    }
    (lanes, leaves)
}

impl Level {
    /// Registers of 16 rows in a panel.
    fn width(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 4,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 2,
            Self::Plain => 1,
        }
    }

    fn turn(self, wide: &[f32], len: usize, to: Turned<'_>) {
        match self {
            // SAFETY: the processor supports AVX.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Avx2 => unsafe { avx::turn(wide, len, to) },
            Self::Plain => turn(wide, len, 0, to),
        }
    }

    fn multiply<const W: usize>(self, vectors: Vectors<'_>, rows: &[f32], out: Out<'_>) {
        let rows = rows.as_chunks().0.as_chunks::<W>().0;
        match self {
            // SAFETY: the processor supports the function's target features.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { avx::multiply_512(vectors, rows, out) },
            // SAFETY: the processor supports the function's target features.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx::multiply_256(vectors, rows, out) },
            Self::Plain => multiply::<W, 4>(vectors, rows, out),
        }
    }
}

/// Memory of a thread: 8 unpacked rows or vectors, then all in packed order.
#[derive(Default)]
struct Panel {
    wide: Vec<f32>,
    vectors: Vec<Eight>,
    rows: Vec<Eight>,
}

thread_local! {
    static PANEL: RefCell<Panel> = RefCell::default();
}

/// Computes `out[r, n] = sum over k of xs[r, k] * rows[n, k]` for vectors of `len` elements and the
/// first rows of `count`, which `widen` decodes to f32. Returns the number of these rows; fewer
/// than 16 remain.
pub(super) fn products(
    level: Level,
    xs: &[f32],
    len: usize,
    widen: impl Fn(usize, &mut [f32]),
    count: usize,
    out: &mut [f32],
) -> usize {
    PANEL.with_borrow_mut(|panel| {
        let mut first = 0;
        panel.pack_vectors(level, xs, len);
        while count - first >= SIDE {
            let left = ((count - first) / SIDE).min(level.width());
            let width = if left == 3 { 2 } else { left };
            panel.pack_rows(level, len, width, |row, wide| widen(first + row, wide));
            let vectors = Vectors { packed: &panel.vectors, count: xs.len() / len.max(1), len };
            let (rows, out) = (panel.rows.as_flattened(), Out { all: &mut *out, count, first });
            match width {
                4 => level.multiply::<4>(vectors, rows, out),
                2 => level.multiply::<2>(vectors, rows, out),
                _ => level.multiply::<1>(vectors, rows, out),
            }
            first += width * SIDE;
        }
        first
    })
}

/// The stride of a leaf's elements. An odd number keeps the elements of neighbouring leaves out of
/// the same cache sets.
fn pitch(len: usize) -> usize {
    len.div_ceil(LANES) | 1
}

impl Panel {
    /// Packs vectors, eight at a time: by leaf and by chunk. The last group is padded with zeros.
    fn pack_vectors(&mut self, level: Level, xs: &[f32], len: usize) {
        let (pitch, eight) = (pitch(len), 8 * len.max(1));
        self.vectors.resize(xs.len().div_ceil(eight) * LANES * pitch, [0.0; 8]);
        for (xs, packed) in xs.chunks(eight).zip(self.vectors.chunks_mut(LANES * pitch)) {
            let to = Turned { pitch, every: 1, number: 0, packed };
            if xs.len() == eight {
                level.turn(xs, len, to);
            } else {
                self.wide.clear();
                self.wide.extend_from_slice(xs);
                self.wide.resize(eight, 0.0);
                level.turn(&self.wide, len, to);
            }
        }
    }

    /// Widens and packs `width` times 16 rows: by leaf, by chunk and by register.
    fn pack_rows(&mut self, level: Level, len: usize, width: usize, widen: impl Fn(usize, &mut [f32])) {
        let (pitch, every) = (pitch(len), width * SIDE / 8);
        self.wide.resize(8 * len, 0.0);
        self.rows.resize(LANES * pitch * every, [0.0; 8]);
        for number in 0..every {
            for (row, wide) in self.wide.chunks_mut(len.max(1)).enumerate() {
                widen(number * 8 + row, wide);
            }
            level.turn(&self.wide, len, Turned { pitch, every, number, packed: &mut self.rows });
        }
    }
}

/// The places of the packed columns of 8 rows or vectors: for each place, one of `every`.
struct Turned<'p> {
    pitch: usize,
    every: usize,
    number: usize,
    packed: &'p mut [Eight],
}

impl Turned<'_> {
    /// The place of element `k` of all of them.
    #[inline(always)]
    fn at(&mut self, k: usize) -> &mut Eight {
        &mut self.packed[(usize::from(LEAF_OF[k % LANES]) * self.pitch + k / LANES) * self.every + self.number]
    }
}

/// Packs the elements of 8 rows, starting at `from`.
#[inline(always)]
fn turn(wide: &[f32], len: usize, from: usize, mut to: Turned<'_>) {
    for k in from..len {
        for (row, to) in to.at(k).iter_mut().enumerate() {
            *to = wide[row * len + k];
        }
    }
}

/// Packed vectors of `len` elements.
#[derive(Clone, Copy)]
struct Vectors<'p> {
    packed: &'p [Eight],
    count: usize,
    len: usize,
}

/// The sums of some vectors and rows.
type Tile<const W: usize, const X: usize> = [[Sums; W]; X];
/// Sums of complete subtrees, by their depth.
type Tree<const W: usize, const X: usize> = [Tile<W, X>; BITS.len() + 1];

/// Multiplies all vectors by a panel, `X` at a time.
#[inline(always)]
fn multiply<const W: usize, const X: usize>(vectors: Vectors<'_>, rows: &[[Sums; W]], out: Out<'_>) {
    let mut tree: Tree<W, X> = [[[[0.0; SIDE]; W]; X]; BITS.len() + 1];
    for (eight, packed) in vectors.packed.chunks_exact(LANES * pitch(vectors.len)).enumerate() {
        for from in (0..8).step_by(X) {
            add_tile(&mut tree, packed, from, rows, vectors.len);
            let Some(totals) = tree.last() else { return };
            let there = vectors.count.saturating_sub(eight * 8 + from);
            for (vector, totals) in totals.iter().take(there).enumerate() {
                let row = (eight * 8 + from + vector) * out.count + out.first;
                out.all[row..][..W * SIDE].copy_from_slice(totals.as_flattened());
            }
        }
    }
}

/// Adds up the products of a panel of rows and the vectors, of eight, that start at `from`.
#[inline(always)]
fn add_tile<const W: usize, const X: usize>(
    tree: &mut Tree<W, X>,
    vectors: &[Eight],
    from: usize,
    rows: &[[Sums; W]],
    len: usize,
) {
    let pitch = pitch(len);
    let leaves = vectors.chunks_exact(pitch).zip(rows.chunks_exact(pitch)).enumerate();
    for (leaf, (vectors, rows)) in leaves {
        let here = len / LANES + usize::from(usize::from(LANE_OF[leaf]) < len % LANES);
        let (vectors, rows) = (&vectors[..here], &rows[..here]);
        let mut sums: Tile<W, X> = [[[0.0; SIDE]; W]; X];
        for chunk in 0..here {
            let row = rows[chunk];
            for (vector, sums) in sums.iter_mut().enumerate() {
                let x = vectors[chunk][from + vector];
                for (row, sums) in row.iter().zip(sums) {
                    for (row, sum) in row.iter().zip(sums) {
                        *sum = x.mul_add(*row, *sum);
                    }
                }
            }
        }
        let depth = leaf.trailing_ones() as usize;
        tree[..depth].iter().for_each(|left| add(&mut sums, left));
        tree[depth] = sums;
    }
}

#[inline(always)]
fn add<const W: usize, const X: usize>(sums: &mut Tile<W, X>, left: &Tile<W, X>) {
    let sums = sums.as_flattened_mut().as_flattened_mut();
    sums.iter_mut().zip(left.as_flattened().as_flattened()).for_each(|(sum, left)| *sum += left);
}

#[cfg(target_arch = "x86_64")]
mod avx {
    use super::{Eight, LANES, Out, Sums, Turned, Vectors};
    use core::arch::x86_64::{
        __m256, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps,
        _mm256_unpacklo_ps,
    };
    use core::array;

    /// 16 sums in 32 registers of 16 lanes.
    #[target_feature(enable = "avx512f")]
    pub(super) fn multiply_512<const W: usize>(vectors: Vectors<'_>, rows: &[[Sums; W]], out: Out<'_>) {
        super::multiply::<W, 4>(vectors, rows, out);
    }

    /// 4 sums in 8 of 16 registers of 8 lanes.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn multiply_256<const W: usize>(vectors: Vectors<'_>, rows: &[[Sums; W]], out: Out<'_>) {
        super::multiply::<W, 2>(vectors, rows, out);
    }

    /// Packs 8 rows, 8 elements at a time if chunks are whole.
    #[target_feature(enable = "avx")]
    pub(super) fn turn(wide: &[f32], len: usize, mut to: Turned<'_>) {
        let whole = len / LANES * LANES;
        for k in (0..whole).step_by(8) {
            let rows: [&Eight; 8] = array::from_fn(|row| wide[row * len + k..].first_chunk().unwrap_or(&[0.0; 8]));
            for (next, column) in turned(rows).iter().enumerate() {
                // SAFETY: there are 8 elements.
                unsafe { _mm256_storeu_ps(to.at(k + next).as_mut_ptr(), *column) };
            }
        }
        super::turn(wide, len, whole, to);
    }

    /// The columns of 8 rows.
    #[inline]
    #[target_feature(enable = "avx")]
    fn turned(rows: [&Eight; 8]) -> [__m256; 8] {
        // SAFETY: there are 8 elements.
        let rows = rows.map(|row| unsafe { _mm256_loadu_ps(row.as_ptr()) });
        // Columns 0, 1, 2, 3 and, in the upper half, 4, 5, 6, 7 of four rows.
        let four = |a, b, c, d| {
            let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
            let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
            [
                _mm256_shuffle_ps::<0x44>(ab, cd),
                _mm256_shuffle_ps::<0xEE>(ab, cd),
                _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
                _mm256_shuffle_ps::<0xEE>(ab_high, cd_high),
            ]
        };
        let [a, b, c, d, e, f, g, h] = rows;
        let (upper, lower) = (four(a, b, c, d), four(e, f, g, h));
        array::from_fn(|column| match column % 8 {
            column @ 0..4 => _mm256_permute2f128_ps::<0x20>(upper[column], lower[column]),
            column => _mm256_permute2f128_ps::<0x31>(upper[column - 4], lower[column - 4]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn lanes_of_leaves_are_all_and_those_16_apart_are_neighbours() {
        assert_eq!(LANE_OF[..8], [0, 16, 32, 48, 8, 24, 40, 56]);
        assert_eq!(LANE_OF.map(|lane| LEAF_OF[usize::from(lane)]).to_vec(), Vec::from_iter(0..64u8));
    }

    #[test]
    fn every_level_gives_the_bits_of_single_products() {
        for (len, vectors, count) in [(1, 3, 16), (63, 1, 33), (130, 9, 80), (576, 7, 130), (64, 8, 15), (200, 20, 48)]
        {
            let (xs, rows) = (random(1, vectors * len), random(2, count * len));
            let mut alone = vec![0.0; vectors * count];
            for (x, alone) in xs.chunks(len).zip(alone.chunks_mut(count)) {
                crate::dot::products(x, amk::tensor::Row::F32(&rows), len, alone);
            }
            for level in Level::all() {
                let mut out = vec![f32::NAN; vectors * count];
                let widen = |row: usize, wide: &mut [f32]| wide.copy_from_slice(&rows[row * len..][..len]);
                let done = super::products(level, &xs, len, widen, count, &mut out);
                assert_eq!(done, count / SIDE * SIDE);
                for (alone, out) in alone.chunks(count).zip(out.chunks(count)) {
                    let bits = |x: &[f32]| x[..done].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(out), bits(alone), "{level:?}: {vectors} vectors of {len}, {count} rows");
                }
            }
        }
    }
}
