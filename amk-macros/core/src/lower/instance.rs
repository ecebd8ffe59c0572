//! The fields that instances set: flags and numbers of the parameters' layouts.

use super::Lowering;
use crate::diag::Diagnostic;
use crate::names::suggestion;
use crate::parse::instance::{InstanceField, Step};
use amk_ir::graph::{Instance, KernelParam, KernelParamKind};
use amk_ir::layout::{Field, FieldKind, Layout};

impl Lowering<'_> {
    pub(super) fn instance_fields(&mut self, params: &[KernelParam]) {
        let attribute = self.attribute;
        for argument in &attribute.instances {
            for field in &argument.fields {
                let checked = check(field, params, &argument.instance);
                self.diagnostics.keep(checked);
            }
        }
    }
}

/// Whether there is such a field, and the value is of its kind.
fn check(field: &InstanceField, params: &[KernelParam], instance: &Instance) -> Result<(), Diagnostic> {
    let mut layout = Some(root(field, params)?);
    let mut kind = None;
    for step in &field.steps {
        let within = layout.ok_or_else(|| {
            wrong(step, format!("`{step}` follows a value that has no fields"), "end the path before it")
        })?;
        let found = member(within, step)?;
        layout = inner(found, step, instance)?;
        kind = Some(&found.kind);
    }
    let (what, help) = match (kind, field.flag) {
        (Some(FieldKind::Flag), true) | (Some(FieldKind::Param), false) => return Ok(()),
        (Some(FieldKind::Flag), false) => ("a flag is not a number", "write `true` or `false`"),
        (Some(FieldKind::Param), true) => ("a number is neither true nor false", "write a number: `1e-5`"),
        _ => (
            "this field is neither a `#[flag]` nor a `#[param]`",
            "remove it: an instance gives dims, flags and numbers",
        ),
    };
    Err(Diagnostic::new("AMK0931", &field.value, what, help))
}

fn wrong(step: &Step, headline: String, help: impl Into<String>) -> Diagnostic {
    Diagnostic::new("AMK0931", &step.name, headline, help)
}

/// The layout of the parameter.
fn root<'p>(field: &InstanceField, params: &'p [KernelParam]) -> Result<&'p Layout, Diagnostic> {
    let layouts = params.iter().filter_map(|param| match &param.kind {
        KernelParamKind::Layout(layout) => Some((param.name.as_str(), layout)),
        _ => None,
    });
    let name = field.root.to_string();
    layouts.clone().find(|(known, _)| *known == name).map(|(_, layout)| layout).ok_or_else(|| {
        let help = suggestion(&name, layouts.map(|(known, _)| known));
        Diagnostic::new("AMK0931", &field.root, format!("`{name}` is not a parameter with a layout"), help)
    })
}

fn member<'l>(layout: &'l Layout, step: &Step) -> Result<&'l Field, Diagnostic> {
    let name = step.name.to_string();
    layout.field(&name).ok_or_else(|| {
        let names = layout.fields.iter().map(|field| field.name.as_str());
        wrong(step, format!("`{}` has no field `{name}` that the derive names", layout.name), suggestion(&name, names))
    })
}

/// The layout of the field, where it is a struct or an element of a list.
fn inner<'l>(field: &'l Field, step: &Step, instance: &Instance) -> Result<Option<&'l Layout>, Diagnostic> {
    let name = &field.name;
    match (&field.kind, step.index) {
        (FieldKind::List { layout, length }, Some(index)) => {
            let length = length.eval(&|dim| instance.dims.get(dim).map(|value| i64::from(*value)));
            match length {
                Ok(length) if i64::from(index) >= length => {
                    Err(wrong(step, format!("`{name}` has {length} elements"), "count them from 0"))
                }
                _ => Ok(Some(layout)),
            }
        }
        (FieldKind::List { .. }, None) => {
            Err(wrong(step, format!("`{name}` is a `Vec`"), format!("say which element: `{name}[0]`")))
        }
        (_, Some(_)) => Err(wrong(step, format!("`{name}` is not a `Vec`"), format!("write `{name}`"))),
        (FieldKind::Struct(layout), None) => Ok(Some(layout)),
        (_, None) => Ok(None),
    }
}
