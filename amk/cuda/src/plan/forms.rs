//! The forms of the weights in a device's memory.

use amk::encoding::Encoding;
use amk::vm::Bindings;
use std::collections::BTreeMap;

/// The precision in which a program computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// bf16 weights; bf16 activations between fast tasks, f32 within and between all others.
    #[default]
    BF16,
    /// f32 weights and activations, in generic tasks alone: for comparisons, not for speed.
    F32,
}

/// The precision of a program, and the weights that are stored in blocks. Bodies that decode an
/// encoding take such a weight as it is; others get it in floats of the precision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WeightForms {
    /// The precision.
    pub precision: Precision,
    /// The encodings of weights in blocks, by name.
    pub encodings: BTreeMap<String, &'static Encoding>,
}

impl From<Precision> for WeightForms {
    fn from(precision: Precision) -> Self {
        Self { precision, encodings: BTreeMap::new() }
    }
}

impl WeightForms {
    /// The forms of bound weights.
    pub fn of(precision: Precision, bindings: &Bindings) -> Self {
        let weights = bindings.weights().iter().map(|(name, weight)| (name, weight.encoding()));
        let blocks = weights.filter(|(_, encoding)| precision == Precision::BF16 && encoding.float.is_none());
        Self { precision, encodings: blocks.map(|(name, encoding)| (name.clone(), encoding)).collect() }
    }

    /// The encoding of a weight in blocks.
    pub fn encoding(&self, weight: &str) -> Option<&'static Encoding> {
        self.encodings.get(weight).copied()
    }
}
