//! `amk completions` and `amk man`.

use crate::options::print;
use anyhow::{Context as _, Result};
use clap::{Command, ValueEnum as _};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a completion script for a shell.
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell [default: from $SHELL].
    shell: Option<Shell>,
}

impl Completions {
    pub(crate) fn run(self, mut amk: Command) -> Result<ExitCode> {
        let shells = || Shell::value_variants().iter().map(Shell::to_string).collect::<Vec<_>>().join(", ");
        let shell = self.shell.or_else(Shell::from_env);
        let shell = shell.with_context(|| format!("$SHELL names no known shell; name one of {}", shells()))?;
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut amk, "amk", &mut script);
        print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Write the manual pages into a folder.
#[derive(clap::Args)]
pub(crate) struct Man {
    /// The folder, created if it does not exist.
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self, amk: Command) -> Result<ExitCode> {
        let write = || {
            std::fs::create_dir_all(&self.folder)?;
            clap_mangen::generate_to(amk, &self.folder)
        };
        write().with_context(|| format!("cannot write the pages into {}", self.folder.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
