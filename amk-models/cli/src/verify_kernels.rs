//! `amk verify-kernels`.

use super::options::{Device, print, progress_bar, seed, table_of, tell};
use amk::encoding::Encoding;
use amk::ir::DType;
use amk::registry::Entry;
use amk_bench::kernel_check::{
    Bodies, CheckError, Checked, DecoderRun, Oracle, decoder_on_cpu, decoder_on_cuda, dtypes, encodings_on_device,
    instructions, on_cpu, on_cuda, path,
};
use amk_cuda::TARGETS;
use amk_models::cache::Cache;
use amk_models::model::{FAMILIES, Family};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

/// Check every instruction in isolation against its Rust function and its formula in f64.
///
/// Runs calls on operands of random sizes, cut into tiles, at several positions. On the CPU, tiles
/// on several workers must reproduce the whole function bit for bit. On a GPU the device bodies
/// run, fused ones in decoders of random sizes. Exits with code 1 if a check failed.
#[derive(clap::Args)]
pub(crate) struct VerifyKernels {
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Random cases per instruction and type; a quarter as many per decoder.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    cases: u16,
    /// Seed of sizes and operands.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seed)]
    seed: u64,
    /// Only instructions and decoders whose path, or the encodings of whose matrices, contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print only the result.
    #[arg(short, long)]
    quiet: bool,
}

/// The subject of a row of the table.
enum Subject {
    Instruction(&'static Entry, DType),
    Decoder(Family, Vec<&'static Encoding>),
}

impl VerifyKernels {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let cache = Cache::from_env()?.compiled();
        self.device.require()?;
        // A function panics on sizes that it does not take; other sizes are tried then, and the
        // panic is not printed.
        std::panic::set_hook(Box::new(|_| {}));
        let subjects = self.subjects()?;
        let bar = progress_bar("checking", self.quiet);
        // A terminal shows the progress, a log each outcome.
        let tells = bar.is_hidden() && !self.quiet && !self.json;
        let mut rows = Vec::new();
        for (done, subject) in subjects.iter().enumerate() {
            bar.set_position(100 * done as u64 / subjects.len() as u64);
            bar.set_message(format!("checking {}", subject.path()));
            let mut see = |run: DecoderRun| {
                let text = format!("{}, {}", subject.path(), described(&run));
                match run.error {
                    None => bar.set_message(format!("checking {text}")),
                    Some(error) if tells => tell(&format!("{text}: {error:.2} dev")),
                    Some(_) => {}
                }
            };
            let checked = self.check(subject, &cache, &mut see).with_context(|| format!("`{}`", subject.path()))?;
            if tells {
                tell(&row(&checked).join("  "));
            }
            rows.push(checked);
        }
        bar.finish_and_clear();
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&rows)?))?;
        } else {
            let header = ["instruction", "dtype", "cases", "largest error", "bound", "", "at"];
            let mut table = table_of(header);
            rows.iter().for_each(|checked| {
                table.add_row(row(checked));
            });
            print(&format!("{table}\n{UNITS}{}{}", through(&rows), wrong(&rows)))?;
        }
        Ok(if rows.iter().all(|checked| checked.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn subjects(&self) -> Result<Vec<Subject>> {
        let mut subjects = Vec::new();
        for entry in instructions()? {
            let dtypes = dtypes(entry, self.device == Device::Cuda)?;
            subjects.extend(dtypes.iter().map(|&dtype| Subject::Instruction(entry, dtype)));
        }
        subjects.extend(FAMILIES.map(|family| Subject::Decoder(family, Vec::new())));
        if self.device == Device::Cuda {
            subjects
                .extend(encodings_on_device().into_iter().map(|encodings| Subject::Decoder(FAMILIES[0], encodings)));
        }
        subjects.retain(|subject| subject.path().contains(&self.only));
        if subjects.is_empty() {
            bail!("no path of an instruction or a decoder contains `{}`; without `--only` all are listed", self.only);
        }
        Ok(subjects)
    }

    fn check(&self, subject: &Subject, cache: &Path, see: &mut dyn FnMut(DecoderRun)) -> Result<Checked, CheckError> {
        let cases = usize::from(self.cases);
        let decoders = cases.div_ceil(4);
        match (subject, self.device) {
            (Subject::Instruction(entry, dtype), Device::Cpu) => on_cpu(entry, *dtype, cases, self.seed),
            (Subject::Instruction(entry, dtype), Device::Cuda) => on_cuda(entry, *dtype, cases, self.seed, cache),
            // Any GPU's record decides which sizes are fused.
            (Subject::Decoder(family, _), Device::Cpu) => {
                decoder_on_cpu(*family, &TARGETS[0], decoders, self.seed, see)
            }
            (Subject::Decoder(family, encodings), Device::Cuda) => {
                decoder_on_cuda(*family, encodings, decoders, self.seed, cache, see)
            }
        }
    }
}

impl Subject {
    fn path(&self) -> String {
        match self {
            Self::Instruction(entry, _) => entry.path.to_owned(),
            Self::Decoder(family, encodings) if encodings.is_empty() => path(*family),
            Self::Decoder(family, encodings) => format!("{} in {}", path(*family), names(encodings)),
        }
    }
}

/// Names a run of a decoder.
fn described(run: &DecoderRun) -> String {
    let number = run.case + 1;
    match run.rows {
        None => format!("case {number}"),
        Some(rows) => format!("case {number} in steps of {rows} rows"),
    }
}

fn names(encodings: &[&Encoding]) -> String {
    encodings.iter().map(|encoding| encoding.name).collect::<Vec<_>>().join(", ")
}

/// Lists the fused bodies that the decoders ran, and through which an instruction without a body of
/// its own was checked.
fn through(rows: &[Checked]) -> String {
    let mut bodies = Bodies::new();
    for (body, instructions) in rows.iter().flat_map(|checked| &checked.bodies) {
        bodies.entry(body.clone()).or_default().extend(instructions.iter().cloned());
    }
    let line = |(body, instructions): (&String, &BTreeSet<String>)| {
        let names: Vec<&str> = instructions.iter().map(String::as_str).collect();
        format!("fused body `{body}`: {}\n", names.join(", "))
    };
    bodies.iter().map(line).collect()
}

/// Lists the elements that are farthest off, one of each instruction that is wrong.
fn wrong(rows: &[Checked]) -> String {
    let line = |checked: &Checked| {
        let difference = checked.difference.as_ref().filter(|_| !checked.ok)?;
        Some(format!("`{}` in {}: {difference}; {}\n", checked.path, checked.dtype, checked.worst))
    };
    rows.iter().filter_map(line).collect()
}

const UNITS: &str = "eps: epsilons of f32, relative to the sum of the magnitudes of an element's \
    terms, against f64; eps': relative to the \
largest element,\nagainst the Rust function; dev: what roundings to the type change in a logit, \
    root mean square, against f64\n";

fn row(checked: &Checked) -> [String; 7] {
    let Checked { path, dtype, encodings, oracle, cases, error, bound, worst, skipped, ok, .. } = checked;
    let unit = match oracle {
        Oracle::F64 => "eps",
        Oracle::Function => "eps'",
        Oracle::Deviation => "dev",
    };
    let (error, bound) = (format!("{error:.2} {unit}"), format!("{bound} {unit}"));
    let dtype = match encodings.len() {
        0 => dtype.to_string(),
        1..=9 => encodings.join(", "),
        many => format!("{many} encodings"),
    };
    let path = path.clone();
    match skipped {
        Some(why) => [path, dtype, "-".into(), "-".into(), "-".into(), "skipped".into(), (*why).to_owned()],
        None => {
            let verdict = match (ok, oracle) {
                (true, Oracle::Function) => "no formula",
                (true, _) => "ok",
                (false, _) => "WRONG",
            };
            // Tiles that agree with their function say nothing about its error.
            let error = if checked.bound > 0.0 || !ok { error } else { "-".to_owned() };
            [path, dtype, cases.to_string(), error, bound, verdict.into(), worst.clone()]
        }
    }
}
