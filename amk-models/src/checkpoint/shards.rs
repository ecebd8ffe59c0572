//! The safetensors files of a folder: one, or shards with an index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::weights::{StoredTensor, TensorSet, safetensors};

use super::{CheckpointError, json_error, read_json};

pub(super) const SINGLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Whether the folder has safetensors.
pub(super) fn are_in(folder: &Path) -> bool {
    [SINGLE, INDEX].iter().any(|file| folder.join(file).exists())
}

/// All tensors of the folder. As in transformers, a single file goes before an index.
pub(super) fn read(folder: &Path) -> Result<TensorSet, CheckpointError> {
    let single = folder.join(SINGLE);
    if single.exists() {
        let mut set = TensorSet::default();
        add(&mut set, &single, safetensors::read(&single)?)?;
        return Ok(set);
    }
    let index = folder.join(INDEX);
    match read_json(&index)? {
        Some(object) => read_shards(folder, &index, &weight_map(&index, &object)?),
        None => Err(CheckpointError::NotACheckpoint {
            path: folder.to_owned(),
            reason: format!("has no {SINGLE}, {INDEX} or .gguf file; weights in other formats are not read"),
        }),
    }
}

/// From each shard's file name to the tensors the index puts into it.
type WeightMap = BTreeMap<String, BTreeSet<String>>;

fn weight_map(index: &Path, object: &serde_json::Map<String, Value>) -> Result<WeightMap, CheckpointError> {
    let Some(Value::Object(entries)) = object.get("weight_map") else {
        return Err(json_error(index, "`weight_map` is missing or no object"));
    };
    let mut map = WeightMap::new();
    for (tensor, file) in entries {
        // The index names files; a path could lead out of the folder.
        let file = file.as_str().filter(|file| Path::new(file).file_name() == Some(file.as_ref()));
        let file =
            file.ok_or_else(|| json_error(index, format!("the file of tensor `{tensor}` is not a file name")))?;
        map.entry(file.to_owned()).or_default().insert(tensor.clone());
    }
    Ok(map)
}

fn read_shards(folder: &Path, index: &Path, map: &WeightMap) -> Result<TensorSet, CheckpointError> {
    let mut set = TensorSet::default();
    for (file, expected) in map {
        let path = folder.join(file);
        let tensors = safetensors::read(&path)?;
        let found: BTreeSet<_> = tensors.iter().map(|tensor| tensor.name().to_owned()).collect();
        if let Some(name) = expected.difference(&found).next() {
            return Err(json_error(index, format!("tensor `{name}` is not in {file}")));
        }
        if let Some(name) = found.difference(expected).next() {
            let elsewhere = map.iter().find(|(_, names)| names.contains(name));
            let reason = match elsewhere {
                Some((other, _)) => format!("tensor `{name}` is in {file}, and by the index in {other}"),
                None => format!("tensor `{name}` of {file} is not in the index"),
            };
            return Err(json_error(index, reason));
        }
        add(&mut set, &path, tensors)?;
    }
    Ok(set)
}

fn add(set: &mut TensorSet, path: &Path, tensors: Vec<StoredTensor>) -> Result<(), CheckpointError> {
    for tensor in tensors {
        set.insert(tensor).map_err(|tensor| json_error(path, format!("tensor `{}` appears twice", tensor.name())))?;
    }
    Ok(())
}
