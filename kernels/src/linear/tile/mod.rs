//! Kinds of tiles: how a device stores a projection's weights, depending on their encoding, and the
//! code that decodes them to A fragments.

mod groups;
#[cfg(test)]
pub(super) mod reference;

use super::layout::{cut, is_steady, projection};
use crate::abi::{TILE, TILE_K};
use crate::encoding::{self, Coded, GROUP, InPacks};
use amk::encoding::{BF16, Encoding};
use amk_cuda::image::abi::UNIT;
use amk_cuda::{DeviceCode, Layout, PADDING, inventory};

/// A kind of tiles of 8 rows by 32 columns. Another crate adds one with
/// `amk_cuda::inventory::submit!`.
#[derive(Debug)]
pub struct TileKind {
    /// The order of a task's weights.
    pub layout: Layout,
    /// Bytes of a tile.
    pub bytes: u32,
    /// Tiles of a pack, which share data.
    pub pack: u32,
    /// See [`Coded::TEAMS`].
    pub teams: bool,
    /// Whether passes over the columns are as deep as possible rather than alike.
    pub deep: bool,
    /// Its C++ type: see `tile.cuh`.
    pub cpp: &'static str,
    /// The C++ that defines it.
    pub code: DeviceCode,
}

inventory::collect!(TileKind);

impl PartialEq for TileKind {
    fn eq(&self, other: &Self) -> bool {
        self.layout == other.layout
    }
}

impl TileKind {
    /// All registered kinds, in no particular order: the kinds of encodings in blocks.
    pub fn registered() -> impl Iterator<Item = &'static Self> {
        inventory::iter::<Self>.into_iter()
    }

    /// Returns the kind that packs rows of `columns` columns in an encoding unchanged, or else that
    /// of bf16. Of several, the one with the largest packs.
    pub fn of(encoding: Option<&Encoding>, columns: u32) -> &'static Self {
        let takes = |kind: &&Self| {
            let alone = kind.pack * TILE_K == kind.layout.encoding.block as u32;
            let whole = columns.is_multiple_of(kind.pack * TILE_K);
            encoding == Some(kind.layout.encoding) && (alone || (whole && is_steady(columns, kind.pack)))
        };
        Self::registered().filter(takes).max_by_key(|kind| kind.pack).unwrap_or(&PLAIN)
    }

    /// Whether the elements of a row of [`PADDING`], with which the last unit is padded, are NaNs.
    pub(super) fn pads(&self) -> bool {
        let encoding = self.layout.encoding;
        let mut elements = vec![0.0; encoding.block];
        (encoding.decode)(&vec![PADDING; encoding.bytes], &mut elements);
        elements.iter().all(|element| element.is_nan())
    }

    /// Whether tiles are decoded.
    pub fn is_coded(&self) -> bool {
        *self.layout.encoding != BF16
    }

    /// Returns the kind for rows of `columns` columns of which a worker has `units` units: of bf16
    /// with deep passes, whose blocks fill the ring's slots, if they are deeper than passes that
    /// are alike. With one unit the last pass, in which warps have no tile, is not made up for.
    pub fn for_units(&'static self, columns: u32, units: u32) -> &'static Self {
        let deeper = cut(columns, true).0 > cut(columns, false).0;
        if *self == PLAIN && deeper && units > 1 { &DEEP } else { self }
    }

    /// Bytes of `rows` rows of `columns` columns.
    pub fn bytes(&self, rows: u32, columns: u32) -> u64 {
        (self.layout.bytes)(rows, columns)
    }
}

/// The layout of neighbouring tiles, one row of each at a time.
pub(super) trait Tile: 'static {
    /// The name of the layout, which distinguishes an encoding's layouts.
    const LAYOUT: &'static str = "projection";
    /// Columns of the tiles of a pack, which share data.
    const COLUMNS: usize;
    /// Bytes of a row of a pack in its encoding.
    const ROW: usize;
    /// Bytes of a pack: 8 rows.
    const BYTES: usize;
    /// See [`TileKind::deep`].
    const DEEP: bool = false;

    /// Writes row `n` of a pack.
    fn pack(n: usize, row: &[u8], packed: &mut [u8]);
    /// Reads row `n` of a pack.
    fn unpack(n: usize, packed: &[u8], row: &mut [u8]);
}

/// Tiles of bf16.
pub(super) static PLAIN: TileKind = of_bf16::<false>();

/// The same in deep passes.
static DEEP: TileKind = of_bf16::<true>();

const fn of_bf16<const DEEP: bool>() -> TileKind {
    TileKind {
        layout: projection::<Plain<DEEP>>(&BF16),
        bytes: TILE,
        pack: 1,
        teams: false,
        deep: DEEP,
        cpp: "BF16Tile",
        code: DeviceCode { files: &[] },
    }
}

/// A row has four pieces of 16 bytes: the first pairs of each quad of the even half of the columns,
/// the second pairs, and those of the odd half. Pieces are permuted by row, as `wgmma` expects in
/// swizzled lines of 64 bytes, so that eight rows of one piece are in different banks.
struct Plain<const DEEP: bool>;

impl<const DEEP: bool> Plain<DEEP> {
    /// First bytes of the pairs of row `n`: in the pack, and in the row.
    fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..16).map(move |pair| {
            let (piece, quad) = (pair / 4, pair % 4);
            let place = piece ^ (n / 2 % 4);
            (n * 64 + place * 16 + quad * 4, piece / 2 * 32 + quad * 8 + piece % 2 * 4)
        })
    }
}

impl<const DEEP: bool> Tile for Plain<DEEP> {
    const LAYOUT: &'static str = if DEEP { "projection in deep passes" } else { "projection" };
    const COLUMNS: usize = TILE_K as usize;
    const ROW: usize = 2 * Self::COLUMNS;
    const BYTES: usize = TILE as usize;
    const DEEP: bool = DEEP;

    fn pack(n: usize, row: &[u8], packed: &mut [u8]) {
        let words: &[[u8; 4]] = row.as_chunks().0;
        let places = packed[n * 64..][..64].as_chunks_mut::<16>().0;
        for piece in 0..4 {
            let first = piece / 2 * 8 + piece % 2;
            let of_quads = [words[first], words[first + 2], words[first + 4], words[first + 6]];
            places[piece ^ (n / 2 % 4)].copy_from_slice(of_quads.as_flattened());
        }
    }

    fn unpack(n: usize, packed: &[u8], row: &mut [u8]) {
        for (from, to) in Self::pairs(n) {
            row[to..to + 4].copy_from_slice(&packed[from..from + 4]);
        }
    }
}

const BLOCKS: DeviceCode = DeviceCode {
    files: &[
        ("linear/tile/values.cuh", include_str!("values.cuh")),
        ("linear/tile/blocks.cuh", include_str!("blocks.cuh")),
    ],
};
const K: DeviceCode = DeviceCode { files: &[("linear/tile/k.cuh", include_str!("k.cuh"))] };

/// Submits the kinds of blocks of 32 elements: with one block per pack, and with four, if rows have
/// whole packs of them. The C++ type has the number of tiles of a pack as a parameter.
macro_rules! blocks_of_32 {
    ($($blocks:ty, $encoding:ident, $cpp:literal;)*) => {$(
        inventory::submit! { coded::<$blocks>(&encoding::$encoding, concat!("CodedTile<", $cpp, "<1>>"), BLOCKS) }
        inventory::submit! {
            coded::<InPacks<$blocks, 4>>(&encoding::$encoding, concat!("CodedTile<", $cpp, "<4>>"), BLOCKS)
        }
    )*};
}
blocks_of_32! {
    encoding::four::Symmetric, Q4_0, "Q4_0";
    encoding::four::Affine, Q4_1, "Q4_1";
    encoding::five::Symmetric, Q5_0, "Q5_0";
    encoding::five::Affine, Q5_1, "Q5_1";
    encoding::code::Nonlinear, IQ4_NL, "IQ4_NL";
    encoding::code::Microscaled, MXFP4, "MXFP4";
    encoding::q8_0::Bytes, Q8_0, "Q8_0";
}
inventory::submit! { coded::<encoding::k::Four>(&encoding::Q4_K, "CodedTile<Q4_K>", K) }
inventory::submit! { coded::<encoding::k::Five>(&encoding::Q5_K, "CodedTile<Q5_K>", K) }
inventory::submit! { coded::<encoding::k::Six>(&encoding::Q6_K, "CodedTile<Q6_K>", K) }

/// Returns the kind of blocks `B`, whose tiles are decoded by the C++ type `cpp`: `CodedTile<..>`
/// of a type with the constants of `B`.
pub const fn coded<B: Coded>(encoding: &'static Encoding, cpp: &'static str, code: DeviceCode) -> TileKind {
    let (bytes, pack) = ((Codes::<B>::BYTES / B::GROUPS) as u32, B::GROUPS as u32);
    TileKind { layout: projection::<Codes<B>>(encoding), bytes, pack, teams: B::TEAMS, deep: false, cpp, code }
}

/// The codes of a pack, then the scales row by row: first those that a row has for all tiles, then
/// those for each tile. For each run of [`Codes::RUN`] tiles, the low nibbles or the bytes come
/// first, lane by lane, then their upper bits, tile by tile.
struct Codes<B>(B);

/// Maximum number of tiles in a run whose codes are nibbles.
const MOST_RUN: usize = 4;

/// Maximum number of bytes of the scales of a row of a pack.
const MOST_SCALES: usize = 32;

impl<B: Coded> Codes<B> {
    /// Bytes of the codes of a tile.
    const CODES: usize = 32 * B::BITS;

    /// Bytes of a lane's codes in a tile, without the upper bits of fewer than eight.
    const LOW: usize = if B::BITS == 8 { 8 } else { 4 };

    /// Bits above the nibbles, and a lane's bytes of them.
    const UPPER: usize = if B::BITS < 8 { B::BITS - 4 } else { 0 };

    /// Number of tiles whose codes are side by side, at most 16 bytes per lane.
    const RUN: usize = if B::GROUPS < 16 / Self::LOW { B::GROUPS } else { 16 / Self::LOW };

    /// Bytes of a row's scales that apply to all its tiles.
    const HEAD: usize = B::SCALES - B::GROUPS * B::OWN;

    /// First bytes of a lane's codes and of their upper bits.
    fn places(group: usize, lane: usize) -> (usize, usize) {
        let (run, at) = (group / Self::RUN * Self::RUN * Self::CODES, group % Self::RUN);
        (run + (lane * Self::RUN + at) * Self::LOW, run + Self::RUN * 32 * Self::LOW + (at * 32 + lane) * Self::UPPER)
    }

    /// The bits of a word of codes in their places, see [`Coded::MOVED`], and back.
    fn moved(word: u32) -> u32 {
        B::MOVED.iter().fold(0, |moved, (mask, turn)| moved | (word & mask).rotate_left(*turn))
    }
    fn moved_back(moved: u32) -> u32 {
        B::MOVED.iter().fold(0, |word, (mask, turn)| word | moved.rotate_right(*turn) & mask)
    }

    /// Writes the codes of a tile, in bytes.
    fn pack_bytes(n: usize, row: &[u8], packed: &mut [u8], group: usize) {
        let codes = B::codes(row, group);
        let quads: &[[u8; 4]] = codes.as_chunks().0;
        for (quad, (a, b)) in quads.iter().zip(&quads[4..]).enumerate() {
            let words = packed[Self::places(group, n * 4 + quad).0..][..8].as_chunks_mut().0;
            for (to, (a, b)) in words.iter_mut().zip(a.chunks_exact(2).zip(b.chunks_exact(2))) {
                *to = Self::moved(u32::from_le_bytes([a[0], b[0], a[1], b[1]])).to_le_bytes();
            }
        }
    }

    /// Writes the codes of a run of tiles, which begins with tile `run`: a lane's words for all of
    /// them are side by side.
    fn pack_nibbles(n: usize, row: &[u8], packed: &mut [u8], run: usize) {
        let mut words = [[0; 4]; MOST_RUN];
        for (at, words) in words.iter_mut().enumerate().take(Self::RUN) {
            let codes = B::codes(row, run + at);
            let quads: &[[u8; 4]] = codes.as_chunks().0;
            let mut upper = [0; 4];
            for quad in 0..4 {
                let [a, b] = [quads[quad], quads[quad + 4]].map(u32::from_le_bytes);
                let nibbles = middle_swapped(a & 0x0f0f_0f0f | (b & 0x0f0f_0f0f) << 4);
                words[quad] = Self::moved(nibbles);
                upper[quad] = Self::upper(a, b);
            }
            if Self::UPPER > 0 {
                let to = &mut packed[Self::places(run + at, n * 4).1..][..4 * Self::UPPER];
                let each = to.chunks_exact_mut(Self::UPPER.max(1)).zip(upper);
                each.for_each(|(to, upper)| to.copy_from_slice(&upper.to_le_bytes()[..Self::UPPER]));
            }
        }
        let to = packed[Self::places(run, n * 4).0..][..16 * Self::RUN].as_chunks_mut().0;
        for quad in 0..4 {
            for at in 0..Self::RUN {
                to[quad * Self::RUN + at] = words[at][quad].to_le_bytes();
            }
        }
    }

    /// The upper bits of the codes of a quad, which are bytes, one after the other.
    fn upper(a: u32, b: u32) -> u32 {
        if Self::UPPER == 0 {
            return 0;
        }
        // The low bits of each byte belong to a pair: two bytes are merged, then two of the
        // results.
        let (pair, pairs) = (2 * Self::UPPER, 4 * Self::UPPER);
        let bytes = middle_swapped(a >> 4 & 0x0f0f_0f0f | (b >> 4 & 0x0f0f_0f0f) << Self::UPPER);
        let halves = (bytes | bytes >> (8 - pair)) & (0x0001_0001 * ((1 << pairs) - 1));
        halves | halves >> (16 - pairs)
    }

    /// The bytes of a row's scales: of the pack, and of its tiles.
    fn scales(n: usize) -> [std::ops::Range<usize>; 2] {
        let (heads, own) = (B::GROUPS * Self::CODES, B::GROUPS * B::OWN);
        let (head, tail) = (heads + n * Self::HEAD, heads + 8 * Self::HEAD + n * own);
        [head..head + Self::HEAD, tail..tail + own]
    }
}

/// The columns of a quad's codes: the first ones of a lane's four pairs, then the second ones.
fn columns(quad: usize) -> [usize; 8] {
    [0, 16, 2, 18, 1, 17, 3, 19].map(|column| 4 * quad + column)
}

/// The same as a lane has them in bytes: the pairs of both halves interleaved.
fn byte_columns(quad: usize) -> [usize; 8] {
    [0, 16, 1, 17, 2, 18, 3, 19].map(|column| 4 * quad + column)
}

/// Swaps the middle bytes of a word: from columns 0, 1, 2, 3 to the order of `columns`.
fn middle_swapped(word: u32) -> u32 {
    word & 0xff00_00ff | (word & 0xff00) << 8 | word >> 8 & 0xff00
}

impl<B: Coded> Tile for Codes<B> {
    const LAYOUT: &'static str = if B::GROUPS * B::OWN == B::SCALES { "projection in packs" } else { "projection" };
    const COLUMNS: usize = GROUP * B::GROUPS;
    const ROW: usize = B::BLOCK;
    const BYTES: usize = B::GROUPS * Self::CODES + 8 * B::SCALES;

    fn pack(n: usize, row: &[u8], packed: &mut [u8]) {
        for run in (0..B::GROUPS).step_by(Self::RUN) {
            if B::BITS == 8 {
                (run..run + Self::RUN).for_each(|group| Self::pack_bytes(n, row, packed, group));
            } else {
                Self::pack_nibbles(n, row, packed, run);
            }
        }
        let mut scales = [0; MOST_SCALES];
        let scales = &mut scales[..B::SCALES];
        B::scales(row, scales);
        let [head, own] = Self::scales(n);
        packed[head].copy_from_slice(&scales[..Self::HEAD]);
        packed[own].copy_from_slice(&scales[Self::HEAD..]);
    }

    fn unpack(n: usize, packed: &[u8], row: &mut [u8]) {
        for group in 0..B::GROUPS {
            let mut codes = [0; GROUP];
            for quad in 0..4 {
                let (low, upper) = Self::places(group, n * 4 + quad);
                let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| packed[low + at + byte]));
                if B::BITS == 8 {
                    let bytes = [0, 4].map(|at| Self::moved_back(word(at)).to_le_bytes());
                    let places = byte_columns(quad).into_iter().zip(bytes.as_flattened());
                    places.for_each(|(column, &code)| codes[column] = code);
                    continue;
                }
                let mut bytes = [0; 2];
                bytes[..Self::UPPER].copy_from_slice(&packed[upper..][..Self::UPPER]);
                let nibbles = Self::moved_back(word(0));
                let high = u16::from_le_bytes(bytes);
                for (at, column) in columns(quad).into_iter().enumerate() {
                    let above = (high >> (Self::UPPER * at)) as u8 & ((1 << Self::UPPER) - 1);
                    codes[column] = (nibbles >> (4 * at)) as u8 & 15 | above << 4;
                }
            }
            B::set_codes(row, group, &codes);
        }
        let mut scales = [0; MOST_SCALES];
        let [head, own] = Self::scales(n);
        let (of_pack, of_tiles) = scales[..B::SCALES].split_at_mut(Self::HEAD);
        of_pack.copy_from_slice(&packed[head]);
        of_tiles.copy_from_slice(&packed[own]);
        B::set_scales(row, &scales[..B::SCALES]);
    }
}

/// Bytes of a unit: 8 rows of `columns` columns.
pub(super) fn unit_bytes(kind: &TileKind, columns: u32) -> u32 {
    kind.bytes(UNIT, columns) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::layout::tests::check;

    #[test]
    fn every_kind_gives_the_rows_back() {
        let kinds: Vec<&TileKind> = TileKind::registered().chain([&PLAIN, &DEEP]).collect();
        assert!(kinds.len() > 55, "{kinds:?}");
        for kind in kinds {
            for (rows, columns) in [(8, 256), (136, 512), (16, 4864), (280, 2048), (144, 3072), (131, 512), (3, 256)] {
                check(kind, rows, columns);
            }
        }
    }

    #[test]
    fn pieces_of_a_row_have_pairs_of_each_quad_and_change_places() {
        let mut packed = [0; 512];
        let row: Vec<u8> = (0..32u8).flat_map(|column| [column, 0]).collect();
        Plain::<false>::pack(3, &row, &mut packed);
        let columns_of =
            |place: usize| -> Vec<u8> { packed[3 * 64 + place * 16..][..16].iter().step_by(2).copied().collect() };
        let [first, second] = [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]];
        let odd = |columns: [u8; 8]| columns.map(|column| 16 + column);
        assert_eq!([0, 1, 2, 3].map(columns_of), [second, first, odd(second), odd(first)]);
        let mut found = vec![0; 64];
        Plain::<false>::unpack(3, &packed, &mut found);
        assert_eq!(found, row);
    }

    #[test]
    fn a_lane_has_codes_of_neighbours_of_both_halves() {
        // Quad 1: columns 4 to 7 of the first half, 20 to 23 of the second.
        assert_eq!((columns(1), byte_columns(1)), ([4, 20, 6, 22, 5, 21, 7, 23], [4, 20, 5, 21, 6, 22, 7, 23]));
    }
}
