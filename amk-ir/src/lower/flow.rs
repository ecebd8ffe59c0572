//! Use-def: the data flow of a function's unrolled calls.

use super::unroll::{PlannedCall, PlannedOperand, Unrolled};
use crate::graph::Graph;
use crate::program::{Buffer, BufferKind, Param};
use crate::signature::Signature;
use crate::{Access, TensorId};

/// The writer and the readers of each tensor. Calls are numbered in eager order.
pub struct Flow<'a> {
    /// The function.
    pub graph: &'a Graph,
    /// Its calls and tensors.
    pub unrolled: &'a Unrolled,
    /// The calls that write each tensor, in order.
    writers: Vec<Vec<usize>>,
    /// The calls that read each tensor, in order.
    readers: Vec<Vec<usize>>,
    /// The calls that use each tensor without producing it, in order.
    users: Vec<Vec<usize>>,
}

impl<'a> Flow<'a> {
    /// The flow of a function.
    pub fn new(graph: &'a Graph, unrolled: &'a Unrolled) -> Self {
        let none = vec![Vec::new(); unrolled.tensors.len()];
        let mut flow = Self { graph, unrolled, writers: none.clone(), readers: none.clone(), users: none };
        for (at, call) in unrolled.calls.iter().enumerate() {
            for operand in &call.operands {
                let tensor = operand.tensor.index();
                if operand.access.writes() {
                    flow.writers[tensor].push(at);
                }
                if operand.access.reads() {
                    flow.readers[tensor].push(at);
                }
                let made = operand.access == Access::Write && flow.kind(operand.tensor) != BufferKind::State;
                if !made && flow.users[tensor].last() != Some(&at) {
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

    /// The call that produces an activation or an output: the last that writes it whole.
    pub fn writer(&self, tensor: TensorId) -> Option<usize> {
        let made = |&&at: &&usize| self.writes_whole(at, tensor);
        (self.kind(tensor) != BufferKind::State).then(|| self.writers(tensor).iter().rev().find(made).copied())?
    }

    fn writes_whole(&self, at: usize, tensor: TensorId) -> bool {
        self.call(at).operands.iter().any(|operand| operand.tensor == tensor && operand.access == Access::Write)
    }

    /// The calls that write a tensor or update it, in order.
    pub fn writers(&self, tensor: TensorId) -> &[usize] {
        &self.writers[tensor.index()]
    }

    /// The calls that read a tensor or update it, in order; once for each operand.
    pub fn readers(&self, tensor: TensorId) -> &[usize] {
        &self.readers[tensor.index()]
    }

    /// The calls that must keep their order with one that has this operand.
    pub(super) fn conflicting(&self, operand: &PlannedOperand) -> impl Iterator<Item = usize> {
        let readers = if operand.access.writes() { self.readers(operand.tensor) } else { &[] };
        self.writers(operand.tensor).iter().chain(readers).copied()
    }

    /// The tensors that a call writes or updates.
    pub(super) fn written(&self, at: usize) -> impl Iterator<Item = TensorId> + use<'a> {
        self.call(at).operands.iter().filter(|operand| operand.access.writes()).map(|operand| operand.tensor)
    }

    /// The call that produces a tensor, if it is a call of the instruction `path`.
    pub fn made_by(&self, tensor: TensorId, path: &str) -> Option<usize> {
        self.writer(tensor).filter(|&at| self.path(at) == path)
    }

    /// The calls that read a tensor or update it.
    pub fn users(&self, tensor: TensorId) -> &[usize] {
        &self.users[tensor.index()]
    }

    /// Whether only one call uses a value, and the function does not return it.
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

    /// The name of a call's instruction.
    pub fn op(&self, at: usize) -> String {
        self.signature(at).map_or(String::new(), |signature| signature.name.clone())
    }
}
