//! Layouts: the kinds of fields in a weights or state struct, as seen by `#[megakernel]`.

use crate::expr::Expr;
use serde::{Deserialize, Serialize};

/// A struct with `#[derive(WeightLayout)]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The struct's name.
    pub name: String,
    /// `file:line` of the struct, for messages.
    pub declared_at: String,
    /// The fields in order.
    pub fields: Vec<Field>,
}

/// A field of a layout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// The field's name.
    pub name: String,
    /// The kind of field.
    pub kind: FieldKind,
}

/// The kinds of layout fields.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum FieldKind {
    /// A checkpoint's tensor. Parts of the names such as `{l}` are the indices of the enclosing
    /// lists, outermost first.
    Weight {
        /// The tensor's name in the checkpoint.
        source: String,
        /// The name to use if the checkpoint does not have the first (tied embeddings).
        fallback: Option<String>,
        /// The shape.
        shape: Vec<Expr>,
    },
    /// A tensor kept from step to step.
    State {
        /// The shape.
        shape: Vec<Expr>,
    },
    /// A tensor that the loader computes (rotary frequencies), f32.
    Table {
        /// The shape.
        shape: Vec<Expr>,
    },
    /// A 32-bit float of the configuration.
    Param,
    /// An unsigned integer that equals an expression over dims.
    Dim(Expr),
    /// A declared flag.
    Flag,
    /// A nested struct.
    Struct(Layout),
    /// A `Vec` of structs.
    List {
        /// The element's layout.
        layout: Layout,
        /// The length.
        length: Expr,
    },
}

impl Layout {
    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// A path from a parameter of the kernel to a field: `w.layers[l].wq`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldPath {
    /// The kernel's parameter.
    pub root: String,
    /// The fields from there on, each with the index if it is a list.
    pub steps: Vec<PathStep>,
}

/// One step of a [`FieldPath`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathStep {
    /// The field's name.
    pub field: String,
    /// The list index, over loop indices.
    #[serde(default)]
    pub index: Option<Expr>,
}

impl FieldPath {
    /// The path's text with the loop indices resolved by `value`: `w.layers[3].wq`; also the list
    /// indices, outermost first.
    pub fn resolve(&self, value: &dyn Fn(&str) -> Option<i64>) -> Result<(String, Vec<i64>), crate::expr::EvalError> {
        let (mut text, mut indices) = (self.root.clone(), Vec::new());
        for step in &self.steps {
            text.push('.');
            text.push_str(&step.field);
            if let Some(index) = &step.index {
                let index = index.eval(value)?;
                text.push_str(&format!("[{index}]"));
                indices.push(index);
            }
        }
        Ok((text, indices))
    }
}

impl core::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.root)?;
        for step in &self.steps {
            write!(f, ".{}", step.field)?;
            if let Some(index) = &step.index {
                write!(f, "[{index}]")?;
            }
        }
        Ok(())
    }
}
