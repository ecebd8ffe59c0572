//! How the weights of a folder are quantised: the `quantization_config` of its config.
//!
//! Anything that changes the weights is read or refused. Quantised activations only affect speed:
//! they are noted, and inputs are not quantised.

mod compressed_tensors;

use serde_json::Value;

use super::MAX_DIMENSION;
use super::fields::Fields;
pub use compressed_tensors::{CompressedTensors, Scheme, Target, WeightScheme};

/// The two names of the object.
const FIELDS: [&str; 2] = ["quantization_config", "compression_config"];

/// How the weights of a folder are quantised.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantization {
    /// compressed-tensors.
    CompressedTensors(CompressedTensors),
    /// fp8 e4m3 as in DeepSeek's folders.
    Fp8(Fp8),
    /// GPTQ and AWQ.
    Gptq(Gptq),
}

/// fp8 e4m3 as in DeepSeek's folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fp8 {
    /// Rows and columns that share a scale; `None`: a scale for the whole matrix.
    pub block: Option<[usize; 2]>,
    /// Whether the author quantises activations.
    pub activations: bool,
}

/// Integers as GPTQ and AWQ pack them.
#[derive(Clone, Debug, PartialEq)]
pub struct Gptq {
    /// Whether words are packed as AWQ's.
    pub awq: bool,
    /// 4 or 8.
    pub bits: u32,
    /// Columns of a group; `None`: a whole row.
    pub group: Option<usize>,
    /// Whether, according to the config, codes have no zero points.
    pub symmetric: bool,
    /// Whether each matrix has an order of its columns (`desc_act`).
    pub ordered: bool,
    /// Whether zero points are stored minus 1, as in the original format.
    pub zeros_less_one: bool,
    /// Rules for single modules (`dynamic`). The first for a module counts.
    pub rules: Vec<Rule>,
}

/// A rule for single modules of GPTQ and AWQ.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The modules.
    pub modules: Target,
    /// How they are packed; `None`: they are not quantised.
    pub packing: Option<Gptq>,
}

impl Gptq {
    /// How a module is packed, if it is quantised.
    pub fn of(&self, module: &str) -> Option<&Self> {
        match self.rules.iter().find(|rule| rule.modules.has(module)) {
            Some(rule) => rule.packing.as_ref(),
            None => Some(self),
        }
    }
}

/// The elements of a matrix that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All.
    Tensor,
    /// The elements of a row.
    Channel,
    /// This many consecutive elements of a row.
    Group(usize),
    /// A block of rows and columns.
    Block([usize; 2]),
}

impl Quantization {
    /// Whether the author also computes with quantised activations.
    pub fn quantises_activations(&self) -> bool {
        match self {
            Self::CompressedTensors(config) => config.groups.iter().any(|group| group.activations),
            Self::Fp8(config) => config.activations,
            Self::Gptq(_) => false,
        }
    }
}

/// Takes the description of quantised weights, if there is one.
pub(super) fn quantization(config: &mut Fields) -> Option<Quantization> {
    let (field, value) = FIELDS.into_iter().find_map(|field| Some((field, config.take(field)?)))?;
    let Value::Object(object) = value else {
        config.refuse(field, &value, "expected an object");
        return None;
    };
    let mut fields = Fields::new(object, &format!("{field}."));
    let found = read(&mut fields);
    close(config, fields, &HARMLESS);
    found
}

/// Ends the reading of an object: fields that remain are harmless or unknown.
fn close(outer: &mut Fields, mut inner: Fields, harmless: &[&str]) {
    for (key, value) in inner.take_rest() {
        if !harmless.contains(&key.as_str()) && !value.is_null() {
            inner.refuse_unknown(&key, &value, "this field is unknown");
        }
    }
    outer.refuse_all(inner.into_refusals());
}

fn read(fields: &mut Fields) -> Option<Quantization> {
    const METHOD: &str = "quant_method";
    let method = fields.text(METHOD);
    match method.as_deref() {
        Some("compressed-tensors") => Some(Quantization::CompressedTensors(compressed_tensors::read(fields))),
        Some("fp8") => Some(Quantization::Fp8(fp8(fields))),
        Some("gptq") => Some(Quantization::Gptq(gptq(fields))),
        Some("awq") => Some(Quantization::Gptq(awq(fields))),
        _ => {
            const REASON: &str = "weights quantised in this way are not decoded; compressed-tensors, fp8, gptq and \
                                  awq are";
            fields.refuse(METHOD, &method.into(), REASON);
            // Nothing is known of the other fields.
            fields.take_rest();
            None
        }
    }
}

/// Fields without effect on stored weights: how they were found, and how Python computes with them.
const HARMLESS: [&str; 37] = [
    "act_group_aware",
    "backend",
    "batch_size",
    "block_name_to_quantize",
    "cache_block_outputs",
    "damp_auto_increment",
    "damp_percent",
    "dataset",
    "dequantize",
    "do_fuse",
    "exllama_config",
    "fuse_max_seq_len",
    "global_compression_ratio",
    "ignored_layers",
    "is_marlin_format",
    "lm_head",
    "max_input_length",
    "meta",
    "method",
    "model_file_base_name",
    "model_name_or_path",
    "model_seqlen",
    "module_name_preceding_first_block",
    "modules_in_block_to_quantize",
    "modules_to_convert",
    "modules_to_fuse",
    "modules_to_not_convert",
    "mse",
    "offload_to_disk",
    "pad_token_id",
    "quantization_status",
    "static_groups",
    "tokenizer",
    "true_sequential",
    "use_cuda_fp16",
    "use_exllama",
    "version",
];

fn fp8(fields: &mut Fields) -> Fp8 {
    must_be(fields, "fmt", &["e4m3"]);
    // Scales that are powers of two are scales.
    must_be(fields, "scale_fmt", &["float", "ue8m0"]);
    // Of mixtures of experts, which are not modelled.
    must_be(fields, "expert_dtype", &["fp8"]);
    let scheme = must_be(fields, "activation_scheme", &["dynamic", "static"]);
    Fp8 { block: fields.pair("weight_block_size", MAX_DIMENSION), activations: scheme.is_some() }
}

fn gptq(fields: &mut Fields) -> Gptq {
    let bits = bits(fields, &[4, 8]);
    let (old, new) = ("checkpoint_format", "format");
    let format = must_be(fields, old, &["gptq", "gptq_v2"]);
    let format = format.or(must_be(fields, new, &["gptq", "gptq_v2"]));
    must_be(fields, "pack_dtype", &["int32"]);
    let group = group_size(fields);
    let most = Gptq {
        awq: false,
        bits,
        group,
        symmetric: fields.truth("sym").unwrap_or(true),
        ordered: fields.truth("desc_act").unwrap_or(false),
        zeros_less_one: format.as_deref() != Some("gptq_v2"),
        rules: Vec::new(),
    };
    with_rules(fields, most)
}

fn awq(fields: &mut Fields) -> Gptq {
    let bits = bits(fields, &[4]);
    // Written by AutoAWQ, transformers and GPTQModel.
    for field in ["version", "format", "checkpoint_format"] {
        must_be(fields, field, &["gemm"]);
    }
    must_be(fields, "pack_dtype", &["int32"]);
    // Set by transformers for the methods that it derives from GPTQ; the file's form is the same.
    for field in ["desc_act", "sym"] {
        fields.take(field);
    }
    let most = Gptq {
        awq: true,
        bits,
        group: group_size(fields),
        // The zeros of symmetric codes are in the file, too.
        symmetric: fields.truth("zero_point") == Some(false),
        ordered: false,
        zeros_less_one: false,
        rules: Vec::new(),
    };
    with_rules(fields, most)
}

/// Reads the rules for modules that differ from most: `-:PATTERN` for those that are not quantised,
/// `+:PATTERN` or only a pattern with the fields in which others differ.
fn with_rules(fields: &mut Fields, most: Gptq) -> Gptq {
    const FIELD: &str = "dynamic";
    let rules = match fields.take(FIELD) {
        Some(Value::Object(rules)) => rules,
        Some(other) => {
            fields.refuse(FIELD, &other, "expected an object");
            return most;
        }
        None => return most,
    };
    let rules = rules.into_iter().filter_map(|(text, value)| rule(fields, &most, &text, value)).collect();
    Gptq { rules, ..most }
}

fn rule(fields: &mut Fields, most: &Gptq, text: &str, value: Value) -> Option<Rule> {
    let field = format!("dynamic.{text}");
    let excluded = text.strip_prefix("-:");
    let Some(modules) = Target::pattern(excluded.or(text.strip_prefix("+:")).unwrap_or(text)) else {
        fields.refuse(&field, &value, "is a pattern that is not read");
        return None;
    };
    let object = match value {
        _ if excluded.is_some() => return Some(Rule { modules, packing: None }),
        Value::Object(object) => object,
        other => {
            fields.refuse(&field, &other, "expected an object");
            return None;
        }
    };
    let mut inner = fields.inner(&field, object);
    let has = |inner: &Fields, field: &str| inner.peek(field).is_some_and(|value| !value.is_null());
    let known = if most.awq { &[4][..] } else { &[4, 8] };
    let packing = Gptq {
        bits: if has(&inner, "bits") { bits(&mut inner, known) } else { most.bits },
        group: if has(&inner, "group_size") { group_size(&mut inner) } else { most.group },
        symmetric: inner.truth("sym").unwrap_or(most.symmetric),
        ordered: inner.truth("desc_act").unwrap_or(most.ordered),
        ..most.clone()
    };
    close(fields, inner, &HARMLESS);
    Some(Rule { modules, packing: Some(packing) })
}

fn bits(fields: &mut Fields, known: &[u32]) -> u32 {
    const FIELD: &str = "bits";
    let found = fields.required_size(FIELD, 64) as u32;
    if fields.is_accepted() && !known.contains(&found) {
        fields.refuse(FIELD, &found.into(), format!("only integers of {known:?} bits are read"));
    }
    known.iter().copied().find(|known| *known == found).unwrap_or(4)
}

/// Columns of a group; -1 or none is a whole row.
fn group_size(fields: &mut Fields) -> Option<usize> {
    const FIELD: &str = "group_size";
    if fields.peek(FIELD).is_some_and(|value| value.as_i64() == Some(-1)) {
        fields.take(FIELD);
    }
    fields.size(FIELD, MAX_DIMENSION)
}

/// A text that must be one of those that are known, in any case.
fn must_be(fields: &mut Fields, field: &str, known: &[&str]) -> Option<String> {
    let text = fields.text(field)?.to_lowercase();
    if !known.contains(&text.as_str()) {
        fields.refuse(field, &text.clone().into(), format!("only {} is read", known.join(" or ")));
    }
    Some(text)
}
