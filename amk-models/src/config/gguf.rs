//! Reads the hyperparameters of a GGUF file (ggml, `docs/gguf.md`, "LLM").
//!
//! Keys under the architecture's own prefix (`llama.`) describe the mathematics, and each must be
//! known. Keys under other prefixes describe the file (`general.`), the tokenizer, or tools; of
//! them `general.type` and `split.count` are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tokenizer::CONTROL_TOKEN;
use crate::weights::FormatError;
use crate::weights::gguf::{Array, Metadata, Value};

use super::rope::{longrope_attention_factor, yarn_attention_factor};
use super::{AllowedFields, ConfigError, MAX_DIMENSION, MAX_LENGTH, ModelConfig, Refusal, Rope, RopeScaling};
use crate::import::{Flag, Gguf, Import, Local, Number, Size, Unlisted, Window};
use crate::models::imports;

/// Keys under the architecture's prefix that [`read`] uses, in addition to the family's.
const MODELLED: [&str; 20] = [
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.sliding_window",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "vocab_size",
];

/// Keys under the architecture's prefix without effect on the mathematics.
const HARMLESS: [&str; 3] = ["pooling_type", "rope.scaling.finetuned", "tensor_data_layout"];

/// Keys under the architecture's prefix that must be 0 or false, and the feature that is not
/// modelled.
const MUST_BE_OFF: [(&str, &str); 4] = [
    ("expert_count", "mixtures of experts are not modelled"),
    ("expert_shared_count", "mixtures of experts are not modelled"),
    ("expert_used_count", "mixtures of experts are not modelled"),
    ("use_parallel_residual", "attention in parallel with the feed-forward network is not modelled"),
];

/// The key of the positions of a window.
pub(crate) const WINDOW: &str = "attention.sliding_window";

/// The base of the frequencies if a file has none, as in llama.cpp, whatever the default of a
/// config is.
const THETA: f64 = 10_000.0;

/// The key of the base of the frequencies in layers with a window.
pub(super) const LOCAL_THETA: &str = "rope.freq_base_swa";

/// Keys of the tokens that end a text, a turn or a message.
const END_TOKENS: [&str; 3] =
    ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// Control tokens that end a text, a turn or a message even if no key lists them (`special_eog_ids`
/// of llama.cpp's `llama-vocab.cpp`).
const END_TEXTS: [&str; 21] = [
    "</s>",
    "<EOT>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|call|>",
    "<|calls|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|flush|>",
    "<|im_end|>",
    "<|return|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
    "[EOT]",
    "_<EOT>",
];

/// Facts about the model that follow from the file's tensors rather than its metadata.
pub(crate) struct GgufTensors {
    /// Rows of the embedding table, if there is one.
    pub(crate) vocab_size: Option<usize>,
    /// Whether there is no output projection, so that the embedding table serves as one.
    pub(crate) tied_embeddings: bool,
    /// The factors of the rotary frequencies, if there are any.
    pub(crate) rope_factors: RopeFactors,
    /// The names of all tensors, as Hugging Face has them.
    pub(crate) names: BTreeSet<String>,
}

impl GgufTensors {
    /// Whether the first layer has a tensor, given by its name below the layer.
    fn first_layer_has(&self, tensor: &str) -> bool {
        self.names.contains(&format!("model.layers.0.{tensor}"))
    }
}

/// Factors of rotary frequencies that are stored as tensors.
#[derive(Clone)]
pub(crate) enum RopeFactors {
    /// There are none.
    None,
    /// [`Gguf::FACTORS`].
    One(Vec<f32>),
    /// [`Gguf::FACTORS_SHORT`] and [`Gguf::FACTORS_LONG`].
    ShortAndLong(Vec<f32>, Vec<f32>),
}

impl RopeFactors {
    /// The tensors, by name.
    pub(super) fn tensors(self) -> Vec<(&'static str, Vec<f32>)> {
        match self {
            Self::None => Vec::new(),
            Self::One(factors) => vec![(Gguf::FACTORS, factors)],
            Self::ShortAndLong(short, long) => vec![(Gguf::FACTORS_SHORT, short), (Gguf::FACTORS_LONG, long)],
        }
    }
}

impl ModelConfig {
    /// Reads the metadata of the GGUF file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] with every key that cannot be accepted.
    pub(crate) fn from_gguf(
        path: &Path,
        metadata: &Metadata,
        tensors: GgufTensors,
        allowed: &AllowedFields,
    ) -> Result<Self, ConfigError> {
        let refused = |refusals| ConfigError { path: path.to_owned(), refusals };
        let (import, gguf) = import(metadata).map_err(|refusal| refused(vec![refusal]))?;
        let unread = gguf.unread_with.iter().filter(|(_, tensor)| tensors.first_layer_has(tensor));
        let unread = unread.map(|(key, _)| *key).collect();
        let mut keys = Keys { metadata, import, gguf, unread, refusals: Vec::new() };
        let config = read(&mut keys, import, tensors);
        for key in gguf.stated {
            match metadata.get(&keys.full(key)) {
                None => _ = keys.missing(key),
                Some(Value::Unsigned(0)) if *key == WINDOW => keys.refuse(key, "must be at least 1"),
                Some(_) => {}
            }
        }
        keys.account_for_the_rest();
        allowed.judge(path, config, keys.refusals).map_err(|mut error| {
            error.refusals.iter_mut().for_each(|refusal| name_key(refusal, import, gguf));
            error
        })
    }
}

/// Keys that have other names in folders, by these.
const KEYS: [(&str, &str); 4] = [
    ("num_key_value_heads", KV_HEADS),
    ("head_dim", "attention.key_length"),
    ("partial_rotary_factor", "rope.dimension_count"),
    ("rope_theta", "rope.freq_base"),
];

/// Names the key instead of a folder's field, by which a config is judged.
fn name_key(refusal: &mut Refusal, import: &Import, gguf: &Gguf) {
    let number = || import.numbers.iter().find(|number| number.field == refusal.field).and_then(|number| number.key);
    let eps = || (refusal.field == import.eps.0).then_some(gguf.eps);
    let known = KEYS.iter().find(|(field, _)| *field == refusal.field).map(|(_, key)| *key);
    if let Some(key) = known.or_else(eps).or_else(number) {
        refusal.field = format!("{}.{key}", gguf.architecture);
    }
}

/// The kind of checkpoint that `general.architecture` names. If there are several, it is the one
/// with the most keys that the file has to have, and has.
fn import(metadata: &Metadata) -> Result<(&'static Import, &'static Gguf), Refusal> {
    const KEY: &str = "general.architecture";
    let found = metadata.get(KEY).ok_or_else(|| Refusal::new(KEY, "", "is missing"))?;
    let known = || imports().filter_map(|import| Some((import, import.gguf.as_ref()?)));
    // To llama.cpp, a window of 0 is none.
    let is_set = |value: &Value| *value != Value::Unsigned(0);
    let has = |gguf: &Gguf, key: &str| metadata.get(&format!("{}.{key}", gguf.architecture)).is_some_and(is_set);
    let of_architecture = known().filter(|(_, gguf)| metadata.is_text(KEY, gguf.architecture));
    let stated = |gguf: &Gguf| gguf.stated.iter().all(|key| has(gguf, key)).then_some(gguf.stated.len());
    of_architecture.max_by_key(|(_, gguf)| stated(gguf)).ok_or_else(|| {
        let mut supported: Vec<&str> = known().map(|(_, gguf)| gguf.architecture).collect();
        let mut seen = BTreeSet::new();
        supported.retain(|architecture| seen.insert(*architecture));
        let supported = supported.join(", ");
        Refusal::new(KEY, found.to_string(), format!("this architecture is not supported; supported are {supported}"))
    })
}

fn read(keys: &mut Keys<'_>, import: &'static Import, tensors: GgufTensors) -> ModelConfig {
    let hidden_size = keys.required_size("embedding_length");
    let heads = keys.required_size("attention.head_count");
    let head_dim = keys.size("attention.key_length", MAX_DIMENSION).unwrap_or(hidden_size / heads);
    if let Some(value_dim) = keys.size("attention.value_length", MAX_DIMENSION)
        && value_dim != head_dim
    {
        keys.refuse("attention.value_length", "values of another size than keys are not modelled");
    }
    let context_len = keys.size("context_length", MAX_LENGTH).unwrap_or_else(|| keys.missing("context_length"));
    let layers = keys.required_size("block_count");
    let stated_window = stated_window(keys, layers);
    let window = stated_window.and_then(|window| window_in_use(keys, import, context_len, window));
    let mut numbers = numbers(keys, import);
    if keys.gguf.scores_by_width == Some(layers) {
        numbers.insert("score_scale", ((hidden_size / heads) as f32).powf(-0.5));
    }
    let rope = rope(keys, head_dim, context_len, tensors.rope_factors.clone());
    let local_theta = import.local.and_then(|_| keys.float(LOCAL_THETA));
    let local = |local: Local| Rope {
        theta: local_theta.or(local.gguf_theta).unwrap_or(rope.theta),
        scaling: RopeScaling::Default,
        ..rope.clone()
    };
    let vocab_size = keys.size("vocab_size", MAX_LENGTH).or(tensors.vocab_size);
    let eps = keys.float(keys.gguf.eps);
    ModelConfig {
        import,
        vocab_size: vocab_size.unwrap_or_else(|| keys.missing("vocab_size")),
        hidden_size,
        layers,
        heads,
        kv_heads: kv_heads(keys, import).unwrap_or(heads),
        head_dim,
        ffn_size: keys.required_size("feed_forward_length"),
        context_len,
        norm_eps: eps.unwrap_or_else(|| keys.missing(keys.gguf.eps) as f64) as f32,
        tied_embeddings: tensors.tied_embeddings,
        sizes: sizes(keys, import),
        numbers,
        flags: flags(keys, import, &tensors),
        layer_flags: layer_flags(keys, import, layers, &tensors.names, stated_window.is_some()),
        window,
        norms_less_one: false,
        local_rope: import.local.map(local),
        rope,
        bos: keys.token("tokenizer.ggml.bos_token_id"),
        eos: end_tokens(keys),
        torch_dtype: None,
        quantization: None,
    }
}

/// The window that a file has, however long it is, or that is built into llama.cpp for a model of
/// so many layers; llama.cpp takes 0 as none.
fn stated_window(keys: &mut Keys<'_>, layers: usize) -> Option<usize> {
    let full = keys.full(WINDOW);
    if keys.metadata.get(&full).is_none() {
        return keys.gguf.unlisted_window.filter(|(of, _)| *of == layers).map(|(_, window)| window);
    }
    let window = keys.read(&full, |metadata| metadata.unsigned(&full)).filter(|&window| window > 0)?;
    Some(usize::try_from(window).unwrap_or(usize::MAX))
}

/// The stated window, if it is in use. One at least as long as the context never cuts anything off.
fn window_in_use(keys: &mut Keys<'_>, import: &Import, context_len: usize, window: usize) -> Option<usize> {
    if import.window == Window::OfRotatedLayers {
        return Some(window.min(context_len));
    }
    if window >= context_len {
        return None;
    }
    if import.windowed.is_none() && import.window != Window::OfLayers {
        keys.refuse(WINDOW, "attention over a sliding window is not modelled");
    }
    Some(window)
}

fn numbers(keys: &mut Keys<'_>, import: &Import) -> BTreeMap<&'static str, f32> {
    let number = |number: &Number| {
        let value = keys.float(number.key?).unwrap_or(number.default);
        Some((number.path, number.form.of(value)))
    };
    import.numbers.iter().filter_map(number).collect()
}

fn sizes(keys: &mut Keys<'_>, import: &Import) -> BTreeMap<&'static str, usize> {
    let mut size = |size: &Size| (size.dim, keys.size(size.key, MAX_DIMENSION).unwrap_or(size.default));
    import.sizes.iter().map(&mut size).collect()
}

/// The key of the number of key heads; a list if one kind of layers has no attention, for which it
/// is 0.
pub(super) const KV_HEADS: &str = "attention.head_count_kv";

/// Key heads of each layer that has any.
fn kv_heads(keys: &mut Keys<'_>, import: &Import) -> Option<usize> {
    let skipped = if has_others(import) { Some(0) } else { None };
    keys.size_but(KV_HEADS, MAX_DIMENSION, skipped)
}

/// Whether layers without the flag have tensors other than attention's.
pub(super) fn has_others(import: &Import) -> bool {
    import.layers.is_some_and(|flag| flag.tensors.iter().any(|tensors| !tensors.is_empty()))
}

/// The flags of each layer: by a key, by its tensors, or as built into llama.cpp where files do not
/// contain them. To llama.cpp, layers of a file without a window are all alike, so that none has
/// the rotary embedding of those with one.
fn layer_flags(
    keys: &mut Keys<'_>,
    import: &Import,
    layers: usize,
    names: &BTreeSet<String>,
    has_window: bool,
) -> BTreeMap<&'static str, Vec<bool>> {
    let Some(flag) = import.layers else { return BTreeMap::new() };
    if import.window == Window::OfLayers && !has_window {
        return BTreeMap::from([(flag.name, vec![false; layers])]);
    }
    if let Some(stated) = flag.key.and_then(|key| stated_flags(keys, key, layers)) {
        return BTreeMap::from([(flag.name, stated)]);
    }
    let [own, _] = flag.tensors;
    let has = |layer: usize| {
        let name = |start: &&str| format!("model.layers.{layer}.{start}");
        own.iter()
            .map(name)
            .any(|start| names.range(start.clone()..).next().is_some_and(|name| name.starts_with(&start)))
    };
    let flags = match flag.unlisted {
        Unlisted::AllButOneIn { period, .. } => all_but_one_in(period, layers),
        Unlisted::Numbered { .. } => (0..layers).map(has).collect(),
    };
    BTreeMap::from([(flag.name, flags)])
}

/// The flags of layers of which the last of each `period` has none; with 0 all have it.
fn all_but_one_in(period: usize, layers: usize) -> Vec<bool> {
    (1..=layers).map(|layer| period == 0 || !layer.is_multiple_of(period)).collect()
}

/// The flags of the layers that a key states.
fn stated_flags(keys: &mut Keys<'_>, key: &str, layers: usize) -> Option<Vec<bool>> {
    let full = keys.full(key);
    match keys.metadata.get(&full)? {
        Value::Array(Array::Bool(flags)) if flags.len() == layers => Some(flags.clone()),
        Value::Unsigned(period) => Some(all_but_one_in((*period).try_into().unwrap_or(usize::MAX), layers)),
        _ => {
            keys.refuse(key, &format!("expected true or false for each of the {layers} layers, or a period"));
            None
        }
    }
}

/// A flag is set by its key, or without one if the first layer has its tensors.
fn flags(keys: &mut Keys<'_>, import: &Import, tensors: &GgufTensors) -> BTreeMap<&'static str, bool> {
    let has = |tensor: &&str| tensors.first_layer_has(tensor);
    let mut flag = |flag: &Flag| match flag.key {
        Some(key) => (flag.path, keys.truth(key).unwrap_or(flag.default)),
        None => (flag.path, flag.tensors.iter().any(has)),
    };
    import.flags.iter().map(&mut flag).collect()
}

/// The tokens that end a text: first those that a key names.
fn end_tokens(keys: &mut Keys<'_>) -> Vec<u32> {
    let mut ends: Vec<u32> = END_TOKENS.into_iter().filter_map(|key| keys.token(key)).collect();
    let (tokens, types, metadata) = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", keys.metadata);
    let tokens = keys.read(tokens, |_| metadata.texts(tokens)).unwrap_or_default();
    let types = keys.read(types, |_| metadata.integers(types)).unwrap_or_default();
    for ((token, kind), id) in tokens.iter().zip(types).zip(0..) {
        if kind == CONTROL_TOKEN && END_TEXTS.contains(&token.as_str()) && !ends.contains(&id) {
            ends.push(id);
        }
    }
    ends
}

fn rope(keys: &mut Keys<'_>, head_dim: usize, context_len: usize, factors: RopeFactors) -> Rope {
    let theta = keys.float("rope.freq_base").unwrap_or(THETA);
    let rotary_dims = keys.size("rope.dimension_count", MAX_DIMENSION).unwrap_or(head_dim);
    // As in llama.cpp, a factor of 0 counts as absent.
    let factor = keys.float("rope.scaling.factor").filter(|&factor| factor != 0.0).unwrap_or(1.0);
    let original = keys.size("rope.scaling.original_context_length", MAX_LENGTH).unwrap_or(context_len);
    if factor < 0.0 || !factor.is_finite() {
        keys.refuse("rope.scaling.factor", "must be a number from 0");
    }
    // A factor without a type is linear, and a linear factor of 1 is not scaling.
    let name = match keys.text("rope.scaling.type") {
        Some(name) if name != "linear" => name,
        _ if factor == 1.0 => "none".to_owned(),
        _ => "linear".to_owned(),
    };
    let scale = keys.float("rope.scaling.attn_factor");
    let scaling = match (name.as_str(), factors) {
        ("none", RopeFactors::None) => RopeScaling::Default,
        ("none", RopeFactors::One(factors)) => RopeScaling::Factors(factors),
        ("none" | "longrope", RopeFactors::ShortAndLong(short, long)) => {
            let original_context = original as f64;
            let default = || longrope_attention_factor(context_len as f64 / original_context, original_context);
            RopeScaling::LongRope { short, long, original_context, attention_factor: scale.unwrap_or_else(default) }
        }
        ("linear", RopeFactors::None) => RopeScaling::Linear { factor },
        ("yarn", RopeFactors::None) => yarn(keys, factor, original as f64),
        ("longrope", _) => {
            keys.refuse("rope.scaling.type", "the short and long factors are missing");
            RopeScaling::Default
        }
        ("linear" | "yarn", _) => {
            keys.refuse("rope.scaling.type", "this scaling is not modelled beside a tensor of factors");
            RopeScaling::Default
        }
        _ => {
            keys.refuse("rope.scaling.type", "this scaling is not modelled; none, linear, yarn and longrope are");
            RopeScaling::Default
        }
    };
    if !scaling.fits(rotary_dims) {
        keys.refuse("rope_freqs.weight", "the factors must be positive, one for each rotated pair");
    }
    let other_scale = !matches!(scaling, RopeScaling::LongRope { .. }) && scale.is_some_and(|scale| scale != 1.0);
    if other_scale {
        keys.refuse("rope.scaling.attn_factor", "this factor is modelled with short and long factors only");
    }
    Rope { theta, rotary_dims, scaling }
}

/// YaRN. `yarn_attn_factor` is what converters write for a config's `attention_factor`.
fn yarn(keys: &mut Keys<'_>, factor: f64, original_context: f64) -> RopeScaling {
    let mut positive = |key: &str, default: f64| {
        let value = keys.float(key).unwrap_or(default);
        if !(value.is_finite() && value > 0.0) {
            keys.refuse(key, "must be a number above 0");
        }
        value
    };
    let beta_fast = positive("rope.scaling.yarn_beta_fast", 32.0);
    let beta_slow = positive("rope.scaling.yarn_beta_slow", 1.0);
    let attention_factor = positive("rope.scaling.yarn_attn_factor", yarn_attention_factor(factor, 1.0));
    if positive("rope.scaling.yarn_ext_factor", 1.0) != 1.0 {
        keys.refuse("rope.scaling.yarn_ext_factor", "only 1 is modelled");
    }
    RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, attention_factor, truncate: true }
}

/// The metadata under the architecture's prefix, and the refusals so far.
struct Keys<'a> {
    metadata: &'a Metadata,
    import: &'static Import,
    gguf: &'static Gguf,
    /// Keys without effect beside the file's tensors.
    unread: Vec<&'static str>,
    refusals: Vec<Refusal>,
}

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.gguf.architecture)
    }

    fn refuse(&mut self, key: &str, reason: &str) {
        let key = self.full(key);
        let value = self.metadata.get(&key).map_or_else(String::new, Value::to_string);
        self.refusals.push(Refusal::new(key, value, reason));
    }

    /// Records that `key` is missing and returns a stand-in.
    fn missing(&mut self, key: &str) -> usize {
        self.refuse(key, "is missing");
        1
    }

    /// The value that `read` finds at the full key; a wrong type is recorded.
    fn read<T>(&mut self, key: &str, read: impl FnOnce(&Metadata) -> Result<Option<T>, FormatError>) -> Option<T> {
        read(self.metadata).unwrap_or_else(|error| {
            self.refusals.push(Refusal::new(key, "", error.cause.to_string()));
            None
        })
    }

    /// A size from 1 to `limit`. A list with one value per layer is accepted if all values are
    /// equal.
    fn size(&mut self, key: &str, limit: u64) -> Option<usize> {
        self.size_but(key, limit, None)
    }

    /// Like [`Self::size`], ignoring layers with the value `skipped`.
    fn size_but(&mut self, key: &str, limit: u64, skipped: Option<i64>) -> Option<usize> {
        let full = self.full(key);
        let mut reason = "sizes that differ by layer are not modelled";
        let value = match self.metadata.get(&full) {
            Some(Value::Array(_)) => {
                let mut per_layer = self.read(&full, |metadata| metadata.integers(&full))?;
                per_layer.retain(|&value| Some(value) != skipped);
                if per_layer.is_empty() {
                    reason = "some layer must have some";
                }
                let first = per_layer.first().copied().and_then(|first| u64::try_from(first).ok());
                first.filter(|_| per_layer.iter().all(|value| Some(value) == per_layer.first()))
            }
            _ => Some(self.read(&full, |metadata| metadata.unsigned(&full))?),
        };
        match value {
            Some(size) if (1..=limit).contains(&size) => Some(size as usize),
            Some(_) => {
                self.refuse(key, &format!("must be from 1 to {limit}"));
                Some(1)
            }
            None => {
                self.refuse(key, reason);
                Some(1)
            }
        }
    }

    fn required_size(&mut self, key: &str) -> usize {
        match self.metadata.get(&self.full(key)) {
            Some(_) => self.size(key, MAX_DIMENSION).unwrap_or(1),
            None => self.missing(key),
        }
    }

    fn float(&mut self, key: &str) -> Option<f64> {
        let full = self.full(key);
        self.read(&full, |metadata| metadata.float(&full))
    }

    fn truth(&mut self, key: &str) -> Option<bool> {
        match self.metadata.get(&self.full(key))? {
            Value::Bool(truth) => Some(*truth),
            _ => {
                self.refuse(key, "expected true or false");
                None
            }
        }
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let full = self.full(key);
        self.read(&full, |metadata| metadata.text(&full).map(|text| text.map(str::to_owned)))
    }

    fn token(&mut self, key: &str) -> Option<u32> {
        let id = self.read(key, |metadata| metadata.unsigned(key))?;
        u32::try_from(id).ok()
    }

    /// Whether a key exists only in this family.
    fn is_of_the_family(&self, own: &str) -> bool {
        let local = own == LOCAL_THETA && self.import.local.is_some();
        let number = self.import.numbers.iter().any(|number| number.key == Some(own));
        let layers = self.import.layers.is_some_and(|flag| flag.key == Some(own));
        let size = self.import.sizes.iter().any(|size| size.key == own);
        let flag = self.import.flags.iter().any(|flag| flag.key == Some(own));
        flag || local || own == self.gguf.eps || number || layers || size || self.gguf.unread.contains(&own)
    }

    fn account_for_the_rest(&mut self) {
        for (key, value) in self.metadata.iter() {
            let own = key.strip_prefix(self.gguf.architecture).and_then(|rest| rest.strip_prefix('.'));
            let refuse = |reason| Some(Refusal::new(key, value.to_string(), reason));
            let refusal = match (own, key) {
                (Some(own), _) if self.is_of_the_family(own) => None,
                (Some(own), _) => self.unacceptable(key, own, value),
                (None, "general.type") if !self.metadata.is_text(key, "model") => refuse("this file holds no model"),
                (None, "split.count") if !matches!(value, Value::Unsigned(0 | 1)) => {
                    refuse("this file is one part of a model; join the parts into one file first")
                }
                (None, _) => None,
            };
            self.refusals.extend(refusal);
        }
    }

    /// Returns why `key`, which is `own` under the architecture's prefix, cannot be accepted with
    /// this value.
    fn unacceptable(&self, key: &str, own: &str, value: &Value) -> Option<Refusal> {
        let refusal = |reason| Some(Refusal::new(key, value.to_string(), reason));
        let known = |list: &[(&str, &'static str)]| list.iter().find(|(known, _)| *known == own).map(|known| known.1);
        if let Some(reason) = known(self.gguf.on) {
            return if *value == Value::Bool(true) { None } else { refusal(reason) };
        }
        if MODELLED.contains(&own) || HARMLESS.contains(&own) || self.unread.contains(&own) {
            return None;
        }
        match known(&MUST_BE_OFF) {
            Some(_) if matches!(value, Value::Unsigned(0) | Value::Bool(false)) => None,
            Some(reason) => refusal(reason),
            None => Some(Refusal::unknown(key, value.to_string(), "this key is unknown")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AllowedFields;

    #[test]
    fn a_base_that_is_left_out_is_llama_cpps_whatever_a_configs_is() {
        let text = |text: &str| Value::String(text.to_owned());
        let mut metadata = BTreeMap::from([
            ("general.architecture".to_owned(), text("ernie4_5")),
            ("ernie4_5.attention.layer_norm_rms_epsilon".to_owned(), Value::Float(1e-5)),
        ]);
        for (key, size) in [
            ("block_count", 1),
            ("context_length", 16),
            ("embedding_length", 8),
            ("feed_forward_length", 12),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
        ] {
            metadata.insert(format!("ernie4_5.{key}"), Value::Unsigned(size));
        }
        let path = Path::new("m.gguf");
        let tensors = GgufTensors {
            vocab_size: Some(6),
            tied_embeddings: true,
            rope_factors: RopeFactors::None,
            names: BTreeSet::new(),
        };
        let config = ModelConfig::from_gguf(path, &Metadata::new(path, metadata), tensors, &AllowedFields::default());
        assert_eq!(config.unwrap().rope.theta, 10_000.0);
    }
}
