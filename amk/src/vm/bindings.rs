//! Bindings of a program's buffers.

use crate::layout::{Leaf, WeightLayout, visit};
use crate::tensor::{State, Weight};
use amk_ir::Constants;
use amk_ir::graph::Instance;
use core::fmt;
use std::collections::BTreeMap;

/// The weights, initial states and constants of a program by buffer name: `w.layers[3].attn.q`.
#[derive(Clone, Default, Debug)]
pub struct Bindings {
    weights: BTreeMap<String, Weight>,
    states: BTreeMap<String, State>,
    floats: BTreeMap<String, f32>,
    flags: BTreeMap<String, bool>,
    dims: BTreeMap<String, u64>,
}

/// A bound layout has a different constant than the program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{path}` is {program} in the program, but {bound} is bound to it; {}", self.help())]
pub struct OtherConstant {
    /// The field's path.
    pub path: String,
    /// The program's value.
    pub program: String,
    /// The layout's value.
    pub bound: String,
    /// Whether it is a dim, which follows from the instance's dims.
    pub is_dim: bool,
}

impl OtherConstant {
    fn help(&self) -> String {
        let Self { path, bound, is_dim, .. } = self;
        if *is_dim {
            return "give the layout the dims of the instance".to_owned();
        }
        format!(
            "lower the program for `bindings.complete(instance)`, which takes what the instance leaves out from the \
             layout, or write `{path} = {bound}` in `instances(..)`"
        )
    }
}

impl Bindings {
    /// No bindings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the leaves of a layout under the name of the kernel's parameter. Weights are shared;
    /// states are copied when a VM is created. States may be omitted: they start as 0.
    #[must_use]
    pub fn layout<T: WeightLayout>(mut self, parameter: &str, layout: &T) -> Self {
        visit(parameter, layout, |path, leaf| match leaf {
            Leaf::Weight(weight) | Leaf::Table(weight) => {
                self.weights.insert(path.to_owned(), weight.clone());
            }
            Leaf::State(state) => {
                self.states.insert(path.to_owned(), state.clone());
            }
            Leaf::Param(value) => {
                self.floats.insert(path.to_owned(), value);
            }
            Leaf::Flag(value) => {
                self.flags.insert(path.to_owned(), value);
            }
            Leaf::Dim(value) => {
                self.dims.insert(path.to_owned(), value as u64);
            }
            Leaf::Length(length) => {
                self.dims.insert(format!("{path}.len()"), length as u64);
            }
        });
        self
    }

    /// Adds a weight.
    #[must_use]
    pub fn weight(mut self, buffer: &str, weight: Weight) -> Self {
        self.weights.insert(buffer.to_owned(), weight);
        self
    }

    /// Adds a state's initial content.
    #[must_use]
    pub fn state(mut self, buffer: &str, state: State) -> Self {
        self.states.insert(buffer.to_owned(), state);
        self
    }

    /// The weights by buffer name.
    pub fn weights(&self) -> &BTreeMap<String, Weight> {
        &self.weights
    }

    /// The initial contents of the states by buffer name.
    pub fn states(&self) -> &BTreeMap<String, State> {
        &self.states
    }

    /// Values of float parameters by path, in the form of [`amk_ir::graph::Instance::floats`].
    pub fn floats(&self) -> &BTreeMap<String, f32> {
        &self.floats
    }

    /// Values of flags by path, in the form of [`amk_ir::graph::Instance::flags`].
    pub fn flags(&self) -> &BTreeMap<String, bool> {
        &self.flags
    }

    /// Returns the instance with the bound floats and flags added where it has none; these bindings
    /// fit a program lowered for it.
    #[must_use]
    pub fn complete(&self, instance: &Instance) -> Instance {
        let mut complete = instance.clone();
        for (path, &value) in &self.floats {
            complete.floats.entry(path.clone()).or_insert(value);
        }
        for (path, &value) in &self.flags {
            complete.flags.entry(path.clone()).or_insert(value);
        }
        complete
    }

    /// Compares the bound floats, flags and dims with the constants of a program.
    ///
    /// # Errors
    /// The first bound constant that differs from the program's.
    pub fn check(&self, constants: &Constants) -> Result<(), OtherConstant> {
        compare(&constants.floats, &self.floats, |a, b| a.to_bits() == b.to_bits())?;
        compare(&constants.flags, &self.flags, bool::eq)?;
        for (path, bound) in &self.dims {
            let program = constants.dims.get(&of_any_element(path));
            if let Some(program) = program.filter(|program| *program != bound) {
                let (program, bound) = (program.to_string(), bound.to_string());
                return Err(OtherConstant { path: path.clone(), program, bound, is_dim: true });
            }
        }
        Ok(())
    }
}

fn compare<T: fmt::Debug>(
    program: &BTreeMap<String, T>,
    bound: &BTreeMap<String, T>,
    same: fn(&T, &T) -> bool,
) -> Result<(), OtherConstant> {
    let mut pairs = program.iter().filter_map(|(path, value)| Some((path, value, bound.get(path)?)));
    match pairs.find(|(_, program, bound)| !same(program, bound)) {
        None => Ok(()),
        Some((path, program, bound)) => {
            let (program, bound) = (format!("{program:?}"), format!("{bound:?}"));
            Err(OtherConstant { path: path.clone(), program, bound, is_dim: false })
        }
    }
}

/// Returns a path without the indices of elements: `w.layers[].window`.
fn of_any_element(path: &str) -> String {
    let mut inside = false;
    let of_any = |char: &char| {
        inside = (inside || *char == '[') && *char != ']';
        !inside || *char == '['
    };
    path.chars().filter(of_any).collect()
}
