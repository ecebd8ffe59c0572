//! Mutated files: they load, or they are refused, within bounds of memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat};

use super::support::golden;

/// Mutants of each file.
const MUTANTS: u64 = 60;
/// KiB of address space for all mutants, one after the other.
const MEMORY: u64 = 2 << 20;

/// A generator of pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Changes some bytes, mostly of the first, where headers are; cuts the file, or puts another
/// number in the place of one.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let len = bytes.len();
        let at = if random.below(4) == 0 { random.below(len) } else { random.below(len.min(4096)) };
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at.max(1)),
            3 => replace_number(bytes, at, random),
            _ => {
                let end = (at + 8).min(len);
                bytes[at..end].fill(if random.below(2) == 0 { 0xff } else { 0 });
            }
        }
    }
}

/// Replaces the first decimal number after `at`.
fn replace_number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    const NUMBERS: [&str; 8] = ["0", "-1", "1", "3", "48", "1048576", "268435456", "18446744073709551615"];
    let Some(start) = (at..bytes.len()).find(|&at| bytes[at].is_ascii_digit()) else { return };
    let len = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    bytes.splice(start..start + len, NUMBERS[random.below(NUMBERS.len())].bytes());
}

/// Opens and loads a checkpoint; whether it is one.
fn loads(path: &Path) -> bool {
    let Ok(Checkpoint { config, tensors, .. }) = Checkpoint::open(path) else { return false };
    let context = config.context_len.min(16);
    Model::load(&config, tensors, context, WeightFormat::Native, &mut |_| {}).is_ok()
}

/// Files of which mutants are made, each with its folder.
fn files() -> Vec<(PathBuf, &'static str)> {
    let quantized = ["awq", "compressed_bytes", "compressed_packed", "fp8_blocks", "gptq", "gptq_v2", "mxfp4"];
    let folders = quantized.map(|name| golden("quantized").join(name)).into_iter().chain([golden("families/glm4")]);
    let of_folders = folders.flat_map(|folder| ["config.json", "model.safetensors"].map(|file| (folder.clone(), file)));
    of_folders.chain([(golden("families/glm4"), "glm4.gguf")]).collect()
}

#[test]
#[ignore = "run by the next test, in a process of its own"]
fn mutants_load_or_are_refused() {
    let (mut loaded, mut refused) = (0, 0);
    for (number, (folder, file)) in files().into_iter().enumerate() {
        let copy = tempfile::tempdir().unwrap();
        let gguf = file.ends_with("gguf");
        for other in ["config.json", "model.safetensors"].into_iter().filter(|_| !gguf) {
            std::fs::copy(folder.join(other), copy.path().join(other)).unwrap();
        }
        let original = std::fs::read(folder.join(file)).unwrap();
        let path = if gguf { copy.path().join(file) } else { copy.path().to_owned() };
        for seed in 0..MUTANTS {
            let mut bytes = original.clone();
            mutate(&mut bytes, &mut Random(number as u64 * MUTANTS + seed));
            std::fs::write(copy.path().join(file), &bytes).unwrap();
            match catch_unwind(AssertUnwindSafe(|| loads(&path))) {
                Ok(true) => loaded += 1,
                Ok(false) => refused += 1,
                Err(_) => panic!("mutant {seed} of {}: a panic", folder.join(file).display()),
            }
        }
    }
    println!("{loaded} mutants load, {refused} are refused");
    // Changed weights load, changed headers do not.
    assert!(loaded > 100 && refused > 300, "{loaded} load, {refused} do not");
}

#[cfg(unix)]
#[test]
fn mutants_load_or_are_refused_in_bounded_memory() {
    let test = "import::mutations::mutants_load_or_are_refused";
    let script = format!("ulimit -v {MEMORY} && exec \"$0\" --exact {test} --ignored --test-threads 1");
    let output = Command::new("sh").arg("-c").arg(script).arg(std::env::current_exe().unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}
