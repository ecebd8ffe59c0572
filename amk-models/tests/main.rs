//! The tests of this crate from outside, in one binary: a file is a module of it.

mod import;
