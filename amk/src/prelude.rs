//! Imports for a file with a model or an instruction: `use amk::prelude::*;`

#[doc(hidden)]
pub use crate::companions::{Pos, Tensor, Token};
pub use crate::layout::WeightLayout;
pub use crate::megakernel::Megakernel;
pub use crate::tensor::{Pos, State, Tensor, Token, Weight};
pub use amk_macros::{WeightLayout, instruction, megakernel};
