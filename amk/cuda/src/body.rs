//! Generic device bodies in the generated source: their texts, and for each task a function that
//! makes the views, calls the bodies and delivers the results.

use super::code::STREAM;
use super::image::abi::{FIRST_BODY, OPERAND_WORDS};
use super::lines;
use super::plan::{Body, Plan, Sequence, View};
use super::stream::Stream;
use amk_ir::signature::{ParamKind, Signature, TensorClass};
use core::fmt::Write as _;

/// The texts of a plan's bodies and the tasks that call them.
pub(super) fn bodies(plan: &Plan) -> String {
    let mut out = String::new();
    // A text may define several bodies, and two crates may use the same names, so each text gets a
    // namespace.
    let mut texts: Vec<&str> = Vec::new();
    if plan.bodies.iter().any(|body| Stream::of(&body.signature.path).is_some()) {
        out.push_str(&STREAM.text());
    }
    for (number, sequence) in plan.sequences.iter().enumerate() {
        let bodies = || sequence.steps.iter().filter_map(|step| plan.bodies.get(step.body));
        for body in bodies() {
            if texts.contains(&body.text) {
                continue;
            }
            let _ = writeln!(out, "namespace body{} {{", texts.len());
            out.push_str(&lines::file(&body.file(), body.text));
            out.push_str("}\n");
            texts.push(body.text);
        }
        let space = |body: &Body| texts.iter().position(|&text| text == body.text).unwrap_or(0);
        let calls: Vec<BodyCall<'_>> = bodies()
            .zip(&sequence.steps)
            .enumerate()
            .map(|(number, (body, step))| BodyCall { number, space: space(body), body, views: &step.views })
            .collect();
        out.push_str(&function(number, &calls, plan.rows().is_some()));
    }
    out
}

/// Renders the cases of `dispatch`.
pub(super) fn cases(plan: &Plan) -> String {
    let case = |number: usize| format!("    case {}: task_{number}(w, r); break;\n", FIRST_BODY as usize + number);
    (0..plan.sequences.len()).map(case).collect()
}

/// Renders the cases of `dispatch_feed`.
pub(super) fn feeds(plan: &Plan) -> String {
    let streams = |(_, sequence): &(usize, &Sequence)| sequence.stream.is_some();
    let case = |(number, _): (usize, &Sequence)| {
        format!("    case {}: block_feed(r, feed); break;\n", FIRST_BODY as usize + number)
    };
    plan.sequences.iter().enumerate().filter(streams).map(case).collect()
}

/// The call of a body in a task.
struct BodyCall<'p> {
    /// Index of the call in the task.
    number: usize,
    /// Number of its text's namespace.
    space: usize,
    body: &'p Body,
    views: &'p [View],
}

impl BodyCall<'_> {
    fn tensors(&self) -> usize {
        let params = &self.body.signature.params;
        params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor { .. })).count()
    }

    /// Tiles of its operands.
    fn tiles(&self) -> usize {
        self.tensors() + self.body.signature.results.len()
    }

    /// Words of its arguments, rounded up to a multiple of four.
    fn words(&self) -> usize {
        let scalars = self.body.signature.params.len() - self.tensors();
        (self.tiles() * OPERAND_WORDS as usize + scalars).next_multiple_of(4)
    }

    /// Returns the name of a variable of the call.
    fn name(&self, variable: &str) -> String {
        if self.number == 0 { variable.to_owned() } else { format!("{variable}_{}", self.number) }
    }

    /// Whether the call streams a weight.
    fn streams(&self) -> bool {
        self.views.contains(&View::Stream)
    }

    /// Returns the variable of the streamed weight.
    fn stream(&self) -> Option<String> {
        let at = self.views.iter().position(|view| *view == View::Stream)?;
        let params = self.body.signature.params.iter().enumerate();
        let mut tensors = params.filter(|(_, param)| matches!(param.kind, ParamKind::Tensor { .. }));
        tensors.nth(at).map(|(at, _)| self.name(&format!("a{at}")))
    }

    /// Whether operands are laid out in scratch before it runs.
    fn gathers(&self) -> bool {
        let tensors = self.body.signature.params.iter().filter_map(|param| match &param.kind {
            ParamKind::Tensor { class, .. } => Some(*class),
            ParamKind::Float | ParamKind::Dim(_) | ParamKind::Pos => None,
        });
        tensors.enumerate().any(|(at, class)| tensor_view(class, self.view(at)).1 == "in")
    }

    fn view(&self, operand: usize) -> View {
        self.views.get(operand).copied().unwrap_or(View::Buffer)
    }

    /// Renders one line per view.
    fn write_views(&self, out: &mut String) {
        let t = self.name("t");
        let (mut tensor, mut scalar) = (0, 0);
        for (at, param) in self.body.signature.params.iter().enumerate() {
            let ((class, view), number) = match &param.kind {
                ParamKind::Tensor { class, .. } => (tensor_view(*class, self.view(tensor)), &mut tensor),
                ParamKind::Float => (("const float", "real"), &mut scalar),
                ParamKind::Dim(_) => (("const u32", "number"), &mut scalar),
                ParamKind::Pos => (("const u32", "pos"), &mut scalar),
            };
            let made = match view {
                "stream_of" => format!("stream_of({t}, r, {number})"),
                "input_of" => format!("input_of({t}, {number})"),
                view => format!("{t}.{view}({number})"),
            };
            let _ = writeln!(out, "    {class} {} = {made};", self.name(&format!("a{at}")));
            *number += 1;
        }
        for (at, result) in self.body.signature.results.iter().enumerate() {
            let operand = tensor + at;
            let (class, made) = match (result.dtype, self.view(operand)) {
                (_, View::Local) if self.streams() => ("Pairs", format!("local_pairs_of({t}, {operand})")),
                (_, View::Local) => ("Out", format!("{t}.local_out({operand})")),
                (amk_ir::DType::U32, _) => ("Choice", format!("{t}.choice({operand})")),
                _ if self.streams() => ("Pairs", format!("pairs_of({t}, {operand})")),
                _ => ("Out", format!("{t}.out({operand})")),
            };
            let _ = writeln!(out, "    const {class} {} = {made};", self.name(&format!("y{at}")));
        }
    }

    /// Renders the call of the body.
    fn call(&self) -> String {
        let Signature { name, params, results, .. } = &self.body.signature;
        let of = |variable: &'static str, count: usize| (0..count).map(move |at| self.name(&format!("{variable}{at}")));
        let args: Vec<String> = of("a", params.len()).chain(of("y", results.len())).collect();
        format!("body{}::{name}({}, {});", self.space, self.name("t"), args.join(", "))
    }

    /// Renders one line per result that leaves the task.
    fn write_deliveries(&self, out: &mut String) {
        for at in 0..self.body.signature.results.len() {
            let operand = self.tensors() + at;
            if self.view(operand) != View::Local {
                let (t, y) = (self.name("t"), self.name(&format!("y{at}")));
                let _ = match self.streams() {
                    true => writeln!(out, "    deliver_pairs({t}, {operand}, {y});"),
                    false => writeln!(out, "    {t}.deliver({operand}, {y});"),
                };
            }
        }
    }
}

/// Returns the type of a tensor's view and the method that makes it.
fn tensor_view(class: TensorClass, view: View) -> (&'static str, &'static str) {
    match (class, view) {
        (_, View::Stream) => ("Stream", "stream_of"),
        (_, View::Packets) => ("const Input", "input_of"),
        (_, View::Local) => ("const In", "local_in"),
        (TensorClass::Tensor, _) => ("const In", "in"),
        (TensorClass::Weight, _) => ("const Weight", "weight"),
        (TensorClass::State, _) => ("const State", "state"),
        (TensorClass::Token, _) => ("const u32", "token"),
    }
}

/// Renders `task_N`: the views, the calls separated by barriers, and the delivery; in programs with
/// rows, for one row after the other. A streaming task is inlined into the VM's loop, where the
/// compiler knows which values are warp-uniform. Other tasks are functions that take a copy of the
/// worker, since passing it by reference would spill it from registers.
fn function(number: usize, calls: &[BodyCall<'_>], rows: bool) -> String {
    let stream = calls.iter().find_map(BodyCall::stream);
    // A task that lays nothing out needs no barrier around the layout.
    let gathers = stream.is_none() || calls.iter().any(BodyCall::gathers);
    let head = match stream {
        Some(_) => format!("AMK_DEVICE void task_{number}(Worker& w, const Record& r)"),
        None => format!("__device__ __noinline__ void task_{number}(Worker w, const Record r)"),
    };
    let mut out = format!("{head} {{\n");
    if rows {
        out.push_str("    for (TaskRows rows(w, r); rows.left(); rows.next()) {\n");
    }
    for call in calls {
        let (t, tiles) = (call.name("t"), call.tiles());
        let row = if rows { ", rows.row" } else { "" };
        let _ = match call.number.checked_sub(1).and_then(|before| calls.get(before)) {
            None => writeln!(out, "    Task {t}(w, r, {tiles}{row});"),
            Some(before) => writeln!(out, "    Task {t}({}, {}, {tiles});", before.name("t"), before.words()),
        };
        if call.number == 0 && gathers {
            out.push_str("    t.begin();\n");
        }
        call.write_views(&mut out);
    }
    if gathers {
        out.push_str("    t.ready();\n");
    }
    let bodies: Vec<String> = calls.iter().map(|call| format!("    {}\n", call.call())).collect();
    out.push_str(&bodies.join("    t.sync();\n"));
    if calls.last().is_some_and(|call| !call.streams()) {
        out.push_str("    t.done();\n");
    }
    calls.iter().for_each(|call| call.write_deliveries(&mut out));
    if let Some(stream) = stream {
        let _ = writeln!(out, "    {stream}.leave();");
    }
    if rows {
        out.push_str("    }\n");
    }
    out.push_str("}\n");
    out
}
