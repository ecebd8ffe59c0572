//! The forms and parameters allowed for an annotated function.

use crate::diag::{Diagnostic, Diagnostics};
use quote::ToTokens;
use syn::{FnArg, GenericParam, Ident, ItemFn, Pat, ReturnType, Safety, Type, TypePath};

/// A parameter with its name.
pub(crate) struct Parameter<'f> {
    /// The name.
    pub(crate) name: &'f Ident,
    /// The type without its reference.
    pub(crate) ty: &'f TypePath,
    /// How it is passed.
    pub(crate) by: By,
}

/// How a parameter is passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// `T`
    Value,
    /// `&T`
    Reference,
    /// `&mut T`
    Mutable,
}

impl Parameter<'_> {
    /// The last segment of the type's path.
    pub(crate) fn type_name(&self) -> String {
        self.ty.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
    }
}

/// Reports features that a plain function lacks: type and const parameters, `async`, `unsafe`,
/// `extern`, variadics, `self`.
pub(crate) fn check_form(function: &ItemFn, attribute: &str, diagnostics: &mut Diagnostics) {
    let signature = &function.sig;
    let mut refuse = |tokens: &dyn ToTokens, what: &str, help: &str| {
        let headline = format!("`{}` is {what}; `#[{attribute}]` takes a plain function", signature.ident);
        diagnostics.push(Diagnostic::new("AMK0901", tokens.to_token_stream(), headline, help));
    };
    // A lifetime does not change the function.
    let mut sizes = signature.generics.params.iter().filter(|param| !matches!(param, GenericParam::Lifetime(_)));
    if let Some(parameter) = sizes.next() {
        refuse(parameter, "generic", "name the dims in the attribute and write the types out");
    }
    if let Some(token) = &signature.asyncness {
        refuse(token, "async", "remove `async`");
    }
    if let Safety::Unsafe(token) = &signature.safety {
        refuse(token, "unsafe", "remove `unsafe` and keep unsafe code in a function it calls");
    }
    if let Some(abi) = &signature.abi {
        refuse(abi, "extern", "remove `extern`");
    }
    if let Some(variadic) = &signature.variadic {
        refuse(variadic, "variadic", "list the parameters");
    }
    if let Some(receiver) = signature.receiver() {
        refuse(receiver, "a method", "move it out of the `impl` and pass what it needs as parameters");
    }
}

/// The parameters; a parameter without a name, or whose type is not a path, is reported.
pub(crate) fn parameters<'f>(function: &'f ItemFn, diagnostics: &mut Diagnostics) -> Option<Vec<Parameter<'f>>> {
    let mut all = Some(Vec::new());
    for input in &function.sig.inputs {
        let parameter = diagnostics.keep(parameter(input));
        all = all.zip(parameter).map(|(mut all, parameter)| {
            all.push(parameter);
            all
        });
    }
    all
}

fn parameter(input: &FnArg) -> Result<Parameter<'_>, Diagnostic> {
    let wrong = |tokens: &dyn ToTokens, help: &str| {
        Err(Diagnostic::new("AMK0901", tokens.to_token_stream(), "this parameter cannot be read by the macro", help))
    };
    let FnArg::Typed(typed) = input else { return wrong(input, "pass what `self` holds as parameters") };
    let Pat::Ident(pattern) = &*typed.pat else { return wrong(&typed.pat, "give the parameter a name: `x: &Tensor`") };
    let (ty, by) = match &*typed.ty {
        Type::Reference(reference) if reference.mutability.is_some() => (&*reference.elem, By::Mutable),
        Type::Reference(reference) => (&*reference.elem, By::Reference),
        ty => (ty, By::Value),
    };
    match ty {
        Type::Path(path) if path.qself.is_none() => Ok(Parameter { name: &pattern.ident, ty: path, by }),
        other => wrong(other, "use a type by its name, as in `x: &Tensor`"),
    }
}

/// The second and further ones of some parameters, all of the type `ty`, of which a step has one
/// value: they would be the first by another name. Each has a headline and a help.
pub(crate) fn repeated<'p, 'f: 'p>(
    mut of_type: impl Iterator<Item = &'p Parameter<'f>>,
    ty: &str,
    what: &str,
) -> Vec<(&'f Ident, String, String)> {
    let Some(first) = of_type.next() else { return Vec::new() };
    let report = |more: &'p Parameter<'f>| {
        let headline = format!("`{}` is a second `{ty}`: a step has one {what}", more.name);
        (more.name, headline, format!("remove it, and use `{}` in its place", first.name))
    };
    of_type.map(report).collect()
}

/// Types of Rust that are never declared anew: none has a companion.
const BUILTIN: [&str; 21] = [
    "bool", "char", "str", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
    "f32", "f64", "String", "Vec", "Option", "Box",
];

/// Whether the name is a type of Rust itself.
pub(crate) fn is_builtin(name: &str) -> bool {
    BUILTIN.contains(&name)
}

/// The types a function returns: none, one, or a tuple's.
pub(crate) fn result_types(output: &ReturnType) -> Vec<&Type> {
    match output {
        ReturnType::Default => Vec::new(),
        ReturnType::Type(_, ty) => match &**ty {
            Type::Tuple(tuple) => tuple.elems.iter().collect(),
            ty => vec![ty],
        },
    }
}
