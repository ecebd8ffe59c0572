//! Tiles as they are defined, element by element, and how fast they are packed.

use super::{Codes, Plain, Tile, TileKind, byte_columns, columns};
use crate::abi::TILE_K;
use crate::encoding::grouped::{Bytes, E4m3, Encoded, Grouped, Nibbles, Symmetric, WithZero};
use crate::encoding::{self, Coded, InPacks};
use crate::linear::layout::tests::{bytes_of_rows, straight};
use amk::encoding::{BF16, Encoding};
use half::{bf16, f16};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

/// The order of a tile's bytes.
pub(crate) trait Defined: Tile {
    /// Writes row `n` of a pack.
    fn pack_defined(n: usize, row: &[u8], packed: &mut [u8]);
}

impl<const DEEP: bool> Defined for Plain<DEEP> {
    fn pack_defined(n: usize, row: &[u8], packed: &mut [u8]) {
        for (to, from) in Self::pairs(n) {
            packed[to..to + 4].copy_from_slice(&row[from..from + 4]);
        }
    }
}

impl<B: Coded> Defined for Codes<B> {
    fn pack_defined(n: usize, row: &[u8], packed: &mut [u8]) {
        let (low_bytes, upper_bits) = if B::BITS == 8 { (8, 0) } else { (4, B::BITS - 4) };
        let run = B::GROUPS.min(16 / low_bytes);
        for group in 0..B::GROUPS {
            let codes = B::codes(row, group);
            // The runs before, then of this one a lane's tiles side by side.
            let runs = group / run * run * 32 * B::BITS;
            for quad in 0..4 {
                let lane = n * 4 + quad;
                let at = runs + (lane * run + group % run) * low_bytes;
                if B::BITS == 8 {
                    let bytes = byte_columns(quad).map(|column| codes[column]);
                    for (at, word) in (at..).step_by(4).zip(bytes.chunks_exact(4)) {
                        let word = moved::<B>(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                        packed[at..][..4].copy_from_slice(&word.to_le_bytes());
                    }
                    continue;
                }
                let (mut low, mut high) = (0u32, 0u16);
                for (at, column) in columns(quad).into_iter().enumerate() {
                    low |= u32::from(codes[column] & 15) << (4 * at);
                    high |= u16::from(codes[column] >> 4) << (upper_bits * at);
                }
                packed[at..][..4].copy_from_slice(&moved::<B>(low).to_le_bytes());
                let at = runs + run * 128 + (group % run * 32 + lane) * upper_bits;
                packed[at..][..upper_bits].copy_from_slice(&high.to_le_bytes()[..upper_bits]);
            }
        }
        let mut scales = vec![0; B::SCALES];
        B::scales(row, &mut scales);
        let (of_pack, own) = scales.split_at(B::SCALES - B::GROUPS * B::OWN);
        let heads = B::GROUPS * 32 * B::BITS;
        packed[heads + n * of_pack.len()..][..of_pack.len()].copy_from_slice(of_pack);
        packed[heads + 8 * of_pack.len() + n * own.len()..][..own.len()].copy_from_slice(own);
    }
}

/// A word of codes whose bits are where [`Coded::MOVED`] says, bit by bit.
fn moved<B: Coded>(word: u32) -> u32 {
    let place = |bit: u32| {
        let turns = B::MOVED.iter().filter(|(mask, _)| mask >> bit & 1 == 1).map(|(_, turn)| turn);
        turns.fold(0, |moved, turn| moved | 1 << ((bit + turn) % 32))
    };
    (0..32).filter(|bit| word >> bit & 1 == 1).fold(0, |moved, bit| moved | place(bit))
}

/// Compares the tapes of a kind with its definition's.
fn compare<T: Defined>(encoding: &Encoding, compared: &mut BTreeSet<(&'static str, u32)>) {
    let pack = T::COLUMNS as u32 / TILE_K;
    let kind = TileKind::of(Some(encoding), T::COLUMNS as u32);
    assert_eq!(kind.pack, pack, "{encoding}");
    compared.insert((kind.layout.encoding.name, pack));
    let of = |packs: usize| packs * T::COLUMNS;
    for (rows, columns) in [(8, of(1)), (136, of(3)), (16, of(37)), (131, of(5)), (3, of(1))] {
        if TileKind::of(Some(encoding), columns as u32).pack != pack {
            continue;
        }
        let matrix = bytes_of_rows(encoding, rows, columns);
        let rows: Vec<&[u8]> = matrix.chunks_exact(encoding.bytes_of(columns)).collect();
        let packed = kind.layout.packed(&rows, columns as u32).expect("the layout should keep the rows");
        assert!(packed == straight::<T>(&rows), "{encoding}: {} x {columns}", rows.len());
    }
}

macro_rules! compare_groups {
    ($compared:ident: $($codes:ty),*) => {$(
        compare_groups!(@ $compared, $codes, f16);
        compare_groups!(@ $compared, $codes, bf16);
        compare_groups!(@ $compared, $codes, f32);
    )*};
    (@ $compared:ident, $codes:ty, $scale:ty) => {
        compare::<Codes<Grouped<$codes, $scale, 32>>>(Grouped::<$codes, $scale, 32>::ENCODING, &mut $compared);
        compare::<Codes<Grouped<$codes, $scale, 64>>>(Grouped::<$codes, $scale, 64>::ENCODING, &mut $compared);
        compare::<Codes<Grouped<$codes, $scale, 128>>>(Grouped::<$codes, $scale, 128>::ENCODING, &mut $compared);
    };
}

macro_rules! compare_blocks {
    ($compared:ident: $($module:ident::$blocks:ident = $encoding:ident),*) => {$(
        compare::<Codes<encoding::$module::$blocks>>(&encoding::$encoding, &mut $compared);
        compare::<Codes<InPacks<encoding::$module::$blocks, 4>>>(&encoding::$encoding, &mut $compared);
    )*};
}

#[test]
fn every_kind_is_packed_as_it_is_defined() {
    let mut compared = BTreeSet::new();
    compare::<Plain<false>>(&BF16, &mut compared);
    compare_blocks!(compared: four::Symmetric = Q4_0, four::Affine = Q4_1, five::Symmetric = Q5_0);
    compare_blocks!(compared: five::Affine = Q5_1, code::Nonlinear = IQ4_NL, code::Microscaled = MXFP4);
    compare_blocks!(compared: q8_0::Bytes = Q8_0);
    compare::<Codes<encoding::k::Four>>(&encoding::Q4_K, &mut compared);
    compare::<Codes<encoding::k::Five>>(&encoding::Q5_K, &mut compared);
    compare::<Codes<encoding::k::Six>>(&encoding::Q6_K, &mut compared);
    compare_groups!(compared: Symmetric<Nibbles>, Symmetric<Bytes>, WithZero<Nibbles>, WithZero<Bytes>, E4m3);
    let kinds = TileKind::registered().map(|kind| (kind.layout.encoding.name, kind.pack)).chain([("bf16", 1)]);
    assert_eq!(compared, kinds.collect::<BTreeSet<_>>());
}

#[test]
#[ignore = "a measurement, of a release build"]
fn packing_speed() {
    const COLUMNS: usize = 4096;
    for name in ["bf16", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "int4:128", "fp8:128"] {
        let encoding = Encoding::find(name).expect("an encoding");
        let layout = TileKind::of(Some(encoding), COLUMNS as u32).layout;
        // More than caches hold, in parts of a group.
        let matrix = bytes_of_rows(encoding, 128 * (256 << 20) / (128 * encoding.bytes_of(COLUMNS)), COLUMNS);
        let rows: Vec<&[u8]> = matrix.chunks_exact(encoding.bytes_of(COLUMNS)).collect();
        let mut packed = vec![0; (layout.bytes)(128, COLUMNS as u32) as usize];
        let start = Instant::now();
        for rows in rows.chunks_exact(128) {
            (layout.pack)(black_box(rows), &mut packed);
            black_box(&packed);
        }
        println!("{name}: {:.2} GB/s a core", matrix.len() as f64 / 1e9 / start.elapsed().as_secs_f64());
    }
}
