//! compressed-tensors: packed integers, bytes and fp8; MXFP4 is a form of its own.
//!
//! | part | packed | bytes, fp8 |
//! |---|---|---|
//! | codes | `weight_packed`, I32 `[N, K / per]`: `per` inputs per word | `weight`, I8 or F8_E4M3 `[N, K]` |
//! | `weight_shape` | I64 `[2]`: `N, K` | - |
//! | `weight_scale` | float, a single one, `[N, 1]`, `[N, G]` or per block | the same |
//! | `weight_zero_point` | I32 `[N / per, G]`: `per` outputs per word; I8 if there is a single one | I8 as the scales |
//! | `weight_g_idx` | I32 `[K]`: the group of each input | - |
//!
//! Packed integers are stored as offset binary: half of their range is added.

use amk_kernels::encoding::GroupCodes;

use super::super::{FormatError, StoredTensor, TensorSet};
use super::codes::{Codes, IN_ORDER, Packing};
use super::parts::{Type, expect, float, matrix, modules, need, refusal, take};
use super::scales::Scales;
use super::{Checked, fp8, insert, integers, mxfp4, order};
use crate::config::{CompressedTensors, Strategy, WeightScheme};

const PACKED: &str = "weight_packed";
const SCALE: &str = "weight_scale";
const ZERO: &str = "weight_zero_point";

/// Parts for inputs and outputs, which are not quantised here.
const OF_ACTIVATIONS: [&str; 4] = ["input_scale", "input_zero_point", "output_scale", "output_zero_point"];

pub(super) fn join(set: &mut TensorSet, config: &CompressedTensors) -> Result<(), FormatError> {
    for module in modules(set, SCALE) {
        let Some(scale) = take(set, &module, SCALE) else { continue };
        let Some(scheme) = config.scheme(&module) else {
            return Err(refusal(&scale, "no group of the config has this module as a target".to_owned()));
        };
        if scheme.activations {
            OF_ACTIVATIONS.into_iter().for_each(|part| drop(take(set, &module, part)));
        }
        let Some(weights) = &scheme.weights else {
            return Err(refusal(&scale, "the config does not quantise the weights of this module".to_owned()));
        };
        if weights.float && weights.bits == 4 {
            let packed = need(set, &module, PACKED, &scale)?;
            mxfp4::insert(set, &module, &packed, &scale)?;
            continue;
        }
        let (codes, parts) = match take(set, &module, PACKED) {
            Some(packed) => {
                let parts = packed_parts(set, &module, &packed, &scale, weights)?;
                (packed, parts)
            }
            None => {
                let weight = need(set, &module, "weight", &scale)?;
                let parts = byte_parts(set, &module, &weight, &scale, weights)?;
                (weight, parts)
            }
        };
        insert(set, &module, &codes, parts)?;
    }
    Ok(())
}

fn packed_parts(
    set: &mut TensorSet,
    module: &str,
    packed: &StoredTensor,
    scale: &StoredTensor,
    scheme: &WeightScheme,
) -> Result<Checked, FormatError> {
    if scheme.float {
        return Err(refusal(packed, "the config says that it is fp8, which is not packed".to_owned()));
    }
    let bits = scheme.bits;
    let per = (u32::BITS / bits) as usize;
    let shape @ [rows, columns] = stored_shape(&need(set, module, "weight_shape", packed)?)?;
    let words = columns.div_ceil(per);
    expect(packed, Type::I32, &[rows, words])?;
    let (scales, group) = scales(scale, shape, scheme.strategy)?;
    let order = match take(set, module, "weight_g_idx") {
        Some(g_idx) => order::read(&g_idx, columns, group)?,
        None => None,
    };
    let zeros = match zero_tensor(set, module, scale, scheme)? {
        Some(zero) if Type::of(&zero) == Some(Type::I32) => {
            let groups = columns.div_ceil(group);
            expect(&zero, Type::I32, &[rows.div_ceil(per), groups])?;
            let packing = Packing::AlongColumns { bits, places: IN_ORDER, plus: 0 };
            Some(Codes::new(zero.rows.place().clone(), packing, [groups, 1]))
        }
        Some(zero) => Some(zero_bytes(&zero, scale, shape, scheme)?),
        None => None,
    };
    Ok(Checked {
        codes: Codes::new(packed.rows.place().clone(), Packing::AlongRows { bits }, [words, 1]),
        scales,
        zeros,
        shape,
        group,
        order,
        kind: integers(bits),
    })
}

fn byte_parts(
    set: &mut TensorSet,
    module: &str,
    weight: &StoredTensor,
    scale: &StoredTensor,
    scheme: &WeightScheme,
) -> Result<Checked, FormatError> {
    let shape @ [rows, columns] = matrix(weight)?;
    expect(weight, if scheme.float { Type::E4m3 } else { Type::I8 }, &[rows, columns])?;
    let zero = zero_tensor(set, module, scale, scheme)?;
    if scheme.float {
        return match zero {
            Some(zero) => Err(refusal(&zero, "fp8 with zeros is not read".to_owned())),
            None => fp8::parts(weight, scale, scheme.strategy),
        };
    }
    // Integers with fewer bits are also stored as bytes.
    let bytes = WeightScheme { bits: 8, ..*scheme };
    let zeros = zero.map(|zero| zero_bytes(&zero, scale, shape, &bytes)).transpose()?;
    let (scales, group) = scales(scale, shape, scheme.strategy)?;
    Ok(Checked {
        codes: Codes::new(weight.rows.place().clone(), Packing::Bytes { plus: 128 }, [columns, 1]),
        scales,
        zeros,
        shape,
        group,
        order: None,
        kind: GroupCodes::Int8,
    })
}

/// The zero points of a module, unless its codes are symmetric: then there are none, or all are 0.
fn zero_tensor(
    set: &mut TensorSet,
    module: &str,
    scale: &StoredTensor,
    scheme: &WeightScheme,
) -> Result<Option<StoredTensor>, FormatError> {
    match take(set, module, ZERO) {
        Some(zero) if !scheme.symmetric => Ok(Some(zero)),
        Some(zero) if zero.rows.place().bytes().iter().all(|&byte| byte == 0) => Ok(None),
        Some(zero) => Err(refusal(&zero, "there are zeros, but the config says that codes are symmetric".to_owned())),
        None if scheme.symmetric => Ok(None),
        None => Err(refusal(scale, format!("there is no `{module}.{ZERO}` beside it"))),
    }
}

/// Zeros that are signed bytes, in the shape of the scales.
fn zero_bytes(
    zero: &StoredTensor,
    scale: &StoredTensor,
    [_, columns]: [usize; 2],
    scheme: &WeightScheme,
) -> Result<Codes, FormatError> {
    expect(zero, Type::I8, &scale.shape)?;
    let strides = match scheme.strategy {
        Strategy::Tensor => [0, 0],
        Strategy::Channel => [1, 0],
        Strategy::Group(group) => [columns.div_ceil(group), 1],
        Strategy::Block(_) => return Err(refusal(zero, "zeros of blocks are not read".to_owned())),
    };
    Ok(Codes::new(zero.rows.place().clone(), Packing::Bytes { plus: 1 << (scheme.bits - 1) }, strides))
}

/// The scales of a matrix and the columns that share one.
pub(super) fn scales(
    tensor: &StoredTensor,
    [rows, columns]: [usize; 2],
    strategy: Strategy,
) -> Result<(Scales, usize), FormatError> {
    let (shape, share, strides) = match strategy {
        // `[]`, `[1]` or `[1, 1]`.
        Strategy::Tensor if tensor.elements() == 1 => (tensor.shape.clone(), [rows, columns], [0, 0]),
        Strategy::Tensor => (vec![1], [rows, columns], [0, 0]),
        Strategy::Channel => (vec![rows, 1], [1, columns], [1, 0]),
        Strategy::Group(group) => {
            let groups = columns.div_ceil(group);
            (vec![rows, groups], [1, group], [groups, 1])
        }
        Strategy::Block([high, wide]) => {
            let across = columns.div_ceil(wide);
            (vec![rows.div_ceil(high), across], [high, wide], [across, 1])
        }
    };
    let extent = tensor.rows.place().clone();
    if Type::of(tensor) == Some(Type::E8m0) {
        expect(tensor, Type::E8m0, &shape)?;
        return Ok((Scales::of_exponents(extent, share, strides), share[1]));
    }
    let dtype = float(tensor)?;
    expect(tensor, Type::Float, &shape)?;
    Ok((Scales::new(extent, dtype, share, strides), share[1]))
}

/// The shape given by a `weight_shape`.
fn stored_shape(tensor: &StoredTensor) -> Result<[usize; 2], FormatError> {
    let wide = Type::of(tensor) == Some(Type::I64);
    expect(tensor, if wide { Type::I64 } else { Type::I32 }, &[2])?;
    let bytes = tensor.rows.place().bytes();
    let numbers: Vec<i64> = match wide {
        true => bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
        false => bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect(),
    };
    match numbers[..] {
        // Far above any matrix, and their product fits.
        [rows @ 1..=0x7fff_ffff, columns @ 1..=0x7fff_ffff] => Ok([rows as usize, columns as usize]),
        _ => Err(refusal(tensor, format!("{numbers:?} is the shape of no matrix"))),
    }
}
