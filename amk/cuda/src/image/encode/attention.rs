//! A split of an attention, and the combination of splits.

use super::Encoder;
use crate::image::abi::{OP_ATTEND, OP_COMBINE, Record};
use std::ops::Range;

pub(super) fn attend(encoder: &Encoder<'_>, layer: usize, head: u32, split: u32) -> Record {
    let buffers = &encoder.plan.layers[layer];
    Record {
        op: OP_ATTEND as u16,
        units: 1,
        input: encoder.packet(buffers.qkv[0]),
        output: encoder.packet(buffers.attended),
        row: head,
        norm: encoder.constant(buffers.head_norms.map(|norms| norms[0])),
        bias: encoder.constant(buffers.head_norms.map(|norms| norms[1])),
        layer: layer as u32,
        aux: split,
        partial: encoder.packet(buffers.partial),
        ..Record::default()
    }
}

pub(super) fn combine(encoder: &Encoder<'_>, layer: usize, slices: &Range<u32>) -> Record {
    let buffers = &encoder.plan.layers[layer];
    Record {
        op: OP_COMBINE as u16,
        units: (slices.end - slices.start) as u16,
        output: encoder.packet(buffers.attended),
        row: slices.start,
        layer: layer as u32,
        partial: encoder.packet(buffers.partial),
        ..Record::default()
    }
}
