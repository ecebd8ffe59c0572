//! Why weights are not quantised.

use amk::encoding::BlockError;
use amk::session::SessionError;
use amk::vm::cpu::VmError;
use amk::{Encoding, MegakernelError};
use amk_kernels::encoding::GROUP;
use amk_models::checkpoint::CheckpointError;
use amk_models::model::ModelError;
use amk_models::weights::FormatError;
use std::path::{Path, PathBuf};

/// Why weights are not quantised.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    /// A target that is none.
    #[error("`{name}` does not quantise; these do: {}", known.join(", "))]
    UnknownEncoding {
        /// The name.
        name: String,
        /// The encodings that do.
        known: Vec<&'static str>,
    },
    /// Encodings of both kinds of files.
    #[error("`{first}` and `{second}` are not encodings of one kind of file")]
    Mixed {
        /// An encoding.
        first: &'static str,
        /// An encoding of another kind of file.
        second: &'static str,
    },
    /// No block divides the rows of a tensor.
    #[error("rows of {row} elements of `{tensor}` are not whole blocks of {}{}", named(encodings), help(*fits))]
    NotWhole {
        /// The tensor.
        tensor: String,
        /// Elements in a row.
        row: usize,
        /// The encodings that were asked for.
        encodings: Vec<&'static Encoding>,
        /// A similar encoding whose blocks divide the rows.
        fits: Option<&'static Encoding>,
    },
    /// The method needs blocks whose elements are whole multiples of one scale.
    #[error("{}, which `{method}` does not choose; take `--method rtn`", no_grid(encoding))]
    NoGrid {
        /// The encoding.
        encoding: &'static Encoding,
        /// The method.
        method: &'static str,
    },
    /// The method needs a text.
    #[error("`{method}` needs a text to calibrate on")]
    NoText {
        /// The method.
        method: &'static str,
    },
    /// The text has no tokens to calibrate on.
    #[error("the calibration text has no tokens")]
    EmptyText,
    /// A block of the source that is damaged.
    #[error("`{tensor}`: {error}")]
    Block {
        /// The tensor.
        tensor: String,
        /// The block, and its defect.
        error: BlockError,
    },
    /// An encoding that the form of a file does not have.
    #[error("{form} cannot hold `{tensor}` as {encoding}")]
    NotInFile {
        /// The form of the file.
        form: &'static str,
        /// The tensor.
        tensor: String,
        /// The encoding.
        encoding: &'static Encoding,
    },
    /// A model that the other form of files cannot say.
    #[error("this model cannot be written as {form}: {reason}")]
    NotConverted {
        /// The form.
        form: &'static str,
        /// The reason.
        reason: String,
    },
    /// There is something at the place of the result.
    #[error("{} exists already; name another place or remove it", path.display())]
    Exists {
        /// The place.
        path: PathBuf,
    },
    /// The place of the result is in no folder.
    #[error("cannot write {}: there is no folder {}", path.display(), folder.display())]
    NoFolder {
        /// The place.
        path: PathBuf,
        /// The folder that it would be in.
        folder: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: std::io::Error,
    },
    /// A file of tensors cannot be written.
    #[error("cannot write {}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: safetensors::SafeTensorError,
    },
    /// A tensor of the source has no registered encoding.
    #[error("tensor `{tensor}` is stored as {found}, which cannot be read as a weight")]
    Unreadable {
        /// The tensor.
        tensor: String,
        /// How it is stored.
        found: String,
    },
    /// The calibration run has no safe program.
    #[error(transparent)]
    Program(#[from] MegakernelError),
    /// The calibration run failed.
    #[error(transparent)]
    Run(#[from] VmError),
    /// The calibration run failed.
    #[error(transparent)]
    Session(#[from] SessionError<VmError>),
    /// The weights do not become a model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The source cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The source file is damaged.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl QuantizeError {
    /// The same with a file of a result at its place, not where it was made.
    pub(crate) fn at(mut self, made: &Path, place: &Path) -> Self {
        if let Self::Io { path, .. } | Self::Safetensors { path, .. } = &mut self
            && let Ok(below) = path.strip_prefix(made)
        {
            // Components, so that nothing below is not a `/` at the end.
            *path = place.components().chain(below.components()).collect();
        }
        self
    }
}

fn named(encodings: &[&Encoding]) -> String {
    let each: Vec<String> = encodings.iter().map(|encoding| format!("{} ({encoding})", encoding.block)).collect();
    each.join(" or ")
}

fn no_grid(encoding: &Encoding) -> String {
    match encoding.block > GROUP {
        true => format!("blocks of {encoding} have a scale for each of several groups"),
        false => format!("elements of {encoding} are not whole multiples of their block's scale"),
    }
}

fn help(fits: Option<&Encoding>) -> String {
    fits.map_or_else(String::new, |encoding| format!("; {encoding} fits, alone or as a second choice"))
}
