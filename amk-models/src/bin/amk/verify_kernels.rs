//! `amk verify-kernels`.

use super::options::{Device, print, table_of};
use amk_models::cache::Cache;
use amk_models::kernel_check::{Checked, MOST_EPSILONS, instructions, on_cpu, on_cuda};
use anyhow::{Context as _, Result};
use std::process::ExitCode;

/// Check every instruction by itself against its Rust function.
///
/// On the CPU: tiles on several workers give what the whole function gives, bit for bit. On a GPU: the device bodies.
#[derive(clap::Args)]
pub(crate) struct VerifyKernels {
    /// Where to run.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Random cases of each instruction.
    #[arg(long, value_name = "N", default_value_t = 8)]
    cases: usize,
    /// Seed of sizes and operands.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Only instructions whose path contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

impl VerifyKernels {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let cache = Cache::from_env()?.compiled();
        // A function panics on sizes that it does not take; other sizes are tried then, and nobody wants to read of it.
        std::panic::set_hook(Box::new(|_| {}));
        let mut table = table_of(["instruction", "cases", "largest error, epsilons of f32", "at"]);
        let mut failed = false;
        let most = if self.device == Device::Cpu { 0.0 } else { MOST_EPSILONS };
        for entry in instructions()?.into_iter().filter(|entry| entry.path.contains(&self.only)) {
            let checked = match self.device {
                Device::Cpu => on_cpu(entry, self.cases, self.seed),
                Device::Cuda => on_cuda(entry, self.cases, self.seed, &cache),
            };
            let checked = checked.with_context(|| format!("`{}`", entry.path))?;
            let wrong = checked.epsilons.is_nan() || checked.epsilons > most;
            failed |= wrong;
            table.add_row(row(&checked, wrong));
        }
        print(&format!("{table}\n"))?;
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn row(checked: &Checked, wrong: bool) -> [String; 4] {
    let Checked { path, cases, epsilons, worst, skipped } = checked;
    match skipped {
        Some(why) => [path.clone(), "-".into(), "-".into(), (*why).to_owned()],
        None => [
            path.clone(),
            cases.to_string(),
            format!("{epsilons:.2}{}", if wrong { " WRONG" } else { "" }),
            worst.clone(),
        ],
    }
}
