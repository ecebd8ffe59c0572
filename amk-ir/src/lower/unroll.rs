//! Unrolling: runs loops, resolves flags and substitutes dims; the result is a list of calls on
//! tensors.

use super::bound;
use crate::expr::{Expr, Op};
use crate::graph::{Arg, CallNode, Graph, Instance, KernelParamKind, Node, SignalMap, WaitMap};
use crate::graph_error::GraphError;
use crate::layout::{FieldKind, FieldPath, Layout};
use crate::program::{Buffer, BufferKind, Exchange, Param};
use crate::schedule::Schedule;
use crate::shapes::{field_of, list_lengths};
use crate::signature::{ParamKind, Signature, Span};
use crate::{Access, Constants, DType, TensorId, ValueId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The calls of an instance in eager order, and their tensors.
pub struct Unrolled {
    /// The calls in eager order.
    pub calls: Vec<PlannedCall>,
    /// Their tensors: weights, inputs, states, activations and outputs.
    pub tensors: Vec<Buffer>,
    /// Positions of a step: the smallest extent that `pos` runs over.
    pub positions: u32,
    /// The dims' values.
    pub dims: BTreeMap<String, i64>,
    /// The floats and flags that the calls depend on.
    pub constants: Constants,
}

/// A call on whole tensors, not yet cut into tiles.
pub struct PlannedCall {
    /// The call of the source.
    pub site: u32,
    /// Index in [`Graph::signatures`].
    pub signature: usize,
    /// The call with its tensors' names, for messages.
    pub label: String,
    /// The signature's dims.
    pub env: BTreeMap<String, i64>,
    /// The tensor operands in order, results last.
    pub operands: Vec<PlannedOperand>,
    /// The scalar parameters in order.
    pub params: Vec<Param>,
    /// Loop indices at the call.
    pub indices: BTreeMap<String, i64>,
    /// Hand-written signals.
    pub signals: Vec<SignalMap>,
    /// Hand-written waits.
    pub waits: Vec<WaitMap>,
}

/// An operand: a tensor and the spans that a task covers.
pub struct PlannedOperand {
    /// The whole tensor.
    pub tensor: TensorId,
    /// How the call accesses it.
    pub access: Access,
    /// The region of a task, over the grid variables.
    pub spans: Vec<Span>,
}

/// Unrolls a graph that passed [`crate::shapes::check`] for an instance.
///
/// # Errors
/// Dims or flags without a value, values that break a declared multiple or yield an invalid extent,
/// loops that unroll to more calls than a program may have.
pub fn unroll(graph: &Graph, instance: &Instance, schedule: &Schedule) -> Result<Unrolled, Vec<GraphError>> {
    let dims = instance_dims(graph, instance)?;
    bound::statements(graph, &instance.name, &dims).map_err(|error| vec![error])?;
    let mut unroller = Unroller {
        graph,
        instance,
        weights: schedule.weights,
        values: vec![None; graph.values.len()],
        fields: HashMap::new(),
        indices: BTreeMap::new(),
        named: HashMap::new(),
        positions: None,
        caches: BTreeSet::new(),
        out: Unrolled { calls: Vec::new(), tensors: Vec::new(), positions: 1, dims, constants: Constants::default() },
    };
    unroller.inputs();
    unroller.dim_fields();
    unroller.nodes(&graph.body).map_err(|error| vec![error])?;
    unroller.outputs().map_err(|error| vec![error])?;
    for id in std::mem::take(&mut unroller.caches) {
        unroller.out.tensors[id.index()].dtype = schedule.cache.unwrap_or(DType::F32);
    }
    Ok(Unrolled { positions: unroller.positions.unwrap_or(1), ..unroller.out })
}

/// The dims' values, checked to be complete, positive and within the declared multiples and
/// equalities.
fn instance_dims(graph: &Graph, instance: &Instance) -> Result<BTreeMap<String, i64>, Vec<GraphError>> {
    let mut errors = Vec::new();
    let of = &instance.name;
    for dim in graph.dims.iter().filter(|dim| !instance.dims.contains_key(*dim)) {
        let help = format!("add `{dim} = ..` to `{of}(..)`");
        errors.push(GraphError::new("AMK0607", format!("instance `{of}` has no value for `{dim}`"), help));
    }
    for (dim, &value) in &instance.dims {
        if !graph.dims.contains(dim) {
            let help = format!("declare it: `dims({}, {dim})`", graph.dims.join(", "));
            errors.push(GraphError::new("AMK0606", format!("unknown dim `{dim}` in instance `{of}`"), help));
        } else if value == 0 || value > i32::MAX as u32 {
            let help = "give it a value from 1 to 2147483647";
            errors.push(GraphError::new(
                "AMK0612",
                format!("`{dim} = {value}` in instance `{of}` is out of range"),
                help,
            ));
        }
    }
    let dims: BTreeMap<String, i64> =
        instance.dims.iter().map(|(dim, &value)| (dim.clone(), i64::from(value))).collect();
    let value = |name: &str| dims.get(name).copied();
    let before = errors.len();
    for (dim, equal) in &graph.equalities {
        if let (Some(x), Ok(y)) = (value(dim), equal.eval(&value))
            && x != y
        {
            let headline = format!("instance `{of}` breaks `where({dim} == {equal})`");
            let error = GraphError::new("AMK0607", headline, format!("give it `{dim} = {y}`"));
            errors.push(error.note(format!("`{dim}` is {x}, `{equal}` is {y}")));
        }
    }
    // The factors of an equality are multiples too; one entry is enough.
    let multiples = if errors.len() == before { graph.multiples.as_slice() } else { &[] };
    for (a, b) in multiples {
        if let (Ok(x), Ok(y)) = (a.eval(&value), b.eval(&value))
            && (y == 0 || x % y != 0)
        {
            errors.push(
                GraphError::new(
                    "AMK0607",
                    format!("instance `{of}` breaks `where({a} % {b})`"),
                    format!("choose values such that `{a}` is a multiple of `{b}`"),
                )
                .note(format!("`{a}` is {x}, `{b}` is {y}")),
            );
        }
    }
    if errors.is_empty() { Ok(dims) } else { Err(errors) }
}

/// Whether a call reads all positions of heads up to its own, or the last of them: after the first
/// dimension there is one whose interval begins at the same position in all steps, or at
/// `max(0, pos - ..)`, and ends at the call's own position. Without heads, the state is a sequence
/// of inputs, such as a convolution's.
fn is_cache(region: &[Span]) -> bool {
    let is_last = |lo: &Expr| matches!(lo, Expr::Binary(Op::Max, ..));
    let is_past = |span: &Span| matches!(span, Span::Range { lo, hi } if (!moves(lo) || is_last(lo)) && moves(hi));
    region.iter().skip(1).any(is_past)
}

/// Whether a bound moves with the position.
fn moves(bound: &Expr) -> bool {
    let mut moves = false;
    bound.names(&mut |name| moves |= name == "pos");
    moves
}

struct Unroller<'g> {
    graph: &'g Graph,
    instance: &'g Instance,
    weights: DType,
    values: Vec<Option<TensorId>>,
    fields: HashMap<String, TensorId>,
    indices: BTreeMap<String, i64>,
    named: HashMap<String, u32>,
    /// Those that states have, as soon as there is one.
    positions: Option<u32>,
    /// The states that a call reads as caches.
    caches: BTreeSet<TensorId>,
    out: Unrolled,
}

impl<'g> Unroller<'g> {
    fn inputs(&mut self) {
        for param in &self.graph.params {
            let (value, kind) = match param.kind {
                KernelParamKind::Token(value) | KernelParamKind::Tensor(value) => (value, BufferKind::Input),
                KernelParamKind::Pos | KernelParamKind::Layout(_) => continue,
            };
            let Some(info) = self.graph.values.get(value.index()) else { continue };
            let shape =
                info.shape.iter().map(|extent| self.extent(extent)).collect::<Result<_, _>>().unwrap_or_default();
            let tensor = self.tensor(param.name.clone(), kind, info.dtype, shape);
            self.values[value.index()] = Some(tensor);
        }
    }

    /// Notes the values of the layouts' dim fields and the lengths of their lists.
    fn dim_fields(&mut self) {
        for param in &self.graph.params {
            if let KernelParamKind::Layout(layout) = &param.kind {
                self.dim_fields_of(&param.name, layout);
            }
        }
    }

    fn dim_fields_of(&mut self, path: &str, layout: &Layout) {
        for field in &layout.fields {
            let path = format!("{path}.{}", field.name);
            match &field.kind {
                FieldKind::Dim(value) => self.dim_field(path, value),
                FieldKind::Struct(layout) => self.dim_fields_of(&path, layout),
                FieldKind::List { layout, length } => {
                    self.dim_fields_of(&format!("{path}[]"), layout);
                    self.dim_field(format!("{path}.len()"), length);
                }
                FieldKind::Weight { .. }
                | FieldKind::State { .. }
                | FieldKind::Table { .. }
                | FieldKind::Param
                | FieldKind::Flag => {}
            }
        }
    }

    /// Records a value; an expression without one is refused where it is used.
    fn dim_field(&mut self, path: String, value: &Expr) {
        let value = self.number(value).ok().and_then(|value| u64::try_from(value).ok());
        self.out.constants.dims.extend(value.map(|value| (path, value)));
    }

    fn value_of(&self, name: &str) -> Option<i64> {
        self.indices.get(name).or_else(|| self.out.dims.get(name)).copied()
    }

    fn number(&self, expr: &Expr) -> Result<i64, GraphError> {
        expr.eval(&|name| self.value_of(name)).map_err(|error| {
            GraphError::new("AMK0606", error.about(expr), "declare the name in `dims(..)` and give it a value")
        })
    }

    fn extent(&self, expr: &Expr) -> Result<u32, GraphError> {
        let value = self.number(expr)?;
        u32::try_from(value).ok().filter(|&value| value > 0).ok_or_else(|| {
            let headline = format!("`{expr}` is {value} in instance `{}`, no extent", self.instance.name);
            GraphError::new("AMK0612", headline, "choose dims that make every extent positive and below 2^32")
        })
    }

    /// A number that is passed to an instruction; a loop index starts at 0.
    fn size(&self, expr: &Expr) -> Result<u32, GraphError> {
        let value = self.number(expr)?;
        u32::try_from(value).map_err(|_| {
            let headline = format!("`{expr}` is {value} in instance `{}`, no size", self.instance.name);
            GraphError::new("AMK0612", headline, "choose dims that make every size a number below 2^32")
        })
    }

    /// A variable that is assigned again gets a number: `x.0`, `x.0#2`.
    fn tensor(&mut self, mut name: String, kind: BufferKind, dtype: DType, shape: Vec<u32>) -> TensorId {
        let times = self.named.entry(name.clone()).or_insert(0);
        *times += 1;
        if *times > 1 {
            name.push_str(&format!("#{times}"));
        }
        self.out.tensors.push(Buffer { name, kind, dtype, shape, exchange: Exchange::Counter, place: None });
        TensorId::from(self.out.tensors.len() - 1)
    }

    fn nodes(&mut self, nodes: &'g [Node]) -> Result<(), GraphError> {
        for node in nodes {
            match node {
                Node::Call(call) => self.call(call).map_err(|error| error.at(call.site))?,
                Node::Bind { to, from, .. } => self.bind(*to, *from),
                Node::Loop { index, extent, body } => {
                    for i in 0..self.number(extent)? {
                        self.indices.insert(index.clone(), i);
                        self.nodes(body)?;
                    }
                    self.indices.remove(index);
                }
                Node::If { flag, then, otherwise } => {
                    let name = self.resolve(flag)?;
                    let set = self.instance.flags.get(&name).copied().unwrap_or(false);
                    self.out.constants.flags.insert(name, set);
                    self.nodes(if set { then } else { otherwise })?;
                }
            }
        }
        Ok(())
    }

    /// Makes the results outputs, and puts these in the order of the results.
    fn outputs(&mut self) -> Result<(), GraphError> {
        let mut outputs: Vec<TensorId> = Vec::new();
        for (number, &result) in (1..).zip(&self.graph.results) {
            let refuse = |what: String, help| Err(GraphError::new("AMK0615", what, help));
            let of = format!("result {number} of `{}`", self.graph.name);
            let Some(id) = self.values.get(result.index()).copied().flatten() else {
                let (value, instance) = (self.value_name(result).unwrap_or_default(), &self.instance.name);
                return refuse(
                    format!("{of}, `{value}`, has no value in instance `{instance}`"),
                    "assign it on every path",
                );
            };
            let name = &self.out.tensors[id.index()].name;
            if let Some(before) = outputs.iter().position(|&output| output == id) {
                let headline =
                    format!("results {} and {number} of `{}` are one value, `{name}`", before + 1, self.graph.name);
                return refuse(headline, "return it once");
            }
            if self.out.tensors[id.index()].kind != BufferKind::Activation {
                return refuse(format!("{of} is its input `{name}`"), "leave it out: the caller has it");
            }
            outputs.push(id);
        }
        self.reorder(&outputs);
        Ok(())
    }

    /// Places these tensors in their order.
    fn reorder(&mut self, outputs: &[TensorId]) {
        let mut places = outputs.to_vec();
        places.sort_unstable();
        let moved: Vec<Buffer> = outputs.iter().map(|output| self.out.tensors[output.index()].clone()).collect();
        for (place, buffer) in places.iter().zip(moved) {
            self.out.tensors[place.index()] = Buffer { kind: BufferKind::Output, ..buffer };
        }
        let place_of: HashMap<TensorId, TensorId> = outputs.iter().copied().zip(places).collect();
        for operand in self.out.calls.iter_mut().flat_map(|call| &mut call.operands) {
            operand.tensor = place_of.get(&operand.tensor).copied().unwrap_or(operand.tensor);
        }
    }

    fn bind(&mut self, to: ValueId, from: ValueId) {
        let tensor = self.values.get(from.index()).copied().flatten();
        if let Some(slot) = self.values.get_mut(to.index()) {
            *slot = tensor;
        }
    }

    fn resolve(&self, path: &FieldPath) -> Result<String, GraphError> {
        let resolved = path.resolve(&|name| self.value_of(name));
        let (name, indices) = resolved
            .map_err(|error| GraphError::new("AMK0606", error.about(path), "index it with a loop index or a dim"))?;
        for (index, length) in indices.into_iter().zip(list_lengths(self.graph, path)) {
            let length = self.number(length)?;
            if !(0..length).contains(&index) {
                let instance = &self.instance.name;
                let headline =
                    format!("`{path}` has index {index} in instance `{instance}`, the list has {length} elements");
                return Err(GraphError::new(
                    "AMK0614",
                    headline,
                    "keep the index below the list's length in every round",
                ));
            }
        }
        Ok(name)
    }

    fn field(&mut self, path: &FieldPath) -> Result<TensorId, GraphError> {
        let name = self.resolve(path)?;
        if let Some(&tensor) = self.fields.get(&name) {
            return Ok(tensor);
        }
        let (kind, dtype, shape) = match field_of(self.graph, path) {
            Some(FieldKind::Weight { shape, .. }) => (BufferKind::Weight, self.weights, shape),
            Some(FieldKind::Table { shape }) => (BufferKind::Weight, DType::F32, shape),
            Some(FieldKind::State { shape }) => (BufferKind::State, DType::F32, shape),
            _ => {
                return Err(GraphError::new(
                    "AMK0603",
                    format!("`{path}` is not a tensor"),
                    "pass a weight or a state field",
                ));
            }
        };
        let shape = shape.iter().map(|extent| self.extent(extent)).collect::<Result<_, _>>()?;
        let tensor = self.tensor(name.clone(), kind, dtype, shape);
        self.fields.insert(name, tensor);
        Ok(tensor)
    }

    fn call(&mut self, call: &'g CallNode) -> Result<(), GraphError> {
        let Some(signature) = self.graph.signatures.get(call.signature as usize) else {
            return Err(GraphError::new("AMK0604", "the call names no instruction", "call an instruction"));
        };
        let mut planned = PlannedCall {
            site: call.site,
            signature: call.signature as usize,
            label: String::new(),
            env: BTreeMap::new(),
            operands: Vec::new(),
            params: Vec::new(),
            indices: self.indices.clone(),
            signals: call.signals.clone(),
            waits: call.waits.clone(),
        };
        let mut shown = Vec::new();
        for (param, arg) in signature.params.iter().zip(&call.args) {
            self.argument(&param.kind, arg, &mut planned, &mut shown)?;
        }
        self.results(signature, call, &mut planned)?;
        let targets: Vec<&str> = call.results.iter().filter_map(|value| self.value_name(*value)).collect();
        let assigned = if targets.is_empty() { String::new() } else { format!("{} = ", targets.join(", ")) };
        planned.label = format!("{assigned}{}({})", signature.name, shown.join(", "));
        self.out.calls.push(planned);
        Ok(())
    }

    fn value_name(&self, value: ValueId) -> Option<&'g str> {
        self.graph.values.get(value.index()).map(|value| value.name.as_str())
    }

    fn argument(
        &mut self,
        kind: &ParamKind,
        arg: &Arg,
        planned: &mut PlannedCall,
        shown: &mut Vec<String>,
    ) -> Result<(), GraphError> {
        match kind {
            ParamKind::Tensor { access, shape, region, .. } => {
                let tensor = match arg {
                    Arg::Value(value) => self.values.get(value.index()).copied().flatten(),
                    Arg::Field(path) => Some(self.field(path)?),
                    Arg::Float(_) | Arg::Int(_) | Arg::Pos => None,
                };
                let tensor = tensor.ok_or_else(|| {
                    GraphError::new(
                        "AMK0603",
                        "an argument has no value yet",
                        "assign it before this call, on every path",
                    )
                })?;
                let actual = &self.out.tensors[tensor.index()];
                for (expr, &extent) in shape.iter().zip(&actual.shape) {
                    if let Expr::Name(name) = expr {
                        planned.env.entry(name.clone()).or_insert(i64::from(extent));
                    }
                }
                shown.push(actual.name.clone());
                if actual.kind == BufferKind::State && access.reads() && is_cache(region) {
                    self.caches.insert(tensor);
                }
                self.limit_positions(region, &actual.shape.clone());
                planned.operands.push(PlannedOperand { tensor, access: *access, spans: region.clone() });
            }
            ParamKind::Float => {
                let value = match arg {
                    Arg::Float(value) => *value,
                    Arg::Field(path) => self.float(self.resolve(path)?),
                    _ => 0.0,
                };
                planned.params.push(Param::F32(value));
            }
            ParamKind::Dim(bound) => {
                let value = match arg {
                    Arg::Int(expr) => self.size(expr)?,
                    Arg::Field(path) => match field_of(self.graph, path) {
                        Some(FieldKind::Dim(expr)) => self.size(&expr)?,
                        _ => {
                            return Err(GraphError::new(
                                "AMK0603",
                                format!("`{path}` is not a dim"),
                                "pass a `#[dim(..)]` field",
                            ));
                        }
                    },
                    _ => {
                        return Err(GraphError::new(
                            "AMK0603",
                            "the argument is not a dim",
                            "pass a number or a `#[dim(..)]` field",
                        ));
                    }
                };
                if let Expr::Name(name) = bound {
                    planned.env.insert(name.clone(), i64::from(value));
                }
                planned.params.push(Param::U32(value));
            }
            ParamKind::Pos => planned.params.push(Param::Pos),
        }
        Ok(())
    }

    /// A dimension whose interval moves with `pos` bounds the positions by its extent.
    fn limit_positions(&mut self, region: &[Span], shape: &[u32]) {
        for (span, &extent) in region.iter().zip(shape) {
            let Span::Range { lo, hi } = span else { continue };
            if moves(lo) || moves(hi) {
                self.positions = Some(self.positions.map_or(extent, |known| known.min(extent)));
            }
        }
    }

    fn float(&mut self, name: String) -> f32 {
        let value = self.instance.floats.get(&name).copied().unwrap_or(0.0);
        self.out.constants.floats.insert(name, value);
        value
    }

    fn results(&mut self, signature: &Signature, call: &CallNode, planned: &mut PlannedCall) -> Result<(), GraphError> {
        for (result, &to) in signature.results.iter().zip(&call.results) {
            let mut shape = Vec::new();
            for expr in &result.shape {
                let value = expr.eval(&|name| planned.env.get(name).copied());
                let extent = value.ok().and_then(|value| u32::try_from(value).ok()).filter(|&extent| extent > 0);
                shape.push(extent.ok_or_else(|| {
                    let headline = format!(
                        "`{expr}` of `{}` is not a valid extent in instance `{}`",
                        signature.name, self.instance.name
                    );
                    GraphError::new("AMK0612", headline, "choose dims that make every extent positive and below 2^32")
                })?);
            }
            let mut name = self.value_name(to).unwrap_or_default().to_owned();
            for index in self.indices.values() {
                name.push_str(&format!(".{index}"));
            }
            let tensor = self.tensor(name, BufferKind::Activation, result.dtype, shape);
            planned.operands.push(PlannedOperand { tensor, access: Access::Write, spans: result.region.clone() });
            if let Some(slot) = self.values.get_mut(to.index()) {
                *slot = Some(tensor);
            }
        }
        Ok(())
    }
}
