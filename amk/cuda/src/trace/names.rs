//! Names in traces: ops by their label and the weights they stream, layers by the names of these
//! weights.

use amk_ir::{Access, BufferId, BufferKind, Operand, Program, TaskId};
use std::collections::HashMap;

pub(super) struct Names {
    pub(super) ops: Vec<String>,
    /// Index into `ops` of each op of the program.
    of: Vec<usize>,
    /// Layer of each op.
    layers: Vec<Option<u32>>,
}

impl Names {
    pub(super) fn new(program: &Program) -> Self {
        let mut weights: Vec<Vec<BufferId>> = vec![Vec::new(); program.ops.len()];
        for task in &program.tasks {
            let Some(known) = task.op.and_then(|op| weights.get_mut(op.index())) else { continue };
            let streamed =
                task.calls.iter().flat_map(|call| &call.operands).filter(|operand| is_matrix(program, operand));
            streamed.map(|operand| operand.buffer).for_each(|buffer| {
                if !known.contains(&buffer) {
                    known.push(buffer);
                }
            });
        }
        let mut names = Self { ops: Vec::new(), of: Vec::new(), layers: Vec::new() };
        let mut index: HashMap<String, usize> = HashMap::new();
        for (label, weights) in program.ops.iter().zip(&weights) {
            let (label, number) = split_number(label);
            let mut paths: Vec<&str> = weights.iter().map(|&id| buffer_name(program, id)).collect();
            paths.sort_unstable();
            let parts = paths.iter().map(|path| path.rsplit('.').next().unwrap_or(path));
            let name = std::iter::once(label).chain(parts).collect::<Vec<_>>().join(" ");
            let next = names.ops.len();
            let at = *index.entry(name.clone()).or_insert(next);
            if at == next {
                names.ops.push(name);
            }
            names.of.push(at);
            names.layers.push(paths.first().and_then(|path| bracketed(path)).or(number));
        }
        names.ops.push("?".into());
        names
    }

    pub(super) fn op(&self, program: &Program, task: TaskId) -> usize {
        let op = program.tasks.get(task.index()).and_then(|task| task.op);
        op.and_then(|op| self.of.get(op.index())).copied().unwrap_or(self.ops.len() - 1)
    }

    pub(super) fn layer(&self, program: &Program, task: TaskId) -> Option<u32> {
        let op = program.tasks.get(task.index())?.op?;
        self.layers.get(op.index()).copied().flatten()
    }
}

/// Returns the result of a task, as printed in the program.
pub(super) fn writes(program: &Program, task: TaskId) -> String {
    let operands =
        program.tasks.get(task.index()).into_iter().flat_map(|task| &task.calls).flat_map(|call| &call.operands);
    let written = operands.filter(|operand| operand.access != Access::Read).filter(|operand| {
        program.buffers.get(operand.buffer.index()).is_some_and(|buffer| buffer.kind != BufferKind::Local)
    });
    let shown = written.map(|operand| {
        let intervals: Vec<String> = operand.region.intervals().iter().map(ToString::to_string).collect();
        format!("{}[{}]", buffer_name(program, operand.buffer), intervals.join(", "))
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Returns the bytes of a task's weight matrices.
pub(crate) fn weight_bytes(program: &Program, task: TaskId) -> u64 {
    let operands =
        program.tasks.get(task.index()).into_iter().flat_map(|task| &task.calls).flat_map(|call| &call.operands);
    let bytes = |operand: &Operand| {
        let each = program.buffers.get(operand.buffer.index()).map_or(0, |buffer| buffer.dtype.bytes());
        operand.region.len_at(0) * u64::from(each)
    };
    operands.filter(|operand| is_matrix(program, operand)).map(bytes).sum()
}

/// Whether an operand is rows of a streamed matrix: all columns, read before the waits. A table is
/// read one row at a time.
fn is_matrix(program: &Program, operand: &Operand) -> bool {
    let Some(buffer) = program.buffers.get(operand.buffer.index()) else { return false };
    let [rows, columns] = operand.region.intervals() else { return false };
    let whole = buffer.shape.get(1).is_some_and(|&extent| columns.len_at(0) == u64::from(extent));
    let table = buffer.shape.first().is_some_and(|&extent| rows.len_at(0) == u64::from(extent));
    operand.early && buffer.kind == BufferKind::Weight && whole && !table
}

fn buffer_name(program: &Program, id: BufferId) -> &str {
    program.buffers.get(id.index()).map_or("?", |buffer| buffer.name.as_str())
}

/// Splits `label 3` into `label` and 3.
fn split_number(label: &str) -> (&str, Option<u32>) {
    match label.rsplit_once(' ').map(|(word, number)| (word, number.parse())) {
        Some((word, Ok(number))) => (word, Some(number)),
        _ => (label, None),
    }
}

/// Returns the number in the first brackets of `w.layers[3].attn.q`.
fn bracketed(path: &str) -> Option<u32> {
    path.split_once('[')?.1.split_once(']')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_weights_name_ops_and_layers() {
        assert_eq!(split_number("label 3"), ("label", Some(3)));
        assert_eq!(split_number("gated"), ("gated", None));
        assert_eq!(bracketed("w.layers[12].attn.q"), Some(12));
        assert_eq!(bracketed("w.ends.norm"), None);
    }
}
