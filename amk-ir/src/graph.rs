//! The graph: the ops of an annotated function over symbolic dims, with loops kept rolled.
//!
//! A value is a variable of the function (or a temporary); assigning it again, also from within a
//! loop, keeps its shape.

use crate::expr::Expr;
use crate::layout::{FieldPath, Layout};
use crate::schedule::PartialSchedule;
use crate::signature::Signature;
use crate::{DType, ValueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An annotated function.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The function's name.
    pub name: String,
    /// The declared dims.
    pub dims: Vec<String>,
    /// Declared multiples: the left side is a multiple of the right side.
    #[serde(default)]
    pub multiples: Vec<(Expr, Expr)>,
    /// Declared equalities: a dim and its value. The graph has the right side wherever the
    /// function's types have the dim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub equalities: Vec<(String, Expr)>,
    /// The signatures of the instructions it calls.
    pub signatures: Vec<Signature>,
    /// The function's parameters in order.
    pub params: Vec<KernelParam>,
    /// Hand-written event tensors.
    #[serde(default)]
    pub events: Vec<EventDecl>,
    /// The values: variables and temporaries.
    pub values: Vec<Value>,
    /// The statements.
    pub body: Vec<Node>,
    /// The returned values, in order.
    pub results: Vec<ValueId>,
    /// The declared instances.
    pub instances: Vec<Instance>,
    /// The schedule of instances that name none: fields over a VM's own schedule.
    #[serde(default)]
    pub schedule: PartialSchedule,
}

/// A parameter of the annotated function.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelParam {
    /// The parameter's name.
    pub name: String,
    /// The kind of parameter.
    pub kind: KernelParamKind,
}

/// The kinds of parameters of an annotated function.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelParamKind {
    /// The token id of the step.
    Token(ValueId),
    /// An input tensor.
    Tensor(ValueId),
    /// The position of the step.
    Pos,
    /// A struct of weights, states, parameters and flags.
    Layout(Layout),
}

/// A variable or a temporary.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The variable's name, or a name made from the op for a temporary.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// The shape over the declared dims; filled in by [`crate::shapes::check`].
    pub shape: Vec<Expr>,
}

/// A statement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Node {
    /// An op.
    Call(CallNode),
    /// `to = from`.
    Bind {
        /// The number of the call or assignment in the source.
        #[serde(default)]
        site: u32,
        /// The assigned value.
        to: ValueId,
        /// The value it gets.
        from: ValueId,
    },
    /// `for index in 0..extent`.
    Loop {
        /// The loop's index.
        index: String,
        /// Iterations, over dims.
        extent: Expr,
        /// The loop's statements.
        body: Vec<Self>,
    },
    /// `if flag { .. } else { .. }`.
    If {
        /// The flag's field.
        flag: FieldPath,
        /// Statements if it is set.
        then: Vec<Self>,
        /// Statements if it is not.
        otherwise: Vec<Self>,
    },
}

/// A call of an instruction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallNode {
    /// The number of the call or assignment in the source; the macro keeps the spans by this
    /// number.
    pub site: u32,
    /// Index of the signature.
    pub signature: u32,
    /// The arguments in order.
    pub args: Vec<Arg>,
    /// Where the results go.
    pub results: Vec<ValueId>,
    /// Hand-written signals.
    #[serde(default)]
    pub signals: Vec<SignalMap>,
    /// Hand-written waits; they replace the derived ones of this op.
    #[serde(default)]
    pub waits: Vec<WaitMap>,
}

/// An argument of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arg {
    /// A value.
    Value(ValueId),
    /// A field of a layout.
    Field(FieldPath),
    /// A number.
    Float(f32),
    /// A number or a dim.
    Int(Expr),
    /// The position of the step.
    Pos,
}

/// A hand-written event tensor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventDecl {
    /// The name.
    pub name: String,
    /// Extents over dims.
    pub shape: Vec<Expr>,
}

/// `#[signal(event[coordinates])]`: over the tile numbers of the op's grid variables, loop indices
/// and dims.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalMap {
    /// The event tensor's name.
    pub event: String,
    /// The element.
    pub coordinates: Vec<Expr>,
}

/// `#[wait(event[coordinates] == threshold)]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitMap {
    /// The event tensor's name.
    pub event: String,
    /// The element.
    pub coordinates: Vec<Expr>,
    /// Signals to wait for.
    pub threshold: Expr,
}

/// Values for the dims and flags of a graph.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// The name.
    pub name: String,
    /// The dims' values.
    pub dims: BTreeMap<String, u32>,
    /// The flags' values, by the field's path (`w.tied`).
    #[serde(default)]
    pub flags: BTreeMap<String, bool>,
    /// Values of float parameters by the field's path; missing ones are 0 (shapes and waits do not
    /// depend on them).
    #[serde(default)]
    pub floats: BTreeMap<String, f32>,
    /// The schedule, if it differs from the graph's: fields that override a VM's own schedule.
    #[serde(default)]
    pub schedule: Option<PartialSchedule>,
}

impl Instance {
    /// The fields of the schedule that its function gives it.
    pub fn schedule_in<'a>(&'a self, graph: &'a Graph) -> &'a PartialSchedule {
        self.schedule.as_ref().unwrap_or(&graph.schedule)
    }
}
