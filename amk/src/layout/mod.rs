//! Structs of weights and states at run time: how a loader fills them and how a VM finds their
//! tensors.

mod builder;
mod visitor;

pub use builder::{BuildError, Builder, Source, SourceError, WeightRequest, build, zeroed, zeroed_in};
pub use visitor::{Leaf, Visitor, visit};

/// A struct of weights, states, tables, parameters, dims and flags. `#[derive(WeightLayout)]`
/// implements it.
pub trait WeightLayout: Sized {
    /// The [`amk_ir::layout::Layout`] as JSON.
    const LAYOUT: &'static str;

    /// Fills the struct from a loader.
    ///
    /// # Errors
    /// Fields that the loader lacks, or has in another shape.
    fn build(from: &mut Builder<'_>) -> Result<Self, BuildError>;

    /// Shows every leaf of the struct to the visitor.
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, 'a>);
}
