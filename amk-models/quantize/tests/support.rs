//! A small random Llama, as a folder and as a GGUF file.

use super::testing::random;
use amk::encoding::F32;
use amk::ir::DType;
use amk::ir::schedule::{RowSchedule, Schedule};
use amk::{Encoding, Token};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat};
use amk_models::weights::gguf::{NewTensor, Value, write};
use amk_models::weights::{FileForm, StoredTensor};
use amk_quantize::{Method, Quantized, Recipe, Task, is_projection, quantize};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) const CONTEXT: usize = 64;

/// The tensors of a Llama with rows of 64 and 128.
pub(crate) fn tensors() -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![96, 64]),
        ("model.norm.weight".to_owned(), vec![64]),
        ("lm_head.weight".to_owned(), vec![96, 64]),
    ];
    for layer in 0..2 {
        let mut of_layer = |name: &str, shape: &[usize]| {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape.to_vec()));
        };
        of_layer("input_layernorm", &[64]);
        of_layer("post_attention_layernorm", &[64]);
        of_layer("self_attn.q_proj", &[64, 64]);
        of_layer("self_attn.k_proj", &[32, 64]);
        of_layer("self_attn.v_proj", &[32, 64]);
        of_layer("self_attn.o_proj", &[64, 64]);
        of_layer("mlp.gate_proj", &[128, 64]);
        of_layer("mlp.up_proj", &[128, 64]);
        of_layer("mlp.down_proj", &[64, 128]);
    }
    shapes.sort();
    let filled = shapes.into_iter().zip(1..).map(|((name, shape), seed)| {
        let mut elements = random(seed, shape.iter().product());
        if shape.len() == 1 {
            elements.iter_mut().for_each(|x| *x = 1.0 + 0.5 * *x);
        }
        (name, shape, elements)
    });
    filled.collect()
}

/// The model as a folder.
pub(crate) fn folder() -> TempDir {
    folder_with(&tensors())
}

/// A model of its kind, with other elements.
pub(crate) fn folder_with(tensors: &[(String, Vec<usize>, Vec<f32>)]) -> TempDir {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "torch_dtype": "float32", "eos_token_id": 2,
    });
    folder_of(&config, tensors)
}

/// Random tensors of these names and shapes.
pub(crate) fn random_tensors(shapes: &[(String, &[usize])]) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let filled = shapes.iter().zip(1..);
    filled.map(|((name, shape), seed)| (name.clone(), shape.to_vec(), random(seed, shape.iter().product()))).collect()
}

/// A folder with a config and tensors.
pub(crate) fn folder_of(config: &serde_json::Value, tensors: &[(String, Vec<usize>, Vec<f32>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, _, elements)| elements.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, &folder.path().join("model.safetensors")).unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.path().join("generation_config.json"), "{}").unwrap();
    std::fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
    std::fs::write(folder.path().join("additional_chat_templates/tool_use.jinja"), "{{ tools }}").unwrap();
    folder
}

/// The model as a GGUF file in a folder.
pub(crate) fn gguf() -> (TempDir, PathBuf) {
    let folder = folder();
    let source = open(folder.path());
    let placed = FileForm::Gguf.tensors(&source.config, &source.tensors).unwrap();
    let tensors: Vec<NewTensor<'_>> = placed
        .into_iter()
        .map(|tensor| {
            let (part, order) = &tensor.parts[0];
            let stored = source.tensors.iter().find(|stored| stored.name() == part).unwrap();
            let rows = stored.to_stored();
            let bytes = order.to_file(&rows, rows.len() / stored.shape()[0]).into_owned();
            let shape = stored.shape().to_vec();
            NewTensor { name: tensor.name, shape, encoding: &F32, bytes: Box::new(move || Cow::Owned(bytes.clone())) }
        })
        .collect();
    let number = Value::Unsigned;
    let metadata = [
        ("general.architecture", Value::String("llama".to_owned())),
        ("general.file_type", number(0)),
        ("llama.block_count", number(2)),
        ("llama.context_length", number(CONTEXT as u64)),
        ("llama.embedding_length", number(64)),
        ("llama.feed_forward_length", number(128)),
        ("llama.attention.head_count", number(4)),
        ("llama.attention.head_count_kv", number(2)),
        ("llama.attention.layer_norm_rms_epsilon", Value::Float(f64::from(1e-5f32))),
        ("llama.rope.freq_base", Value::Float(10000.0)),
        ("tokenizer.ggml.eos_token_id", number(2)),
    ];
    let path = folder.path().join("model.gguf");
    let mut file = std::fs::File::create(&path).unwrap();
    write(&mut file, metadata.iter().map(|(key, value)| (*key, value)), &tensors, &mut |_| {}).unwrap();
    (folder, path)
}

pub(crate) fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// The model in memory.
pub(crate) fn load(path: &Path) -> Model {
    let Checkpoint { config, tensors, .. } = open(path);
    Model::load(&config, tensors, CONTEXT, WeightFormat::Native, &mut |_| {}).unwrap()
}

/// The projections of a checkpoint and what a recipe makes of them.
pub(crate) fn tasks(source: &Checkpoint, recipe: &Recipe) -> Vec<Task> {
    let projections = source.tensors.iter().filter(|tensor| is_projection(tensor));
    let task = |tensor: &StoredTensor| Task { encoding: recipe.encoding(tensor).unwrap(), tensor: tensor.clone() };
    projections.map(task).collect()
}

/// A checkpoint quantised without a text, with scales in f16.
pub(crate) fn quantized(source: &Checkpoint, names: &[&str], method: Method) -> Quantized {
    quantized_with(source, names, method, DType::F16)
}

/// A checkpoint quantised without a text.
pub(crate) fn quantized_with(source: &Checkpoint, names: &[&str], method: Method, scale: DType) -> Quantized {
    let recipe = Recipe::new(names, method).unwrap().with_scales(scale);
    quantize(tasks(source, &recipe), method, &mut |_, _| {}).unwrap()
}

/// A schedule with rows.
pub(crate) fn schedule(workers: u32, rows: u32) -> Schedule {
    Schedule { workers, rows: Some(RowSchedule { most: rows, block: None }), ..Schedule::default() }
}

/// A text of random tokens.
pub(crate) fn text(tokens: usize) -> Vec<Token> {
    random(77, tokens).into_iter().map(|x| Token(((x + 1.0) * 47.9) as u32)).collect()
}

pub(crate) fn encoding(name: &str) -> &'static Encoding {
    Encoding::find(name).unwrap_or_else(|| panic!("{name} should be registered"))
}
