//! The error of a result against its reference.

use super::case::Case;
use amk::formula::Exact;
use amk::ir::DType;
use core::fmt;
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
    /// Encodings of matrices in blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub encodings: Vec<&'static str>,
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
    /// The element with the largest error, where an error was too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Why there is nothing to run, as where an instruction has no device body.
    pub skipped: Option<&'static str>,
    /// The fused bodies that ran, each with the paths of the instructions that it computed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bodies: Bodies,
    /// Whether no error was too large: JSON has no word for an error that is infinite or no number.
    pub ok: bool,
}

/// The reference of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    /// The formula.
    Formula,
    /// The Rust function, where there is no formula.
    Function,
    /// The Rust function on whole operands, which tiles of it have to reproduce.
    Tiles,
}

/// An element that is off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its reference.
    pub against: Against,
    /// Its index, row by row, in all results of the step or in all states.
    pub element: usize,
    /// The position of the step; none for a state.
    pub position: Option<u32>,
    /// Its value.
    pub found: f32,
    /// The value that it is compared with.
    pub expected: f64,
    /// The largest difference that is right.
    pub allowed: f64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { against, element, position, found, expected, allowed } = self;
        let (headline, reference) = match against {
            Against::Formula => ("off the formula", "the formula"),
            Against::Function => ("off the Rust function", "the function"),
            Against::Tiles => ("tiles differ from the whole function", "the whole function"),
        };
        let place = position.map_or("of the states".to_owned(), |pos| format!("at position {pos}"));
        write!(f, "{headline}: element {element} {place} is {found:e}, {reference} gives {expected:e}, ")?;
        match against {
            Against::Tiles => write!(f, "the bits have to be the same"),
            _ => write!(f, "a difference of {allowed:.1e} is allowed"),
        }
    }
}

/// Fused bodies, each with the paths of its instructions.
pub type Bodies = BTreeMap<String, BTreeSet<String>>;

impl Checked {
    pub(super) fn new(path: &str, dtype: DType, oracle: Oracle, bound: f64) -> Self {
        let (path, worst, bodies) = (path.to_owned(), String::new(), Bodies::new());
        Self {
            path,
            dtype,
            encodings: Vec::new(),
            oracle,
            cases: 0,
            error: 0.0,
            bound,
            worst,
            difference: None,
            skipped: None,
            bodies,
            ok: true,
        }
    }

    pub(super) fn note(&mut self, case: &str, error: f64) {
        self.cases += 1;
        if self.worst.is_empty() || larger(self.error, error) {
            (self.error, self.worst) = (error, case.to_owned());
        }
        self.ok &= error <= self.bound; // no number is not
    }

    pub(super) fn note_case(&mut self, case: &Case, (error, difference): Off) {
        let is_worst = self.cases == 0 || larger(self.error, error);
        self.note(&case.shapes(), error);
        if is_worst && !self.ok {
            self.difference = difference;
        }
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

/// An error, and the element that has it where there is one.
pub(super) type Off = (f64, Option<Difference>);

/// The largest of some errors, with its element.
pub(super) fn farthest(errors: impl IntoIterator<Item = Off>) -> Off {
    errors.into_iter().fold((0.0, None), |worst, off| if larger(worst.0, off.0) { off } else { worst })
}

/// The largest error in epsilons of f32, relative to the magnitudes, of which `bound` are allowed.
/// Values that are never rounded must be equal.
pub(super) fn from_exact(position: Option<u32>, exact: &[Exact], found: &[f32], bound: f64) -> Off {
    if exact.len() != found.len() {
        return (f64::INFINITY, None);
    }
    farthest(exact.iter().zip(found).enumerate().map(|(element, (exact, &found))| {
        // An infinity, too, is equal to itself.
        let off = if f64::from(found) == exact.value { 0.0 } else { (f64::from(found) - exact.value).abs() };
        let unit = exact.magnitude.max(f64::from(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        let (expected, allowed) = (exact.value, bound * unit);
        let difference = Difference { against: Against::Formula, element, position, found, expected, allowed };
        (if off == 0.0 { 0.0 } else { off / unit }, Some(difference))
    }))
}

/// The largest error in epsilons of f32, relative to the largest element.
pub(super) fn from_function(position: Option<u32>, expected: &[f32], found: &[f32], bound: f64) -> Off {
    let magnitude = expected.iter().map(|x| f64::from(x.abs())).fold(0.0, f64::max);
    let exact: Vec<Exact> = expected.iter().map(|&value| Exact { value: f64::from(value), magnitude }).collect();
    let (error, difference) = from_exact(position, &exact, found, bound);
    (error, difference.map(|difference| Difference { against: Against::Function, ..difference }))
}

/// 0 where all bits are the same, else infinite.
pub(super) fn same(position: Option<u32>, expected: &[f32], found: &[f32]) -> Off {
    if expected.len() != found.len() {
        return (f64::INFINITY, None);
    }
    let differs = expected.iter().zip(found).position(|(a, b)| a.to_bits() != b.to_bits());
    differs.map_or((0.0, None), |element| {
        let (found, expected, allowed) = (found[element], f64::from(expected[element]), 0.0);
        (f64::INFINITY, Some(Difference { against: Against::Tiles, element, position, found, expected, allowed }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_magnitudes() {
        let error = |exact: &[Exact], found: &[f32]| from_exact(None, exact, found, 4.0).0;
        let exact = [Exact { value: 1.0, magnitude: 8.0 }, Exact::copied(3.0)];
        assert_eq!(error(&exact, &[1.0, 3.0]), 0.0);
        assert_eq!(error(&exact, &[1.0 + 16.0 * f32::EPSILON, 3.0]), 2.0);
        assert!(error(&exact, &[1.0, 3.0 + f32::EPSILON * 2.0]) > 1e30, "a copy has no error");
        assert!(error(&exact, &[f32::NAN, 3.0]).is_nan());
        assert_eq!(error(&exact, &[1.0]), f64::INFINITY);
        assert_eq!(error(&[Exact::copied(f64::INFINITY)], &[f32::INFINITY]), 0.0);
        assert_eq!(error(&[Exact::copied(f64::INFINITY)], &[f32::NEG_INFINITY]), f64::INFINITY);
        assert_eq!(from_function(None, &[1.0, -2.0], &[1.0 + 4.0 * f32::EPSILON, -2.0], 4.0).0, 2.0);
        assert_eq!((same(None, &[0.0], &[0.0]).0, same(None, &[0.0], &[-0.0]).0), (0.0, f64::INFINITY));
    }

    #[test]
    fn an_element_that_is_off_is_named_with_what_it_is_compared_with() {
        let exact = [Exact::copied(3.0), Exact { value: 1.0, magnitude: 8.0 }];
        let text = |off: Off| off.1.expect("an element").to_string();
        let formula = text(from_exact(Some(7), &exact, &[3.0, 2.0], 4.0));
        let expected = "off the formula: element 1 at position 7 is 2e0, the formula gives 1e0, \
            a difference of 3.8e-6 is allowed";
        assert_eq!(formula, expected);
        let expected = "tiles differ from the whole function: element 1 of the states is 2e0, \
            the whole function gives 1e0, the bits have to be the same";
        assert_eq!(text(same(None, &[0.0, 1.0], &[0.0, 2.0])), expected);
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
