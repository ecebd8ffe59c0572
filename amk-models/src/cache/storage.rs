//! Writing what a source gives.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use super::FetchError;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 16;

/// Where downloads are written: the disk, or in tests something that fails like one.
pub trait Storage {
    /// Creates the file at `path`.
    ///
    /// # Errors
    /// Any that the operating system gives.
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

/// Copies `reader` to a new file at `path`, showing progress. Returns the number of bytes. Errors of reading are the source's,
/// errors of writing the disk's.
pub(super) fn copy(
    reader: &mut dyn Read,
    path: &Path,
    storage: &dyn Storage,
    progress: &ProgressBar,
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
        progress.set_position(copied);
    }
    writer.flush().map_err(write_error)?;
    Ok(copied)
}

/// A bar over `total` bytes, a counter where the total is unknown; shown only on a terminal.
pub(super) fn progress(what: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{msg} [{bar:30}] {bytes}/{total_bytes} ({bytes_per_sec}, {eta})"),
        None => (ProgressBar::new_spinner(), "{msg} {spinner} {bytes} ({bytes_per_sec})"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("=> ")).with_message(what.to_owned())
}
