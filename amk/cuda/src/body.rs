//! Generic device bodies in the generated source: their texts, and a function for each that makes its views, calls it and delivers.

use super::image::abi::FIRST_BODY;
use super::plan::{Body, Plan};
use amk_ir::signature::{ParamKind, Signature, TensorClass};
use core::fmt::Write as _;

/// The texts of a plan's bodies and their calls.
pub(super) fn bodies(plan: &Plan) -> String {
    let mut out = String::new();
    // A text may define several bodies, and two crates may use the same names: a namespace a text.
    let mut texts: Vec<&str> = Vec::new();
    for (number, body) in plan.bodies.iter().enumerate() {
        let space = texts.iter().position(|&text| text == body.text).unwrap_or_else(|| {
            let _ = writeln!(out, "namespace body{} {{", texts.len());
            own_lines(body.text).for_each(|line| {
                out.push_str(line);
                out.push('\n');
            });
            out.push_str("}\n");
            texts.push(body.text);
            texts.len() - 1
        });
        out.push_str(&function(number, space, body));
    }
    out
}

/// The lines of a file that are not about other files: those come in order, whole; includes are for readers and editors.
pub(super) fn own_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with("#include") && !line.starts_with("#pragma once"))
}

/// The cases of `dispatch`. The bodies get copies: a worker that a function takes by reference would no longer be kept in registers.
pub(super) fn cases(plan: &Plan) -> String {
    let case = |number: usize| {
        let op = FIRST_BODY as usize + number;
        format!("    case {op}: task_{number}(w, r); break;\n")
    };
    (0..plan.bodies.len()).map(case).collect()
}

/// `task_N`: the views, the call, the delivery.
fn function(number: usize, space: usize, body: &Body) -> String {
    let Signature { name, params, results, .. } = &body.signature;
    let mut out = format!("__device__ __noinline__ void task_{number}(Worker w, const Record r) {{\n");
    let tensors = params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor { .. })).count();
    let _ = writeln!(out, "    Task t(w, r, {});", tensors + results.len());
    let (mut tensor, mut scalar) = (0, 0);
    for (at, param) in params.iter().enumerate() {
        let (view, number) = match &param.kind {
            ParamKind::Tensor { class, .. } => {
                let view = match class {
                    TensorClass::Tensor => "const In {} = t.in({})",
                    TensorClass::Weight => "const Weight {} = t.weight({})",
                    TensorClass::State => "const State {} = t.state({})",
                    TensorClass::Token => "const u32 {} = t.token({})",
                };
                (view, &mut tensor)
            }
            ParamKind::Float => ("const float {} = t.real({})", &mut scalar),
            ParamKind::Dim(_) => ("const u32 {} = t.number({})", &mut scalar),
            ParamKind::Pos => ("const u32 {} = t.pos({})", &mut scalar),
        };
        let line = view.replacen("{}", &format!("a{at}"), 1).replacen("{}", &number.to_string(), 1);
        let _ = writeln!(out, "    {line};");
        *number += 1;
    }
    for (at, result) in results.iter().enumerate() {
        let (class, view) = if result.dtype == amk_ir::DType::U32 { ("Choice", "choice") } else { ("Out", "out") };
        let _ = writeln!(out, "    const {class} y{at} = t.{view}({});", tensors + at);
    }
    let args: Vec<String> =
        (0..params.len()).map(|at| format!("a{at}")).chain((0..results.len()).map(|at| format!("y{at}"))).collect();
    let _ = writeln!(out, "    t.ready();\n    body{space}::{name}(t, {});\n    t.done();", args.join(", "));
    for at in 0..results.len() {
        let _ = writeln!(out, "    t.deliver({}, y{at});", tensors + at);
    }
    out.push_str("}\n");
    out
}
