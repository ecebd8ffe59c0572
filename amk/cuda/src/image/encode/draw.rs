//! The choice of a token.

use super::{Encoder, of_rows};
use crate::choose::{Choosing, ROUNDS};
use crate::image::abi::{OP_BEST, OP_CHOOSE, OP_PROBE, Record};
use std::ops::Range;

pub(super) fn best(encoder: &Encoder<'_>, rows: &Range<u32>) -> Record {
    let Choosing { best, shares, .. } = encoder.plan.choosing;
    Record { output: encoder.packet(best), partial: encoder.packet(shares), ..of_rows(OP_BEST, rows) }
}

pub(super) fn probe(encoder: &Encoder<'_>, round: usize, rows: &Range<u32>) -> Record {
    let Choosing { best, shares, found, .. } = &encoder.plan.choosing;
    let (input, partial) = match round.checked_sub(1) {
        None => (encoder.packet(*best), encoder.packet(*shares)),
        Some(before) => (encoder.packet(found[before]), 0),
    };
    let (output, layer) = (encoder.packet(found[round]), round as u32);
    Record { input, output, partial, layer, ..of_rows(OP_PROBE, rows) }
}

pub(super) fn choose(encoder: &Encoder<'_>) -> Record {
    let Choosing { best, found, .. } = &encoder.plan.choosing;
    Record {
        op: OP_CHOOSE as u16,
        input: encoder.packet(*best),
        partial: encoder.packet(found[ROUNDS - 1]),
        ..Record::default()
    }
}
