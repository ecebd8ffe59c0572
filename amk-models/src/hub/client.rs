//! The hub over HTTPS.

use super::files::{HubFileInfo, choose};
use super::layout::Layout;
use super::name::is_part;
use super::store::write;
use super::{HubError, HubModel, HubSettings};
use crate::cache::Progress;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// A hub that takes longer to answer is taken for unreachable.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Files that come at the same time.
const PARALLEL: usize = 4;
/// Maximum number of times that an interrupted transfer is resumed.
const RESUMES: usize = 5;
/// Bytes copied at a time.
const CHUNK: usize = 1 << 16;

/// A revision, as the hub describes it.
#[derive(Deserialize)]
struct Revision {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
}

impl Sibling {
    /// The file; `None` if its name is not a path.
    fn file(self) -> Option<HubFileInfo> {
        let blob = self.lfs.map(|lfs| lfs.sha256).or(self.blob_id)?;
        let safe = self.rfilename.split('/').all(is_part) && is_part(&blob);
        safe.then_some(HubFileInfo { path: self.rfilename, size: self.size, blob })
    }
}

/// Downloads the missing files of a model; returns its path.
pub(super) fn fetch(model: &HubModel, layout: &Layout, settings: &HubSettings) -> Result<PathBuf, HubError> {
    let client = Client::new(settings);
    let revision = client.revision(model)?;
    if !is_part(&revision.sha) {
        return Err(unavailable(&model.to_string(), "the hub names no commit"));
    }
    let files: Vec<HubFileInfo> = revision.siblings.into_iter().filter_map(Sibling::file).collect();
    let files = choose(model, &files)?;
    let missing: Vec<&HubFileInfo> = files.iter().filter(|file| !layout.blob(&file.blob).exists()).collect();
    if !missing.is_empty() {
        let address = format!("{}/{}/resolve/{}", settings.endpoint(), model.repository, revision.sha);
        client.fetch_all(&address, &missing, layout, &model.to_string())?;
    }
    let snapshot = layout.snapshot(&revision.sha);
    files.iter().try_for_each(|file| layout.link(&snapshot, file))?;
    layout.write_ref(&model.revision, &revision.sha)?;
    Ok(layout.path(&snapshot, model, &files))
}

struct Client<'s> {
    agent: ureq::Agent,
    settings: &'s HubSettings,
}

impl<'s> Client<'s> {
    fn new(settings: &'s HubSettings) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_connect(Some(ANSWER_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .build()
            .into();
        Self { agent, settings }
    }

    /// Asks for an address, from a byte on.
    fn get(&self, address: &str, from: u64, what: &str) -> Result<ureq::http::Response<ureq::Body>, HubError> {
        let mut request = self.agent.get(address);
        if let Some(token) = self.settings.token() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        request.call().map_err(|error| match error {
            ureq::Error::StatusCode(status) if status < 500 && status != 429 => {
                HubError::Refused { status, what: what.to_owned() }
            }
            error => unavailable(what, error),
        })
    }

    fn revision(&self, model: &HubModel) -> Result<Revision, HubError> {
        let HubModel { repository, revision, .. } = model;
        let revision = revision.replace('/', "%2F");
        let address = format!("{}/api/models/{repository}/revision/{revision}?blobs=true", self.settings.endpoint());
        let what = model.to_string();
        let text =
            self.get(&address, 0, &what)?.into_body().read_to_vec().map_err(|error| unavailable(&what, error))?;
        serde_json::from_slice(&text).map_err(|error| unavailable(&what, error))
    }

    /// Fetches files, some at the same time.
    fn fetch_all(&self, address: &str, files: &[&HubFileInfo], layout: &Layout, what: &str) -> Result<(), HubError> {
        let total = files.iter().map(|file| file.size).sum::<Option<u64>>();
        let progress = Mutex::new((Progress::new(&format!("fetching {what}"), total), 0));
        let waiting = Mutex::new(files.iter());
        let failed = Mutex::new(None);
        let next = || waiting.lock().ok()?.next().filter(|_| failed.lock().is_ok_and(|failed| failed.is_none()));
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL.min(files.len()) {
                scope.spawn(|| {
                    while let Some(file) = next() {
                        let came = |bytes: u64| {
                            if let Ok(mut progress) = progress.lock() {
                                progress.1 += bytes;
                                let done = progress.1;
                                progress.0.set(done);
                            }
                        };
                        if let Err(error) = self.fetch_file(&format!("{address}/{}", file.path), file, layout, &came)
                            && let Ok(mut failed) = failed.lock()
                        {
                            failed.get_or_insert(error);
                        }
                    }
                });
            }
        });
        if let Ok((progress, _)) = progress.into_inner() {
            progress.finish();
        }
        failed.into_inner().ok().flatten().map_or(Ok(()), Err)
    }

    /// Downloads a file, resuming where an earlier transfer stopped.
    fn fetch_file(
        &self,
        address: &str,
        file: &HubFileInfo,
        layout: &Layout,
        came: &dyn Fn(u64),
    ) -> Result<(), HubError> {
        let blob = layout.blob(&file.blob);
        let incomplete = blob.with_file_name(format!("{}.incomplete", file.blob));
        let write_error = |source| HubError::Write { path: incomplete.clone(), source };
        let mut part = None;
        let options = OpenOptions::new().read(true).append(true).create(true).clone();
        write(&incomplete, || {
            part = Some(options.open(&incomplete)?);
            Ok(())
        })?;
        let Some(mut part) = part else { return Ok(()) };
        // If another process is downloading the same file, it is complete when this process gets
        // the lock.
        part.lock().map_err(write_error)?;
        if blob.exists() {
            return Ok(());
        }
        let mut length = part.metadata().map_err(write_error)?.len();
        came(length);
        let mut tries = 0;
        while file.size.is_none_or(|size| length < size) {
            let done = self.append(address, file, &mut part, &mut length, came);
            match done {
                Ok(()) if file.size.is_none_or(|size| length >= size) => break,
                Err(error @ (HubError::Refused { .. } | HubError::Write { .. })) => return Err(error),
                Err(error) if tries == RESUMES => return Err(error),
                Ok(()) if tries == RESUMES => return Err(unavailable(&file.path, "the connection ends early")),
                _ => tries += 1,
            }
        }
        if !is_whole(&mut part, file).map_err(write_error)? {
            let _ = std::fs::remove_file(&incomplete);
            return Err(HubError::Damaged { file: file.path.clone() });
        }
        std::fs::rename(&incomplete, &blob).map_err(|source| HubError::Write { path: blob, source })
    }

    /// Requests the rest of a file and appends the response.
    fn append(
        &self,
        address: &str,
        file: &HubFileInfo,
        part: &mut File,
        length: &mut u64,
        came: &dyn Fn(u64),
    ) -> Result<(), HubError> {
        let response = self.get(address, *length, &file.path)?;
        let write_error = |source| HubError::Write { path: PathBuf::from(&file.path), source };
        if *length > 0 && response.status() != 206 {
            // A server that knows no ranges begins again.
            part.set_len(0).map_err(write_error)?;
            *length = 0;
        }
        let mut body = response.into_body().into_reader();
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match body.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) => return Err(unavailable(&file.path, error)),
            };
            part.write_all(&chunk[..read]).map_err(write_error)?;
            *length += read as u64;
            came(read as u64);
            // More than the hub lists is another file, and may have no end.
            if file.size.is_some_and(|size| *length > size) {
                return Ok(());
            }
        }
    }
}

fn unavailable(what: &str, reason: impl ToString) -> HubError {
    HubError::Unavailable { what: what.to_owned(), reason: reason.to_string() }
}

/// Whether a file has the size and, if its blob is named by it, the SHA-256 that the hub lists.
fn is_whole(part: &mut File, file: &HubFileInfo) -> io::Result<bool> {
    let length = part.seek(SeekFrom::End(0))?;
    if file.size.is_some_and(|size| size != length) {
        return Ok(false);
    }
    if file.blob.len() != 64 {
        return Ok(true);
    }
    part.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match part.read(&mut chunk)? {
            0 => break,
            read => hash.update(&chunk[..read]),
        }
    }
    let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(found == file.blob)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
