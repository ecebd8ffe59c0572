//! Reads GGUF files, versions 2 and 3, and writes them, little endian (ggml, `docs/gguf.md`).
//!
//! ```text
//! "GGUF" | u32 version | u64 tensors | u64 entries | metadata entries | tensor infos | padding | tensor data
//! ```
//!
//! [`GgufFile::open`] returns the metadata and the tensors under their GGUF names;
//! [`GgufFile::into_tensors`] renames them to the Hugging Face names, so that a model sees one
//! naming scheme.

mod cursor;
mod header;
mod metadata;
mod names;
mod writer;

pub use header::{GgufFile, MAGIC};
pub use metadata::{Array, Metadata, Value};
pub(crate) use names::{gguf_name, hugging_face_name};
pub use writer::{NewTensor, holds, write};
