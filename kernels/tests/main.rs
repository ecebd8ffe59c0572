//! The tests of this crate from outside, in one binary: a file is a module of it.

mod decoder;
mod megakernels;
mod names;
mod recall;
mod references;
mod rows;
mod schedules;
