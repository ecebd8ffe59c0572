//! All tensors of a checkpoint, and the check that none is missing, unused or of the wrong shape.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::gguf::gguf_name;
use super::{StoredTensor, StoredType};
use amk::ir::text::Shown;

/// At most this many names are listed in a message.
const LISTED_NAMES: usize = 5;

/// All tensors of a checkpoint under their Hugging Face names.
///
/// A model [claims](Self::claim) each tensor that it needs with the layout's shape, then calls
/// [`finish`](Self::finish): an unclaimed tensor means that the checkpoint has a part that the
/// model does not compute, so it is refused.
#[derive(Clone, Debug, Default)]
pub struct TensorSet {
    tensors: BTreeMap<String, StoredTensor>,
    claimed: BTreeSet<String>,
    /// The beginning of all names that the files leave out.
    pub(crate) without_prefix: Option<&'static str>,
    /// The names of a layer's tensors that differ from the usual ones, if these are of a GGUF file.
    pub(super) gguf_names: Option<&'static [(&'static str, &'static str)]>,
    /// Whether the file may have biases of zeros for projections that have no bias.
    pub(crate) spare_biases: bool,
}

/// The reasons why a checkpoint's tensors do not fit the model's layout.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TensorError {
    /// The layout names a tensor that the checkpoint does not have.
    #[error("tensor `{name}` is missing{}", looked_for(written.as_ref()))]
    Missing {
        /// Its name in the file.
        name: String,
        /// Its name in the files of a decoder alone, if they are of one.
        written: Option<String>,
    },
    /// A tensor's shape differs from the layout's.
    #[error("tensor `{name}` has shape {found:?}, the config says {expected:?}")]
    Shape {
        /// Its name in the file.
        name: String,
        /// The layout's shape.
        expected: Vec<usize>,
        /// The stored shape.
        found: Vec<usize>,
    },
    /// A tensor is stored in a type that is not a weight, or that is not decoded.
    #[error("tensor `{name}` is stored as {found}, which cannot be read as a weight")]
    Encoding {
        /// Its name in the file.
        name: String,
        /// How it is stored.
        found: StoredType,
    },
    /// The checkpoint has tensors that the model does not use.
    #[error("{} the model does not use: {}", count(names.len()), listed(names))]
    Unused {
        /// Their names in the file, sorted.
        names: Vec<String>,
    },
    /// A tensor that must repeat another one differs from it.
    #[error("the config ties `{name}` to `{original}`, but the checkpoint stores different values for them")]
    NotADuplicate {
        /// The repetition, by its name in the file.
        name: String,
        /// The tensor that it must equal.
        original: String,
    },
}

fn looked_for(written: Option<&String>) -> String {
    written.map_or_else(String::new, |written| {
        format!(": the checkpoint is one of a decoder alone and has no `{written}`")
    })
}

fn count(tensors: usize) -> String {
    match tensors {
        1 => "a tensor".to_owned(),
        _ => format!("{tensors} tensors"),
    }
}

fn listed(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(LISTED_NAMES).map(|name| format!("`{}`", Shown(name))).collect();
    match names.len().saturating_sub(LISTED_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl TensorSet {
    /// Adds a tensor; hands it back when there is one of its name already.
    pub(crate) fn insert(&mut self, tensor: StoredTensor) -> Result<(), Box<StoredTensor>> {
        if self.tensors.contains_key(&tensor.name) {
            return Err(Box::new(tensor));
        }
        self.tensors.insert(tensor.name.clone(), tensor);
        Ok(())
    }

    /// Removes a tensor that is not a weight of the model, such as a table of rotary frequencies.
    pub(crate) fn take(&mut self, name: &str) -> Option<StoredTensor> {
        self.tensors.remove(name)
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The tensor of that name.
    pub(super) fn get(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    /// All tensors, by name.
    pub fn iter(&self) -> impl Iterator<Item = &StoredTensor> {
        self.tensors.values()
    }

    /// The files that hold them.
    pub fn files(&self) -> BTreeSet<&Path> {
        self.iter().map(|tensor| tensor.rows.place().file.path()).collect()
    }

    /// Bytes of all tensors as stored.
    pub fn stored_bytes(&self) -> u64 {
        self.iter().map(|tensor| tensor.stored_len() as u64).sum()
    }

    /// The tensor `name`, which must have the shape `shape` and a registered encoding.
    ///
    /// # Errors
    /// [`TensorError::Missing`], [`TensorError::Shape`] or [`TensorError::Encoding`].
    pub fn claim(&mut self, name: &str, shape: &[usize]) -> Result<StoredTensor, TensorError> {
        let tensor = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        if tensor.shape != shape {
            return Err(TensorError::Shape {
                name: tensor.name_in_file().to_owned(),
                expected: shape.to_vec(),
                found: tensor.shape.clone(),
            });
        }
        if tensor.stored_type.encoding().is_none() {
            return Err(TensorError::Encoding { name: tensor.name_in_file().to_owned(), found: tensor.stored_type });
        }
        self.claimed.insert(name.to_owned());
        Ok(tensor.clone())
    }

    /// Accounts for a duplicate of `original` that some exporters write, such as `lm_head.weight`
    /// for a tied embedding: it may be absent, but if it is present it must hold the same values.
    ///
    /// # Errors
    /// [`TensorError::Missing`] if there is no `original`, [`TensorError::NotADuplicate`] if the
    /// two differ.
    pub fn claim_duplicate(&mut self, name: &str, original: &str) -> Result<(), TensorError> {
        let Some(duplicate) = self.tensors.get(name) else { return Ok(()) };
        let source = self.tensors.get(original).ok_or_else(|| self.missing(original))?;
        if duplicate.shape != source.shape || !duplicate.has_the_rows_of(source) {
            let [name, original] = [duplicate, source].map(|tensor| tensor.name_in_file().to_owned());
            return Err(TensorError::NotADuplicate { name, original });
        }
        self.claimed.insert(name.to_owned());
        Ok(())
    }

    fn missing(&self, name: &str) -> TensorError {
        let written = self.without_prefix.and_then(|prefix| name.strip_prefix(prefix)).map(str::to_owned);
        let in_file = self.gguf_names.and_then(|own| gguf_name(name, own));
        TensorError::Missing { name: in_file.unwrap_or_else(|| name.to_owned()), written }
    }

    /// Removes the biases of zeros that GPTQ folders may have for projections without a bias, given
    /// the names of the tensors that the model uses.
    pub fn remove_spare(&mut self, used: &BTreeSet<String>) {
        if self.spare_biases {
            let is_zero = |tensor: &StoredTensor| tensor.rows.place().bytes().iter().all(|&byte| byte == 0);
            self.tensors.retain(|name, tensor| used.contains(name) || !name.ends_with(".bias") || !is_zero(tensor));
        }
    }

    /// Confirms that every tensor was claimed, except [spare biases](Self::remove_spare).
    ///
    /// # Errors
    /// [`TensorError::Unused`] with every other name.
    pub fn finish(mut self) -> Result<(), TensorError> {
        let claimed = std::mem::take(&mut self.claimed);
        self.remove_spare(&claimed);
        let unused = self.tensors.values().filter(|tensor| !claimed.contains(&tensor.name));
        let names: BTreeSet<_> = unused.map(|tensor| tensor.name_in_file().to_owned()).collect();
        if names.is_empty() { Ok(()) } else { Err(TensorError::Unused { names: names.into_iter().collect() }) }
    }
}
