//! Weights as compressed-tensors packs them (`pack-quantized`).
//!
//! ```text
//! NAME.weight_packed: i32 [N, K * bits / 32]   codes from the lowest bits of each word on
//! NAME.weight_scale:  [N, K / group]
//! NAME.weight_shape:  i64 [2]                  N, K
//! ```

use amk::Encoding;
use amk::ir::DType;
use amk_kernels::encoding::{GroupCodes, GroupFormat};
use safetensors::Dtype;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The parts of a packed weight.
pub(crate) struct Packed {
    /// `weight_packed`.
    pub(crate) codes: Vec<u8>,
    /// `weight_scale`.
    pub(crate) scales: Vec<u8>,
}

/// Bits of a code.
pub(crate) fn bits(format: GroupFormat) -> usize {
    match format.codes {
        GroupCodes::Int4 => 4,
        GroupCodes::Int8 | GroupCodes::Fp8 => 8,
    }
}

/// The type of the scales.
pub(crate) fn scale_dtype(format: GroupFormat) -> Dtype {
    match format.scale {
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        _ => Dtype::F32,
    }
}

/// Takes blocks apart.
pub(crate) fn pack(encoding: &Encoding, format: GroupFormat, blocks: &[u8]) -> Packed {
    let groups = blocks.len() / encoding.bytes;
    let mut packed = Packed {
        codes: Vec::with_capacity(groups * format.len * bits(format) / 8),
        scales: Vec::with_capacity(groups * format.scale_bytes()),
    };
    let mut codes = vec![0; format.len];
    for block in blocks.chunks_exact(encoding.bytes) {
        let (scale, _) = format.split(block, &mut codes);
        packed.scales.extend_from_slice(scale);
        match format.codes {
            GroupCodes::Int4 => packed.codes.extend(codes.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4)),
            GroupCodes::Int8 | GroupCodes::Fp8 => packed.codes.extend_from_slice(&codes),
        }
    }
    packed
}

/// The `quantization_config` of a folder whose modules have these formats.
pub(crate) fn config(modules: &BTreeMap<String, GroupFormat>) -> Value {
    let mut formats: Vec<GroupFormat> = Vec::new();
    for &format in modules.values() {
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    let groups: Map<String, Value> = formats
        .iter()
        .enumerate()
        .map(|(number, format)| {
            // One group is of all modules but those that are ignored.
            let targets = match formats.len() {
                1 => vec!["Linear".to_owned()],
                _ => kinds(modules.iter().filter(|(_, of)| *of == format).map(|(name, _)| name)),
            };
            (format!("group_{number}"), group(*format, targets))
        })
        .collect();
    json!({
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": ["lm_head"],
        "kv_cache_scheme": null,
        "global_compression_ratio": null,
    })
}

fn group(format: GroupFormat, targets: Vec<String>) -> Value {
    json!({
        "targets": targets,
        "weights": {
            "num_bits": bits(format), "type": "int", "symmetric": true, "strategy": "group", "group_size": format.len,
            "dynamic": false, "block_structure": null, "actorder": null,
            "observer": "minmax", "observer_kwargs": {},
        },
        "input_activations": null,
        "output_activations": null,
    })
}

/// Regular expressions for modules of all layers.
fn kinds<'n>(modules: impl Iterator<Item = &'n String>) -> Vec<String> {
    let mut kinds: Vec<String> = modules
        .map(|name| {
            let kind = crate::quantize::kind(name);
            format!("re:.*{}$", kind.replace('.', "\\."))
        })
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_fill_words_from_their_lowest_bits_on() {
        amk_kernels::link();
        let encoding = Encoding::find("int4:32:bf16").expect("it is registered");
        let format = GroupFormat::of(encoding).expect("it is by groups");
        let codes: Vec<u8> = (0..32).map(|code| code % 16).collect();
        let mut block = vec![0; encoding.bytes];
        format.join(&[0x80, 0x3f], 0, &codes, &mut block);
        let packed = pack(encoding, format, &block);
        assert_eq!(packed.scales, [0x80, 0x3f]);
        assert_eq!(packed.codes[..4], 0x7654_3210u32.to_le_bytes());
        assert_eq!((packed.codes.len(), bits(format), scale_dtype(format)), (16, 4, Dtype::BF16));
    }

    #[test]
    fn a_folder_of_several_formats_names_the_modules_of_each() {
        amk_kernels::link();
        let format = |name| GroupFormat::of(Encoding::find(name).expect("registered")).expect("by groups");
        let module = |name: &str, of| (name.to_owned(), format(of));
        let one = [module("model.layers.0.mlp.up_proj", "int4:64")];
        assert_eq!(config(&one.into())["config_groups"]["group_0"]["targets"], json!(["Linear"]));
        let two = [
            module("model.layers.0.mlp.down_proj", "int4:128"),
            module("model.layers.0.mlp.up_proj", "int4:64"),
            module("model.layers.1.mlp.up_proj", "int4:64"),
        ];
        let groups = &config(&two.into())["config_groups"];
        assert_eq!(groups["group_0"]["targets"], json!(["re:.*mlp\\.down_proj$"]));
        assert_eq!(groups["group_1"]["targets"], json!(["re:.*mlp\\.up_proj$"]));
        assert_eq!(groups["group_1"]["weights"]["group_size"], 64);
    }
}
