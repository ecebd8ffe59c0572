//! `#[instruction(..)]`: from the clauses and the function to a [`Signature`].

mod clauses;
mod names;

use crate::diag::{Diagnostic, Diagnostics};
use crate::origin::Origin;
use crate::parse::attribute::{crate_path, settings};
use crate::parse::clause::Extents;
use crate::parse::function::{By, Parameter, check_form, parameters, repeated, result_types};
use amk_ir::expr::Expr;
use amk_ir::signature::{ParamKind, ParamSig, ResultSig, Signature, Span, TensorClass};
use amk_ir::{Access, DType};
use clauses::Clauses;
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{ItemFn, LitStr, Path, Type};

const KEYS: [&str; 8] = ["op", "shape", "tile", "task", "multiples", "rows", "cuda", "crate"];

/// Macros that every module sees: a companion of that name would hide them, or be ambiguous with
/// them.
const STD_MACROS: &str = "assert assert_eq assert_ne bench cfg column compile_error concat dbg \
    debug_assert debug_assert_eq \
    debug_assert_ne derive env eprint eprintln file format format_args global_allocator include include_bytes \
    include_str is_x86_feature_detected line matches module_path option_env panic print println stringify test \
    thread_local todo unimplemented unreachable vec write writeln";

/// An instruction, as declared by the attribute and the function together.
pub(crate) struct Instruction {
    /// The signature.
    pub(crate) signature: Signature,
    /// The function for several rows at once.
    pub(crate) rows: Option<Path>,
    /// The CUDA body's file, as written.
    pub(crate) cuda: Option<LitStr>,
    /// The amk crate.
    pub(crate) krate: Path,
}

/// Reads an instruction; `None` where something was reported.
pub(crate) fn parse(
    origin: &Origin,
    attribute: TokenStream,
    function: &ItemFn,
    diagnostics: &mut Diagnostics,
) -> Option<Instruction> {
    check_form(function, "instruction", diagnostics);
    let name = function.sig.ident.unraw().to_string();
    if STD_MACROS.split_whitespace().any(|known| known == name) {
        let headline = format!("`{name}` is also the name of a macro of Rust, which the instruction would hide");
        diagnostics.push(Diagnostic::new("AMK0905", &function.sig.ident, headline, format!("rename it: `{name}_op`")));
    }
    let parameters = parameters(function, diagnostics);
    let settings = match settings(attribute, &KEYS) {
        Ok(settings) => settings,
        Err(wrong) => {
            wrong.into_iter().for_each(|one| diagnostics.push(one));
            return None;
        }
    };
    let clauses = diagnostics.keep(Clauses::of(&settings, function))?;
    let krate = diagnostics.keep(crate_path(&settings))?;
    let mut reader = Reader { function, clauses: &clauses, diagnostics };
    let parameters = parameters?;
    reader.one_position(&parameters);
    let params: Vec<ParamSig> = parameters.iter().filter_map(|parameter| reader.parameter(parameter)).collect();
    let results = reader.results();
    reader.unknown_operands(&parameters);
    reader.reserved_names(&parameters);
    reader.names(&parameters);
    reader.tiles();
    reader.rows(&params, &results);
    if !diagnostics.is_empty() {
        return None;
    }
    let signature = Signature {
        path: format!("{}::{name}", origin.crate_name),
        name,
        op: clauses.op.value(),
        declared_at: origin.declared_at(),
        params,
        results,
        tiles: clauses.tiles.clone(),
        grid: clauses.task.grid.clone(),
        multiples: clauses.multiples.clone(),
        cuda: clauses.cuda.as_ref().map(LitStr::value),
    };
    let findings = amk_ir::symbolic::check(&signature);
    for finding in &findings {
        diagnostics.push(Diagnostic::of(finding, &clauses.task_at));
    }
    findings.is_empty().then_some(Instruction {
        signature,
        rows: clauses.rows.map(|(_, path)| path),
        cuda: clauses.cuda,
        krate,
    })
}

struct Reader<'a> {
    function: &'a ItemFn,
    clauses: &'a Clauses,
    diagnostics: &'a mut Diagnostics,
}

impl Reader<'_> {
    fn report(&mut self, tokens: impl ToTokens, headline: String, help: String) {
        self.diagnostics.push(Diagnostic::new("AMK0904", tokens, headline, help));
    }

    /// A step has one position.
    fn one_position(&mut self, parameters: &[Parameter<'_>]) {
        let positions = parameters.iter().filter(|parameter| parameter.type_name() == "Pos");
        for (name, headline, help) in repeated(positions, "Pos", "position") {
            self.report(name, headline, help);
        }
    }

    /// A function for several rows has one of each operand: tensors of all rows, or weights.
    fn rows(&mut self, params: &[ParamSig], results: &[ResultSig]) {
        let Some((at, _)) = &self.clauses.rows else { return };
        let stacks = |param: &ParamSig| match param.kind {
            ParamKind::Tensor { class, .. } => matches!(class, TensorClass::Tensor | TensorClass::Weight),
            ParamKind::Float | ParamKind::Dim(_) => true,
            ParamKind::Pos => false,
        };
        let is_tensor = |result: &ResultSig| result.dtype != DType::U32;
        if let Some(param) = params.iter().find(|param| !stacks(param)) {
            let headline = format!("`{}` differs from row to row, so there is no function for several", param.name);
            let help = "only instructions of tensors, weights, floats and dims have one; leave out `rows`";
            self.report(at.clone(), headline, help.to_owned());
        } else if !results.iter().all(is_tensor) {
            let help = "only instructions whose results are tensors have one; leave out `rows`";
            self.report(at.clone(), "a token of each row is not a tensor".to_owned(), help.to_owned());
        }
    }

    fn parameter(&mut self, parameter: &Parameter<'_>) -> Option<ParamSig> {
        let name = parameter.name.unraw().to_string();
        let (type_name, by) = (parameter.type_name(), parameter.by);
        let class = match (type_name.as_str(), by) {
            ("Tensor", By::Reference) => Some(TensorClass::Tensor),
            ("Weight", By::Reference) => Some(TensorClass::Weight),
            ("State", By::Reference | By::Mutable) => Some(TensorClass::State),
            ("Token", By::Value | By::Reference) => Some(TensorClass::Token),
            ("f32" | "usize" | "Pos", By::Value) => None,
            _ => {
                let headline = format!("`{name}` has a type that an instruction does not take");
                let help = "use `&Tensor`, `&Weight`, `&State`, `&mut State`, `Token`, `f32`, `usize` or `Pos`";
                self.report(parameter.ty, headline, help.to_owned());
                return None;
            }
        };
        let listed =
            self.clauses.shape.params.iter().find(|(listed, _)| *listed == name).map(|(_, extents)| extents.clone());
        let kind = match (class, listed) {
            (Some(class), Some(Extents::Shape(shape))) => self.tensor(parameter, &name, class, shape)?,
            (None, Some(Extents::Size(size))) if type_name == "usize" => ParamKind::Dim(size),
            (None, None) if type_name == "f32" => ParamKind::Float,
            (None, None) if type_name == "Pos" => ParamKind::Pos,
            (Some(_), _) => {
                self.report(
                    parameter.name,
                    format!("the shape clause gives `{name}` no shape"),
                    format!("add `{name}: [N]` to it"),
                );
                return None;
            }
            (None, None) => {
                let headline = format!("the shape clause does not say which dim `{name}` is");
                self.report(parameter.name, headline, format!("add `{name}: D` to it"));
                return None;
            }
            (None, Some(_)) => {
                let headline = format!("`{name}` is not a tensor, but the shape clause lists it");
                let help = if type_name == "usize" {
                    format!("write `{name}: D`")
                } else {
                    format!("remove `{name}` from the clause")
                };
                self.report(self.clauses.shape_at.clone(), headline, help);
                return None;
            }
        };
        Some(ParamSig { name, kind })
    }

    fn tensor(
        &mut self,
        parameter: &Parameter<'_>,
        name: &str,
        class: TensorClass,
        shape: Vec<Expr>,
    ) -> Option<ParamKind> {
        let clauses = self.clauses;
        let find = |side: &[(String, Vec<Span>)]| {
            side.iter().find(|(listed, _)| listed == name).map(|(_, spans)| spans.clone())
        };
        let (written, read) = (find(&clauses.task.writes), find(&clauses.task.reads));
        let access = match (&written, &read) {
            (None, None) => {
                let headline = format!("the task clause does not say what it does with `{name}`");
                self.report(&clauses.task_at, headline, format!("add `{name}[..]` right of `<-`"));
                return None;
            }
            (Some(a), Some(b)) if a != b => {
                let headline = format!("the task reads and writes different regions of `{name}`");
                self.report(&clauses.task_at, headline, format!("give `{name}` the same region on both sides of `<-`"));
                return None;
            }
            (Some(_), Some(_)) => Access::Update,
            (Some(_), None) => Access::Write,
            (None, Some(_)) => Access::Read,
        };
        if access.writes() != (parameter.by == By::Mutable) {
            let (headline, help) = if access.writes() {
                (
                    format!("the task clause writes `{name}`, which the function cannot"),
                    format!("pass it as `{name}: &mut State`"),
                )
            } else {
                (
                    format!("`{name}` is `&mut`, but the task clause only reads it"),
                    format!("name `{name}` left of `<-` too"),
                )
            };
            self.diagnostics.push(Diagnostic::new("AMK0907", parameter.ty, headline, help));
            return None;
        }
        let region = written.or(read).unwrap_or_default();
        if class == TensorClass::Token {
            self.one_token(name, &shape)?;
        }
        self.rank(name, &shape, &region)?;
        Some(ParamKind::Tensor { class, access, shape, region })
    }

    /// A function takes and returns tokens one by one.
    fn one_token(&mut self, name: &str, shape: &[Expr]) -> Option<()> {
        if shape == [Expr::Const(1)] {
            return Some(());
        }
        let headline = format!("`{name}` is one `Token`, but the shape clause gives it another shape");
        self.report(self.clauses.shape_at.clone(), headline, format!("write `{name}: [1]`"));
        None
    }

    fn rank(&mut self, name: &str, shape: &[Expr], region: &[Span]) -> Option<()> {
        if shape.len() == region.len() {
            return Some(());
        }
        let headline =
            format!("`{name}` has {} dimensions, but its region in the task clause has {}", shape.len(), region.len());
        let full = vec![".."; shape.len()].join(", ");
        self.report(
            self.clauses.task_at.clone(),
            headline,
            format!("write one interval a dimension: `{name}[{full}]`"),
        );
        None
    }

    fn results(&mut self) -> Vec<ResultSig> {
        let clauses = self.clauses;
        let types = result_types(&self.function.sig.output);
        if types.len() != clauses.shape.results.len() {
            let (returned, listed) = (types.len(), clauses.shape.results.len());
            let noun = if returned == 1 { "result" } else { "results" };
            let headline = format!("the function returns {returned} {noun}, but the shape clause lists {listed}");
            let help = match returned {
                0 => "remove `-> ..` from the clause".to_owned(),
                1 => "end the clause with `-> y: [N]`".to_owned(),
                _ => "end the clause with `-> (a: [N], b: [M])`".to_owned(),
            };
            self.report(&clauses.shape_at, headline, help);
            return Vec::new();
        }
        let pairs = clauses.shape.results.iter().zip(types);
        pairs.filter_map(|((name, shape), ty)| self.result(name, shape, ty)).collect()
    }

    fn result(&mut self, name: &str, shape: &[Expr], ty: &Type) -> Option<ResultSig> {
        let last = match ty {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        let dtype = match last.as_deref() {
            Some("Tensor") => DType::F32,
            Some("Token") => DType::U32,
            _ => {
                let headline = format!("result `{name}` has a type that an instruction does not return");
                self.report(ty, headline, "return `Tensor` or `Token`, or a tuple of them".to_owned());
                return None;
            }
        };
        let written =
            self.clauses.task.writes.iter().find(|(listed, _)| listed == name).map(|(_, spans)| spans.clone());
        let Some(region) = written else {
            let headline = format!("the task clause does not say which part of result `{name}` a task writes");
            self.report(self.clauses.task_at.clone(), headline, format!("add `{name}[..]` left of `<-`"));
            return None;
        };
        if dtype == DType::U32 {
            self.one_token(name, shape)?;
        }
        self.rank(name, shape, &region)?;
        Some(ResultSig { name: name.to_owned(), dtype, shape: shape.to_vec(), region })
    }
}

#[cfg(test)]
mod tests;
