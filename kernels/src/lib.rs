//! The amk instruction set: the ops of a decoder, each with a reference in Rust and a CUDA body.
//!
//! | op | instructions |
//! |---|---|
//! | embedding | [`embed`] |
//! | projections | [`linear`], [`add_bias`] |
//! | norms | [`rms_norm`], [`head_norm`], [`layer_norm`], [`centred_norm`] |
//! | attention | [`rope`], [`kv_append`], [`attention`], [`window_attention`], [`capped_attention`] |
//! | convolution | [`append`], [`short_conv`] |
//! | MLP | [`silu_mul`], [`gelu_mul`], [`gelu`], [`gelu_erf`], [`relu_squared`] |
//! | gates | [`mul`] |
//! | multipliers, bounds | [`scale`], [`soft_cap`] |
//! | residual | [`add`] |
//! | choice | [`argmax`] |
//! | attention in splits of the cache | [`attention_split`], [`normed_attention_split`], [`capped_attention_split`], [`unturned_attention_split`], [`attention_part`], [`capped_attention_part`], [`combine_splits`] |
//! | values exchanged between workers | [`adopt`], [`best`], [`first_probe`], [`probe`], [`choose`] and what workers without rows do |
//!
//! An instruction is an ordinary function over whole tensors. A task of a program calls it on the
//! task's tiles, so an element has the same value in any tile, with f32 accumulation. Functions
//! panic on mismatched shapes, which `#[megakernel]` rules out.

#![allow(clippy::single_range_in_vec_init, reason = "a region is a list of ranges, one a dimension")]

mod abi;
mod add;
mod argmax;
mod attention;
mod choose;
mod cuda;
mod dot;
mod embed;
pub mod encoding;
pub mod fused;
mod gate;
mod kv_append;
mod layer_norm;
mod linear;
mod residual;
mod rms_norm;
mod rope;
mod scale;
mod short_conv;
mod soft_cap;
#[cfg(test)]
mod testing;

pub use add::{add, add_bias};
pub use argmax::argmax;
pub use attention::{
    attention, attention_part, attention_split, capped_attention, capped_attention_part, capped_attention_split,
    combine_splits, normed_attention_split, unturned_attention_split, window_attention,
};
pub use choose::{best, choose, first_probe, no_best, no_first_probe, no_probe, probe};
pub use embed::embed;
pub use gate::{gelu, gelu_erf, gelu_mul, mul, relu_squared, silu_mul};
pub use kv_append::kv_append;
pub use layer_norm::{centred_norm, layer_norm};
pub use linear::{linear, linear_rows};
pub use residual::adopt;
pub use rms_norm::{head_norm, rms_norm, scale_by_squares, sum_squares, weigh};
pub use rope::rope;
pub use scale::scale;
pub use short_conv::{append, short_conv};
pub use soft_cap::soft_cap;

/// Links this crate and its instructions into a binary that does not otherwise name it.
pub fn link() {}
