//! `amk bench`.

mod ablation;
mod cpu;
mod cuda;
mod rows;

pub(crate) use rows::{prompt, tokens};

use super::options::{Activations, Device, ScheduleArg, ThreadsArg, Weights, print};
use super::positions::last_start;
use super::subject::SubjectArgs;
use amk_bench::peers::{self, PEERS, Shapes, Step};
use amk_bench::{Peer, Reference};
use amk_models::model::WeightUse;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Time decode steps.
///
/// No time is shown before the VM's logits equal the annotated function's: on the CPU bit for bit,
/// on a GPU within what bf16 allows. On a GPU every time is shown with the read ceiling, which a
/// bare ring of the same copies reaches in the same run, with the cost model's prediction, and with
/// peers on the same shapes where PyTorch is installed.
#[derive(clap::Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    subjects: SubjectArgs,
    /// Steps to time; on a GPU, steps of a launch.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Positions to time; positions that do not fit a model's context are reported and skipped.
    #[arg(long, value_name = "P", value_delimiter = ',', default_value = "0")]
    positions: Vec<u32>,
    /// Sequences that decode side by side, as in `1,8,32`, at each of --positions.
    #[arg(long, value_name = "R", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    rows: Vec<u32>,
    /// Prompts to time, in tokens, each from each of --positions on.
    #[arg(long, value_name = "T", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    prompt: Vec<u32>,
    /// Launches timed at each position, on a GPU [default: 15].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    samples: Option<u16>,
    #[command(flatten)]
    schedule: ScheduleArg,
    /// Time the schedule without each of its parts, in turn with the whole: counters and barriers
    /// instead of packets, no pace, shallower rings, one split, no fusion. On a GPU; no peers, no
    /// picture.
    #[arg(long, conflicts_with_all = ["peers", "svg"])]
    ablate: bool,
    /// Peers to time on a GPU [default: cublas].
    #[arg(long, value_delimiter = ',')]
    peers: Vec<Peers>,
    #[command(flatten)]
    threads: ThreadsArg,
    /// How weights are held in memory: `native` (as in the file), f32, bf16, Q8_0, Q4_0, ..; on a
    /// GPU f32 computes in f32 by generic tasks, and native is bf16.
    #[arg(long, value_name = "ENCODING", default_value = "native")]
    weights: Weights,
    /// Inputs of products on a CPU: f32, or q8, rounded to signed bytes.
    #[arg(long, value_name = "INPUTS", default_value = "f32")]
    activations: Activations,
    /// Write JSON; `-` writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a picture: percent of the ceiling, on a GPU, or the times of --rows and --prompt.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Peers to time on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Peers {
    /// Nothing.
    None,
    /// PyTorch with the step in a CUDA graph.
    Cublas,
    /// Kernels chained by programmatic dependent launch in a CUDA graph, which compute the same as
    /// PyTorch.
    Pdl,
    /// torch.compile with max-autotune, which takes minutes.
    Compiled,
    /// All of them.
    All,
}

impl Peers {
    fn all(self) -> &'static [Peer] {
        match self {
            Self::None => &[],
            Self::Cublas => &[Peer::Cublas],
            Self::Pdl => &[Peer::Pdl],
            Self::Compiled => &[Peer::Compiled],
            Self::All => &PEERS,
        }
    }
}

/// Steps whose logits are compared before any is timed, at most.
const GATE_STEPS: u32 = 8;

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        self.activations.require_on(self.device)?;
        // Before anything is measured in vain.
        for path in [&self.json, &self.svg].into_iter().flatten() {
            check_writable(path)?;
        }
        match self.device {
            _ if self.has_rows() => self.rows_of_all()?,
            Device::Cpu => self.cpu()?,
            Device::Cuda if self.ablate => self.ablate()?,
            Device::Cuda => self.cuda()?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses options that only apply to a GPU.
    fn refuse_gpu_options(&self) -> Result<()> {
        let given = [
            ("--ablate", self.ablate),
            ("--peers", !self.peers.is_empty()),
            ("--samples", self.samples.is_some()),
            ("--svg", self.svg.is_some() && !self.has_rows()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => bail!("{option} is for a GPU; add --device cuda"),
            None => Ok(()),
        }
    }

    /// How weights are held and multiplied.
    fn weight_use(&self) -> WeightUse {
        WeightUse { format: self.weights.into(), inputs: self.activations.into(), ..WeightUse::default() }
    }

    /// Launches timed at each position.
    fn samples(&self) -> usize {
        self.samples.unwrap_or(15).into()
    }

    /// Peers to time with a model.
    fn peers(&self) -> Vec<Peer> {
        let asked = if self.peers.is_empty() { &[Peers::Cublas] } else { &self.peers[..] };
        PEERS.into_iter().filter(|peer| asked.iter().any(|of| of.all().contains(peer))).collect()
    }

    /// Times of the peers that were asked for, by model and step, and why there are none of some.
    fn peer_times(&self, shapes: &[Shapes]) -> peers::Peers {
        let asked = self.peers();
        if asked.is_empty() {
            return peers::Peers::default();
        }
        peers::run(shapes, &asked).unwrap_or_else(|why| peers::Peers { missing: vec![why], ..peers::Peers::default() })
    }

    /// The positions from which the steps end within `limit` positions; the others are reported.
    fn positions(&self, name: &str, limit: u32) -> Result<Vec<u32>> {
        let last = last_start(self.steps, limit)?;
        let (positions, outside): (Vec<u32>, Vec<u32>) = self.positions.iter().partition(|&&position| position <= last);
        if positions.is_empty() {
            bail!(
                "none of --positions leaves room for {} steps in the model's context; use at most {last}",
                self.steps
            );
        }
        if self.shows_text() {
            for position in outside {
                let what = match position < limit {
                    true => format!("leaves no room for {} steps in", self.steps),
                    false => "is outside".to_owned(),
                };
                print(&format!("{name}: position {position} {what} the model's context\n"))?;
            }
        }
        Ok(positions)
    }

    /// The prompts, by tokens and first position, that end within `limit` positions; the others are
    /// reported.
    fn prompts(&self, name: &str, limit: u32) -> Result<Vec<(u32, u32)>> {
        let all = self.prompt.iter().flat_map(|&tokens| self.positions.iter().map(move |&position| (tokens, position)));
        let (prompts, outside): (Vec<_>, Vec<_>) =
            all.partition(|(tokens, position)| tokens.checked_add(*position).is_some_and(|end| end <= limit));
        let outside = outside.into_iter().map(|(tokens, position)| Step::Prompt { tokens, position });
        let what = |step| format!("{name}: a {step} does not fit the context of {limit} positions");
        if prompts.is_empty()
            && let Some(step) = outside.clone().next()
        {
            bail!(what(step));
        }
        outside.filter(|_| self.shows_text()).try_for_each(|step| print(&format!("{}\n", what(step))))?;
        Ok(prompts)
    }

    /// Positions that gates take.
    fn gate_positions(&self) -> u32 {
        if self.ablate { Reference::POSITIONS } else { GATE_STEPS }
    }

    /// Whether standard output is for people.
    fn shows_text(&self) -> bool {
        self.json.as_deref() != Some(Path::new("-"))
    }
}

fn write_json(path: Option<&Path>, what: &impl Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = format!("{}\n", serde_json::to_string_pretty(what)?);
    if path == Path::new("-") {
        return print(&text);
    }
    write(path, &text)
}

/// Refuses a file that cannot be written, and leaves the place as it is.
fn check_writable(path: &Path) -> Result<()> {
    // Whoever reads a pipe would see its end.
    let (there, special) = path.metadata().map_or((false, false), |about| (true, !about.is_file() && !about.is_dir()));
    if path == Path::new("-") || special {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))?;
    if !there {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
