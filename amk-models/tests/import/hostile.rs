//! Damaged files never panic and never make a reader allocate more than the file justifies.
//!
//! Valid tiny files are mutated: bytes flipped, numbers replaced by absurd ones, parts cut out,
//! repeated or cut off. `PROPTEST_CASES` sets how many.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::{SpecialTokens, Tokenizer};
use amk_models::weights::safetensors;
use proptest::prelude::*;

use super::support::{GgufBuilder, safetensors_file, tiny_config, written};

/// Largest single allocation that a file of a few kilobytes justifies: tables of the tokenizer and
/// the regular expressions it compiles are the largest.
const LARGEST_ALLOCATION: usize = 4 << 20;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which remembers the largest allocation of each thread.
struct Watching;

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fn note(size: usize) {
    // The thread may be ending; then nobody asks any more.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller's obligations are the same.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Runs `read` and checks what it allocated.
fn within_limits<T>(read: impl FnOnce() -> T) -> T {
    LARGEST.set(0);
    let result = read();
    let largest = LARGEST.get();
    assert!(largest <= LARGEST_ALLOCATION, "allocated {largest} bytes at once");
    result
}

#[derive(Clone, Debug)]
enum Mutation {
    Flip(u8),
    Number(u64),
    Remove(usize),
    Repeat(usize),
    Truncate,
}

fn mutations() -> impl Strategy<Value = Vec<(f64, Mutation)>> {
    let absurd =
        prop::sample::select(vec![0, 1, 31, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 40, 1 << 62, u64::MAX - 7, u64::MAX]);
    let mutation = prop_oneof![
        4 => (1..=255_u8).prop_map(Mutation::Flip),
        4 => absurd.prop_map(Mutation::Number),
        1 => (1..40_usize).prop_map(Mutation::Remove),
        1 => (1..40_usize).prop_map(Mutation::Repeat),
        1 => Just(Mutation::Truncate),
    ];
    prop::collection::vec((0.0..1.0, mutation), 1..4)
}

fn mutated(mut file: Vec<u8>, mutations: &[(f64, Mutation)]) -> Vec<u8> {
    for (place, mutation) in mutations {
        let at = (place * file.len() as f64) as usize;
        let rest = file.len() - at;
        match *mutation {
            Mutation::Flip(bits) => file.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits),
            Mutation::Number(number) => file.splice(at..at + rest.min(8), number.to_le_bytes()).for_each(drop),
            Mutation::Remove(len) => file.drain(at..at + rest.min(len)).for_each(drop),
            Mutation::Repeat(len) => {
                let part = file[at..at + rest.min(len)].to_vec();
                file.splice(at..at, part).for_each(drop);
            }
            Mutation::Truncate => file.truncate(at),
        }
    }
    file
}

/// Opens a checkpoint and, where that succeeds, decodes all it can claim.
fn open(path: &Path) {
    let Ok(mut checkpoint) = within_limits(|| Checkpoint::open(path)) else { return };
    let tensors: Vec<_> =
        checkpoint.tensors.iter().map(|tensor| (tensor.name().to_owned(), tensor.shape().to_vec())).collect();
    for (name, shape) in tensors {
        if let Ok(tensor) = checkpoint.tensors.claim(&name, &shape) {
            assert_eq!(within_limits(|| tensor.to_f32()).len(), tensor.elements());
        }
    }
    let config = &checkpoint.config;
    if config.head_dim < 1 << 16 {
        within_limits(|| config.rope.frequencies(config.context_len));
    }
}

fn tiny_safetensors() -> Vec<u8> {
    let tensor = |shape: &[usize], byte: u8| {
        let bytes = vec![byte; 4 * shape.iter().product::<usize>()];
        ("F32", shape.to_vec(), bytes)
    };
    safetensors_file(&[
        ("a.weight", tensor(&[2, 3], 1)),
        ("b.weight", tensor(&[4], 2)),
        ("c.bias", tensor(&[1, 2, 2], 3)),
    ])
}

/// A byte-level tokenizer with everything a real one has.
const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,
"added_tokens":[{"id":0,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"String":"x"},"content":"y"}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[
{"type":"Split","pattern":{"Regex":"\\p{N}|\\s+(?!\\S)|[^\\s]+"},"behavior":"Isolated","invert":false},
{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
"pair":[{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"<s>":0,"a":1,"b":2,"ab":3,"Ġ":4,"Ã":5,"©":6,"1":7},
"merges":["a b"]}}"#;

proptest! {
    #[test]
    fn damaged_gguf_never_panics(mutations in mutations()) {
        let (_folder, path) = written("m.gguf", &mutated(GgufBuilder::tiny_llama().build(), &mutations));
        open(&path);
    }

    #[test]
    fn damaged_safetensors_never_panics(mutations in mutations()) {
        let (_folder, path) = written("m.safetensors", &mutated(tiny_safetensors(), &mutations));
        if let Ok(tensors) = within_limits(|| safetensors::read(&path)) {
            for tensor in tensors {
                prop_assert_eq!(tensor.stored_len() % tensor.elements().max(1), 0);
            }
        }
    }

    #[test]
    fn damaged_config_never_panics(mutations in mutations()) {
        let (folder, _path) = written("model.safetensors", &tiny_safetensors());
        let config = mutated(tiny_config().to_string().into_bytes(), &mutations);
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        open(folder.path());
    }

    #[test]
    fn damaged_tokenizer_never_panics(mutations in mutations()) {
        let text = mutated(TOKENIZER.as_bytes().to_vec(), &mutations);
        if let Ok(tokenizer) = Tokenizer::from_json(Path::new("tokenizer.json"), &text) {
            if let Ok(ids) = tokenizer.encode("ab ab1é", SpecialTokens::Add) {
                prop_assert!(tokenizer.decode(&ids).is_ok());
            }
            prop_assert!(tokenizer.decode(&[0, 1, u32::MAX]).is_ok());
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_folder, path) = written("m.gguf", &bytes);
        prop_assert!(within_limits(|| Checkpoint::open(&path)).is_err());
        prop_assert!(within_limits(|| safetensors::read(&path)).is_err());
    }
}
