//! The virtual machines, which execute verified programs.

mod bindings;
pub mod cpu;

pub use bindings::{Bindings, OtherConstant};
