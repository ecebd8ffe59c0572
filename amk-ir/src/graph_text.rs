//! The graph as text: for reading and for snapshots.

use crate::graph::{Arg, CallNode, Graph, KernelParamKind, Node};
use crate::{DType, ValueId};
use core::fmt::{self, Display, Formatter, Write};

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph @{}", self.name)?;
        writeln!(f, "dims {}", self.dims.join(", "))?;
        for (of, by) in &self.multiples {
            writeln!(f, "where {of} % {by} == 0")?;
        }
        for (dim, value) in &self.equalities {
            writeln!(f, "where {dim} == {value}")?;
        }
        for event in &self.events {
            let shape: Vec<String> = event.shape.iter().map(ToString::to_string).collect();
            writeln!(f, "event {}[{}]", event.name, shape.join(", "))?;
        }
        let params: Vec<String> =
            self.params.iter().map(|param| format!("{}: {}", param.name, kind(&param.kind))).collect();
        writeln!(f, "fn ({}) {{", params.join(", "))?;
        for node in &self.body {
            self.node(f, node, 1)?;
        }
        let results: Vec<&str> = self.results.iter().map(|&value| self.value_name(value)).collect();
        writeln!(f, "    return {}\n}}", results.join(", "))
    }
}

fn kind(kind: &KernelParamKind) -> &str {
    match kind {
        KernelParamKind::Token(_) => "token",
        KernelParamKind::Tensor(_) => "tensor",
        KernelParamKind::Pos => "pos",
        KernelParamKind::Layout(layout) => &layout.name,
    }
}

impl Graph {
    fn value_name(&self, value: ValueId) -> &str {
        self.values.get(value.index()).map_or("?", |value| value.name.as_str())
    }

    fn node(&self, f: &mut Formatter<'_>, node: &Node, depth: usize) -> fmt::Result {
        let indent = "    ".repeat(depth);
        match node {
            Node::Call(call) => writeln!(f, "{indent}{}", self.call(call)),
            Node::Bind { to, from, .. } => writeln!(f, "{indent}{} = {}", self.value_name(*to), self.value_name(*from)),
            Node::Loop { index, extent, body } => {
                writeln!(f, "{indent}for {index} in 0..{extent} {{")?;
                self.block(f, body, depth + 1)?;
                writeln!(f, "{indent}}}")
            }
            Node::If { flag, then, otherwise } => {
                writeln!(f, "{indent}if {flag} {{")?;
                self.block(f, then, depth + 1)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{indent}}} else {{")?;
                    self.block(f, otherwise, depth + 1)?;
                }
                writeln!(f, "{indent}}}")
            }
        }
    }

    fn block(&self, f: &mut Formatter<'_>, nodes: &[Node], depth: usize) -> fmt::Result {
        nodes.iter().try_for_each(|node| self.node(f, node, depth))
    }

    fn call(&self, call: &CallNode) -> String {
        let mut line = String::new();
        for (number, &result) in call.results.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let _ = write!(line, "{comma}{}: {}", self.value_name(result), self.value_type(result));
        }
        let name = self.signatures.get(call.signature as usize).map_or("?", |signature| signature.name.as_str());
        let args: Vec<String> = call.args.iter().map(|arg| self.arg(arg)).collect();
        let equals = if call.results.is_empty() { "" } else { " = " };
        let _ = write!(line, "{equals}{name}({})", args.join(", "));
        for wait in &call.waits {
            let _ = write!(line, " wait {}{} >= {}", wait.event, coordinates(&wait.coordinates), wait.threshold);
        }
        for signal in &call.signals {
            let _ = write!(line, " signal {}{}", signal.event, coordinates(&signal.coordinates));
        }
        line
    }

    fn value_type(&self, value: ValueId) -> String {
        let Some(value) = self.values.get(value.index()) else { return "?".to_owned() };
        let dtype: DType = value.dtype;
        format!("{dtype}{}", coordinates(&value.shape))
    }

    fn arg(&self, arg: &Arg) -> String {
        match arg {
            Arg::Value(value) => self.value_name(*value).to_owned(),
            Arg::Field(path) => path.to_string(),
            Arg::Float(value) => format!("{value:?}"),
            Arg::Int(expr) => expr.to_string(),
            Arg::Pos => "pos".to_owned(),
        }
    }
}

fn coordinates(exprs: &[crate::expr::Expr]) -> String {
    let texts: Vec<String> = exprs.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(", "))
}
