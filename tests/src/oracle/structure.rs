//! Structural rules: references, arities, regions, queues, thresholds, capacities.

use super::source::{Access, Buffer, Call, Counter, Kind, Operand, Queues, Source, Task};

/// Says no to a program without a meaning.
///
/// # Errors
/// The first thing found.
pub fn check(source: &Source) -> Result<(), String> {
    if source.positions == 0 {
        return Err("no position".into());
    }
    if source.rows.is_some() || source.tasks.iter().flat_map(|task| &task.calls).any(|call| call.rows.is_some()) {
        return Err("rows, which have no meaning without a step".into());
    }
    buffers(source)?;
    if source.events.iter().flatten().any(|&extent| extent == 0) {
        return Err("an event tensor without counters".into());
    }
    for (id, task) in source.tasks.iter().enumerate() {
        for call in &task.calls {
            calls(source, call).map_err(|why| format!("t{id}: {why}"))?;
        }
        counters(source, task).map_err(|why| format!("t{id}: {why}"))?;
    }
    locals(source)?;
    queues(source)
}

fn buffers(source: &Source) -> Result<(), String> {
    for (id, buffer) in source.buffers.iter().enumerate() {
        if buffer.shape.is_empty() || buffer.shape.len() > 4 || buffer.elements() == 0 {
            return Err(format!("b{id} has a shape without elements or of more than 4 dimensions"));
        }
        if buffer.place.is_some_and(|place| place % buffer.width != 0) {
            return Err(format!("b{id} is not aligned"));
        }
        if buffer.slots == Some(0) {
            return Err(format!("b{id} has no slot"));
        }
        if buffer.slots.is_some() && !matches!(buffer.kind, Kind::Activation | Kind::Output) {
            return Err(format!("b{id} cannot be a packet buffer"));
        }
        if buffer.place.is_some() && buffer.kind == Kind::Local {
            return Err(format!("local b{id} is not in the arena"));
        }
        if (0..id).any(|other| share(buffer, &source.buffers[other])) {
            return Err(format!("packets of b{id} or of a buffer before it are not alone in the arena"));
        }
    }
    let owned = |b: &&Buffer| b.kind != Kind::Local && b.place.is_none();
    let bytes = |b: &Buffer| b.elements() * b.width * b.slots.unwrap_or(1);
    let own: u64 = source.buffers.iter().filter(owned).map(bytes).sum();
    let arena = source.buffers.iter().filter_map(|b| b.place.map(|at| at + bytes(b))).max().unwrap_or(0);
    if source.memory_bytes.is_some_and(|limit| own + arena > limit) {
        return Err("more memory than there is".into());
    }
    Ok(())
}

/// Whether two buffers share bytes of the arena, one of them of packets.
fn share(one: &Buffer, other: &Buffer) -> bool {
    let range = |b: &Buffer| b.place.map(|place| place..place + b.elements() * b.width * b.slots.unwrap_or(1));
    let meet = matches!((range(one), range(other)), (Some(a), Some(b)) if a.start < b.end && b.start < a.end);
    meet && (one.slots.is_some() || other.slots.is_some())
}

fn calls(source: &Source, call: &Call) -> Result<(), String> {
    let by_id = || call.name.strip_prefix('i').and_then(|id| source.instructions.get(id.parse::<usize>().ok()?));
    let named = source.instructions.iter().find(|signature| signature.name == call.name);
    let signature = named.or_else(by_id).ok_or(format!("no instruction `{}`", call.name))?;
    let accesses: Vec<Access> = call.operands.iter().map(|operand| operand.access).collect();
    if accesses != signature.accesses || call.params != signature.params {
        return Err(format!("`{}` takes other operands or parameters", call.name));
    }
    call.operands.iter().try_for_each(|operand| tile(source, operand))
}

fn tile(source: &Source, operand: &Operand) -> Result<(), String> {
    let id = operand.buffer;
    let buffer = source.buffers.get(id).ok_or(format!("no b{id}"))?;
    if operand.access.writes() && matches!(buffer.kind, Kind::Weight | Kind::Input) {
        return Err(format!("b{id} is read only"));
    }
    if operand.early && operand.access != Access::Read {
        return Err(format!("an early access of b{id} that is not a read"));
    }
    if operand.tile.len() != buffer.shape.len() {
        return Err(format!("b{id} has another rank"));
    }
    for (interval, &extent) in operand.tile.iter().zip(&buffer.shape) {
        let Some((lo, hi)) = interval else { continue };
        let moves = lo.pos || hi.pos;
        for position in 0..if moves { source.positions } else { 1 } {
            if hi.at(position) > extent {
                return Err(format!("a tile outside of b{id}"));
            }
            if lo.at(position) > hi.at(position) {
                return Err(format!("bounds of a tile of b{id} that cross"));
            }
        }
    }
    let follows = operand.tile.iter().flatten().any(|(lo, hi)| lo.pos || hi.pos);
    let positions = if follows { source.positions } else { 1 };
    if (0..positions).all(|position| empty(operand, position)) {
        return Err(format!("a tile of b{id} that is always empty"));
    }
    Ok(())
}

fn empty(operand: &Operand, position: u64) -> bool {
    operand.tile.iter().flatten().any(|(lo, hi)| lo.at(position) >= hi.at(position))
}

fn counters(source: &Source, task: &Task) -> Result<(), String> {
    let exists = |counter: &Counter| {
        source.events.get(counter.event).is_some_and(|shape| counter.index < shape.iter().product())
    };
    for (at, (on, threshold)) in task.waits.iter().enumerate() {
        if task.waits[..at].iter().any(|(other, _)| other == on) {
            return Err("waits twice for a counter".into());
        }
        let fan_in = source.tasks.iter().filter(|task| task.signals.contains(on)).count() as u64;
        if !exists(on) {
            return Err("no such counter".into());
        }
        if *threshold == 0 || *threshold > fan_in {
            return Err(format!("waits for {threshold} of {fan_in} signals"));
        }
    }
    for (at, counter) in task.signals.iter().enumerate() {
        if !exists(counter) || task.signals[..at].contains(counter) {
            return Err("signals a counter that does not exist, or twice".into());
        }
    }
    Ok(())
}

/// Local buffers belong to one task, and fit.
fn locals(source: &Source) -> Result<(), String> {
    let mut owners = vec![None; source.buffers.len()];
    for (id, task) in source.tasks.iter().enumerate() {
        for operand in task.calls.iter().flat_map(|call| &call.operands) {
            if source.buffers[operand.buffer].kind != Kind::Local {
                continue;
            }
            if *owners[operand.buffer].get_or_insert(id) != id {
                return Err(format!("local b{} is used by several tasks", operand.buffer));
            }
        }
    }
    for id in 0..source.tasks.len() {
        let owned = source.buffers.iter().zip(&owners).filter(|(_, owner)| **owner == Some(id));
        let bytes: u64 = owned.map(|(buffer, _)| buffer.elements() * buffer.width).sum();
        if source.local_bytes.is_some_and(|limit| bytes > limit) {
            return Err(format!("t{id} has more local memory than there is"));
        }
    }
    Ok(())
}

fn queues(source: &Source) -> Result<(), String> {
    let (workers, entries): (u64, Vec<usize>) = match &source.queues {
        Queues::Static(queues) => (queues.len() as u64, queues.concat()),
        Queues::Ticket { workers, order } => (*workers, order.clone()),
    };
    let needed = if matches!(source.queues, Queues::Static(_)) { workers } else { workers.min(1) };
    if source.resident.is_some_and(|limit| needed > limit) {
        return Err("more workers than are resident".into());
    }
    if workers == 0 && !source.tasks.is_empty() {
        return Err("no worker".into());
    }
    let mut seen = vec![false; source.tasks.len()];
    for task in entries {
        match seen.get_mut(task) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(format!("t{task} does not exist or is queued twice")),
        }
    }
    match seen.iter().position(|&seen| !seen) {
        Some(task) => Err(format!("t{task} is in no queue")),
        None => Ok(()),
    }
}
