//! The printer of the text format.

use super::cursor::{is_digits, is_plain_name, is_plain_word};
use super::shown::Shown;
use super::table::{is_plain, write_routed, write_routed_signal, write_routed_wait, write_table};
use crate::{
    Access, Buffer, BufferKind, Call, DType, Element, EventId, EventTensor, Exchange, Instruction, InstructionId,
    Interval, Limits, Operand, Param, Program, Queues, Steps, Task, TaskId, WorkerId,
};
use core::fmt::{self, Display, Formatter, Write};
use std::collections::HashSet;

/// The program as text; see the [module](super) for the format.
pub fn print(program: &Program) -> String {
    let mut text = String::new();
    // Writing to a `String` does not fail.
    let _ = write_program(&mut text, program);
    text
}

/// The text of [`print()`].
impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

fn write_program(out: &mut String, program: &Program) -> fmt::Result {
    writeln!(out, "program @{}", name(&program.name, true))?;
    if program.positions != 1 {
        writeln!(out, "positions {}", program.positions)?;
    }
    if let Some(rows) = program.rows {
        writeln!(out, "rows {rows}")?;
    }
    if program.steps == Steps::Pipelined {
        writeln!(out, "steps pipelined")?;
    }
    write_limits(out, &program.limits)?;
    for (dim, value) in &program.dims {
        writeln!(out, "dim {} = {value}", word(dim))?;
    }
    for (n, instruction) in program.instructions.iter().enumerate() {
        write_instruction(out, InstructionId::from(n), instruction)?;
    }
    for (n, label) in program.ops.iter().enumerate() {
        writeln!(out, "op o{n} {}", quoted(label))?;
    }
    for (n, buffer) in program.buffers.iter().enumerate() {
        write_buffer(out, n, buffer)?;
    }
    for (n, table) in program.tables.iter().enumerate() {
        write_table(out, n, table)?;
    }
    for (n, event) in program.events.iter().enumerate() {
        write!(out, "event e{n} @{}", name(&event.name, false))?;
        if !event.shape.is_empty() {
            write_shape(out, &event.shape)?;
        }
        writeln!(out)?;
    }
    let callable = callable(program);
    for (n, task) in program.tasks.iter().enumerate() {
        write_task(out, program, &callable, TaskId::from(n), task)?;
        writeln!(out)?;
    }
    write_queues(out, &program.queues)
}

fn write_limits(out: &mut String, limits: &Limits) -> fmt::Result {
    let none = Limits::default();
    if *limits == none {
        return Ok(());
    }
    write!(out, "limits")?;
    if limits.workers != none.workers {
        write!(out, " workers {}", limits.workers)?;
    }
    if limits.local_bytes != none.local_bytes {
        write!(out, " local {}", limits.local_bytes)?;
    }
    if limits.memory_bytes != none.memory_bytes {
        write!(out, " memory {}", limits.memory_bytes)?;
    }
    writeln!(out)
}

/// The start of the writes at the end of an operand list: they follow the arrow.
fn first_trailing_write(accesses: impl DoubleEndedIterator<Item = Access> + ExactSizeIterator) -> usize {
    let len = accesses.len();
    len - accesses.rev().take_while(|&access| access == Access::Write).count()
}

/// The mark of an access in front of an operand.
pub(super) fn access_mark(access: Access) -> &'static str {
    match access {
        Access::Read => "",
        Access::Write => "out ",
        Access::Update => "mut ",
    }
}

fn write_instruction(out: &mut String, id: InstructionId, instruction: &Instruction) -> fmt::Result {
    write!(out, "instruction {id} {} ", quoted(&instruction.path))?;
    write_declaration(out, instruction)?;
    writeln!(out)
}

/// Name, operands and parameters of an instruction, as it is declared.
pub(crate) fn operands_text(instruction: &Instruction) -> String {
    let mut text = String::new();
    let _ = write_declaration(&mut text, instruction);
    text
}

fn write_declaration(out: &mut String, instruction: &Instruction) -> fmt::Result {
    write!(out, "{}(", word(&instruction.name))?;
    let split = first_trailing_write(instruction.operands.iter().map(|o| o.access));
    let (left, right) = instruction.operands.split_at(split);
    write_list(out, left, |out, o| write!(out, "{}{}", access_mark(o.access), operand_name(&o.name)))?;
    write!(out, ")")?;
    if !right.is_empty() {
        write!(out, " -> (")?;
        write_list(out, right, |out, o| write!(out, "{}", operand_name(&o.name)))?;
        write!(out, ")")?;
    }
    if !instruction.params.is_empty() {
        write!(out, " {{ ")?;
        write_list(out, &instruction.params, |out, p| write!(out, "{}", word(p)))?;
        write!(out, " }}")?;
    }
    Ok(())
}

fn write_buffer(out: &mut String, n: usize, buffer: &Buffer) -> fmt::Result {
    write!(out, "buffer b{n} @{} {} {}", name(&buffer.name, true), kind_name(buffer.kind), buffer.dtype)?;
    write_shape(out, &buffer.shape)?;
    if let Exchange::Packet { slots } = buffer.exchange {
        write!(out, " packet {slots}")?;
    }
    if let Some(place) = buffer.place {
        write!(out, " at {place}")?;
    }
    writeln!(out)
}

fn write_shape(out: &mut String, shape: &[u32]) -> fmt::Result {
    write!(out, "[")?;
    write_list(out, shape, |out, extent| write!(out, "{extent}"))?;
    write!(out, "]")
}

/// The line of a task.
pub(crate) fn task_text(program: &Program, id: TaskId, task: &Task) -> String {
    let mut text = String::new();
    let _ = write_task(&mut text, program, &callable(program), id, task);
    text
}

fn write_task(out: &mut String, program: &Program, callable: &HashSet<&str>, id: TaskId, task: &Task) -> fmt::Result {
    write!(out, "task {id}")?;
    if let Some(op) = task.op {
        write!(out, " {op}")?;
    }
    write!(out, ":")?;
    for (n, call) in task.calls.iter().enumerate() {
        write!(out, "{}", if n == 0 { " " } else { " then " })?;
        write_call(out, program, callable, call)?;
    }
    for (n, wait) in task.waits.iter().enumerate() {
        write!(out, "{}", if n == 0 { " wait " } else { ", " })?;
        write_element(out, program, wait.on)?;
        write!(out, " >= {}", wait.threshold)?;
    }
    for (n, &wait) in (task.waits.len()..).zip(&task.routed_waits) {
        write!(out, "{}", if n == 0 { " wait " } else { ", " })?;
        write_routed_wait(out, program, wait)?;
    }
    for (n, &signal) in task.signals.iter().enumerate() {
        write!(out, "{}", if n == 0 { " signal " } else { ", " })?;
        write_element(out, program, signal)?;
    }
    for (n, &signal) in (task.signals.len()..).zip(&task.routed_signals) {
        write!(out, "{}", if n == 0 { " signal " } else { ", " })?;
        write_routed_signal(out, program, signal)?;
    }
    Ok(())
}

fn write_call(out: &mut String, program: &Program, callable: &HashSet<&str>, call: &Call) -> fmt::Result {
    let name = program.instructions.get(call.instruction.index()).map(|instruction| instruction.name.as_str());
    match name.filter(|name| callable.contains(name)) {
        Some(name) => write!(out, "{name}(")?,
        None => write!(out, "{}(", call.instruction)?,
    }
    let split = first_trailing_write(call.operands.iter().map(|o| o.access));
    let (left, right) = call.operands.split_at(split);
    write_list(out, left, |out, o| write_marked_operand(out, program, o, access_mark(o.access)))?;
    write!(out, ")")?;
    if !right.is_empty() {
        write!(out, " -> (")?;
        write_list(out, right, |out, o| write_marked_operand(out, program, o, ""))?;
        write!(out, ")")?;
    }
    if !call.params.is_empty() {
        write!(out, " {{")?;
        write_list(out, &call.params, |out, param| write!(out, "{}", param_text(param)))?;
        write!(out, "}}")?;
    }
    call.rows.map_or(Ok(()), |rows| write!(out, " {rows}"))
}

/// The names by which instructions are called: others are called by their ids.
fn callable(program: &Program) -> HashSet<&str> {
    let (mut names, mut twice) = (HashSet::new(), HashSet::new());
    for instruction in program.instructions.iter().filter(|instruction| is_call_word(&instruction.name)) {
        if !names.insert(instruction.name.as_str()) {
            twice.insert(instruction.name.as_str());
        }
    }
    names.retain(|name| !twice.contains(name));
    names
}

/// Whether a call can use this name: it is not taken for a keyword or an id.
fn is_call_word(name: &str) -> bool {
    let id = name.strip_prefix(InstructionId::PREFIX).is_some_and(is_digits);
    is_plain_word(name) && !id && !matches!(name, "wait" | "signal" | "then")
}

fn write_marked_operand(out: &mut String, program: &Program, operand: &Operand, mark: &str) -> fmt::Result {
    if operand.early {
        write!(out, "early ")?;
    }
    write!(out, "{mark}")?;
    write_operand(out, program, operand)
}

/// Writes the buffer and the tile of an operand by ids, as in `b3[0..16, ..]`.
fn write_operand(out: &mut String, program: &Program, operand: &Operand) -> fmt::Result {
    let shape = program.buffers.get(operand.buffer.index()).map_or(&[][..], |b| &b.shape);
    write!(out, "{}[", operand.buffer)?;
    let inside = operand.routed.filter(|_| is_plain(program, operand));
    for (n, interval) in operand.region.intervals().iter().enumerate() {
        write!(out, "{}", if n == 0 { "" } else { ", " })?;
        match inside {
            Some(routed) if n == 0 => write_routed(out, program, routed)?,
            _ => write_interval(out, *interval, shape.get(n).copied())?,
        }
    }
    write!(out, "]")?;
    if let (None, Some(routed)) = (inside, operand.routed) {
        write!(out, " by ")?;
        write_routed(out, program, routed)?;
    }
    Ok(())
}

fn write_interval(out: &mut String, interval: Interval, extent: Option<u32>) -> fmt::Result {
    write!(out, "{}", interval_text(interval, extent))
}

/// An interval in a dimension of the given extent.
pub(crate) fn interval_text(interval: Interval, extent: Option<u32>) -> String {
    let Interval { lo, hi } = interval;
    if extent.is_some_and(|extent| interval == Interval::fixed(0, extent)) {
        "..".to_owned()
    } else if lo.next() == Some(hi) {
        lo.to_string()
    } else {
        interval.to_string()
    }
}

/// Writes one counter, as in `e0[1, 2]`.
fn write_element(out: &mut String, program: &Program, element: Element) -> fmt::Result {
    let event = program.events.get(element.event.index());
    write!(out, "{}", element.event)?;
    match event {
        Some(EventTensor { shape, .. }) if shape.is_empty() && element.index == 0 => Ok(()),
        event => write_index(out, event.map_or(&[], |event| &event.shape), element.index),
    }
}

/// The place of an element of this shape, as in `[1, 2]`.
pub(crate) fn index_text(shape: &[u32], index: u32) -> String {
    let mut text = String::new();
    let _ = write_index(&mut text, shape, index);
    text
}

/// Writes the place of an element of this shape: an index for each dimension where there are few,
/// or else the row-major index.
pub(super) fn write_index(out: &mut String, shape: &[u32], index: u32) -> fmt::Result {
    // A text is as long as its program: with more dimensions each element would take as many
    // numbers.
    const MOST_INDICES: usize = 8;
    let shape = if shape.len() > MOST_INDICES { &[] } else { shape };
    let len = shape.iter().try_fold(1u64, |len, &extent| len.checked_mul(extent.into()));
    match len.filter(|&len| shape.len() > 1 && u64::from(index) < len) {
        Some(mut stride) => {
            write!(out, "[")?;
            let mut rest = u64::from(index);
            for (n, &extent) in shape.iter().enumerate() {
                stride /= u64::from(extent.max(1));
                write!(out, "{}{}", if n == 0 { "" } else { ", " }, rest / stride.max(1))?;
                rest %= stride.max(1);
            }
            write!(out, "]")
        }
        None => write!(out, "[{index}]"),
    }
}

/// A parameter in the syntax of a call.
pub(crate) fn param_text(param: &Param) -> String {
    match param {
        Param::F32(x) if x.is_nan() => "nan".to_owned(),
        // `Debug` of a float is the shortest text that reads back, with a `.` or an `e`.
        Param::F32(x) => format!("{x:?}"),
        Param::U32(n) => n.to_string(),
        Param::Pos => "pos".to_owned(),
    }
}

fn write_queues(out: &mut String, queues: &Queues) -> fmt::Result {
    match queues {
        Queues::Static(workers) => {
            for (n, queue) in workers.iter().enumerate() {
                write!(out, "worker {}:", WorkerId::from(n))?;
                for task in queue {
                    write!(out, " {task}")?;
                }
                writeln!(out)?;
            }
            Ok(())
        }
        Queues::Ticket { workers, order } => {
            write!(out, "ticket {workers}:")?;
            for task in order {
                write!(out, " {task}")?;
            }
            writeln!(out)
        }
    }
}

/// The items with commas between them.
pub(super) fn write_list<T>(
    out: &mut String,
    items: &[T],
    mut write: impl FnMut(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            write!(out, ", ")?;
        }
        write(out, item)?;
    }
    Ok(())
}

/// A name after `@`.
pub(super) fn name(name: &str, brackets: bool) -> String {
    if is_plain_name(name, brackets) { name.to_owned() } else { quoted(name) }
}

/// A word, in quotes where it must be.
pub(super) fn word(name: &str) -> String {
    if is_plain_word(name) { name.to_owned() } else { quoted(name) }
}

/// A word that is not taken for an access.
pub(super) fn operand_name(name: &str) -> String {
    if matches!(name, "mut" | "out" | "early") { quoted(name) } else { word(name) }
}

/// A string in double quotes.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", Shown(text))
}

/// The name of a kind in the text format.
pub(crate) fn kind_name(kind: BufferKind) -> &'static str {
    KINDS.iter().find(|(k, _)| *k == kind).map_or("", |(_, name)| name)
}

/// The kinds and their names in the text format.
pub(super) const KINDS: [(BufferKind, &str); 6] = [
    (BufferKind::Weight, "weight"),
    (BufferKind::Input, "input"),
    (BufferKind::Activation, "activation"),
    (BufferKind::Output, "output"),
    (BufferKind::State, "state"),
    (BufferKind::Local, "local"),
];

/// The element type of this name.
pub(super) fn dtype_of(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|dtype| dtype.name() == name)
}

/// Ids of event tensors as the text shows them.
pub(super) const EVENT: &str = EventId::PREFIX;
