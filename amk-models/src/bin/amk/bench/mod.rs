//! `amk bench`.

mod ablation;
mod cpu;
mod cuda;

use super::options::{Device, ScheduleArg, Weights, print};
use super::subject::SubjectArgs;
use amk_models::bench::peers::PEERS;
use amk_models::bench::{Peer, Reference};
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Time decode steps.
///
/// No time is shown before the VM's logits equal those of the annotated function: on the CPU bit for bit, on a GPU within what
/// bf16 allows. On a GPU every time stands beside the read ceiling, which a bare ring of the same copies reaches in the same run,
/// beside what the cost model says, and beside peers on the same shapes where PyTorch is installed.
#[derive(clap::Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    subjects: SubjectArgs,
    /// Steps to time; on a GPU, steps of a launch.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Positions to time, on a GPU; those that do not fit a model's context are told and left out.
    #[arg(long, value_name = "P", value_delimiter = ',', default_value = "0")]
    positions: Vec<u32>,
    /// Launches timed at each position, on a GPU.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    samples: u16,
    #[command(flatten)]
    schedule: ScheduleArg,
    /// Time the schedule without each of its parts, in turn with the whole: counters and barriers instead of packets, no pace,
    /// shallower rings, one split, no fusion. On a GPU; no peers, no picture.
    #[arg(long, conflicts_with_all = ["peers", "svg"])]
    ablate: bool,
    /// What to time beside it, on a GPU.
    #[arg(long, value_delimiter = ',', default_value = "cublas")]
    peers: Vec<Peers>,
    /// CPU threads [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// How weights are held in memory; on a GPU f32 computes in f32 by generic tasks, else it is bf16.
    #[arg(long, default_value = "auto")]
    weights: Weights,
    /// Write JSON; `-` writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a picture: percent of the ceiling, on a GPU.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What to time beside a model on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Peers {
    /// Nothing.
    None,
    /// PyTorch with the step in a CUDA graph.
    Cublas,
    /// Kernels chained by programmatic dependent launch in a CUDA graph, where they compute what PyTorch does.
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
        match self.device {
            Device::Cpu if self.ablate => bail!("--ablate is of schedules on a GPU; add --device cuda"),
            Device::Cpu => self.cpu()?,
            Device::Cuda if self.ablate => self.ablate()?,
            Device::Cuda => self.cuda()?,
        }
        Ok(ExitCode::SUCCESS)
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
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
