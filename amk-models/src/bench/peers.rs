//! Peers: the same shapes through PyTorch on the same GPU.

use super::report::Quantiles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The script that times them.
const SCRIPT: &str = include_str!("peers.py");

/// A peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// cuBLAS with fused projections, the step in one CUDA graph.
    Cublas,
    /// `torch.compile` with max-autotune, in one CUDA graph.
    Compiled,
}

/// All peers.
pub const PEERS: [Peer; 2] = [Peer::Cublas, Peer::Compiled];

impl Peer {
    /// The head of its column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cublas => "cuBLAS graph us",
            Self::Compiled => "torch.compile us",
        }
    }
}

/// Times of a token, where a peer ran.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct PeerTimes {
    /// See [`Peer::Cublas`].
    pub cublas: Option<Quantiles>,
    /// See [`Peer::Compiled`].
    pub compiled: Option<Quantiles>,
}

impl PeerTimes {
    /// Those of a peer.
    pub fn of(&self, peer: Peer) -> Option<Quantiles> {
        match peer {
            Peer::Cublas => self.cublas,
            Peer::Compiled => self.compiled,
        }
    }
}

/// A model's shapes as the script takes them.
#[derive(Clone, Debug, Serialize)]
pub struct Shapes {
    /// What it is called.
    pub name: String,
    /// Its dims, by the names that the models declare.
    pub dims: BTreeMap<String, u32>,
    /// Queries and keys are normed.
    pub head_norms: bool,
    /// Positions to time.
    pub positions: Vec<u32>,
}

#[derive(Deserialize)]
struct Line {
    model: String,
    position: u32,
    #[serde(flatten)]
    times: PeerTimes,
}

/// Times the peers in a Python process; `compile` says whether `torch.compile` too, which takes minutes.
///
/// # Errors
/// Why there are none: no Python, no PyTorch, no GPU for it, or what it says.
pub fn run(models: &[Shapes], compile: bool) -> Result<BTreeMap<(String, u32), PeerTimes>, String> {
    let asked = serde_json::json!({ "models": models, "compile": compile });
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("python3 does not start: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // A child that has gone away says why itself.
        let _ = input.write_all(asked.to_string().as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("python3 does not end: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    let why = told.trim().lines().last().unwrap_or("python3 says nothing").to_owned();
    let times = parse(&String::from_utf8_lossy(&output.stdout));
    if times.is_empty() { Err(why) } else { Ok(times) }
}

/// The script's lines; others, such as a library's warnings, are skipped.
fn parse(text: &str) -> BTreeMap<(String, u32), PeerTimes> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.map(|line| ((line.model, line.position), line.times)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_script_are_read() {
        let text = "a warning\n{\"model\": \"m\", \"position\": 5, \"cublas\": {\"p10\": 1.0, \"median\": 2.0, \"p90\": 3.0}, \"compiled\": null}\n";
        let times = parse(text);
        let cublas = Some(Quantiles { p10: 1.0, median: 2.0, p90: 3.0 });
        assert_eq!(times.get(&("m".to_owned(), 5)), Some(&PeerTimes { cublas, compiled: None }));
        assert_eq!(times.len(), 1);
    }
}
