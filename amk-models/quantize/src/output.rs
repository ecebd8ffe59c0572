//! The checkpoint that is written.

use crate::error::QuantizeError;
use crate::place::check_free;
use crate::quantize::Quantized;
use crate::{folder, gguf};
use amk_models::checkpoint::Checkpoint;
use amk_models::weights::FileForm;
use std::path::{Path, PathBuf};

/// A place for a checkpoint with quantised weights, and what it has beside them.
pub struct Output<'a> {
    source: &'a Checkpoint,
    path: PathBuf,
    about: About,
}

enum About {
    Folder(folder::About),
    Gguf(gguf::About),
}

impl<'a> Output<'a> {
    /// Prepares a folder of compressed-tensors or a GGUF file; nothing is written yet.
    ///
    /// Everything but weights is copied into a result of the source's form: a folder's other files,
    /// a GGUF file's metadata. In the other form settings, tokenizer and chat template are written
    /// anew.
    ///
    /// # Errors
    /// When there is something at `path`, or the form of files cannot say what the source is.
    pub fn new(source: &'a Checkpoint, form: FileForm, path: &Path) -> Result<Self, QuantizeError> {
        check_free(path)?;
        let about = match form {
            FileForm::Folder => About::Folder(folder::About::new(source)?),
            FileForm::Gguf => About::Gguf(gguf::About::new(source)?),
        };
        Ok(Self { source, path: path.to_owned(), about })
    }

    /// Writes the checkpoint; `progress` sees the fraction written.
    ///
    /// # Errors
    /// When a file cannot be written: nothing is left then.
    pub fn write(self, quantized: &Quantized, progress: &mut dyn FnMut(f64)) -> Result<(), QuantizeError> {
        check_free(&self.path)?;
        match self.about {
            About::Folder(about) => about.write(self.source, quantized, &self.path, progress),
            About::Gguf(about) => about.write(self.source, quantized, &self.path, progress),
        }
    }
}
