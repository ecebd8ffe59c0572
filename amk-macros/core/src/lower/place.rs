//! Fields and elements of layouts.

use super::Lowering;
use super::item::{Dest, Item};
use crate::names::suggestion;
use amk_ir::layout::{FieldKind, FieldPath, Layout, PathStep};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{ExprField, ExprIndex, ExprMethodCall, Member};

impl Lowering<'_> {
    pub(super) fn field(&mut self, field: &ExprField) -> Item {
        let base = self.expression(&field.base, &Dest::Temp);
        match (&field.member, base) {
            (_, Item::Unknown) => Item::Unknown,
            (Member::Named(name), Item::Struct(path, layout)) => match layout.field(&name.unraw().to_string()) {
                Some(found) => member(&path, &found.name, &found.kind),
                None => {
                    let fields = layout.fields.iter().map(|field| field.name.as_str());
                    let headline = format!("`{}` has no field `{name}` that the derive names", layout.name);
                    self.report("AMK0916", name, headline, suggestion(&name.unraw().to_string(), fields))
                }
            },
            (Member::Unnamed(number), Item::Tuple(items)) if (number.index as usize) < items.len() => {
                items[number.index as usize].clone()
            }
            (Member::Named(name), Item::List(path, ..)) => {
                let help = format!("index it: `{path}[l].{name}`");
                self.report("AMK0916", field, format!("`{path}` is a `Vec`; `{name}` is a field of its elements"), help)
            }
            (member, base) => {
                let headline = format!("{} has no field `{}` here", base.what(), member.to_token_stream());
                self.report("AMK0916", field, headline, "take fields of layouts: `w.layers[l].wq`")
            }
        }
    }

    pub(super) fn index(&mut self, index: &ExprIndex) -> Item {
        let base = self.expression(&index.expr, &Dest::Temp);
        let at = self.expression(&index.index, &Dest::Temp);
        match (base, at) {
            (Item::Unknown, _) | (_, Item::Unknown) => Item::Unknown,
            (Item::List(path, layout, _), Item::Int(at)) => element(&path, layout, at),
            (Item::List(path, ..), other) => {
                let headline = format!("`{path}` is indexed by {}", other.what());
                self.report("AMK0916", &index.index, headline, "index it by a loop index or a number")
            }
            (base, _) => {
                let headline = format!("{} cannot be indexed here", base.what());
                self.report(
                    "AMK0916",
                    index,
                    headline,
                    "index lists of layouts; to use part of a tensor write an instruction",
                )
            }
        }
    }

    pub(super) fn length(&mut self, method: &ExprMethodCall) -> Item {
        match self.expression(&method.receiver, &Dest::Temp) {
            Item::List(_, _, length) => Item::Int(length),
            Item::Unknown => Item::Unknown,
            other => self.report("AMK0916", method, format!("`.len()` of {}", other.what()), "use a dim of `dims(..)`"),
        }
    }
}

/// A field of the struct at `path`.
fn member(path: &FieldPath, name: &str, kind: &FieldKind) -> Item {
    let mut path = path.clone();
    path.steps.push(PathStep { field: name.to_owned(), index: None });
    match kind {
        FieldKind::Weight { .. } | FieldKind::State { .. } | FieldKind::Table { .. } | FieldKind::Param => {
            Item::Leaf(path)
        }
        FieldKind::Dim(size) => Item::Int(size.clone()),
        FieldKind::Flag => Item::Flag(path),
        FieldKind::Struct(layout) => Item::Struct(path, layout.clone()),
        FieldKind::List { layout, length } => Item::List(path, layout.clone(), length.clone()),
    }
}

/// An element of the list at `path`.
pub(super) fn element(path: &FieldPath, layout: Layout, at: amk_ir::expr::Expr) -> Item {
    let mut path = path.clone();
    if let Some(step) = path.steps.last_mut() {
        step.index = Some(at);
    }
    Item::Struct(path, layout)
}
