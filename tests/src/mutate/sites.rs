//! Every place of a program where a class of mutation applies.

use super::apply::tile;
use super::{Class, Mutation, Site};
use amk_ir::{
    Access, Buffer, BufferId, BufferKind, Element, EventId, Exchange, Operand, Program, Queues, Steps, TaskId,
};

/// All mutations of a class; empty where it does not apply.
pub fn sites(program: &Program, class: Class) -> Vec<Mutation> {
    let sites = match class {
        Class::DropWait
        | Class::LowerWait
        | Class::RaiseWait
        | Class::RedirectWait
        | Class::RepeatWait
        | Class::UnknownCounter => waits(program, class),
        Class::WaitForLater | Class::WaitForSelf => new_waits(program, class == Class::WaitForLater),
        Class::DropSignal | Class::RedirectSignal | Class::RepeatSignal => signals(program, class),
        Class::SwapQueue | Class::MoveTask | Class::DropEntry | Class::RepeatEntry => entries(program, class),
        Class::SplitWorker => own_workers(program),
        Class::StaticToTicket => only(matches!(program.queues, Queues::Static(_))),
        Class::FewerResident => only(matches!(&program.queues, Queues::Static(queues) if queues.len() > 1)),
        Class::Pipeline => only(program.steps == Steps::Barrier),
        Class::Barrier => only(program.steps == Steps::Pipelined),
        Class::FewerPositions => only(program.positions > 1),
        Class::MorePositions => only(program.positions > 1),
        Class::SwapEager => pairs(program),
        Class::ShiftTile | Class::WidenTile | Class::NarrowTile => tiles(program, |_| true, &[false, true]),
        Class::FollowPosition | Class::FollowBound | Class::FallBehind if program.positions < 2 => Vec::new(),
        Class::FollowBound | Class::FallBehind => tiles(program, |_| true, &[false, true]),
        Class::FollowPosition => tiles(program, |_| true, &[true]),
        Class::Early => operands(program, |operand| operand.access == Access::Read && !operand.early),
        Class::DropOperand | Class::ChangeAccess | Class::UnknownBuffer => operands(program, |_| true),
        Class::ChangeRank => operands(program, |operand| operand.region.intervals().len() < amk_ir::MAX_RANK),
        Class::DropCall | Class::UnknownInstruction | Class::ExtraParam => calls(program),
        Class::NoWorkers | Class::LessMemory => only(true),
        Class::Alias => aliases(program),
        Class::ShrinkEvent => {
            let tensors = program.events.iter().enumerate().filter(|(_, event)| !event.shape.is_empty());
            tensors.map(|(n, _)| Site::Event(EventId::from(n))).collect()
        }
        _ => buffers(program, |buffer| applies(class, buffer)),
    };
    sites.into_iter().filter(|site| changes(program, class, *site)).map(|site| Mutation { class, site }).collect()
}

/// Whether a change of a tile's bounds changes them: none goes below 0.
fn changes(program: &Program, class: Class, site: Site) -> bool {
    let bounds = [Class::ShiftTile, Class::WidenTile, Class::NarrowTile, Class::FallBehind];
    let Site::Tile { task, call, operand, dim, up } = site else { return true };
    let before = program.tasks[task.index()].calls[call].operands[operand];
    let mut after = before;
    !bounds.contains(&class) || tile(&mut after, class, dim, up).is_some() && after != before
}

fn only(applies: bool) -> Vec<Site> {
    if applies { vec![Site::Program] } else { Vec::new() }
}

fn tasks(program: &Program) -> impl Iterator<Item = (TaskId, &amk_ir::Task)> {
    program.tasks.iter().enumerate().map(|(n, task)| (TaskId::from(n), task))
}

/// The next counter, cyclically over the whole program; `None` if this is the only one.
fn next(program: &Program, on: Element) -> Option<Element> {
    let len = |event: EventId| program.events.get(event.index()).map_or(0, |event| event.len() as u32);
    if on.index + 1 < len(on.event) {
        return Some(Element { index: on.index + 1, ..on });
    }
    let events = program.events.len() as u32;
    let event = EventId((on.event.0 + 1) % events.max(1));
    let found = Element { event, index: 0 };
    (found != on && len(event) > 0).then_some(found)
}

fn waits(program: &Program, class: Class) -> Vec<Site> {
    let redirected = class == Class::RedirectWait;
    let of = |(id, task): (TaskId, &amk_ir::Task)| {
        let site = |(n, wait): (usize, &amk_ir::Wait)| {
            let to = redirected.then(|| next(program, wait.on));
            match to {
                Some(None) => None,
                to => Some(Site::Wait(id, n, to.flatten())),
            }
        };
        task.waits.iter().enumerate().filter_map(site).collect::<Vec<_>>()
    };
    tasks(program).flat_map(of).collect()
}

/// A wait for a counter that a later task, or the task itself, signals; in the latter case the task
/// gets a signal if it has none.
fn new_waits(program: &Program, later: bool) -> Vec<Site> {
    let mut sites = Vec::new();
    for (id, task) in tasks(program) {
        let of = if later { program.tasks.get(id.index() + 1) } else { Some(task) };
        let waited = |on: &Element| task.waits.iter().any(|wait| wait.on == *on);
        sites.extend(of.and_then(|of| of.signals.iter().find(|on| !waited(on))).map(|&on| Site::Task(id, on)));
    }
    sites
}

fn signals(program: &Program, class: Class) -> Vec<Site> {
    let redirected = class == Class::RedirectSignal;
    let mut sites = Vec::new();
    for (id, task) in tasks(program) {
        for (n, &on) in task.signals.iter().enumerate() {
            match (redirected, next(program, on)) {
                (true, Some(to)) => sites.push(Site::Signal(id, n, Some(to))),
                (true, None) => {}
                (false, _) => sites.push(Site::Signal(id, n, None)),
            }
        }
    }
    sites
}

fn entries(program: &Program, class: Class) -> Vec<Site> {
    let lists: Vec<&[TaskId]> = match &program.queues {
        Queues::Static(queues) => queues.iter().map(Vec::as_slice).collect(),
        Queues::Ticket { order, .. } => vec![order],
    };
    let mut sites = Vec::new();
    for (worker, list) in lists.iter().enumerate() {
        let to = (worker + 1) % lists.len();
        let last = if class == Class::SwapQueue { list.len().saturating_sub(1) } else { list.len() };
        if class != Class::MoveTask || to != worker {
            sites.extend((0..last).map(|at| Site::Entry(worker, at, to)));
        }
    }
    sites
}

/// Entries that are not alone in their queues; each would go to one more worker.
fn own_workers(program: &Program) -> Vec<Site> {
    let Queues::Static(queues) = &program.queues else { return Vec::new() };
    let entries = queues.iter().enumerate().filter(|(_, queue)| queue.len() > 1);
    entries.flat_map(|(worker, queue)| (0..queue.len()).map(move |at| Site::Entry(worker, at, queues.len()))).collect()
}

/// Neighbours in eager order where one writes an element that the other touches.
fn pairs(program: &Program) -> Vec<Site> {
    let operands = |task: usize| program.tasks[task].calls.iter().flat_map(|call| &call.operands);
    let meet = |at: usize| {
        operands(at).any(|a| operands(at + 1).any(|b| a.buffer == b.buffer && (a.access.writes() || b.access.writes())))
    };
    let pairs = (0..program.tasks.len().saturating_sub(1)).filter(|&at| meet(at));
    pairs.map(|at| Site::Pair(TaskId::from(at), TaskId::from(at + 1))).collect()
}

fn tiles(program: &Program, of: impl Fn(&Operand) -> bool, ends: &[bool]) -> Vec<Site> {
    let mut sites = Vec::new();
    for (id, task) in tasks(program) {
        for (call, body) in task.calls.iter().enumerate() {
            for (operand, tile) in body.operands.iter().enumerate().filter(|(_, operand)| of(operand)) {
                for dim in 0..tile.region.intervals().len() {
                    sites.extend(ends.iter().map(|&up| Site::Tile { task: id, call, operand, dim, up }));
                }
            }
        }
    }
    sites
}

/// Whole operands: their tiles' first dimension.
fn operands(program: &Program, of: impl Fn(&Operand) -> bool) -> Vec<Site> {
    let mut sites = tiles(program, of, &[true]);
    sites.retain(|site| matches!(site, Site::Tile { dim: 0, .. }));
    sites
}

fn calls(program: &Program) -> Vec<Site> {
    tasks(program).flat_map(|(id, task)| (0..task.calls.len()).map(move |call| Site::Call(id, call))).collect()
}

fn buffers(program: &Program, of: impl Fn(&Buffer) -> bool) -> Vec<Site> {
    let buffers = program.buffers.iter().enumerate();
    buffers.filter(|(_, buffer)| of(buffer)).map(|(n, _)| Site::Buffer(BufferId::from(n))).collect()
}

fn applies(class: Class, buffer: &Buffer) -> bool {
    let written = matches!(buffer.kind, BufferKind::Activation | BufferKind::State | BufferKind::Output);
    match class {
        Class::FewerSlots => matches!(buffer.exchange, Exchange::Packet { slots } if slots > 0),
        Class::MoreSlots => matches!(buffer.exchange, Exchange::Packet { slots } if slots < u8::MAX),
        Class::PacketToCounter => buffer.exchange != Exchange::Counter,
        Class::CounterToPacket => buffer.kind == BufferKind::Activation && buffer.exchange == Exchange::Counter,
        Class::ReadOnly => written,
        Class::ForgetState => buffer.kind == BufferKind::State,
        Class::MakeLocal => buffer.kind == BufferKind::Activation && buffer.exchange == Exchange::Counter,
        Class::ShrinkBuffer => true,
        Class::Misalign => buffer.place.is_some(),
        _ => false,
    }
}

/// Neighbouring buffers that do not share memory yet: activations, or kept buffers.
fn aliases(program: &Program) -> Vec<Site> {
    let free = |(_, buffer): &(usize, &Buffer)| buffer.exchange == Exchange::Counter && buffer.place.is_none();
    let free: Vec<usize> = program.buffers.iter().enumerate().filter(free).map(|(n, _)| n).collect();
    free.windows(2).map(|pair| Site::Buffers(BufferId::from(pair[0]), BufferId::from(pair[1]))).collect()
}
