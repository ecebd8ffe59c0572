//! Encodings by groups: integers or fp8 of consecutive columns, with a scale for each group.
//!
//! A block is one group: the scale, little endian; the zero point as a byte, if there is one; the
//! codes. Values are computed in f32. `q - zero` and e4m3 are exact there, so an element is rounded
//! once, by the product with the scale; with a scale in f16 or bf16 that product is also exact.

mod coded;
mod codes;
mod format;
mod scale;

pub(crate) use codes::{Bytes, E4m3, Nibbles, Symmetric, WithZero};
pub use format::{GroupCodes, GroupFormat};

use super::{Blocks, GROUP, encode, encoding};
use amk::encoding::Encoding;
use codes::{Codes, Integers};
use core::marker::PhantomData;
use half::{bf16, f16};
use scale::Scale;

/// A group of `LEN` elements with codes `C` and a scale of type `S`.
pub(crate) struct Grouped<C, S, const LEN: usize>(PhantomData<(C, S)>);

/// A block that has a registered encoding.
pub(crate) trait Encoded {
    const ENCODING: &'static Encoding;
}

impl<C: Codes, S: Scale, const LEN: usize> Grouped<C, S, LEN> {
    /// Bytes before the codes.
    const HEAD: usize = S::BYTES + C::ZERO_BYTES;
    /// Bytes of the codes that are decoded at a time.
    const STEP: usize = GROUP * C::Stored::BITS / 8;
    /// Bytes of a block.
    const BYTES: usize = Self::HEAD + LEN / GROUP * Self::STEP;

    /// Rounds each element to the nearest value that the group's scale and zero point allow.
    fn encode<const BYTES: usize>(elements: &[f32; LEN], block: &mut [u8; BYTES]) {
        let (low, high) = elements.iter().fold((0f32, 0f32), |(low, high), &x| (low.min(x), high.max(x)));
        S::write(block, C::scale(low, high));
        // As read, and so already rounded.
        let scale = S::read(block);
        let (head, codes) = block.split_at_mut(Self::HEAD);
        let zero = &mut head[S::BYTES..];
        C::set_zero(zero, low, scale);
        for (elements, codes) in elements.as_chunks().0.iter().zip(codes.chunks_exact_mut(Self::STEP)) {
            C::encode(elements, zero, scale, codes);
        }
    }
}

impl<C: Codes, S: Scale, const LEN: usize, const BYTES: usize> Blocks<BYTES> for Grouped<C, S, LEN> {
    const GROUPS: usize = LEN / GROUP;

    #[inline(always)]
    fn group(block: &[u8; BYTES], group: usize) -> [f32; GROUP] {
        let codes = &block[Self::HEAD + group * Self::STEP..][..Self::STEP];
        C::decode(codes, &block[S::BYTES..Self::HEAD], S::read(block))
    }

    fn check(block: &[u8; BYTES]) -> Result<(), &'static str> {
        if !S::is_finite(block) {
            return Err("has a scale that is not finite");
        }
        if !(S::read(block) * C::LARGEST).is_finite() {
            return Err("has a scale with which elements are not finite");
        }
        C::check(&block[S::BYTES..Self::HEAD], &block[Self::HEAD..])
    }
}

/// Registers encodings with groups of 32, 64 and 128: the two parts of the name around the length,
/// the codes and the type of the scales.
macro_rules! grouped {
    ($($name:literal $suffix:literal $codes:ty, $scale:ty;)*) => {$(
        grouped!(@ $name, 32, $suffix, $codes, $scale);
        grouped!(@ $name, 64, $suffix, $codes, $scale);
        grouped!(@ $name, 128, $suffix, $codes, $scale);
    )*};
    (@ $name:literal, $len:literal, $suffix:literal, $codes:ty, $scale:ty) => {
        const _: () = {
            type Group = Grouped<$codes, $scale, $len>;
            static ENCODING: Encoding = Encoding {
                encode: Some(|from, to| encode(from, to, Group::encode::<{ Group::BYTES }>)),
                ..encoding::<{ Group::BYTES }, Group>(concat!($name, ":", $len, $suffix))
            };
            amk::encoding!(ENCODING);

            impl Encoded for Group {
                const ENCODING: &'static Encoding = &ENCODING;
            }
        };
    };
}

grouped! {
    "int4" "" Symmetric<Nibbles>, f16;
    "int4" ":bf16" Symmetric<Nibbles>, bf16;
    "int4" ":f32" Symmetric<Nibbles>, f32;
    "int4" ":zero" WithZero<Nibbles>, f16;
    "int4" ":zero:bf16" WithZero<Nibbles>, bf16;
    "int4" ":zero:f32" WithZero<Nibbles>, f32;
    "int8" "" Symmetric<Bytes>, f16;
    "int8" ":bf16" Symmetric<Bytes>, bf16;
    "int8" ":f32" Symmetric<Bytes>, f32;
    "int8" ":zero" WithZero<Bytes>, f16;
    "int8" ":zero:bf16" WithZero<Bytes>, bf16;
    "int8" ":zero:f32" WithZero<Bytes>, f32;
    "fp8" "" E4m3, f32;
    "fp8" ":bf16" E4m3, bf16;
    "fp8" ":f16" E4m3, f16;
}

#[cfg(test)]
mod tests;
