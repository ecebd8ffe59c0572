//! Stored weights: safetensors and GGUF files as one set of named tensors.
//!
//! ```text
//! model.safetensors  --safetensors::read-->  TensorSet  --claim(name, shape)-->  StoredTensor  --decode_rows-->  f32
//! model.gguf         --gguf::GgufFile-->     (Hugging Face names)                (mapped bytes, or rows
//!                                            codes, scales and zeros: `join`     made of several tensors)
//! ```
//!
//! Files are mapped, not read: opening a checkpoint costs its header, and bytes are decoded when a
//! model asks for them. Both readers take untrusted files: every count, length and offset is
//! checked against the file before it is used, and a refusal is a [`FormatError`] with the file,
//! the offset and the cause.

mod arrange;
mod block_check;
mod format_error;
pub mod gguf;
mod mapped_file;
mod placing;
mod quantized;
mod row_source;
pub mod safetensors;
mod stored_type;
mod tensor;
mod tensor_set;

pub(crate) use block_check::check_blocks;
pub use format_error::{FormatCause, FormatError};
pub use mapped_file::MappedFile;
pub use placing::{FileForm, FileTensor, NoPlace};
pub(crate) use row_source::{Extent, RowSource};
pub use stored_type::StoredType;
pub use tensor::{Deviation, RowOrder, StoredTensor};
pub use tensor_set::{TensorError, TensorSet};
