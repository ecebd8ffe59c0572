//! The forms in which products take their inputs.

use core::fmt;

/// The form in which products with a [`Weight`](super::Weight) take their inputs. It is a property
/// of the weight, so that all code that multiplies by it agrees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Inputs {
    /// Unchanged, in f32.
    #[default]
    F32,
    /// Rounded to signed bytes, with one scale per 32: [`Q8Block`]. For encodings with
    /// [`dot_q8`](crate::Encoding::dot_q8).
    Q8,
}

impl fmt::Display for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "f32",
            Self::Q8 => "q8",
        })
    }
}

/// 32 consecutive inputs, rounded to signed bytes; input `i` is about `scale * codes[i]`.
///
/// With `most` the largest magnitude, `scale` is `most / 127`, and a code is `x * (127 / most)` in
/// f32, rounded to the nearest integer, ties to even. If the scale would not be a normal number, it
/// and the codes are 0. If an input is infinite or NaN, the scale is NaN, and so is every product.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub struct Q8Block {
    /// The step from one code to the next.
    pub scale: f32,
    /// The sums of the codes of the first 16 inputs and of the others.
    pub sums: [i32; 2],
    /// The codes, from -127 to 127.
    pub codes: [i8; Self::LEN],
}

impl Q8Block {
    /// Inputs in a block.
    pub const LEN: usize = 32;
}
