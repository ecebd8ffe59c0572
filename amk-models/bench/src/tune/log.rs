//! The log of trials: a line of JSON each, so that a search that was stopped goes on where it was.

use amk::ir::schedule::Schedule;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The best schedule so far.
    pub incumbent: Schedule,
    /// The schedule on trial.
    pub candidate: Schedule,
    /// Positions that were timed.
    pub positions: Vec<u32>,
    /// The cost model's prediction for the candidate: microseconds a token, mean over the
    /// positions.
    pub predicted_us: f64,
    /// Medians of the incumbent, microseconds a token.
    pub incumbent_us: Vec<f64>,
    /// Medians of the candidate; none where it was refused.
    pub candidate_us: Vec<f64>,
    /// How much faster the candidate was, geometric mean over the positions: 0.02 is 2%.
    pub gain: f64,
    /// It became the incumbent.
    pub kept: bool,
    /// Why it was not timed: a gate, or it does not compile.
    pub refused: Option<String>,
}

/// The log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the log {}: {cause}", path.display())]
pub struct LogError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub cause: io::Error,
}

/// The rows of a search, in a file where it has one.
#[derive(Debug, Default)]
pub struct Log {
    rows: Vec<Row>,
    file: Option<(PathBuf, File)>,
}

impl Log {
    /// Reads the rows of a file, which need not exist; new ones are appended to it. Malformed
    /// lines, such as one cut short when a search was stopped, are skipped.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let fail = |cause| LogError { path: path.to_owned(), cause };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(fail)?,
        };
        let rows = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(fail)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(fail)?;
        }
        Ok(Self { rows, file: Some((path.to_owned(), file)) })
    }

    /// The row of a comparison at these positions.
    pub fn find(&self, incumbent: &Schedule, candidate: &Schedule, positions: &[u32]) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.incumbent == *incumbent && row.candidate == *candidate && row.positions == positions)
    }

    /// All rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn push(&mut self, row: Row) -> Result<(), LogError> {
        if let Some((path, file)) = &mut self.file {
            let line = serde_json::to_string(&row).map_err(io::Error::from);
            let written = line.and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
            written.map_err(|cause| LogError { path: path.clone(), cause })?;
        }
        self.rows.push(row);
        Ok(())
    }
}
