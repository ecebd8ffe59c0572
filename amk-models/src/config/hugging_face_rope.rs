//! The rotary fields of a `config.json`, in the old spelling (`rope_theta`, `rope_scaling`, `type`)
//! and the new one (`rope_parameters`, `rope_type`).

use serde_json::Value;

use super::fields::Fields;
use super::rope::{longrope_attention_factor, yarn_attention_factor};
use super::{MAX_LENGTH, Rope, RopeScaling};
use crate::import::{Import, Rotation};

/// Reads all rotary settings. `head_dim` and `context_len` are the defaults of settings derived
/// from them.
pub(super) fn rope(config: &mut Fields, import: &Import, head_dim: usize, context_len: usize) -> Rope {
    let rotation = import.rotation;
    let theta = config.number("rope_theta");
    let part = outer_partial(config, rotation);
    // For a class whose layers have two kinds of bases, transformers reads only the inner field.
    let original = config.size("original_max_position_embeddings", MAX_LENGTH).filter(|_| import.local.is_none());
    let Some(mut inner) = scaling_object(config) else {
        return rope_of(theta.unwrap_or(import.theta), rotated(part, rotation, head_dim), RopeScaling::Default);
    };
    let theta = agreeing(&mut inner, "rope_theta", theta);
    // transformers lets the inner field win.
    let part = partial(&mut inner, rotation).or(part);
    // transformers lets the outer field win.
    let inner_original = inner.size("original_max_position_embeddings", MAX_LENGTH);
    let original_context = original.or(inner_original).unwrap_or(context_len) as f64;
    if import.local.is_some() {
        refuse_unread(&mut inner);
    }
    let scaling = scaling(&mut inner, original_context, context_len as f64);
    for (key, value) in inner.take_rest() {
        inner.refuse_unknown(&key, &value, "this parameter is not one of the scaling's");
    }
    let rotary_dims = rotated(part, rotation, head_dim);
    // An odd part is refused on its own.
    if rotary_dims.is_multiple_of(2) && !scaling.fits(rotary_dims) {
        inner.refuse(
            "long_factor",
            &Value::Null,
            "each list must have a positive factor for each rotated pair, and the attention factor be one",
        );
    }
    config.refuse_all(inner.into_refusals());
    rope_of(theta.unwrap_or(import.theta), rotary_dims, scaling)
}

fn rope_of(theta: f64, rotary_dims: usize, scaling: RopeScaling) -> Rope {
    Rope { theta, rotary_dims, scaling }
}

/// The rotated elements of a head.
fn rotated(part: Option<f64>, rotation: Rotation, head_dim: usize) -> usize {
    let part = part.or(rotation.part).unwrap_or(1.0);
    (head_dim as f64 * part) as usize
}

/// The outer factor, for which null differs from absence: transformers then rotates whole heads.
fn outer_partial(config: &mut Fields, rotation: Rotation) -> Option<f64> {
    let is_null = config.peek("partial_rotary_factor").is_some_and(Value::is_null);
    partial(config, rotation).or(is_null.then_some(1.0))
}

/// The rotated part of a head. If an architecture has none, transformers ignores the factor, or
/// fails on it when there is a scaling.
fn partial(fields: &mut Fields, rotation: Rotation) -> Option<f64> {
    const FIELD: &str = "partial_rotary_factor";
    let factor = fields.number(FIELD)?;
    let (modelled, reason) = match rotation.part {
        Some(_) => (0.0 < factor && factor <= 1.0, "must be above 0 and at most 1"),
        None => (factor == 1.0, "models of this architecture rotate whole heads"),
    };
    if !modelled {
        fields.refuse(FIELD, &factor.into(), reason);
    }
    modelled.then_some(factor)
}

/// The object that describes the scaling, under either name; `None` if there is none or it is
/// refused.
fn scaling_object(config: &mut Fields) -> Option<Fields> {
    let old = config.take("rope_scaling");
    let new = config.take("rope_parameters");
    let (name, value) = match (old, new) {
        (None, None) => return None,
        (Some(old), None) => ("rope_scaling", old),
        (None, Some(new)) => ("rope_parameters", new),
        (Some(old), Some(new)) if old == new => ("rope_parameters", new),
        (Some(old), Some(_)) => {
            config.refuse("rope_scaling", &old, "contradicts `rope_parameters`");
            return None;
        }
    };
    match value {
        Value::Object(object) if object.values().any(Value::is_object) => {
            config.refuse(name, &Value::Object(object), "rotary embeddings that differ by layer are not modelled");
            None
        }
        Value::Object(object) => Some(Fields::new(object, &format!("{name}."))),
        other => {
            config.refuse(name, &other, "expected an object");
            None
        }
    }
}

/// Splits a `rope_parameters` that has an object for each kind of layer: leaves the object of full
/// attention in its place and returns the base of the other. Either may be absent; transformers
/// ignores settings for all layers, so these are refused.
pub(super) fn by_kind(config: &mut Fields) -> Option<f64> {
    const FIELD: &str = "rope_parameters";
    const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];
    let Some(Value::Object(mut kinds)) = config.peek(FIELD).cloned() else { return None };
    kinds.retain(|_, value| !value.is_null());
    if !kinds.iter().all(|(kind, value)| KINDS.contains(&kind.as_str()) && value.is_object()) {
        let found = config.take(FIELD).unwrap_or_default();
        config.refuse(FIELD, &found, "expected an object each for `full_attention` and `sliding_attention`");
        return None;
    }
    let [full, sliding] = KINDS.map(|kind| kinds.remove(kind));
    config.put(FIELD, full.unwrap_or_default());
    let Some(Value::Object(sliding)) = sliding else { return None };
    let mut sliding = Fields::new(sliding, "rope_parameters.sliding_attention.");
    let theta = sliding.number("rope_theta");
    if let Some(kind) = sliding.text("rope_type").filter(|kind| kind != "default") {
        sliding.take_rest();
        sliding.refuse("rope_type", &kind.into(), "layers with a window have frequencies that are not scaled");
    }
    for (key, value) in sliding.take_rest() {
        sliding.refuse_unknown(&key, &value, "this parameter is not one of the scaling's");
    }
    config.refuse_all(sliding.into_refusals());
    theta
}

/// The inner value of `field`, which must not contradict the outer one.
fn agreeing(inner: &mut Fields, field: &str, outer: Option<f64>) -> Option<f64> {
    let found = inner.number(field);
    if let (Some(found), Some(outer)) = (found, outer)
        && found != outer
    {
        inner.refuse(field, &found.into(), format!("contradicts the outer `{field}`, {outer}"));
    }
    found.or(outer)
}

/// Refuses settings that transformers ignores in classes whose layers have two kinds of bases,
/// although their author must have meant something by them: a scaling with only its old name, and a
/// yarn whose bounds are not rounded.
fn refuse_unread(inner: &mut Fields) {
    if let Some(exact) = inner.peek("truncate").filter(|value| **value != Value::Bool(true)).cloned() {
        inner.refuse("truncate", &exact, "transformers rounds the bounds in models of this architecture all the same");
    }
    let old = inner.peek("type").filter(|old| old.as_str().is_some_and(|name| name != "default")).cloned();
    if let (Some(old), None) = (old, inner.peek("rope_type")) {
        inner.refuse("type", &old, "transformers reads `rope_type` alone in models of this architecture");
    }
}

fn scaling(inner: &mut Fields, original_context: f64, context: f64) -> RopeScaling {
    let (new, old) = (inner.text("rope_type"), inner.text("type"));
    if let (Some(new), Some(old)) = (&new, &old)
        && new != old
    {
        inner.refuse("type", &old.as_str().into(), format!("contradicts `rope_type`, {new:?}"));
    }
    let name = new.or(old).unwrap_or_else(|| "default".to_owned());
    match name.as_str() {
        "default" => RopeScaling::Default,
        // It differs only beyond the context of the config, which no sequence reaches.
        "dynamic" => {
            inner.required_positive("factor");
            RopeScaling::Default
        }
        "linear" => RopeScaling::Linear { factor: inner.required_positive("factor") },
        "llama3" => llama3(inner, original_context),
        "yarn" => yarn(inner, original_context, context),
        // Its first name.
        "longrope" | "su" => longrope(inner, original_context, context),
        _ => {
            // The parameters of an unknown scaling are also unknown: one refusal is enough.
            inner.take_rest();
            let reason = "this scaling is not modelled; default, dynamic, linear, llama3, yarn and longrope are";
            inner.refuse("rope_type", &name.into(), reason);
            RopeScaling::Default
        }
    }
}

fn llama3(inner: &mut Fields, original_context: f64) -> RopeScaling {
    let factor = inner.required_positive("factor");
    let low_freq_factor = inner.required_positive("low_freq_factor");
    let high_freq_factor = inner.required_positive("high_freq_factor");
    // Where one was refused, its stand-in says nothing.
    if inner.is_accepted() && high_freq_factor <= low_freq_factor {
        inner.refuse("high_freq_factor", &high_freq_factor.into(), "must be above `low_freq_factor`");
    }
    RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context }
}

fn yarn(inner: &mut Fields, original_context: f64, context: f64) -> RopeScaling {
    let factor = match inner.peek("factor") {
        None | Some(Value::Null) => {
            inner.take("factor");
            context / original_context
        }
        Some(_) => inner.required_positive("factor"),
    };
    // Python's `or`: zero means the default.
    let or_default = |value: Option<f64>, default: f64| value.filter(|&value| value != 0.0).unwrap_or(default);
    let beta_fast = or_default(inner.number("beta_fast"), 32.0);
    let beta_slow = or_default(inner.number("beta_slow"), 1.0);
    if beta_fast <= 0.0 || beta_slow <= 0.0 {
        inner.refuse("beta_fast", &beta_fast.into(), "the bounds of the passage must be above 0");
    }
    let (mscale, mscale_all_dim) = (inner.number("mscale"), inner.number("mscale_all_dim"));
    let attention_factor = inner.number("attention_factor").unwrap_or_else(|| {
        match (or_default(mscale, 0.0), or_default(mscale_all_dim, 0.0)) {
            (0.0, _) | (_, 0.0) => yarn_attention_factor(factor, 1.0),
            (mscale, all_dim) => yarn_attention_factor(factor, mscale) / yarn_attention_factor(factor, all_dim),
        }
    });
    // Python takes null for false.
    let absent = inner.peek("truncate").is_none();
    let truncate = inner.truth("truncate").unwrap_or(absent);
    // Whether the model was trained with the scaling; it has no effect on the computation.
    inner.truth("finetuned");
    RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, attention_factor, truncate }
}

fn longrope(inner: &mut Fields, original_context: f64, context: f64) -> RopeScaling {
    let (short, long) = (inner.numbers("short_factor"), inner.numbers("long_factor"));
    let factor = inner.number("factor").unwrap_or(context / original_context);
    let attention_factor =
        inner.number("attention_factor").unwrap_or_else(|| longrope_attention_factor(factor, original_context));
    RopeScaling::LongRope { short, long, original_context, attention_factor }
}
