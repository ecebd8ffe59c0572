//! Makes a program smaller as long as it keeps a property.

use amk_ir::{BufferId, EventId, Program, Queues, Steps, TaskId};

/// Removes one thing at a time, until nothing can go.
pub fn shrink(mut program: Program, keeps: impl Fn(&Program) -> bool) -> Program {
    loop {
        let smaller = candidates(&program).into_iter().find(|candidate| *candidate != program && keeps(candidate));
        match smaller {
            Some(smaller) => program = smaller,
            None => return program,
        }
    }
}

/// The program with one thing less, the largest things first.
fn candidates(program: &Program) -> Vec<Program> {
    let mut candidates = Vec::new();
    let mut add = |change: &dyn Fn(&mut Program)| {
        let mut candidate = program.clone();
        change(&mut candidate);
        candidates.push(candidate);
    };
    for task in (0..program.tasks.len()).rev() {
        add(&|p| remove_task(p, task));
    }
    add(&|p| p.steps = Steps::Barrier);
    add(&|p| p.positions = p.positions.saturating_sub(1).max(1));
    for worker in 0..program.queues.workers() as usize {
        add(&|p| remove_worker(p, worker));
    }
    for (at, task) in program.tasks.iter().enumerate() {
        (0..task.calls.len()).for_each(|n| add(&|p| _ = p.tasks[at].calls.remove(n)));
        (0..task.waits.len()).for_each(|n| add(&|p| _ = p.tasks[at].waits.remove(n)));
        (0..task.signals.len()).for_each(|n| add(&|p| _ = p.tasks[at].signals.remove(n)));
        for (call, body) in task.calls.iter().enumerate() {
            (0..body.operands.len()).for_each(|n| add(&|p| remove_operand(p, at, call, n)));
        }
    }
    add(&remove_unused_instructions);
    for buffer in 0..program.buffers.len() {
        add(&|p| remove_buffer(p, buffer));
        add(&|p| p.buffers[buffer].place = None);
    }
    for event in 0..program.events.len() {
        add(&|p| remove_event(p, event));
    }
    candidates
}

fn lists(queues: &mut Queues) -> Vec<&mut Vec<TaskId>> {
    match queues {
        Queues::Static(queues) => queues.iter_mut().collect(),
        Queues::Ticket { order, .. } => vec![order],
    }
}

fn remove_task(program: &mut Program, task: usize) {
    program.tasks.remove(task);
    for list in lists(&mut program.queues) {
        list.retain(|id| id.index() != task);
        list.iter_mut().filter(|id| id.index() > task).for_each(|id| id.0 -= 1);
    }
}

/// Its tasks go to the worker before it.
fn remove_worker(program: &mut Program, worker: usize) {
    match &mut program.queues {
        Queues::Static(queues) if queues.len() > 1 => {
            let tasks = queues.remove(worker);
            queues[worker.saturating_sub(1)].extend(tasks);
        }
        Queues::Static(_) => {}
        Queues::Ticket { workers, .. } => *workers = (*workers - 1).max(1),
    }
}

fn remove_operand(program: &mut Program, task: usize, call: usize, operand: usize) {
    let body = &mut program.tasks[task].calls[call];
    body.operands.remove(operand);
    let accesses: Vec<_> = body.operands.iter().map(|operand| operand.access).collect();
    let instruction = crate::generate::instruction(program, &accesses);
    program.tasks[task].calls[call].instruction = instruction;
}

fn remove_unused_instructions(program: &mut Program) {
    let calls = || program.tasks.iter().flat_map(|task| &task.calls);
    let Some(unused) = (0..program.instructions.len()).find(|&n| calls().all(|call| call.instruction.index() != n))
    else {
        return;
    };
    program.instructions.remove(unused);
    for call in program.tasks.iter_mut().flat_map(|task| &mut task.calls) {
        call.instruction.0 -= u32::from(call.instruction.index() > unused);
    }
}

/// Only where nothing uses it.
fn remove_buffer(program: &mut Program, buffer: usize) {
    let operands = |program: &Program| -> Vec<BufferId> {
        program.tasks.iter().flat_map(|t| &t.calls).flat_map(|c| &c.operands).map(|operand| operand.buffer).collect()
    };
    if operands(program).contains(&BufferId::from(buffer)) {
        return;
    }
    program.buffers.remove(buffer);
    let calls = program.tasks.iter_mut().flat_map(|task| &mut task.calls);
    for operand in calls.flat_map(|call| &mut call.operands).filter(|operand| operand.buffer.index() > buffer) {
        operand.buffer.0 -= 1;
    }
}

/// Only where nothing uses it.
fn remove_event(program: &mut Program, event: usize) {
    let id = EventId::from(event);
    let used = |task: &amk_ir::Task| {
        task.waits.iter().any(|wait| wait.on.event == id) || task.signals.iter().any(|signal| signal.event == id)
    };
    if program.tasks.iter().any(used) {
        return;
    }
    program.events.remove(event);
    for task in &mut program.tasks {
        let elements = task.waits.iter_mut().map(|wait| &mut wait.on).chain(&mut task.signals);
        elements.filter(|element| element.event > id).for_each(|element| element.event.0 -= 1);
    }
}
