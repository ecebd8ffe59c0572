//! Chains of projections of the shapes of an 8B model, by this crate's projection and by
//! `amk_kernels::linear`.

use crate::capped_linear;
use amk::prelude::*;
use amk_kernels::{embed, kv_append, linear};

/// The projections of a layer.
#[derive(WeightLayout)]
pub struct Projections {
    /// `[HIDDEN, HIDDEN]`.
    #[weight("layers.{l}.square", [HIDDEN, HIDDEN])]
    pub square: Weight,
    /// `[FFN, HIDDEN]`.
    #[weight("layers.{l}.up", [FFN, HIDDEN])]
    pub up: Weight,
    /// `[HIDDEN, FFN]`.
    #[weight("layers.{l}.down", [HIDDEN, FFN])]
    pub down: Weight,
}

/// The weights.
#[derive(WeightLayout)]
pub struct Chain {
    /// Token embeddings, and the head.
    #[weight("embed", [VOCAB, HIDDEN])]
    pub embed: Weight,
    /// A few rows whose products are kept, so that there are positions.
    #[weight("mark", [MARKS, HIDDEN])]
    pub mark: Weight,
    /// The layers.
    #[list(LAYERS)]
    pub layers: Vec<Projections>,
    /// Cap of the capped ones.
    #[param]
    pub cap: f32,
}

/// A state with a position, so that a launch has many steps.
#[derive(WeightLayout)]
pub struct Seen {
    /// The products of the mark.
    #[state([1, CONTEXT, MARKS])]
    pub marks: State,
}

/// The logits `[VOCAB]` after a chain of [`capped_linear`].
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, FFN, MARKS, CONTEXT),
    instances(
        small(VOCAB = 256, HIDDEN = 128, LAYERS = 2, FFN = 288, MARKS = 8, CONTEXT = 64),
        of_8b(VOCAB = 2048, HIDDEN = 4096, LAYERS = 32, FFN = 14336, MARKS = 8, CONTEXT = 64),
    )
)]
pub fn capped_chain(token: Token, pos: Pos, w: &Chain, seen: &mut Seen) -> Tensor {
    let mut x = embed(&w.embed, token);
    for lw in &w.layers {
        let a = capped_linear(&x, &lw.square, w.cap);
        x = capped_linear(&capped_linear(&a, &lw.up, w.cap), &lw.down, w.cap);
    }
    kv_append(&mut seen.marks, &linear(&x, &w.mark), pos);
    linear(&x, &w.embed)
}

/// The same by `linear`: nothing is capped.
#[megakernel(
    dims(VOCAB, HIDDEN, LAYERS, FFN, MARKS, CONTEXT),
    instances(
        small(VOCAB = 256, HIDDEN = 128, LAYERS = 2, FFN = 288, MARKS = 8, CONTEXT = 64),
        of_8b(VOCAB = 2048, HIDDEN = 4096, LAYERS = 32, FFN = 14336, MARKS = 8, CONTEXT = 64),
    )
)]
pub fn linear_chain(token: Token, pos: Pos, w: &Chain, seen: &mut Seen) -> Tensor {
    let mut x = embed(&w.embed, token);
    for lw in &w.layers {
        let a = linear(&x, &lw.square);
        x = linear(&linear(&a, &lw.up), &lw.down);
    }
    kv_append(&mut seen.marks, &linear(&x, &w.mark), pos);
    linear(&x, &w.embed)
}
