//! The tests of this crate from outside, in one binary: a file is a module of it.

mod cpu_vm;
mod hidden;
mod link;
mod raw_names;
mod routed;
