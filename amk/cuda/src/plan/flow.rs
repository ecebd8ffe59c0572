//! The data flow of a function's unrolled calls.

use super::Unsupported;
use amk_ir::TensorId;
use amk_ir::graph::Graph;
use amk_ir::lower::unroll::{PlannedCall, Unrolled};
use amk_ir::program::{Buffer, BufferKind, Param};
use amk_ir::signature::Signature;

/// Who makes and who reads each tensor. Calls are numbered in eager order.
pub struct Flow<'a> {
    /// The function.
    pub graph: &'a Graph,
    /// Its calls and tensors.
    pub unrolled: &'a Unrolled,
    /// The call that makes each activation or output.
    writer: Vec<Option<usize>>,
    /// The calls that use each tensor in another way, in order.
    users: Vec<Vec<usize>>,
}

impl<'a> Flow<'a> {
    pub(crate) fn new(graph: &'a Graph, unrolled: &'a Unrolled) -> Self {
        let len = unrolled.tensors.len();
        let mut flow = Self { graph, unrolled, writer: vec![None; len], users: vec![Vec::new(); len] };
        for (at, call) in unrolled.calls.iter().enumerate() {
            for operand in &call.operands {
                let tensor = operand.tensor.index();
                let made = operand.access == amk_ir::Access::Write && flow.kind(operand.tensor) != BufferKind::State;
                if made {
                    flow.writer[tensor] = Some(at);
                } else if flow.users[tensor].last() != Some(&at) {
                    flow.users[tensor].push(at);
                }
            }
        }
        flow
    }

    /// A call.
    pub fn call(&self, at: usize) -> &'a PlannedCall {
        &self.unrolled.calls[at]
    }

    /// The signature of a call's instruction.
    pub fn signature(&self, at: usize) -> Option<&'a Signature> {
        self.graph.signatures.get(self.call(at).signature)
    }

    /// The path of a call's instruction.
    pub fn path(&self, at: usize) -> &'a str {
        self.signature(at).map_or("", |signature| signature.path.as_str())
    }

    /// A tensor.
    pub fn tensor(&self, id: TensorId) -> &'a Buffer {
        &self.unrolled.tensors[id.index()]
    }

    /// The kind of a tensor.
    pub fn kind(&self, id: TensorId) -> BufferKind {
        self.tensor(id).kind
    }

    /// The shape of a tensor.
    pub fn shape(&self, id: TensorId) -> &'a [u32] {
        &self.tensor(id).shape
    }

    /// Operand `number` of a call.
    pub fn operand(&self, at: usize, number: usize) -> Option<TensorId> {
        self.call(at).operands.get(number).map(|operand| operand.tensor)
    }

    /// The result of a call with one result.
    pub fn result(&self, at: usize) -> Option<TensorId> {
        self.call(at).operands.last().map(|operand| operand.tensor)
    }

    /// The call that makes a tensor.
    pub fn writer(&self, tensor: TensorId) -> Option<usize> {
        self.writer[tensor.index()]
    }

    /// The call that makes a tensor, if it is one of the instruction `path`.
    pub fn made_by(&self, tensor: TensorId, path: &str) -> Option<usize> {
        self.writer(tensor).filter(|&at| self.path(at) == path)
    }

    /// The calls that read a tensor or update it.
    pub fn users(&self, tensor: TensorId) -> &[usize] {
        &self.users[tensor.index()]
    }

    /// Whether a value is used by one call alone, and not given back by the function.
    pub fn only_for(&self, tensor: TensorId, at: usize) -> bool {
        self.users(tensor) == [at] && self.kind(tensor) == BufferKind::Activation
    }

    /// The first float parameter of a call.
    pub fn float(&self, at: usize) -> Option<f32> {
        self.call(at).params.iter().find_map(|param| if let Param::F32(value) = param { Some(*value) } else { None })
    }

    /// The first unsigned parameter of a call.
    pub fn number(&self, at: usize) -> Option<u32> {
        self.call(at).params.iter().find_map(|param| if let Param::U32(value) = param { Some(*value) } else { None })
    }

    /// An error about a call.
    pub fn refuse(&self, at: usize, what: impl Into<String>) -> Unsupported {
        Unsupported { what: what.into(), at: self.call(at).label.clone() }
    }
}
