//! Shapes for all dims: every call's operands against its instruction's signature, symbolically.
//!
//! A signature's own dims are bound by unification with the arguments' shapes; the remaining
//! extents are compared by normal form. A required multiple (`Q % D`) must follow from the shapes
//! themselves or from the function's `where(..)`.

use crate::expr::{Expr, Op};
use crate::graph::{Arg, CallNode, Graph, KernelParamKind, Node};
use crate::graph_error::GraphError;
use crate::layout::{FieldKind, FieldPath, Layout, PathStep};
use crate::signature::{ParamKind, Signature, TensorClass};
use crate::unify::{Extent, Unequal, broken_multiples, unify};
use crate::{DType, ValueId};
use std::collections::BTreeMap;

/// Names and operations of an extent at most: extents of extents grow with each call.
const MOST_OF_EXTENT: usize = 4096;

/// Checks every call and fills in the shapes of the graph's values. All findings are returned.
pub fn check(graph: &mut Graph) -> Vec<GraphError> {
    let mut checker = Checker { graph, shapes: vec![None; graph.values.len()], errors: Vec::new(), joined: Vec::new() };
    for (value, shape) in checker.shapes.iter_mut().zip(graph.values.iter()) {
        *value = (!shape.shape.is_empty()).then(|| shape.shape.clone());
    }
    for param in &graph.params {
        if let KernelParamKind::Token(value) = param.kind {
            checker.set(value, vec![Expr::Const(1)]);
        }
    }
    checker.nodes(&graph.body);
    let Checker { shapes, errors, .. } = checker;
    for (value, shape) in graph.values.iter_mut().zip(shapes) {
        value.shape = shape.unwrap_or_default();
    }
    errors
}

/// The dims of a signature bound to expressions over the graph's dims, for one call.
pub type Bindings = BTreeMap<String, Expr>;

struct Checker<'g> {
    graph: &'g Graph,
    shapes: Vec<Option<Vec<Expr>>>,
    errors: Vec<GraphError>,
    /// The values to which the first branch of the enclosing `if` has given a shape.
    joined: Vec<bool>,
}

impl Checker<'_> {
    fn set(&mut self, value: ValueId, shape: Vec<Expr>) {
        if let Some(slot) = self.shapes.get_mut(value.index()) {
            *slot = Some(shape);
        }
    }

    fn shape(&self, value: ValueId) -> Option<&Vec<Expr>> {
        self.shapes.get(value.index())?.as_ref()
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Call(call) => self.call(call),
                Node::Bind { site, to, from } => {
                    if let Some(shape) = self.shape(*from).cloned() {
                        self.assign(*to, shape, *site);
                    }
                }
                Node::Loop { body, .. } => self.nodes(body),
                Node::If { then, otherwise, .. } => {
                    let known: Vec<bool> = self.shapes.iter().map(Option::is_some).collect();
                    self.nodes(then);
                    // Variables to which the first branch has given a shape are the `if`'s own
                    // values.
                    let joined = self.shapes.iter().zip(known).map(|(shape, known)| !known && shape.is_some());
                    let joined = joined.collect();
                    let outer = std::mem::replace(&mut self.joined, joined);
                    self.nodes(otherwise);
                    self.joined = outer;
                }
            }
        }
    }

    fn assign(&mut self, to: ValueId, shape: Vec<Expr>, site: u32) {
        match self.shape(to) {
            Some(old) if !same_shape(old, &shape) => {
                let (name, old, new) = (self.variable(to), show(old), show(&shape));
                let (headline, help) = match self.joined.get(to.index()) {
                    Some(true) => (
                        format!("the branches of an `if` have the shapes `{old}` and `{new}`"),
                        format!("end both branches with a value of the shape `{old}`"),
                    ),
                    _ => (
                        format!("this changes the shape of `{name}` from `{old}` to `{new}`"),
                        format!("bind what has the shape `{new}` to a new variable"),
                    ),
                };
                self.errors.push(GraphError::new("AMK0605", headline, help).at(site));
            }
            Some(_) => {}
            None => self.set(to, shape),
        }
    }

    /// The user's name of a value: one that another value has already carries a number, as in
    /// `x.2`.
    fn variable(&self, value: ValueId) -> &str {
        let name = self.graph.values.get(value.index()).map_or("", |value| value.name.as_str());
        let numbered = name.rsplit_once('.').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let taken = |base: &str| self.graph.values.iter().any(|value| value.name == base);
        numbered.map_or(name, |(base, _)| if taken(base) { base } else { name })
    }

    fn call(&mut self, call: &CallNode) {
        let Some(signature) = self.graph.signatures.get(call.signature as usize) else { return };
        if call.args.len() != signature.params.len() {
            self.errors.push(
                GraphError::new(
                    "AMK0604",
                    format!(
                        "`{}` takes {} arguments, found {}",
                        signature.name,
                        signature.params.len(),
                        call.args.len()
                    ),
                    format!("pass `{}`", parameter_list(signature)),
                )
                .at(call.site),
            );
            return;
        }
        let mut extents = Vec::new();
        for (position, (param, arg)) in signature.params.iter().zip(&call.args).enumerate() {
            match self.operand(&param.kind, arg) {
                Ok(found) => {
                    extents.extend(found.into_iter().map(|(want, have, dim)| Extent { position, dim, want, have }))
                }
                Err(Mismatch { expected, found, help }) => {
                    let error = GraphError::new(
                        "AMK0603",
                        format!("`{}` of `{}` is {expected}, found {found}", param.name, signature.name),
                        help,
                    )
                    .note(format!("declared at {}", signature.declared_at));
                    self.errors.push(error.at(call.site).arg(position));
                }
            }
        }
        let before = self.errors.len();
        let bound = self.unify(signature, call, extents);
        if self.errors.len() == before {
            self.multiples(signature, call, &bound);
        }
        for (result, to) in signature.results.iter().zip(&call.results) {
            let shape: Vec<Expr> = result.shape.iter().map(|e| substitute(e, &bound)).collect();
            if let Some(extent) = shape.iter().find(|extent| extent.size() > MOST_OF_EXTENT) {
                let (of, size) = (&signature.name, extent.size());
                let headline =
                    format!("an extent of a result of `{of}` is an expression of {size} names and operations");
                let help = "name the extent: give it a dim in `dims(..)` and pass it in";
                self.errors.push(GraphError::new("AMK0616", headline, help).at(call.site));
                continue;
            }
            self.assign(*to, shape, call.site);
        }
    }

    /// The pairs (signature's expression, actual expression, dimension) of an argument.
    fn operand(&self, kind: &ParamKind, arg: &Arg) -> Result<Vec<(Expr, Expr, Option<usize>)>, Mismatch> {
        let (class, shape) = match kind {
            ParamKind::Tensor { class, shape, .. } => (*class, shape),
            ParamKind::Float => return self.float(arg),
            ParamKind::Dim(want) => {
                return Ok(self.dim(arg)?.map(|have| (want.clone(), have, None)).into_iter().collect());
            }
            ParamKind::Pos if matches!(arg, Arg::Pos) => return Ok(Vec::new()),
            ParamKind::Pos => return Err(Mismatch::of("the position", arg)),
        };
        let expected = class.described();
        let actual = match arg {
            Arg::Value(value) => {
                let info = self.graph.values.get(value.index());
                let token = info.is_some_and(|info| info.dtype == DType::U32);
                if token != (class == TensorClass::Token) || !matches!(class, TensorClass::Tensor | TensorClass::Token)
                {
                    return Err(Mismatch::new(expected, if token { "a token" } else { "a tensor of this step" }));
                }
                match self.shape(*value) {
                    Some(shape) => shape.clone(),
                    None => return Ok(Vec::new()),
                }
            }
            Arg::Field(path) => match self.field(path) {
                Some(FieldKind::Weight { shape, .. } | FieldKind::Table { shape }) if class == TensorClass::Weight => {
                    shape
                }
                Some(FieldKind::State { shape }) if class == TensorClass::State => shape,
                Some(kind) => return Err(Mismatch::new(expected, field_name(&kind))),
                None => return Ok(Vec::new()),
            },
            Arg::Float(_) | Arg::Int(_) => return Err(Mismatch::new(expected, "a number")),
            Arg::Pos => return Err(Mismatch::new(expected, "the position")),
        };
        if actual.len() != shape.len() {
            return Err(Mismatch {
                expected: format!("of rank {} (`{}`)", shape.len(), show(shape)),
                found: format!("rank {} (`{}`)", actual.len(), show(&actual)),
                help: format!("pass a tensor of rank {} here", shape.len()),
            });
        }
        Ok(shape.iter().cloned().zip(actual).enumerate().map(|(dim, (want, have))| (want, have, Some(dim))).collect())
    }

    fn float(&self, arg: &Arg) -> Result<Vec<(Expr, Expr, Option<usize>)>, Mismatch> {
        match arg {
            Arg::Float(_) => Ok(Vec::new()),
            Arg::Field(path) => match self.field(path) {
                Some(FieldKind::Param) | None => Ok(Vec::new()),
                Some(kind) => Err(Mismatch::new("a number", field_name(&kind))),
            },
            Arg::Int(size) => {
                let help = match size {
                    Expr::Const(number) => format!("write `{number}.0`"),
                    _ => "pass a `#[param]` of a layout, or write the number, as in `64.0`".to_owned(),
                };
                Err(Mismatch { help, ..Mismatch::of("a number (f32)", arg) })
            }
            Arg::Value(_) | Arg::Pos => Err(Mismatch::of("a number (f32)", arg)),
        }
    }

    fn dim(&self, arg: &Arg) -> Result<Option<Expr>, Mismatch> {
        match arg {
            Arg::Int(expr) => Ok(Some(expr.clone())),
            Arg::Field(path) => match self.field(path) {
                Some(FieldKind::Dim(expr)) => Ok(Some(expr)),
                None => Ok(None),
                Some(kind) => Err(Mismatch::new("a dim", field_name(&kind))),
            },
            Arg::Value(_) | Arg::Float(_) | Arg::Pos => Err(Mismatch::of("a dim", arg)),
        }
    }

    fn field(&self, path: &FieldPath) -> Option<FieldKind> {
        field_of(self.graph, path)
    }

    fn unify(&mut self, signature: &Signature, call: &CallNode, extents: Vec<Extent>) -> Bindings {
        let (bound, unequal) = unify(extents);
        for Unequal { extent: Extent { position, dim, have, .. }, expected, because } in unequal {
            let param = |position: usize| &signature.params[position].name;
            let place = match dim {
                Some(dim) => format!("dimension {dim} of `{}`", param(position)),
                None => format!("`{}`", param(position)),
            };
            let mut error = GraphError::new(
                "AMK0601",
                format!("{place} of `{}` is `{have}`, expected `{expected}`", signature.name),
                format!("pass a tensor whose extent there is `{expected}`"),
            );
            for (name, value, origin) in because {
                let callee = &signature.name;
                error = error.note(format!("`{name}` of `{callee}` is `{value}` because of `{}`", param(origin)));
            }
            let error = error.note(format!("declared at {}", signature.declared_at));
            self.errors.push(error.at(call.site).arg(position));
        }
        bound
    }

    fn multiples(&mut self, signature: &Signature, call: &CallNode, bound: &Bindings) {
        for (_, (of, by)) in broken_multiples(signature, bound, &self.graph.multiples) {
            let remainder = Expr::Binary(Op::Rem, Box::new(of.clone()), Box::new(by.clone()));
            self.errors.push(
                GraphError::new(
                    "AMK0602",
                    format!("`{}` needs `{of}` to be a multiple of `{by}`", signature.name),
                    format!("declare it: `where({remainder})`"),
                )
                .note(counterexample(&of, &by))
                .note(format!("declared at {}", signature.declared_at))
                .at(call.site),
            );
        }
    }
}

/// Whether `of` is a multiple of `by` for all dims that satisfy the declared multiples.
pub fn is_multiple(declared: &[(Expr, Expr)], of: &Expr, by: &Expr) -> bool {
    let zero = Expr::Const(0);
    Expr::binary(Op::Rem, of.clone(), by.clone()).same(&zero) || declared.iter().any(|(a, b)| a.same(of) && b.same(by))
}

/// Returns small values of the dims for which it is not a multiple.
fn counterexample(of: &Expr, by: &Expr) -> String {
    let mut names = Vec::new();
    for expr in [of, by] {
        expr.names(&mut |name| {
            if !names.contains(&name.to_owned()) {
                names.push(name.to_owned());
            }
        });
    }
    let tries = 7i64.saturating_pow(names.len().min(4) as u32);
    for number in 0..tries {
        let value = |name: &str| {
            let at = names.iter().position(|n| n == name)?;
            Some(2 + number / 7i64.pow(at.min(4) as u32) % 7)
        };
        if let (Ok(a), Ok(b)) = (of.eval(&value), by.eval(&value))
            && b > 0
            && a % b != 0
        {
            let values: Vec<String> = names.iter().filter_map(|n| Some(format!("{n} = {}", value(n)?))).collect();
            return format!("it is not for {}: {a} is not a multiple of {b}", values.join(", "));
        }
    }
    "it does not follow from the shapes or from `where(..)`".to_owned()
}

/// The kind of the field a path leads to.
pub fn field_of(graph: &Graph, path: &FieldPath) -> Option<FieldKind> {
    kinds(graph, path)?.pop().cloned()
}

/// The kinds of the fields along a path.
fn kinds<'g>(graph: &'g Graph, path: &FieldPath) -> Option<Vec<&'g FieldKind>> {
    let mut layout: Option<&Layout> = graph.params.iter().find_map(|param| match &param.kind {
        KernelParamKind::Layout(layout) if param.name == path.root => Some(layout),
        _ => None,
    });
    let mut kinds = Vec::with_capacity(path.steps.len());
    for step in &path.steps {
        let kind = &layout?.field(&step.field)?.kind;
        layout = match kind {
            FieldKind::Struct(layout) | FieldKind::List { layout, .. } => Some(layout),
            _ => None,
        };
        kinds.push(kind);
    }
    Some(kinds)
}

/// The lengths of the lists that a path has an index into, outermost first.
pub fn list_lengths<'g>(graph: &'g Graph, path: &FieldPath) -> Vec<&'g Expr> {
    let indexed = path.steps.iter().zip(kinds(graph, path).unwrap_or_default());
    let length = |(step, kind): (&PathStep, &'g FieldKind)| match kind {
        FieldKind::List { length, .. } if step.index.is_some() => Some(length),
        _ => None,
    };
    indexed.filter_map(length).collect()
}

/// The expression with a signature's dims replaced.
pub fn substitute(expr: &Expr, bound: &Bindings) -> Expr {
    expr.substitute(&|name| bound.get(name).cloned())
}

fn same_shape(a: &[Expr], b: &[Expr]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b))
}

fn show(shape: &[Expr]) -> String {
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    format!("[{}]", extents.join(", "))
}

fn parameter_list(signature: &Signature) -> String {
    let names: Vec<&str> = signature.params.iter().map(|param| param.name.as_str()).collect();
    format!("{}({})", signature.name, names.join(", "))
}

fn field_name(kind: &FieldKind) -> &'static str {
    match kind {
        FieldKind::Weight { .. } | FieldKind::Table { .. } => "a weight",
        FieldKind::State { .. } => "a state",
        FieldKind::Param => "a float parameter",
        FieldKind::Dim(_) => "a dim",
        FieldKind::Flag => "a flag",
        FieldKind::Struct(_) | FieldKind::List { .. } => "a struct",
    }
}

struct Mismatch {
    expected: String,
    found: String,
    help: String,
}

impl Mismatch {
    fn new(expected: &str, found: &str) -> Self {
        Self { expected: expected.to_owned(), found: found.to_owned(), help: format!("pass {expected} here") }
    }

    /// An argument that is not a field.
    fn of(expected: &str, arg: &Arg) -> Self {
        let found = match arg {
            Arg::Value(_) => "a tensor of this step",
            Arg::Field(_) => "a field",
            Arg::Float(_) => "a number (f32)",
            Arg::Pos => "the position",
            Arg::Int(size) => return Self::new(expected, &format!("the integer `{size}`")),
        };
        Self::new(expected, found)
    }
}
