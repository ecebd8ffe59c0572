//! `where(Q % HEAD_DIM, KV == KV_HEADS * HEAD_DIM)`: declared facts about the dims.

use crate::diag::{Diagnostic, Diagnostics};
use crate::parse::attribute::{Setting, up_to_comma};
use crate::parse::kernel::known_dims;
use crate::parse::layout::expr_text;
use amk_ir::expr::{Expr, Op};
use proc_macro2::{Ident, TokenStream};
use syn::Token;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;

/// Names and operations of a dim with all equalities put in.
const MOST_OF_EQUALITIES: usize = 4096;

/// `KV == KV_HEADS * HEAD_DIM`
pub(crate) struct Equality {
    /// The dim.
    pub(crate) dim: String,
    /// The expression that it equals.
    pub(crate) value: Expr,
}

/// Multiples and equalities.
type Facts = (Vec<(Expr, Expr)>, Vec<Equality>);

/// `where(Q % HEAD_DIM, KV == KV_HEADS * HEAD_DIM)`
pub(crate) fn facts(setting: &Setting, dims: &[Ident], diagnostics: &mut Diagnostics) -> Facts {
    let Some(tokens) = diagnostics.keep(setting.list("where(Q % HEAD_DIM, KV == KV_HEADS * HEAD_DIM)")) else {
        return Facts::default();
    };
    let parser = Punctuated::<FactTokens, Token![,]>::parse_terminated;
    let (mut multiples, mut equalities) = Facts::default();
    match parser.parse2(tokens.clone()) {
        Err(error) => {
            diagnostics.push(Diagnostic::syntax("AMK0933", &error, "write `A % B` or `A == B`, separated by commas"))
        }
        Ok(facts) => {
            for fact in facts {
                match diagnostics.keep(fact.read(dims)) {
                    Some(Fact::Multiple(of, by)) => multiples.push((of, by)),
                    Some(Fact::Equality(equality)) => {
                        multiples
                            .extend(factors(&equality.value).into_iter().map(|by| (Expr::name(&equality.dim), by)));
                        equalities.push(equality);
                    }
                    None => {}
                }
            }
        }
    }
    diagnostics.keep(short(&equalities, setting));
    (multiples, equalities)
}

/// Later equalities substitute into earlier ones, so their combined length is bounded.
fn short(equalities: &[Equality], setting: &Setting) -> Result<(), Diagnostic> {
    let long = equalities.iter().find(|first| {
        let put_in = |value: Expr, next: &Equality| {
            let value = value.substitute(&|name| (name == next.dim).then(|| next.value.clone()));
            (value.size() <= MOST_OF_EQUALITIES).then_some(value)
        };
        equalities.iter().try_fold(Expr::name(&first.dim), put_in).is_none()
    });
    long.map_or(Ok(()), |equality| {
        let headline = format!(
            "`{}` has over {MOST_OF_EQUALITIES} names and operations when the other equalities are put in",
            equality.dim
        );
        Err(Diagnostic::new("AMK0933", &setting.key, headline, "declare fewer equalities of equalities"))
    })
}

/// The factors of a product.
fn factors(expr: &Expr) -> Vec<Expr> {
    match expr {
        Expr::Binary(Op::Mul, a, b) => [factors(a), factors(b)].concat(),
        other => vec![other.clone()],
    }
}

enum Fact {
    Multiple(Expr, Expr),
    Equality(Equality),
}

/// The tokens of a declared fact.
struct FactTokens(TokenStream);

impl Parse for FactTokens {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        up_to_comma(input).map(Self)
    }
}

impl FactTokens {
    fn read(&self, dims: &[Ident]) -> Result<Fact, Diagnostic> {
        let text = expr_text(&self.0);
        let wrong = |help: &str| {
            Err(Diagnostic::new(
                "AMK0933",
                &self.0,
                format!("`{text}` is neither a multiple nor an equality of dims"),
                help,
            ))
        };
        let expr = |text: &str| Expr::parse(text.trim()).ok().filter(|expr| !expr.divides_by_zero());
        if let Some((left, right)) = text.split_once("==") {
            return match (expr(left), expr(right)) {
                (Some(Expr::Name(dim)), Some(value)) | (Some(value), Some(Expr::Name(dim))) => {
                    self.declared(&[&Expr::name(&dim), &value], dims)?;
                    Ok(Fact::Equality(Equality { dim, value }))
                }
                _ => wrong("write a dim on one side: `KV == KV_HEADS * HEAD_DIM`"),
            };
        }
        match expr(&text) {
            Some(Expr::Binary(Op::Rem, of, by)) => {
                self.declared(&[&of, &by], dims)?;
                Ok(Fact::Multiple(*of, *by))
            }
            _ => wrong("write `Q % HEAD_DIM`: Q is a multiple of HEAD_DIM"),
        }
    }

    fn declared(&self, exprs: &[&Expr], dims: &[Ident]) -> Result<(), Diagnostic> {
        exprs.iter().try_for_each(|expr| known_dims(expr, dims, &self.0))
    }
}
