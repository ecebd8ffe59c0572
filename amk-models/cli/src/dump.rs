//! `amk dump`.

use super::check::read_program;
use super::options::{InstanceArgs, print};
use amk::ir::{Program, dot, text};
use amk_models::model::find_instance;
use anyhow::{Result, bail};
use clap::ValueEnum;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a model's graph, program or expansion.
#[derive(clap::Args)]
pub(crate) struct Dump {
    /// What to print.
    what: What,
    /// A program in `.amk` text or JSON instead of an instance; `-` reads it from standard input.
    #[arg(value_name = "PROGRAM", conflicts_with_all = ["instance", "schedule", "workers"])]
    program: Option<PathBuf>,
    #[command(flatten)]
    instance: InstanceArgs,
    /// The format; `dot` is a picture for Graphviz.
    #[arg(long, default_value = "amk")]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The ops over symbolic dims.
    Graph,
    /// The tasks, events and queues of an instance.
    Program,
    /// What `#[megakernel]` emits beside the function.
    Expansion,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for reading; of programs, the `.amk` format.
    Amk,
    /// JSON.
    Json,
    /// The DOT language, of programs.
    Dot,
}

impl Dump {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Program => self.print_program()?,
            What::Graph | What::Expansion => self.print_graph()?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn program(&self) -> Result<Program> {
        if let Some(path) = &self.program {
            return read_program(path);
        }
        let (family, instance) = find_instance(self.instance_name())?;
        let schedule = self.instance.schedule(&family, &instance)?;
        Ok(family.kernel.lower(&instance, Some(&schedule))?.program)
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
            bail!("{} is a program, which has no graph; name a model with --instance", path.display());
        }
        let (family, _) = find_instance(self.instance_name())?;
        let graph = family.kernel.graph()?;
        let json = serde_json::to_string(graph)?;
        match (self.what, self.format) {
            (What::Expansion, Format::Amk) => {
                let name = graph.name.to_uppercase();
                print(&format!(
                    "pub static {name}: ::amk::Megakernel = ::amk::Megakernel::new({:?}, {json:?});\n",
                    graph.name
                ))
            }
            (What::Expansion, _) => bail!("an expansion is Rust; leave out --format"),
            (_, Format::Amk) => print(&graph.to_string()),
            (_, Format::Json) => print(&format!("{}\n", serde_json::to_string_pretty(graph)?)),
            (_, Format::Dot) => bail!("a graph has no picture of its own; use `amk dump program --format dot`"),
        }
    }
}
