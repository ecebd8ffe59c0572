//! Gives the tensors of a folder the names and shapes that pages expect.

use crate::import::Import;
use crate::weights::{FormatError, StoredTensor, TensorSet};

/// The usual name of a decoder, with which its tensors' names begin, except in checkpoints of the
/// decoder alone.
const DECODER: &str = "model";
/// The prefix of its layers' names in that case. Other names without the decoder's are unchanged.
const LAYERS: &str = "layers.";
/// The name of the output head, which is not part of the decoder.
const HEAD: &str = "lm_head.";
/// The end of the names of rotary frequencies, which older exporters wrote. They follow from the
/// config, and no implementation reads them.
const FREQUENCIES: &str = ".rotary_emb.inv_freq";

/// Renames the tensors to their usual names, without tensors of other parts of a larger model,
/// rotary frequencies and others that nothing reads. The weights of depthwise convolutions,
/// `[N, 1, L]`, become matrices.
///
/// # Errors
/// [`FormatCause::Duplicate`](crate::weights::FormatCause::Duplicate) when two tensors get the same name.
pub(super) fn usual(tensors: TensorSet, import: &Import) -> Result<TensorSet, FormatError> {
    let mut usual = TensorSet::default();
    let others = import.inside.map_or(&[][..], |inside| inside.others);
    let is_spare = |name: &str| {
        let of_layer = name.split_once("layers.").and_then(|(_, rest)| rest.split_once('.'));
        name.ends_with(FREQUENCIES) || of_layer.is_some_and(|(_, name)| import.spare.contains(&name))
    };
    let is_other =
        |tensor: &&StoredTensor| others.iter().any(|other| tensor.name().starts_with(other)) || is_spare(tensor.name());
    let any = |start: &str| tensors.iter().any(|tensor| tensor.name().starts_with(start));
    let own = import.names.iter().find(|(_, usual)| *usual == DECODER).map_or(DECODER, |(own, _)| own);
    let is_bare = import.inside.is_none() && !any(&format!("{own}.")) && any(LAYERS);
    // Errors name a tensor without it; other names than the usual ones they do not know.
    usual.without_prefix = (is_bare && own == DECODER).then_some("model.");
    usual.spare_biases = tensors.spare_biases;
    for tensor in tensors.iter().filter(|tensor| !is_other(tensor)) {
        let mut tensor = tensor.clone();
        tensor.name = match usual_name(&tensor.name, import) {
            name if is_bare && !name.starts_with(HEAD) => usual_name(&format!("{own}.{}", tensor.name), import),
            name => name,
        };
        if let [_, 1, _] = tensor.shape[..] {
            tensor.shape.remove(1);
        }
        usual.insert(tensor).map_err(|tensor| tensor.duplicate())?;
    }
    Ok(usual)
}

fn usual_name(name: &str, import: &Import) -> String {
    let inside = import.inside.map_or(&[][..], |inside| inside.names);
    let name = replaced_start(name, inside).unwrap_or_else(|| name.to_owned());
    // Names below a layer may begin as one from the start does.
    let of_layer = |name: &str| {
        let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
        Some((layer.to_owned(), rest.to_owned()))
    };
    let name = match of_layer(&name) {
        None => replaced_start(&name, import.names).unwrap_or(name),
        Some(_) => name,
    };
    let found = of_layer(&name).and_then(|(layer, rest)| {
        replaced_start(&rest, import.names).map(|rest| format!("model.layers.{layer}.{rest}"))
    });
    found.unwrap_or(name)
}

/// The name with another beginning, if it has one of these, which ends at a dot.
fn replaced_start(name: &str, names: &[(&str, &str)]) -> Option<String> {
    names.iter().find_map(|(from, to)| {
        let rest = name.strip_prefix(from)?;
        rest.starts_with('.').then(|| format!("{to}{rest}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_from_the_start_and_then_below_a_layer() {
        let names = &[("gpt_neox", "model"), ("embed_out", "lm_head"), ("attention.dense", "self_attn.o_proj")];
        let import = Import { names, ..Import::LLAMA };
        for (name, usual) in [
            ("gpt_neox.layers.3.attention.dense.weight", "model.layers.3.self_attn.o_proj.weight"),
            ("gpt_neox.layers.3.attention.dense_h.weight", "model.layers.3.attention.dense_h.weight"),
            ("gpt_neox.norm.bias", "model.norm.bias"),
            ("embed_out.weight", "lm_head.weight"),
            ("model.layers.3.embed_out.weight", "model.layers.3.lm_head.weight"),
            ("other.weight", "other.weight"),
        ] {
            assert_eq!(usual_name(name, &import), usual);
        }
    }
}
