//! An annotated function in f64: its calls one after the other, each by the instruction's formula.

use super::CheckError;
use super::draw::Draw;
use amk::formula::{Array, Exact, Formula, Operands};
use amk::ir::graph::{Graph, Instance};
use amk::ir::lower::unroll::{PlannedCall, Unrolled};
use amk::ir::program::Param;
use amk::ir::schedule::Schedule;
use amk::ir::{Access, BufferKind, DType, TensorId};
use amk::tensor::e4m3::{narrow, widen};
use amk::vm::Bindings;
use amk::{Megakernel, MegakernelError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The calls of a function, which keeps caches in f32.
pub(super) fn unrolled(kernel: &Megakernel, instance: &Instance, weights: DType) -> Result<Unrolled, MegakernelError> {
    unrolled_with(kernel, instance, weights, None)
}

fn unrolled_with(
    kernel: &Megakernel,
    instance: &Instance,
    weights: DType,
    cache: Option<DType>,
) -> Result<Unrolled, MegakernelError> {
    kernel.unrolled(instance, &Schedule { weights, cache, ..Schedule::default() })
}

/// A function that runs in f64, step by step.
#[derive(Clone)]
pub(super) struct Machine {
    calls: Arc<Vec<(Formula, PlannedCall)>>,
    /// By tensor: its kind and contents.
    kinds: Arc<Vec<BufferKind>>,
    arrays: Vec<Arc<Array>>,
    /// The tensors that are kept in e4m3.
    narrow: Arc<HashSet<TensorId>>,
    names: Arc<HashMap<String, TensorId>>,
    tokens: Arc<Vec<TensorId>>,
    rounding: Option<Draw>,
}

impl Machine {
    /// A machine with its states bound, or else zero, and its caches in e4m3 where `cache` is; in
    /// any wider element type they are exact. `None` where an instruction has no formula.
    ///
    /// # Errors
    /// A function that cannot be unrolled, a weight without a binding.
    pub(super) fn new(
        kernel: &Megakernel,
        instance: &Instance,
        bindings: &Bindings,
        weights: DType,
        cache: Option<DType>,
    ) -> Result<Option<Self>, CheckError> {
        let Unrolled { calls, tensors, .. } = unrolled_with(kernel, instance, weights, cache)?;
        let Some(calls) = with_formulas(kernel.graph()?, calls) else { return Ok(None) };
        let mut arrays = Vec::new();
        for tensor in &tensors {
            let shape: Vec<usize> = tensor.shape.iter().map(|&extent| extent as usize).collect();
            let name = &tensor.name;
            let bound = bindings.weights().get(name).map(amk::Weight::to_f32);
            let data = match (bound, bindings.states().get(name)) {
                (Some(values), _) => values.into_iter().map(f64::from).collect(),
                (None, Some(state)) => state.to_vec().into_iter().map(f64::from).collect(),
                (None, None) if tensor.kind == BufferKind::Weight => return Err(CheckError::Unbound(name.clone())),
                (None, None) => vec![0.0; shape.iter().product()],
            };
            arrays.push(Arc::new(Array { shape, data }));
        }
        let kinds = tensors.iter().map(|tensor| tensor.kind).collect();
        let token = |at: &usize| tensors[*at].kind == BufferKind::Input && tensors[*at].dtype == DType::U32;
        let tokens = (0..tensors.len()).filter(token).map(TensorId::from).collect();
        let is_narrow = |id: &TensorId| tensors[id.index()].dtype == DType::E4M3;
        let narrow = Arc::new((0..tensors.len()).map(TensorId::from).filter(is_narrow).collect());
        let names = (0..).zip(tensors).map(|(at, tensor)| (tensor.name, TensorId(at))).collect();
        let (calls, kinds) = (Arc::new(calls), Arc::new(kinds));
        let (names, tokens) = (Arc::new(names), Arc::new(tokens));
        Ok(Some(Self { calls, kinds, arrays, narrow, names, tokens, rounding: None }))
    }

    /// The same, where every value that a call hands on is rounded to bf16 at random: see
    /// [`Draw::rounded`].
    pub(super) fn rounding(&self, seed: u64) -> Self {
        Self { rounding: Some(Draw::new(seed)), ..self.clone() }
    }

    /// The same, but for an instruction's formula.
    #[cfg(test)]
    pub(super) fn with(mut self, path: &str, run: fn(&mut Operands) -> Vec<Exact>) -> Self {
        let calls = Arc::get_mut(&mut self.calls).expect("a machine without copies");
        calls.iter_mut().filter(|(formula, _)| formula.path == path).for_each(|(formula, _)| formula.run = run);
        self
    }

    /// Sets an input.
    pub(super) fn set(&mut self, name: &str, values: impl Iterator<Item = f64>) {
        if let Some(id) = self.names.get(name) {
            let shape = self.arrays[id.index()].shape.clone();
            self.arrays[id.index()] = Arc::new(Array { shape, data: values.collect() });
        }
    }

    /// Returns the current contents of a state.
    pub(super) fn state(&self, name: &str) -> Option<&[f64]> {
        self.names.get(name).map(|id| &self.arrays[id.index()].data[..])
    }

    /// One step, every token input being `token`: the results of each call.
    ///
    /// # Errors
    /// [`CheckError::Formula`].
    pub(super) fn step(&mut self, token: u32, pos: u32) -> Result<Vec<Vec<Exact>>, CheckError> {
        for id in self.tokens.iter() {
            self.arrays[id.index()] = Arc::new(Array { shape: vec![1], data: vec![f64::from(token)] });
        }
        let calls = Arc::clone(&self.calls);
        calls.iter().map(|(formula, call)| self.call(formula, call, pos)).collect()
    }

    /// Runs a call; returns its results in order.
    fn call(&mut self, formula: &Formula, call: &PlannedCall, pos: u32) -> Result<Vec<Exact>, CheckError> {
        let made = |access, kind| access == Access::Write && kind != BufferKind::State;
        let (written, read): (Vec<_>, Vec<_>) =
            call.operands.iter().partition(|operand| made(operand.access, self.kinds[operand.tensor.index()]));
        let mut operands = Operands { pos: pos as usize, ..Operands::default() };
        for operand in &read {
            let array = &mut self.arrays[operand.tensor.index()];
            // A state that changes is moved, so that it need not be copied.
            operands.tensors.push(if operand.access == Access::Read {
                Arc::clone(array)
            } else {
                std::mem::take(array)
            });
        }
        for param in &call.params {
            match *param {
                Param::F32(value) => operands.floats.push(f64::from(value)),
                Param::U32(value) => operands.dims.push(value as usize),
                Param::Pos => {}
            }
        }
        let failed = || CheckError::Formula(formula.path.to_owned());
        let run = std::panic::AssertUnwindSafe(|| (formula.run)(&mut operands));
        let results = std::panic::catch_unwind(run).map_err(|_| failed())?;
        for (tensor, operand) in operands.tensors.into_iter().zip(&read) {
            if operand.access != Access::Read {
                self.arrays[operand.tensor.index()] = tensor;
                if self.narrow.contains(&operand.tensor) {
                    let elements = &mut Arc::make_mut(&mut self.arrays[operand.tensor.index()]).data;
                    elements.iter_mut().for_each(|x| *x = f64::from(widen(narrow(*x as f32))));
                }
            }
        }
        let mut values = &results[..];
        for operand in &written {
            let array = &mut self.arrays[operand.tensor.index()];
            let (own, rest) = values.split_at_checked(array.shape.iter().product()).ok_or_else(failed)?;
            let (shape, data) = (array.shape.clone(), handed_on(own, &mut self.rounding));
            *array = Arc::new(Array { shape, data });
            values = rest;
        }
        Ok(results)
    }
}

/// Returns a result's values as other calls read them.
fn handed_on(made: &[Exact], rounding: &mut Option<Draw>) -> Vec<f64> {
    match rounding {
        Some(draw) => made.iter().map(|exact| draw.rounded(exact.value)).collect(),
        None => made.iter().map(|exact| exact.value).collect(),
    }
}

/// Each call with its formula; `None` where one has none.
fn with_formulas(graph: &Graph, calls: Vec<PlannedCall>) -> Option<Vec<(Formula, PlannedCall)>> {
    let formula = |call: &PlannedCall| graph.signatures.get(call.signature).and_then(|s| Formula::of(&s.path));
    calls.into_iter().map(|call| formula(&call).map(|formula| (formula, call))).collect()
}
