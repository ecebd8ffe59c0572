//! Integers one after the other, for any processor.

use super::{Integers, words_of};
use crate::encoding::{Lanes, ROWS, half_at};

#[derive(Clone, Copy)]
pub(super) struct Plain;

/// The inner product of codes and inputs.
#[inline(always)]
fn dot(codes: &[u8; 4], x: &[i8; 4]) -> i32 {
    let mut sum = 0;
    for (&code, &x) in codes.iter().zip(x) {
        sum += i32::from(code) * i32::from(x);
    }
    sum
}

impl Lanes for Plain {
    type Ints = [u32; ROWS];
    type Floats = [f32; ROWS];

    #[inline(always)]
    fn ints(self, ints: [u32; ROWS]) -> Self::Ints {
        ints
    }

    #[inline(always)]
    fn words(self, bytes: &[&[u8; 16]; ROWS]) -> [Self::Ints; 4] {
        words_of(self, bytes)
    }

    #[inline(always)]
    fn bits(self, ints: Self::Ints, shift: u32, mask: u32) -> Self::Ints {
        ints.map(|int| int >> shift & mask)
    }

    #[inline(always)]
    fn or(self, mut a: Self::Ints, b: Self::Ints) -> Self::Ints {
        a.iter_mut().zip(b).for_each(|(a, b)| *a |= b);
        a
    }

    #[inline(always)]
    fn unsigned(self, ints: Self::Ints) -> Self::Floats {
        ints.map(|int| int as f32)
    }

    #[inline(always)]
    fn signed_byte(self, ints: Self::Ints, shift: u32) -> Self::Floats {
        ints.map(|int| f32::from((int >> shift) as i8))
    }

    #[inline(always)]
    fn half(self, ints: Self::Ints) -> Self::Floats {
        ints.map(|int| half_at(&int.to_le_bytes(), 0))
    }

    #[inline(always)]
    fn floats(self, floats: [f32; ROWS]) -> Self::Floats {
        floats
    }

    #[inline(always)]
    fn times(self, mut a: Self::Floats, b: Self::Floats) -> Self::Floats {
        a.iter_mut().zip(b).for_each(|(a, b)| *a *= b);
        a
    }

    #[inline(always)]
    fn negated(self, floats: Self::Floats) -> Self::Floats {
        floats.map(|float| -float)
    }
}

impl Integers for Plain {
    type Bytes = [[u8; 16]; 4];
    type Fours = [[i32; 4]; 4];

    #[inline(always)]
    fn bytes(self, rows: [&[u8; 16]; 4]) -> Self::Bytes {
        rows.map(|row| *row)
    }

    #[inline(always)]
    fn at(self, bytes: Self::Bytes, shift: u32, mask: u8) -> Self::Bytes {
        bytes.map(|row| row.map(|byte| byte >> shift & mask))
    }

    #[inline(always)]
    fn above(self, mut low: Self::Bytes, high: Self::Bytes, shift: u32) -> Self::Bytes {
        let pairs = low.as_flattened_mut().iter_mut().zip(high.as_flattened());
        pairs.for_each(|(low, high)| *low |= high << shift);
        low
    }

    #[inline(always)]
    fn flip(self, bytes: Self::Bytes, bits: u8) -> Self::Bytes {
        bytes.map(|row| row.map(|byte| byte ^ bits))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes {
        codes.map(|row| row.map(|code| table[usize::from(code & 0xf)]))
    }

    #[inline(always)]
    fn transposed(self, quarters: [Self::Bytes; 4]) -> [Self::Ints; 4] {
        let mut out = [[0; ROWS]; 4];
        for (quarter, bytes) in quarters.iter().enumerate() {
            for (number, bytes) in bytes.iter().enumerate() {
                for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                    out[quarter + 4 * number] = u32::from_le_bytes(*bytes);
                }
            }
        }
        out
    }

    #[inline(always)]
    fn fours(self) -> Self::Fours {
        [[0; 4]; 4]
    }

    #[inline(always)]
    fn multiply_bytes(self, mut fours: Self::Fours, codes: Self::Bytes, x: &[i8; 16], _: u8) -> Self::Fours {
        for (sums, codes) in fours.iter_mut().zip(&codes) {
            for ((sum, codes), x) in sums.iter_mut().zip(codes.as_chunks().0).zip(x.as_chunks().0) {
                *sum += dot(codes, x);
            }
        }
        fours
    }

    #[inline(always)]
    fn rows(self, quarters: [Self::Fours; 4]) -> Self::Ints {
        let mut out = [0; ROWS];
        for (quarter, rows) in quarters.iter().enumerate() {
            for (number, sums) in rows.iter().enumerate() {
                out[quarter + 4 * number] = sums.iter().sum::<i32>().cast_unsigned();
            }
        }
        out
    }

    #[inline(always)]
    fn same(self, value: i32) -> Self::Ints {
        [value.cast_unsigned(); ROWS]
    }

    #[inline(always)]
    fn plus(self, mut a: Self::Ints, b: Self::Ints) -> Self::Ints {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_add(b));
        a
    }

    #[inline(always)]
    fn multiply(self, mut dots: Self::Ints, codes: &[[u8; 4]; ROWS], x: [i8; 4], _: u8) -> Self::Ints {
        for (sum, codes) in dots.iter_mut().zip(codes) {
            *sum = sum.wrapping_add_signed(dot(codes, &x));
        }
        dots
    }

    #[inline(always)]
    fn add(self, mut sums: Self::Floats, dots: Self::Ints, scale: f32, factors: Self::Floats) -> Self::Floats {
        for ((sum, dot), factor) in sums.iter_mut().zip(dots).zip(factors) {
            *sum = factor.mul_add(scale * dot.cast_signed() as f32, *sum);
        }
        sums
    }

    #[inline(always)]
    fn add_value(self, mut sums: Self::Floats, value: f32, factors: Self::Floats) -> Self::Floats {
        for (sum, factor) in sums.iter_mut().zip(factors) {
            *sum = factor.mul_add(value, *sum);
        }
        sums
    }

    #[inline(always)]
    fn bytes_of(self, ints: Self::Ints) -> [[u8; 4]; ROWS] {
        ints.map(u32::to_le_bytes)
    }

    #[inline(always)]
    fn floats_of(self, floats: Self::Floats) -> [f32; ROWS] {
        floats
    }
}
