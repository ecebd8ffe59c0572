//! Schedules that a search found, kept for later runs.

use amk::ir::schedule::PartialSchedule;
use amk_cuda::{GpuTarget, source};
use amk_models::model::Model;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// A schedule found by a search, and its gain.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The schedule, as fields over the GPU's own.
    pub schedule: PartialSchedule,
    /// The model that it was found with.
    pub model: String,
    /// How much faster than the GPU's own schedule: 0.02 is 2%.
    pub gain: f64,
    /// Positions that were timed.
    pub positions: Vec<u32>,
}

/// A file of the store cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the schedule {}: {cause}", path.display())]
pub struct StoreError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub cause: io::Error,
}

/// The form of schedules in files; files of another form are not found.
const FORM: u32 = 2;

/// The folder of schedules.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store in a folder, which need not exist.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The file of a model on a GPU. Its name depends on the dims but for the context, on the GPU
    /// and on the device code: a schedule that was found with other code is none.
    pub fn file(&self, model: &Model, target: &GpuTarget) -> PathBuf {
        self.file_for(model, target, source::files())
    }

    fn file_for<'c>(
        &self,
        model: &Model,
        target: &GpuTarget,
        code: impl Iterator<Item = (&'c str, &'c str)>,
    ) -> PathBuf {
        let mut hash = DefaultHasher::new();
        FORM.hash(&mut hash);
        let dims = model.instance.dims.iter().filter(|(name, _)| *name != "CONTEXT");
        dims.for_each(|dim| dim.hash(&mut hash));
        code.for_each(|file| file.hash(&mut hash));
        self.folder.join(format!("{}-{}-{:016x}.json", target.name, model.family.name, hash.finish()))
    }

    /// The schedule in a file of the store, if it is there.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn load(path: &Path) -> Result<Option<Saved>, StoreError> {
        let fail = |cause| StoreError { path: path.to_owned(), cause };
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => Ok(Some(serde_json::from_str(&text.map_err(fail)?).map_err(|error| fail(error.into()))?)),
        }
    }

    /// Writes a schedule into a file of the store, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(path: &Path, saved: &Saved) -> Result<(), StoreError> {
        let fail = |cause| StoreError { path: path.to_owned(), cause };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let text = serde_json::to_string_pretty(saved).map_err(|error| fail(error.into()))?;
        let part = path.with_extension(format!("part{}", std::process::id()));
        std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path)).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk::ir::schedule::PartialRing;
    use amk_models::model::FAMILIES;

    #[test]
    fn what_is_saved_is_found_by_dims_target_and_code() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().join("schedules"));
        let mut instance = FAMILIES[0].kernel.instance("smollm2_135m").expect("it is declared").clone();
        instance.dims.extend([("LAYERS".to_owned(), 1), ("VOCAB".to_owned(), 64)]);
        let model = |context| {
            Model::random(FAMILIES[0], &instance, context, &amk::encoding::BF16, amk::tensor::Inputs::F32)
                .expect("a model")
        };
        let target = |name| GpuTarget::of_device(name).expect("a record");
        let (h200, l4) = (target("NVIDIA H200"), target("NVIDIA L4"));
        let path = store.file(&model(64), h200);
        assert_eq!(Store::load(&path).expect("nothing fails"), None);
        let saved = Saved {
            schedule: PartialSchedule {
                ring: PartialRing { pace: Some(190), ..PartialRing::default() },
                ..PartialSchedule::default()
            },
            model: "m".into(),
            gain: 0.02,
            positions: vec![0],
        };
        Store::save(&path, &saved).expect("it should be written");
        assert_eq!(Store::load(&path).expect("nothing fails"), Some(saved));
        assert_eq!(store.file(&model(128), h200), path, "the context does not matter");
        assert_ne!(store.file(&model(64), l4), path);
        assert_ne!(store.file_for(&model(64), h200, [("a.cuh", "2")].into_iter()), path);
        std::fs::write(&path, "{").expect("it should be written");
        assert!(Store::load(&path).is_err());
    }
}
