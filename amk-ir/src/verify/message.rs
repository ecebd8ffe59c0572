//! Violations as text: a headline, facts, and one edit that fixes it.

use super::deadlock::steps_that_count;
use super::names::Names;
use super::violation::{
    Capacity, Code, Conflict, Link, Mismatch, NoPacket, Occurrence, Party, Race, Reference, Shaped, TooMuch, Unordered,
    Violation, WaitsOn,
};
use super::{routing, rows};
use crate::{Access, BufferKind, Program, TaskId};
use core::fmt;

/// A violation in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The code.
    pub code: Code,
    /// The defect and its place, in lower case and at most 90 columns as long as names are short.
    pub headline: String,
    /// Facts: counts, tiles, why there is no order.
    pub notes: Vec<String>,
    /// One edit that mends it.
    pub help: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.headline)?;
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        write!(f, "\nhelp: {}", self.help)
    }
}

/// Headline, notes and help.
type Words = (String, Vec<String>, String);

impl Violation {
    /// Renders the violation as text, with the names of its program.
    pub fn message(&self, program: &Program) -> Message {
        const WIDEST: usize = 90;
        let (mut headline, notes, help) = self.words(Names::of(program, 60));
        // A name that a user may well have written stays whole, whatever the width.
        for longest in [40, 30] {
            if headline.chars().count() > WIDEST {
                (headline, _, _) = self.words(Names::of(program, longest));
            }
        }
        Message { code: self.code(), headline, notes, help }
    }

    fn words(&self, names: Names<'_>) -> Words {
        match self {
            Self::Missing { .. }
            | Self::Call { .. }
            | Self::Shape(_)
            | Self::OutOfBounds { .. }
            | Self::EmptyTile { .. }
            | Self::ReadOnly { .. }
            | Self::SharedLocal { .. }
            | Self::Queued { .. }
            | Self::OutputNotWritten { .. }
            | Self::Capacity(_)
            | Self::Repeated { .. }
            | Self::Packet { .. }
            | Self::TooMany { .. }
            | Self::TooMuch(_)
            | Self::EarlyWrite { .. }
            | Self::NotFinite { .. } => structure(self, names),
            Self::Unsatisfiable { .. } | Self::Deadlock { .. } | Self::TicketOrder { .. } | Self::NoWorkers { .. } => {
                deadlock(self, names)
            }
            Self::Table { .. }
            | Self::RoutedTile { .. }
            | Self::RoutedCounter { .. }
            | Self::TableNotRead { .. }
            | Self::RoutedSteps { .. } => routing::words(self, names),
            Self::Rows(_)
            | Self::MixedRows { .. }
            | Self::OtherPositions { .. }
            | Self::RowOrder { .. }
            | Self::UnwantedRows { .. }
            | Self::RowBound { .. } => rows::words(self, names),
            Self::Race(race) => self::race(race, names),
            _ => memory(self, names),
        }
    }

    /// The tasks that are involved, party (1) first.
    pub fn parties(&self) -> Vec<TaskId> {
        let mut tasks: Vec<TaskId> = match self {
            Self::Missing { from, .. } => from.iter().copied().collect(),
            Self::Call { task, .. }
            | Self::Queued { task, .. }
            | Self::Repeated { task, .. }
            | Self::NotFinite { task, .. }
            | Self::Unsatisfiable { task, .. }
            | Self::TableNotRead { task, .. } => vec![*task],
            Self::OutOfBounds { site, .. }
            | Self::EmptyTile { site, .. }
            | Self::ReadOnly { site }
            | Self::EarlyWrite { site }
            | Self::RoutedTile { site, .. }
            | Self::Uninitialised { site, .. }
            | Self::MixedRows { site }
            | Self::OtherPositions { site }
            | Self::UnwantedRows { site, .. }
            | Self::RowBound { site, .. } => vec![site.task],
            Self::Rows(why) => why.task().into_iter().collect(),
            Self::RowOrder { first, second, .. } => vec![first.site.task, second.site.task],
            Self::Capacity(Capacity::Local { task, .. }) => vec![*task],
            Self::SharedLocal { first, second, .. } => vec![*first, *second],
            Self::Deadlock { cycle, .. } => cycle.iter().map(|link| link.task).collect(),
            Self::TicketOrder { task, link, .. } => vec![*task, link.for_task],
            Self::Race(race) => vec![race.first.site.task, race.second.site.task],
            Self::Early { read, write, .. } => vec![read.site.task, write.site.task],
            Self::Overwritten { read, write, .. } => vec![write.site.task, read.site.task],
            Self::SameCall { first, second, .. } | Self::PacketTwice { first, second, .. } => {
                vec![first.site.task, second.site.task]
            }
            Self::SharedPlace { write, .. } => write.iter().map(|write| write.site.task).collect(),
            _ => Vec::new(),
        };
        tasks.dedup();
        tasks
    }
}

fn structure(violation: &Violation, names: Names<'_>) -> Words {
    match violation {
        Violation::Missing { from, what } => missing(*from, *what, names),
        Violation::Call { task, call, mismatch } => self::call(*task, *call, *mismatch, names),
        Violation::Shape(shaped) => shape(*shaped, names),
        Violation::OutOfBounds { site, dim, position } => {
            let (tile, buffer) = (names.site(*site), names.site_buffer(*site));
            let shape = format!("{buffer} is {}", names.shape_of(*site));
            match dim {
                None => {
                    let headline = format!("tile {tile} of {} has another rank than its buffer", names.call(*site));
                    (headline, vec![shape], "give one interval for each dimension".into())
                }
                Some(dim) => {
                    let extent = names.extent(*site, *dim);
                    let headline = format!("tile {tile} of {} leaves its buffer", names.call(*site));
                    let at = names.at_position(*position);
                    (headline, vec![format!("{shape}{at}")], format!("end dimension {dim} of the tile at {extent}"))
                }
            }
        }
        Violation::EmptyTile { site, dim, crosses_at } => {
            let (tile, call) = (names.site(*site), names.call(*site));
            match crosses_at {
                Some(position) => {
                    let note = format!("dimension {dim} starts behind its end{}", names.at_position(*position));
                    (
                        format!("the bounds of tile {tile} of {call} cross"),
                        vec![note],
                        "start the interval before its end".into(),
                    )
                }
                None => {
                    let note = format!("dimension {dim} ends where it starts");
                    (format!("tile {tile} of {call} is empty"), vec![note], "drop the task, or give it elements".into())
                }
            }
        }
        Violation::ReadOnly { site } => {
            let headline = format!("write to {} in {}, which is read only", names.site(*site), names.call(*site));
            let note = "no task writes a weight or an input: they may be read before any wait".into();
            (headline, vec![note], format!("declare {} as `state` or `activation`", names.site_buffer(*site)))
        }
        Violation::SharedLocal { buffer, first, second } => {
            let buffer = names.buffer(*buffer);
            let headline =
                format!("local {buffer} is used by (1) {} and (2) {}", names.task(*first), names.task(*second));
            let note = "a local buffer is private to one task".into();
            (headline, vec![note], format!("declare {buffer} as `activation`, or give (2) a separate local"))
        }
        Violation::Queued { task, times: 0 } => {
            let headline = format!("{} is in no queue", names.task(*task));
            (headline, vec!["no worker would run it".into()], format!("add `{task}` to a queue"))
        }
        Violation::Queued { task, times } => {
            let headline = format!("{} is queued {times} times", names.task(*task));
            (headline, vec!["it would run more than once a step".into()], format!("keep one entry of `{task}`"))
        }
        Violation::OutputNotWritten { buffer, elements, position, given } => {
            let tile = names.elements(*buffer, elements);
            let headline = format!("output {tile} is not written");
            let note = format!("no task of the step writes it{}", names.at_position(*position));
            let notes = [Some(note), given.map(|given| names.given(given))].into_iter().flatten().collect();
            (headline, notes, format!("write {tile} in some task"))
        }
        Violation::Capacity(capacity) => self::capacity(*capacity, names),
        Violation::Repeated { task, element, wait } => {
            let (task, counter) = (names.task(*task), names.counter(*element));
            let verb = if *wait { "waits for" } else { "signals" };
            let note = match wait {
                true => "one wait for the larger threshold says both".into(),
                false => "a task counts once in the fan-in of a counter".into(),
            };
            let what = if *wait { "wait" } else { "signal" };
            (format!("{task} {verb} {counter} twice"), vec![note], format!("keep one {what} on {counter}"))
        }
        Violation::Packet { buffer, why } => packet(*buffer, *why, names),
        Violation::TooMany { what, count } => (
            format!("{count} {what} are too many"),
            vec!["ids and counts have 32 bits".into()],
            "split the program".into(),
        ),
        Violation::TooMuch(what) => too_much(*what, names),
        Violation::EarlyWrite { site } => {
            let headline = format!("early write to {} in {}", names.site(*site), names.call(*site));
            let note = "only what is read and not written can be there before the task's waits".into();
            (headline, vec![note], format!("drop `early` in `{}`", site.task))
        }
        Violation::NotFinite { task, call, param } => {
            let (name, callee) = (names.param_name(*task, *call, *param), names.callee(*task, *call));
            let headline = format!("parameter {name} of {callee} in `{task}` is {}", names.param(*task, *call, *param));
            let note = "a parameter is a finite number of 32 bits, at most `3.4028235e38`".into();
            (headline, vec![note], format!("give {name} a finite number"))
        }
        _ => (String::new(), Vec::new(), String::new()),
    }
}

fn too_much(what: TooMuch, names: Names<'_>) -> Words {
    let (headline, note, help) = match what {
        TooMuch::Positions { buffer, positions } => (
            format!("tiles of {} pass each other at too many positions", names.buffer(buffer)),
            format!("every order of their bounds is checked, at {positions} positions"),
            "cut the buffer in fewer tiles, lower `positions`, or split the buffer".to_owned(),
        ),
        TooMuch::Slots { buffer } => (
            format!("packets of {} move with the position, and other packets have many slots", names.buffer(buffer)),
            "steps between two uses of a slot are followed one by one, up to 15".into(),
            "use up to 15 slots, or tiles that do not move".into(),
        ),
        TooMuch::Pairs { buffer } => (
            format!("too many tiles of {} to compare pair by pair", names.buffer(buffer)),
            "they overlap in too many ways to be cut into cells".into(),
            "use tiles that nest, or split the buffer".into(),
        ),
        TooMuch::Runs { buffer } => (
            format!("tiles of {} fall into too many runs of bytes", names.buffer(buffer)),
            "it shares bytes with another buffer, so they are followed byte by byte at every position".into(),
            "give the buffer a separate place, or use tiles of whole rows".into(),
        ),
        TooMuch::Clocks { workers, counters, tickets: true } => (
            format!("{counters} counters between {workers} chains of tickets take too much memory to follow"),
            "any worker takes the next ticket, so that only signals order the tasks of different chains".into(),
            "use static queues, larger blocks of rows or tiles, or split the program".into(),
        ),
        TooMuch::Clocks { workers, counters, tickets: false } => (
            format!("{counters} counters between {workers} workers take too much memory to follow"),
            "for each counter, and each worker, it is known which of its tasks have finished".into(),
            "use fewer workers or counters, or split the program".into(),
        ),
        TooMuch::Orders { task } => (
            format!("the order around {} takes too long to decide", names.task(task)),
            "partial waits, and workers that run ahead of each other, are followed step by step".into(),
            "wait for all signals of a counter, give tiles separate counters, or split the program".into(),
        ),
        TooMuch::Routes { task } => (
            format!("what tables order around {} takes too long to decide", names.task(task)),
            "an order that only several entries give together is searched for".into(),
            "wait for the counts that the task depends on, or split the table".into(),
        ),
    };
    (headline, vec![note], help)
}

fn missing(from: Option<TaskId>, what: Reference, names: Names<'_>) -> Words {
    let (kind, name, known, prefix) = match what {
        Reference::Buffer(id) => ("buffer", id.to_string(), names.program.buffers.len(), "b"),
        Reference::Instruction(id) => ("instruction", id.to_string(), names.program.instructions.len(), "i"),
        Reference::Op(id) => ("op", id.to_string(), names.program.ops.len(), "o"),
        Reference::Table(id) => ("table", id.to_string(), names.program.tables.len(), "r"),
        Reference::Task(id) => ("task", id.to_string(), names.program.tasks.len(), "t"),
        Reference::Counter(element) => ("counter", names.raw_counter(element), names.program.events.len(), "e"),
    };
    let place = from.map_or_else(|| "a queue".to_owned(), |task| names.task(task));
    let headline = format!("unknown {kind} `{name}` in {place}");
    let note = match (what, known) {
        (Reference::Counter(element), _) if names.program.events.get(element.event.index()).is_some() => {
            format!("{} has {} counters", names.event(element.event), names.counters(element.event))
        }
        (_, 0) => format!("the program has no entity `{prefix}0`"),
        (_, known) => format!("the program has `{prefix}0` to `{prefix}{}`", known - 1),
    };
    (headline, vec![note], format!("declare `{name}`, or name another {kind}"))
}

fn call(task: TaskId, call: u32, mismatch: Mismatch, names: Names<'_>) -> Words {
    let callee = names.callee(task, call);
    let words = |access| match access {
        Access::Read => "read",
        Access::Write => "written",
        Access::Update => "updated",
    };
    let declared = vec![format!("{callee} is declared as `{}`", names.declaration(task, call))];
    match mismatch {
        Mismatch::Operands { expected, found } => {
            let headline = format!("call of {callee} in `{task}` has {found} operands, expected {expected}");
            (headline, declared, format!("give it {expected} operands"))
        }
        Mismatch::Params { expected, found } => {
            let headline = format!("call of {callee} in `{task}` has {found} parameters, expected {expected}");
            (headline, declared, format!("give it {expected} parameters"))
        }
        Mismatch::Access { operand, expected, found } => {
            let name = names.operand_name(task, call, operand);
            let (expected, found) = (words(expected), words(found));
            let headline = format!("operand `{name}` of {callee} in `{task}` is {found}, expected {expected}");
            (headline, declared, "mark the operand as it is declared".into())
        }
    }
}

fn shape(shaped: Shaped, names: Names<'_>) -> Words {
    let (headline, help) = match shaped {
        Shaped::Rank { buffer, rank } => {
            (format!("{} has {rank} dimensions, expected 1 to 4", names.buffer(buffer)), "merge or add dimensions")
        }
        Shaped::EmptyBuffer { buffer, dim } => {
            (format!("dimension {dim} of {} is zero", names.buffer(buffer)), "drop the buffer, or give it elements")
        }
        Shaped::EmptyEvent { event, dim } => {
            (format!("dimension {dim} of {} is zero", names.event(event)), "drop the event tensor, or give it counters")
        }
        Shaped::NoPositions => {
            ("the program has no positions".into(), "say how many positions a step can have: `positions 1`")
        }
    };
    (headline, Vec::new(), help.into())
}

fn capacity(capacity: Capacity, names: Names<'_>) -> Words {
    match capacity {
        Capacity::Workers { needed, available } => {
            let headline = format!("{needed} workers must be resident, the target has {available}");
            let note = "a worker that is not resident never runs its queue, and others wait for it".into();
            let help = match available {
                0 => "give the target at least one worker".into(),
                _ => format!("schedule for {available} workers"),
            };
            (headline, vec![note], help)
        }
        Capacity::Local { task, needed, available } => {
            let headline =
                format!("{} needs {needed} bytes of local memory, a worker has {available}", names.task(task));
            (headline, Vec::new(), "use smaller tiles, or fuse fewer calls".into())
        }
        Capacity::Memory { needed, available } => {
            let headline = format!("the buffers need {needed} bytes, the target has {available}");
            (headline, Vec::new(), "let buffers share bytes, or choose smaller dims".into())
        }
    }
}

fn packet(buffer: crate::BufferId, why: NoPacket, names: Names<'_>) -> Words {
    let name = names.buffer(buffer);
    let kind = names.program.buffers.get(buffer.index()).map_or(BufferKind::Local, |buffer| buffer.kind);
    match why {
        NoPacket::Kind => {
            let headline = format!("packets on {name}, which is of kind `{}`", crate::text::kind_name(kind));
            let note = "a packet is written and read in one step: `activation` and `output` only".into();
            (headline, vec![note], format!("exchange {name} by a counter"))
        }
        NoPacket::NoSlots => {
            (format!("packets on {name} without a slot"), Vec::new(), "give it a slot: `packet 1`".into())
        }
        NoPacket::TooFine => {
            let note = "its tiles overlap in too many ways to follow who waits for whom".into();
            (format!("packets on {name} in tiles that do not match"), vec![note], "use tiles that nest".into())
        }
    }
}

fn deadlock(violation: &Violation, names: Names<'_>) -> Words {
    match violation {
        Violation::Unsatisfiable { task, wait, fan_in } => {
            let counter = names.counter(wait.on);
            let kind = if wait.threshold == 0 { "wait for no signal," } else { "unsatisfiable wait" };
            let headline = format!("{kind} {} in {}", names.wait(*wait), names.task(*task));
            let tasks = if *fan_in == 1 { "1 task signals" } else { &format!("{fan_in} tasks signal") };
            let note = format!("{tasks} {counter}, once a step each");
            let help = match (fan_in, wait.threshold) {
                (0, _) => format!("let a task signal {counter}, or drop the wait"),
                (_, 0) => "drop the wait, or give it a threshold of 1 or more".into(),
                (fan_in, _) => {
                    format!("wait for all of them: {}", names.wait(crate::Wait { threshold: *fan_in, ..*wait }))
                }
            };
            (headline, vec![note], help)
        }
        Violation::Deadlock { cycle, stuck, position } => {
            let headline = match cycle.as_slice() {
                [] => format!("deadlock of {stuck} tasks"),
                [one] => format!("deadlock of {}, which waits for itself", names.task(one.task)),
                [one, .., last] => format!("deadlock of {} and {}", names.task(one.task), names.task(last.task)),
            };
            let chain = chain(cycle, names);
            let tasks = if *stuck == 1 { "1 task never runs".into() } else { format!("{stuck} tasks never run") };
            let notes = vec![chain, format!("{tasks}{}", names.at_position(*position))];
            (headline, notes, break_cycle(cycle, names))
        }
        Violation::TicketOrder { task, link, position } => {
            let (waiter, later) = (names.task(*task), names.task(link.for_task));
            let headline = format!("deadlock of {waiter}, which waits for the later ticket {later}");
            let notes = vec![
                format!("{}{}", names.link(link), names.at_position(*position)),
                "a worker that holds the ticket waits; if it is the only one, for ever".into(),
            ];
            (headline, notes, format!("put `{}` before `{task}` in the order of tickets", link.for_task))
        }
        Violation::NoWorkers { tasks } => {
            (format!("no worker for {tasks} tasks"), Vec::new(), "use at least one worker".into())
        }
        _ => (String::new(), Vec::new(), String::new()),
    }
}

/// `t3 waits for `e1 >= 2` <- t9 behind t4 in w2 <- t4 waits for `e0 >= 1` <- t3`.
fn chain(cycle: &[Link], names: Names<'_>) -> String {
    const LONGEST: usize = 8;
    let mut text: Vec<String> = cycle.iter().take(LONGEST).map(|link| names.link(link)).collect();
    if cycle.len() > LONGEST {
        text.push(format!("{} more", cycle.len() - LONGEST));
    }
    text.extend(cycle.first().map(|first| first.task.to_string()));
    text.join(" <- ")
}

fn break_cycle(cycle: &[Link], names: Names<'_>) -> String {
    let queue = cycle.iter().find(|link| link.on == WaitsOn::Queue);
    let wait = cycle.iter().rev().find_map(|link| match link.on {
        WaitsOn::Counter(wait) => Some((link, wait)),
        _ => None,
    });
    match (queue, wait) {
        (Some(link), _) => format!("put `{}` before `{}` in {}", link.task, link.for_task, names.queue(link.task)),
        (None, Some((link, wait))) => format!("drop the wait {} of `{}`", names.wait(wait), link.task),
        (None, None) => "let one of the tasks read something else".into(),
    }
}

fn race(race: &Race, names: Names<'_>) -> Words {
    let Race { conflict, first, second, position, .. } = race;
    let (one, two) = (names.doing(first), names.doing(second));
    let headline = match conflict {
        Conflict::SharedBytes => {
            format!("page clobber on {} between (1) {one} and (2) {two}", names.common(first, second))
        }
        _ => format!("race on {} between (1) {one} and (2) {two}", names.common(first, second)),
    };
    let mut notes = vec![format!("(1) is {}, (2) is {}", names.place(first), names.place(second))];
    if second.step > 0 {
        let when = if second.step == 1 { "in the next step".into() } else { format!("{} steps later", second.step) };
        let slots = if *conflict == Conflict::PacketReuse { ", in the same slot" } else { "" };
        notes.push(format!("(2) is {when}{slots}{}", names.at_position(*position)));
    } else if names.moves(first) || names.moves(second) {
        notes.push(format!("they overlap{}", names.at_position(*position)));
    }
    notes.extend(race.given.map(|given| names.given(given)));
    notes.push(why(race, names));
    notes.extend(witness(&race.witness));
    (headline, notes, mend(race, names))
}

fn why(race: &Race, names: Names<'_>) -> String {
    match race.because {
        Unordered::NoPath => "no wait, packet or queue makes (2) come after (1)".into(),
        Unordered::Reversed => "(2) always comes before (1)".into(),
        Unordered::QueueReversed => format!("(2) is before (1) in {}", names.queue(race.second.site.task)),
        Unordered::Partial { wait, fan_in, others } => {
            let counter = names.counter(wait.on);
            let wait = names.wait(wait);
            format!("(2) waits for {wait}, but {others} of the {fan_in} signals on {counter} can come without (1)")
        }
        Unordered::RunsAhead { wait, .. } => {
            let wait = names.wait(wait);
            format!("(2) waits for {wait}, but a worker that is a step ahead can make up for the signal of (1)")
        }
    }
}

fn witness(witness: &[Occurrence]) -> Option<String> {
    let text: Vec<String> = witness
        .iter()
        .map(|Occurrence { task, step }| if *step == 0 { task.to_string() } else { format!("{task} of step +{step}") })
        .collect();
    let start = if text.is_empty() { "at once".to_owned() } else { format!("after {}", text.join(" ")) };
    Some(format!("(2) can start {start}, while (1) has not finished"))
}

fn mend(race: &Race, names: Names<'_>) -> String {
    let (a, b) = (race.first.site.task, race.second.site.task);
    match (race.because, race.conflict) {
        (Unordered::Partial { wait, fan_in, .. }, _) if wait.threshold < fan_in => {
            format!("wait for all of them: {}", names.wait(crate::Wait { threshold: fan_in, ..wait }))
        }
        (_, Conflict::PacketReuse | Conflict::AcrossSteps) => {
            "use `steps barrier`, or let the worker of (2) wait for (1) before it ends its step".into()
        }
        (Unordered::RunsAhead { .. }, _) => "use `steps barrier`, or let the worker that is ahead wait".into(),
        (Unordered::QueueReversed, _) => format!("put `{a}` before `{b}` in {}", names.queue(b)),
        (_, Conflict::SharedBytes) => format!("give {} a separate place", names.buffer(race.second.buffer)),
        (Unordered::Reversed, _) => format!("let `{b}` wait for `{a}`, and not the other way round"),
        _ => match (race.given.and_then(|given| names.count_of(a, given)), names.signal_of(a)) {
            (Some(count), _) => format!("let (2) wait for {count}"),
            (None, Some(wait)) => format!("let (2) wait for {}", names.wait(wait)),
            (None, None) => "let (1) signal a counter and (2) wait for it".into(),
        },
    }
}

fn memory(violation: &Violation, names: Names<'_>) -> Words {
    let between =
        |first: &Party, second: &Party| (names.common(first, second), names.doing(first), names.doing(second));
    let places =
        |first: &Party, second: &Party| format!("(1) is {}, (2) is {}", names.place(first), names.place(second));
    match violation {
        Violation::Uninitialised { site, elements, position, later, given } => {
            let tile = names.elements(names.buffer_of(*site), elements);
            let headline = format!("uninitialised read of {tile} in {}", names.call(*site));
            let at = names.at_position(*position);
            let note = match later {
                Some(later) => format!("the first write comes later, in {}{at}", names.task(*later)),
                None => format!("no task of the step writes it before{at}"),
            };
            let mut notes = vec![format!("the read is {}", names.tile_of(*site)), note];
            notes.extend(given.map(|given| names.given(given)));
            (headline, notes, format!("write {tile} before `{}`", site.task))
        }
        Violation::Early { read, write, position, write_position } => {
            let (tile, _, two) = between(read, write);
            let headline =
                format!("race on {tile} between (1) the early read in {} and (2) {two}", names.call(read.site));
            let mut notes =
                vec![places(read, write), "an early read may come before the launch writes anything".into()];
            if names.moves(read) || names.moves(write) {
                notes.push(format!("they overlap where (1) is at position {position} and (2) at {write_position}"));
            }
            (headline, notes, format!("drop `early` in `{}`", read.site.task))
        }
        Violation::SameCall { first, second, position } => {
            let (tile, one, two) = between(first, second);
            let headline = format!("race on {tile} in one call between (1) {one} and (2) {two}");
            let note = format!("a call may read and write its operands in any order{}", names.at_position(*position));
            (
                headline,
                vec![places(first, second), note],
                "write to another buffer, or declare one operand as `mut`".into(),
            )
        }
        Violation::Misaligned { buffer, alignment } => {
            let name = names.buffer(*buffer);
            (
                format!("the place of {name} is not a multiple of {alignment} bytes"),
                Vec::new(),
                "round the place up".into(),
            )
        }
        Violation::PlacedLocal { buffer } => {
            let name = names.buffer(*buffer);
            (format!("local {name} has a place in the arena"), Vec::new(), format!("drop the place of {name}"))
        }
        Violation::SharedPlace { buffer, other, write, position } => {
            let (name, other) = (names.buffer(*buffer), names.buffer(*other));
            let headline = format!("page clobber on {name}, which shares bytes with {other}");
            let note = match write {
                Some(write) => {
                    let at = names.at_position(*position);
                    format!("at the end of a step they hold what {} writes{at}", names.place(write))
                }
                None => format!("one of them must keep its bytes at all times: {name} and {other} can share none"),
            };
            (headline, vec![note], format!("give {name} a separate place"))
        }
        Violation::Overwritten { read, write, position } => {
            let (_, one, two) = between(write, read);
            let headline = format!("page clobber on {} between (1) {one} and (2) {two}", names.tile(read));
            let note = format!("(1) writes other values to the same bytes{}", names.at_position(*position));
            (headline, vec![places(write, read), note], format!("give {} a separate place", names.buffer(write.buffer)))
        }
        Violation::PacketTwice { first, second, position } => {
            let (tile, one, two) = between(first, second);
            let headline = format!("race on packet {tile} between (1) {one} and (2) {two}");
            let note = format!(
                "a word has one epoch a step, so a reader cannot tell them apart{}",
                names.at_position(*position)
            );
            (headline, vec![places(first, second), note], "write each element once a step".into())
        }
        Violation::WrapAround { element, fan_in } => {
            let plural = if *fan_in == 1 { "" } else { "s" };
            let headline = format!("{} gets {fan_in} signal{plural} a step", names.counter(*element));
            let steps = steps_that_count(names.program);
            let signals = fan_in.saturating_mul(steps.into());
            let note = format!(
                "{steps} steps give it {signals}, and 32-bit counts that wrap around are unambiguous below 2^31"
            );
            let help = match steps {
                2 => "spread the signals over several counters",
                _ => "use `steps barrier` or fewer positions, or spread the signals over several counters",
            };
            (headline, vec![note], help.into())
        }
        Violation::MovingTickets { buffer } => {
            let headline = format!("packets of {} move with the position, in pipelined tickets", names.buffer(*buffer));
            let note = "a later step can overtake an earlier one, and waits for other packets".into();
            (headline, vec![note], "use static queues, `steps barrier`, or tiles that do not move".into())
        }
        _ => (String::new(), Vec::new(), String::new()),
    }
}
