//! Tiles as they are defined, element by element, and how fast they are packed.

use super::{Codes, Plain, Tile, TileKind, byte_columns, columns};
use crate::encoding::grouped::{Bytes, E4m3, Encoded, Grouped, Nibbles, Symmetric, WithZero};
use crate::encoding::{self, Coded};
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

impl Defined for Plain {
    fn pack_defined(n: usize, row: &[u8], packed: &mut [u8]) {
        for (to, from) in Self::pairs(n) {
            packed[to..to + 4].copy_from_slice(&row[from..from + 4]);
        }
    }
}

impl<B: Coded> Defined for Codes<B> {
    fn pack_defined(n: usize, row: &[u8], packed: &mut [u8]) {
        for (group, tile) in packed.chunks_exact_mut(Self::CODES).take(B::GROUPS).enumerate() {
            let codes = B::codes(row, group);
            for quad in 0..4 {
                let lane = n * 4 + quad;
                if B::BITS == 8 {
                    tile[lane * 8..][..8].copy_from_slice(&byte_columns(quad).map(|column| codes[column]));
                    continue;
                }
                let (mut low, mut high) = (0u32, 0u16);
                for (at, column) in columns(quad).into_iter().enumerate() {
                    low |= u32::from(codes[column] & 15) << (4 * at);
                    high |= u16::from(codes[column] >> 4) << (Self::UPPER * at);
                }
                let moved = B::MOVED.iter().fold(0, |word, (mask, turn)| word | (low & mask).rotate_left(*turn));
                tile[lane * 4..][..4].copy_from_slice(&moved.to_le_bytes());
                let upper = Self::UPPER;
                tile[128 + lane * upper..][..upper].copy_from_slice(&high.to_le_bytes()[..upper]);
            }
        }
        B::scales(row, &mut packed[B::GROUPS * Self::CODES + n * B::SCALES..][..B::SCALES]);
    }
}

/// Compares the tapes of a kind with those of its definition.
fn compare<T: Defined>(encoding: &Encoding, compared: &mut BTreeSet<&'static str>) {
    let kind = TileKind::of(Some(encoding));
    compared.insert(kind.layout.encoding.name);
    for (rows, columns) in [(8, 256), (136, 512), (16, 4864), (131, 512), (3, 256)] {
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

#[test]
fn every_kind_is_packed_as_it_is_defined() {
    let mut compared = BTreeSet::new();
    compare::<Plain>(&BF16, &mut compared);
    compare::<Codes<encoding::four::Symmetric>>(&encoding::Q4_0, &mut compared);
    compare::<Codes<encoding::four::Affine>>(&encoding::Q4_1, &mut compared);
    compare::<Codes<encoding::five::Symmetric>>(&encoding::Q5_0, &mut compared);
    compare::<Codes<encoding::five::Affine>>(&encoding::Q5_1, &mut compared);
    compare::<Codes<encoding::code::Nonlinear>>(&encoding::IQ4_NL, &mut compared);
    compare::<Codes<encoding::code::Microscaled>>(&encoding::MXFP4, &mut compared);
    compare::<Codes<encoding::q8_0::Bytes>>(&encoding::Q8_0, &mut compared);
    compare::<Codes<encoding::k::Four>>(&encoding::Q4_K, &mut compared);
    compare::<Codes<encoding::k::Five>>(&encoding::Q5_K, &mut compared);
    compare::<Codes<encoding::k::Six>>(&encoding::Q6_K, &mut compared);
    compare_groups!(compared: Symmetric<Nibbles>, Symmetric<Bytes>, WithZero<Nibbles>, WithZero<Bytes>, E4m3);
    let kinds: BTreeSet<&str> = TileKind::registered().map(|kind| kind.layout.encoding.name).chain(["bf16"]).collect();
    assert_eq!(compared, kinds);
}

#[test]
#[ignore = "a measurement, of a release build"]
fn packing_speed() {
    const COLUMNS: usize = 4096;
    for name in ["bf16", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "int4:128", "fp8:128"] {
        let encoding = Encoding::find(name).expect("an encoding");
        let layout = TileKind::of(Some(encoding)).layout;
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
