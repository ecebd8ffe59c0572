//! `amk check`.

use super::options::{GREEN, InstanceArgs, RED, paint, print};
use amk::ir::verify::{Rejected, verify};
use amk::ir::{Program, text};
use amk_models::model::{all_instances, find_instance};
use anyhow::{Context as _, Result};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Lower a model, or read a program, and verify it.
///
/// Without arguments every declared instance is checked. Exit code 1 says that a program was rejected.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// A program, `.amk` text or JSON; `-` reads it from standard input.
    #[arg(value_name = "PROGRAM", conflicts_with_all = ["instance", "schedule", "workers"])]
    program: Option<PathBuf>,
    #[command(flatten)]
    instance: InstanceArgs,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut accepted = true;
        if let Some(path) = &self.program {
            accepted = report(read_program(path)?)?;
            return Ok(exit(accepted));
        }
        let instances = match &self.instance.instance {
            Some(name) => vec![find_instance(name)?],
            None => all_instances().collect(),
        };
        for (family, instance) in instances {
            let schedule = self.instance.schedule(&family, &instance)?;
            let lowered = family.kernel.lower(&instance, Some(&schedule))?;
            accepted &= report(lowered.program)?;
        }
        Ok(exit(accepted))
    }
}

fn exit(accepted: bool) -> ExitCode {
    if accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads a program from a file, or from standard input where the path is `-`: `.amk` text or, where the file's name ends so or the
/// input starts so, JSON.
pub(crate) fn read_program(path: &Path) -> Result<Program> {
    let input = path == Path::new("-");
    let name = if input { "standard input".into() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    let read = match input {
        true => std::io::stdin().read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {name}"))?;
    let source = String::from_utf8(bytes).with_context(|| format!("{name} is no text"))?;
    let json = match input {
        true => source.trim_start().starts_with('{'),
        false => path.extension().is_some_and(|extension| extension == "json"),
    };
    let not_one = || format!("{name} is no program");
    if json { Program::from_json(&source).with_context(not_one) } else { text::parse(&source).with_context(not_one) }
}

fn report(program: Program) -> Result<bool> {
    let size = format!(
        "{} tasks on {} workers, {} buffers",
        program.tasks.len(),
        program.queues.workers(),
        program.buffers.len()
    );
    let name = program.name.clone();
    let start = Instant::now();
    let verdict = verify(program);
    let time = start.elapsed().as_secs_f64() * 1e3;
    match verdict {
        Ok(_) => {
            print(&format!("{} {name}: {size}; verified in {time:.1} ms\n", paint("accepted", GREEN)))?;
            Ok(true)
        }
        Err(rejected) => {
            let Rejected { violations, .. } = &rejected;
            let plural = if violations.len() == 1 { "" } else { "s" };
            let verdict = paint("rejected", RED);
            print(&format!("{rejected}\n{verdict} {name}: {size}; {} violation{plural}\n", violations.len()))?;
            Ok(false)
        }
    }
}
