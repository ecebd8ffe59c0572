//! Element-wise instructions that a projection applies to its results before they leave the
//! registers.
//!
//! The rule is a property of the graph: a registered [`Pointwise`] instruction fuses if it is the
//! only reader of one product, or of two products of one input.

use crate::fused::Decoder;
use amk::ir::Param;
use amk::ir::signature::{ParamKind, TensorClass};
use amk_cuda::plan::{Flow, Plan};
use amk_cuda::{Pointwise, lines};
use core::fmt::Write as _;

/// Maximum functions of a program's projections. A record has two bits for the number, and 0 means
/// none.
const MOST: usize = 3;

/// An element-wise call: the instruction and its parameters, which are constants in the code.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The path of the instruction.
    pub path: String,
    /// Its float parameters.
    pub params: Vec<Param>,
    /// Number of its tensor operands.
    pub operands: usize,
}

/// Returns the element-wise function of a call, if it is registered and takes floats and `operands`
/// values of its result's shape.
pub(super) fn function(flow: &Flow<'_>, at: usize, operands: usize) -> Option<Function> {
    let signature = flow.signature(at)?;
    Pointwise::of(&signature.path)?;
    let tensors = signature.params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor { .. }));
    let values = signature
        .params
        .iter()
        .filter(|param| matches!(param.kind, ParamKind::Tensor { class: TensorClass::Tensor, .. }));
    let floats = flow.call(at).params.iter().all(|param| matches!(param, Param::F32(_)));
    let shape = flow.shape(flow.result(at)?);
    let alike = (0..operands).all(|number| flow.operand(at, number).is_some_and(|id| flow.shape(id) == shape));
    let fits = tensors.count() == operands && values.count() == operands && floats && alike;
    let params = flow.call(at).params.clone();
    fits.then(|| Function { path: signature.path.clone(), params, operands })
}

/// Returns the number of a function in a program, from 1, or `None` when all numbers are taken.
pub(super) fn number(functions: &mut Vec<Function>, function: Function) -> Option<u32> {
    let known = functions.iter().position(|known| *known == function);
    let at = known.or_else(|| {
        (functions.len() < MOST).then(|| {
            functions.push(function);
            functions.len() - 1
        })
    })?;
    Some(at as u32 + 1)
}

/// Renders the calls of a plan's element-wise functions as C++.
pub(super) fn calls(plan: &Plan) -> String {
    let functions = Decoder::of(plan).map_or(&[][..], |decoder| &decoder.functions);
    let mut out = String::new();
    let mut texts: Vec<&str> = Vec::new();
    let (mut maps, mut gates) = (Vec::new(), Vec::new());
    for (function, number) in functions.iter().zip(1u32..) {
        let Some(known) = Pointwise::of(&function.path) else { continue };
        let space = texts.iter().position(|&text| text == known.code).unwrap_or_else(|| {
            let code = lines::file(known.instruction, known.code);
            let _ = writeln!(out, "namespace pointwise{} {{\n{code}}}", texts.len());
            texts.push(known.code);
            texts.len() - 1
        });
        let floats = function.params.iter().map(|param| match param {
            Param::F32(value) => format!(", __uint_as_float({:#x}u)", value.to_bits()),
            _ => String::new(),
        });
        let (cases, values) = if function.operands == 1 { (&mut maps, "x") } else { (&mut gates, "x, y") };
        let call = format!("pointwise{space}::{}({values}{})", known.function, floats.collect::<String>());
        cases.push((number, call));
    }
    // In a wide step lanes deliver apart, so they cannot vote.
    let choice = |calls: &[(u32, String)]| choice(calls, "x", if plan.is_wide() { "" } else { "any" });
    let _ = writeln!(out, "AMK_DEVICE float map_product(u32 function, float x) {{ {} }}", choice(&maps));
    let _ = writeln!(out, "AMK_DEVICE float gate_products(u32 function, float x, float y) {{ {} }}", choice(&gates));
    out
}

/// Returns whether a plan has functions of one product.
pub(super) fn maps(plan: &Plan) -> bool {
    Decoder::of(plan).is_some_and(|decoder| decoder.functions.iter().any(|function| function.operands == 1))
}

/// Renders the choice among numbered calls, by a vote of the lanes that run it if there is one. The
/// last call needs no test; without any it is `other`.
fn choice(calls: &[(u32, String)], other: &str, vote: &str) -> String {
    let case = |(nth, (number, call)): (usize, &(u32, String))| {
        if nth + 1 < calls.len() {
            format!("if ({vote}(function == {number})) return {call}; ")
        } else {
            format!("return {call};")
        }
    };
    if calls.is_empty() { format!("return {other};") } else { calls.iter().enumerate().map(case).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, value: f32) -> Function {
        Function { path: path.to_owned(), params: vec![Param::F32(value)], operands: 1 }
    }

    #[test]
    fn functions_are_numbered_by_path_and_parameters_and_there_is_room_for_three() {
        let mut functions = Vec::new();
        let all = [("a", 1.0), ("a", 2.0), ("a", 1.0), ("b", 1.0), ("c", 1.0), ("b", 1.0)];
        let numbers = all.map(|(path, value)| number(&mut functions, named(path, value)));
        assert_eq!(numbers, [Some(1), Some(2), Some(1), Some(3), None, Some(3)]);
    }

    #[test]
    fn the_last_function_needs_no_question() {
        let call = |number: u32| (number, format!("f{number}(x)"));
        assert_eq!(choice(&[], "x", "any"), "return x;");
        assert_eq!(choice(&[call(2)], "x", "any"), "return f2(x);");
        assert_eq!(choice(&[call(1), call(3)], "x", "any"), "if (any(function == 1)) return f1(x); return f3(x);");
    }
}
