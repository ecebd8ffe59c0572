//! Projections, and the rows of weights that they take from a tape.

use super::Encoder;
use crate::image::abi::{
    GEMV_BIAS, GEMV_DEPTH_BIT, GEMV_FLAGS_BIT, GEMV_INPUT_BIT, GEMV_OUTPUT_BIT, IN_EMBEDDING, IN_PACKETS, OP_GEMV,
    OUT_GATED, OUT_LOGITS, OUT_RESIDUAL, OUT_STORE, Record,
};
use crate::plan::{Gemv, Input, Output, Phase, Plan, UNIT, Work};
use crate::source::{cut, input_shape};
use crate::tape::{Layout, Piece, WeightRows};
use std::ops::Range;

pub(super) fn encode(encoder: &Encoder<'_>, gemv: &Gemv, rows: &Range<u32>) -> Record {
    let units = units(gemv, rows);
    let (kind, to) = match &gemv.output {
        Output::Store(outputs) => (OUT_STORE, outputs.first().copied()),
        Output::Residual { packets, .. } => (OUT_RESIDUAL, Some(*packets)),
        Output::Gated(to) => (OUT_GATED, Some(*to)),
        Output::Logits(_) => (OUT_LOGITS, None),
    };
    let (input, from) = match gemv.input {
        Input::Packets(buffer) => (encoder.packet(buffer), IN_PACKETS),
        Input::Embedding => (0, IN_EMBEDDING),
    };
    let has_bias = gemv.biases.iter().all(Option::is_some);
    let flags = if has_bias { GEMV_BIAS } else { 0 };
    let shape = input_shape(gemv) | from << GEMV_INPUT_BIT | kind << GEMV_OUTPUT_BIT;
    Record {
        op: OP_GEMV as u16,
        units: units as u16,
        input,
        output: to.map_or(0, |to| encoder.packet(to) + rows.start / 2),
        row: rows.start,
        norm: encoder.constant(gemv.norm),
        bias: if has_bias { encoder.constant(gemv.biases[0]) + rows.start } else { 0 },
        tape: units * UNIT * gemv.k * 2,
        shape: shape | cut(gemv.k).0 << GEMV_DEPTH_BIT | flags << GEMV_FLAGS_BIT,
        ..Record::default()
    }
}

/// Units behind the elements `rows` of a projection's output.
fn units(gemv: &Gemv, rows: &Range<u32>) -> u32 {
    let fold = if matches!(gemv.output, Output::Gated(_)) { 2 } else { 1 };
    (rows.end - rows.start) * fold / UNIT
}

/// A projection's piece of its worker's tape; `None` for any other task.
pub(crate) fn piece(plan: &Plan, phase: usize, work: &Work) -> Option<Piece> {
    let (Phase::Gemv(gemv), Work::Rows(rows)) = (plan.phases.get(phase)?, work) else { return None };
    let in_turn = matches!(gemv.output, Output::Gated(_));
    let mut before = 0;
    let mut parts = Vec::new();
    for &weight in &gemv.weights {
        if in_turn {
            parts.push(WeightRows { weight, rows: rows.clone() });
            continue;
        }
        let extent = plan.extent(weight);
        let part = rows.start.max(before)..rows.end.min(before + extent);
        if !part.is_empty() {
            parts.push(WeightRows { weight, rows: part.start - before..part.end - before });
        }
        before += extent;
    }
    Some(Piece { k: gemv.k, in_turn, layout: Layout::Projection, parts })
}
