//! The header of a GGUF file and the extents of its tensors.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use amk::Encoding;

use super::super::{Extent, FormatCause, FormatError, MappedFile, RowOrder, RowSource, StoredTensor, StoredType};
use super::cursor::Cursor;
use super::metadata::Metadata;

/// The magic number at the start of a file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// Most tensors of a file.
const MAX_TENSORS: u64 = 1 << 17;
/// Most dimensions of a tensor (`GGML_MAX_DIMS`).
const MAX_RANK: u32 = 4;
/// Alignment of the tensor data and of each tensor if the metadata sets none.
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;

/// An opened GGUF file: its metadata and the locations of its tensors.
#[derive(Debug)]
pub struct GgufFile {
    /// The key-value metadata.
    pub metadata: Metadata,
    /// The tensors in the order of the header, under their GGUF names and in the file's row order.
    pub tensors: Vec<StoredTensor>,
}

impl GgufFile {
    /// Maps the file at `path` and reads its header.
    ///
    /// # Errors
    /// [`FormatError`] if the file cannot be mapped or violates the format.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let file = Arc::new(MappedFile::open(path)?);
        let mut cursor = Cursor::new(&file);
        check_version(&mut cursor)?;
        // A name's length, a rank, a type and an offset.
        let tensor_count = cursor.count("the tensor count", MAX_TENSORS, 8 + 4 + 4 + 8)?;
        let entry_count = Metadata::count(&mut cursor)?;
        let metadata = Metadata::read(&mut cursor, path, entry_count)?;
        let infos = (0..tensor_count).map(|_| TensorInfo::read(&mut cursor)).collect::<Result<Vec<_>, _>>()?;
        let alignment = alignment(&metadata)?;
        let data_start = (cursor.position() as u64).next_multiple_of(alignment);
        let tensors =
            infos.into_iter().map(|info| info.place(&file, data_start, alignment)).collect::<Result<Vec<_>, _>>()?;
        check_apart(&tensors)?;
        Ok(Self { metadata, tensors })
    }
}

fn check_version(cursor: &mut Cursor<'_>) -> Result<(), FormatError> {
    if cursor.array("the magic number")? != MAGIC {
        return Err(cursor.error(FormatCause::WrongMagic { format: "GGUF" }));
    }
    let version = cursor.u32("the version")?;
    let found = match version {
        2 | 3 => return Ok(()),
        // A big-endian file holds its small version number in the upper bytes.
        _ if version.swap_bytes() < 1 << 8 => "in big-endian byte order".to_owned(),
        _ => format!("version {version}"),
    };
    Err(cursor.error(FormatCause::UnsupportedVersion {
        format: "GGUF",
        found,
        supported: "versions 2 and 3, little endian",
    }))
}

fn alignment(metadata: &Metadata) -> Result<u64, FormatError> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.unsigned(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        return Err(metadata.error(KEY, format!("{alignment} is not a power of two up to {MAX_ALIGNMENT}")));
    }
    Ok(alignment)
}

/// One entry of the tensor table.
struct TensorInfo {
    /// Where the entry starts in the file.
    at: usize,
    name: String,
    /// Outermost dimension first (the file has the innermost first).
    shape: Vec<u64>,
    stored_type: StoredType,
    /// From the start of the data.
    offset: u64,
}

impl TensorInfo {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, FormatError> {
        let at = cursor.position();
        let name = cursor.string("a tensor name")?.to_owned();
        let rank = cursor.u32("a tensor's rank")?;
        if rank > MAX_RANK {
            let (found, limit) = (rank.into(), MAX_RANK.into());
            return Err(cursor.error(FormatCause::OverLimit { what: "a tensor's rank", found, limit }));
        }
        let mut shape = (0..rank).map(|_| cursor.u64("a dimension")).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let code = cursor.u32("a tensor's type")?;
        let stored_type =
            stored_type(code).ok_or_else(|| cursor.error(FormatCause::UnknownCode { what: "tensor type", code }))?;
        let offset = cursor.u64("a tensor's offset")?;
        Ok(Self { at, name, shape, stored_type, offset })
    }

    /// Checks the extent against the file.
    fn place(self, file: &Arc<MappedFile>, data_start: u64, alignment: u64) -> Result<StoredTensor, FormatError> {
        let Self { at, name, shape, stored_type, offset } = self;
        let extent = extent(&shape, stored_type, offset, data_start, alignment, file.bytes().len() as u64);
        match extent {
            Ok((start, end)) => Ok(StoredTensor {
                name,
                written: None,
                stored_type,
                shape: shape.into_iter().map(|dim| dim as usize).collect(),
                rows: RowSource::File(Extent { file: Arc::clone(file), range: start as usize..end as usize }),
                row_order: RowOrder::Natural,
                column_order: None,
            }),
            Err(reason) => Err(file.error(at, FormatCause::BadTensor { name, reason })),
        }
    }
}

/// Returns the start and end of a tensor in a file of `file_len` bytes, or why it cannot be there.
fn extent(
    shape: &[u64],
    stored_type: StoredType,
    offset: u64,
    data_start: u64,
    alignment: u64,
    file_len: u64,
) -> Result<(u64, u64), String> {
    if !offset.is_multiple_of(alignment) {
        return Err(format!("offset {offset} is not a multiple of the alignment {alignment}"));
    }
    let len = match stored_type {
        StoredType::Encoded(encoding) => byte_len(shape, encoding)?,
        // A tensor of a type that is not decoded cannot be claimed; its extent is unknown and
        // treated as empty.
        StoredType::Other(_) => 0,
    };
    let start = data_start.checked_add(offset);
    match start.and_then(|start| Some((start, start.checked_add(len)?))) {
        Some((start, end)) if end <= file_len => Ok((start, end)),
        _ => Err(format!(
            "{len} bytes at data offset {offset} leave the file of {file_len} bytes, which may be truncated"
        )),
    }
}

/// Bytes of a tensor, or why it has none.
fn byte_len(shape: &[u64], encoding: &Encoding) -> Result<u64, String> {
    let row = shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(encoding.block as u64) {
        return Err(format!("rows of {row} are not whole blocks of {} ({encoding})", encoding.block));
    }
    let elements = shape.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim));
    let bytes = elements.and_then(|elements| encoding.byte_len(usize::try_from(elements).ok()?));
    bytes.map(|bytes| bytes as u64).ok_or_else(|| format!("{encoding} {shape:?} is larger than any file"))
}

/// Checks that names are unique and that no two tensors share bytes.
fn check_apart(tensors: &[StoredTensor]) -> Result<(), FormatError> {
    let mut names = BTreeSet::new();
    for tensor in tensors {
        if !names.insert(&tensor.name) {
            return Err(tensor.duplicate());
        }
    }
    let placed = tensors.iter().map(|tensor| (tensor.rows.place(), &tensor.name));
    let mut by_start: Vec<_> = placed.filter(|(extent, _)| !extent.range.is_empty()).collect();
    by_start.sort_by_key(|(extent, _)| extent.range.start);
    for pair in by_start.windows(2) {
        let [(before, before_name), (extent, name)] = [pair[0], pair[1]];
        if before.range.end > extent.range.start {
            let reason = format!("its bytes overlap the bytes of `{before_name}`");
            return Err(extent.error(FormatCause::BadTensor { name: name.clone(), reason }));
        }
    }
    Ok(())
}

/// Tensor type codes (`ggml_type`) and their names.
const TYPES: [(u32, &str); 34] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (30, "BF16"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

/// The meaning of a tensor type code.
fn stored_type(code: u32) -> Option<StoredType> {
    TYPES.iter().find(|(known, _)| *known == code).map(|(_, name)| StoredType::named(name))
}

/// The code of tensors in an encoding.
pub(super) fn type_code(encoding: &Encoding) -> Option<u32> {
    TYPES.iter().find(|(_, name)| encoding.name.eq_ignore_ascii_case(name)).map(|(code, _)| *code)
}
