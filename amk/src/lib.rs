//! An embedded Rust DSL for GPU megakernels.
//!
//! A model is an ordinary Rust function over [`Tensor`]s, [`Weight`]s and [`State`]s.
//! `#[megakernel]` turns it into a graph; [`Megakernel`] lowers the graph to a program of tasks for
//! given dims, the verifier of `amk-ir` checks that the program computes the same as the function,
//! and a [`vm`] executes it.
//!
//! ```text
//! fn decode(..) ──#[megakernel]──► Megakernel ──lower──► Program ──verify──► Verified ──► vm::cpu::Vm
//!    └── called directly: the eager function, which the VM agrees with bit for bit
//! ```
//!
//! This crate alone is enough to write a megakernel and run it on the CPU VM:
//!
//! ```
//! use amk::prelude::*;
//! use amk::vm::{Bindings, cpu::Vm};
//!
//! #[instruction(op = "softcap", shape = "x: [N] -> y: [N]", tile = "T = 4", task = "n in 0..N step T: y[n..n+T] <- x[n..n+T]")]
//! pub fn softcap(x: &Tensor, cap: f32) -> Tensor {
//!     x.data().iter().map(|x| cap * (x / cap).tanh()).collect()
//! }
//!
//! #[instruction(op = "scale", shape = "x: [N], w: [N] -> y: [N]", tile = "T = 4", task = "n in 0..N step T: y[n..n+T] <- x[n..n+T], w[n..n+T]")]
//! pub fn scale(x: &Tensor, w: &Weight) -> Tensor {
//!     x.data().iter().zip(w.to_f32()).map(|(x, w)| x * w).collect()
//! }
//!
//! #[derive(WeightLayout)]
//! pub struct Head {
//!     #[weight("head.scale", [HIDDEN])]
//!     pub scale: Weight,
//!     #[param]
//!     pub cap: f32,
//! }
//!
//! #[megakernel(dims(HIDDEN), inputs(x: [HIDDEN]), instances(tiny(HIDDEN = 16)))]
//! pub fn head(x: &Tensor, w: &Head) -> Tensor {
//!     softcap(&scale(x, &w.scale), w.cap)
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let w = Head { scale: Weight::f32(&[16], vec![0.5; 16])?, cap: 2.0 };
//!     let x: Tensor = (0..16).map(|i| i as f32).collect();
//!
//!     let mut vm = Vm::of(&HEAD, HEAD.instance("tiny")?, &Bindings::new().layout("w", &w))?;
//!     vm.set_input("x", &x)?;
//!     let y = vm.step(Token(0), Pos(0))?; // ignored: this function takes neither
//!
//!     assert_eq!(y.data(), head(&x, &w).data()); // bit for bit
//!     Ok(())
//! }
//! ```

mod companions;
pub mod encoding;
pub mod formula;
pub mod layout;
pub mod measure;
mod megakernel;
pub mod prelude;
pub mod registry;
pub mod rows;
pub mod session;
pub mod tensor;
pub mod vm;

pub use amk_ir as ir;
pub use amk_macros::{WeightLayout, instruction, megakernel};
#[doc(hidden)]
pub use companions::{Pos, Tensor, Token};
pub use encoding::Encoding;
pub use layout::WeightLayout;
pub use megakernel::{Called, Megakernel, MegakernelError};
pub use tensor::{Pos, State, Tensor, Token, Weight};

/// Items that expansions of the macros name.
#[doc(hidden)]
pub mod __private {
    pub use amk_macros::{define, stage2};
    pub use inventory;
    use std::any::TypeId;

    /// The type of a function, which is unique to it.
    pub fn type_of<F: 'static>(_: &F) -> TypeId {
        TypeId::of::<F>()
    }
}
