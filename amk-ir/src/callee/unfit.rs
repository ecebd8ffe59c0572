//! Mismatches between a program and the functions that it calls, and their text.

use super::Callee;
use crate::expr::Expr;
use crate::signature::{ParamKind, Signature, TensorClass};
use crate::text::{Shown, operands_text};
use crate::verify::{Code, Message};
use crate::{DType, Instruction, InstructionId, Program, TaskId, lower};

/// A mismatch between a program and a function that it calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// AMK0702: an instruction is declared with a signature that differs from its function's.
    Declaration {
        /// The instruction.
        instruction: InstructionId,
        /// Both signatures.
        why: Misdeclared,
    },
    /// AMK0703 to AMK0705: a call passes an operand that the function does not take.
    Call {
        /// The task.
        task: TaskId,
        /// The call's place in the task.
        call: u32,
        /// The number of calls with the same defect, including this one.
        alike: u32,
        /// The function's shape clause and its source location.
        function: String,
        /// The mismatch.
        why: Box<Misfit>,
    },
}

/// The signatures of an instruction in a program and of its function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misdeclared {
    /// In the program.
    pub declared: String,
    /// The function's, and its source location.
    pub function: String,
}

impl Misdeclared {
    pub(super) fn new(instruction: &Instruction, signature: &Signature) -> Self {
        let function = operands_text(&lower::instruction(signature));
        Self { declared: operands_text(instruction), function: format!("`{function}` at {}", signature.declared_at) }
    }
}

/// Mismatches between a call and its function. Operands and parameters have the function's names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// AMK0703: an operand of another class.
    Class {
        /// The operand.
        operand: String,
        /// Its number in the call.
        number: usize,
        /// The class that the function takes.
        expected: TensorClass,
        /// The class in the call, or an element type that no function takes.
        found: Result<TensorClass, DType>,
    },
    /// AMK0703: a parameter of another type.
    Param {
        /// The parameter.
        param: String,
        /// The type that the function takes.
        expected: &'static str,
        /// The type in the call.
        found: &'static str,
    },
    /// AMK0704: another number of dimensions.
    Rank {
        /// The operand.
        operand: String,
        /// Dimensions of the tile.
        found: usize,
        /// The shape in the function's dims.
        expected: Vec<Expr>,
    },
    /// AMK0704: another extent.
    Extent {
        /// The operand or parameter.
        operand: String,
        /// The dimension; `None` of a parameter.
        dim: Option<usize>,
        /// The tile's.
        found: Expr,
        /// By the shape clause.
        expected: Expr,
        /// The function's dims in it: the name, its value, and the operand that determines that
        /// value.
        because: Vec<(String, Expr, String)>,
    },
    /// AMK0705: an extent that is not the required multiple.
    Multiple {
        /// The violated rule over the function's dims: the left side must be a multiple of the
        /// right.
        rule: (Expr, Expr),
        /// Their values.
        found: (Expr, Expr),
    },
}

impl Unfit {
    /// An unfit call.
    pub fn call(task: TaskId, call: u32, callee: &Callee, why: Box<Misfit>) -> Self {
        let Signature { declared_at, .. } = callee.signature();
        let function = format!("`{}` at {declared_at}", shape_clause(callee.signature()));
        Self::Call { task, call, alike: 1, function, why }
    }

    /// The stable code of its kind.
    pub fn code(&self) -> Code {
        Code(match self {
            Self::Declaration { .. } => 702,
            Self::Call { why, .. } => match **why {
                Misfit::Class { .. } | Misfit::Param { .. } => 703,
                Misfit::Rank { .. } | Misfit::Extent { .. } => 704,
                Misfit::Multiple { .. } => 705,
            },
        })
    }

    /// Renders it as text, with the names of its program.
    pub fn message(&self, program: &Program) -> Message {
        let code = self.code();
        match self {
            Self::Declaration { instruction, why } => {
                let name = instruction_name(program, *instruction);
                Message {
                    code,
                    headline: format!("{name} is declared otherwise than its function"),
                    notes: vec![
                        format!("the program has `{}`", why.declared),
                        format!("the function is {}", why.function),
                    ],
                    help: "declare it as the function is, or lower the program again".into(),
                }
            }
            Self::Call { task, call, alike, function, why } => {
                let found = program.tasks.get(task.index()).and_then(|task| task.calls.get(*call as usize));
                let callee = found.map_or_else(String::new, |call| instruction_name(program, call.instruction));
                let (headline, mut notes, help) = why.words(&format!("{callee} in `{task}`"));
                if let (Misfit::Class { number, .. }, Some(call)) = (&**why, found) {
                    let buffer = call.operands.get(*number).map(|operand| operand.buffer);
                    let buffer = buffer.and_then(|buffer| program.buffers.get(buffer.index()));
                    notes.extend(buffer.map(|buffer| format!("it is of buffer `{}`", Shown(&buffer.name))));
                }
                notes.push(format!("the function takes {function}"));
                if *alike > 1 {
                    notes.push(format!("and {} more calls alike", alike - 1));
                }
                Message { code, headline, notes, help }
            }
        }
    }
}

impl Misfit {
    /// Headline, notes and help about a call.
    fn words(&self, of: &str) -> (String, Vec<String>, String) {
        match self {
            Self::Class { operand, expected, found, .. } => {
                let expected = expected.described();
                let headline = match found {
                    Ok(class) => format!("`{operand}` of {of} is {}, expected {expected}", class.described()),
                    Err(dtype) => format!("`{operand}` of {of} has elements of `{dtype}`, expected {expected}"),
                };
                (headline, Vec::new(), format!("pass {expected}"))
            }
            Self::Param { param, expected, found } => {
                (format!("`{param}` of {of} is {found}, expected {expected}"), Vec::new(), format!("pass {expected}"))
            }
            Self::Rank { operand, found, expected } => {
                let headline = format!("`{operand}` of {of} has {found} dimensions, expected {}", expected.len());
                (headline, Vec::new(), format!("pass a tile of shape `{}`", shape(expected)))
            }
            Self::Extent { operand, dim, found, expected, because } => {
                let place = dim.map_or_else(String::new, |dim| format!("dimension {dim} of "));
                let headline = format!("{place}`{operand}` of {of} is `{found}`, expected `{expected}`");
                let notes = because.iter().map(|(dim, value, by)| format!("`{dim}` is `{value}` because of `{by}`"));
                let help = match dim {
                    Some(_) => format!("pass a tile whose extent there is `{expected}`"),
                    None => format!("pass `{expected}`"),
                };
                (headline, notes.collect(), help)
            }
            Self::Multiple { rule: (of_rule, by_rule), found: (value, by) } => {
                let headline = format!("`{of_rule}` of {of} is `{value}`, no multiple of `{by_rule}`");
                let note = format!("`{by_rule}` is `{by}`");
                (headline, vec![note], format!("cut the tiles at multiples of `{by}`"))
            }
        }
    }
}

fn instruction_name(program: &Program, id: InstructionId) -> String {
    match program.instructions.get(id.index()) {
        Some(instruction) => format!("`{}`", Shown(&instruction.name)),
        None => format!("`{id}`"),
    }
}

fn shape(extents: &[Expr]) -> String {
    let extents: Vec<String> = extents.iter().map(Expr::to_string).collect();
    format!("[{}]", extents.join(", "))
}

/// `x: [N], head_dim: D -> y: [N]`
fn shape_clause(signature: &Signature) -> String {
    let param = |param: &crate::signature::ParamSig| match &param.kind {
        ParamKind::Tensor { shape: extents, .. } => Some(format!("{}: {}", param.name, shape(extents))),
        ParamKind::Dim(dim) => Some(format!("{}: {dim}", param.name)),
        ParamKind::Float | ParamKind::Pos => None,
    };
    let params: Vec<String> = signature.params.iter().filter_map(param).collect();
    let results: Vec<String> =
        signature.results.iter().map(|result| format!("{}: {}", result.name, shape(&result.shape))).collect();
    match results.is_empty() {
        true => params.join(", "),
        false => format!("{} -> {}", params.join(", "), results.join(", ")),
    }
}
