//! Safetensors files: right ones, and every way to be wrong.

use ::safetensors::{Dtype, SafeTensors, tensor::TensorView};
use amk_models::weights::{FormatCause, FormatError, safetensors};

use super::support::{with_header, written};

fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<usize>)>, FormatError> {
    let (_folder, path) = written("m.safetensors", bytes);
    let tensors = safetensors::read(&path)?;
    Ok(tensors.iter().map(|tensor| (tensor.name().to_owned(), tensor.shape().to_vec())).collect())
}

#[test]
fn files_of_the_library_are_read() {
    let data: Vec<u8> = (0..24).collect();
    let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    let tensors = [
        ("b", view(Dtype::F32, &[2, 2], &data[..16])),
        ("a", view(Dtype::BF16, &[4], &data[16..])),
        ("empty", view(Dtype::F32, &[0, 3], &[])),
    ];
    let file = ::safetensors::serialize(tensors, Some([("format".to_owned(), "pt".to_owned())].into())).unwrap();
    let mut found = read(&file).unwrap();
    found.sort();
    let expected = [("a", vec![4]), ("b", vec![2, 2]), ("empty", vec![0, 3])];
    assert_eq!(found, expected.map(|(name, shape)| (name.to_owned(), shape)));
}

#[test]
fn wrong_files_are_refused_with_a_cause() {
    let tensor = |begin: u64, end: u64| format!(r#"{{"dtype":"F32","shape":[1],"data_offsets":[{begin},{end}]}}"#);
    let one = |entry: String| with_header(&format!(r#"{{"a":{entry}}}"#), &[0; 4]);
    let two = |a: String, b: String| with_header(&format!(r#"{{"a":{a},"b":{b}}}"#), &[0; 8]);
    let shaped =
        |dtype: &str, shape: &str| one(format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,4]}}"#));
    let cases = [
        (vec![], "truncated: the header length"),
        (vec![0; 7], "truncated: the header length"),
        (100_u64.to_le_bytes().to_vec(), "truncated: the header needs 100 bytes, 0 are left"),
        (u64::MAX.to_le_bytes().to_vec(), "more than the limit"),
        (with_header("[]", &[]), "invalid JSON"),
        (with_header(&"[".repeat(100_000), &[]), "invalid JSON"),
        (with_header(r#"{"a":{"dtype":"F32","shape":[1]}}"#, &[0; 4]), "data_offsets"),
        (with_header(r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, &[0; 4]), "invalid JSON"),
        (one(tensor(0, 8)), "the file is truncated: the tensors' data needs 8 bytes, 4 are left"),
        (one(tensor(4, 0)), "it ends at byte 0, before it begins at 4"),
        (one(tensor(u64::MAX - 3, u64::MAX)), "needs 18446744073709551615 bytes, 4 are left"),
        (with_header(&format!(r#"{{"a":{}}}"#, tensor(0, 4)), &[0; 9]), "5 bytes after the last tensor"),
        (two(tensor(0, 4), tensor(0, 4)), "overlaps"),
        (with_header(&format!(r#"{{"a":{}}}"#, tensor(4, 8)), &[0; 8]), "hole"),
        (with_header(&format!(r#"{{"a":{0},"a":{0}}}"#, tensor(0, 4)), &[0; 4]), "`a` appears twice"),
        (shaped("F32", "[2]"), "does not fill 4 bytes"),
        (shaped("F32", "[4294967296,4294967296]"), "does not fill 4 bytes"),
        (shaped("F4", "[3]"), "does not fill 4 bytes"),
        (shaped("F31", "[1]"), "unknown dtype `F31`"),
        (shaped("F32", "[1,1,1,1,1,1,1,1,1]"), "dimensions"),
    ];
    for (bytes, cause) in cases {
        let error = read(&bytes).expect_err(cause).to_string();
        assert!(error.contains("m.safetensors") && error.contains(cause), "{error} instead of {cause}");
    }
}

#[test]
fn a_pointer_of_git_lfs_is_named() {
    let error = read(b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 4\n").unwrap_err().to_string();
    assert!(error.contains("m.safetensors: a pointer of Git LFS") && !error.contains("byte"), "{error}");
}

#[test]
fn invalid_utf8_is_refused_where_it_is() {
    let mut file = with_header(r#"{"abc":1}"#, &[]);
    file[10] = 0xff;
    let error = read(&file).unwrap_err();
    assert!(matches!(error.cause, FormatCause::InvalidUtf8 { .. }) && error.offset == 10, "{error}");
}

/// A reader that accepts offsets whose sum overflows, or repeated names, would accept what the
/// library does.
#[test]
fn it_is_as_strict_as_the_library_and_stricter_with_names() {
    let entry = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    let repeated = with_header(&format!(r#"{{"a":{entry},"a":{entry}}}"#), &[0; 4]);
    assert!(SafeTensors::deserialize(&repeated).is_ok());
    assert!(read(&repeated).is_err());
}

#[test]
fn a_folder_and_a_missing_file_are_input_errors() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("gone")] {
        let error = safetensors::read(&path).unwrap_err();
        assert!(matches!(error.cause, FormatCause::Io(_)), "{error}");
    }
}
