//! Decodes the records that choose a token.

use crate::abi::{FIELDS, LEVELS, ROUNDS, SEARCH, SHARES};
use amk::ir::{BufferId, BufferKind, Param};
use amk_cuda::image::Record;
use amk_cuda::image::abi::UNIT;
use amk_cuda::image::decode::{
    DecodedCall, DecodedOperand, Format, Place, Places, Refusal, WorkerState, only, read, rows, write,
};
use amk_cuda::plan::Plan;
use amk_cuda::set::RecordKind;
use std::ops::Range;

/// Records of a worker's best logit. Without a filter, a step skips the probes that follow.
pub(crate) const BEST: RecordKind = RecordKind {
    dispatch: |plan| one_row(plan, "best"),
    skips: Some(("!filtering(w)", ROUNDS)),
    ..RecordKind::new("BEST", best)
};

/// Records of probes of the rows above some levels.
pub(crate) const PROBE: RecordKind =
    RecordKind { dispatch: |plan| one_row(plan, "probe"), ..RecordKind::new("PROBE", probe) };

/// Records that choose a token; with rows, the tokens of some rows.
pub(crate) const CHOOSE: RecordKind = RecordKind {
    dispatch: |plan| one_row(plan, "choose").or_else(|| Some("choose_rows(w, r)".to_owned())),
    ..RecordKind::new("CHOOSE", choose)
};

/// Renders the call of a function, unless the plan has rows.
fn one_row(plan: &Plan, function: &str) -> Option<String> {
    plan.rows().is_none().then(|| format!("{function}(w, r)"))
}

/// Probes since the best logit was published, `None` before it.
#[derive(Clone, Copy, Debug, Default)]
struct Probes(Option<u32>);

fn probes(state: &WorkerState) -> Option<u32> {
    state.own.get::<Probes>().and_then(|probes| probes.0)
}

/// Checks that all probes directly follow the best logit: an unfiltered step skips that many
/// records.
pub(super) fn check_order(state: &mut WorkerState, kind: Option<&str>) -> Result<(), Refusal> {
    let due = probes(state).is_some_and(|probes| probes < ROUNDS);
    if due != (kind == Some("PROBE")) {
        let found = kind.unwrap_or("another");
        return Err(Refusal::new("op", format!("is {found}: {ROUNDS} probes follow the best logit")));
    }
    if kind == Some("BEST") && state.own.entry::<Probes>().0.replace(0).is_some() {
        return Err(Refusal::new("op", "is another best logit of a step"));
    }
    Ok(())
}

/// Checks that a queue ends after its token is chosen.
pub(super) fn check_end(state: &WorkerState) -> Result<(), Refusal> {
    match probes(state) {
        Some(ROUNDS) => Ok(()),
        _ => Err(Refusal::new("op", "the queue ends before a token is chosen")),
    }
}

/// A buffer that all workers publish to, one row each: `[workers, ..]`.
struct Published<'c, 'p> {
    places: &'c Places<'p>,
    workers: u32,
}

impl<'c, 'p> Published<'c, 'p> {
    fn new(places: &'c Places<'p>) -> Self {
        Self { places, workers: places.program.queues.workers() }
    }

    fn place(&self, field: &'static str, at: u32, each: &[u32], format: Format) -> Result<Place, Refusal> {
        let shape: Vec<u32> = [self.workers].iter().chain(each).copied().collect();
        self.places.whole(field, at, &shape, format).map(Place::Buffer)
    }

    fn best(&self, field: &'static str, at: u32) -> Result<Place, Refusal> {
        self.place(field, at, &[2], Format::TwoSlots)
    }

    fn shares(&self, at: u32) -> Result<Place, Refusal> {
        self.place("partial", at, &[SHARES], Format::Words)
    }

    fn found(&self, field: &'static str, at: u32) -> Result<Place, Refusal> {
        self.place(field, at, &[LEVELS, FIELDS], Format::Words)
    }

    /// Returns a read of some words of every worker's row.
    fn all(&self, field: &'static str, place: Place, words: &[u32]) -> DecodedOperand {
        read(field, place, &ranges(0..self.workers, words))
    }
}

/// Returns the ranges of some rows and of all their words.
fn ranges(rows: Range<u32>, words: &[u32]) -> Vec<Range<u32>> {
    [rows].into_iter().chain(words.iter().map(|&words| 0..words)).collect()
}

/// Returns the worker's rows of the logits, if it has any, and the instruction for either case.
fn logits<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &WorkerState,
    [ranked, rowless]: [&'p str; 2],
) -> Result<(&'p str, Vec<DecodedOperand>), Refusal> {
    let mut own = rows(record, UNIT)?;
    // The last unit may lack rows.
    if own.end.checked_sub(places.image.vocab).is_some_and(|beyond| beyond < UNIT) {
        own.end = places.image.vocab;
    }
    state.check_logits(&own)?;
    if own.is_empty() {
        return Ok((rowless, Vec::new()));
    }
    Ok((ranked, vec![read("row", Place::Buffer(places.image.logits), &[own])]))
}

fn best<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row", "output", "partial"])?;
    let published = Published::new(places);
    let names = ["amk_kernels::best", "amk_kernels::no_best"];
    let (path, mut operands) = logits(record, places, state, names)?;
    let best = published.best("output", record.output)?;
    let shares = published.shares(record.partial)?;
    operands.push(write("output", best, &ranges(state.row(), &[2])));
    operands.push(write("partial", shares, &ranges(state.row(), &[SHARES])));
    let params = (record.units > 0).then_some(Param::U32(record.row)).into_iter().collect();
    Ok(vec![DecodedCall { params, ..DecodedCall::new(path, operands) }])
}

fn probe<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row", "input", "output", "partial", "layer"])?;
    let round = probes(state).unwrap_or(0);
    if record.layer != round {
        return Err(Refusal::new("layer", format!("is {}, expected round {round}", record.layer)));
    }
    state.own.set(Probes(Some(round + 1)));
    let published = Published::new(places);
    let (path, operands) = if round == 0 {
        let names = ["amk_kernels::first_probe", "amk_kernels::no_first_probe"];
        let (path, mut operands) = logits(record, places, state, names)?;
        let best = published.best("input", record.input)?;
        let shares = published.shares(record.partial)?;
        operands.push(published.all("input", best, &[2]));
        operands.push(published.all("partial", shares, &[SHARES]));
        (path, operands)
    } else {
        only(record, &["units", "row", "input", "output", "layer"])?;
        let names = ["amk_kernels::probe", "amk_kernels::no_probe"];
        let (path, mut operands) = logits(record, places, state, names)?;
        let found = published.found("input", record.input)?;
        operands.push(published.all("input", found, &[LEVELS, FIELDS]));
        operands.push(read("search", Place::Kept("search"), &ranges(state.row(), &[SEARCH])));
        (path, operands)
    };
    let found = published.found("output", record.output)?;
    let written = [
        write("output", found, &ranges(state.row(), &[LEVELS, FIELDS])),
        write("search", Place::Kept("search"), &ranges(state.row(), &[SEARCH])),
    ];
    Ok(vec![DecodedCall::new(path, operands.into_iter().chain(written).collect())])
}

fn choose<'p>(record: &Record, places: &Places<'p>, state: &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    if places.program.rows.is_some() {
        return choose_rows(record, places);
    }
    only(record, &["input", "partial"])?;
    if probes(state) != Some(ROUNDS) {
        return Err(Refusal::new("op", "is a choice before the best logit is known"));
    }
    let published = Published::new(places);
    let best = published.best("input", record.input)?;
    let found = published.found("partial", record.partial)?;
    let operands = vec![
        published.all("input", best, &[2]),
        published.all("partial", found, &[LEVELS, FIELDS]),
        read("search", Place::Kept("search"), &ranges(state.row(), &[SEARCH])),
        write("token", Place::Buffer(places.image.token), &[state.row()]),
    ];
    Ok(vec![DecodedCall::new("amk_kernels::choose", operands)])
}

/// The tokens after rows, which go to the only output besides the logits.
fn choose_rows<'p>(record: &Record, places: &Places<'p>) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row"])?;
    let (program, logits) = (places.program, places.image.logits);
    let buffers = program.buffers.iter().enumerate().map(|(at, buffer)| (BufferId::from(at), buffer));
    let mut outputs = buffers.filter(|(id, buffer)| buffer.kind == BufferKind::Output && *id != logits);
    let (Some((chosen, _)), None) = (outputs.next(), outputs.next()) else {
        return Err(Refusal::new("op", "chooses tokens, for which the program has no output of their own"));
    };
    let row = |n: u16| {
        let row = record.row.checked_add(u32::from(n).saturating_mul(program.queues.workers()));
        row.filter(|row| *row < u32::MAX).ok_or_else(|| Refusal::new("units, row", "go beyond any row"))
    };
    let call = |row: u32| {
        let from = read("units, row", Place::Buffer(logits), &[0..places.image.vocab]);
        let to = write("units, row", Place::Buffer(chosen), &[0..1]);
        DecodedCall {
            rows: Some(row..row + 1),
            wanted: true,
            ..DecodedCall::new("amk_kernels::argmax", vec![from, to])
        }
    };
    (0..record.units).map(|n| row(n).map(call)).collect()
}
