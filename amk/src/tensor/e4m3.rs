//! fp8 e4m3 (OCP 8-bit Floating Point Specification 1.0): a sign, four bits of exponent with bias
//! 7, three of mantissa, no infinities.

/// The largest number.
pub const LARGEST: f32 = 448.0;

/// Returns the exact value of an e4m3 code other than NaN.
#[inline(always)]
pub fn widen(code: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(code) >> 3 & 15, u32::from(code) & 7);
    // In steps of the subnormal numbers: integers of at most 18 bits, so that no operand is a
    // subnormal f32, which is slow.
    let steps = if exponent == 0 { mantissa } else { (8 | mantissa) << ((exponent - 1) & 15) };
    let magnitude = steps as f32 * (1.0 / 512.0);
    f32::from_bits(magnitude.to_bits() | (u32::from(code) & 0x80) << 24)
}

/// Returns the nearest e4m3, ties to even; values beyond the largest, and NaN, become the largest.
#[inline(always)]
pub fn narrow(x: f32) -> u8 {
    // NaN is not below the largest.
    let x = if x < LARGEST { x.max(-LARGEST) } else { LARGEST };
    let magnitude = x.abs();
    let code = if magnitude < 1.0 / 64.0 {
        // For the codes just above the subnormals, from 1/64, the spacing is also 8.
        (magnitude * 512.0).round_ties_even() as u32
    } else {
        let bits = magnitude.to_bits();
        // To three bits of mantissa; a carry goes to the exponent.
        let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
        rounded - ((127 - 7) << 3)
    };
    code as u8 | if x.is_sign_negative() { 0x80 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_numbers_of_the_definition() {
        for code in (0..=u8::MAX).filter(|code| code & 0x7f != 0x7f) {
            let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
            let magnitude = match exponent {
                0 => mantissa / 8.0 * 2f64.powi(-6),
                _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
            };
            let value = if code & 0x80 == 0 { magnitude } else { -magnitude };
            assert_eq!(f64::from(widen(code)), value, "{code:#x}");
            assert_eq!(narrow(widen(code)), code);
            if code & 0x7f < 0x7e {
                // Between two codes the even one; to each side of the middle the nearest.
                let (here, next) = (widen(code), widen(code + 1));
                let middle = (here + next) / 2.0;
                assert_eq!(narrow(middle), code + (code & 1), "{middle}");
                assert_eq!(narrow(middle * 0.999), code);
                assert_eq!(narrow(middle * 1.001), code + 1);
            }
        }
    }

    #[test]
    fn what_is_beyond_the_largest_saturates() {
        for (x, code) in [(448.1, 0x7e), (1e9, 0x7e), (f32::INFINITY, 0x7e), (-1e9, 0xfe), (-0.0, 0x80)] {
            assert_eq!(narrow(x), code, "{x}");
        }
        assert_eq!([narrow(f32::NAN), narrow(-f32::NAN)], [0x7e; 2]);
        assert_eq!([narrow(f32::from_bits(1)), narrow(-f32::MIN_POSITIVE)], [0, 0x80], "too small for any but 0");
    }
}
