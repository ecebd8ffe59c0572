//! `amk doctor`.

use super::options::{GREEN, RED, paint, print};
use amk::measure::read_bandwidth;
use amk::registry::Registry;
use amk_cuda as cuda;
use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::chain::Chain;
use amk_run::open::cores;
use anyhow::Result;
use std::process::ExitCode;

/// Show the capabilities of this machine, and missing parts.
///
/// A GPU is not needed: each missing part is listed with its use.
#[derive(clap::Args)]
pub(crate) struct Doctor {
    /// Leave out the measurement of the read bandwidth.
    #[arg(long)]
    quick: bool,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let threads = cores();
        good("version", env!("CARGO_PKG_VERSION"))?;
        good("processor", &format!("{threads} threads, {}", features()))?;
        match Registry::linked() {
            Ok(registry) => good("instructions", &format!("{} linked", registry.iter().count()))?,
            Err(error) => bad("instructions", &error.to_string())?,
        }
        match Cache::from_env() {
            Ok(cache) => {
                match cache.try_write() {
                    Ok(()) => good("cache", &cache.folder(&SMOLLM2_135M_INSTRUCT).display().to_string())?,
                    Err(error) => bad("cache", &Chain(&error).to_string())?,
                }
                match cache.find(&SMOLLM2_135M_INSTRUCT) {
                    Some(path) => good("default model", &path.display().to_string())?,
                    None => bad("default model", "not fetched yet; `amk generate` fetches it once")?,
                }
            }
            Err(error) => bad("cache", &error.to_string())?,
        }
        match cuda::probe() {
            Ok(gpu) => {
                good("GPU", &format!("{} ({}), {} multiprocessors", gpu.name, gpu.architecture, gpu.multiprocessors))?
            }
            Err(error) => bad("GPU", &error.to_string())?,
        }
        match cuda::compile("extern \"C\" __global__ void nothing() {}", "sm_80") {
            Ok(_) => good("NVRTC", "compiles")?,
            Err(error) => bad("NVRTC", &error.to_string())?,
        }
        if !self.quick {
            for count in [1, threads as usize] {
                let rate = read_bandwidth(count) / 1e9;
                good(
                    "read bandwidth",
                    &format!("{rate:.1} GB/s with {count} thread{}", if count == 1 { "" } else { "s" }),
                )?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn good(what: &str, found: &str) -> Result<()> {
    print(&format!("{} {what:16} {found}\n", paint("ok     ", GREEN)))
}

fn bad(what: &str, found: &str) -> Result<()> {
    print(&format!("{} {what:16} {found}\n", paint("missing", RED)))
}

/// The vector extensions that the CPU instructions use.
fn features() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        let found = [
            ("AVX2", std::arch::is_x86_feature_detected!("avx2")),
            ("FMA", std::arch::is_x86_feature_detected!("fma")),
            ("AVX-512", std::arch::is_x86_feature_detected!("avx512f")),
        ];
        let names: Vec<&str> = found.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        format!("x86-64 {}", names.join(" "))
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::env::consts::ARCH.to_owned()
}
