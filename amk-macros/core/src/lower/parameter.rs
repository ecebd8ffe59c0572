//! The parameters of the annotated function.

use super::item::Item;
use super::{Lowering, equality};
use crate::chain::{Record, key};
use crate::names::suggestion;
use crate::parse::function::{By, Parameter, parameters, repeated};
use amk_ir::DType;
use amk_ir::expr::Expr;
use amk_ir::graph::{KernelParam, KernelParamKind};
use amk_ir::layout::{FieldPath, Layout};
use std::collections::BTreeSet;
use syn::ItemFn;
use syn::ext::IdentExt;

impl Lowering<'_> {
    pub(super) fn parameters(&mut self, function: &ItemFn) -> Vec<KernelParam> {
        let Some(parameters) = parameters(function, self.diagnostics) else { return Vec::new() };
        for (name, _) in &self.attribute.inputs {
            if parameters.iter().all(|parameter| parameter.name != name) {
                let names: Vec<String> = parameters.iter().map(|parameter| parameter.name.to_string()).collect();
                let headline =
                    format!("`inputs(..)` names `{name}`, which is not a parameter of `{}`", function.sig.ident);
                self.report("AMK0921", name, headline, suggestion(&name.to_string(), names.iter().map(String::as_str)));
            }
        }
        self.one_of_each(&parameters);
        let params: Vec<KernelParam> = parameters.iter().filter_map(|parameter| self.parameter(parameter)).collect();
        // Where a parameter has errors its fields are not known.
        if params.len() == parameters.len() {
            self.instance_fields(&params);
        }
        params
    }

    /// A step has one token and one position.
    fn one_of_each(&mut self, parameters: &[Parameter<'_>]) {
        let records = self.records;
        for (ty, what) in [("Token", "token"), ("Pos", "position")] {
            let is = |parameter: &&Parameter<'_>| match records.get(&key(&parameter.ty.path)) {
                Some(Record::Input(input)) => input == ty,
                _ => false,
            };
            for (name, headline, help) in repeated(parameters.iter().filter(is), ty, what) {
                self.report("AMK0921", name, headline, help);
            }
        }
    }

    fn parameter(&mut self, parameter: &Parameter<'_>) -> Option<KernelParam> {
        let name = parameter.name.unraw().to_string();
        let records = self.records;
        let (kind, item) = match records.get(&key(&parameter.ty.path)) {
            Some(Record::Input(input)) => self.input(parameter, &name, input)?,
            Some(Record::Layout(layout)) if parameter.by != By::Value => self.layout(parameter, &name, layout),
            Some(Record::Error) | None => {
                self.bind_name(parameter.name, Item::Unknown);
                return None;
            }
            Some(Record::Layout(_) | Record::Instruction(_)) => {
                let headline = format!("parameter `{name}` has a type that a megakernel does not take");
                let help = "use `Token`, `Pos`, `&Tensor`, or a reference to a struct with `#[derive(WeightLayout)]`";
                self.bind_name(parameter.name, Item::Unknown);
                self.report("AMK0921", parameter.ty, headline, help);
                return None;
            }
        };
        self.bind_name(parameter.name, item);
        Some(KernelParam { name, kind })
    }

    fn input(&mut self, parameter: &Parameter<'_>, name: &str, input: &str) -> Option<(KernelParamKind, Item)> {
        match input {
            "Pos" => Some((KernelParamKind::Pos, Item::Pos)),
            "Token" => {
                let value = self.value(name, DType::U32, vec![Expr::Const(1)]);
                Some((KernelParamKind::Token(value), Item::Value(value)))
            }
            _ => {
                let attribute = self.attribute;
                let Some((_, shape)) = attribute.inputs.iter().find(|(input, _)| input == parameter.name) else {
                    let headline = format!("nothing gives the shape of the input tensor `{name}`");
                    self.bind_name(parameter.name, Item::Unknown);
                    self.report(
                        "AMK0921",
                        parameter.name,
                        headline,
                        format!("add `inputs({name}: [HIDDEN])` to the attribute"),
                    );
                    return None;
                };
                self.known_dims(shape, parameter, "the shape of");
                let shape = shape.iter().map(|extent| equality::expr(extent, &attribute.equalities)).collect();
                let value = self.value(name, DType::F32, shape);
                Some((KernelParamKind::Tensor(value), Item::Value(value)))
            }
        }
    }

    fn layout(&mut self, parameter: &Parameter<'_>, name: &str, layout: &Layout) -> (KernelParamKind, Item) {
        let mut sizes = Vec::new();
        equality::visit(&mut layout.clone(), &mut |size| sizes.push(size.clone()));
        self.known_dims(&sizes, parameter, "the layout of");
        let layout = equality::layout(layout, &self.attribute.equalities);
        let path = FieldPath { root: name.to_owned(), steps: Vec::new() };
        (KernelParamKind::Layout(layout.clone()), Item::Struct(path, layout))
    }

    /// Every name in the sizes of a parameter has to be a declared dim.
    fn known_dims(&mut self, sizes: &[Expr], parameter: &Parameter<'_>, what: &str) {
        let dims: Vec<String> = self.attribute.dims.iter().map(ToString::to_string).collect();
        let mut unknown = BTreeSet::new();
        for size in sizes {
            size.names(&mut |name| {
                if !dims.iter().any(|dim| dim == name) {
                    unknown.insert(name.to_owned());
                }
            });
        }
        for name in unknown {
            let headline = format!("{what} `{}` uses the dim `{name}`, which is not in `dims(..)`", parameter.name);
            self.report("AMK0930", parameter.ty, headline, format!("add `{name}` to `dims(..)`"));
        }
    }
}
