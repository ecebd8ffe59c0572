//! Whether the linked instruction is the one that the program was made for, and which operand is which parameter.

use super::error::VmError;
use crate::registry::{Frame, Registry};
use amk_ir::signature::{ParamKind, Signature, TensorClass};
use amk_ir::{Access, DType, Instruction};

/// A linked instruction and where its function's arguments come from.
pub(super) struct Fit {
    pub(super) run: fn(&mut Frame<'_>),
    /// By parameter.
    pub(super) arguments: Vec<Slot>,
    /// By result: the operand, and whether it is a token.
    pub(super) results: Vec<(usize, bool)>,
}

/// Where an argument comes from: an operand's or a scalar parameter's number in the call.
pub(super) enum Slot {
    Tensor(usize),
    Weight(usize),
    State(usize),
    Token(usize),
    Float(usize),
    Dim(usize),
    Pos,
}

impl Fit {
    pub(super) fn new(instruction: &Instruction, registry: &Registry) -> Result<Self, VmError> {
        let entry = registry.get(&instruction.path)?;
        let signature = entry.signature()?;
        let (arguments, results) =
            slots(instruction, &signature).map_err(|why| VmError::Unfit { path: instruction.path.clone(), why })?;
        Ok(Self { run: entry.run, arguments, results })
    }

    pub(super) fn unfit(&self, instruction: &Instruction, why: &str) -> VmError {
        VmError::Unfit { path: instruction.path.clone(), why: why.to_owned() }
    }
}

type Slots = (Vec<Slot>, Vec<(usize, bool)>);

/// Operands and parameters are found by name, since the text format lists what is written last.
fn slots(instruction: &Instruction, signature: &Signature) -> Result<Slots, String> {
    let operand = |name: &str, access: Access| {
        let found = instruction.operands.iter().position(|operand| operand.name == name);
        let found = found.ok_or_else(|| format!("the program has no operand `{name}`"))?;
        let declared = instruction.operands[found].access;
        if declared != access {
            return Err(
                format!("operand `{name}` is {declared:?} in the program, {access:?} in the function").to_lowercase()
            );
        }
        Ok(found)
    };
    let scalar = |name: &str| {
        let found = instruction.params.iter().position(|param| param == name);
        found.ok_or_else(|| format!("the program has no parameter `{name}`"))
    };
    let mut arguments = Vec::new();
    for param in &signature.params {
        arguments.push(match &param.kind {
            ParamKind::Tensor { class, access, .. } => {
                let number = operand(&param.name, *access)?;
                match class {
                    TensorClass::Tensor => Slot::Tensor(number),
                    TensorClass::Weight => Slot::Weight(number),
                    TensorClass::State => Slot::State(number),
                    TensorClass::Token => Slot::Token(number),
                }
            }
            ParamKind::Float => Slot::Float(scalar(&param.name)?),
            ParamKind::Dim(_) => Slot::Dim(scalar(&param.name)?),
            ParamKind::Pos => {
                scalar(&param.name)?;
                Slot::Pos
            }
        });
    }
    let mut results = Vec::new();
    for result in &signature.results {
        results.push((operand(&result.name, Access::Write)?, result.dtype == DType::U32));
    }
    let tensors = signature.params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor { .. })).count();
    let known = (tensors + results.len(), signature.params.len() - tensors);
    if (instruction.operands.len(), instruction.params.len()) != known {
        let (operands, params) = (instruction.operands.len(), instruction.params.len());
        return Err(format!(
            "the program gives {operands} operands and {params} parameters, the function takes {} and {}",
            known.0, known.1
        ));
    }
    Ok((arguments, results))
}
