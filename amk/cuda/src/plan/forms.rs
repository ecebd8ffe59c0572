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
    /// f32 weights and activations, in generic tasks only: for comparisons, not for speed.
    F32,
}

/// The precision of a program, and the weights that are stored in blocks. Bodies that decode an
/// encoding take such a weight unchanged; others get it as floats of the precision.
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
        // Bodies read columns in order: a weight with permuted columns becomes floats.
        let in_order = bindings.weights().iter().filter(|(_, weight)| weight.order().is_none());
        let weights = in_order.map(|(name, weight)| (name.clone(), weight.encoding()));
        let blocks = weights.filter(|(_, encoding)| precision == Precision::BF16 && encoding.float.is_none());
        Self { precision, encodings: blocks.collect() }
    }

    /// The encoding of a weight in blocks.
    pub fn encoding(&self, weight: &str) -> Option<&'static Encoding> {
        self.encodings.get(weight).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::PAIRS;
    use amk::Weight;

    #[test]
    fn columns_out_of_order_are_no_blocks_of_a_body() {
        let weight = Weight::from_vec(&PAIRS, &[1, 2], vec![0]).unwrap();
        let reordered = weight.clone().with_order([1, 0].as_slice().into()).unwrap();
        let bindings = Bindings::new().weight("a", weight).weight("b", reordered);
        let forms = WeightForms::of(Precision::BF16, &bindings);
        assert_eq!((forms.encoding("a"), forms.encoding("b")), (Some(&PAIRS), None));
    }
}
