//! From tokens to parsed items. The files mirror those in `expand`.

pub(crate) mod attribute;
pub(crate) mod callee;
pub(crate) mod clause;
pub(crate) mod event;
pub(crate) mod fact;
pub(crate) mod function;
pub(crate) mod instance;
pub(crate) mod instruction;
pub(crate) mod kernel;
pub(crate) mod layout;
pub(crate) mod schedule;
