//! From the tensors of a page to the tensors of a file: the inverse of arranging them.

use crate::config::ModelConfig;
use crate::import::Pairs;
use std::borrow::Cow;

use super::gguf::gguf_name;
use super::{RowOrder, TensorSet};

/// The forms of checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileForm {
    /// A folder of Hugging Face files.
    Folder,
    /// A GGUF file.
    Gguf,
}

/// A tensor of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileTensor {
    /// Its name in the file.
    pub name: String,
    /// The tensors of the page whose rows it has, stacked, each with the order of its rows.
    pub parts: Vec<(String, RowOrder)>,
}

/// A tensor that files of a form are not written with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoPlace {
    /// GGUF files have no name for it.
    #[error("a GGUF file of this architecture has no tensor for `{0}`")]
    Gguf(String),
    /// The architecture has no known form in GGUF files.
    #[error("GGUF files of `{0}` are not known")]
    NoGguf(&'static str),
    /// Folders have different names and shapes, which are only supported for reading.
    #[error("folders of `{model_type}` have other names of tensors, which are only read{}", instead(*gguf))]
    Folder {
        /// The `model_type`.
        model_type: &'static str,
        /// Whether GGUF files of this family are supported.
        gguf: bool,
    },
}

fn instead(gguf: bool) -> &'static str {
    if gguf { "; write a GGUF file" } else { "" }
}

impl FileForm {
    /// Returns the tensors of a file, in order, given all tensors of a checkpoint.
    ///
    /// # Errors
    /// If the form has no name for a tensor, or its names are only supported for reading.
    pub fn tensors(self, config: &ModelConfig, set: &TensorSet) -> Result<Vec<FileTensor>, NoPlace> {
        let import = config.import;
        if self == Self::Folder && !import.names.is_empty() {
            return Err(NoPlace::Folder { model_type: import.model_type, gguf: import.gguf.is_some() });
        }
        let mut placed: Vec<FileTensor> = Vec::new();
        for name in set.iter().map(|tensor| tensor.name().to_owned()) {
            let (whole, parts) = whole(config, &name);
            let place = match self {
                Self::Folder => whole,
                Self::Gguf => {
                    let own = import.gguf.ok_or(NoPlace::NoGguf(import.model_type))?.names;
                    gguf_name(&whole, own).ok_or(NoPlace::Gguf(whole))?
                }
            };
            if placed.iter().all(|tensor| tensor.name != place) {
                let ordered = |part: String| (part.clone(), self.row_order(config, &part));
                placed.push(FileTensor { name: place, parts: parts.into_iter().map(ordered).collect() });
            }
        }
        Ok(placed)
    }

    /// The pairs of elements that files rotate.
    pub(super) fn pairs(self, config: &ModelConfig) -> Pairs {
        match self {
            Self::Folder => config.import.rotation.pairs,
            Self::Gguf => config.import.gguf.map_or(Pairs::Halves, |gguf| gguf.pairs),
        }
    }

    fn row_order(self, config: &ModelConfig, name: &str) -> RowOrder {
        let rotated = [".self_attn.q_proj.", ".self_attn.k_proj."].iter().any(|part| name.contains(part));
        match self.pairs(config) {
            Pairs::Neighbours if rotated => {
                RowOrder::InterleavedHalves { head_dim: config.head_dim, rotary_dims: config.rope.rotary_dims }
            }
            _ => RowOrder::Natural,
        }
    }
}

/// Returns the name of the tensor in a folder that holds a tensor of the page, and all tensors of
/// the page that it holds.
fn whole(config: &ModelConfig, name: &str) -> (String, Vec<String>) {
    let in_stem = |stem: &str| name.rsplit_once('.').is_some_and(|(before, _)| before.ends_with(stem));
    for fused in config.import.fused {
        if let Some((own, _)) = fused.parts.iter().find(|(part, _)| in_stem(part)) {
            let parts = fused.parts.iter().map(|(part, _)| name.replace(own, part)).collect();
            return (name.replace(own, fused.name), parts);
        }
    }
    (name.to_owned(), vec![name.to_owned()])
}

impl RowOrder {
    /// Rows of `row_bytes` each, from the model's order to the file's.
    pub fn to_file(self, rows: &[u8], row_bytes: usize) -> Cow<'_, [u8]> {
        if self == Self::Natural {
            return Cow::Borrowed(rows);
        }
        let mut stored = vec![0; rows.len()];
        for (row, bytes) in rows.chunks_exact(row_bytes.max(1)).enumerate() {
            stored[self.stored_row(row) * row_bytes..][..row_bytes].copy_from_slice(bytes);
        }
        Cow::Owned(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_where_they_are_read_from() {
        let order = RowOrder::InterleavedHalves { head_dim: 4, rotary_dims: 4 };
        let rows: Vec<u8> = (0..16).collect();
        let stored = order.to_file(&rows, 2);
        for row in 0..8 {
            assert_eq!(stored[order.stored_row(row) * 2..][..2], rows[row * 2..][..2]);
        }
        assert!(matches!(RowOrder::Natural.to_file(&rows, 2), Cow::Borrowed(_)));
    }
}
