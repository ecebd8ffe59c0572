//! Maps GGUF names to Hugging Face's.

use super::super::{FormatError, TensorSet};
use super::GgufFile;

/// `blk.{l}.<left>` is `model.layers.{l}.<right>`.
const LAYER_NAMES: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

const MODEL_NAMES: [(&str, &str); 4] = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    // That of LFM2.
    ("token_embd_norm", "model.norm"),
    ("output", "lm_head"),
];

/// The Hugging Face name of a GGUF tensor. A name without a counterpart stays as it is; no model
/// claims it.
pub(crate) fn hugging_face_name(name: &str, own: &[(&'static str, &'static str)]) -> String {
    let Some((stem, part)) = name.rsplit_once('.') else { return name.to_owned() };
    let look_up = |names: &[(&'static str, &'static str)], stem: &str| {
        names.iter().find(|(gguf, _)| *gguf == stem).map(|(_, hugging_face)| *hugging_face)
    };
    if let Some(found) = look_up(&MODEL_NAMES, stem) {
        return format!("{found}.{part}");
    }
    let layer = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let known = |stem: &str| look_up(own, stem).or_else(|| look_up(&LAYER_NAMES, stem));
    match layer.and_then(|(layer, stem)| Some((layer, known(stem)?))) {
        Some((layer, found)) => format!("model.layers.{layer}.{found}.{part}"),
        None => name.to_owned(),
    }
}

/// The GGUF name of a tensor: the inverse of [`hugging_face_name`].
pub(crate) fn gguf_name(name: &str, own: &[(&'static str, &'static str)]) -> Option<String> {
    let (stem, part) = name.rsplit_once('.')?;
    let look_up = |names: &[(&'static str, &'static str)], stem: &str| {
        names.iter().find(|(_, hugging_face)| *hugging_face == stem).map(|(gguf, _)| *gguf)
    };
    if let Some(found) = look_up(own, stem).or_else(|| look_up(&MODEL_NAMES, stem)) {
        return Some(format!("{found}.{part}"));
    }
    let (layer, stem) = stem.strip_prefix("model.layers.")?.split_once('.')?;
    // A name of the family's own hides the usual one of the same tensor.
    let usual = || look_up(&LAYER_NAMES, stem).filter(|found| own.iter().all(|(gguf, _)| gguf != found));
    let found = look_up(own, stem).or_else(usual)?;
    Some(format!("blk.{layer}.{found}.{part}"))
}

impl GgufFile {
    /// The tensors under their Hugging Face names; `own` are names of a layer's tensors that differ
    /// from the usual ones.
    ///
    /// # Errors
    /// [`FormatCause::Duplicate`](super::super::FormatCause::Duplicate) when two tensors get the same
    /// name.
    pub fn into_tensors(self, own: &'static [(&'static str, &'static str)]) -> Result<TensorSet, FormatError> {
        let mut set = TensorSet::default();
        set.gguf_names = Some(own);
        for mut tensor in self.tensors {
            let name = hugging_face_name(&tensor.name, own);
            tensor.written = Some(std::mem::replace(&mut tensor.name, name).into());
            set.insert(tensor).map_err(|tensor| tensor.duplicate())?;
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::{gguf_name, hugging_face_name};

    #[test]
    fn names_of_gguf_are_the_inverse() {
        let own = [("ffn_up", "mlp.gate_up_proj"), ("ffn_norm", "pre_feedforward_layernorm")];
        for name in ["token_embd.weight", "output.weight", "blk.3.attn_q.bias", "blk.0.ffn_up.weight"] {
            assert_eq!(gguf_name(&hugging_face_name(name, &own), &own).as_deref(), Some(name));
            assert_eq!(gguf_name(&hugging_face_name(name, &[]), &[]).as_deref(), Some(name));
        }
        assert_eq!(gguf_name("model.layers.0.mlp.up_proj.weight", &own), None);
        let norm = |own: &[_]| gguf_name("model.norm.weight", own);
        assert_eq!(norm(&[]).as_deref(), Some("output_norm.weight"));
        assert_eq!(norm(&[("token_embd_norm", "model.norm")]).as_deref(), Some("token_embd_norm.weight"));
        assert_eq!(gguf_name("model.rotary.inv_freq", &[]), None);
    }

    #[test]
    fn names_are_those_of_hugging_face() {
        assert_eq!(hugging_face_name("token_embd.weight", &[]), "model.embed_tokens.weight");
        assert_eq!(hugging_face_name("blk.12.attn_q.bias", &[]), "model.layers.12.self_attn.q_proj.bias");
        assert_eq!(hugging_face_name("blk.0.ffn_norm.weight", &[]), "model.layers.0.post_attention_layernorm.weight");
    }

    #[test]
    fn a_family_has_names_of_its_own() {
        let own = [("ffn_up", "mlp.gate_up_proj")];
        assert_eq!(hugging_face_name("blk.0.ffn_up.weight", &own), "model.layers.0.mlp.gate_up_proj.weight");
        assert_eq!(hugging_face_name("blk.0.ffn_down.weight", &own), "model.layers.0.mlp.down_proj.weight");
    }

    #[test]
    fn an_unknown_name_stays() {
        for name in ["blk.0.ffn_gate_exps.weight", "rope_freqs.weight", "blk.0", "output"] {
            assert_eq!(hugging_face_name(name, &[]), name);
        }
    }
}
