//! What a file with a model or an instruction imports: `use amk::prelude::*;`

pub use crate::layout::WeightLayout;
pub use crate::megakernel::Megakernel;
pub use crate::tensor::{Pos, State, Tensor, Token, Weight};
