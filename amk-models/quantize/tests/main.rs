//! Quantising small random checkpoints.

mod calibration;
mod files;
mod methods;
mod refusals;
mod support;
#[path = "../src/testing.rs"]
mod testing;
