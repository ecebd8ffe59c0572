//! The cache of models, as far as it goes without a network.

use amk_models::cache::{Cache, CacheError, PublishedModel, SMOLLM2_135M_INSTRUCT};

const NOWHERE: PublishedModel = PublishedModel { name: "nowhere", sources: &[] };

#[test]
fn a_model_without_a_source_names_the_folder_for_it() {
    let root = tempfile::tempdir().unwrap();
    let error = Cache::at(root.path().to_owned()).resolve(&NOWHERE).unwrap_err();
    let CacheError::NoSource { folder, .. } = &error else { panic!("{error}") };
    assert_eq!(folder, &root.path().join("models/nowhere/local"));
    assert!(error.to_string().ends_with(&format!("into {}", folder.display())), "{error}");
}

#[test]
fn what_the_user_put_there_goes_first() {
    let root = tempfile::tempdir().unwrap();
    let cache = Cache::at(root.path().to_owned());
    let model = SMOLLM2_135M_INSTRUCT;
    let wheel = cache.folder(&model).join("wheel");
    std::fs::create_dir_all(&wheel).unwrap();
    assert_eq!(cache.find(&model), Some(wheel.clone()));
    let local = cache.folder(&model).join("local");
    std::fs::create_dir_all(&local).unwrap();
    assert_eq!(cache.find(&model), Some(wheel));
    std::fs::write(local.join("m.gguf"), b"").unwrap();
    assert_eq!(cache.resolve(&model).unwrap(), local);
}

#[test]
fn a_cache_folder_that_cannot_be_made_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let model = PublishedModel { sources: &SMOLLM2_135M_INSTRUCT.sources[1..], ..NOWHERE };
    let error = Cache::at(file.path().to_owned()).resolve(&model).unwrap_err();
    assert!(matches!(error, CacheError::Io { .. }), "{error}");
}
