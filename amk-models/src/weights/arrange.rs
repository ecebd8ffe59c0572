//! Puts the tensors of a checkpoint in the form of the page: fused projections are split, and rows
//! are ordered as `rope` rotates them.

use crate::config::ModelConfig;
use crate::import::{Pairs, Rows};

use super::{FileForm, FormatCause, FormatError, RowOrder, StoredTensor, TensorSet};

impl TensorSet {
    /// Takes fused projections apart and orders the rows of queries and keys as the page rotates
    /// them.
    ///
    /// # Errors
    /// [`FormatCause::BadTensor`] if a tensor does not have the rows of its parts or of whole
    /// heads, [`FormatCause::Duplicate`] if a part is there separately.
    pub(crate) fn arrange(&mut self, config: &ModelConfig, form: FileForm) -> Result<(), FormatError> {
        for fused in config.import.fused {
            let parts: Vec<(&str, usize)> =
                fused.parts.iter().map(|&(name, rows)| (name, rows_of(config, rows))).collect();
            for name in self.names_ending_in(&[fused.name]) {
                let head_dim = (fused.by_head && form == FileForm::Folder).then_some(config.head_dim);
                self.take_apart(&name, fused.name, &parts, head_dim)?;
            }
        }
        if form.pairs(config) == Pairs::Neighbours {
            for name in self.names_ending_in(&["self_attn.q_proj", "self_attn.k_proj"]) {
                self.pair_halves(&name, config)?;
            }
        }
        Ok(())
    }

    /// The weights and biases of layers with one of these names.
    fn names_ending_in(&self, stems: &[&str]) -> Vec<String> {
        let is = |name: &str| {
            name.rsplit_once('.').is_some_and(|(before, part)| {
                ["weight", "bias"].contains(&part) && stems.iter().any(|stem| before.ends_with(stem))
            })
        };
        self.iter().map(StoredTensor::name).filter(|name| is(name)).map(str::to_owned).collect()
    }

    /// The parts lie one after the other, or head by head if there is a `head_dim`.
    fn take_apart(
        &mut self,
        name: &str,
        stem: &str,
        parts: &[(&str, usize)],
        head_dim: Option<usize>,
    ) -> Result<(), FormatError> {
        let Some(whole) = self.take(name) else { return Ok(()) };
        let rows: usize = parts.iter().map(|(_, rows)| rows).sum();
        if whole.shape().first() != Some(&rows) {
            let listed: Vec<String> = parts.iter().map(|(name, rows)| format!("{rows} of {name}")).collect();
            return Err(bad(&whole, format!("its shape is {:?}, expected rows: {}", whole.shape(), listed.join(", "))));
        }
        let mut start = 0;
        for (index, &(part, rows)) in parts.iter().enumerate() {
            let name = name.replace(stem, part);
            let tensor = match head_dim {
                // Parts of unequal length have no such order.
                Some(head_dim) if rows * parts.len() == whole.shape[0] => {
                    let row_order = RowOrder::ByHead { head_dim, part: index, parts: parts.len() };
                    let shape = [&[rows], &whole.shape[1..]].concat();
                    StoredTensor { name, shape, row_order, ..whole.clone() }
                }
                Some(_) => return Err(bad(&whole, "its parts have different numbers of heads".to_owned())),
                None => whole.part(name, start..start + rows),
            };
            start += rows;
            self.insert(tensor).map_err(|tensor| tensor.duplicate())?;
        }
        Ok(())
    }

    fn pair_halves(&mut self, name: &str, config: &ModelConfig) -> Result<(), FormatError> {
        let Some(tensor) = self.take(name) else { return Ok(()) };
        let (head_dim, rotary_dims) = (config.head_dim, config.rope.rotary_dims);
        let rows = tensor.shape().first().copied().unwrap_or(0);
        if !rows.is_multiple_of(head_dim) {
            return Err(bad(&tensor, format!("{rows} rows are not whole heads of {head_dim}")));
        }
        let row_order = RowOrder::InterleavedHalves { head_dim, rotary_dims };
        // The name was free a moment ago.
        let _ = self.insert(StoredTensor { row_order, ..tensor });
        Ok(())
    }
}

/// The rows that a part has.
fn rows_of(config: &ModelConfig, rows: Rows) -> usize {
    match rows {
        Rows::Queries => config.heads * config.head_dim,
        Rows::Keys => config.kv_heads * config.head_dim,
        Rows::Hidden => config.hidden_size,
        Rows::FeedForward => config.ffn_size,
    }
}

fn bad(tensor: &StoredTensor, reason: String) -> FormatError {
    let cause = FormatCause::BadTensor { name: tensor.name_in_file().to_owned(), reason };
    tensor.rows.place().error(cause)
}
