//! Kinds of tiles for group encodings: every kind of codes with every type of scales and every
//! length.

use super::{BLOCKS, TileKind, coded, inventory};
use crate::encoding::Coded;
use crate::encoding::grouped::{Bytes, E4m3, Encoded, Grouped, Nibbles, Symmetric, WithZero};
use half::{bf16, f16};

/// Submits the kinds of codes. The C++ type of a block is the text before the type of its scales
/// and the length.
macro_rules! kinds {
    ($($codes:ty = $cpp:literal;)*) => {$(
        kinds!(@ $codes, $cpp, f16, "F16Scale");
        kinds!(@ $codes, $cpp, bf16, "BF16Scale");
        kinds!(@ $codes, $cpp, f32, "F32Scale");
    )*};
    (@ $codes:ty, $cpp:literal, $scale:ty, $scale_cpp:literal) => {
        kinds!(@@ $codes, $cpp, $scale, $scale_cpp, 32);
        kinds!(@@ $codes, $cpp, $scale, $scale_cpp, 64);
        kinds!(@@ $codes, $cpp, $scale, $scale_cpp, 128);
    };
    (@@ $codes:ty, $cpp:literal, $scale:ty, $scale_cpp:literal, $len:literal) => {
        inventory::submit! {
            of::<Grouped<$codes, $scale, $len>>(concat!("CodedTile<", $cpp, ", ", $scale_cpp, ", ", $len, ">>"))
        }
    };
}

const fn of<B: Encoded + Coded>(cpp: &'static str) -> TileKind {
    coded::<B>(B::ENCODING, cpp, BLOCKS)
}

kinds! {
    Symmetric<Nibbles> = "Scaled<Codes<4>, 8";
    Symmetric<Bytes> = "Scaled<Bytes, 128";
    WithZero<Nibbles> = "Zeroed<Codes<4>";
    WithZero<Bytes> = "Zeroed<Bytes";
    E4m3 = "Scaled<E4m3, 0";
}
