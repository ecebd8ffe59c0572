//! `amk check`.

use super::options::{GREEN, InstanceArgs, RED, paint, print};
use amk::ir::verify::{Rejected, verify};
use amk::ir::{Program, text};
use amk_models::model::{all_instances, find_instance};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Lower a model, or read a program, and verify it.
///
/// Without arguments every declared instance is checked. Exit code 1 says that a program was rejected.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// A program: `.amk` text or JSON.
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

/// Reads a program from `.amk` text or, where the file's name ends so, from JSON.
pub(crate) fn read_program(path: &Path) -> Result<Program> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let source = String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))?;
    if path.extension().is_some_and(|extension| extension == "json") {
        return Program::from_json(&source).with_context(|| format!("{} is no program", path.display()));
    }
    text::parse(&source).with_context(|| format!("{} is no program", path.display()))
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
