//! Small files and folders for the tests, and the golden data.

use std::path::{Path, PathBuf};

use amk_models::config::ModelConfig;
use serde_json::{Value, json};

/// The folder of golden data.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name)
}

/// A GGUF file that `tests/golden/make_published.py` joins from Python packages, and what
/// transformers makes of it; `None` where the file is not there.
pub(crate) fn published(file: &str) -> Option<(PathBuf, Value)> {
    let cache = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/amk-golden"));
    let path = std::env::var_os("AMK_PUBLISHED").map(PathBuf::from).or_else(cache)?.join(file);
    if !path.exists() {
        eprintln!("skipped: {file} is not there");
        return None;
    }
    let models = golden_json("published.json")["models"].clone();
    let model = models.as_array().unwrap().iter().find(|model| model["file"] == file).unwrap().clone();
    Some((path, model))
}

pub(crate) fn golden_json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(golden(name)).unwrap()).unwrap()
}

/// A copy of the golden tiny llama, which a test may change.
pub(crate) fn tiny_llama() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden("tiny/llama")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

/// Names and shapes of a Llama's tensors, as transformers has them.
pub(crate) fn layout(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let (hidden, ffn, vocab) = (config.hidden_size, config.ffn_size, config.vocab_size);
    let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![vocab, hidden])];
    for layer in 0..config.layers {
        let mut add = |name: &str, shape: &[usize]| {
            tensors.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
        };
        add("input_layernorm.weight", &[hidden]);
        for (name, rows) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
            add(&format!("self_attn.{name}.weight"), &[rows, hidden]);
        }
        add("self_attn.o_proj.weight", &[hidden, q]);
        add("post_attention_layernorm.weight", &[hidden]);
        add("mlp.gate_proj.weight", &[ffn, hidden]);
        add("mlp.up_proj.weight", &[ffn, hidden]);
        add("mlp.down_proj.weight", &[hidden, ffn]);
    }
    tensors.push(("model.norm.weight".to_owned(), vec![hidden]));
    if !config.tied_embeddings {
        tensors.push(("lm_head.weight".to_owned(), vec![vocab, hidden]));
    }
    tensors
}

/// A config of a tiny llama.
pub(crate) fn tiny_config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 6, "hidden_size": 8,
        "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
    })
}

/// A tensor of a test file: dtype, shape, bytes.
pub(crate) type TestTensor = (&'static str, Vec<usize>, Vec<u8>);

/// The text of a safetensors file, written as the format says and without its library.
pub(crate) fn safetensors_file(tensors: &[(&str, TestTensor)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, (dtype, shape, bytes)) in tensors {
        let begin = data.len();
        data.extend_from_slice(bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]});
        header.insert((*name).to_owned(), entry);
    }
    with_header(&Value::from(header).to_string(), &data)
}

/// A safetensors file with this header, right or wrong.
pub(crate) fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

/// A GGUF file in the making.
#[derive(Clone, Default)]
pub(crate) struct GgufBuilder {
    entries: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, Vec<u64>, u32, u64)>,
    data: Vec<u8>,
}

impl GgufBuilder {
    /// The sizes of a tiny llama.
    pub(crate) fn tiny_sizes() -> Self {
        Self::tiny_sizes_of("llama", 1, 16)
    }

    /// The sizes of a tiny model with so many layers and positions.
    pub(crate) fn tiny_sizes_of(architecture: &str, layers: u32, context: u32) -> Self {
        let key = |name: &str| format!("{architecture}.{name}");
        let mut file = Self::default();
        file.text("general.architecture", architecture)
            .u32(&key("block_count"), layers)
            .u32(&key("context_length"), context)
            .u32(&key("embedding_length"), 8)
            .u32(&key("feed_forward_length"), 12)
            .u32(&key("attention.head_count"), 2)
            .u32(&key("attention.head_count_kv"), 1)
            .f32(&key("attention.layer_norm_rms_epsilon"), 1e-5);
        file
    }

    /// A tiny llama with a byte-level tokenizer of six tokens.
    pub(crate) fn tiny_llama() -> Self {
        let mut file = Self::tiny_sizes();
        file.text("tokenizer.ggml.model", "gpt2")
            .text("tokenizer.ggml.pre", "smollm")
            .texts("tokenizer.ggml.tokens", &["<s>", "</s>", "a", "b", "ab", "Ġ"])
            .texts("tokenizer.ggml.merges", &["a b"])
            .i32s("tokenizer.ggml.token_type", &[3, 3, 1, 1, 1, 1])
            .u32("tokenizer.ggml.bos_token_id", 0)
            .u32("tokenizer.ggml.eos_token_id", 1)
            .text("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
        let names = [
            ("token_embd", vec![8, 6]),
            ("output_norm", vec![8]),
            ("blk.0.attn_norm", vec![8]),
            ("blk.0.attn_q", vec![8, 8]),
            ("blk.0.attn_k", vec![8, 4]),
            ("blk.0.attn_v", vec![8, 4]),
            ("blk.0.attn_output", vec![8, 8]),
            ("blk.0.ffn_norm", vec![8]),
            ("blk.0.ffn_gate", vec![8, 12]),
            ("blk.0.ffn_up", vec![8, 12]),
            ("blk.0.ffn_down", vec![12, 8]),
        ];
        for (name, dims) in names {
            let count = dims.iter().product::<u64>();
            let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
            file.f32_tensor(&format!("{name}.weight"), &dims, &values);
        }
        file
    }

    fn entry(&mut self, key: &str, code: u32, value: &[u8]) -> &mut Self {
        self.entries.push((key.to_owned(), [&code.to_le_bytes(), value].concat()));
        self
    }

    /// Takes the entry of this key out.
    pub(crate) fn without(&mut self, key: &str) -> &mut Self {
        self.entries.retain(|(found, _)| found != key);
        self
    }

    pub(crate) fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        let mut bytes = Vec::new();
        string(&mut bytes, value);
        self.entry(key, 8, &bytes)
    }

    pub(crate) fn bool(&mut self, key: &str, value: u8) -> &mut Self {
        self.entry(key, 7, &[value])
    }

    pub(crate) fn texts(&mut self, key: &str, values: &[&str]) -> &mut Self {
        let mut bytes = array_head(8, values.len());
        for value in values {
            string(&mut bytes, value);
        }
        self.entry(key, 9, &bytes)
    }

    pub(crate) fn i32s(&mut self, key: &str, values: &[i32]) -> &mut Self {
        let mut bytes = array_head(5, values.len());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.entry(key, 9, &bytes)
    }

    pub(crate) fn bools(&mut self, key: &str, values: &[u8]) -> &mut Self {
        let bytes = [array_head(7, values.len()).as_slice(), values].concat();
        self.entry(key, 9, &bytes)
    }

    pub(crate) fn f32s(&mut self, key: &str, values: &[f32]) -> &mut Self {
        let mut bytes = array_head(6, values.len());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.entry(key, 9, &bytes)
    }

    /// A tensor of type `code` with dimensions innermost first; it starts 32-byte aligned.
    pub(crate) fn tensor(&mut self, name: &str, dims: &[u64], code: u32, bytes: &[u8]) -> &mut Self {
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self.tensors.push((name.to_owned(), dims.to_vec(), code, self.data.len() as u64));
        self.data.extend_from_slice(bytes);
        self
    }

    pub(crate) fn f32_tensor(&mut self, name: &str, dims: &[u64], values: &[f32]) -> &mut Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, dims, 0, &bytes)
    }

    /// Puts the last tensor at another offset of the data.
    pub(crate) fn move_last_tensor(&mut self, offset: u64) -> &mut Self {
        self.tensors.last_mut().unwrap().3 = offset;
        self
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend_from_slice(&3_u32.to_le_bytes());
        file.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        file.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            string(&mut file, key);
            file.extend_from_slice(value);
        }
        for (name, dims, code, offset) in &self.tensors {
            string(&mut file, name);
            file.extend_from_slice(&(dims.len() as u32).to_le_bytes());
            file.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
            file.extend_from_slice(&code.to_le_bytes());
            file.extend_from_slice(&offset.to_le_bytes());
        }
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend_from_slice(&self.data);
        file
    }
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn array_head(code: u32, len: usize) -> Vec<u8> {
    let mut bytes = code.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(len as u64).to_le_bytes());
    bytes
}

/// Writes `bytes` to a file of this name in a new temporary folder.
pub(crate) fn written(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}
