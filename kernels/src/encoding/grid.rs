//! Rounding to blocks with chosen scales: `encode` of an encoding uses the scales that follow from
//! each block alone; with more information about the elements, better scales can be chosen.

use super::{GROUP, GroupCodes, GroupFormat, five, four};
use amk::encoding::Encoding;
use amk::ir::DType;
use half::{bf16, f16};

/// The values that the elements of a block can have: `code * scale`, or `code * scale + minimum`,
/// with a code from [`least`](Self::least) to [`most`](Self::most). A block has one scale.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Grid {
    /// The least code.
    pub least: i32,
    /// The largest code.
    pub most: i32,
    /// Whether blocks have a minimum.
    pub minimum: bool,
    scale: Number,
    codes: Codes,
}

/// The numbers of a block.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Step {
    /// The distance of two neighbouring values.
    pub scale: f32,
    /// The value of code 0.
    pub minimum: f32,
}

/// How a block stores its scale and its minimum.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Number {
    F16,
    BF16,
    F32,
}

/// How a block stores its codes, 32 at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Codes {
    Nibbles,
    Fives,
    Bytes,
    /// In two's complement.
    Signed,
}

const fn symmetric(bits: u32, scale: Number, codes: Codes) -> Grid {
    let half = 1 << (bits - 1);
    Grid { least: -half, most: half - 1, minimum: false, scale, codes }
}

const fn affine(bits: u32, codes: Codes) -> Grid {
    Grid { least: 0, most: (1 << bits) - 1, minimum: true, scale: Number::F16, codes }
}

const BLOCKS: [(&str, Grid); 5] = [
    ("Q4_0", symmetric(4, Number::F16, Codes::Nibbles)),
    ("Q5_0", symmetric(5, Number::F16, Codes::Fives)),
    ("Q8_0", symmetric(8, Number::F16, Codes::Signed)),
    ("Q4_1", affine(4, Codes::Nibbles)),
    ("Q5_1", affine(5, Codes::Fives)),
];

impl Number {
    const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
        }
    }

    fn nearest(self, value: f32) -> f32 {
        match self {
            Self::F16 => f16::from_f32(value).to_f32(),
            Self::BF16 => bf16::from_f32(value).to_f32(),
            Self::F32 => value,
        }
    }

    fn read(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            Self::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            Self::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
    }

    fn write(self, value: f32, bytes: &mut [u8]) {
        match self {
            Self::F16 => bytes.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Self::BF16 => bytes.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
            Self::F32 => bytes.copy_from_slice(&value.to_le_bytes()),
        }
    }
}

impl Codes {
    /// Bytes of 32 codes.
    const fn bytes(self) -> usize {
        match self {
            Self::Nibbles => GROUP / 2,
            Self::Fives => GROUP / 2 + 4,
            Self::Bytes | Self::Signed => GROUP,
        }
    }

    fn read(self, bytes: &[u8]) -> [u8; GROUP] {
        match self {
            Self::Nibbles => four::nibbles(bytes),
            Self::Fives => five::codes(bytes),
            Self::Bytes => core::array::from_fn(|i| bytes[i]),
            Self::Signed => core::array::from_fn(|i| bytes[i] ^ 0x80),
        }
    }

    fn write(self, bytes: &mut [u8], codes: [u8; GROUP]) {
        match self {
            Self::Nibbles => four::set_nibbles(bytes, codes),
            Self::Fives => five::set_quants(bytes, codes),
            Self::Bytes => bytes.copy_from_slice(&codes),
            Self::Signed => bytes.copy_from_slice(&codes.map(|code| code ^ 0x80)),
        }
    }
}

impl Grid {
    /// Returns the grid of an encoding; `None` if its blocks have more than one scale, zero points,
    /// or codes that are not integers.
    pub fn of(encoding: &Encoding) -> Option<Self> {
        let blocks = || BLOCKS.into_iter().find(|(name, _)| *name == encoding.name).map(|(_, grid)| grid);
        GroupFormat::of(encoding).map_or_else(blocks, Self::of_groups)
    }

    fn of_groups(format: GroupFormat) -> Option<Self> {
        let scale = match format.scale {
            DType::F16 => Number::F16,
            DType::BF16 => Number::BF16,
            _ => Number::F32,
        };
        match format.codes {
            _ if format.zero => None,
            GroupCodes::Int4 => Some(symmetric(4, scale, Codes::Nibbles)),
            GroupCodes::Int8 => Some(symmetric(8, scale, Codes::Bytes)),
            GroupCodes::Fp8 => None,
        }
    }

    /// The nearest scale, or minimum, that a block can store.
    pub fn stored(&self, value: f32) -> f32 {
        self.scale.nearest(value)
    }

    /// The value of a code, as the encoding decodes it.
    #[inline]
    pub fn value(&self, step: Step, code: i32) -> f32 {
        match self.minimum {
            true => (code as f32).mul_add(step.scale, step.minimum),
            false => code as f32 * step.scale,
        }
    }

    /// The code of the nearest value; the step's scale is not 0.
    #[inline]
    pub fn code(&self, step: Step, element: f32) -> i32 {
        // Added to a number of few bits it leaves no place for a fraction: rounding to nearest,
        // ties to even, in two instructions of vectors.
        const NO_FRACTION: f32 = 1.5 * (1 << 23) as f32;
        let code = ((element - step.minimum) / step.scale).clamp(self.least as f32, self.most as f32);
        ((code + NO_FRACTION) - NO_FRACTION) as i32
    }

    /// Writes a block.
    ///
    /// # Panics
    /// If the codes and the block do not have the lengths of one block.
    pub fn join(&self, step: Step, codes: &[i32], block: &mut [u8]) {
        let (scale, rest) = block.split_at_mut(self.scale.bytes());
        self.scale.write(step.scale, scale);
        let (minimum, rest) = rest.split_at_mut(if self.minimum { self.scale.bytes() } else { 0 });
        if self.minimum {
            self.scale.write(step.minimum, minimum);
        }
        assert_eq!(rest.len(), codes.len() / GROUP * self.codes.bytes(), "bytes of {} codes", codes.len());
        for (codes, bytes) in codes.as_chunks::<GROUP>().0.iter().zip(rest.chunks_exact_mut(self.codes.bytes())) {
            self.codes.write(bytes, codes.map(|code| (code - self.least) as u8));
        }
    }

    /// Splits a block into scale and codes: the inverse of [`Self::join`].
    ///
    /// # Panics
    /// If the codes and the block do not have the lengths of one block.
    pub fn split(&self, block: &[u8], codes: &mut [i32]) -> Step {
        let (scale, rest) = block.split_at(self.scale.bytes());
        let (minimum, rest) = rest.split_at(if self.minimum { self.scale.bytes() } else { 0 });
        assert_eq!(rest.len(), codes.len() / GROUP * self.codes.bytes(), "bytes of {} codes", codes.len());
        for (codes, bytes) in codes.as_chunks_mut::<GROUP>().0.iter_mut().zip(rest.chunks_exact(self.codes.bytes())) {
            *codes = self.codes.read(bytes).map(|code| i32::from(code) + self.least);
        }
        let minimum = if self.minimum { self.scale.read(minimum) } else { 0.0 };
        Step { scale: self.scale.read(scale), minimum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn blocks_decode_to_the_values_of_their_codes() {
        let known: Vec<_> = Encoding::all().filter_map(|encoding| Some((encoding, Grid::of(encoding)?))).collect();
        assert_eq!(known.len(), 23);
        for (encoding, grid) in known {
            let elements = random(7, encoding.block);
            let minimum = if grid.minimum { grid.stored(-1.1) } else { 0.0 };
            let step = Step { scale: grid.stored(2.2 / (grid.most - grid.least) as f32), minimum };
            let codes: Vec<i32> = elements.iter().map(|&x| grid.code(step, x)).collect();
            let (mut block, mut decoded) = (vec![0; encoding.bytes], vec![0.0; encoding.block]);
            grid.join(step, &codes, &mut block);
            (encoding.decode)(&block, &mut decoded);
            let values: Vec<f32> = codes.iter().map(|&code| grid.value(step, code)).collect();
            assert_eq!(decoded, values, "{encoding}");
            assert!(elements.iter().zip(&values).all(|(x, v)| (x - v).abs() <= 0.51 * step.scale), "{encoding}");
            let mut again = vec![0; codes.len()];
            assert_eq!((grid.split(&block, &mut again), again), (step, codes), "{encoding}");
        }
    }
}
