//! GPTQ (GPTQModel, AutoGPTQ) and AWQ (AutoAWQ): int32 words over inputs and outputs.
//!
//! | part | GPTQ | AWQ |
//! |---|---|---|
//! | `qweight` | I32 `[K / per, N]`: `per` inputs per word | I32 `[K, N / 8]`: eight outputs per word |
//! | `qzeros` | I32 `[G, N / per]` | I32 `[G, N / 8]` |
//! | `scales` | float `[G, N]` | the same |
//! | `g_idx` | I32 `[K]`: the group of each input; may be absent | - |
//!
//! for `N` outputs and `K` inputs in `G` groups, `per = 32 / bits`. GPTQ's original format stores
//! zero points minus 1, subtracted from whole words. AWQ's outputs are in the order 0, 2, 4, 6, 1,
//! 3, 5, 7. AutoGPTQ wrote a `bias` for each module, of zeros where the model has none.

use super::super::{FormatError, StoredTensor, TensorSet};
use super::codes::{Codes, IN_ORDER, Packing};
use super::parts::{Type, expect, float, matrix, modules, need, refusal, take};
use super::scales::Scales;
use super::{Checked, insert, integers, order};
use crate::config::Gptq;

/// The place in a word of each of eight outputs of AWQ.
const AWQ_PLACES: [u8; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

pub(super) fn join(set: &mut TensorSet, config: &Gptq) -> Result<(), FormatError> {
    set.spare_biases = !config.awq;
    for module in modules(set, "qweight") {
        let Some(qweight) = take(set, &module, "qweight") else { continue };
        let Some(config) = config.of(&module) else {
            return Err(refusal(&qweight, "a rule of the config says that this module is not quantised".to_owned()));
        };
        let parts = parts(set, &module, &qweight, config)?;
        insert(set, &module, &qweight, parts)?;
    }
    Ok(())
}

fn parts(set: &mut TensorSet, module: &str, qweight: &StoredTensor, config: &Gptq) -> Result<Checked, FormatError> {
    let bits = config.bits;
    let per = (u32::BITS / bits) as usize;
    let [high, width] = matrix(qweight)?;
    expect(qweight, Type::I32, &[high, width])?;
    let [rows, columns] = if config.awq { [width * per, high] } else { [width, high * per] };
    if !rows.is_multiple_of(per) {
        return Err(refusal(qweight, format!("{rows} outputs are not a multiple of {per}")));
    }
    let group = config.group.unwrap_or(columns);
    let groups = columns.div_ceil(group);
    let scales = need(set, module, "scales", qweight)?;
    let dtype = float(&scales)?;
    expect(&scales, Type::Float, &[groups, rows])?;
    let qzeros = need(set, module, "qzeros", qweight)?;
    expect(&qzeros, Type::I32, &[groups, rows / per])?;
    let order = match take(set, module, "g_idx") {
        Some(g_idx) => order::read(&g_idx, columns, group)?,
        None if config.ordered => {
            return Err(refusal(qweight, format!("there is no `{module}.g_idx` beside it, but `desc_act` is true")));
        }
        None => None,
    };
    let packing = match config.awq {
        true => Packing::AlongColumns { bits, places: AWQ_PLACES, plus: 0 },
        false => Packing::AlongRows { bits },
    };
    Ok(Checked {
        codes: Codes::new(qweight.rows.place().clone(), packing, [1, width]),
        scales: Scales::new(scales.rows.place().clone(), dtype, [1, group], [1, rows]),
        zeros: zeros(&qzeros, rows / per, config),
        shape: [rows, columns],
        group,
        order,
        kind: integers(bits),
    })
}

/// The zero points, `width` words per group; `None` if all are the implicit ones of symmetric
/// codes.
fn zeros(qzeros: &StoredTensor, width: usize, config: &Gptq) -> Option<Codes> {
    let bits = config.bits;
    let plus = if config.zeros_less_one { ones(bits) } else { 0 };
    let half = ones(bits) << (bits - 1);
    let words = || qzeros.rows.place().bytes().as_chunks().0.iter();
    if config.symmetric && words().all(|word| u32::from_le_bytes(*word).wrapping_add(plus) == half) {
        return None;
    }
    let places = if config.awq { AWQ_PLACES } else { IN_ORDER };
    let packing = Packing::AlongColumns { bits, places, plus };
    Some(Codes::new(qzeros.rows.place().clone(), packing, [1, width]))
}

/// A word with a 1 in each place.
fn ones(bits: u32) -> u32 {
    u32::MAX / ((1 << bits) - 1)
}
