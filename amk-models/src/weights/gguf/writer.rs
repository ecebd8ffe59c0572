//! Writes GGUF files, version 3.

use std::borrow::Cow;
use std::io::{self, Write};

use amk::Encoding;

use super::header::{DEFAULT_ALIGNMENT, MAGIC, type_code};
use super::metadata::{Array, Value, code};

const VERSION: u32 = 3;

/// A tensor to be written.
pub struct NewTensor<'a> {
    /// The name.
    pub name: String,
    /// The extents, outermost first.
    pub shape: Vec<usize>,
    /// How its elements are stored.
    pub encoding: &'static Encoding,
    /// Makes its bytes, when they are written.
    pub bytes: Box<dyn Fn() -> Cow<'a, [u8]> + 'a>,
}

/// Whether GGUF has a type for tensors of an encoding.
pub fn holds(encoding: &Encoding) -> bool {
    type_code(encoding).is_some()
}

/// Writes a file with these metadata and tensors, in this order; `progress` is called with the
/// number of tensor bytes written.
///
/// Integers are written as u32 or i32 if they fit, and floats as f32 if that is exact; readers
/// expect these types for all keys except `split.*`. The tensors lie at multiples of 32 bytes, so
/// `general.alignment` is omitted.
///
/// # Errors
/// If `out` fails, GGUF has no type for an encoding, or the number of a tensor's bytes does not
/// match its shape.
pub fn write<'v>(
    out: &mut dyn Write,
    metadata: impl IntoIterator<Item = (&'v str, &'v Value)>,
    tensors: &[NewTensor<'_>],
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let entries: Vec<_> = metadata.into_iter().filter(|(key, _)| *key != "general.alignment").collect();
    let mut header = Vec::from(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((entries.len() as u64).to_le_bytes());
    for (key, value) in entries {
        text(&mut header, key);
        put(&mut header, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        info(&mut header, tensor, offset)?;
        offset = (offset + byte_len(tensor)?).next_multiple_of(DEFAULT_ALIGNMENT);
    }
    out.write_all(&header)?;
    pad(out, header.len() as u64)?;
    let mut written = 0;
    for tensor in tensors {
        let (bytes, expected) = ((tensor.bytes)(), byte_len(tensor)?);
        if bytes.len() as u64 != expected {
            return Err(invalid(tensor, format!("has {} bytes, not {expected}", bytes.len())));
        }
        out.write_all(&bytes)?;
        pad(out, expected)?;
        written += expected;
        progress(written);
    }
    out.flush()
}

fn invalid(tensor: &NewTensor<'_>, reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("tensor `{}` {reason}", tensor.name))
}

fn byte_len(tensor: &NewTensor<'_>) -> io::Result<u64> {
    let whole = tensor.shape.last().is_none_or(|row| row.is_multiple_of(tensor.encoding.block));
    let bytes = tensor.encoding.byte_len(tensor.shape.iter().product()).filter(|_| whole);
    bytes
        .map(|bytes| bytes as u64)
        .ok_or_else(|| invalid(tensor, format!("is not whole blocks of {}", tensor.encoding)))
}

fn info(header: &mut Vec<u8>, tensor: &NewTensor<'_>, offset: u64) -> io::Result<()> {
    let code = type_code(tensor.encoding);
    let code = code.ok_or_else(|| invalid(tensor, format!("cannot be stored as {}", tensor.encoding)))?;
    text(header, &tensor.name);
    header.extend((tensor.shape.len() as u32).to_le_bytes());
    tensor.shape.iter().rev().for_each(|&extent| header.extend((extent as u64).to_le_bytes()));
    header.extend(code.to_le_bytes());
    header.extend(offset.to_le_bytes());
    Ok(())
}

/// Fills up to the alignment after `len` bytes.
fn pad(out: &mut dyn Write, len: u64) -> io::Result<()> {
    const ZEROS: [u8; DEFAULT_ALIGNMENT as usize] = [0; DEFAULT_ALIGNMENT as usize];
    out.write_all(&ZEROS[..(len.next_multiple_of(DEFAULT_ALIGNMENT) - len) as usize])
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A value after its type.
fn put(out: &mut Vec<u8>, value: &Value) {
    let code = match value {
        Value::Unsigned(value) => unsigned_code(&[*value]),
        Value::Signed(value) => signed_code(&[*value]),
        Value::Float(value) => float_code(&[*value]),
        Value::Bool(_) => code::BOOL,
        Value::String(_) => code::STRING,
        Value::Array(_) => code::ARRAY,
    };
    out.extend(code.to_le_bytes());
    match value {
        Value::Unsigned(value) => put_unsigned(out, *value, code),
        Value::Signed(value) => put_signed(out, *value, code),
        Value::Float(value) => put_float(out, *value, code),
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::String(value) => text(out, value),
        Value::Array(array) => put_array(out, array),
    }
}

/// The values of an array after their type and number.
fn put_array(out: &mut Vec<u8>, array: &Array) {
    let code = match array {
        Array::Unsigned(values) => unsigned_code(values),
        Array::Signed(values) => signed_code(values),
        Array::Float(values) => float_code(values),
        Array::Bool(_) => code::BOOL,
        Array::String(_) => code::STRING,
    };
    out.extend(code.to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::Unsigned(values) => values.iter().for_each(|&value| put_unsigned(out, value, code)),
        Array::Signed(values) => values.iter().for_each(|&value| put_signed(out, value, code)),
        Array::Float(values) => values.iter().for_each(|&value| put_float(out, value, code)),
        Array::Bool(values) => out.extend(values.iter().map(|&value| u8::from(value))),
        Array::String(values) => values.iter().for_each(|value| text(out, value)),
    }
}

fn unsigned_code(values: &[u64]) -> u32 {
    if values.iter().all(|&value| u32::try_from(value).is_ok()) { code::U32 } else { code::U64 }
}

fn signed_code(values: &[i64]) -> u32 {
    if values.iter().all(|&value| i32::try_from(value).is_ok()) { code::I32 } else { code::I64 }
}

fn float_code(values: &[f64]) -> u32 {
    let same = |value: f64| f64::from(value as f32).to_bits() == value.to_bits();
    if values.iter().all(|&value| same(value)) { code::F32 } else { code::F64 }
}

fn put_unsigned(out: &mut Vec<u8>, value: u64, code: u32) {
    let bytes = value.to_le_bytes();
    out.extend(if code == code::U32 { &bytes[..4] } else { &bytes[..] });
}

fn put_signed(out: &mut Vec<u8>, value: i64, code: u32) {
    let bytes = value.to_le_bytes();
    out.extend(if code == code::I32 { &bytes[..4] } else { &bytes[..] });
}

fn put_float(out: &mut Vec<u8>, value: f64, code: u32) {
    match code {
        code::F32 => out.extend((value as f32).to_le_bytes()),
        _ => out.extend(value.to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::GgufFile;
    use super::*;
    use amk::encoding::F32;

    #[test]
    fn what_is_written_is_read_again() {
        let values = [
            ("a.alignment", Value::Unsigned(32)),
            ("a.large", Value::Unsigned(1 << 40)),
            ("a.signed", Value::Signed(-3)),
            ("b.float", Value::Float(0.5)),
            ("b.long", Value::Float(1e-6)),
            ("b.bool", Value::Bool(true)),
            ("c.text", Value::String("Grüße".to_owned())),
            ("d.texts", Value::Array(Array::String(vec!["a".to_owned(), String::new()]))),
            ("d.types", Value::Array(Array::Signed(vec![1, -1, 3]))),
            ("d.scores", Value::Array(Array::Float(vec![-1.5, 0.0]))),
            ("d.bools", Value::Array(Array::Bool(vec![true, false]))),
            ("d.sizes", Value::Array(Array::Unsigned(vec![7, u64::MAX]))),
        ];
        let q8_0 = Encoding::find("Q8_0").expect("it is registered");
        let bytes: Vec<u8> = (0..2 * 34).collect();
        let tensor = |name: &str, shape: &[usize], encoding, bytes: &[u8]| NewTensor {
            name: name.to_owned(),
            shape: shape.to_vec(),
            encoding,
            bytes: Box::new({
                let bytes = bytes.to_vec();
                move || Cow::Owned(bytes.clone())
            }),
        };
        let tensors = [tensor("x", &[3], &F32, &[1; 12]), tensor("y", &[2, 32], q8_0, &bytes)];
        let (mut out, mut seen) = (Vec::new(), 0);
        write(&mut out, values.iter().map(|(key, value)| (*key, value)), &tensors, &mut |done| seen = done)
            .expect("a vector takes everything");
        assert_eq!(seen, 12 + 68);
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), &out).expect("it can be written");
        let read = GgufFile::open(file.path()).expect("it is a GGUF file");
        let mut expected = values.to_vec();
        expected.sort_by_key(|(key, _)| *key);
        let found: Vec<_> = read.metadata.iter().map(|(key, value)| (key, value.clone())).collect();
        assert_eq!(found, expected);
        assert_eq!(
            read.tensors.iter().map(|tensor| (tensor.name(), tensor.shape())).collect::<Vec<_>>(),
            [("x", &[3][..]), ("y", &[2, 32])]
        );
        let stored = |at: usize| read.tensors[at].rows.place().bytes();
        assert_eq!((stored(0), stored(1)), (&[1; 12][..], &bytes[..]));
    }

    #[test]
    fn what_the_format_does_not_have_is_refused() {
        let mut tensor = NewTensor {
            name: "x".to_owned(),
            shape: vec![8],
            encoding: &F32,
            bytes: Box::new(|| Cow::Owned(vec![0; 4])),
        };
        let try_it = |tensor: &NewTensor<'_>| {
            write(&mut Vec::new(), [], core::slice::from_ref(tensor), &mut |_| {}).expect_err("refused").to_string()
        };
        assert_eq!(try_it(&tensor), "tensor `x` has 4 bytes, not 32");
        tensor.encoding = Encoding::find("Q8_0").expect("it is registered");
        assert_eq!(try_it(&tensor), "tensor `x` is not whole blocks of Q8_0");
    }
}
