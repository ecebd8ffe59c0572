//! fp8 folders as DeepSeek's: `weight` in e4m3 and a scale for each block of rows and columns, or
//! for the whole matrix.

use amk_kernels::encoding::GroupCodes;

use super::super::{FormatError, StoredTensor, TensorSet};
use super::codes::{Codes, Packing};
use super::parts::{Type, matrix, modules, refusal, take};
use super::scales::Scales;
use super::{Checked, compressed, insert};
use crate::config::{Fp8, Strategy};

/// Names of the scales: DeepSeek's, and the one of vLLM.
const SCALES: [&str; 2] = ["weight_scale_inv", "weight_scale"];
/// Scales of inputs, which are not quantised here.
const INPUT_SCALES: [&str; 2] = ["input_scale", "activation_scale"];

pub(super) fn join(set: &mut TensorSet, config: &Fp8) -> Result<(), FormatError> {
    let strategy = config.block.map_or(Strategy::Tensor, Strategy::Block);
    for module in modules(set, "weight") {
        let is_fp8 = |tensor: &StoredTensor| Type::of(tensor) == Some(Type::E4m3);
        let name = format!("{module}.weight");
        if !set.get(&name).is_some_and(is_fp8) {
            continue;
        }
        let Some(weight) = set.take(&name) else { continue };
        let found = SCALES.into_iter().find_map(|part| take(set, &module, part));
        let Some(scales) = found else {
            let reason = format!("there is no `{module}.{}` beside it", SCALES[0]);
            return Err(refusal(&weight, reason));
        };
        INPUT_SCALES.into_iter().for_each(|part| drop(take(set, &module, part)));
        let parts = parts(&weight, &scales, strategy)?;
        insert(set, &module, &weight, parts)?;
    }
    Ok(())
}

/// The parts of a matrix in e4m3.
pub(super) fn parts(weight: &StoredTensor, scales: &StoredTensor, strategy: Strategy) -> Result<Checked, FormatError> {
    let shape @ [_, columns] = matrix(weight)?;
    let (scales, group): (Scales, _) = compressed::scales(scales, shape, strategy)?;
    Ok(Checked {
        codes: Codes::new(weight.rows.place().clone(), Packing::Bytes { plus: 0 }, [columns, 1]),
        scales,
        zeros: None,
        shape,
        group,
        order: None,
        kind: GroupCodes::Fp8,
    })
}
