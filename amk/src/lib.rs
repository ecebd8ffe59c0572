//! An embedded Rust DSL for GPU megakernels.
//!
//! A model is an ordinary Rust function over [`Tensor`]s, [`Weight`]s and [`State`]s. `#[megakernel]` turns it into a graph;
//! [`Megakernel`] lowers the graph to a program of tasks for given dims, the verifier of `amk-ir` decides that the program
//! computes what the function computes, and a [`vm`] executes it.
//!
//! ```text
//! fn decode(..) ──#[megakernel]──► Megakernel ──lower──► Program ──verify──► Verified ──► vm::cpu::Vm
//!    └── called directly: the eager function, which the VM agrees with bit for bit
//! ```

mod companions;
pub mod formula;
pub mod layout;
pub mod measure;
mod megakernel;
pub mod prelude;
pub mod registry;
pub mod tensor;
pub mod vm;

pub use amk_ir as ir;
pub use amk_macros::{WeightLayout, instruction, megakernel};
#[doc(hidden)]
pub use companions::{Pos, Tensor, Token};
pub use layout::WeightLayout;
pub use megakernel::{Megakernel, MegakernelError};
pub use tensor::{Pos, State, Tensor, Token, Weight};

/// What expansions of the macros name.
#[doc(hidden)]
pub mod __private {
    pub use amk_macros::{define, stage2};
    pub use inventory;
}
