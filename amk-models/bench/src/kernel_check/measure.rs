//! The error of a result against its reference.

use super::case::Case;
use amk::formula::Exact;
use amk::ir::DType;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The reference of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Oracle {
    /// The instruction's formula in f64. Errors are in epsilons of f32, relative to the sum of the
    /// magnitudes of an element's terms.
    F64,
    /// The Rust function, where there is no formula. Errors are in epsilons of f32, relative to the
    /// largest element.
    Function,
    /// The function's formulas in f64. Errors are in deviations: the root mean square of the change
    /// when every intermediate value is rounded to bf16.
    Deviation,
}

/// Result of checking an instruction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The path of the instruction or annotated function.
    pub path: String,
    /// Element type of the weights.
    pub dtype: DType,
    /// The reference.
    pub oracle: Oracle,
    /// Cases that were run.
    pub cases: usize,
    /// The largest error; infinite also where results that must be the same bits are not.
    pub error: f64,
    /// The largest error that is right.
    pub bound: f64,
    /// The sizes of the case with the largest error.
    pub worst: String,
    /// Why there is nothing to run, as where an instruction has no device body.
    pub skipped: Option<&'static str>,
    /// The fused bodies that ran, each with the paths of the instructions that it computed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bodies: Bodies,
    /// Whether no error was too large: JSON has no word for an error that is infinite or no number.
    pub ok: bool,
}

/// Fused bodies, each with the paths of its instructions.
pub type Bodies = BTreeMap<String, BTreeSet<String>>;

impl Checked {
    pub(super) fn new(path: &str, dtype: DType, oracle: Oracle, bound: f64) -> Self {
        let (path, worst, bodies) = (path.to_owned(), String::new(), Bodies::new());
        Self { path, dtype, oracle, cases: 0, error: 0.0, bound, worst, skipped: None, bodies, ok: true }
    }

    pub(super) fn note(&mut self, case: &str, error: f64) {
        self.cases += 1;
        if self.worst.is_empty() || larger(self.error, error) {
            (self.error, self.worst) = (error, case.to_owned());
        }
        self.ok &= error <= self.bound; // no number is not
    }

    pub(super) fn note_case(&mut self, case: &Case, error: f64) {
        self.note(&case.shapes(), error);
    }
}

/// NaN is the largest of all.
fn larger(than: f64, error: f64) -> bool {
    error > than || (error.is_nan() && !than.is_nan())
}

/// The largest of some errors.
pub(super) fn largest(errors: impl IntoIterator<Item = f64>) -> f64 {
    errors.into_iter().fold(0.0, |worst, error| if larger(worst, error) { error } else { worst })
}

/// The largest error in epsilons of f32, relative to the magnitudes. Values that are never rounded
/// must be equal.
pub(super) fn from_exact(exact: &[Exact], found: &[f32]) -> f64 {
    if exact.len() != found.len() {
        return f64::INFINITY;
    }
    largest(exact.iter().zip(found).map(|(exact, &found)| {
        // An infinity, too, is equal to itself.
        let off = if f64::from(found) == exact.value { 0.0 } else { (f64::from(found) - exact.value).abs() };
        let unit = exact.magnitude.max(f64::from(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        if off == 0.0 { 0.0 } else { off / unit }
    }))
}

/// The largest error in epsilons of f32, relative to the largest element.
pub(super) fn from_function(expected: &[f32], found: &[f32]) -> f64 {
    let magnitude = expected.iter().map(|x| f64::from(x.abs())).fold(0.0, f64::max);
    let exact: Vec<Exact> = expected.iter().map(|&value| Exact { value: f64::from(value), magnitude }).collect();
    from_exact(&exact, found)
}

/// 0 where all bits are the same, else infinite.
pub(super) fn same(expected: &[f32], found: &[f32]) -> f64 {
    let same = expected.len() == found.len() && expected.iter().zip(found).all(|(a, b)| a.to_bits() == b.to_bits());
    if same { 0.0 } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_magnitudes() {
        let exact = [Exact { value: 1.0, magnitude: 8.0 }, Exact::copied(3.0)];
        assert_eq!(from_exact(&exact, &[1.0, 3.0]), 0.0);
        assert_eq!(from_exact(&exact, &[1.0 + 16.0 * f32::EPSILON, 3.0]), 2.0);
        assert!(from_exact(&exact, &[1.0, 3.0 + f32::EPSILON * 2.0]) > 1e30, "a copy has no error");
        assert!(from_exact(&exact, &[f32::NAN, 3.0]).is_nan());
        assert_eq!(from_exact(&exact, &[1.0]), f64::INFINITY);
        assert_eq!(from_exact(&[Exact::copied(f64::INFINITY)], &[f32::INFINITY]), 0.0);
        assert_eq!(from_exact(&[Exact::copied(f64::INFINITY)], &[f32::NEG_INFINITY]), f64::INFINITY);
        assert_eq!(from_function(&[1.0, -2.0], &[1.0 + 4.0 * f32::EPSILON, -2.0]), 2.0);
        assert_eq!((same(&[0.0], &[0.0]), same(&[0.0], &[-0.0])), (0.0, f64::INFINITY));
    }

    #[test]
    fn the_worst_case_is_kept_and_no_number_is_the_worst() {
        let mut checked = Checked::new("x", DType::F32, Oracle::F64, 4.0);
        for (case, error) in [("a", 1.0), ("b", f64::NAN), ("c", 3.0)] {
            checked.note(case, error);
        }
        assert_eq!((checked.worst.as_str(), checked.cases, checked.ok), ("b", 3, false));
    }
}
