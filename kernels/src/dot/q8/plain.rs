//! Integers one after the other, for processors of any kind.

use super::{EIGHT, Integers, SIXTEEN};
use crate::encoding::GROUP;

#[derive(Clone, Copy)]
pub(super) struct Plain;

/// The inner product of codes and inputs.
#[inline(always)]
fn dot(codes: &[u8], x: &[i8]) -> i32 {
    let mut sum = 0;
    for (&code, &x) in codes.iter().zip(x) {
        sum += i32::from(code) * i32::from(x);
    }
    sum
}

impl Integers for Plain {
    type Dots = [i32; SIXTEEN];
    type Sums = [f32; SIXTEEN];

    #[inline(always)]
    fn halves(self, codes: &[[u8; GROUP]; EIGHT], x: &[i8; GROUP], _: u8) -> [[i32; EIGHT]; 2] {
        let mut halves = [[0; EIGHT]; 2];
        for (at, codes) in codes.iter().enumerate() {
            halves[0][at] = dot(&codes[..GROUP / 2], &x[..GROUP / 2]);
            halves[1][at] = dot(&codes[GROUP / 2..], &x[GROUP / 2..]);
        }
        halves
    }

    #[inline(always)]
    fn dots(self, value: i32) -> Self::Dots {
        [value; SIXTEEN]
    }

    #[inline(always)]
    fn multiply(self, mut dots: Self::Dots, codes: &[[u8; 4]; SIXTEEN], x: [i8; 4], _: u8) -> Self::Dots {
        for (sum, codes) in dots.iter_mut().zip(codes) {
            *sum += dot(codes, &x);
        }
        dots
    }

    #[inline(always)]
    fn sums(self) -> Self::Sums {
        [0.0; SIXTEEN]
    }

    #[inline(always)]
    fn add(self, mut sums: Self::Sums, dots: Self::Dots, scale: f32, factors: &[f32; SIXTEEN]) -> Self::Sums {
        for ((sum, dot), factor) in sums.iter_mut().zip(dots).zip(factors) {
            *sum = factor.mul_add(scale * dot as f32, *sum);
        }
        sums
    }

    #[inline(always)]
    fn add_value(self, mut sums: Self::Sums, value: f32, factors: &[f32; SIXTEEN]) -> Self::Sums {
        for (sum, factor) in sums.iter_mut().zip(factors) {
            *sum = factor.mul_add(value, *sum);
        }
        sums
    }

    #[inline(always)]
    fn floats(self, sums: Self::Sums) -> [f32; SIXTEEN] {
        sums
    }
}
