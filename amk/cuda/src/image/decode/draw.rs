//! The choice of a token.

use super::call::{DecodedCall, DecodedOperand, Place, Refusal, only, read, rows, write};
use super::places::{Format, Places};
use super::worker::WorkerState;
use crate::image::abi::{FIELDS, LEVELS, ROUNDS, Record, SEARCH, SHARES, UNIT};
use amk_ir::Param;
use std::ops::Range;

/// What the workers publish, a row each, `[workers, ..]`.
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

    /// A read of a row of some words from every worker.
    fn all(&self, field: &'static str, place: Place, words: &[u32]) -> DecodedOperand {
        read(field, place, &ranges(0..self.workers, words))
    }
}

/// Some rows, and all of the dimensions in them.
fn ranges(rows: Range<u32>, words: &[u32]) -> Vec<Range<u32>> {
    [rows].into_iter().chain(words.iter().map(|&words| 0..words)).collect()
}

/// The worker's rows of the logits, where it has some, and the instruction for either case.
fn logits<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &WorkerState,
    [with, without]: [&'p str; 2],
) -> Result<(&'p str, Vec<DecodedOperand>), Refusal> {
    let own = rows(record, UNIT)?;
    state.check_logits(&own)?;
    if own.is_empty() {
        return Ok((without, Vec::new()));
    }
    Ok((with, vec![read("row", Place::Buffer(places.fixed().logits), &[own])]))
}

pub(super) fn best<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row", "output", "partial"])?;
    let published = Published::new(places);
    let names = ["amk_kernels::best", "amk_kernels::no_best"];
    let (path, mut operands) = logits(record, places, state, names)?;
    let best = published.best("output", record.output)?;
    let shares = published.shares(record.partial)?;
    operands.push(write("output", best, &ranges(state.own(), &[2])));
    operands.push(write("partial", shares, &ranges(state.own(), &[SHARES])));
    let params = (record.units > 0).then_some(Param::U32(record.row)).into_iter().collect();
    Ok(vec![DecodedCall { params, ..DecodedCall::new(path, operands) }])
}

pub(super) fn probe<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &mut WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["units", "row", "input", "output", "partial", "layer"])?;
    let round = state.probes.unwrap_or(0);
    if record.layer != round {
        return Err(Refusal::new("layer", format!("is {}, expected round {round}", record.layer)));
    }
    state.probes = Some(round + 1);
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
        operands.push(read("search", Place::Search, &ranges(state.own(), &[SEARCH])));
        (path, operands)
    };
    let found = published.found("output", record.output)?;
    let written = [
        write("output", found, &ranges(state.own(), &[LEVELS, FIELDS])),
        write("search", Place::Search, &ranges(state.own(), &[SEARCH])),
    ];
    Ok(vec![DecodedCall::new(path, operands.into_iter().chain(written).collect())])
}

pub(super) fn choose<'p>(
    record: &Record,
    places: &Places<'p>,
    state: &WorkerState,
) -> Result<Vec<DecodedCall<'p>>, Refusal> {
    only(record, &["input", "partial"])?;
    if state.probes != Some(ROUNDS) {
        return Err(Refusal::new("op", "is a choice before the best logit is known"));
    }
    let published = Published::new(places);
    let best = published.best("input", record.input)?;
    let found = published.found("partial", record.partial)?;
    let operands = vec![
        published.all("input", best, &[2]),
        published.all("partial", found, &[LEVELS, FIELDS]),
        read("search", Place::Search, &ranges(state.own(), &[SEARCH])),
        write("token", Place::Buffer(places.fixed().token), &[state.own()]),
    ];
    Ok(vec![DecodedCall::new("amk_kernels::choose", operands)])
}
