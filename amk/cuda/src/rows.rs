//! The VM of programs with rows: one launch per step.

mod alone;
mod narrow;
mod times;
mod wanted;
mod width;

pub use narrow::with_exchange;

use super::device::open;
use super::error::CudaError;
use super::image::abi::{NARROW_ROWS, RowWords, VmParams};
use super::launch::{Ready, load};
use super::memory::{self, Memory, Resident, address};
use super::options::VmOptions;
use super::params::Params;
use super::plan::{Plan, Unsupported, WeightForms};
use super::run::RunOptions;
use super::start::{StartClock, StartTimes};
use super::target::GpuTarget;
use super::trace::Trace;
use amk::rows::{PageEdit, PageTables, PlacedRow, PoolSize, RowLimits, RowVm, contract};
use amk::vm::Bindings;
use amk::{Megakernel, Token};
use amk_ir::graph::Instance;
use amk_ir::schedule::{PartialRing, PartialSchedule, RowSchedule};
use amk_ir::verify::Verified;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, PinnedHostSlice, sys};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use times::StepTimes;
use wanted::{LEFT, Wanted, choices, chooser};
use width::Width;

/// A decoder on a GPU whose steps have rows, for use in a [`amk::session::Session`].
///
/// Steps of up to [`NARROW_ROWS`], 16, 32 rows and so on are different programs over the same
/// weights, caches and pages; within one of them the bits of a row's logits do not depend on the
/// other rows. A row that has a step to itself runs the faster program of
/// [`super::Vm`] over pages, if it exists, unless logits are changed or rows are kept alike
/// ([`RowVm::keep_alike`]).
pub struct RowsVm {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    target: &'static GpuTarget,
    /// In the order of their rows.
    widths: Vec<Width>,
    /// The program for steps of exactly one row, if it exists.
    alone: Option<Width>,
    /// Whether such steps nevertheless run the program of several rows.
    keeps_alike: bool,
    /// A buffer for the logits of as many wanted rows as a step has had so far.
    logits: CudaSlice<f32>,
    /// The logits of the wanted rows of the last step, if requested. It may be longer than they
    /// are.
    host_logits: PinnedHostSlice<f32>,
    /// Mapped host memory: the chosen tokens of the last step, by row.
    chosen: PinnedHostSlice<u32>,
    /// Rows, choices and page tables of a step.
    words: CudaSlice<u32>,
    /// The wanted rows of the last step.
    wanted: Wanted,
    /// The program that the last step ran, and the position of its first row.
    last: (Ran, u32),
    times: StepTimes,
    /// The last one of `widths` that has used the packets that several share.
    sharing: Option<usize>,
    time: Duration,
    start: StartTimes,
}

/// The program of a step.
#[derive(Clone, Copy)]
enum Ran {
    /// That of one row.
    Alone,
    /// An index into `widths`.
    Width(usize),
}

/// Where the words of a step are on the device, and its logits.
struct StepWords {
    rows: u64,
    choices: u64,
    page_tables: u64,
    logits: u64,
}

/// The rows of the programs narrower than the widest. There is one more for steps in which a chunk
/// of a prompt runs beside sequences that decode.
const PROGRAMS: [u32; 9] = [NARROW_ROWS, 16, 32, 64, 128, 256, 384, 512, 1024];

/// Words of a row.
const ROW_WORDS: usize = size_of::<RowWords>() / 4;

impl RowsVm {
    /// Loads a decoder onto the first GPU, for steps of up to as many rows as the options' schedule
    /// has, with pools of the given sizes. `cache` keeps compiled device code; `progress` is called
    /// with the fraction of weights packed.
    ///
    /// # Errors
    /// [`CudaError::Unsupported`] if a call has no body for rows, and as for [`super::Vm::new`].
    pub fn new(
        kernel: &Megakernel,
        instance: &Instance,
        bindings: &Bindings,
        cache: &Path,
        options: &VmOptions,
        pages: &PoolSize,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, CudaError> {
        let mut clock = StartClock::start();
        let (context, target) = open()?;
        clock.opened();
        let forms = WeightForms::of(options.precision, bindings);
        let graph = kernel.graph()?;
        let fields = options.schedule.as_ref().unwrap_or(instance.schedule_in(graph));
        let rows = fields.rows.ok_or(CudaError::NoRows)?;
        // With fewer rows, tasks of attention have fewer, so that more workers have one, and
        // products have fewer columns.
        let narrower = PROGRAMS.into_iter().filter(|&most| most < rows.most);
        let prepare = |most: u32| {
            let mut fields = PartialSchedule { rows: Some(RowSchedule { most, ..rows }), ..fields.clone() };
            if most < rows.most {
                fields.ring = PartialRing::default(); // what is given is for wide steps
            }
            let fields = with_exchange(kernel, instance, target, &fields, forms.clone());
            let (options, began) = (VmOptions { schedule: Some(fields), ..options.clone() }, Instant::now());
            let pages = Some((pages, rows.most));
            let ready = Ready::with_pages(kernel, instance, target, &options, &forms, None, pages)?;
            let planned = began.elapsed();
            let code = ready.code(target, cache, &options)?;
            Ok::<_, CudaError>((ready, code, planned))
        };
        let prepare_alone = || {
            let options = alone::options(options, fields)?;
            let pages = Some((pages, rows.most));
            let ready = Ready::with_pages(kernel, instance, target, &options, &forms, None, pages).ok()?;
            let code = alone::has_pages(&ready).then(|| ready.code(target, cache, &options))?.ok()?;
            Some((ready, code))
        };
        let (ready, alone) = thread::scope(|scope| {
            let prepare = &prepare;
            let most = narrower.chain([rows.most]);
            let alone = scope.spawn(prepare_alone);
            let threads: Vec<_> = most.map(|most| scope.spawn(move || prepare(most))).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            let ready = joined.collect::<Result<Vec<_>, _>>()?;
            Ok::<_, CudaError>((ready, alone.join().unwrap_or_else(|panic| resume_unwind(panic))))
        })?;
        clock.prepared(ready.iter().map(|&(.., planned)| planned).max().unwrap_or_default());
        // SAFETY: memory is used on a single stream.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let programs = || ready.iter().map(|(ready, ..)| ready);
        programs().try_for_each(|ready| bindings.check(ready.verified.constants()))?;
        let Ready { plan, image, .. } = programs().next().ok_or(CudaError::NoRows)?;
        if let Some(other) = programs().find(|ready| !ready.image.places_as(image)) {
            let most = other.plan.rows().unwrap_or(0);
            let what = format!("weights lie otherwise in steps of {most} rows than in narrower ones");
            return Err(Unsupported { what, at: plan.program.name.clone() }.into());
        }
        let bytes = launch_bytes(programs());
        let resident = Arc::new(Resident::upload(&context, &stream, plan, image, bindings, bytes, progress)?);
        let sharing = programs().filter(|ready| shares_packets(&ready.plan)).map(|ready| &ready.image);
        let packets = Memory::packets_of(&stream, sharing)?;
        let mut widths: Vec<Width> = Vec::new();
        for (ready, code, _) in ready {
            let function = load(&context, target, &ready.plan, code)?;
            let packets = shares_packets(&ready.plan).then(|| packets.clone());
            widths.push(Width::new(&stream, function, ready, resident.clone(), packets, options.trace)?);
        }
        // Where anything of it is missing, steps of one row run the program of several.
        let alone = alone.zip(widths.first()).and_then(|((ready, code), narrow)| {
            let shared = ready.image.places_as(&narrow.image).then(|| narrow.memory.resident.clone())?;
            let function = load(&context, target, &ready.plan, code).ok()?;
            Width::new(&stream, function, ready, shared, None, options.trace).ok()
        });
        let widest = widths.last().ok_or(CudaError::NoRows)?;
        let len = NARROW_ROWS as usize * widest.plan.sizes.padded_vocab() as usize;
        let most = widths.iter().filter_map(|width| width.plan.rows());
        let times = StepTimes::new(most.map(|rows| rows as usize).collect(), &widest.plan, target);
        let words = stream.alloc_zeros::<u32>(rows.most as usize * ROW_WORDS)?;
        let logits = memory::logits(&stream, len)?;
        let host_logits = pinned(&context, len)?;
        // SAFETY: a step writes the words of its rows before they are read.
        let chosen =
            unsafe { context.alloc_pinned_with_flags::<u32>(rows.most as usize, sys::CU_MEMHOSTALLOC_DEVICEMAP) }?;
        stream.synchronize()?;
        Ok(Self {
            context,
            stream,
            target,
            widths,
            alone,
            keeps_alike: false,
            logits,
            host_logits,
            chosen,
            words,
            wanted: Wanted::default(),
            last: (Ran::Width(0), 0),
            times,
            sharing: None,
            time: Duration::ZERO,
            start: clock.copied(),
        })
    }

    /// The program of the widest steps.
    fn widest(&self) -> &Width {
        &self.widths[self.widths.len() - 1]
    }

    fn program(&self, ran: Ran) -> &Width {
        match (ran, &self.alone) {
            (Ran::Alone, Some(alone)) => alone,
            (Ran::Alone, None) => &self.widths[0],
            (Ran::Width(at), _) => &self.widths[at],
        }
    }

    /// Returns the verified program of the widest steps.
    pub fn verified(&self) -> &Verified {
        &self.widest().verified
    }

    /// Returns the plan of the widest steps.
    pub fn plan(&self) -> &Plan {
        &self.widest().plan
    }

    /// Returns the GPU's target record.
    pub fn target(&self) -> &'static GpuTarget {
        self.target
    }

    /// Returns the context, for measurements.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns the verified program that the last step ran.
    pub fn ran(&self) -> &Verified {
        &self.program(self.last.0).verified
    }

    /// Returns a breakdown of the time that creating the VM took.
    pub fn start_times(&self) -> StartTimes {
        self.start
    }

    /// Returns the trace of the last step.
    ///
    /// # Errors
    /// [`CudaError::Trace`] if the VM was made without [`VmOptions::trace`] or has run no step, and
    /// errors of the driver.
    pub fn trace(&self) -> Result<Trace, CudaError> {
        let (at, position) = self.last;
        let Width { plan, trace, .. } = self.program(at);
        let words = trace.as_ref().ok_or(CudaError::Trace("the VM was made without traces"))?;
        Trace::of_step(plan, position, &self.stream.clone_dtoh(words)?)
    }

    /// Uploads rows, the choices of the tokens after them and page tables.
    fn upload(&mut self, rows: &[PlacedRow]) -> Result<StepWords, CudaError> {
        let wanted_rows = Wanted::of(rows);
        let room = self.room(wanted_rows.len());
        if self.logits.len() < room {
            self.logits = memory::logits(&self.stream, room)?;
        }
        let pools = &self.widest().image.pools;
        let most = RowLimits::pages_of(self.plan().sizes.context as usize) * pools.0.len();
        let mut words = Vec::with_capacity(rows.len() * ROW_WORDS);
        let mut tables: Vec<u32> = Vec::new();
        let mut last: Option<(&PageTables, u32)> = None; // rows with the same tables are neighbours
        for (number, row) in rows.iter().enumerate() {
            let pages = match last {
                Some((known, first)) if *known == row.pages => first,
                _ => {
                    let first = tables.len() as u32;
                    tables.extend(pools.entries(&row.pages).take(most));
                    first
                }
            };
            last = Some((&row.pages, pages));
            let wanted = wanted_rows.place(number).map_or(0, |place| place as u32 + 1);
            let RowWords { token, pos, pages, wanted } = RowWords { token: row.token.0, pos: row.pos.0, pages, wanted };
            words.extend([token, pos, pages, wanted]);
        }
        self.wanted = wanted_rows;
        let choices_at = words.len() as u64 * 4;
        words.extend(choices(rows)?);
        let tables_at = words.len() as u64 * 4;
        words.extend(tables);
        if self.words.len() < words.len() {
            self.words = self.stream.alloc_zeros::<u32>(words.len().next_power_of_two())?;
        }
        self.stream.memcpy_htod(&words, &mut self.words.slice_mut(0..words.len()))?;
        let [rows, logits] = [address(&self.words, &self.stream), address(&self.logits, &self.stream)];
        Ok(StepWords { rows, choices: rows + choices_at, page_tables: rows + tables_at, logits })
    }

    /// The number of floats for the logits of `rows` rows, with a margin.
    fn room(&self, rows: usize) -> usize {
        let most = self.plan().rows().unwrap_or(0) as usize;
        rows.next_power_of_two().min(most) * self.plan().sizes.padded_vocab() as usize
    }

    /// Runs a step with the narrowest program that has its rows.
    fn run(&mut self, rows: &[PlacedRow], words: &StepWords, host_work: &mut dyn FnMut()) -> Result<(), CudaError> {
        if let ([row], Some(alone), false) = (rows, &mut self.alone, self.keeps_alike)
            && let Some(options) = alone::launch_of(row)?
        {
            self.last.0 = Ran::Alone;
            let step = alone::params(row, words, self.chosen.as_ptr()? as u64);
            self.chosen.as_mut_slice()?[0] = alone::PENDING;
            self.time = alone.step(&self.stream, self.target, step, &options, |_| Ok(()), host_work)?;
            let word = &mut self.chosen.as_mut_slice()?[0];
            *word = alone::token(*word).unwrap_or(LEFT);
            return Ok(());
        }
        let at = self.widths.iter().position(|width| width.fits(rows.len())).ok_or(CudaError::NoRows)?;
        self.last.0 = Ran::Width(at);
        if shares_packets(&self.widths[at].plan) && self.sharing != Some(at) {
            self.widths[at].forget(&self.stream)?;
            self.sharing = Some(at);
        }
        let chosen = self.chosen.as_ptr()? as u64;
        self.chosen.as_mut_slice()?[..rows.len()].fill(LEFT);
        let (row_count, &StepWords { rows, choices, page_tables, logits }) = (rows.len() as u32, words);
        let step = |own| VmParams { rows, page_tables, row_count, logits, ..own };
        let bind = |params: &mut Params| {
            chooser()?.bind_rows(choices, chosen, params);
            Ok(())
        };
        self.time = self.widths[at].step(&self.stream, self.target, step, &RunOptions::default(), bind, host_work)?;
        Ok(())
    }

    /// Reads the results of the step for the wanted rows.
    fn download(&mut self) -> Result<(), CudaError> {
        let stride = self.plan().sizes.padded_vocab() as usize;
        let wanted = self.wanted.take(self.chosen.as_slice()?);
        if wanted.is_empty() {
            return Ok(());
        }
        let room = self.room(wanted.iter().map(|places| places.end).max().unwrap_or(0));
        if self.host_logits.len() < room {
            self.host_logits = pinned(&self.context, room)?;
        }
        for places in wanted {
            let floats = places.start * stride..places.end * stride;
            // A copy fills the whole slice that it gets.
            let to = &mut self.host_logits.as_mut_slice()?[floats.clone()];
            self.stream.memcpy_dtoh(&self.logits.slice(floats), to)?;
        }
        Ok(self.stream.synchronize()?)
    }
}

/// Whether a program keeps nothing in its packets from one step to the next, so that it can share
/// their memory.
fn shares_packets(plan: &Plan) -> bool {
    plan.rows().is_some() && !plan.has_row_packets()
}

/// The bytes that programs need for their launches, in addition to weights and pages.
fn launch_bytes<'r>(programs: impl Iterator<Item = &'r Ready>) -> u64 {
    let (mut bytes, mut shared) = (0, 0);
    for ready in programs {
        bytes += Memory::bytes(&ready.plan, &ready.image);
        let packets = Memory::packet_bytes(&ready.image);
        if shares_packets(&ready.plan) { shared = packets.max(shared) } else { bytes += packets }
    }
    bytes + shared
}

/// Pinned memory for the logits that steps copy to the host.
fn pinned(context: &Arc<CudaContext>, len: usize) -> Result<PinnedHostSlice<f32>, CudaError> {
    // SAFETY: only what a step has copied there is read.
    Ok(unsafe { context.alloc_pinned_with_flags::<f32>(len, sys::CU_MEMHOSTALLOC_PORTABLE) }?)
}

impl RowVm for RowsVm {
    type Error = CudaError;

    fn limits(&self) -> RowLimits {
        RowLimits {
            rows: self.plan().rows().unwrap_or(0) as usize,
            positions: self.plan().sizes.context as usize,
            groups: self.plan().groups.clone(),
        }
    }

    fn best_rows(&self, pending: usize) -> usize {
        self.times.best_rows(pending)
    }

    fn alike_rows(&self) -> usize {
        self.widths[0].plan.rows().unwrap_or(0) as usize
    }

    fn keep_alike(&mut self, keep: bool) {
        self.keeps_alike = keep;
    }

    fn chooses(&self) -> bool {
        true
    }

    fn device_time(&self) -> Option<Duration> {
        Some(self.time)
    }

    fn edit_page(&mut self, edit: PageEdit) -> Result<(), CudaError> {
        self.widest().memory.resident.edit_page(&self.stream, self.limits().name(edit.group), edit)
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), CudaError> {
        self.step_rows_overlapped(rows, &mut || {})
    }

    fn step_rows_overlapped(&mut self, rows: Vec<PlacedRow>, host_work: &mut dyn FnMut()) -> Result<(), CudaError> {
        contract::check(&self.limits(), &rows).map_err(CudaError::Contract)?;
        let known = self.plan().sizes.tokens;
        if let Some(row) = rows.iter().find(|row| row.token.0 >= known) {
            return Err(CudaError::Token { token: row.token.0, tokens: known });
        }
        let words = self.upload(&rows)?;
        self.last.1 = rows.first().map_or(0, |row| row.pos.0);
        self.run(&rows, &words, host_work)?;
        self.download()
    }

    fn token(&self, row: usize) -> Option<Token> {
        self.wanted.token(row)
    }

    fn logits(&self, row: usize) -> &[f32] {
        let (vocab, stride) = (self.plan().sizes.vocab as usize, self.plan().sizes.padded_vocab() as usize);
        let all = self.host_logits.as_slice().unwrap_or(&[]);
        let own = |place: usize| all.get(place * stride..place * stride + vocab);
        self.wanted.place(row).and_then(own).unwrap_or(&[])
    }
}
