//! Reads the `config.json` of a Hugging Face folder.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::hugging_face_rope::{by_kind, rope};
use super::known_fields::{HARMLESS, MUST_BE_NEUTRAL, is_bookkeeping, is_own_class};
use super::python_literals::as_strings;
use super::quantization::quantization;
use super::{AllowedFields, ConfigError, MAX_DIMENSION, MAX_LENGTH, ModelConfig, Refusal, Rope, RopeScaling};
use crate::import::{Absent, Activation, Import, Known, Number, Size, Unlisted, Window};
use crate::models::imports;

impl ModelConfig {
    /// Reads the text of a `config.json`; `path` is named in errors.
    ///
    /// # Errors
    /// [`ConfigError`] with every field that cannot be accepted.
    pub fn from_json(path: &Path, text: &[u8]) -> Result<Self, ConfigError> {
        Self::from_json_allowing(path, text, &AllowedFields::default())
    }

    /// Like [`Self::from_json`], but accepts these unknown fields.
    ///
    /// # Errors
    /// As for [`Self::from_json`].
    pub fn from_json_allowing(path: &Path, text: &[u8], allowed: &AllowedFields) -> Result<Self, ConfigError> {
        let refused = |refusals| ConfigError { path: path.to_owned(), refusals };
        let object = match serde_json::from_slice(&as_strings(text)) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return Err(refused(vec![Refusal::new("config", "", "is not a JSON object")])),
            Err(error) => return Err(refused(vec![Refusal::new("config", "", format!("invalid JSON: {error}"))])),
        };
        let mut fields = Fields::new(object, "");
        // Nearly every field of a different model would be refused; the type alone is enough.
        let import = import(&mut fields).map_err(|refusal| refused(vec![refusal]))?;
        spell_usually(&mut fields, import);
        let config = read(&mut fields, import);
        account_for_the_rest(&mut fields, import);
        allowed.judge(path, config, fields.into_refusals())
    }
}

/// The kind of checkpoint that `model_type` names.
fn import(fields: &mut Fields) -> Result<&'static Import, Refusal> {
    let supported = || imports().map(|known| known.model_type).collect::<Vec<_>>().join(", ");
    let found = fields.take("model_type").unwrap_or_default();
    match imports().find(|known| found.as_str() == Some(known.model_type)) {
        Some(known) => Ok(known),
        None if found.is_null() => Err(Refusal::new("model_type", "", "is missing")),
        None => {
            let reason = format!("this architecture is not supported; supported are {}", supported());
            Err(Refusal::new("model_type", found.to_string(), reason))
        }
    }
}

/// Moves the fields of a kind of checkpoint to where [`read`] expects them: a text model's
/// fields inside another's, other names, sizes that are omitted.
fn spell_usually(fields: &mut Fields, import: &Import) {
    if let Some(inside) = import.inside {
        match fields.take(inside.field) {
            Some(Value::Object(text)) => {
                let found = text.get("model_type").cloned().unwrap_or_default();
                if found.as_str() != Some(inside.model_type) {
                    let reason = format!("only {:?} is modelled inside this `model_type`", inside.model_type);
                    fields.refuse(&format!("{}.model_type", inside.field), &found, reason);
                }
                refuse_outside(fields, import);
                let of_all = |field: &String| OF_ALL.contains(&field.as_str());
                text.into_iter()
                    .filter(|(field, _)| !of_all(field))
                    .for_each(|(field, value)| fields.put(&field, value));
            }
            found => fields.refuse(inside.field, &found.unwrap_or_default(), "expected an object"),
        }
    }
    for (other, usual) in import.fields {
        if import.unread.contains(usual) {
            fields.take(usual);
        }
        if let Some(value) = fields.take(other) {
            fields.put(usual, value);
        }
    }
    for &(field, absent) in import.defaults {
        match absent {
            Absent::Number(number) => fields.put_default(field, number.into()),
            // If that one is missing too, its own absence is refused.
            Absent::As(other) => fields.put_default(field, fields.peek(other).cloned().unwrap_or_default()),
        }
    }
}

/// Fields that transformers reads from the whole model's config, not from the text model's.
const OF_ALL: [&str; 3] = ["model_type", "architectures", "tie_word_embeddings"];

/// Refuses fields that a larger model's config has outside the text model's: transformers does not
/// read them there.
fn refuse_outside(fields: &mut Fields, import: &Import) {
    let also = ["bos_token_id", "eos_token_id", "quantization_config"];
    for (field, value) in fields.take_rest() {
        let name = field.as_str();
        if OF_ALL.contains(&name) || also.contains(&name) || is_without_effect(&field, &value, import) {
            fields.put(name, value);
        } else {
            fields.refuse(name, &value, "is not read beside the text model's fields");
        }
    }
}

fn read(fields: &mut Fields, import: &'static Import) -> ModelConfig {
    check_class(fields, import);
    let hidden_size = fields.required_size("hidden_size", MAX_DIMENSION);
    let heads = fields.required_size("num_attention_heads", MAX_DIMENSION);
    let head_dim = head_dim(fields, import, hidden_size, heads);
    let context_len = fields.required_size("max_position_embeddings", MAX_LENGTH);
    let layers = fields.required_size("num_hidden_layers", MAX_DIMENSION);
    let layer_flags = layer_flags(fields, import, layers);
    let window = window(fields, import, context_len);
    check_fixed(fields, import);
    check_activation(fields, import);
    let (eps, default_eps) = import.eps;
    let (rope, local_rope) = ropes(fields, import, head_dim, context_len);
    ModelConfig {
        import,
        vocab_size: fields.required_size("vocab_size", MAX_LENGTH),
        hidden_size,
        layers,
        heads,
        kv_heads: kv_heads(fields, import, heads),
        head_dim,
        ffn_size: ffn_size(fields, import),
        context_len,
        norm_eps: fields.number(eps).unwrap_or(default_eps) as f32,
        tied_embeddings: fields.truth("tie_word_embeddings").unwrap_or(import.tied),
        sizes: sizes(fields, import),
        numbers: numbers(fields, import),
        flags: flags(fields, import),
        layer_flags,
        window,
        norms_less_one: import.norms_less_one,
        rope,
        local_rope,
        bos: fields.token_ids("bos_token_id").first().copied(),
        eos: fields.token_ids("eos_token_id"),
        torch_dtype: fields.text("torch_dtype").or(fields.text("dtype")),
        quantization: quantization(fields),
    }
}

fn numbers(fields: &mut Fields, import: &Import) -> BTreeMap<&'static str, f32> {
    let mut number = |number: &Number| {
        if fields.peek(number.field).is_some_and(Value::is_null) {
            fields.refuse(number.field, &Value::Null, "is null; only models with a number here are modelled");
        }
        (number.path, number.form.of(fields.number(number.field).unwrap_or(number.default)))
    };
    import.numbers.iter().map(&mut number).collect()
}

fn sizes(fields: &mut Fields, import: &Import) -> BTreeMap<&'static str, usize> {
    let mut size = |size: &Size| (size.dim, fields.size(size.field, MAX_DIMENSION).unwrap_or(size.default));
    import.sizes.iter().map(&mut size).collect()
}

/// The width of the feed-forward network.
fn ffn_size(fields: &mut Fields, import: &Import) -> usize {
    let stated = fields.required_size("intermediate_size", MAX_DIMENSION);
    let Some(rounding) = import.rounding else { return stated };
    let (field, default) = rounding.multiple;
    let multiple = fields.size(field, MAX_DIMENSION).unwrap_or(default);
    let without_factor = fields.peek(rounding.factor).is_some_and(Value::is_null);
    let factor = fields.number(rounding.factor).unwrap_or(1.0);
    if !fields.truth(rounding.switch).unwrap_or(true) {
        return stated;
    }
    let part = stated * 2 / 3;
    let width = if without_factor {
        part
    } else {
        // As in Python, a float is truncated; a factor out of range gives a shape that no tensor
        // has.
        ((factor * part as f64) as usize).min(MAX_DIMENSION as usize).next_multiple_of(multiple)
    };
    if width == 0 {
        fields.refuse("intermediate_size", &stated.into(), format!("`{}` makes it 0", rounding.switch));
    }
    width
}

/// The flags of each layer: listed, or determined by [`Unlisted`].
fn layer_flags(fields: &mut Fields, import: &Import, layers: usize) -> BTreeMap<&'static str, Vec<bool>> {
    let Some(flag) = import.layers else { return BTreeMap::new() };
    let Some(list) = fields.take(flag.field) else {
        return BTreeMap::from([(flag.name, unlisted(fields, flag.unlisted, layers))]);
    };
    // transformers does not read it beside a list, and EXAONE 4.0 has letters there.
    fields.take(flag.unlisted.field().unwrap_or_default());
    let kind = |entry: &Value| kind_of_layer(entry, flag.kinds);
    let found: Option<Vec<bool>> = list.as_array().and_then(|list| list.iter().map(kind).collect());
    let found = found.filter(|found| found.len() == layers);
    if found.is_none() {
        fields.refuse(flag.field, &list, format!("expected a known kind for each of the {layers} layers"));
    }
    BTreeMap::from([(flag.name, found.unwrap_or_default())])
}

/// The flags of the layers of a config that does not list their kinds.
fn unlisted(fields: &mut Fields, unlisted: Unlisted, layers: usize) -> Vec<bool> {
    match unlisted {
        Unlisted::AllButOneIn { field, period } => {
            let stated = field.and_then(|field| fields.size(field, MAX_DIMENSION));
            let period = stated.unwrap_or(period);
            (1..=layers).map(|layer| !layer.is_multiple_of(period)).collect()
        }
        Unlisted::Numbered { field } => {
            let numbers = fields.take(field);
            let has = |layer: usize| match &numbers {
                Some(list) => list.as_array().is_some_and(|list| list.contains(&layer.into())),
                None => true,
            };
            (0..layers).map(has).collect()
        }
    }
}

/// Whether an entry of a list of layers names one with the flag.
fn kind_of_layer(entry: &Value, [with, without]: [&str; 2]) -> Option<bool> {
    let kind = entry.as_str().map_or_else(|| entry.to_string(), str::to_owned);
    [(with, true), (without, false)].into_iter().find(|(name, _)| kind == *name).map(|(_, flag)| flag)
}

/// The rotary embedding, and the one of sliding-window layers if it differs.
fn ropes(fields: &mut Fields, import: &Import, head_dim: usize, context_len: usize) -> (Rope, Option<Rope>) {
    let stated = import.local.and_then(|local| fields.number(local.field?));
    let of_kinds = import.local.and_then(|_| by_kind(fields));
    let rope = rope(fields, import, head_dim, context_len);
    let local = import.local.map(|local| {
        let theta = of_kinds.or(stated).unwrap_or(local.theta);
        Rope { theta, scaling: RopeScaling::Default, ..rope.clone() }
    });
    (rope, local)
}

fn flags(fields: &mut Fields, import: &Import) -> BTreeMap<&'static str, bool> {
    import.flags.iter().map(|flag| (flag.path, fields.truth(flag.field).unwrap_or(flag.default))).collect()
}

/// Refuses fields with a value that the page does not compute.
fn check_fixed(fields: &mut Fields, import: &Import) {
    for fixed in import.fixed {
        let expected = |found: &Value| match fixed.value {
            Known::Truth(value) => found == value,
            Known::Text(value) => found == value,
            Known::AllOf(values) => {
                let known = |entry: &Value| entry.as_str().is_some_and(|entry| values.contains(&entry));
                found.as_array().is_some_and(|list| list.iter().all(known))
            }
        };
        match fields.take(fixed.field) {
            None if fixed.stated => fields.refuse(fixed.field, &Value::Null, fixed.reason),
            Some(found) if !expected(&found) => fields.refuse(fixed.field, &found, fixed.reason),
            _ => {}
        }
    }
}

/// `architectures` must name the class with a causal language-model head, or its decoder alone: any
/// other class has different tensors or a different output.
fn check_class(fields: &mut Fields, import: &Import) {
    let Some(classes) = fields.take("architectures") else { return };
    let expected = Value::from(vec![import.class]);
    let model = import.class.strip_suffix("ForCausalLM").unwrap_or(import.class);
    let is_decoder = ["Model", "TextModel"].iter().any(|end| classes == Value::from(vec![format!("{model}{end}")]));
    if classes != expected && !is_decoder {
        fields.refuse("architectures", &classes, format!("only {expected} is modelled for this `model_type`"));
    }
}

/// transformers treats null as one key and value head per query head. Classes have different
/// defaults for an absent field; a kind of checkpoint whose configs omit it states its own.
fn kv_heads(fields: &mut Fields, import: &Import, heads: usize) -> usize {
    const FIELD: &str = "num_key_value_heads";
    if fields.peek(FIELD).is_none() {
        fields.refuse(FIELD, &Value::Null, "is missing");
    }
    let kv_heads = fields.size(FIELD, MAX_DIMENSION).unwrap_or(heads);
    // The parts of each head are stored together.
    if kv_heads != heads && import.fused.iter().any(|fused| fused.by_head) {
        let reason = format!("models of this architecture have as many key heads as query heads, {heads}");
        fields.refuse(FIELD, &kv_heads.into(), reason);
    }
    kv_heads
}

fn head_dim(fields: &mut Fields, import: &Import, hidden_size: usize, heads: usize) -> usize {
    // transformers takes null as the quotient, also in classes with a size for an absent field.
    let is_null = fields.peek("head_dim").is_some_and(Value::is_null);
    let absent = import.head_dim.filter(|_| !is_null);
    if let Some(head_dim) = fields.size("head_dim", MAX_DIMENSION).or(absent) {
        return head_dim;
    }
    // Where a size was refused, errors derived from its stand-in would only be noise.
    if fields.is_accepted() && !hidden_size.is_multiple_of(heads) {
        let reason = format!("is not a multiple of the {heads} attention heads, and there is no `head_dim`");
        fields.refuse("hidden_size", &hidden_size.into(), reason);
    }
    hidden_size / heads
}

/// The window, if one is in use. One at least as long as the context never cuts anything off.
fn window(fields: &mut Fields, import: &Import, context_len: usize) -> Option<usize> {
    const FIELD: &str = "sliding_window";
    let mentioned = fields.peek(FIELD).is_some();
    let size = fields.size(FIELD, MAX_LENGTH);
    let in_use = match (import.window, size) {
        (Window::Switched, _) => return None,
        (Window::Stated(Some(default)), None) if !mentioned => default,
        (Window::OfLayers | Window::OfRotatedLayers, None) if !mentioned => {
            fields.refuse(FIELD, &Value::Null, "is missing");
            return None;
        }
        (_, None) => return None,
        (_, Some(size)) => size,
    };
    if import.window == Window::OfRotatedLayers {
        return Some(in_use.min(context_len));
    }
    let modelled = import.windowed.is_some() || import.window == Window::OfLayers;
    if in_use < context_len && !modelled {
        fields.refuse(FIELD, &in_use.into(), "attention over a sliding window is not modelled");
    }
    (in_use < context_len).then_some(in_use)
}

/// Refuses an activation other than the page's.
fn check_activation(fields: &mut Fields, import: &Import) {
    const FIELD: &str = "hidden_act";
    if import.activation_field != FIELD {
        // transformers reads only the other field.
        fields.take(FIELD);
    }
    let Some(name) = fields.text(import.activation_field) else { return };
    let own = import.activation_names.iter().find(|(known, _)| name == *known).map(|(_, meant)| *meant);
    let meant = own.or(match name.as_str() {
        "silu" | "swish" => Some(Activation::Silu),
        "gelu" => Some(Activation::Gelu),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Some(Activation::GeluTanh),
        "relu2" => Some(Activation::ReluSquared),
        _ => None,
    });
    if meant != Some(import.activation) {
        let (model_type, modelled) = (import.model_type, import.activation.name());
        let reason = format!("this activation is not modelled for `{model_type}`; `{modelled}` is");
        fields.refuse(import.activation_field, &name.into(), reason);
    }
}

fn is_without_effect(field: &str, value: &Value, import: &Import) -> bool {
    HARMLESS.contains(&field)
        || import.unread.contains(&field)
        || is_bookkeeping(field, value)
        || is_own_class(field, value, import.class)
}

fn account_for_the_rest(fields: &mut Fields, import: &Import) {
    for (field, value) in fields.take_rest() {
        if is_without_effect(&field, &value, import) {
            continue;
        }
        match MUST_BE_NEUTRAL.iter().find(|(known, ..)| *known == field) {
            Some((_, neutral, _)) if neutral.holds(&value) => {}
            Some((_, _, reason)) => fields.refuse(&field, &value, *reason),
            None => fields.refuse_unknown(&field, &value, "this field is unknown"),
        }
    }
}
