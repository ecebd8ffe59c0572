//! The clauses of the attribute, read, with the literals to point at.

use crate::diag::Diagnostic;
use crate::parse::attribute::Setting;
use crate::parse::clause::{self, ClauseError, ShapeClause, TaskClause};
use amk_ir::expr::Expr;
use amk_ir::signature::TileSig;
use syn::{ItemFn, LitStr, Path};

/// The attribute's clauses, read, with the literals to point at.
pub(super) struct Clauses {
    pub(super) op: LitStr,
    pub(super) shape: ShapeClause,
    pub(super) shape_at: LitStr,
    pub(super) task: TaskClause,
    pub(super) task_at: LitStr,
    pub(super) tiles: Vec<TileSig>,
    pub(super) tile_at: Option<LitStr>,
    pub(super) multiples: Vec<(Expr, Expr)>,
    pub(super) multiples_at: Option<LitStr>,
    pub(super) rows: Option<(LitStr, Path)>,
    pub(super) cuda: Option<LitStr>,
}

impl Clauses {
    pub(super) fn of(settings: &[Setting], function: &ItemFn) -> Result<Self, Diagnostic> {
        let text = |key: &str| settings.iter().find(|setting| setting.key == key).map(Setting::text).transpose();
        let required = |key: &str, form: &str| {
            text(key)?.ok_or_else(|| {
                let headline = format!("`#[instruction]` on `{}` has no `{key}`", function.sig.ident);
                Diagnostic::new("AMK0902", &function.sig.ident, headline, format!("add `{key} = \"{form}\"`"))
            })
        };
        let op = required("op", "name_of_the_micro_kernel")?;
        if op.value().is_empty() || op.value().contains(|c: char| c.is_whitespace() || c.is_control()) {
            let help = "write a name without blanks: `op = \"name_of_the_micro_kernel\"`";
            return Err(Diagnostic::new("AMK0902", &op, "an `op` is a name", help));
        }
        let shape_at = required("shape", "x: [N] -> y: [N]")?;
        let task_at = required("task", "y[..] <- x[..]")?;
        let (tile_at, multiples_at) = (text("tile")?, text("multiples")?);
        Ok(Self {
            op,
            shape: read(&shape_at, clause::shape, "x: [K], w: [N, K], size: D -> y: [N]")?,
            shape_at,
            task: read(&task_at, clause::task, "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]")?,
            task_at,
            tiles: tile_at.as_ref().map(|at| read(at, clause::tiles, "T = 16")).transpose()?.unwrap_or_default(),
            tile_at,
            multiples: multiples_at
                .as_ref()
                .map(|at| read(at, clause::multiples, "Q % D"))
                .transpose()?
                .unwrap_or_default(),
            multiples_at,
            rows: text("rows")?.map(rows_function).transpose()?,
            cuda: text("cuda")?,
        })
    }
}

/// The function for several rows.
fn rows_function(at: LitStr) -> Result<(LitStr, Path), Diagnostic> {
    let path = at.parse().map_err(|_| {
        let help = "write `rows = \"linear_rows\"`, with a function of the same parameters";
        Diagnostic::new("AMK0903", &at, format!("`{}` is not the path of a function", at.value()), help)
    })?;
    Ok((at, path))
}

/// Characters of a clause that a message repeats at most.
const MOST_SHOWN: usize = 40;

fn read<T>(literal: &LitStr, reader: fn(&str) -> Result<T, ClauseError>, form: &str) -> Result<T, Diagnostic> {
    let text = literal.value();
    reader(&text).map_err(|error| {
        let at = text.get(error.at..).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
        let place = match at.char_indices().nth(MOST_SHOWN) {
            _ if at.is_empty() => "at the end".to_owned(),
            Some((end, _)) => format!("at `{}..`, byte {}", &at[..end], error.at),
            None => format!("at `{at}`, byte {}", error.at),
        };
        let headline = format!("{} {place} of this clause", error.message);
        Diagnostic::new("AMK0903", literal, headline, format!("a clause reads like `{form}`"))
    })
}
