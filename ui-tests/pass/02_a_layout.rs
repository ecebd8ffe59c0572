//! 2. A layout names the tensors of a struct: where a checkpoint has them, and their shapes over
//!    named sizes, the *dims*.
//!
//! Dims are only names here. Who loads the model gives them values; who writes the model function
//! declares them.

use amk::prelude::*;

/// A block of a network: two projections, and what the configuration says.
#[derive(WeightLayout)]
pub struct Block {
    #[weight("blocks.{l}.up.weight", [FFN, HIDDEN])]
    pub up: Weight,
    #[weight("blocks.{l}.down.weight", [HIDDEN, FFN])]
    pub down: Weight,
    /// Some checkpoints have no bias; then it is nothing that the model function may use.
    #[flag]
    pub has_gate: bool,
}

/// A layout may hold others, and lists of others: `{l}` in a name is the index in the list around
/// it.
#[derive(WeightLayout)]
pub struct Network {
    #[list(LAYERS)]
    pub blocks: Vec<Block>,
    /// The output shares the embedding's tensor where a checkpoint has no head.
    #[weight("head.weight", or = "embed.weight", [VOCAB, HIDDEN])]
    pub head: Weight,
    #[param]
    pub eps: f32,
    #[dim(HIDDEN)]
    pub hidden: usize,
}

fn main() {
    // It is still a struct, and the derive has put its description beside it.
    assert!(Network::LAYOUT.contains("blocks.{l}.up.weight"));
    assert!(Block::LAYOUT.contains("FFN"));
}
