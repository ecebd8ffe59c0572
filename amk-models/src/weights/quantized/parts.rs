//! The tensors that a quantised matrix consists of.

use amk::ir::DType;

use super::super::{FormatCause, FormatError, StoredTensor, StoredType, TensorSet};

/// The type that a part must have, by its name in safetensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    I8,
    U8,
    I32,
    I64,
    E4m3,
    /// Exponents of two.
    E8m0,
    /// f16, bf16 or f32.
    Float,
}

impl Type {
    /// The type of a tensor, if it is one of these.
    pub(super) fn of(tensor: &StoredTensor) -> Option<Self> {
        match tensor.stored_type {
            StoredType::Encoded(encoding) => encoding.float.map(|_| Self::Float),
            StoredType::Other("I8") => Some(Self::I8),
            StoredType::Other("U8") => Some(Self::U8),
            StoredType::Other("I32") => Some(Self::I32),
            StoredType::Other("I64") => Some(Self::I64),
            StoredType::Other("F8_E4M3") => Some(Self::E4m3),
            StoredType::Other("F8_E8M0") => Some(Self::E8m0),
            StoredType::Other(_) => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::I8 => "I8",
            Self::U8 => "U8",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::E4m3 => "F8_E4M3",
            Self::E8m0 => "F8_E8M0",
            Self::Float => "f16, bf16 or f32",
        }
    }
}

/// The modules with a part of this name, such as `model.layers.0.mlp.up_proj` with `qweight`.
pub(super) fn modules(set: &TensorSet, part: &str) -> Vec<String> {
    let module = |tensor: &StoredTensor| Some(tensor.name.strip_suffix(part)?.strip_suffix('.')?.to_owned());
    set.iter().filter_map(module).collect()
}

/// Takes a part of a module out of the set, if present.
pub(super) fn take(set: &mut TensorSet, module: &str, part: &str) -> Option<StoredTensor> {
    set.take(&format!("{module}.{part}"))
}

/// Takes a part of a module that must exist beside `other`.
pub(super) fn need(
    set: &mut TensorSet,
    module: &str,
    part: &str,
    other: &StoredTensor,
) -> Result<StoredTensor, FormatError> {
    take(set, module, part).ok_or_else(|| refusal(other, format!("there is no `{module}.{part}` beside it")))
}

/// Checks type and shape of a part.
pub(super) fn expect(tensor: &StoredTensor, expected: Type, shape: &[usize]) -> Result<(), FormatError> {
    if Type::of(tensor) != Some(expected) {
        let reason = format!("it is stored as {}, expected {}", tensor.stored_type, expected.name());
        return Err(refusal(tensor, reason));
    }
    if tensor.shape != shape {
        return Err(refusal(tensor, format!("its shape is {:?}, expected {shape:?}", tensor.shape)));
    }
    Ok(())
}

/// The two extents of a matrix.
pub(super) fn matrix(tensor: &StoredTensor) -> Result<[usize; 2], FormatError> {
    let shape = <[usize; 2]>::try_from(&tensor.shape[..]);
    let shape = shape.ok().filter(|shape| shape.iter().all(|&extent| extent > 0));
    shape.ok_or_else(|| refusal(tensor, format!("its shape is {:?}, expected a matrix", tensor.shape)))
}

/// The float type of scales.
pub(super) fn float(tensor: &StoredTensor) -> Result<DType, FormatError> {
    let float = tensor.stored_type.encoding().and_then(|encoding| encoding.float);
    float.ok_or_else(|| {
        refusal(tensor, format!("it is stored as {}, expected {}", tensor.stored_type, Type::Float.name()))
    })
}

/// The refusal of a tensor.
pub(super) fn refusal(tensor: &StoredTensor, reason: String) -> FormatError {
    tensor.rows.place().error(FormatCause::BadTensor { name: tensor.name.clone(), reason })
}
