//! Kinds of codes: integers of four and eight bits, fp8.

use super::super::four::{nibbles, set_nibbles};
use super::super::{GROUP, biased, inverse};
use amk::tensor::e4m3;

/// A kind of codes.
pub(crate) trait Codes: 'static {
    /// How codes are stored.
    type Stored: Integers;
    /// Bytes of a group's zero.
    const ZERO_BYTES: usize;
    /// The largest magnitude of an element in a group whose scale is 1.
    const LARGEST: f32;
    /// See [`crate::encoding::Coded::MOVED`].
    const MOVED: &'static [(u32, u32)] = &[(u32::MAX, 0)];

    /// The elements of 32 codes. Inlined into loops over blocks.
    fn decode(codes: &[u8], zero: &[u8], scale: f32) -> [f32; GROUP];

    /// The scale of a group whose elements, together with 0, range from `low` to `high`.
    fn scale(low: f32, high: f32) -> f32;
    /// Writes the zero point of a group whose smallest element, or 0, is `low`.
    fn set_zero(zero: &mut [u8], low: f32, scale: f32);
    /// Writes the nearest codes of 32 elements.
    fn encode(elements: &[f32; GROUP], zero: &[u8], scale: f32, codes: &mut [u8]);

    /// Returns why zero point and codes cannot belong to a group.
    fn check(zero: &[u8], codes: &[u8]) -> Result<(), &'static str>;
}

/// Codes `q` from 0; an element is `(q - bias) * scale`, where the bias is half of the number of
/// codes.
pub(crate) struct Symmetric<C>(C);

/// Codes `q` from 0 and a zero point, which is also a code; an element is `(q - zero) * scale`.
pub(crate) struct WithZero<C>(C);

/// fp8 e4m3 (OCP 8-bit Floating Point Specification 1.0): a sign, four bits of exponent with bias
/// 7, three of mantissa, no infinities; an element is `q * scale`.
pub(crate) struct E4m3;

/// How 32 codes of integers are stored.
pub(crate) trait Integers: 'static {
    const BITS: usize;

    fn codes(bytes: &[u8]) -> [u8; GROUP];
    fn set_codes(bytes: &mut [u8], codes: [u8; GROUP]);
}

/// The low nibble of byte `i` is code `i`, the high nibble code `i + 16`.
pub(crate) struct Nibbles;

/// A byte a code.
pub(crate) struct Bytes;

impl Integers for Nibbles {
    const BITS: usize = 4;

    #[inline(always)]
    fn codes(bytes: &[u8]) -> [u8; GROUP] {
        nibbles(bytes)
    }

    fn set_codes(bytes: &mut [u8], codes: [u8; GROUP]) {
        set_nibbles(bytes, codes);
    }
}

impl Integers for Bytes {
    const BITS: usize = 8;

    #[inline(always)]
    fn codes(bytes: &[u8]) -> [u8; GROUP] {
        let mut codes = [0; GROUP];
        codes.copy_from_slice(&bytes[..GROUP]);
        codes
    }

    fn set_codes(bytes: &mut [u8], codes: [u8; GROUP]) {
        bytes.copy_from_slice(&codes);
    }
}

/// The largest code.
const fn most<C: Integers>() -> f32 {
    ((1u32 << C::BITS) - 1) as f32
}

/// The nearest codes, ties to even, where `zero` is the code of 0.
fn round<C: Integers>(elements: &[f32; GROUP], zero: f32, scale: f32) -> [u8; GROUP] {
    let inverse = inverse(scale);
    elements.map(|x| ((x * inverse).round_ties_even() + zero).clamp(0.0, most::<C>()) as u8)
}

impl<C: Integers> Codes for Symmetric<C> {
    type Stored = C;
    const ZERO_BYTES: usize = 0;
    const LARGEST: f32 = (1 << (C::BITS - 1)) as f32;

    #[inline(always)]
    fn decode(codes: &[u8], _: &[u8], scale: f32) -> [f32; GROUP] {
        biased(C::codes(codes), 1 << (C::BITS - 1), scale)
    }

    /// Like compressed-tensors: the largest magnitude is half of the codes' range.
    fn scale(low: f32, high: f32) -> f32 {
        high.max(-low) / (0.5 * most::<C>())
    }

    fn set_zero(_: &mut [u8], _: f32, _: f32) {}

    fn encode(elements: &[f32; GROUP], _: &[u8], scale: f32, codes: &mut [u8]) {
        C::set_codes(codes, round::<C>(elements, Self::LARGEST, scale));
    }

    fn check(_: &[u8], _: &[u8]) -> Result<(), &'static str> {
        Ok(())
    }
}

impl<C: Integers> Codes for WithZero<C> {
    type Stored = C;
    const ZERO_BYTES: usize = 1;
    const LARGEST: f32 = most::<C>();

    #[inline(always)]
    fn decode(codes: &[u8], zero: &[u8], scale: f32) -> [f32; GROUP] {
        biased(C::codes(codes), i32::from(zero[0]), scale)
    }

    fn scale(low: f32, high: f32) -> f32 {
        (high - low) / most::<C>()
    }

    fn set_zero(zero: &mut [u8], low: f32, scale: f32) {
        zero[0] = (-low * inverse(scale)).round_ties_even().clamp(0.0, most::<C>()) as u8;
    }

    fn encode(elements: &[f32; GROUP], zero: &[u8], scale: f32, codes: &mut [u8]) {
        C::set_codes(codes, round::<C>(elements, zero[0].into(), scale));
    }

    fn check(zero: &[u8], _: &[u8]) -> Result<(), &'static str> {
        if f32::from(zero[0]) > most::<C>() { Err("has a zero that is none of its codes") } else { Ok(()) }
    }
}

impl Codes for E4m3 {
    type Stored = Bytes;
    const ZERO_BYTES: usize = 0;
    const LARGEST: f32 = e4m3::LARGEST;
    /// The bits of every other code are as far from each other as in bf16.
    const MOVED: &'static [(u32, u32)] =
        &[(0x0080_0080, 8), (0x007f_007f, 4), (0x8000_8000, 28), (0x7000_7000, 0), (0x0f00_0f00, 24)];

    #[inline(always)]
    fn decode(codes: &[u8], _: &[u8], scale: f32) -> [f32; GROUP] {
        let mut out = [0.0; GROUP];
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = e4m3::widen(code) * scale;
        }
        out
    }

    fn scale(low: f32, high: f32) -> f32 {
        high.max(-low) / Self::LARGEST
    }

    fn set_zero(_: &mut [u8], _: f32, _: f32) {}

    fn encode(elements: &[f32; GROUP], _: &[u8], scale: f32, codes: &mut [u8]) {
        let inverse = inverse(scale);
        codes.iter_mut().zip(elements).for_each(|(code, x)| *code = e4m3::narrow(x * inverse));
    }

    fn check(_: &[u8], codes: &[u8]) -> Result<(), &'static str> {
        if codes.iter().any(|code| code & 0x7f == 0x7f) { Err("has an element that is not a number") } else { Ok(()) }
    }
}
