//! Element-wise instructions as functions of scalars.
//!
//! A crate registers a [`Pointwise`] with [`pointwise!`](crate::pointwise!) for its instruction. A
//! body that delivers its results element by element, such as the built-in projections, applies the
//! function before they are stored.

use amk::registry::Registry;
use amk_ir::signature::{ParamKind, ParamSig, Signature, TensorClass};

/// An element-wise instruction as a function of scalars, `y[i] = f(x[i], ..)`. A body that delivers
/// its results element by element applies it before they are stored. Registered with
/// [`pointwise!`](crate::pointwise!).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointwise {
    /// The path of the instruction: tensors of the shape of its one result, and floats.
    pub instruction: &'static str,
    /// The C++ function, with one `float` for each tensor and each float of the instruction, in
    /// order: tensors first.
    pub function: &'static str,
    /// The text that defines it, without includes. Its names are in a namespace of its own.
    pub code: &'static str,
}

inventory::collect!(Pointwise);

/// Registers a [`Pointwise`].
///
/// ```ignore
/// amk_cuda::pointwise!(Pointwise {
///     instruction: "my_crate::hard_swish",
///     function: "hard_swish_of",
///     code: include_str!("hard_swish_of.cuh"),
/// });
/// ```
#[macro_export]
macro_rules! pointwise {
    ($pointwise:expr) => {
        $crate::inventory::submit! { $pointwise }
    };
}

/// The reasons why a registered scalar function cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointwiseError {
    /// The instruction is not linked.
    #[error("the function `{function}` is for `{instruction}`, which is not linked")]
    Instruction {
        /// The instruction's path.
        instruction: &'static str,
        /// The function.
        function: &'static str,
    },
    /// The instruction is not one of elements.
    #[error(
        "the function `{function}` is for `{instruction}`, which does not make one tensor from floats and \
         tensors of its shape"
    )]
    Form {
        /// The instruction's path.
        instruction: &'static str,
        /// The function.
        function: &'static str,
    },
    /// An instruction has two functions.
    #[error("`{instruction}` has two functions of scalars, `{first}` and `{second}`")]
    Twice {
        /// The instruction's path.
        instruction: &'static str,
        /// One function.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
}

impl Pointwise {
    /// The function of an instruction.
    pub fn of(instruction: &str) -> Option<&'static Self> {
        inventory::iter::<Self>.into_iter().find(|known| known.instruction == instruction)
    }

    /// Checks every linked function against its instruction's signature.
    ///
    /// # Errors
    /// The first that does not fit.
    pub fn check_linked() -> Result<(), PointwiseError> {
        let registry = Registry::linked().ok();
        let signature = |path: &str| registry.as_ref()?.get(path).ok()?.signature().ok();
        Self::check_all(inventory::iter::<Self>, signature)
    }

    fn check_all<'p>(
        all: impl IntoIterator<Item = &'p Self>,
        signature: impl Fn(&str) -> Option<Signature>,
    ) -> Result<(), PointwiseError> {
        let mut seen: Vec<&Self> = Vec::new();
        for pointwise in all {
            let &Self { instruction, function, .. } = pointwise;
            if let Some(first) = seen.iter().find(|known| known.instruction == instruction) {
                return Err(PointwiseError::Twice { instruction, first: first.function, second: function });
            }
            seen.push(pointwise);
            let signature = signature(instruction).ok_or(PointwiseError::Instruction { instruction, function })?;
            if !is_element_wise(&signature) {
                return Err(PointwiseError::Form { instruction, function });
            }
        }
        Ok(())
    }
}

/// Whether an instruction computes one tensor from tensors of the same shape and floats.
fn is_element_wise(signature: &Signature) -> bool {
    let [result] = &signature.results[..] else { return false };
    let fits = |param: &ParamSig| match &param.kind {
        ParamKind::Tensor { class: TensorClass::Tensor, shape, .. } => *shape == result.shape,
        ParamKind::Float => true,
        _ => false,
    };
    signature.params.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::prelude::*;

    /// The larger of an element and a bound.
    #[instruction(
        op = "at_least",
        shape = "x: [N] -> y: [N]",
        tile = "T = 16",
        task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]"
    )]
    fn at_least(x: &Tensor, bound: f32) -> Tensor {
        x.data().iter().map(|x| x.max(bound)).collect()
    }

    /// Elements with weights, which a function of scalars does not get.
    #[instruction(
        op = "weighted",
        shape = "x: [N], w: [N] -> y: [N]",
        tile = "T = 16",
        task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], w[n..n+T]"
    )]
    fn weighted(x: &Tensor, w: &Weight) -> Tensor {
        x.data().iter().zip(&*w.row(0).to_f32()).map(|(x, w)| x * w).collect()
    }

    const RIGHT: Pointwise = Pointwise { instruction: "amk_cuda::at_least", function: "at_least_of", code: "" };

    fn linked(all: &[Pointwise]) -> Result<(), PointwiseError> {
        let registry = Registry::linked().expect("the registry");
        Pointwise::check_all(all, |path| registry.get(path).ok()?.signature().ok())
    }

    #[test]
    fn a_function_is_for_one_linked_element_wise_instruction() {
        assert_eq!(linked(&[RIGHT]), Ok(()));
        let (instruction, function) = ("amkcuda::atleast", RIGHT.function);
        let misspelt = linked(&[Pointwise { instruction, ..RIGHT }]).expect_err("no such instruction");
        assert_eq!(misspelt, PointwiseError::Instruction { instruction, function });
        let text = "the function `at_least_of` is for `amkcuda::atleast`, which is not linked";
        assert_eq!(misspelt.to_string(), text);
        let instruction = "amk_cuda::weighted";
        let other = linked(&[Pointwise { instruction, ..RIGHT }]);
        assert_eq!(other, Err(PointwiseError::Form { instruction, function }));
        let (instruction, second) = (RIGHT.instruction, "another");
        let twice = linked(&[RIGHT, Pointwise { function: second, ..RIGHT }]);
        assert_eq!(twice, Err(PointwiseError::Twice { instruction, first: function, second }));
    }
}
