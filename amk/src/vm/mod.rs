//! The virtual machines: what executes a verified program.

mod bindings;
pub mod cpu;

pub use bindings::{Bindings, OtherConstant};
