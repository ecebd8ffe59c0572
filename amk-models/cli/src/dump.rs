//! `amk dump`.

mod schedule;

use super::check::{read_program, read_source};
use super::options::{Device, InstanceArgs, print};
use amk::ir::graph::Instance;
use amk::ir::schedule::{PartialSchedule, Schedule};
use amk::ir::text::is_graph;
use amk::ir::{Program, dot, text};
use amk_cuda::plan::Plan;
use amk_cuda::{GpuTarget, Precision, TARGETS, plan_for, with_exchange};
use amk_models::model::{Family, find_instance};
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a model's graph, program or expansion.
#[derive(clap::Args)]
pub(crate) struct Dump {
    /// Form to print.
    what: What,
    /// A program in `.amk` text or JSON instead of an instance; `-` reads it from standard input.
    #[arg(value_name = "PROGRAM", conflicts_with_all = ["instance", "schedule", "workers", "device", "target"])]
    program: Option<PathBuf>,
    #[command(flatten)]
    instance: InstanceArgs,
    /// Target of the program: the threads of a CPU, or a GPU, which need not be present.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// The GPU, with `--device cuda` [default: h200].
    #[arg(long, value_name = "GPU")]
    target: Option<String>,
    /// The format; `dot` is a picture for Graphviz.
    #[arg(long, default_value = "amk")]
    format: Format,
    /// Explain why calls are not fused; on a GPU also why weights do not stream.
    #[arg(long)]
    why: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The ops over symbolic dims.
    Graph,
    /// The tasks, events and queues of an instance.
    Program,
    /// Which calls run in one task, and how they are cut; of an instance or of a graph's text.
    Schedule,
    /// The code that `#[megakernel]` emits for the function.
    Expansion,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Program => "program",
            Self::Schedule => "schedule",
            Self::Expansion => "expansion",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for reading; of programs, the `.amk` format.
    Amk,
    /// JSON, of programs and graphs.
    Json,
    /// The DOT language, of programs.
    Dot,
}

/// The GPU where none is named: the one that the VM has been run on.
const DEFAULT_TARGET: &str = "h200";

impl Dump {
    pub(crate) fn run(self) -> Result<ExitCode> {
        self.refuse_idle_options()?;
        if self.target.is_some() && self.device == Device::Cpu {
            bail!("--target names a GPU; add --device cuda");
        }
        match self.what {
            What::Program => self.print_program()?,
            What::Schedule => self.print_schedule()?,
            What::Graph | What::Expansion => self.print_graph()?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses options that what is printed does not depend on.
    fn refuse_idle_options(&self) -> Result<()> {
        const LOWERED: &[What] = &[What::Program, What::Schedule];
        let given = [
            ("--schedule", self.instance.schedule.is_some(), LOWERED),
            ("--workers", self.instance.workers.is_some(), LOWERED),
            ("--device", self.device == Device::Cuda, LOWERED),
            ("--target", self.target.is_some(), LOWERED),
            ("--why", self.why, &[What::Schedule]),
            ("--format json", self.format == Format::Json, &[What::Program, What::Graph]),
            ("--format dot", self.format == Format::Dot, &[What::Program]),
        ];
        let idle = given.into_iter().find(|(_, given, of)| *given && !of.contains(&self.what));
        let Some((option, _, of)) = idle else { return Ok(()) };
        let of: Vec<String> = of.iter().map(|what| format!("`amk dump {}`", what.name())).collect();
        bail!("`amk dump {}` has no use for {option}, which is for {}", self.what.name(), of.join(" and "))
    }

    fn program(&self) -> Result<Program> {
        if let Some(path) = &self.program {
            return read_program(path);
        }
        let (family, instance) = find_instance(self.instance_name())?;
        match self.device {
            Device::Cpu => {
                let schedule = self.instance.schedule(&family, &instance, |fields| fields.over(Schedule::default()))?;
                Ok(family.kernel.lower(&instance, Some(&schedule))?.program)
            }
            Device::Cuda => Ok(self.device_plan(&family, &instance)?.program),
        }
    }

    /// The plan of the program that a GPU runs, by its own schedule where none is named.
    fn device_plan(&self, family: &Family, instance: &Instance) -> Result<Plan> {
        let name = self.target.as_deref().unwrap_or(DEFAULT_TARGET);
        let known = || TARGETS.map(|target| target.name).join(", ");
        let target =
            GpuTarget::named(name).ok_or_else(|| anyhow!("there is no GPU `{name}`; known ones: {}", known()))?;
        let complete = |fields: &PartialSchedule| {
            target.complete(&with_exchange(family.kernel, instance, target, fields, Precision::BF16))
        };
        let schedule = self.instance.schedule(family, instance, complete)?;
        target.check(&schedule)?;
        Ok(plan_for(family.kernel, instance, &schedule, Precision::BF16)?)
    }

    fn instance_name(&self) -> &str {
        self.instance.instance.as_deref().unwrap_or("llama.smollm2_135m")
    }

    fn print_program(&self) -> Result<()> {
        let program = self.program()?;
        match self.format {
            Format::Amk => print(&text::print(&program)),
            Format::Json => print(&format!("{}\n", program.to_json()?)),
            Format::Dot => print(&dot::dot(&program)),
        }
    }

    fn print_graph(&self) -> Result<()> {
        if let Some(path) = &self.program {
            if is_graph(&read_source(path)?) {
                bail!("{} is a graph already; `amk dump schedule` lowers it", path.display());
            }
            let what = self.what.name();
            bail!("{} is a program, which has no {what}; name a model with --instance", path.display());
        }
        let (family, _) = find_instance(self.instance_name())?;
        let graph = family.kernel.graph()?;
        let json = serde_json::to_string(graph)?;
        match (self.what, self.format) {
            (What::Expansion, Format::Amk) => {
                let name = graph.name.to_uppercase();
                let call = |path: &str| format!("({path:?}, || ::amk::__private::type_of(&{path}))");
                let calls: Vec<String> = graph.signatures.iter().map(|signature| call(&signature.path)).collect();
                print(&format!(
                    "pub static {name}: ::amk::Megakernel = ::amk::Megakernel::new({:?}, {json:?}, &[{}]);\n",
                    graph.name,
                    calls.join(", ")
                ))
            }
            (_, Format::Json) => print(&format!("{}\n", serde_json::to_string_pretty(graph)?)),
            (_, Format::Amk | Format::Dot) => print(&graph.to_string()),
        }
    }
}
