//! `#[instruction(..)]`: from the clauses and the function to a [`Signature`].

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::{list, suggestion};
use crate::origin::Origin;
use crate::parse::attribute::{Setting, crate_path, settings};
use crate::parse::clause::{self, ClauseError, Extents, ShapeClause, TaskClause};
use crate::parse::function::{By, Parameter, check_form, parameters, result_types};
use amk_ir::expr::Expr;
use amk_ir::signature::{ParamKind, ParamSig, ResultSig, Signature, Span, TensorClass};
use amk_ir::{Access, DType};
use proc_macro2::TokenStream;
use quote::ToTokens;
use std::collections::BTreeSet;
use syn::ext::IdentExt;
use syn::{ItemFn, LitStr, Path, Type};

const KEYS: [&str; 7] = ["op", "shape", "tile", "task", "multiples", "cuda", "crate"];

/// Macros that every module sees: a companion of that name would hide them, or be ambiguous with them.
const STD_MACROS: [&str; 40] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "bench",
    "cfg",
    "column",
    "compile_error",
    "concat",
    "dbg",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "derive",
    "env",
    "eprint",
    "eprintln",
    "file",
    "format",
    "format_args",
    "global_allocator",
    "include",
    "include_bytes",
    "include_str",
    "line",
    "matches",
    "module_path",
    "option_env",
    "panic",
    "print",
    "println",
    "stringify",
    "test",
    "thread_local",
    "todo",
    "unimplemented",
    "unreachable",
    "vec",
    "write",
    "writeln",
    "is_x86_feature_detected",
];

/// What the attribute and the function say together.
pub(crate) struct Instruction {
    /// The signature.
    pub(crate) signature: Signature,
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
    if STD_MACROS.contains(&name.as_str()) {
        let headline = format!("`{name}` is also the name of a macro of Rust, which the instruction would hide");
        diagnostics.push(Diagnostic::new("AMK0905", &function.sig.ident, headline, format!("rename it: `{name}_op`")));
    }
    let parameters = parameters(function, diagnostics);
    let settings = match settings(attribute, &KEYS, &[]) {
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
    let params: Vec<ParamSig> = parameters.iter().filter_map(|parameter| reader.parameter(parameter)).collect();
    let results = reader.results();
    reader.unknown_operands(&parameters);
    reader.names(&parameters);
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
    Some(Instruction { signature, cuda: clauses.cuda, krate })
}

/// The attribute's clauses, read, with the literals to point at.
struct Clauses {
    op: LitStr,
    shape: ShapeClause,
    shape_at: LitStr,
    task: TaskClause,
    task_at: LitStr,
    tiles: Vec<amk_ir::signature::TileSig>,
    multiples: Vec<(Expr, Expr)>,
    multiples_at: Option<LitStr>,
    cuda: Option<LitStr>,
}

impl Clauses {
    fn of(settings: &[Setting], function: &ItemFn) -> Result<Self, Diagnostic> {
        let text = |key: &str| settings.iter().find(|setting| setting.key == key).map(Setting::text).transpose();
        let required = |key: &str, form: &str| {
            text(key)?.ok_or_else(|| {
                let headline = format!("`#[instruction]` on `{}` has no `{key}`", function.sig.ident);
                Diagnostic::new("AMK0902", &function.sig.ident, headline, format!("add `{key} = \"{form}\"`"))
            })
        };
        let op = required("op", "name_of_the_micro_kernel")?;
        let shape_at = required("shape", "x: [N] -> y: [N]")?;
        let task_at = required("task", "y[..] <- x[..]")?;
        let (tile_at, multiples_at) = (text("tile")?, text("multiples")?);
        Ok(Self {
            op,
            shape: read(&shape_at, clause::shape, "x: [K], w: [N, K], size: D -> y: [N]")?,
            shape_at,
            task: read(&task_at, clause::task, "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..]")?,
            task_at,
            tiles: tile_at.map(|at| read(&at, clause::tiles, "T = 16")).transpose()?.unwrap_or_default(),
            multiples: multiples_at
                .as_ref()
                .map(|at| read(at, clause::multiples, "Q % D"))
                .transpose()?
                .unwrap_or_default(),
            multiples_at,
            cuda: text("cuda")?,
        })
    }
}

fn read<T>(literal: &LitStr, reader: fn(&str) -> Result<T, ClauseError>, form: &str) -> Result<T, Diagnostic> {
    let text = literal.value();
    reader(&text).map_err(|error| {
        let at =
            text.get(error.at..).map(|rest| rest.split_whitespace().next().unwrap_or_default()).unwrap_or_default();
        let place = if at.is_empty() { "at its end".to_owned() } else { format!("at `{at}`, byte {}", error.at) };
        let headline = format!("{} {place} of this clause", error.message);
        Diagnostic::new("AMK0903", literal, headline, format!("a clause reads like `{form}`"))
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
                let headline = format!("`{name}` is no tensor, but the shape clause lists it");
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
        self.rank(name, &shape, &region)?;
        Some(ParamKind::Tensor { class, access, shape, region })
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
            let headline = format!("the function returns {returned} results, but the shape clause lists {listed}");
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
        self.rank(name, shape, &region)?;
        Some(ResultSig { name: name.to_owned(), dtype, shape: shape.to_vec(), region })
    }

    /// Names in the clauses that are neither parameters nor results.
    fn unknown_operands(&mut self, parameters: &[Parameter<'_>]) {
        let clauses = self.clauses;
        let names: Vec<String> = parameters.iter().map(|parameter| parameter.name.unraw().to_string()).collect();
        let results: Vec<&str> = clauses.shape.results.iter().map(|(name, _)| name.as_str()).collect();
        let params: Vec<&str> = names.iter().map(String::as_str).collect();
        let all: Vec<&str> = params.iter().chain(&results).copied().collect();
        let listed = clauses.shape.params.iter().map(|(name, _)| (name, &clauses.shape_at, &params));
        let written = clauses.task.writes.iter().map(|(name, _)| (name, &clauses.task_at, &all));
        let read = clauses.task.reads.iter().map(|(name, _)| (name, &clauses.task_at, &params));
        for (name, at, known) in listed.chain(written).chain(read) {
            if !known.contains(&name.as_str()) {
                let help = suggestion(name, known.iter().copied());
                self.report(at, format!("`{name}` is no parameter of `{}`", self.function.sig.ident), help);
            }
        }
    }

    /// Every name in an expression has to be a dim that the operands bind, a tile, a grid variable or `pos`.
    fn names(&mut self, parameters: &[Parameter<'_>]) {
        let clauses = self.clauses;
        let bound = bound_dims(&clauses.shape);
        let tiles = clauses.tiles.iter().map(|tile| tile.name.clone());
        let steps: BTreeSet<String> = bound.iter().cloned().chain(tiles).collect();
        let mut inner: BTreeSet<String> =
            steps.iter().cloned().chain(clauses.task.grid.iter().map(|g| g.var.clone())).collect();
        if parameters.iter().any(|parameter| parameter.type_name() == "Pos") {
            inner.insert("pos".to_owned());
        }
        let shapes = clauses.shape.params.iter().flat_map(|(_, extents)| match extents {
            Extents::Shape(shape) => shape.as_slice(),
            Extents::Size(size) => std::slice::from_ref(size),
        });
        let shapes: Vec<&Expr> = shapes.chain(clauses.shape.results.iter().flat_map(|(_, shape)| shape)).collect();
        self.check_names(&shapes, &bound, &clauses.shape_at, &mut BTreeSet::new());
        let mut said = BTreeSet::new();
        let grid: Vec<&Expr> = clauses.task.grid.iter().flat_map(|grid| [&grid.extent, &grid.step]).collect();
        self.check_names(&grid, &steps, &clauses.task_at, &mut said);
        let spans = clauses.task.writes.iter().chain(&clauses.task.reads).flat_map(|(_, spans)| spans);
        let bounds: Vec<&Expr> = spans
            .flat_map(|span| match span {
                Span::Full => Vec::new(),
                Span::Range { lo, hi } => vec![lo, hi],
            })
            .collect();
        self.check_names(&bounds, &inner, &clauses.task_at, &mut said);
        if let Some(at) = &clauses.multiples_at {
            let both: Vec<&Expr> = clauses.multiples.iter().flat_map(|(of, by)| [of, by]).collect();
            self.check_names(&both, &bound, at, &mut BTreeSet::new());
        }
    }

    /// Reports the names that are not `known`, each once a clause.
    fn check_names(&mut self, exprs: &[&Expr], known: &BTreeSet<String>, at: &LitStr, said: &mut BTreeSet<String>) {
        let mut unknown = BTreeSet::new();
        for expr in exprs {
            expr.names(&mut |name| {
                if !known.contains(name) && said.insert(name.to_owned()) {
                    unknown.insert(name.to_owned());
                }
            });
        }
        let in_task = at.value() == self.clauses.task_at.value();
        for name in unknown {
            let (headline, help) = match name.as_str() {
                "pos" => (
                    "the task depends on `pos`, but the function has no parameter `pos: Pos`".to_owned(),
                    "add the parameter `pos: Pos`".to_owned(),
                ),
                _ if in_task => (
                    format!("nothing gives `{name}` a value in the task clause"),
                    format!(
                        "declare it as a tile: `tile = \"{name} = 16\"`, or use one of {}",
                        list(known.iter().map(String::as_str))
                    ),
                ),
                _ => (
                    format!("nothing gives `{name}` a value in this clause"),
                    format!("make `{name}` an extent of an operand: `x: [{name}]`"),
                ),
            };
            self.diagnostics.push(Diagnostic::new("AMK0906", at, headline, help));
        }
    }
}

/// The dims that stand alone as an extent of an operand or as a size: a call gives them values.
fn bound_dims(shape: &ShapeClause) -> BTreeSet<String> {
    let exprs = shape.params.iter().flat_map(|(_, extents)| match extents {
        Extents::Shape(shape) => shape.as_slice(),
        Extents::Size(size) => std::slice::from_ref(size),
    });
    exprs
        .filter_map(|expr| match expr {
            Expr::Name(name) => Some(name.clone()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    fn origin() -> Origin {
        Origin { crate_name: "amk_kernels".into(), file: "amk-kernels/src/ops.rs".into(), line: 3, column: 1 }
    }

    fn signature(attribute: TokenStream, function: TokenStream) -> Result<Signature, Vec<String>> {
        let function: ItemFn = syn::parse2(function).expect("a function");
        let mut diagnostics = Diagnostics::default();
        let parsed = parse(&origin(), attribute, &function, &mut diagnostics);
        parsed.map(|instruction| instruction.signature).ok_or_else(|| diagnostics.messages())
    }

    fn first(attribute: TokenStream, function: TokenStream) -> String {
        signature(attribute, function).expect_err("rejected").remove(0)
    }

    #[test]
    fn a_signature_is_read_from_clauses_and_types() {
        let found = signature(
            quote!(
                op = "attention",
                shape = "q: [Q], k: [G, C, D] -> y: [Q]",
                multiples = "Q % D",
                task = "h in 0..Q step D: y[h..h+D] <- q[h..h+D], k[h*G/Q..h*G/Q+1, 0..pos+1, ..]",
                cuda = "a.cuh"
            ),
            quote!(
                pub fn attention(q: &Tensor, k: &State, scale: f32, pos: amk::Pos) -> Tensor {
                    todo!()
                }
            ),
        )
        .expect("a signature");
        assert_eq!((found.path.as_str(), found.op.as_str()), ("amk_kernels::attention", "attention"));
        assert_eq!(found.declared_at, "amk-kernels/src/ops.rs:3");
        assert!(matches!(
            found.params[1].kind,
            ParamKind::Tensor { class: TensorClass::State, access: Access::Read, .. }
        ));
        assert_eq!((&found.params[2].kind, &found.params[3].kind), (&ParamKind::Float, &ParamKind::Pos));
        assert_eq!((found.results.len(), found.grid.len(), found.cuda.as_deref()), (1, 1, Some("a.cuh")));
    }

    #[test]
    fn a_mutable_state_is_left_of_the_arrow() {
        let shape = "cache: [G, C, D], x: [G*D]";
        let append = |cache: TokenStream, task: &str| {
            signature(
                quote!(op = "a", shape = #shape, task = #task),
                quote!(fn append(cache: #cache, x: &Tensor, pos: Pos) {}),
            )
        };
        let task = "g in 0..G step 1: cache[g..g+1, pos..pos+1, ..] <- x[g*D..(g+1)*D]";
        assert!(append(quote!(&mut State), task).is_ok());
        assert!(append(quote!(&State), task).expect_err("not mut")[0].starts_with("AMK0907"));
        assert!(append(quote!(&mut State), "x[..] <- cache[.., .., ..]").expect_err("sides")[0].starts_with("AMK0907"));
    }

    #[test]
    fn what_disagrees_is_reported() {
        let f = quote!(
            fn double(x: &Tensor) -> Tensor {
                todo!()
            }
        );
        let cases = [
            ("AMK0902", quote!(op = "d", shape = "x: [N] -> y: [N]")),
            ("AMK0902", quote!(op = "d", shap = "x: [N] -> y: [N]", task = "y[..] <- x[..]")),
            ("AMK0903", quote!(op = "d", shape = "x: [N -> y: [N]", task = "y[..] <- x[..]")),
            ("AMK0904", quote!(op = "d", shape = "z: [N] -> y: [N]", task = "y[..] <- x[..]")),
            ("AMK0904", quote!(op = "d", shape = "x: [N]", task = "y[..] <- x[..]")),
            ("AMK0904", quote!(op = "d", shape = "x: [N] -> y: [N]", task = "y[..] <- x[.., ..]")),
            ("AMK0906", quote!(op = "d", shape = "x: [N] -> y: [M]", task = "y[..] <- x[..]")),
            ("AMK0906", quote!(op = "d", shape = "x: [N] -> y: [N]", task = "n in 0..N step T: y[n..n+T] <- x[..]")),
            ("AMK0906", quote!(op = "d", shape = "x: [N] -> y: [N]", task = "y[0..pos] <- x[..]")),
        ];
        for (code, attribute) in cases {
            let message = first(attribute, f.clone());
            assert!(message.starts_with(code) && message.contains("\nhelp: "), "{code}: {message}");
        }
        let good = quote!(op = "d", shape = "x: [N] -> y: [N]", task = "y[..] <- x[..]");
        for (code, function) in [
            (
                "AMK0901",
                quote!(
                    fn d<T>(x: &Tensor) -> Tensor {}
                ),
            ),
            (
                "AMK0901",
                quote!(
                    async fn d(x: &Tensor) -> Tensor {}
                ),
            ),
            (
                "AMK0901",
                quote!(
                    unsafe fn d(x: &Tensor) -> Tensor {}
                ),
            ),
            (
                "AMK0904",
                quote!(
                    fn d(x: Tensor) -> Tensor {}
                ),
            ),
            (
                "AMK0904",
                quote!(
                    fn d(x: &Tensor) -> f32 {}
                ),
            ),
            (
                "AMK0905",
                quote!(
                    fn concat(x: &Tensor) -> Tensor {}
                ),
            ),
        ] {
            assert!(first(good.clone(), function).starts_with(code), "{code}");
        }
    }
}
