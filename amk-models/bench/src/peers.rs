//! Peers: the same shapes through PyTorch, and through kernels chained by programmatic dependent
//! launch, on the same GPU.

use super::report::Quantiles;
use amk::MegakernelError;
use amk_models::model::Model;
use core::fmt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The script that times them, and its imports and sources.
const SCRIPT: &str = "peers.py";
const FILES: [(&str, &str); 4] = [
    (SCRIPT, include_str!("peers.py")),
    ("decoder.py", include_str!("decoder.py")),
    ("pdl.py", include_str!("pdl.py")),
    ("pdl.cu", include_str!("pdl.cu")),
];

/// A peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// cuBLAS with fused projections, the step in one CUDA graph.
    Cublas,
    /// Kernels chained by programmatic dependent launch, in one CUDA graph.
    Pdl,
    /// `torch.compile` with max-autotune, in one CUDA graph.
    Compiled,
}

/// All peers.
pub const PEERS: [Peer; 3] = [Peer::Cublas, Peer::Pdl, Peer::Compiled];

impl Peer {
    /// The head of its column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cublas => "cuBLAS graph us",
            Self::Pdl => "PDL graph us",
            Self::Compiled => "torch.compile us",
        }
    }
}

/// Times of a token, where a peer ran.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerTimes {
    /// See [`Peer::Cublas`].
    pub cublas: Option<Quantiles>,
    /// See [`Peer::Pdl`].
    pub pdl: Option<Quantiles>,
    /// See [`Peer::Compiled`].
    pub compiled: Option<Quantiles>,
}

impl PeerTimes {
    /// The times of one peer.
    pub fn of(&self, peer: Peer) -> Option<Quantiles> {
        match peer {
            Peer::Cublas => self.cublas,
            Peer::Pdl => self.pdl,
            Peer::Compiled => self.compiled,
        }
    }
}

/// A step to time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Sequences that decode side by side.
    Decode {
        /// The sequences.
        rows: u32,
        /// The position of each.
        position: u32,
    },
    /// A prompt at once.
    Prompt {
        /// Its tokens.
        tokens: u32,
        /// The position of the first one.
        #[serde(default)]
        position: u32,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Decode { rows: 1, position } => write!(f, "1 row at {position}"),
            Self::Decode { rows, position } => write!(f, "{rows} rows at {position}"),
            Self::Prompt { tokens, position: 0 } => write!(f, "prompt of {tokens}"),
            Self::Prompt { tokens, position } => write!(f, "prompt of {tokens} at {position}"),
        }
    }
}

/// A model's shapes as the script takes them.
#[derive(Clone, Debug, Serialize)]
pub struct Shapes {
    /// The model's name.
    pub name: String,
    /// Its dims, by the names that the models declare.
    pub dims: BTreeMap<String, u32>,
    /// Queries and keys are normed.
    pub head_norms: bool,
    /// Queries, keys and values have a bias.
    pub bias: bool,
    /// The steps to time.
    pub steps: Vec<Step>,
}

impl Shapes {
    /// The shapes of a loaded model.
    ///
    /// # Errors
    /// When its graph is damaged.
    pub fn of(name: &str, model: &Model, steps: Vec<Step>) -> Result<Self, MegakernelError> {
        let signatures = &model.family.kernel.graph()?.signatures;
        let has = |path: &str| signatures.iter().any(|signature| signature.path == path);
        Ok(Self {
            name: name.to_owned(),
            dims: model.instance.dims.clone(),
            head_norms: has("amk_kernels::head_norm"),
            bias: has("amk_kernels::add_bias"),
            steps,
        })
    }
}

/// The peers' times.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Peers {
    /// By model and step.
    pub times: BTreeMap<(String, Step), PeerTimes>,
    /// Why a peer has no time, model, step and peer first.
    pub missing: Vec<String>,
}

impl Peers {
    /// The times of a model's step.
    pub fn of(&self, model: &str, step: Step) -> PeerTimes {
        self.times.get(&(model.to_owned(), step)).copied().unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Line {
    model: String,
    step: Step,
    missing: BTreeMap<String, String>,
    #[serde(flatten)]
    times: PeerTimes,
}

/// Times the peers in a Python process; [`Peer::Compiled`] takes minutes.
///
/// # Errors
/// Why there are none: no Python, no PyTorch, no GPU for it, or the script's message.
pub fn run(models: &[Shapes], peers: &[Peer]) -> Result<Peers, String> {
    let asked = serde_json::json!({ "models": models, "peers": peers });
    let folder = unpack().map_err(|error| format!("the script cannot be written: {error}"))?;
    let mut child = Command::new("python3")
        .arg(folder.path().join(SCRIPT))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("python3 does not start: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // A child that has exited explains itself on stderr.
        let _ = input.write_all(asked.to_string().as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("python3 does not end: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = stderr.trim().lines().last().unwrap_or("python3 says nothing").to_owned();
    let mut peers = parse(&String::from_utf8_lossy(&output.stdout));
    if peers.times.is_empty() {
        return Err(why);
    }
    if !output.status.success() {
        peers.missing.push(format!("the script ended early: {why}"));
    }
    Ok(peers)
}

/// The script and its files in a separate folder.
fn unpack() -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for (name, text) in FILES {
        std::fs::write(folder.path().join(name), text)?;
    }
    Ok(folder)
}

/// The script's lines; others, such as a library's warnings, are skipped.
fn parse(text: &str) -> Peers {
    let mut peers = Peers::default();
    for Line { model, step, missing, times } in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        peers.missing.extend(missing.iter().map(|(peer, why)| format!("{model}, {step}: {peer}: {why}")));
        peers.times.insert((model, step), times);
    }
    peers
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_cuda::{CudaError, compile};

    #[test]
    fn lines_of_the_script_are_read() {
        let times = "\"cublas\": {\"p10\": 1.0, \"median\": 2.0, \"p90\": 3.0}";
        let text = format!(
            "a warning\n{{\"model\": \"m\", \"step\": {{\"decode\": {{\"rows\": 1, \"position\": 5}}}}, \
             \"missing\": {{\"pdl\": \"no GPU\"}}, {times}}}\n\
             {{\"model\": \"m\", \"step\": {{\"prompt\": {{\"tokens\": 8}}}}, \"missing\": {{}}, {times}}}\n"
        );
        let peers = parse(&text);
        let cublas = Some(Quantiles { p10: 1.0, median: 2.0, p90: 3.0 });
        let times = PeerTimes { cublas, ..PeerTimes::default() };
        for step in [Step::Decode { rows: 1, position: 5 }, Step::Prompt { tokens: 8, position: 0 }] {
            assert_eq!(peers.times.get(&("m".to_owned(), step)), Some(&times));
        }
        assert_eq!((peers.times.len(), peers.missing), (2, vec!["m, 1 row at 5: pdl: no GPU".to_owned()]));
    }

    #[test]
    fn prompts_and_rows_of_pytorch_agree_with_its_steps() {
        let folder = unpack().expect("a folder");
        let checked = Command::new("python3").arg(folder.path().join("decoder.py")).output();
        match checked.map(|output| (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())) {
            Ok((true, _)) => {}
            Ok((false, why)) if !why.contains("No module named 'torch'") => panic!("{why}"),
            _ => println!("skipped: no Python with PyTorch"),
        }
    }

    #[test]
    fn the_script_knows_the_peers_by_the_names_that_it_is_given() {
        let (_, script) = FILES[0];
        for peer in PEERS {
            let name = serde_json::to_string(&peer).expect("a peer has a name");
            assert!(script.contains(&format!("{name}: ")), "{name}");
        }
    }

    #[test]
    fn the_chained_kernels_compile_with_and_without_dependent_launch() {
        let (_, source) = FILES[3];
        for (architecture, dim, group) in [("sm_80", 64, 3), ("sm_90a", 64, 8), ("sm_90a", 128, 2)] {
            let defined = format!(
                "#define DIM {dim}\n#define GROUP {group}\n#define WARPS 16\n#define DEPTH 6\n\
                 #define AHEAD 8\n#define CACHE_DEPTH 6\n"
            );
            match compile(&format!("{defined}{source}"), architecture) {
                Ok(cubin) => assert!(cubin.log.contains("0 bytes spill stores"), "{}", cubin.log),
                Err(CudaError::NoNvrtc) => return println!("skipped: no NVRTC"),
                Err(error) => panic!("{architecture}: {error}"),
            }
        }
    }
}
