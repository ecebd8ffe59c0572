//! The weights of a result: quantised, converted, or the source's.

use crate::error::QuantizeError;
use crate::quantize::Quantized;
use crate::recipe::is_of_groups;
use amk::encoding::{BF16, F32};
use amk::{Encoding, Weight};
use amk_models::weights::gguf::holds;
use amk_models::weights::{FileForm, FileTensor, StoredTensor, TensorSet};
use std::collections::BTreeMap;

/// Forms of the tensors that are not quantised.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// The form of the result.
    pub form: FileForm,
    /// The encoding of embeddings and head; `None`: the source's where the form of file has it,
    /// else bf16.
    pub ends: Option<&'static Encoding>,
}

/// Whether a tensor is quantised: a matrix of a layer.
pub fn is_projection(tensor: &StoredTensor) -> bool {
    tensor.shape().len() == 2 && tensor.name().contains(".layers.") && !is_taps(tensor)
}

/// Whether a tensor has the factors of a short convolution: a few for each channel, in rows that no
/// block divides, and a matrix by its shape alone.
fn is_taps(tensor: &StoredTensor) -> bool {
    tensor.name().ends_with(".conv.conv.weight")
}

impl Rest {
    /// The encoding of a tensor that is not quantised.
    ///
    /// # Errors
    /// When the form of file does not have the encoding, or a row is not whole blocks.
    pub fn encoding(&self, tensor: &StoredTensor) -> Result<&'static Encoding, QuantizeError> {
        let own = tensor.stored_type().encoding().ok_or_else(|| QuantizeError::Unreadable {
            tensor: tensor.name_in_file().to_owned(),
            found: tensor.stored_type().to_string(),
        })?;
        if tensor.shape().len() < 2 || is_taps(tensor) {
            // llama.cpp adds, multiplies and convolves in f32.
            return Ok(if self.form == FileForm::Gguf || own.float.is_none() { &F32 } else { own });
        }
        let has = |encoding: &Encoding| match self.form {
            FileForm::Folder => encoding.float.is_some(),
            FileForm::Gguf => holds(encoding),
        };
        let encoding = self.ends.unwrap_or(if has(own) { own } else { &BF16 });
        if !has(encoding) {
            let form = self.form_name();
            return Err(QuantizeError::NotInFile { form, tensor: tensor.name_in_file().to_owned(), encoding });
        }
        match tensor.row_len().is_multiple_of(encoding.block) {
            true => Ok(encoding),
            false => Err(QuantizeError::NotWhole {
                tensor: tensor.name_in_file().to_owned(),
                row: tensor.row_len(),
                encodings: vec![encoding],
                fits: None,
            }),
        }
    }

    fn form_name(&self) -> &'static str {
        form_name(self.form)
    }
}

/// A form of files in messages.
pub(crate) fn form_name(form: FileForm) -> &'static str {
    match form {
        FileForm::Folder => "a folder",
        FileForm::Gguf => "a GGUF file",
    }
}

/// Converts the tensors that are not quantised and have another encoding in the result.
///
/// # Errors
/// As [`Rest::encoding`].
pub fn convert_rest(set: &TensorSet, rest: Rest, quantized: &mut Quantized) -> Result<(), QuantizeError> {
    for tensor in set.iter() {
        if quantized.weights.contains_key(tensor.name()) {
            continue;
        }
        let encoding = rest.encoding(tensor)?;
        if encoding == tensor.encoding() {
            continue;
        }
        // All of these encode: floats, and what the user named.
        let encode = encoding
            .encode
            .ok_or(QuantizeError::UnknownEncoding { name: encoding.name.to_owned(), known: Vec::new() })?;
        let encoded = tensor.to_encoding(encoding, encode);
        let (bytes, deviation) =
            encoded.map_err(|error| QuantizeError::Block { tensor: tensor.name_in_file().to_owned(), error })?;
        let weight = Weight::from_vec(encoding, tensor.shape(), bytes);
        let weight = weight.map_err(|_| QuantizeError::NotInFile {
            form: form_name(rest.form),
            tensor: tensor.name_in_file().to_owned(),
            encoding,
        })?;
        quantized.deviations.entry(crate::quantize::kind(tensor.name())).or_default().merge(deviation);
        quantized.weights.insert(tensor.name().to_owned(), weight);
    }
    Ok(())
}

/// The weights of a result, by the tensors of a file.
pub(crate) struct Held<'a> {
    tensors: BTreeMap<&'a str, &'a StoredTensor>,
    weights: &'a BTreeMap<String, Weight>,
}

impl<'a> Held<'a> {
    pub(crate) fn new(set: &'a TensorSet, quantized: &'a Quantized) -> Self {
        Self { tensors: set.iter().map(|tensor| (tensor.name(), tensor)).collect(), weights: &quantized.weights }
    }

    /// The encoding of a tensor of the file and its shape. All its parts have one encoding: their
    /// rows are equally long.
    pub(crate) fn form(&self, tensor: &FileTensor) -> (&'static Encoding, Vec<usize>) {
        let parts = || tensor.parts.iter().map(|(name, _)| name.as_str());
        let first = parts().next().unwrap_or_default();
        let stored = self.tensors[first];
        let encoding = self.weights.get(first).map_or_else(|| stored.encoding(), Weight::encoding);
        let mut shape = stored.shape().to_vec();
        if let Some(rows) = shape.first_mut() {
            *rows = parts().map(|part| self.tensors[part].shape()[0]).sum();
        }
        (encoding, shape)
    }

    /// Whether a tensor of the file is quantised in groups.
    pub(crate) fn is_packed(&self, tensor: &FileTensor) -> bool {
        is_of_groups(self.form(tensor).0)
    }

    /// The bytes of a tensor of the file, its rows in the file's order.
    pub(crate) fn bytes(&self, tensor: &FileTensor) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (part, order) in &tensor.parts {
            let stored = self.tensors[part.as_str()];
            let rows = match self.weights.get(part) {
                Some(weight) => (0..weight.rows()).flat_map(|row| weight.row_bytes(row)).copied().collect(),
                None => stored.to_stored(),
            };
            // A vector whose elements have an order of their own has rows of one.
            let count = stored.shape().first().copied().unwrap_or(1).max(1);
            bytes.extend_from_slice(&order.to_file(&rows, rows.len() / count));
        }
        bytes
    }
}
