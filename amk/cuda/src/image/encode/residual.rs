//! The residual from the embedding or from packets.

use super::{Encoder, of_rows};
use crate::image::abi::{OP_ADOPT, OP_EMBED, Record};
use amk_ir::{BufferId, DType};
use std::ops::Range;

pub(super) fn embed(rows: &Range<u32>) -> Record {
    of_rows(OP_EMBED, rows)
}

pub(super) fn adopt(encoder: &Encoder<'_>, from: BufferId, rows: &Range<u32>) -> Record {
    let buffer = encoder.plan.program.buffers.get(from.index());
    let pairs = buffer.is_some_and(|buffer| buffer.dtype == DType::BF16);
    Record { input: encoder.packet(from), shape: u32::from(pairs), ..of_rows(OP_ADOPT, rows) }
}
