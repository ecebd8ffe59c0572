//! Writes the data of a source.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::FetchError;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 16;

/// The destination of downloads: the disk, or in tests something that fails like one.
pub trait Storage {
    /// Creates the file at `path`.
    ///
    /// # Errors
    /// Any error of the operating system.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>>;
}

/// The disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Storage for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(File::create(path)?))
    }
}

/// Copies `reader` to a new file at `path`, showing progress. Returns the number of bytes. Errors
/// of reading are the source's, errors of writing the disk's.
pub(super) fn copy(
    reader: &mut dyn Read,
    path: &Path,
    storage: &dyn Storage,
    progress: &mut Progress,
) -> Result<u64, FetchError> {
    let write_error = |error| FetchError::write(path, error);
    let mut writer = storage.create(path).map_err(write_error)?;
    let mut chunk = vec![0; CHUNK];
    let mut copied = 0;
    loop {
        let read = match reader.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(FetchError::Unavailable(error.to_string())),
        };
        writer.write_all(&chunk[..read]).map_err(write_error)?;
        copied += read as u64;
        progress.set(copied);
    }
    writer.flush().map_err(write_error)?;
    Ok(copied)
}

/// Interval between progress lines without a terminal.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The progress of a transfer, on standard error: a bar on a terminal, otherwise occasional lines.
pub(crate) struct Progress {
    what: String,
    total: Option<u64>,
    bar: ProgressBar,
    next_line: Instant,
}

impl Progress {
    /// Progress of an activity (`fetching config.json`) with `total` bytes, if known.
    pub(crate) fn new(what: &str, total: Option<u64>) -> Self {
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{msg} [{bar:30}] {bytes}/{total_bytes} ({bytes_per_sec}, {eta})"),
            None => (ProgressBar::new_spinner(), "{msg} {spinner} {bytes} ({bytes_per_sec})"),
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style.progress_chars("=> ")).with_message(what.to_owned());
        let progress = Self { what: what.to_owned(), total, bar, next_line: Instant::now() + TELL_EVERY };
        progress.tell(None);
        progress
    }

    /// Sets the number of bytes present.
    pub(crate) fn set(&mut self, bytes: u64) {
        self.bar.set_position(bytes);
        if Instant::now() >= self.next_line {
            self.tell(Some(bytes));
            self.next_line = Instant::now() + TELL_EVERY;
        }
    }

    /// Advances the sign of life of the transfer.
    pub(super) fn tick(&self) {
        self.bar.tick();
    }

    /// Ends it.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }

    /// Prints a line, if there is no bar.
    fn tell(&self, bytes: Option<u64>) {
        if self.bar.is_hidden() {
            let _ = writeln!(io::stderr(), "{}", line(&self.what, self.total, bytes));
        }
    }
}

/// A progress line for a transfer after this many bytes; `None` when it starts.
fn line(what: &str, total: Option<u64>, bytes: Option<u64>) -> String {
    match (bytes, total) {
        (None, None) => what.to_owned(),
        (None, Some(total)) => format!("{what}: {}", HumanBytes(total)),
        (Some(bytes), None) => format!("{what}: {} so far", HumanBytes(bytes)),
        (Some(bytes), Some(total)) => {
            let percent = 100 * bytes / total.max(1);
            format!("{what}: {} of {} ({percent}%)", HumanBytes(bytes), HumanBytes(total))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_a_transfer_is() {
        let of = |total, bytes| line("fetching m.gguf", total, bytes);
        assert_eq!(of(Some(3 << 20), None), "fetching m.gguf: 3.00 MiB");
        assert_eq!(of(Some(3 << 20), Some(1 << 20)), "fetching m.gguf: 1.00 MiB of 3.00 MiB (33%)");
        assert_eq!(of(None, Some(1 << 20)), "fetching m.gguf: 1.00 MiB so far");
    }

    #[test]
    fn a_slow_transfer_is_told_again_and_again() {
        let mut progress = Progress::new("m.gguf", None);
        let first = progress.next_line;
        progress.set(1);
        assert_eq!(progress.next_line, first);
        progress.next_line = Instant::now();
        progress.set(2);
        assert!(progress.next_line >= first);
    }
}
