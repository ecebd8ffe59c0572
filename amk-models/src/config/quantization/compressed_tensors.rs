//! The `quantization_config` of compressed-tensors.

use fancy_regex::Regex;
use serde_json::Value;

use super::super::MAX_DIMENSION;
use super::super::fields::Fields;
use super::{Strategy, close, must_be};

/// Fields of a scheme or its parts about how scales were found.
const HARMLESS: [&str; 5] = ["actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"];

/// The config of compressed-tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressedTensors {
    /// The schemes, each for some modules.
    pub groups: Vec<Scheme>,
    /// Modules that are not quantised, regardless of the groups.
    pub ignore: Vec<Target>,
}

/// The quantisation of some modules.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheme {
    /// The modules.
    pub targets: Vec<Target>,
    /// How their weights are quantised, if they are.
    pub weights: Option<WeightScheme>,
    /// Whether their inputs or outputs are quantised.
    pub activations: bool,
}

/// How the weights of a module are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightScheme {
    /// 4 or 8.
    pub bits: u32,
    /// Whether codes are floats instead of integers: e4m3, or with 4 bits e2m1 (MXFP4).
    pub float: bool,
    /// Whether codes have no zero points.
    pub symmetric: bool,
    /// The elements that share a scale.
    pub strategy: Strategy,
}

/// Modules by name.
#[derive(Clone, Debug)]
pub enum Target {
    /// One module.
    Name(String),
    /// Modules whose names start with a match of a pattern (`re:`).
    Pattern(Regex),
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(a), Self::Name(b)) => a == b,
            (Self::Pattern(a), Self::Pattern(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl Target {
    /// The modules whose names start with a match of a pattern, if it can be read.
    pub(super) fn pattern(pattern: &str) -> Option<Self> {
        Regex::new(&anchored(pattern)).ok().map(Self::Pattern)
    }

    /// Whether a module is one of these. All modules whose weights are quantised are `Linear`.
    pub(super) fn has(&self, module: &str) -> bool {
        match self {
            Self::Name(name) => name == module || name == "Linear",
            // An error is a search that takes too long.
            Self::Pattern(pattern) => pattern.is_match(module).unwrap_or(false),
        }
    }

    /// The precision with which it identifies its modules, and its text. The most precise target
    /// counts; of several patterns it is the first in order of their texts.
    fn rank(&self) -> (usize, &str) {
        match self {
            Self::Name(name) if name == "Linear" => (2, name),
            Self::Name(name) => (0, name),
            Self::Pattern(pattern) => (1, unanchored(pattern.as_str())),
        }
    }
}

impl CompressedTensors {
    /// Returns the scheme of a module, if it has one.
    pub fn scheme(&self, module: &str) -> Option<&Scheme> {
        if self.ignore.iter().any(|target| target.has(module)) {
            return None;
        }
        // Of equal targets the last one counts.
        let found = self.groups.iter().rev().filter_map(|group| {
            let ranks = group.targets.iter().filter(|target| target.has(module)).map(Target::rank);
            Some((ranks.min()?, group))
        });
        found.min_by_key(|(rank, _)| *rank).map(|(_, group)| group)
    }
}

pub(super) fn read(fields: &mut Fields) -> CompressedTensors {
    const FORMATS: [&str; 7] = [
        "pack-quantized",
        "int-quantized",
        "float-quantized",
        "naive-quantized",
        "mxfp4-pack-quantized",
        "mixed-precision",
        "dense",
    ];
    must_be(fields, "format", &FORMATS);
    for (field, reason) in [
        ("kv_cache_scheme", "quantised caches of keys and values are not modelled"),
        ("transform_config", "rotated weights are not modelled"),
        ("moe_sparsity_config", "mixtures of experts are not modelled"),
    ] {
        let found = fields.take(field).filter(|value| value.as_object().is_none_or(|map| !map.is_empty()));
        if let Some(value) = found {
            fields.refuse(field, &value, reason);
        }
    }
    let is_dense =
        |value: &Value| value["format"] == "dense" || value.as_object().is_some_and(serde_json::Map::is_empty);
    if let Some(value) = fields.take("sparsity_config").filter(|value| !is_dense(value)) {
        fields.refuse("sparsity_config", &value, "sparse weights are not read");
    }
    let ignore = targets(fields, "ignore");
    let groups = match fields.take("config_groups") {
        Some(Value::Object(groups)) => groups,
        other => {
            fields.refuse("config_groups", &other.unwrap_or_default(), "expected an object");
            serde_json::Map::new()
        }
    };
    let groups = groups.into_iter().filter_map(|(name, group)| {
        let field = format!("config_groups.{name}");
        match group {
            Value::Object(group) => {
                let mut inner = fields.inner(&field, group);
                let scheme = scheme(&mut inner, &FORMATS);
                close(fields, inner, &HARMLESS);
                Some(scheme)
            }
            other => {
                fields.refuse(&field, &other, "expected an object");
                None
            }
        }
    });
    CompressedTensors { groups: groups.collect(), ignore }
}

fn scheme(fields: &mut Fields, formats: &[&str]) -> Scheme {
    must_be(fields, "format", formats);
    let targets = targets(fields, "targets");
    let weights = match fields.take("weights") {
        Some(Value::Object(object)) => {
            let mut inner = fields.inner("weights", object);
            let weights = weight_scheme(&mut inner);
            close(fields, inner, &HARMLESS);
            Some(weights)
        }
        Some(other) => {
            fields.refuse("weights", &other, "expected an object");
            None
        }
        None => None,
    };
    // Whatever is in them: nothing is done with activations.
    let activations = ["input_activations", "output_activations"].map(|field| fields.take(field).is_some());
    Scheme { targets, weights, activations: activations.contains(&true) }
}

fn weight_scheme(fields: &mut Fields) -> WeightScheme {
    let float = must_be(fields, "type", &["int", "float"]).as_deref() == Some("float");
    let bits = fields.size("num_bits", 64).unwrap_or(8);
    if ![4, 8].contains(&bits) {
        fields.refuse("num_bits", &bits.into(), "only integers and floats of 4 and 8 bits are read");
    }
    if let Some(value) = fields.take("dynamic").filter(|value| value != &Value::Bool(false)) {
        fields.refuse("dynamic", &value, "weights that are quantised while they are used are not modelled");
    }
    let whole_rows = fields.peek("group_size").is_some_and(|size| size.as_i64() == Some(-1));
    let group = super::group_size(fields);
    let block = block_structure(fields);
    let named = must_be(fields, "strategy", &["tensor", "channel", "group", "block"]);
    let strategy = match (named.as_deref(), group, block) {
        (Some("tensor"), ..) => Strategy::Tensor,
        (Some("group") | None, Some(group), _) => Strategy::Group(group),
        (Some("block"), _, Some(block)) | (None, None, Some(block)) => Strategy::Block(block),
        (Some("channel"), ..) => Strategy::Channel,
        // As the library infers it.
        (None, None, None) if whole_rows => Strategy::Channel,
        (None, None, None) => Strategy::Tensor,
        (Some(other), ..) => {
            let lacking = if other == "group" { "`group_size`" } else { "`block_structure`" };
            if fields.is_accepted() {
                fields.refuse("strategy", &other.into(), format!("{lacking} is missing beside it"));
            }
            Strategy::Tensor
        }
    };
    let symmetric = fields.truth("symmetric").unwrap_or(true);
    if float && bits == 4 && !(strategy == Strategy::Group(32) && symmetric) {
        fields.refuse("type", &"float".into(), "floats of 4 bits are read in symmetric groups of 32 alone (MXFP4)");
    }
    WeightScheme { bits: if bits == 4 { 4 } else { 8 }, float, symmetric, strategy }
}

/// Rows and columns of a block: `[128, 128]`, or `"128x128"` as older versions wrote.
fn block_structure(fields: &mut Fields) -> Option<[usize; 2]> {
    const FIELD: &str = "block_structure";
    let text = fields.peek(FIELD).and_then(Value::as_str);
    let sizes = text.and_then(|text| text.split('x').map(|size| size.parse().ok()).collect::<Option<Vec<u64>>>());
    if let Some(sizes) = sizes {
        fields.put(FIELD, sizes.into());
    }
    fields.pair(FIELD, MAX_DIMENSION)
}

/// The pattern that matches at the start, as Python's `re.match`.
fn anchored(pattern: &str) -> String {
    format!("^(?:{pattern})")
}

/// The pattern within an [anchored] one.
fn unanchored(pattern: &str) -> &str {
    pattern.strip_prefix("^(?:").and_then(|pattern| pattern.strip_suffix(')')).unwrap_or(pattern)
}

fn targets(fields: &mut Fields, field: &str) -> Vec<Target> {
    let Some(list) = fields.take(field) else { return Vec::new() };
    let texts: Option<Vec<&str>> = list.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let Some(texts) = texts else {
        fields.refuse(field, &list, "expected a list of strings");
        return Vec::new();
    };
    let mut target = |text: &str| match text.strip_prefix("re:") {
        None => Some(Target::Name(text.to_owned())),
        Some(pattern) => {
            let target = Target::pattern(pattern);
            if target.is_none() {
                fields.refuse(field, &text.into(), "is a pattern that is not read");
            }
            target
        }
    };
    texts.into_iter().filter_map(&mut target).collect()
}
