//! Weights whose products take rounded inputs.

use amk::Weight;
use amk::layout::{Source, SourceError, WeightRequest};
use amk::tensor::Inputs;
use std::collections::BTreeSet;

/// The matrices of a model that take their inputs in the requested form.
#[derive(Clone, Default, Debug)]
pub struct Rounding {
    /// Matrices that do.
    pub matrices: usize,
    /// Matrices that take theirs in f32, because their encodings have no other products.
    pub others: usize,
    /// The encodings of these.
    pub encodings: BTreeSet<&'static str>,
}

/// A source whose matrices take their inputs in this form, if their encodings have such products.
pub(crate) struct RoundedSource<'s> {
    source: &'s mut dyn Source,
    inputs: Inputs,
    pub(crate) rounding: Rounding,
}

impl<'s> RoundedSource<'s> {
    pub(crate) fn new(source: &'s mut dyn Source, inputs: Inputs) -> Self {
        Self { source, inputs, rounding: Rounding::default() }
    }
}

impl Source for RoundedSource<'_> {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let weight = self.source.weight(request)?;
        if self.inputs == Inputs::F32 || request.shape.len() < 2 {
            return Ok(weight);
        }
        match weight.clone().with_inputs(self.inputs) {
            Ok(rounded) => {
                self.rounding.matrices += 1;
                Ok(rounded)
            }
            Err(_) => {
                self.rounding.others += 1;
                self.rounding.encodings.insert(weight.encoding().name);
                Ok(weight)
            }
        }
    }

    fn table(&mut self, path: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        self.source.table(path, shape)
    }

    fn param(&mut self, path: &str) -> Result<f32, SourceError> {
        self.source.param(path)
    }

    fn flag(&mut self, path: &str) -> Result<bool, SourceError> {
        self.source.flag(path)
    }
}
