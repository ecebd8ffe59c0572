//! A function beside a glob import hides the instruction that has its name, but not the companion
//! that the macro reads.

use amk::MegakernelError;
use amk::prelude::*;

mod ops {
    use amk::prelude::*;

    /// `y = 2 x`.
    #[instruction(op = "twice", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
    pub(crate) fn hidden_twice(x: &Tensor) -> Tensor {
        x.data().iter().map(|x| 2.0 * x).collect()
    }

    /// `y = -x`.
    #[instruction(op = "negate", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]")]
    pub(crate) fn hidden_negate(x: &Tensor) -> Tensor {
        x.data().iter().map(|x| -x).collect()
    }
}

mod beside {
    use super::ops::*;
    use amk::prelude::*;

    /// Not the instruction.
    fn hidden_twice(x: &Tensor) -> Tensor {
        x.data().iter().map(|x| 3.0 * x).collect()
    }

    #[megakernel(dims(H), inputs(x: [H]), instances(small(H = 4)))]
    pub(crate) fn of_another(x: &Tensor) -> Tensor {
        hidden_negate(&hidden_twice(x))
    }

    #[megakernel(dims(H), inputs(x: [H]), instances(small(H = 4)))]
    pub(crate) fn of_its_own(x: &Tensor) -> Tensor {
        hidden_negate(&super::ops::hidden_twice(x))
    }
}

#[test]
fn a_function_that_hides_an_instruction_is_reported() {
    let x: Tensor = (0..4).map(|x| x as f32).collect();
    assert_eq!(beside::of_another(&x).data(), [0.0, -3.0, -6.0, -9.0]);
    let hidden = MegakernelError::Hidden { kernel: "of_another".into(), instruction: "all::hidden_twice".into() };
    assert_eq!(beside::OF_ANOTHER.graph(), Err(hidden.clone()));
    assert_eq!(beside::OF_ANOTHER.instance("small"), Err(hidden));
}

#[test]
fn a_path_names_the_instruction() {
    let x: Tensor = (0..4).map(|x| x as f32).collect();
    assert_eq!(beside::of_its_own(&x).data(), [0.0, -2.0, -4.0, -6.0]);
    assert!(beside::OF_ITS_OWN.graph().is_ok());
}
