//! Features of a program and of the verdicts on it, in a form that can be counted.

use amk_ir::verify::Violation;
use amk_ir::{Access, Buffer, Element, Exchange, Interval, Operand, Program, Queues, Steps, Task};
use std::collections::BTreeMap;

/// Returns the features of a program, so that a run cannot silently cover only the easy ones.
pub fn features(program: &Program) -> Vec<&'static str> {
    let tasks = || program.tasks.iter();
    let operands = || tasks().flat_map(|task| &task.calls).flat_map(|call| &call.operands);
    let follows = |operand: &Operand| operand.region.intervals().iter().any(|i| i.moves());
    let buffers = |of: &dyn Fn(&Buffer) -> bool| program.buffers.iter().any(of);
    let slots = |n: u8| buffers(&|buffer| buffer.exchange == Exchange::Packet { slots: n });
    let of = |operand: &Operand| program.buffers.get(operand.buffer.index());
    let packet = |operand: &Operand| of(operand).is_some_and(|buffer| buffer.exchange != Exchange::Counter);
    let placed = |operand: &Operand| of(operand).is_some_and(|buffer| buffer.place.is_some());
    let last = u64::from(program.positions.saturating_sub(1));
    let empty = |i: &Interval| i.len_at(0) == 0 || i.len_at(last) == 0;
    let fan_in = fan_in(program);
    let found = [
        ("pipelined", program.steps == Steps::Pipelined),
        ("ticket", matches!(program.queues, Queues::Ticket { .. })),
        ("several workers", program.queues.workers() > 1),
        ("over 3 workers", program.queues.workers() > 3),
        ("over 3 positions", program.positions > 3),
        ("packets", buffers(&|buffer| buffer.exchange != Exchange::Counter)),
        ("packets of 2 slots", slots(2)),
        ("packets of 3 slots", slots(3)),
        ("moving packets", operands().any(|operand| packet(operand) && follows(operand))),
        ("aliases", program.buffers.iter().filter(|buffer| buffer.place.is_some()).count() > 1),
        ("moving aliases", operands().any(|operand| placed(operand) && follows(operand))),
        ("fused", tasks().any(|task| task.calls.len() > 1)),
        ("no call", tasks().any(|task| task.calls.is_empty())),
        ("early", operands().any(|operand| operand.early)),
        ("follows the position", operands().any(follows)),
        ("empty at a position", operands().any(|operand| operand.region.intervals().iter().any(empty))),
        ("behind the position", operands().any(|operand| behind(operand).any(|lo| lo))),
        ("ends behind the position", operands().any(|operand| behind(operand).any(|lo| !lo))),
        ("several offsets", offsets(program) > 1),
        ("update in place", operands().any(|operand| operand.access == Access::Update)),
        (
            "partial wait",
            tasks().flat_map(|task| &task.waits).any(|wait| fan_in.get(&wait.on).is_some_and(|&n| wait.threshold < n)),
        ),
        ("unused counter", tasks().flat_map(|task| &task.signals).any(|on| !waited(program, on))),
        ("several waits", tasks().any(|task| task.waits.len() > 1)),
        ("no wait", tasks().all(|task| task.waits.is_empty())),
    ];
    found.into_iter().filter(|(_, found)| *found).map(|(feature, _)| feature).collect()
}

/// Of each bound behind the position, whether it is a lower one.
fn behind(operand: &Operand) -> impl Iterator<Item = bool> {
    let intervals = operand.region.intervals().to_vec().into_iter();
    intervals.flat_map(|i| [(i.lo, true), (i.hi, false)]).filter(|(bound, _)| bound.behind).map(|(_, lo)| lo)
}

fn fan_in(program: &Program) -> BTreeMap<Element, u32> {
    let mut fan_in = BTreeMap::new();
    program.tasks.iter().flat_map(|task| &task.signals).for_each(|on| *fan_in.entry(*on).or_default() += 1);
    fan_in
}

fn waited(program: &Program, on: &Element) -> bool {
    program.tasks.iter().flat_map(|task: &Task| &task.waits).any(|wait| wait.on == *on)
}

/// Offsets to the position among lower bounds.
fn offsets(program: &Program) -> usize {
    let operands = program.tasks.iter().flat_map(|task| &task.calls).flat_map(|call| &call.operands);
    let bounds = operands.flat_map(|operand| operand.region.intervals().to_vec()).map(|interval| interval.lo);
    let mut offsets: Vec<i64> = bounds.filter(|bound| bound.pos).map(|bound| bound.offset()).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets.len()
}

/// A violation's code, and the words in it that tell one case of the code from another:
/// `AMK0503 AcrossSteps Read Write NoPath`.
pub fn cause(violation: &Violation) -> String {
    let text = format!("{violation:?}");
    let mut cause = violation.code().to_string();
    if let Violation::Rows(_) | Violation::OtherPositions { .. } = violation {
        // These are rules, each for a reason of its own.
        let names = text.split(|c: char| !c.is_alphanumeric()).filter(|name| name.starts_with(char::is_uppercase));
        return names.fold(cause, |cause, name| format!("{cause} {name}"));
    }
    for (at, _) in text.match_indices(": ") {
        let rest = &text[at + 2..];
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        // A capital is a variant; a struct's name is followed by its fields, and names of buffers
        // are in quotes.
        if rest.starts_with(char::is_uppercase) && !rest[end..].starts_with(" {") && &rest[..end] != "None" {
            cause.push(' ');
            cause.push_str(&rest[..end]);
        }
    }
    cause
}
