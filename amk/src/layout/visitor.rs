//! How a VM finds the tensors of a layout.

use super::WeightLayout;
use crate::tensor::{State, Weight};

/// A field that is not a struct.
#[derive(Clone, Copy, Debug)]
pub enum Leaf<'a> {
    /// A checkpoint's tensor.
    Weight(&'a Weight),
    /// A tensor that the loader computed.
    Table(&'a Weight),
    /// A tensor kept from step to step.
    State(&'a State),
    /// A float of the configuration.
    Param(f32),
    /// A dim.
    Dim(usize),
    /// The number of elements of a list.
    Length(usize),
    /// A flag.
    Flag(bool),
}

/// Visits every leaf of a layout with its path: `w.layers[3].attn.q`.
pub struct Visitor<'v, 'a> {
    see: &'v mut dyn FnMut(&str, Leaf<'a>),
    path: String,
}

/// Calls `see` with every leaf of `layout`, under paths that start with `root`.
pub fn visit<'a, T: WeightLayout>(root: &str, layout: &'a T, mut see: impl FnMut(&str, Leaf<'a>)) {
    layout.visit(&mut Visitor { see: &mut see, path: root.to_owned() });
}

/// The path of a field.
pub(super) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

impl<'a> Visitor<'_, 'a> {
    fn leaf(&mut self, field: &str, leaf: Leaf<'a>) {
        (self.see)(&join(&self.path, field), leaf);
    }

    /// A checkpoint's tensor.
    pub fn weight(&mut self, field: &str, weight: &'a Weight) {
        self.leaf(field, Leaf::Weight(weight));
    }

    /// A tensor that the loader computed.
    pub fn table(&mut self, field: &str, table: &'a Weight) {
        self.leaf(field, Leaf::Table(table));
    }

    /// A tensor kept from step to step.
    pub fn state(&mut self, field: &str, state: &'a State) {
        self.leaf(field, Leaf::State(state));
    }

    /// A float of the configuration.
    pub fn param(&mut self, field: &str, value: f32) {
        self.leaf(field, Leaf::Param(value));
    }

    /// A dim.
    pub fn dim(&mut self, field: &str, value: usize) {
        self.leaf(field, Leaf::Dim(value));
    }

    /// A flag.
    pub fn flag(&mut self, field: &str, value: bool) {
        self.leaf(field, Leaf::Flag(value));
    }

    /// A list of structs.
    pub fn list<T: WeightLayout>(&mut self, field: &str, elements: &'a [T]) {
        self.leaf(field, Leaf::Length(elements.len()));
        for (index, element) in elements.iter().enumerate() {
            self.layout(&format!("{field}[{index}]"), element);
        }
    }

    /// A struct.
    pub fn layout<T: WeightLayout>(&mut self, field: &str, layout: &'a T) {
        let path = join(&self.path, field);
        layout.visit(&mut Visitor { see: &mut *self.see, path });
    }
}
