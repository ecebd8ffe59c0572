//! Reads safetensors files (<https://github.com/huggingface/safetensors>, "Format").
//!
//! ```text
//! u64 n | n bytes of JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, .., "__metadata__": {..}} | data
//! ```
//!
//! Offsets count from the data. As the format requires, tensors cover the data without gaps or
//! overlap and no name repeats. The reader is our own because the `safetensors` crate accepts
//! repeated names and can overflow on hostile offsets; tests compare the two.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{Extent, FormatCause, FormatError, MappedFile, RowOrder, RowSource, StoredTensor, StoredType};

/// Bytes before the JSON header.
const LENGTH_BYTES: usize = 8;
/// Longest accepted JSON header, the limit of the reference implementation.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The beginning of a file that a clone without Git LFS has instead.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
/// The dtype that is read as f32.
const DOUBLES: &str = "F64";
/// Most dimensions of a tensor.
const MAX_RANK: usize = 8;

/// The tensors of one safetensors file, in file order.
///
/// # Errors
/// [`FormatError`] if the file cannot be mapped or violates the format.
pub fn read(path: &Path) -> Result<Vec<StoredTensor>, FormatError> {
    let file = Arc::new(MappedFile::open(path)?);
    let (header, data_start) = header(&file)?;
    let data_len = file.bytes().len() - data_start;
    let needed = header.tensors.iter().map(|(_, info)| info.data_offsets[1]).max().unwrap_or(0);
    if needed > data_len as u64 {
        let cause = FormatCause::Truncated { what: "the tensors' data", needed, available: data_len as u64 };
        return Err(file.error(data_start, cause));
    }
    let mut tensors = header
        .tensors
        .into_iter()
        .map(|(name, info)| tensor(&file, data_start, name, info))
        .collect::<Result<Vec<_>, _>>()?;
    tensors.sort_by_key(|tensor| (tensor.rows.place().range.start, tensor.rows.place().range.end));
    let end = cover(data_start, &tensors)?;
    if end != data_start + data_len {
        let unused = data_start + data_len - end;
        let reason = format!("{unused} bytes after the last tensor belong to none");
        let name = tensors.last().map_or_else(String::new, |tensor| tensor.name.clone());
        return Err(file.error(end, FormatCause::BadTensor { name, reason }));
    }
    Ok(tensors)
}

/// Returns the JSON header and the start of the data.
fn header(file: &MappedFile) -> Result<(Header, usize), FormatError> {
    let bytes = file.bytes();
    let truncated =
        |what, needed, available: usize| FormatCause::Truncated { what, needed, available: available as u64 };
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(file.error(0, truncated("the header length", LENGTH_BYTES as u64, bytes.len())));
    };
    if bytes.starts_with(LFS_POINTER) {
        return Err(file.error(0, FormatCause::LfsPointer));
    }
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES {
        let cause = FormatCause::OverLimit { what: "the header length", found: length, limit: MAX_HEADER_BYTES };
        return Err(file.error(0, cause));
    }
    let Some(json) = rest.get(..length as usize) else {
        return Err(file.error(LENGTH_BYTES, truncated("the header", length, rest.len())));
    };
    let text = std::str::from_utf8(json).map_err(|error| {
        file.error(LENGTH_BYTES + error.valid_up_to(), FormatCause::InvalidUtf8 { what: "the header" })
    })?;
    let header: Header =
        serde_json::from_str(text).map_err(|error| file.error(LENGTH_BYTES, FormatCause::Json(error)))?;
    Ok((header, LENGTH_BYTES + json.len()))
}

fn tensor(
    file: &Arc<MappedFile>,
    data_start: usize,
    name: String,
    info: TensorInfo,
) -> Result<StoredTensor, FormatError> {
    let [begin, end] = info.data_offsets;
    let refuse = |name: String, reason: String| Err(file.error(data_start, FormatCause::BadTensor { name, reason }));
    if begin > end {
        return refuse(name, format!("it ends at byte {end}, before it begins at {begin}"));
    }
    if info.shape.len() > MAX_RANK {
        return refuse(name, format!("{} dimensions, more than {MAX_RANK}", info.shape.len()));
    }
    let Some((stored_type, element_bits)) = stored_type(&info.dtype) else {
        return refuse(name, format!("unknown dtype `{}`", info.dtype));
    };
    let elements = info.shape.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim));
    let bits = elements.and_then(|elements| elements.checked_mul(element_bits));
    // Compared in bits: a shape whose size is not a whole number of bytes matches no extent.
    if bits != (end - begin).checked_mul(8) {
        let reason = format!("{} {:?} does not fill {} bytes", info.dtype, info.shape, end - begin);
        return refuse(name, reason);
    }
    let extent = Extent {
        file: Arc::clone(file),
        range: Range { start: data_start + begin as usize, end: data_start + end as usize },
    };
    Ok(StoredTensor {
        name,
        written: None,
        stored_type,
        shape: info.shape.iter().map(|&dim| dim as usize).collect(),
        rows: if info.dtype == DOUBLES { RowSource::Doubles(extent) } else { RowSource::File(extent) },
        row_order: RowOrder::Natural,
        column_order: None,
    })
}

/// Checks that `tensors`, sorted by offset, follow each other without gaps or overlap; returns the
/// end of the last one.
fn cover(data_start: usize, tensors: &[StoredTensor]) -> Result<usize, FormatError> {
    let mut end = data_start;
    for tensor in tensors {
        let extent = tensor.rows.place();
        if extent.range.start != end {
            let what =
                if extent.range.start < end { "overlaps the tensor before it" } else { "leaves a hole before it" };
            let cause = FormatCause::BadTensor { name: tensor.name.clone(), reason: what.to_owned() };
            return Err(extent.error(cause));
        }
        end = extent.range.end;
    }
    Ok(end)
}

/// The type that a dtype name is read as, and its bits per element in the file.
fn stored_type(dtype: &str) -> Option<(StoredType, u64)> {
    let (name, bits) = match dtype {
        "F32" => ("F32", 32),
        "F16" => ("F16", 16),
        "BF16" => ("BF16", 16),
        "BOOL" => ("BOOL", 8),
        "U8" => ("U8", 8),
        "I8" => ("I8", 8),
        "F8_E5M2" => ("F8_E5M2", 8),
        "F8_E4M3" => ("F8_E4M3", 8),
        "F8_E8M0" => ("F8_E8M0", 8),
        "F8_E4M3FNUZ" => ("F8_E4M3FNUZ", 8),
        "F8_E5M2FNUZ" => ("F8_E5M2FNUZ", 8),
        "F4" => ("F4", 4),
        "F6_E2M3" => ("F6_E2M3", 6),
        "F6_E3M2" => ("F6_E3M2", 6),
        "I16" => ("I16", 16),
        "U16" => ("U16", 16),
        "I32" => ("I32", 32),
        "U32" => ("U32", 32),
        DOUBLES => ("F32", 64),
        "I64" => ("I64", 64),
        "U64" => ("U64", 64),
        "C64" => ("C64", 64),
        _ => return None,
    };
    Some((StoredType::named(name), bits))
}

/// The header's entry for one tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorInfo {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header: tensors in the order of the text, names unique.
struct Header {
    tensors: Vec<(String, TensorInfo)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut seen = std::collections::HashSet::new();
        let mut tensors = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(serde::de::Error::custom(format_args!("`{name}` appears twice")));
            }
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                let info = map.next_value()?;
                tensors.push((name, info));
            }
        }
        Ok(Header { tensors })
    }
}
