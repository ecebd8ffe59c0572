//! Fetches a repository's files from the Hugging Face hub over HTTPS.

use std::time::Duration;

use super::partial::PartialFolder;
use super::storage::{Progress, Storage, copy};
use super::{FetchError, HubFile};

const ENDPOINT: &str = "https://huggingface.co";
/// The variable by which Hugging Face's own tools name a mirror.
const ENDPOINT_VARIABLE: &str = "HF_ENDPOINT";
const REVISION: &str = "main";
/// A hub that takes longer to answer is taken for unreachable.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the hub's address, or the address of the mirror named in the environment.
pub(super) fn endpoint() -> String {
    std::env::var(ENDPOINT_VARIABLE).unwrap_or_else(|_| ENDPOINT.to_owned())
}

/// Fetches `files` of `repository` into the partial folder.
pub(super) fn fetch(
    endpoint: &str,
    repository: &str,
    files: &[HubFile],
    partial: &PartialFolder,
    storage: &dyn Storage,
) -> Result<(), FetchError> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(ANSWER_TIMEOUT))
        .timeout_recv_response(Some(ANSWER_TIMEOUT))
        .build()
        .into();
    for file in files {
        let url = format!("{}/{repository}/resolve/{REVISION}/{}", endpoint.trim_end_matches('/'), file.name);
        let response = match agent.get(&url).call() {
            Ok(response) => response,
            Err(ureq::Error::StatusCode(404)) if !file.required => continue,
            Err(error) => return Err(FetchError::Unavailable(format!("{}: {error}", file.name))),
        };
        let body = response.into_body();
        let expected = body.content_length();
        let mut progress = Progress::new(&format!("fetching {}", file.name), expected);
        let copied = copy(&mut body.into_reader(), &partial.model().join(file.name), storage, &mut progress)?;
        progress.finish();
        if let Some(expected) = expected.filter(|&expected| expected != copied) {
            let reason = format!("{}: the connection ended after {copied} of {expected} bytes", file.name);
            return Err(FetchError::Unavailable(reason));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
