//! All tests of this crate in one binary, so that everything is linked once. A file is a module,
//! and its name is the filter: `cargo test -p amk-tests soundness::`.

mod architecture;
mod bounded;
mod cases;
mod certificates;
mod cuda;
mod device_programs;
mod device_rows;
mod encodings;
mod exchange;
mod families;
mod filetests;
mod formulas;
mod generic;
mod gpu;
mod graphs;
mod image;
mod json;
mod linked;
mod measure;
mod models;
mod mutations;
mod names;
mod native;
mod oracle;
mod pointwise;
mod quantized;
mod ratchet;
mod robustness;
mod routed;
mod rows;
mod schedules;
mod search;
mod snapshots;
mod soundness;
mod turns;
