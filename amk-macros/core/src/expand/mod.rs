//! From what was parsed to tokens. The files mirror those of `parse`.

mod asked;
pub(crate) mod instruction;
pub(crate) mod kernel;
pub(crate) mod layout;
mod strip;
