//! Which tensors get which encoding.

use crate::error::QuantizeError;
use crate::method::Method;
use amk::Encoding;
use amk::ir::DType;
use amk_kernels::encoding::{Grid, GroupCodes, GroupFormat};
use amk_models::weights::{FileForm, StoredTensor};

/// How to quantise the projections of a model.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The encodings: each tensor gets the first whose blocks divide its rows.
    to: Vec<&'static Encoding>,
    method: Method,
    /// The type of scales in groups.
    scale: DType,
}

impl Recipe {
    /// The encodings with these names, such as `int4:128` or `Q4_K`. Without a method scales are
    /// searched where a block has one, and as for [`Method::Rtn`] elsewhere.
    ///
    /// # Errors
    /// [`QuantizeError::UnknownEncoding`], [`QuantizeError::Mixed`] and [`QuantizeError::NoGrid`].
    pub fn new(names: &[&str], method: impl Into<Option<Method>>) -> Result<Self, QuantizeError> {
        amk_kernels::link();
        let find = |name: &&str| {
            let found = Encoding::find(name).filter(|encoding| quantises(encoding));
            found.ok_or_else(|| QuantizeError::UnknownEncoding { name: (*name).to_owned(), known: known() })
        };
        let to = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        if let Some(pair) = to.windows(2).find(|pair| is_of_groups(pair[0]) != is_of_groups(pair[1])) {
            return Err(QuantizeError::Mixed { first: pair[0].name, second: pair[1].name });
        }
        let has_grid = |encoding: &&'static Encoding| Grid::of(encoding).is_some();
        let method = match method.into() {
            None if to.iter().any(has_grid) => Method::Search,
            None => Method::Rtn,
            Some(method) => {
                let without = to.iter().find(|encoding| method != Method::Rtn && !has_grid(encoding));
                if let Some(encoding) = without {
                    return Err(QuantizeError::NoGrid { encoding, method: method.name() });
                }
                method
            }
        };
        Ok(Self { to, method, scale: DType::F16 })
    }

    /// The same with scales of this type in groups: a folder's scales have the type of its other
    /// weights, because its readers convert them to that.
    #[must_use]
    pub fn with_scales(self, scale: DType) -> Self {
        Self { scale, ..self }
    }

    /// How.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The form of files that has these encodings.
    pub fn form(&self) -> FileForm {
        match self.to.first() {
            Some(encoding) if !is_of_groups(encoding) => FileForm::Gguf,
            _ => FileForm::Folder,
        }
    }

    /// The encoding of a tensor.
    ///
    /// # Errors
    /// [`QuantizeError::NotWhole`].
    pub fn encoding(&self, tensor: &StoredTensor) -> Result<&'static Encoding, QuantizeError> {
        let row = tensor.row_len();
        let found = self.to.iter().find(|encoding| row.is_multiple_of(encoding.block));
        let encoding = found.ok_or_else(|| QuantizeError::NotWhole {
            tensor: tensor.name_in_file().to_owned(),
            row,
            encodings: self.to.clone(),
            fits: self.similar(row),
        })?;
        let scaled =
            GroupFormat::of(encoding).and_then(|format| GroupFormat { scale: self.scale, ..format }.encoding());
        Ok(scaled.unwrap_or(encoding))
    }

    /// The encoding of the same kind with the largest blocks that divide a row: the same codes in
    /// other groups, or other blocks with as many bits.
    fn similar(&self, row: usize) -> Option<&'static Encoding> {
        let first = self.to.first()?;
        let bits = |encoding: &Encoding| 8 * encoding.bytes / encoding.block;
        let alike = |other: &Encoding| match codes(first) {
            Some(found) => codes(other) == Some(found),
            None => codes(other).is_none() && bits(first) == bits(other),
        };
        let fitting = Encoding::all().filter(|other| quantises(other) && row.is_multiple_of(other.block));
        // Integers before values of a table, since every method takes them.
        let order = |other: &&Encoding| (core::cmp::Reverse(other.block), Grid::of(other).is_none(), other.name);
        fitting.filter(|other| alike(other)).min_by_key(order)
    }
}

/// The codes of an encoding by groups.
fn codes(encoding: &Encoding) -> Option<GroupCodes> {
    GroupFormat::of(encoding).map(|format| format.codes)
}

/// Whether an encoding is by groups, as folders have them; GGUF files have the others.
pub(crate) fn is_of_groups(encoding: &Encoding) -> bool {
    GroupFormat::of(encoding).is_some()
}

/// Whether weights can be quantised to an encoding: of those by groups the integers without zeros,
/// with the scales that a user need not choose.
fn quantises(encoding: &Encoding) -> bool {
    let groups = !is_of_groups(encoding) || (encoding.name.split(':').count() == 2 && Grid::of(encoding).is_some());
    encoding.float.is_none() && encoding.encode.is_some() && groups
}

/// The encodings to quantise to, in the order of their names.
pub fn known() -> Vec<&'static str> {
    amk_kernels::link();
    let mut known: Vec<_> = Encoding::all().filter(|encoding| quantises(encoding)).collect();
    known.sort_by_key(|encoding| (is_of_groups(encoding), encoding.name.split(':').next(), encoding.block));
    known.into_iter().map(|encoding| encoding.name).collect()
}
