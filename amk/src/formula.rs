//! Instructions in f64, the reference for their Rust functions and device bodies.
//!
//! A [`Formula`] is written from the definition of an instruction, not from its Rust function. It
//! returns every element of the results together with the sum of the magnitudes of its terms; a
//! computation in f32 may differ by a few epsilons of that sum.

use crate::registry::Registry;
use core::fmt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A tensor in f64, row by row. A token is one element.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Array {
    /// The extents, outermost first.
    pub shape: Vec<usize>,
    /// The elements.
    pub data: Vec<f64>,
}

/// An element of a result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exact {
    /// Its value.
    pub value: f64,
    /// The sum of the magnitudes that are rounded on the way to the value, each weighted by the
    /// sensitivity of the result; 0 if nothing is rounded.
    pub magnitude: f64,
}

impl Exact {
    /// A value that is copied and never rounded.
    pub const fn copied(value: f64) -> Self {
        Self { value, magnitude: 0.0 }
    }

    /// A sum of terms.
    pub fn sum(terms: impl IntoIterator<Item = f64>) -> Self {
        let add = |sum: Self, term: f64| Self { value: sum.value + term, magnitude: sum.magnitude + term.abs() };
        terms.into_iter().fold(Self::copied(0.0), add)
    }

    /// A value computed by multiplications, divisions, roots, and sums of terms of one sign.
    pub const fn product(value: f64) -> Self {
        Self { value, magnitude: value.abs() }
    }
}

/// The operands of one call.
#[derive(Debug, Default)]
pub struct Operands {
    /// Tensors, weights, states and tokens, in the order of the parameters.
    pub tensors: Vec<Arc<Array>>,
    /// Float parameters in order.
    pub floats: Vec<f64>,
    /// Dim parameters in order.
    pub dims: Vec<usize>,
    /// The position of the step.
    pub pos: usize,
}

impl Operands {
    /// Returns the tensor, weight, state or token that is operand number `number`.
    ///
    /// # Panics
    /// If there is no such operand.
    pub fn tensor(&self, number: usize) -> &Array {
        &self.tensors[number]
    }

    /// Returns the state that is operand number `number`, to be modified.
    ///
    /// # Panics
    /// If there is no such operand.
    pub fn state(&mut self, number: usize) -> &mut Array {
        Arc::make_mut(&mut self.tensors[number])
    }

    /// Returns the elements of operand number `number`.
    ///
    /// # Panics
    /// If there is no such operand.
    pub fn data(&self, number: usize) -> &[f64] {
        &self.tensor(number).data
    }
}

/// An instruction in f64.
#[derive(Clone, Copy)]
pub struct Formula {
    /// The instruction's path, such as `amk_kernels::linear`.
    pub path: &'static str,
    /// Computes the elements of all results, one result after the other, for whole operands of any
    /// shapes that the signature allows. Changes states in place.
    pub run: fn(&mut Operands) -> Vec<Exact>,
}

inventory::collect!(Formula);

/// The reasons why a registered formula is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    /// The instruction is not linked.
    #[error("a formula is for `{path}`, which no linked crate has as an instruction")]
    Instruction {
        /// The path.
        path: &'static str,
    },
    /// An instruction has two formulas.
    #[error("`{path}` has two formulas")]
    Twice {
        /// The path.
        path: &'static str,
    },
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Formula").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Formula {
    /// Returns the formula of an instruction, if a linked crate has one.
    pub fn of(path: &str) -> Option<Self> {
        inventory::iter::<Self>.into_iter().find(|formula| formula.path == path).copied()
    }

    /// Checks that every linked formula is the only formula of an instruction.
    ///
    /// # Errors
    /// The first formula that is not.
    pub fn check_linked(registry: &Registry) -> Result<(), FormulaError> {
        Self::check_all(inventory::iter::<Self>, |path| registry.get(path).is_ok())
    }

    fn check_all<'f>(
        formulas: impl IntoIterator<Item = &'f Self>,
        is_linked: impl Fn(&str) -> bool,
    ) -> Result<(), FormulaError> {
        let mut seen = BTreeSet::new();
        for &Self { path, .. } in formulas {
            if !is_linked(path) {
                return Err(FormulaError::Instruction { path });
            }
            if !seen.insert(path) {
                return Err(FormulaError::Twice { path });
            }
        }
        Ok(())
    }
}

/// Registers the [`Formula`] of an instruction: `formula!("my_crate::softcap", softcap)`, where
/// `softcap` is a `fn(&mut Operands) -> Vec<Exact>`.
#[macro_export]
macro_rules! formula {
    ($path:literal, $run:expr) => {
        $crate::__private::inventory::submit! { $crate::formula::Formula { path: $path, run: $run } }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(operands: &mut Operands) -> Vec<Exact> {
        operands.data(0).iter().map(|x| Exact::product(2.0 * x)).collect()
    }

    // `$crate` is not `amk` here, so the expansion of the macro is written out.
    inventory::submit! { Formula { path: "formula::twice", run: twice } }

    #[test]
    fn formulas_are_found_by_path() {
        let formula = Formula::of("formula::twice").expect("it was submitted");
        let x = Array { shape: vec![2], data: vec![1.0, -3.0] };
        let mut operands = Operands { tensors: vec![Arc::new(x)], ..Operands::default() };
        let expected = [Exact { value: 2.0, magnitude: 2.0 }, Exact { value: -6.0, magnitude: 6.0 }];
        assert_eq!((formula.run)(&mut operands), expected);
        assert!(Formula::of("formula::thrice").is_none());
    }

    #[test]
    fn a_formula_is_the_one_of_a_linked_instruction() {
        let formula = Formula { path: "ops::twice", run: twice };
        let check = |all: &[Formula]| Formula::check_all(all, |path| path == "ops::twice");
        assert_eq!(check(&[formula]), Ok(()));
        assert_eq!(check(&[formula, formula]), Err(FormulaError::Twice { path: "ops::twice" }));
        let misspelt = check(&[Formula { path: "ops::twise", ..formula }]).expect_err("no such instruction");
        let text = "a formula is for `ops::twise`, which no linked crate has as an instruction";
        assert_eq!(misspelt.to_string(), text);
    }

    #[test]
    fn a_sum_tells_the_magnitudes_of_its_terms() {
        assert_eq!(Exact::sum([3.0, -4.0]), Exact { value: -1.0, magnitude: 7.0 });
    }
}
