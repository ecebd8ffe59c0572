//! Scales of a matrix as a tensor stores them.

use std::borrow::Cow;

use amk::ir::DType;

use super::super::row_source::Extent;

/// The scales of a matrix: of each element by its place.
#[derive(Debug)]
pub(super) struct Scales {
    extent: Extent,
    dtype: DType,
    /// Whether they are stored as exponents of two, plus 127.
    exponents: bool,
    /// Rows and columns that share a scale.
    share: [usize; 2],
    /// Distances between adjacent scales in a column and in a row; 0 if there is a single one.
    strides: [usize; 2],
}

impl Scales {
    pub(super) fn new(extent: Extent, dtype: DType, share: [usize; 2], strides: [usize; 2]) -> Self {
        Self { extent, dtype, exponents: false, share, strides }
    }

    /// Scales of which a byte each has the exponent of two, plus 127.
    pub(super) fn of_exponents(extent: Extent, share: [usize; 2], strides: [usize; 2]) -> Self {
        Self { exponents: true, ..Self::new(extent, DType::F32, share, strides) }
    }

    pub(super) fn extent(&self) -> &Extent {
        &self.extent
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of the scale of an element, in the stored order of columns.
    pub(super) fn at(&self, row: usize, column: usize) -> Cow<'_, [u8]> {
        let bytes = self.dtype.bytes() as usize;
        let at = row / self.share[0] * self.strides[0] + column / self.share[1] * self.strides[1];
        match self.exponents {
            true => Cow::Owned(power(self.extent.bytes()[at]).to_le_bytes().to_vec()),
            false => Cow::Borrowed(&self.extent.bytes()[at * bytes..][..bytes]),
        }
    }
}

/// Two to the power of `exponent - 127`; 255 is no number.
fn power(exponent: u8) -> f32 {
    match exponent {
        // Half of the smallest normal float.
        0 => f32::MIN_POSITIVE / 2.0,
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(exponent) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_powers_of_two() {
        for exponent in 0..255 {
            assert_eq!(f64::from(power(exponent)), f64::from(i32::from(exponent) - 127).exp2());
        }
        assert!(power(255).is_nan());
    }
}
