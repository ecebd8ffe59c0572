//! Options that several commands share.

use amk::encoding::{self, Encoding};
use amk::ir::DType;
use amk::ir::graph::Instance;
use amk::ir::schedule::{PartialSchedule, RowSchedule, Schedule};
use amk::ir::text::read_json;
use amk::rows::PoolSize;
use amk::tensor::Inputs;
use amk_bench::tune::{Saved, Store};
use amk_cuda::{self as cuda, OpenGpu, Precision, VmOptions};
use amk_models::cache::Cache;
use amk_models::chain::Chain;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Family, Model, WeightFormat};
use amk_run::open::{CPU_ROWS, cores};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Row, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The terminal's code for red.
pub(crate) const RED: &str = "31";
/// The terminal's code for green.
pub(crate) const GREEN: &str = "32";
/// The terminal's code for dim text.
pub(crate) const DIM: &str = "2";

/// The text in a colour where standard error is a terminal and `NO_COLOR` is not set.
pub(crate) fn paint(text: &str, colour: &str) -> String {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

/// How weights are held in memory: `native`, or the name of an encoding.
#[derive(Clone, Copy)]
pub(crate) struct Weights(WeightFormat);

impl FromStr for Weights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("native") {
            return Ok(Self(WeightFormat::Native));
        }
        // Keeps the encodings in the binary.
        amk_kernels::link();
        let mut known: Vec<_> = Encoding::all().filter(|encoding| encoding.encode.is_some()).collect();
        known.sort_by_key(|encoding| (encoding.float.is_none(), encoding.name));
        match known.iter().find(|encoding| encoding.name.eq_ignore_ascii_case(text)) {
            Some(encoding) => Ok(Self(WeightFormat::As(encoding))),
            None => {
                let names: Vec<_> = known.iter().map(|encoding| encoding.name).collect();
                Err(format!("weights are held as `native` (as in the file) or one of {}", names.join(", ")))
            }
        }
    }
}

impl From<Weights> for WeightFormat {
    fn from(weights: Weights) -> Self {
        weights.0
    }
}

impl Weights {
    /// The precision in which a GPU computes with such weights.
    pub(crate) fn precision(self) -> Precision {
        match self.0 {
            WeightFormat::As(encoding) if *encoding == encoding::F32 => Precision::F32,
            _ => Precision::BF16,
        }
    }

    /// The options of a VM on a GPU with such weights.
    pub(crate) fn on_gpu(self) -> VmOptions {
        VmOptions { precision: self.precision(), ..VmOptions::default() }
    }
}

/// How products take their inputs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Activations {
    /// As they are.
    F32,
    /// Rounded to signed bytes with a scale for 32 of them.
    Q8,
}

impl From<Activations> for Inputs {
    fn from(activations: Activations) -> Self {
        match activations {
            Activations::F32 => Self::F32,
            Activations::Q8 => Self::Q8,
        }
    }
}

impl Activations {
    /// Refuses those that a device does not compute with.
    pub(crate) fn require_on(self, device: Device) -> Result<()> {
        match (self, device) {
            (Self::Q8, Device::Cuda) => bail!("--activations q8 is for a CPU; leave it out with --device cuda"),
            _ => Ok(()),
        }
    }
}

/// Threads of a CPU that compute.
#[derive(Clone, Copy, Default, clap::Args)]
pub(crate) struct ThreadsArg {
    /// CPU threads, at most 1024 [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

impl ThreadsArg {
    /// How many there are.
    pub(crate) fn count(self) -> u32 {
        self.threads.unwrap_or_else(cores)
    }
}

/// Fields that a model may have although nothing here knows them.
#[derive(Clone, clap::Args)]
pub(crate) struct AllowArg {
    /// Ignore this field of the model's config, which is unknown here; may be given several times.
    #[arg(long, value_name = "FIELD")]
    allow_unknown: Vec<String>,
}

impl AllowArg {
    /// Opens a checkpoint that may have these fields.
    pub(crate) fn open(&self, path: &Path) -> Result<Checkpoint> {
        let opened = Checkpoint::open_allowing(path, &self.allow_unknown.iter().cloned().collect());
        let fetched = || Cache::from_env().ok()?.fetched(path);
        opened.map_err(|error| match fetched() {
            Some(folder) => {
                let again = format!("delete {} to have the model fetched again", folder.display());
                anyhow!("{}; {again}", Chain(&error))
            }
            None => error.into(),
        })
    }
}

/// Reads a seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// Writes to standard output at once. A closed reader (`| head`) is not an error: nobody waits for
/// the rest.
pub(crate) fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => done,
    }
}

/// Like [`write`], for all output of a command.
pub(crate) fn print(text: &str) -> Result<()> {
    write(text).context("cannot write to standard output")
}

/// A prompt in a file, or on standard input for `-`, without the newline at its end: editors and
/// `echo` end the last line; a model would go on from the empty line after it.
pub(crate) fn read_prompt(file: &Path) -> Result<String> {
    let (bytes, place) = match file == Path::new("-") {
        true => {
            let mut bytes = Vec::new();
            (std::io::stdin().read_to_end(&mut bytes).map(|_| bytes), "on standard input".to_owned())
        }
        false => (std::fs::read(file), format!("in {}", file.display())),
    };
    let bytes = bytes.with_context(|| format!("cannot read the prompt {place}"))?;
    let mut text = String::from_utf8(bytes).with_context(|| format!("the prompt {place} is not UTF-8"))?;
    if let Some(line) = text.strip_suffix('\n') {
        text.truncate(line.strip_suffix('\r').unwrap_or(line).len());
    }
    Ok(text)
}

/// Writes a line to standard error; failures are ignored.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An empty table, as all commands draw them.
pub(crate) fn table_of(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(header);
    table
}

/// A progress bar in percent, hidden without a terminal.
pub(crate) fn progress_bar(what: &'static str, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{msg} {bar:40} {percent}%").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(100).with_style(style).with_message(what)
}

/// Where to run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// Threads of this machine.
    Cpu,
    /// The first NVIDIA GPU.
    Cuda,
}

impl Device {
    /// Refuses one that this machine does not have.
    pub(crate) fn require(self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda => Ok(cuda::probe().map(drop)?),
        }
    }
}

/// The schedule of a model that runs.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct ScheduleArg {
    /// A schedule in JSON, whose fields replace the VM's own, or `default` for the VM's own
    /// [default: the model's; on a GPU the one that `amk tune` found, if it is there].
    #[arg(long, value_name = "FILE")]
    pub(crate) schedule: Option<PathBuf>,
    /// How keys and values are kept: f32 (on a GPU by slower code), bf16, or fp8, which is half as
    /// large as bf16 and less exact [default: the schedule's; on a CPU f32, on a GPU bf16].
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(crate) cache: Option<CacheArg>,
}

/// How keys and values are kept.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheArg {
    /// In f32.
    F32,
    /// Rounded to bf16.
    Bf16,
    /// Rounded to e4m3, without a scale.
    Fp8,
}

impl From<CacheArg> for DType {
    fn from(cache: CacheArg) -> Self {
        match cache {
            CacheArg::F32 => Self::F32,
            CacheArg::Bf16 => Self::BF16,
            CacheArg::Fp8 => Self::E4M3,
        }
    }
}

impl ScheduleArg {
    /// The fields that the user names.
    fn named(&self) -> Result<Option<PartialSchedule>> {
        match self.schedule.as_deref() {
            Some(path) if path == Path::new("default") => Ok(Some(PartialSchedule::default())),
            path => path.map(read_schedule).transpose(),
        }
    }

    /// The schedule on a CPU with `threads` workers.
    pub(crate) fn for_cpu(&self, threads: ThreadsArg) -> Result<CpuSchedule> {
        Ok(CpuSchedule { named: self.named()?, cache: self.cache.map(DType::from), threads, rows: 1 })
    }

    /// The schedule on the GPU, which has to be there.
    pub(crate) fn for_gpu(&self) -> Result<GpuSchedule> {
        let named = self.named()?.zip(self.schedule.as_ref().map(|path| path.display().to_string()));
        Ok(GpuSchedule { named, cache: self.cache.map(DType::from), gpu: OpenGpu::new()? })
    }
}

/// Where to run, and how.
#[derive(clap::Args)]
pub(crate) struct PlaceArgs {
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: Device,
    #[command(flatten)]
    threads: ThreadsArg,
    #[command(flatten)]
    schedule: ScheduleArg,
}

impl PlaceArgs {
    /// The device with its schedule, for products with such inputs.
    pub(crate) fn place(&self, activations: Activations) -> Result<Place> {
        activations.require_on(self.device)?;
        Place::of(self.device, &self.schedule, self.threads)
    }
}

/// Where to run, once it is known that it can.
pub(crate) enum Place {
    Cpu(CpuSchedule),
    Cuda(GpuSchedule),
}

impl Place {
    /// A device with its schedule.
    pub(crate) fn of(device: Device, schedule: &ScheduleArg, threads: ThreadsArg) -> Result<Self> {
        Ok(match device {
            Device::Cpu => Self::Cpu(schedule.for_cpu(threads)?),
            Device::Cuda => Self::Cuda(schedule.for_gpu()?),
        })
    }
}

/// A schedule on a CPU.
#[derive(Clone)]
pub(crate) struct CpuSchedule {
    named: Option<PartialSchedule>,
    /// Instead of the fields' own.
    cache: Option<DType>,
    threads: ThreadsArg,
    /// Rows of a step at least, where it has rows.
    rows: u32,
}

impl CpuSchedule {
    /// The schedule of a model: the named fields, else the model's, over the CPU's own.
    pub(crate) fn of(&self, model: &Model) -> Result<Schedule> {
        let graph = model.family.kernel.graph()?;
        let fields = self.named.as_ref().unwrap_or(model.instance.schedule_in(graph));
        let schedule = fields.over(Schedule { workers: self.threads.count(), ..Schedule::default() });
        let workers = self.threads.threads.unwrap_or(schedule.workers);
        Ok(Schedule { workers, cache: self.cache.or(schedule.cache), ..schedule })
    }
}

impl CpuSchedule {
    /// The same with rows.
    pub(crate) fn with_rows(&self, model: &Model) -> Result<Schedule> {
        let mut schedule = self.of(model)?;
        let rows = schedule.rows.get_or_insert(RowSchedule { most: CPU_ROWS, block: None });
        rows.most = rows.most.max(self.rows);
        Ok(schedule)
    }

    /// The same with at least this many rows, where it has rows.
    pub(crate) fn with_most_rows(&self, rows: u32) -> Self {
        Self { rows, ..self.clone() }
    }
}

/// Texts that have pages where the user does not say.
pub(crate) const PARALLEL: u32 = 8;

/// The most rows of a step on a GPU, where the schedule does not say, in the order in which these
/// are tried: not every GPU and encoding has bodies for many, or the memory for their values, and a
/// program may be too large to be verified.
const GPU_ROWS: [u32; 4] = [2048, 512, 128, 8];

/// A schedule on a GPU that is there, and stays open.
#[derive(Clone)]
pub(crate) struct GpuSchedule {
    /// Fields over the GPU's own, and where they come from; `None`: the schedule that `amk tune`
    /// found for the model, or else the model's.
    named: Option<(PartialSchedule, String)>,
    /// Instead of the fields' own.
    cache: Option<DType>,
    gpu: OpenGpu,
}

impl GpuSchedule {
    /// The fields for a model, and where they come from; `None`: the model's.
    fn find(&self, model: &Model) -> Result<(Option<PartialSchedule>, String)> {
        let (fields, name) = self.without_cache(model)?;
        let Some(cache) = self.cache else { return Ok((fields, name)) };
        let fields = fields.unwrap_or(model.instance.schedule_in(model.family.kernel.graph()?).clone());
        Ok((Some(PartialSchedule { cache: Some(cache), ..fields }), name))
    }

    fn without_cache(&self, model: &Model) -> Result<(Option<PartialSchedule>, String)> {
        if let Some((fields, name)) = self.named.clone() {
            return Ok((Some(fields), name));
        }
        let store = Store::at(Cache::from_env()?.schedules());
        let saved = Store::load(&store.file(model, self.gpu.target()))?;
        Ok(saved.map_or((None, "default".into()), |saved| {
            (Some(saved.schedule), format!("tuned ({:+.1}%)", 100.0 * saved.gain))
        }))
    }
}

/// The model on the first GPU, and its schedule's source: the source in `options`, which this fills
/// in.
pub(crate) fn cuda_vm(
    model: &Model,
    schedule: &GpuSchedule,
    options: VmOptions,
    quiet: bool,
) -> Result<(cuda::Vm, String)> {
    let (schedule, name) = schedule.find(model)?;
    let options = VmOptions { schedule, ..options };
    let compiled = Cache::from_env()?.compiled();
    let bar = progress_bar("packing weights", quiet);
    let mut progress = |done: f64| bar.set_position((done * 100.0) as u64);
    let vm = cuda::Vm::new(model.family.kernel, &model.instance, &model.bindings, &compiled, &options, &mut progress);
    bar.finish_and_clear();
    Ok((vm?, name))
}

/// The model on the first GPU for steps of rows, with so many pages. What `amk tune` found
/// is for steps of one row.
pub(crate) fn cuda_rows_vm(
    model: &Model,
    schedule: &GpuSchedule,
    options: VmOptions,
    pages: &PoolSize,
    quiet: bool,
) -> Result<cuda::RowsVm> {
    let fields = schedule.named.as_ref().map_or_else(PartialSchedule::default, |(fields, _)| fields.clone());
    let fields = PartialSchedule { cache: schedule.cache.or(fields.cache), ..fields };
    let compiled = Cache::from_env()?.compiled();
    let bar = progress_bar("packing weights", quiet);
    let Model { family, instance, bindings, .. } = model;
    let with_rows = |rows: RowSchedule| {
        let fields = PartialSchedule { rows: Some(rows), ..fields.clone() };
        let options = VmOptions { schedule: Some(fields), ..options.clone() };
        let mut progress = |done: f64| bar.set_position((done * 100.0) as u64);
        cuda::RowsVm::new(family.kernel, instance, bindings, &compiled, &options, pages, &mut progress)
    };
    let [first, others @ ..] = GPU_ROWS.map(|most| RowSchedule { most, block: None });
    let takes_fewer = |error: &cuda::CudaError| match error {
        cuda::CudaError::Unsupported(_) | cuda::CudaError::Schedule(_) | cuda::CudaError::Memory { .. } => true,
        cuda::CudaError::Rejected(rejected) => rejected.is_too_large(),
        _ => false,
    };
    let fewer = |vm: Result<_, _>, &rows: &RowSchedule| match vm {
        Err(error) if takes_fewer(&error) => with_rows(rows),
        vm => vm,
    };
    let vm = match fields.rows {
        Some(rows) => with_rows(rows),
        None => others.iter().fold(with_rows(first), fewer),
    };
    bar.finish_and_clear();
    Ok(vm?)
}

/// Reads a schedule from a JSON file: the output of `amk tune`, or the schedule alone.
fn read_schedule(path: &Path) -> Result<PartialSchedule> {
    let text = read_text(path)?;
    let fail = || format!("{} is not a schedule", path.display());
    let form: BTreeMap<String, IgnoredAny> = read_json(&text).with_context(fail)?;
    let schedule = match form.contains_key("schedule") {
        true => read_json::<Saved>(&text).map(|saved| saved.schedule),
        false => read_json(&text),
    };
    schedule.with_context(fail)
}

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read the schedule {}", path.display()))
}

/// A declared instance: `llama.smollm2_135m`.
#[derive(Clone, clap::Args)]
pub(crate) struct InstanceArgs {
    /// A model's instance, as in `llama.smollm2_135m` (see `amk models`).
    #[arg(long, value_name = "MODEL.INSTANCE")]
    pub(crate) instance: Option<String>,
    /// A schedule in JSON instead of the instance's; its fields replace the device's own.
    #[arg(long, value_name = "FILE")]
    pub(crate) schedule: Option<PathBuf>,
    /// Workers instead of the schedule's number.
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<u32>,
}

impl InstanceArgs {
    /// The fields of the file, or else the instance's, which `complete` fills in with a device's
    /// own, and the number of workers replaced where it is given.
    pub(crate) fn schedule(
        &self,
        family: &Family,
        instance: &Instance,
        complete: impl FnOnce(&PartialSchedule) -> Schedule,
    ) -> Result<Schedule> {
        let named = self.schedule.as_deref().map(read_schedule).transpose()?;
        let fields = named.as_ref().unwrap_or(instance.schedule_in(family.kernel.graph()?));
        let schedule = complete(fields);
        Ok(Schedule { workers: self.workers.unwrap_or(schedule.workers), ..schedule })
    }
}
