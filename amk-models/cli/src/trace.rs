//! `amk trace`.

use super::bench::{prompt, tokens};
use super::options::{GpuSchedule, ScheduleArg, Weights, cuda_rows_vm, cuda_vm, print, table_of};
use super::subject::{Subject, SubjectArgs};
use amk::ir::Program;
use amk::rows::{PoolSize, RowVm, SequenceId};
use amk::session::Session;
use amk_cuda::{self as cuda, LoaderWaits, Parts, Summary, VmOptions};
use amk_models::model::WeightFormat;
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Position of the traced step where the user names none.
const DEFAULT_POSITION: u32 = 63;

/// Show where the time of a step goes on a GPU.
///
/// One step is traced by device clocks after others of the same launch: a timeline of every worker
/// that opens in Perfetto (https://ui.perfetto.dev), and a summary by op. The stamps themselves
/// cost a little: `amk bench` has the true times.
#[derive(clap::Args)]
pub(crate) struct Trace {
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    schedule: ScheduleArg,
    /// Position of the traced step [default: 63, or the last of a shorter context].
    #[arg(short, long, value_name = "P")]
    position: Option<u32>,
    /// Steps before it in the same launch, where there are as many positions.
    #[arg(long, value_name = "N", default_value_t = 15)]
    warm_up: u32,
    /// Trace a step of this many sequences side by side, each at the position.
    #[arg(long, value_name = "R", conflicts_with = "warm_up", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// Trace a step of this many tokens of one prompt, the first at the position.
    #[arg(
        long, value_name = "T", conflicts_with_all = ["warm_up", "rows"],
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    prompt: Option<u32>,
    /// How weights are held in memory: `native` (as in the file), bf16, Q8_0, Q4_0, ..; of
    /// `--random` shapes native is bf16.
    #[arg(long, value_name = "ENCODING", default_value = "native")]
    weights: Weights,
    /// Number of launches; the one whose traced step takes the median time is shown.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,
    /// Write the timeline to this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Trace {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let opened = self.subject.one()?.open()?;
        let limit = opened.positions();
        let position = match self.position {
            Some(given) if given >= limit => {
                bail!("--position is {given}, but the model's context has {limit} positions; they count from 0")
            }
            given => given.unwrap_or(DEFAULT_POSITION.min(limit.saturating_sub(1))),
        };
        let schedule = self.schedule.for_gpu()?;
        let tokens = self.prompt.unwrap_or(1);
        if limit - position < tokens {
            bail!("--prompt is {tokens}, but from position {position} on the context has {}", limit - position);
        }
        let subject = opened.load(position + tokens, WeightFormat::from(self.weights))?;
        if self.rows.is_some() || self.prompt.is_some() {
            return self.step_of_rows(&subject, &schedule, position);
        }
        let options = VmOptions { trace: true, ..self.weights.on_gpu() };
        let (mut vm, schedule) = cuda_vm(&subject.model, &schedule, options, false)?;
        let before = self.warm_up.min(position);
        let trace = self.median(|| Ok(vm.trace(position - before, before + 1)?))?;
        let title = format!("{} on {}, schedule {schedule}, position {position}", subject.name, vm.target().name);
        self.show(&trace, &title, vm.verified().program())
    }

    /// The trace of median time.
    fn median(&self, mut trace: impl FnMut() -> Result<cuda::Trace>) -> Result<cuda::Trace> {
        let mut traces = (0..self.launches).map(|_| trace()).collect::<Result<Vec<_>>>()?;
        traces.sort_by(|a, b| a.step().total_cmp(&b.step()));
        Ok(traces.swap_remove(traces.len() / 2))
    }

    fn step_of_rows(&self, subject: &Subject, schedule: &GpuSchedule, position: u32) -> Result<ExitCode> {
        let (sequences, count) = (self.rows.unwrap_or(1), self.prompt.unwrap_or(1));
        let pages = PoolSize::sequences(sequences as usize, (position + count) as usize);
        let options = VmOptions { trace: true, ..self.weights.on_gpu() };
        let vm = cuda_rows_vm(&subject.model, schedule, options, &pages, false)?;
        let (most, target) = (vm.limits().rows, vm.target().name);
        if (sequences * count) as usize > most {
            bail!("a step has at most {most} rows");
        }
        let mut session = Session::new(vm);
        let ids: Vec<SequenceId> = (0..sequences).map(|_| prompt(&mut session, position)).collect::<Result<_>>()?;
        let given = tokens(count);
        let trace = self.median(|| {
            ids.iter().try_for_each(|&id| session.push(id, &given))?;
            session.step()?;
            let trace = session.vm().trace()?;
            ids.iter().try_for_each(|&id| session.rollback(id, position as usize))?;
            Ok(trace)
        })?;
        let of = if self.prompt.is_some() { "tokens of a prompt" } else { "sequences" };
        let name = &subject.name;
        let title = format!("{name} on {target}, {} {of}, position {position}", sequences * count);
        self.show(&trace, &title, session.vm().ran().program())
    }

    /// Prints the summary of a trace and writes its timeline.
    fn show(&self, trace: &cuda::Trace, title: &str, program: &Program) -> Result<ExitCode> {
        print(&format!("{title}: {:.1} us\n", trace.step() / 1e3))?;
        print(&tables(&trace.summary(program)))?;
        if let Some(path) = &self.output {
            write(trace, path, title).with_context(|| format!("cannot write {}", path.display()))?;
            print(&format!("{}: open it at https://ui.perfetto.dev\n", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write(trace: &cuda::Trace, path: &Path, title: &str) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    trace.write_chrome(&mut out, title)?;
    out.flush()
}

fn tables(summary: &Summary) -> String {
    let us = |ns: f64| format!("{:.2}", ns / 1e3);
    let parts =
        |parts: &Parts| [parts.wait, parts.starved, parts.compute, parts.gather, parts.epilogue, parts.total()].map(us);
    let mut tasks =
        table_of(["op", "tasks", "% of time", "wait", "no weights", "compute", "gather", "epilogue", "sum of these"]);
    let mut critical =
        table_of(["op", "tasks", "% of step", "hop", "no weights", "compute", "gather", "epilogue", "sum"]);
    for op in &summary.ops {
        let share = format!("{:.1}", 100.0 * op.share);
        tasks.add_row([op.op.clone(), op.tasks.to_string(), share].into_iter().chain(parts(&op.median)));
        let share = format!("{:.1}", 100.0 * op.critical.total() / summary.step);
        critical.add_row([op.op.clone(), op.critical_tasks.to_string(), share].into_iter().chain(parts(&op.critical)));
    }
    let mut loaders = table_of(["op", "ring full", "landing", "pace"]);
    let mut loader = |op: &str, waits: &LoaderWaits| {
        loaders.add_row([op.to_owned(), us(waits.full), us(waits.landing), us(waits.paced)]);
    };
    summary.ops.iter().for_each(|op| loader(&op.op, &op.loader));
    loader("all", &summary.loader);
    format!(
        "\nall tasks: medians in us\n{tasks}\n\ncritical path: sums in us\n{critical}\n\nloaders: \
        what one waits for in the step, mean us\n{loaders}\n"
    )
}
