//! The printer of graphs.

use super::super::print::{name as graph_name, param_text, quoted, word, write_list};
use super::instance::{write_instance, write_schedule};
use super::layout::write_layout;
use super::names::{Names, is_call_word, write_path};
use super::signature::write_signature;
use crate::expr::{Expr, Op};
use crate::graph::{Arg, CallNode, Graph, KernelParam, KernelParamKind, Node};
use crate::schedule::PartialSchedule;
use crate::{DType, InstructionId, Param, ValueId};
use core::fmt::{self, Display, Formatter, Write};
use std::collections::HashMap;

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        write_graph(&mut text, self)?;
        f.write_str(&text)
    }
}

fn write_graph(out: &mut String, graph: &Graph) -> fmt::Result {
    writeln!(out, "graph @{}", graph_name(&graph.name, true))?;
    if !graph.dims.is_empty() {
        write!(out, "dims ")?;
        write_list(out, &graph.dims, |out, dim| write!(out, "{}", word(dim)))?;
        writeln!(out)?;
    }
    for multiple in &graph.multiples {
        write_multiple(out, multiple)?;
    }
    for (dim, value) in &graph.equalities {
        writeln!(out, "where {} == {value}", word(dim))?;
    }
    if graph.schedule != PartialSchedule::default() {
        write_schedule(out, &graph.schedule)?;
        writeln!(out)?;
    }
    for instance in &graph.instances {
        write_instance(out, instance)?;
    }
    for event in &graph.events {
        write!(out, "event {}", word(&event.name))?;
        write_exprs(out, &event.shape)?;
        writeln!(out)?;
    }
    for param in &graph.params {
        if let KernelParamKind::Layout(layout) = &param.kind {
            write_layout(out, &param.name, layout)?;
        }
    }
    for signature in &graph.signatures {
        write_signature(out, signature)?;
    }
    Function::of(graph).write(out)
}

/// `where A % B == 0`, without the indent and with the end of the line.
pub(super) fn write_multiple(out: &mut String, (of, by): &(Expr, Expr)) -> fmt::Result {
    let remainder = Expr::Binary(Op::Rem, Box::new(of.clone()), Box::new(by.clone()));
    writeln!(out, "where {remainder} == 0")
}

/// `[A, B]`
pub(super) fn write_exprs(out: &mut String, exprs: &[Expr]) -> fmt::Result {
    write!(out, "[")?;
    write_list(out, exprs, |out, expr| write!(out, "{expr}"))?;
    write!(out, "]")
}

/// Facts about a graph that the printer of a function needs.
struct Function<'g> {
    graph: &'g Graph,
    names: Names<'g>,
    /// Signatures by name; `None` where several have the name.
    callable: HashMap<&'g str, Option<u32>>,
}

impl<'g> Function<'g> {
    fn of(graph: &'g Graph) -> Self {
        let mut callable = HashMap::new();
        for (number, signature) in (0..).zip(&graph.signatures) {
            if is_call_word(&signature.name) {
                callable.entry(signature.name.as_str()).and_modify(|known| *known = None).or_insert(Some(number));
            }
        }
        Self { graph, names: Names::of(graph), callable }
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        if !Order::of(self).is_as_declared() {
            for (number, value) in self.graph.values.iter().enumerate() {
                let name = super::names::name(&value.name);
                writeln!(out, "value %{number} {name}: {}", self.value_type(ValueId::from(number)))?;
            }
        }
        write!(out, "fn (")?;
        write_list(out, &self.graph.params, |out, param| self.write_param(out, param))?;
        writeln!(out, ") {{")?;
        self.write_block(out, &self.graph.body, 1, &mut 0)?;
        if !self.graph.results.is_empty() {
            write!(out, "    return ")?;
            write_list(out, &self.graph.results, |out, &value| write!(out, "{}", self.names.value(value)))?;
            writeln!(out)?;
        }
        writeln!(out, "}}")
    }

    fn write_param(&self, out: &mut String, param: &KernelParam) -> fmt::Result {
        write!(out, "{}: ", word(&param.name))?;
        match &param.kind {
            KernelParamKind::Token(value) => self.write_input(out, "token", &param.name, *value),
            KernelParamKind::Tensor(value) => self.write_input(out, "tensor", &param.name, *value),
            KernelParamKind::Pos => write!(out, "pos"),
            KernelParamKind::Layout(layout) => match layout.name.as_str() {
                class @ ("token" | "tensor" | "pos") => write!(out, "{}", quoted(class)),
                name => write!(out, "{}", word(name)),
            },
        }
    }

    /// The type of a parameter's value, or its number where its name is not the parameter's.
    fn write_input(&self, out: &mut String, class: &str, param: &str, value: ValueId) -> fmt::Result {
        write!(out, "{class}")?;
        if !self.is_named(value, param) {
            return write!(out, " %{}", value.0);
        }
        match self.value_type(value) {
            default if class == "token" && default == TOKEN_TYPE => Ok(()),
            other => write!(out, " {other}"),
        }
    }

    /// Whether the value is the only one of this name.
    fn is_named(&self, value: ValueId, name: &str) -> bool {
        self.names.has_own_name(value) && self.graph.values.get(value.index()).is_some_and(|value| value.name == name)
    }

    fn write_block(&self, out: &mut String, nodes: &[Node], depth: usize, site: &mut u32) -> fmt::Result {
        nodes.iter().try_for_each(|node| self.write_node(out, node, depth, site))
    }

    fn write_node(&self, out: &mut String, node: &Node, depth: usize, site: &mut u32) -> fmt::Result {
        let indent = "    ".repeat(depth);
        write!(out, "{indent}")?;
        match node {
            Node::Call(call) => {
                self.write_call(out, call)?;
                write_site(out, call.site, site)
            }
            Node::Bind { site: own, to, from } => {
                match self.value_type(*to) == self.value_type(*from) {
                    true => write!(out, "{}", self.names.value(*to))?,
                    false => self.write_target(out, *to)?,
                }
                write!(out, " = {}", self.names.value(*from))?;
                write_site(out, *own, site)
            }
            Node::Loop { index, extent, body } => {
                writeln!(out, "for {} in 0..{extent} {{", word(index))?;
                self.write_block(out, body, depth + 1, site)?;
                writeln!(out, "{indent}}}")
            }
            Node::If { flag, then, otherwise } => {
                write!(out, "if ")?;
                write_path(out, flag)?;
                writeln!(out, " {{")?;
                self.write_block(out, then, depth + 1, site)?;
                if !otherwise.is_empty() {
                    writeln!(out, "{indent}}} else {{")?;
                    self.write_block(out, otherwise, depth + 1, site)?;
                }
                writeln!(out, "{indent}}}")
            }
        }
    }

    fn write_call(&self, out: &mut String, call: &CallNode) -> fmt::Result {
        write_list(out, &call.results, |out, &result| self.write_target(out, result))?;
        write!(out, "{}", if call.results.is_empty() { "" } else { " = " })?;
        let signature = self.graph.signatures.get(call.signature as usize);
        match signature.filter(|signature| self.callable.get(signature.name.as_str()) == Some(&Some(call.signature))) {
            Some(signature) => write!(out, "{}(", signature.name)?,
            None => write!(out, "{}(", InstructionId(call.signature))?,
        }
        write_list(out, &call.args, |out, arg| self.write_arg(out, arg))?;
        write!(out, ")")?;
        for (number, wait) in call.waits.iter().enumerate() {
            write!(out, "{}{}", if number == 0 { " wait " } else { ", " }, word(&wait.event))?;
            write_exprs(out, &wait.coordinates)?;
            write!(out, " >= {}", wait.threshold)?;
        }
        for (number, signal) in call.signals.iter().enumerate() {
            write!(out, "{}{}", if number == 0 { " signal " } else { ", " }, word(&signal.event))?;
            write_exprs(out, &signal.coordinates)?;
        }
        Ok(())
    }

    fn write_arg(&self, out: &mut String, arg: &Arg) -> fmt::Result {
        match arg {
            Arg::Value(value) => write!(out, "{}", self.names.value(*value)),
            Arg::Field(path) => write_path(out, path),
            Arg::Float(value) => write!(out, "{}", param_text(&Param::F32(*value))),
            Arg::Int(expr) => write!(out, "{}", self.names.integer(expr)),
            Arg::Pos => write!(out, "pos"),
        }
    }

    /// A value that is assigned, with its type.
    fn write_target(&self, out: &mut String, value: ValueId) -> fmt::Result {
        write!(out, "{}", self.names.value(value))?;
        match self.graph.values.get(value.index()) {
            Some(_) => write!(out, ": {}", self.value_type(value)),
            None => Ok(()),
        }
    }

    fn value_type(&self, value: ValueId) -> String {
        self.graph.values.get(value.index()).map_or(String::new(), |value| type_text(value.dtype, &value.shape))
    }
}

/// The type of a token, which is left out.
const TOKEN_TYPE: &str = "u32[1]";

/// `f32[H]`
pub(super) fn type_text(dtype: DType, shape: &[Expr]) -> String {
    let mut text = dtype.to_string();
    // Writing to a `String` does not fail.
    let _ = write_exprs(&mut text, shape);
    text
}

/// The site where it is not the next one, and the end of the line.
fn write_site(out: &mut String, site: u32, next: &mut u32) -> fmt::Result {
    let is_next = site == *next;
    *next = site.wrapping_add(1);
    if is_next { writeln!(out) } else { writeln!(out, " site {site}") }
}

/// Whether reading a function numbers its values as they are.
struct Order<'f, 'g> {
    function: &'f Function<'g>,
    next: usize,
    fits: bool,
}

impl<'f, 'g> Order<'f, 'g> {
    fn of(function: &'f Function<'g>) -> Self {
        let mut order = Self { function, next: 0, fits: true };
        for param in &function.graph.params {
            if let KernelParamKind::Token(value) | KernelParamKind::Tensor(value) = param.kind {
                order.fits &= function.is_named(value, &param.name);
                order.define(value);
            }
        }
        order.block(&function.graph.body);
        function.graph.results.iter().for_each(|&value| order.read(value));
        order
    }

    fn is_as_declared(&self) -> bool {
        self.fits && self.next == self.function.graph.values.len()
    }

    fn define(&mut self, value: ValueId) {
        self.fits &= self.function.names.has_own_name(value) && value.index() <= self.next;
        self.next += usize::from(value.index() == self.next);
    }

    fn read(&mut self, value: ValueId) {
        self.fits &= self.function.names.has_own_name(value) && value.index() < self.next;
    }

    fn block(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Call(call) => {
                    for arg in &call.args {
                        if let Arg::Value(value) = arg {
                            self.read(*value);
                        }
                    }
                    call.results.iter().for_each(|&value| self.define(value));
                }
                Node::Bind { to, from, .. } => {
                    self.read(*from);
                    self.define(*to);
                }
                Node::Loop { body, .. } => self.block(body),
                Node::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
            }
        }
    }
}
