//! `amk check`.

use super::options::{GREEN, InstanceArgs, RED, paint, print};
use amk::ir::Program;
use amk::ir::certificate::Proof;
use amk::ir::schedule::Schedule;
use amk::ir::text::{self, Shown};
use amk::ir::verify::{Message, Verified, certify, verify};
use amk::registry::{Registry, RegistryError};
use amk_models::model::{all_instances, find_instance};
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Lower a model, or read a program, and verify it.
///
/// Also compares its calls with the functions that are linked into this binary. Without arguments,
/// checks every declared instance. Exits with code 1 if a program was rejected.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// A program, `.amk` text or JSON; `-` reads it from standard input.
    #[arg(value_name = "PROGRAM", conflicts_with_all = ["instance", "schedule", "workers"])]
    program: Option<PathBuf>,
    /// Also reject programs whose instructions are not linked into this binary.
    #[arg(long)]
    strict: bool,
    /// Check the certificate of each accepted program, using none of the verifier's code.
    #[arg(long)]
    certify: bool,
    /// Write the certificate of an accepted program to a file, as JSON; checks it as `--certify`
    /// does. For one program: a file, or --instance.
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    #[command(flatten)]
    instance: InstanceArgs,
}

/// At most this many calls that do not fit are printed.
const PRINTED: usize = 20;

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut accepted = true;
        if let Some(path) = &self.program {
            accepted = self.report(read_program(path)?)?;
            return Ok(exit(accepted));
        }
        let instances = match &self.instance.instance {
            Some(name) => vec![find_instance(name)?],
            None => all_instances().collect(),
        };
        if self.certificate.is_some() && instances.len() > 1 {
            bail!("--certificate is for one program; of {} name one with --instance", instances.len());
        }
        for (family, instance) in instances {
            let schedule = self.instance.schedule(&family, &instance, |fields| fields.over(Schedule::default()))?;
            let lowered = family.kernel.lower(&instance, Some(&schedule))?;
            accepted &= self.report(lowered.program)?;
        }
        Ok(exit(accepted))
    }

    fn report(&self, program: Program) -> Result<bool> {
        let size = format!(
            "{} tasks on {} workers, {} buffers",
            program.tasks.len(),
            program.queues.workers(),
            program.buffers.len()
        );
        let name = Shown(&program.name).to_string();
        let (compared, unfit) = compare(&program, self.strict)?;
        let start = Instant::now();
        let verdict = verify(program);
        let time = start.elapsed().as_secs_f64() * 1e3;
        let (rejected, violations) = match &verdict {
            Ok(_) => (String::new(), unfit),
            Err(rejected) => (format!("{rejected}\n"), unfit + rejected.violations.len()),
        };
        let summary = match violations {
            0 => format!("{} {name}: {size}; verified in {time:.1} ms", paint("accepted", GREEN)),
            1 => format!("{} {name}: {size}; 1 violation", paint("rejected", RED)),
            _ => format!("{} {name}: {size}; {violations} violations", paint("rejected", RED)),
        };
        print(&format!("{rejected}{compared}{summary}\n"))?;
        if let (Ok(verified), true) = (&verdict, self.certify || self.certificate.is_some()) {
            print(&format!("         {}\n", certificate(verified, self.certificate.as_deref())?))?;
        }
        Ok(violations == 0)
    }
}

fn exit(accepted: bool) -> ExitCode {
    if accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads a program from a file, or from standard input where the path is `-`: `.amk` text or, where
/// the file's name ends so or the input starts so, JSON.
pub(crate) fn read_program(path: &Path) -> Result<Program> {
    let source = read_source(path)?;
    let json = match path == Path::new("-") {
        true => source.trim_start().starts_with('{'),
        false => path.extension().is_some_and(|extension| extension == "json"),
    };
    if !json && text::is_graph(&source) {
        bail!("{} is a graph, not a program; `amk dump schedule` lowers it", source_name(path));
    }
    let not_one = || format!("{} is not a program", source_name(path));
    if json { Program::from_json(&source).with_context(not_one) } else { text::parse(&source).with_context(not_one) }
}

fn source_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".into() } else { path.display().to_string() }
}

/// Reads a text from a file, or from standard input where the path is `-`.
pub(crate) fn read_source(path: &Path) -> Result<String> {
    let name = source_name(path);
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {name}"))?;
    String::from_utf8(bytes).with_context(|| format!("{name} is not text"))
}

/// Summarises the certificate of an accepted program; or why there is none, or it does not hold.
fn certificate(verified: &Verified, file: Option<&Path>) -> Result<String> {
    let certificate = certify(verified)?;
    if let Some(file) = file {
        let json = serde_json::to_string(&certificate)?;
        std::fs::write(file, json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let start = Instant::now();
    amk_checker::check(verified.program(), &certificate).context("the checker refuses the certificate")?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    let count = |of: fn(&Proof) -> usize| certificate.proofs.iter().map(of).sum::<usize>();
    let (clocks, traps) = (count(|proof| proof.clocks.len()), count(|proof| proof.traps.len()));
    let [proofs, periods] = [certificate.proofs.len(), certificate.periods.len()];
    Ok(format!(
        "certificate: {} of {} and {}, {}; checked in {time:.1} ms",
        plural(proofs, "proof"),
        plural(clocks, "clock"),
        plural(traps, "trap"),
        plural(periods, "period"),
    ))
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// How the program fits the linked functions, in words, and how often it does not.
fn compare(program: &Program, strict: bool) -> Result<(String, usize)> {
    let linked = Registry::linked()?.link(program);
    let (mut text, mut unfit) = (String::new(), linked.unfit.len());
    for missing in &linked.missing {
        match missing {
            RegistryError::NotLinked { path, .. } if !strict => {
                let _ = writeln!(text, "note: not linked: `{}`; shapes not checked", Shown(path));
            }
            refused => {
                unfit += 1;
                let _ = writeln!(text, "error: AMK0701: {refused}\n");
            }
        }
    }
    for unfit in linked.unfit.iter().take(PRINTED) {
        let Message { code, headline, notes, help } = unfit.message(program);
        let _ = writeln!(text, "error: {code}: {headline}");
        for note in notes {
            let _ = writeln!(text, "  note: {note}");
        }
        let _ = writeln!(text, "  help: {help}\n");
    }
    let more = linked.unfit.len().saturating_sub(PRINTED);
    if more > 0 {
        let _ = writeln!(text, "error: and {more} more calls that do not fit\n");
    }
    Ok((text, unfit))
}
