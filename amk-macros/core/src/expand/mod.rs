//! From parsed items to tokens. The files mirror those in `parse`.

mod asked;
pub(crate) mod instruction;
pub(crate) mod kernel;
pub(crate) mod layout;
mod strip;
