//! `amk trace`.

use super::options::{ScheduleArg, cuda_vm, print, table_of};
use super::subject::SubjectArgs;
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
    /// Launches; the one whose traced step takes the median time is shown.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,
    /// Write the timeline.
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
        let subject = opened.load(position + 1, WeightFormat::BF16)?;
        let options = VmOptions { trace: true, ..VmOptions::default() };
        let (mut vm, schedule) = cuda_vm(&subject.model, &schedule, options, false)?;
        let before = self.warm_up.min(position);
        let mut traces = Vec::new();
        for _ in 0..self.launches {
            traces.push(vm.trace(position - before, before + 1)?);
        }
        traces.sort_by(|a, b| a.step().total_cmp(&b.step()));
        let trace = traces.swap_remove(traces.len() / 2);
        let title =
            format!("{} on {}, schedule {schedule}, position {}", subject.name, vm.target().name, trace.position);
        print(&format!("{title}: {:.1} us\n", trace.step() / 1e3))?;
        print(&tables(&trace.summary(vm.verified().program())))?;
        if let Some(path) = &self.output {
            write(&trace, path, &title).with_context(|| format!("cannot write {}", path.display()))?;
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
