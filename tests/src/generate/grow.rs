//! Small additions to a program, for a search that mutations alone would only make poorer.

use super::{Rng, instruction};
use amk_ir::{
    Access, Bound, BufferId, Call, Element, EventId, EventTensor, Interval, Operand, Program, Queues, Region, Task,
    TaskId, Wait,
};

/// Adds a call, a wait between two tasks, or a task that only waits.
pub fn grow(rng: &mut Rng, program: &mut Program) {
    match rng.below(100) {
        0..45 => order(rng, program),
        45..70 => fence(rng, program),
        _ => access(rng, program),
    }
}

/// A task waits for another, by a new counter or by one that the other then signals, too.
fn order(rng: &mut Rng, program: &mut Program) {
    let tasks = program.tasks.len() as u32;
    let (from, to) = (rng.below(tasks) as usize, rng.below(tasks) as usize);
    if tasks > 0 && from != to {
        let (from, to) = if rng.chance(90) { (from.min(to), from.max(to)) } else { (from, to) };
        join(rng, program, from, to);
    }
}

fn join(rng: &mut Rng, program: &mut Program, from: usize, to: usize) {
    let known = program.tasks[to].waits.iter().position(|wait| !program.tasks[from].signals.contains(&wait.on));
    if let Some(wait) = known.filter(|_| rng.chance(30)) {
        let wait = &mut program.tasks[to].waits[wait];
        wait.threshold += u32::from(rng.chance(80));
        let on = wait.on;
        program.tasks[from].signals.push(on);
        return;
    }
    let on = Element { event: EventId::from(program.events.len()), index: 0 };
    program.events.push(EventTensor { name: format!("g{}", on.event.0), shape: Vec::new() });
    program.tasks[from].signals.push(on);
    program.tasks[to].waits.push(Wait { on, threshold: 1 });
}

/// A last task of a queue waits for another.
fn fence(rng: &mut Rng, program: &mut Program) {
    let (task, from) = (program.tasks.len(), rng.below(program.tasks.len() as u32) as usize);
    let Queues::Static(queues) = &mut program.queues else { return };
    let worker = rng.below(queues.len() as u32) as usize;
    if let Some(queue) = queues.get_mut(worker).filter(|_| task > 0) {
        queue.push(TaskId::from(task));
        program.tasks.push(Task::default());
        join(rng, program, from, task);
    }
}

/// A task reads or writes a tile more, at its end or at its start.
fn access(rng: &mut Rng, program: &mut Program) {
    let (task, buffer) = (rng.below(program.tasks.len() as u32), rng.below(program.buffers.len() as u32));
    let Some(of) = program.buffers.get(buffer as usize) else { return };
    let mut region = Region::full(&of.shape);
    let extent = of.shape[0];
    if extent >= program.positions {
        let offset = rng.below(extent + 1 - program.positions);
        let lo = match rng.below(100) {
            0..60 => Bound::at_pos(offset),
            60..80 => Bound::behind(rng.between(1, program.positions)),
            _ => Bound::fixed(0),
        };
        let fixed = Interval::fixed(rng.below(extent), extent);
        let interval = if rng.chance(75) { Interval { lo, hi: Bound::at_pos(offset + 1) } } else { fixed };
        region.intervals_mut().iter_mut().take(1).for_each(|first| *first = interval);
    }
    let access = if rng.chance(75) { Access::Read } else { Access::Write };
    let operands = vec![Operand { buffer: BufferId(buffer), region, access, early: false, routed: None }];
    let call = Call { instruction: instruction(program, &[access]), operands, params: Vec::new(), rows: None };
    if let Some(task) = program.tasks.get_mut(task as usize) {
        let at = if rng.chance(70) { task.calls.len() } else { 0 };
        task.calls.insert(at, call);
    }
}
