//! Two instructions of one's own that are fast on a GPU: a projection whose weight streams through
//! the ring in a tile layout of this crate, and an element-wise operation that joins the tasks of
//! its producer.
//!
//! | file | has |
//! |---|---|
//! | `capped_linear.rs` | the projection: Rust reference, formula, registration of its stream |
//! | `capped_linear.cuh` | its device bodies: with plain loads, and with the ring |
//! | `layout.rs` | the tile layout: where on a tape each element of the weight lies |
//! | `squared_relu.rs`, `squared_relu.cuh` | the operation |
//! | `model.rs` | a decoder that uses both |
//! | `chain.rs` | chains of projections, to compare with `amk_kernels::linear` |

mod capped_linear;
mod chain;
mod layout;
mod model;
mod squared_relu;

pub use capped_linear::capped_linear;
pub use chain::{CAPPED_CHAIN, Chain, LINEAR_CHAIN, Projections, Seen, capped_chain, linear_chain};
pub use model::{Cache, Caches, DECODE, Decoder, Layer, decode};
pub use squared_relu::squared_relu;
