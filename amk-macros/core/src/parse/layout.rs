//! `#[derive(WeightLayout)]`: the fields of a struct and their attributes.

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::list;
use crate::parse::attribute::up_to_comma;
use crate::parse::function::is_builtin;
use amk_ir::expr::Expr;
use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Fields, GenericParam, Lit, LitStr, Path, Token, Type};

const ATTRIBUTES: [&str; 8] = ["weight", "state", "table", "param", "dim", "flag", "list", "layout"];

/// Types that a field may have by mistake. Another name may be an alias: Rust compares it.
const OF_AMK: [&str; 5] = ["Weight", "State", "Tensor", "Token", "Pos"];

/// A struct of weights, states and settings.
pub(crate) struct LayoutItem {
    /// Its fields.
    pub(crate) fields: Vec<LayoutField>,
    /// The amk crate.
    pub(crate) krate: Path,
}

/// A field of it.
pub(crate) struct LayoutField {
    /// The name.
    pub(crate) name: Ident,
    /// The kind of field.
    pub(crate) kind: LayoutFieldKind,
    /// Where its type is.
    pub(crate) at: Span,
}

/// The kinds of layout fields.
pub(crate) enum LayoutFieldKind {
    /// `#[weight("source", or = "fallback", [A, B])]`
    Weight {
        /// The tensor's name in the checkpoint.
        source: LitStr,
        /// Another name for it.
        fallback: Option<LitStr>,
        /// The shape.
        shape: Vec<Expr>,
    },
    /// `#[state([A, B])]`
    State(Vec<Expr>),
    /// `#[table([A])]`
    Table(Vec<Expr>),
    /// `#[param]`
    Param,
    /// `#[dim(A)]`
    Dim(Expr),
    /// `#[flag]`
    Flag,
    /// `#[list(A)]` on a `Vec<Element>`
    List {
        /// The length.
        length: Expr,
        /// The element's type.
        element: Path,
    },
    /// `#[layout]`
    Layout(Path),
}

impl LayoutField {
    /// The struct whose record this field needs.
    pub(crate) fn inner(&self) -> Option<&Path> {
        match &self.kind {
            LayoutFieldKind::List { element: path, .. } | LayoutFieldKind::Layout(path) => Some(path),
            _ => None,
        }
    }

    /// The sizes that the attribute names.
    fn sizes(&self) -> &[Expr] {
        match &self.kind {
            LayoutFieldKind::Weight { shape, .. } | LayoutFieldKind::State(shape) | LayoutFieldKind::Table(shape) => {
                shape
            }
            LayoutFieldKind::Dim(size) | LayoutFieldKind::List { length: size, .. } => std::slice::from_ref(size),
            LayoutFieldKind::Param | LayoutFieldKind::Flag | LayoutFieldKind::Layout(_) => &[],
        }
    }
}

/// Reads the struct; `None` where something was reported.
pub(crate) fn parse(input: &DeriveInput, diagnostics: &mut Diagnostics) -> Option<LayoutItem> {
    if let Some(parameter) = input.generics.params.first() {
        let (what, help) = match parameter {
            GenericParam::Lifetime(_) => ("borrows", "let it own its tensors: `Weight`, `State`, `Vec<Layer>`"),
            GenericParam::Type(_) | GenericParam::Const(_) => ("is generic", "write the types out"),
        };
        let headline = format!("`{}` {what}; a layout is a plain struct that owns its tensors", input.ident);
        diagnostics.push(Diagnostic::new("AMK0909", &input.generics, headline, help));
        return None;
    }
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => Some(&fields.named),
            Fields::Unnamed(_) | Fields::Unit => None,
        },
        Data::Enum(_) | Data::Union(_) => None,
    };
    let Some(fields) = fields else {
        let headline = format!("`{}` has no named fields", input.ident);
        diagnostics.push(Diagnostic::new(
            "AMK0909",
            &input.ident,
            headline,
            "derive `WeightLayout` on a struct with named fields",
        ));
        return None;
    };
    let krate = diagnostics.keep(crate_path(&input.attrs));
    let fields: Vec<LayoutField> = fields.iter().filter_map(|field| diagnostics.keep(field_of(field))).collect();
    for path in fields.iter().filter_map(LayoutField::inner) {
        if path.is_ident(&input.ident) || path.is_ident("Self") {
            let headline = format!("`{}` holds itself, so it would have no end", input.ident);
            diagnostics.push(Diagnostic::new("AMK0909", path, headline, "hold another struct here"));
        }
    }
    if diagnostics.is_empty() { Some(LayoutItem { fields, krate: krate? }) } else { None }
}

/// `#[weight_layout(crate = path)]`
fn crate_path(attributes: &[Attribute]) -> Result<Path, Diagnostic> {
    let Some(attribute) = attributes.iter().find(|attribute| attribute.path().is_ident("weight_layout")) else {
        return Ok(syn::parse_quote!(::amk));
    };
    let parse = |input: ParseStream| {
        input.parse::<Token![crate]>()?;
        input.parse::<Token![=]>()?;
        input.parse::<Path>()
    };
    attribute.parse_args_with(parse).map_err(|_| {
        let help = "write `#[weight_layout(crate = path::to::amk)]`";
        Diagnostic::new("AMK0902", attribute, "this attribute does not have its form", help)
    })
}

fn field_of(field: &syn::Field) -> Result<LayoutField, Diagnostic> {
    let name = field.ident.clone().ok_or_else(|| missing(&field.ty.to_token_stream(), "the field"))?;
    let known = |attribute: &&Attribute| ATTRIBUTES.iter().any(|known| attribute.path().is_ident(known));
    let mut attributes = field.attrs.iter().filter(known);
    let attribute = attributes.next().ok_or_else(|| missing(&name.to_token_stream(), &name.to_string()))?;
    if let Some(second) = attributes.next() {
        let headline = format!("`{name}` has two kinds");
        return Err(Diagnostic::new("AMK0908", second, headline, "keep one attribute a field"));
    }
    let found = LayoutField { kind: kind(attribute, &field.ty)?, at: field.ty.span(), name };
    let mut position = false;
    found.sizes().iter().for_each(|size| size.names(&mut |name| position |= name == "pos"));
    if position {
        let help = "choose another name for the dim, as in `POSITIONS`";
        return Err(Diagnostic::new("AMK0908", attribute, "`pos` is the position of a step, not a dim", help));
    }
    check_type(&found, attribute, &field.ty)?;
    Ok(found)
}

/// Refuses a type that is certainly not the attribute's.
fn check_type(field: &LayoutField, attribute: &Attribute, ty: &Type) -> Result<(), Diagnostic> {
    let wanted = match field.kind {
        LayoutFieldKind::Weight { .. } | LayoutFieldKind::Table(_) => "Weight",
        LayoutFieldKind::State(_) => "State",
        LayoutFieldKind::Param => "f32",
        LayoutFieldKind::Dim(_) => "usize",
        LayoutFieldKind::Flag => "bool",
        LayoutFieldKind::List { .. } | LayoutFieldKind::Layout(_) => "",
    };
    let found = match ty {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    };
    let path = attribute.path().to_token_stream();
    if let Some(inner) = field.inner() {
        let Some(inner) = inner.get_ident().filter(|inner| is_builtin(&inner.to_string())) else { return Ok(()) };
        let headline = format!("`{inner}` is not a struct with `#[derive(WeightLayout)]`");
        let help = format!("write the name of such a struct, or another attribute than `#[{path}]`");
        return Err(Diagnostic::new("AMK0908", ty, headline, help));
    }
    let may_be = matches!(ty, Type::Path(_) | Type::Group(_) | Type::Macro(_) | Type::Paren(_));
    let other = OF_AMK.contains(&found.as_str()) || is_builtin(&found);
    if found == wanted || may_be && !other {
        return Ok(());
    }
    let headline = format!("`{}` has a type that `#[{path}]` does not take", field.name);
    Err(Diagnostic::new("AMK0908", ty, headline, format!("write `{}: {wanted}`", field.name)))
}

fn missing(tokens: &TokenStream, name: &str) -> Diagnostic {
    let forms: Vec<String> = ATTRIBUTES.iter().map(|name| format!("#[{name}]")).collect();
    let help = format!("give it one of {}", list(forms.iter().map(String::as_str)));
    Diagnostic::new("AMK0908", tokens, format!("nothing says what `{name}` is"), help)
}

fn kind(attribute: &Attribute, ty: &Type) -> Result<LayoutFieldKind, Diagnostic> {
    let word = attribute.path().require_ident().map(ToString::to_string).unwrap_or_default();
    let wrong = |form: &str| {
        Diagnostic::new("AMK0908", attribute, format!("`#[{word}]` does not have its form"), format!("write `{form}`"))
    };
    let shape = |form: &str| attribute.parse_args::<Shape>().map(|shape| shape.0).map_err(|_| wrong(form));
    let size = |form: &str| attribute.parse_args::<Size>().map(|size| size.0).map_err(|_| wrong(form));
    Ok(match word.as_str() {
        "weight" => {
            let form = "#[weight(\"name.in.the.checkpoint\", [ROWS, COLUMNS])]";
            let Source { source, fallback, shape } = attribute.parse_args().map_err(|_| wrong(form))?;
            LayoutFieldKind::Weight { source, fallback, shape }
        }
        "state" => LayoutFieldKind::State(shape("#[state([HEADS, CONTEXT, HEAD_DIM])]")?),
        "table" => LayoutFieldKind::Table(shape("#[table([SIZE])]")?),
        "dim" => LayoutFieldKind::Dim(size("#[dim(HEAD_DIM)]")?),
        "list" => LayoutFieldKind::List { length: size("#[list(LAYERS)]")?, element: element(ty)? },
        "param" => plain(attribute, LayoutFieldKind::Param).ok_or_else(|| wrong("#[param]"))?,
        "flag" => plain(attribute, LayoutFieldKind::Flag).ok_or_else(|| wrong("#[flag]"))?,
        _ => LayoutFieldKind::Layout(path(ty)?),
    })
}

fn plain(attribute: &Attribute, kind: LayoutFieldKind) -> Option<LayoutFieldKind> {
    attribute.meta.require_path_only().ok().map(|_| kind)
}

fn path(ty: &Type) -> Result<Path, Diagnostic> {
    let plain = |path: &Path| path.segments.iter().all(|segment| segment.arguments.is_none());
    match ty {
        Type::Path(path) if path.qself.is_none() && plain(&path.path) => Ok(path.path.clone()),
        _ => Err(Diagnostic::new("AMK0908", ty, "a layout's type is a struct by its name", "write the struct's name")),
    }
}

/// `Element` of `Vec<Element>`.
fn element(ty: &Type) -> Result<Path, Diagnostic> {
    let wrong = || Diagnostic::new("AMK0908", ty, "a list is a `Vec` of a struct", "write `Vec<Layer>`");
    let Type::Path(list) = ty else { return Err(wrong()) };
    let last = list.path.segments.last().filter(|last| last.ident == "Vec").ok_or_else(wrong)?;
    match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(syn::GenericArgument::Type(inner)) => path(inner),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// `[A, B + 1]`
pub(crate) struct Shape(pub(crate) Vec<Expr>);

impl Parse for Shape {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let inner;
        syn::bracketed!(inner in input);
        let sizes = inner.parse_terminated(Size::parse, Token![,])?;
        Ok(Self(sizes.into_iter().map(|size| size.0).collect()))
    }
}

/// An expression over dims, up to a comma.
pub(crate) struct Size(pub(crate) Expr);

impl Parse for Size {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let span = input.span();
        expr(&up_to_comma(input)?).map(Self).map_err(|error| syn::Error::new(span, error.message))
    }
}

/// The expression that tokens spell.
pub(crate) fn expr(tokens: &TokenStream) -> Result<Expr, amk_ir::expr::ParseError> {
    Expr::parse(&expr_text(tokens))
}

/// The text of an expression's tokens: `a /^ b` is two operators to Rust, and printed apart.
pub(crate) fn expr_text(tokens: &TokenStream) -> String {
    decimal(tokens.clone()).to_string().replace("/ ^", "/^")
}

/// The tokens with integers as expressions have them, in digits alone: `0x10` and `1_6` are `16`.
fn decimal(tokens: TokenStream) -> TokenStream {
    let one = |token| match token {
        TokenTree::Literal(literal) => match Lit::new(literal.clone()) {
            Lit::Int(int) if !int.suffix().starts_with('f') => {
                int.base10_digits().parse().unwrap_or(int.to_token_stream())
            }
            _ => TokenTree::Literal(literal).into(),
        },
        TokenTree::Group(group) => TokenTree::Group(Group::new(group.delimiter(), decimal(group.stream()))).into(),
        other => TokenStream::from(other),
    };
    tokens.into_iter().flat_map(one).collect()
}

struct Source {
    source: LitStr,
    fallback: Option<LitStr>,
    shape: Vec<Expr>,
}

impl Parse for Source {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let source = input.parse()?;
        input.parse::<Token![,]>()?;
        let mut fallback = None;
        if input.peek(syn::Ident) {
            let word: Ident = input.parse()?;
            if word != "or" {
                return Err(syn::Error::new(word.span(), "expected `or`"));
            }
            input.parse::<Token![=]>()?;
            fallback = Some(input.parse()?);
            input.parse::<Token![,]>()?;
        }
        Ok(Self { source, fallback, shape: input.parse::<Shape>()?.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(input: DeriveInput) -> Result<LayoutItem, Vec<String>> {
        let mut diagnostics = Diagnostics::default();
        parse(&input, &mut diagnostics).ok_or_else(|| diagnostics.messages())
    }

    #[test]
    fn fields_say_what_they_are() {
        let item = parsed(syn::parse_quote! {
            struct Llama {
                #[weight("lm_head.weight", or = "embed.weight", [VOCAB, 2 * HIDDEN])] head: Weight,
                #[list(LAYERS)] layers: Vec<crate::Layer>,
                #[dim(HIDDEN / HEADS)] head_dim: usize,
                #[flag] tied: bool,
            }
        });
        let fields = item.unwrap_or_else(|messages| panic!("{messages:?}")).fields;
        assert!(
            matches!(&fields[0].kind, LayoutFieldKind::Weight { fallback: Some(_), shape, .. } if shape.len() == 2)
        );
        assert!(matches!(&fields[1].kind, LayoutFieldKind::List { element, .. } if element.segments.len() == 2));
        assert!(fields[1].inner().is_some() && fields[0].inner().is_none());
    }

    #[test]
    fn a_type_is_that_of_the_attribute() {
        let wrong = parsed(syn::parse_quote! {
            struct Llama {
                #[weight("a", [N])] a: State,
                #[state([N])] b: amk::Weight,
                #[param] c: f64,
                #[flag] d: u8,
                #[dim(N)] e: f32,
                #[table([N])] f: &Weight,
                #[list(N)] g: Vec<f32>,
            }
        });
        let messages = wrong.err().expect("rejected");
        let wanted = ["a: Weight", "b: State", "c: f32", "d: bool", "e: usize", "f: Weight"];
        assert_eq!(messages.len(), wanted.len() + 1, "{messages:#?}");
        for (message, wanted) in messages.iter().zip(wanted) {
            assert!(message.starts_with("AMK0908: `"), "{message}");
            assert!(message.ends_with(&format!("\nhelp: write `{wanted}`")), "{message}");
        }
        assert!(messages[6].starts_with("AMK0908: `f32` is not a struct"), "{}", messages[6]);
        let aliases = parsed(syn::parse_quote! {
            struct Llama {
                #[weight("a", [N])] a: Matrix,
                #[param] b: amk::Number,
            }
        });
        assert!(aliases.is_ok(), "another name may be an alias");
    }

    #[test]
    fn a_struct_within_is_named_without_arguments() {
        for field in ["#[list(N)] a: Vec<Vec<Node>>", "#[layout] a: Box<Node>", "#[layout] a: Node<'static>"] {
            let field: TokenStream = field.parse().expect("tokens");
            let messages = parsed(syn::parse_quote!(struct Net { #field })).err().expect("rejected");
            assert!(messages.len() == 1 && messages[0].starts_with("AMK0908: a layout's type is a struct by its name"));
        }
    }

    #[test]
    fn integers_may_be_written_in_any_form_of_rust() {
        let text = |tokens: &str| expr_text(&tokens.parse().expect("tokens"));
        assert_eq!(text("A * (0x10 + 1_000) /^ 0b11"), "A * (16 + 1000) /^ 3");
        assert_eq!(text("[16usize, 1.5, 1f32]"), "[16 , 1.5 , 1f32]");
    }

    #[test]
    fn a_struct_does_not_hold_itself() {
        for field in ["#[list(N)] a: Vec<Node>", "#[layout] a: Node", "#[list(N)] a: Vec<Self>"] {
            let field: TokenStream = field.parse().expect("tokens");
            let messages = parsed(syn::parse_quote!(struct Node { #field })).err().expect("rejected");
            assert!(messages.len() == 1 && messages[0].starts_with("AMK0909: `Node` holds itself"), "{messages:#?}");
        }
    }

    #[test]
    fn the_position_is_no_dim() {
        let field = |tokens: &str| tokens.parse::<TokenStream>().expect("tokens");
        for field in [field("#[state([pos + 1])] a: State"), field("#[dim(pos)] a: usize")] {
            let messages = parsed(syn::parse_quote!(struct Cache { #field })).err().expect("rejected");
            assert!(messages[0].starts_with("AMK0908: `pos` is the position"), "{messages:#?}");
        }
    }

    #[test]
    fn each_field_without_a_kind_is_reported() {
        let wrong = parsed(syn::parse_quote! {
            struct Llama {
                a: Weight,
                #[weight("b")] b: Weight,
                #[list(N)] c: Layer,
                #[flag] #[param] d: bool,
                #[flag(x)] e: bool,
            }
        });
        let messages = wrong.err().expect("rejected");
        assert_eq!(messages.len(), 5, "{messages:#?}");
        assert!(messages.iter().all(|message| message.starts_with("AMK0908") && message.contains("\nhelp: ")));
        assert!(
            parsed(syn::parse_quote!(
                struct L<T> {
                    #[flag]
                    x: bool,
                }
            ))
            .err()
            .expect("generic")[0]
                .starts_with("AMK0909")
        );
        assert!(
            parsed(syn::parse_quote!(
                struct L(u8);
            ))
            .err()
            .expect("tuple")[0]
                .starts_with("AMK0909")
        );
    }
}
