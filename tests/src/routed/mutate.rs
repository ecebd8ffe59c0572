//! Small changes of programs with tables, which mostly make them wrong.

use crate::generate::Rng;
use amk_ir::{Element, Holds, Operand, Program, Queues, Routed, RoutedWait, Steps};

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// As drawn.
    Drawn,
    /// A fixed wait is gone.
    DropWait,
    /// A fixed wait asks for one signal less.
    LowerWait,
    /// A wait that depends on a table is gone.
    DropRoutedWait,
    /// A wait that depends on a table is on another element.
    RedirectRoutedWait,
    /// A signal that depends on a table is gone.
    DropRoutedSignal,
    /// A signal that depends on a table is of another entry.
    RedirectRoutedSignal,
    /// A fixed signal is gone.
    DropSignal,
    /// A fixed signal goes to another counter.
    RedirectSignal,
    /// A tile that a table decides is another.
    ShiftTile,
    /// A tile that a table decides is all of the buffer.
    WidenTile,
    /// A read of the table is gone from a task.
    ForgetTable,
    /// Two neighbours of a queue change places.
    SwapQueue,
    /// Entries of a row need no longer differ.
    DropDistinct,
    /// The barrier between steps, which tables require, is removed.
    Pipeline,
    /// Several changes.
    Several,
}

impl Class {
    /// The classes of one change.
    pub const SINGLE: [Self; 14] = [
        Self::DropWait,
        Self::LowerWait,
        Self::DropRoutedWait,
        Self::RedirectRoutedWait,
        Self::DropRoutedSignal,
        Self::RedirectRoutedSignal,
        Self::DropSignal,
        Self::RedirectSignal,
        Self::ShiftTile,
        Self::WidenTile,
        Self::ForgetTable,
        Self::SwapQueue,
        Self::DropDistinct,
        Self::Pipeline,
    ];
}

/// Takes a random one out.
fn take<T>(rng: &mut Rng, list: &mut Vec<T>) -> Option<T> {
    let at = rng.below(list.len() as u32) as usize;
    (at < list.len()).then(|| list.remove(at))
}

/// Changes the program; `false` where the class does not apply to it.
pub fn apply(rng: &mut Rng, program: &mut Program, class: Class) -> bool {
    let entries = program.buffers[program.tables[0].buffer.index()].shape.iter().product::<u32>();
    let values = match program.tables[0].holds {
        Holds::Routes { values, .. } => values,
        Holds::Splits { .. } => return false,
    };
    let table = program.tables[0].buffer;
    let count = program.tasks.len() as u32;
    let task = &mut program.tasks[rng.below(count) as usize];
    match class {
        Class::Drawn | Class::Several => true,
        Class::Pipeline => {
            program.steps = Steps::Pipelined;
            true
        }
        Class::DropWait => take(rng, &mut task.waits).is_some(),
        Class::LowerWait => {
            let wait = task.waits.iter_mut().find(|wait| wait.threshold > 1);
            wait.map(|wait| wait.threshold -= 1).is_some()
        }
        Class::DropRoutedWait => take(rng, &mut task.routed_waits).is_some(),
        Class::RedirectRoutedWait => {
            let changed = take(rng, &mut task.routed_waits).map(|wait| match wait {
                RoutedWait::Count { event, table, .. } => RoutedWait::Count { event, value: rng.below(values), table },
                RoutedWait::Pick { event, table, threshold, .. } => {
                    RoutedWait::Pick { event, table, entry: rng.below(entries), threshold }
                }
            });
            task.routed_waits.extend(changed);
            changed.is_some()
        }
        Class::DropRoutedSignal => take(rng, &mut task.routed_signals).is_some(),
        Class::RedirectRoutedSignal => {
            let at = rng.below(task.routed_signals.len() as u32) as usize;
            task.routed_signals.get_mut(at).map(|signal| signal.entry = rng.below(entries)).is_some()
        }
        Class::DropSignal => take(rng, &mut task.signals).is_some(),
        Class::RedirectSignal => {
            let Some(signal) = take(rng, &mut task.signals) else { return false };
            let extent = program.events[signal.event.index()].shape.iter().product::<u32>();
            task.signals.push(Element { index: rng.below(extent), ..signal });
            true
        }
        Class::ShiftTile | Class::WidenTile => {
            let operands = task.calls.iter_mut().flat_map(|call| &mut call.operands);
            let mut routed: Vec<&mut Operand> = operands.filter(|operand| operand.routed.is_some()).collect();
            let at = rng.below(routed.len() as u32) as usize;
            let Some(operand) = routed.get_mut(at) else { return false };
            operand.routed = match operand.routed {
                Some(Routed::Row { table, .. }) if class == Class::ShiftTile => {
                    Some(Routed::Row { table, entry: rng.below(entries) })
                }
                Some(Routed::Pick { table, .. }) if class == Class::ShiftTile => {
                    Some(Routed::Pick { table, entry: rng.below(entries) })
                }
                Some(Routed::Group { table, .. }) if class == Class::ShiftTile => {
                    Some(Routed::Group { table, group: rng.below(values) })
                }
                _ => None,
            };
            true
        }
        Class::ForgetTable => {
            let Some(call) = task.calls.first_mut() else { return false };
            let at = call.operands.iter().position(|operand| operand.buffer == table && operand.access.reads());
            let Some(at) = at else { return false };
            call.operands.remove(at);
            program.instructions[call.instruction.index()].operands.remove(at);
            true
        }
        Class::SwapQueue => {
            let queue = match &mut program.queues {
                Queues::Static(queues) => {
                    let at = rng.below(queues.len() as u32) as usize;
                    &mut queues[at]
                }
                Queues::Ticket { order, .. } => order,
            };
            let at = rng.below((queue.len() as u32).saturating_sub(1)) as usize;
            if queue.len() > 1 {
                queue.swap(at, at + 1);
            }
            queue.len() > 1
        }
        Class::DropDistinct => match &mut program.tables[0].holds {
            Holds::Routes { distinct, .. } => std::mem::replace(distinct, false),
            Holds::Splits { .. } => false,
        },
    }
}
