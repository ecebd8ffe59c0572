//! What of quantised folders is refused, and how.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, Output, WeightFormat};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{golden, with_header};

/// The tensors of a folder: dtype, shape and bytes by name.
type Tensors = BTreeMap<String, (String, Vec<usize>, Vec<u8>)>;

/// A golden folder with other tensors or another config.
struct Changed {
    config: Value,
    tensors: Tensors,
}

const GATE: &str = "model.layers.0.mlp.gate_proj";

impl Changed {
    fn of(name: &str) -> Self {
        let folder = golden("quantized").join(name);
        let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let file = std::fs::read(folder.join("model.safetensors")).unwrap();
        let entry = |(name, tensor): (String, safetensors::tensor::TensorView<'_>)| {
            (name, (tensor.dtype().to_string(), tensor.shape().to_vec(), tensor.data().to_vec()))
        };
        let tensors = SafeTensors::deserialize(&file).unwrap().tensors().into_iter().map(entry).collect();
        Self { config, tensors }
    }

    fn part(&mut self, part: &str) -> &mut (String, Vec<usize>, Vec<u8>) {
        self.tensors.get_mut(&format!("{GATE}.{part}")).unwrap_or_else(|| panic!("there is no {part}"))
    }

    fn remove(&mut self, part: &str) {
        self.tensors.remove(&format!("{GATE}.{part}")).unwrap_or_else(|| panic!("there is no {part}"));
    }

    fn quantization(&mut self) -> &mut Value {
        &mut self.config["quantization_config"]
    }

    fn write(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, (dtype, shape, bytes)) in &self.tensors {
            let begin = data.len();
            data.extend_from_slice(bytes);
            let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]});
            header.insert(name.clone(), entry);
        }
        std::fs::write(folder.path().join("model.safetensors"), with_header(&Value::from(header).to_string(), &data))
            .unwrap();
        std::fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        folder
    }
}

/// Opens and loads a folder. An error is all its causes.
fn load(folder: &Path, format: WeightFormat) -> Result<Model, String> {
    let Checkpoint { config, tensors, .. } = Checkpoint::open(folder).map_err(|error| causes(&error))?;
    Model::load(&config, tensors, 8, format, &mut |_| {}).map_err(|error| causes(&error))
}

fn causes(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |&error| error.source()).map(|error| format!("{error}; ")).collect()
}

/// The refusal of a golden folder after a change.
#[track_caller]
fn refused(name: &str, change: impl FnOnce(&mut Changed), expected: &str) {
    let mut changed = Changed::of(name);
    change(&mut changed);
    for format in [WeightFormat::Native, WeightFormat::BF16] {
        let error =
            load(changed.write().path(), format).err().unwrap_or_else(|| panic!("it loads; expected {expected}"));
        assert!(error.contains(expected), "{error}");
    }
}

/// A golden folder after a change that does not change its weights.
#[track_caller]
fn accepted(name: &str, change: impl FnOnce(&mut Changed)) {
    let mut changed = Changed::of(name);
    change(&mut changed);
    let changed = load(changed.write().path(), WeightFormat::Native).unwrap_or_else(|error| panic!("{error}"));
    let golden = load(&golden("quantized").join(name), WeightFormat::Native).unwrap();
    for (buffer, weight) in golden.bindings.weights() {
        assert_eq!(changed.bindings.weights()[buffer].to_f32(), weight.to_f32(), "{buffer}");
    }
}

#[test]
fn folders_are_written_as_they_were() {
    let folder = Changed::of("gptq").write();
    assert!(load(folder.path(), WeightFormat::Native).is_ok());
    let Checkpoint { config, tensors, .. } = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(Model::check(&config, tensors, Output::Logits).unwrap().name, "llama", "without reading a weight");
}

#[test]
fn bad_numbers_are_named_with_tensor_and_block() {
    let nan = |part: &'static str, bytes: &'static [u8]| {
        move |changed: &mut Changed| changed.part(part).2[..bytes.len()].copy_from_slice(bytes)
    };
    // The first group of the first output.
    let first = |encoding: &str, defect: &str| format!("tensor `{GATE}.weight`: block 0 of {encoding} {defect}");
    let scale = "has a scale that is not finite";
    refused("gptq", nan("scales", &[0x00, 0x7c]), &first("int4:32:zero", scale));
    refused("awq", nan("scales", &[0xff, 0xff]), &first("int4:32:zero", scale));
    refused("compressed_packed", nan("weight_scale", &[0x01, 0x7c]), &first("int4:64", scale));
    refused("fp8_blocks", nan("weight_scale_inv", &[0, 0, 0xc0, 0x7f]), &first("fp8:64", scale));
    let beyond = "has a scale with which elements are not finite";
    refused("fp8_blocks", nan("weight_scale_inv", &[0xff, 0xff, 0x7f, 0x7f]), &first("fp8:64", beyond));
    refused("fp8_blocks", nan("weight", &[0x7f]), &first("fp8:64", "has an element that is not a number"));
    refused("mxfp4", nan("weight_scale", &[0xff]), &first("MXFP4", scale));
}

#[test]
fn zeros_out_of_range_are_named() {
    // One zero for four bits, stored as a byte: 8 more than it says is beyond 15.
    let change = |changed: &mut Changed| {
        let groups = &mut changed.config["quantization_config"]["config_groups"];
        groups["group_2"]["weights"]["symmetric"] = json!(false);
        for module in ["gate", "up"] {
            let name = format!("model.layers.0.mlp.{module}_proj.weight_zero_point");
            changed.tensors.insert(name, ("I8".to_owned(), vec![96, 1], vec![100; 96]));
        }
    };
    refused("compressed_packed", change, "`: block 0 of int4:64:zero has a zero that is none of its codes");
}

#[test]
fn orders_of_columns_are_checked() {
    let column = |column: usize, group: i32| {
        move |changed: &mut Changed| changed.part("g_idx").2[4 * column..][..4].copy_from_slice(&group.to_le_bytes())
    };
    refused("gptq", column(3, 2), &format!("tensor `{GATE}.g_idx`: column 3 is in group 2 of 2"));
    refused("gptq", column(5, -1), "column 5 is in group -1 of 2");
    let all_in_one = |changed: &mut Changed| {
        (0..40).for_each(|at| column(at, 0)(changed));
    };
    refused("gptq", all_in_one, "does not have 32 columns");
    let missing = |changed: &mut Changed| changed.remove("g_idx");
    refused("gptq", missing, &format!("there is no `{GATE}.g_idx` beside it, but `desc_act` is true"));
    let short = |changed: &mut Changed| {
        let (_, shape, bytes) = changed.part("g_idx");
        shape[0] = 60;
        bytes.truncate(240);
    };
    refused("gptq", short, "its shape is [60], expected [64]");
}

#[test]
fn parts_must_fit_each_other() {
    let reshaped = |part: &'static str, shape: &'static [usize]| {
        move |changed: &mut Changed| changed.part(part).1 = shape.to_vec()
    };
    refused(
        "gptq",
        reshaped("scales", &[96, 2]),
        &format!("tensor `{GATE}.scales`: its shape is [96, 2], expected [2, 96]"),
    );
    refused("awq", reshaped("qzeros", &[12, 2]), "its shape is [12, 2], expected [2, 12]");
    refused("gptq", reshaped("qweight", &[768]), "its shape is [768], expected a matrix");
    refused("compressed_packed", reshaped("weight_packed", &[48, 16]), "its shape is [48, 16], expected [96, 8]");
    refused("fp8_blocks", reshaped("weight_scale_inv", &[1, 3]), "its shape is [1, 3], expected [3, 1]");
    refused("mxfp4", reshaped("weight_scale", &[2, 96]), "its shape is [2, 96], expected [96, 2]");
    refused("mxfp4", reshaped("weight_packed", &[128, 24]), "rows of 48 are not read; they must be a multiple of 32");
    refused("mxfp4", |changed| changed.remove("weight_packed"), "weight_packed` beside it");
    refused("gptq", |changed| changed.remove("scales"), &format!("there is no `{GATE}.scales` beside it"));
    refused("compressed_packed", |changed| changed.remove("weight_shape"), "weight_shape` beside it");
    refused("fp8_blocks", |changed| changed.remove("weight_scale_inv"), "weight_scale_inv` beside it");
    let as_float = |changed: &mut Changed| changed.part("qweight").0 = "F32".to_owned();
    refused("gptq", as_float, "it is stored as f32, expected I32");
    let no_shape = |changed: &mut Changed| changed.part("weight_shape").2.fill(0);
    refused("compressed_packed", no_shape, "[0, 0] is the shape of no matrix");
    let both = |changed: &mut Changed| {
        changed.tensors.insert(format!("{GATE}.weight"), ("F32".to_owned(), vec![1], vec![0; 4]));
    };
    refused("gptq", both, &format!("there is `{GATE}.weight`, too"));
}

#[test]
fn groups_that_divide_no_row_are_refused() {
    let group = |size: i64| move |changed: &mut Changed| changed.quantization()["group_size"] = json!(size);
    refused("gptq", group(128), "its shape is [3, 64], expected [1, 64]");
    let narrow = |changed: &mut Changed| {
        changed.quantization()["group_size"] = json!(48);
        for (name, (_, shape, bytes)) in &mut changed.tensors {
            // Two groups, of 48 and of 16 columns.
            if name.ends_with("g_idx") {
                let groups: Vec<u8> = (0..shape[0] as i32).flat_map(|column| (column / 48).to_le_bytes()).collect();
                *bytes = groups;
            }
            if name.contains("down_proj") && !name.ends_with("g_idx") && !name.ends_with("qweight") {
                shape[0] = 2;
                bytes.truncate(bytes.len() / 3 * 2);
            }
        }
    };
    refused("gptq", narrow, "groups of 48 in rows of");
}

#[test]
fn configs_that_change_the_weights_otherwise_are_refused() {
    let set = |field: &'static str, value: Value| move |changed: &mut Changed| changed.quantization()[field] = value;
    refused("gptq", set("quant_method", json!("bitsandbytes")), "weights quantised in this way are not decoded");
    refused("gptq", set("bits", json!(3)), "only integers of [4, 8] bits are read");
    refused("awq", set("bits", json!(8)), "only integers of [4] bits are read");
    refused("awq", set("version", json!("gemv")), "`quantization_config.version` is \"gemv\": only gemm is read");
    refused("awq", set("checkpoint_format", json!("marlin")), "only gemm is read");
    refused("gptq", set("checkpoint_format", json!("marlin")), "only gptq or gptq_v2 is read");
    refused("gptq", set("hadamard", json!(true)), "`quantization_config.hadamard` is true: this field is unknown");
    refused("fp8_blocks", set("fmt", json!("e5m2")), "only e4m3 is read");
    refused("compressed_bytes", set("kv_cache_scheme", json!({"num_bits": 8})), "caches of keys and values");
    refused("compressed_bytes", set("transform_config", json!({"R1": {}})), "rotated weights");
    refused("compressed_bytes", set("format", json!("nvfp4-pack-quantized")), "pack-quantized or");
    let bits = |changed: &mut Changed| {
        changed.quantization()["config_groups"]["group_2"]["weights"]["num_bits"] = json!(3);
    };
    refused("compressed_packed", bits, "`quantization_config.config_groups.group_2.weights.num_bits` is 3: only");
    let groups_of = |size: u32| {
        move |changed: &mut Changed| {
            changed.quantization()["config_groups"]["group_0"]["weights"]["group_size"] = json!(size);
        }
    };
    refused("mxfp4", groups_of(16), "floats of 4 bits are read in symmetric groups of 32 alone");
    let ignored = |changed: &mut Changed| {
        changed.quantization()["ignore"] = json!(["re:.*gate_proj"]);
    };
    refused("compressed_packed", ignored, &format!("`{GATE}.weight_scale`: no group of the config has this module"));
    let pattern = |changed: &mut Changed| changed.quantization()["ignore"] = json!(["re:("]);
    refused("compressed_packed", pattern, "is a pattern that is not read");
}

#[test]
fn groups_of_compressed_tensors_are_found_as_the_package_finds_them() {
    // Another group for the gate or its neighbour, before or after the others.
    let with_group = |pattern: &'static str, is_first: bool| {
        move |changed: &mut Changed| {
            let groups = changed.quantization()["config_groups"].as_object_mut().unwrap();
            let mut group = groups["group_2"].clone();
            group["targets"] = json!([pattern]);
            group["weights"]["group_size"] = json!(32);
            let at = if is_first { 0 } else { groups.len() };
            groups.shift_insert(at, "other".to_owned(), group);
        }
    };
    // Of all patterns that match a module, the first in the order of texts; of equal ones the last.
    accepted("compressed_packed", with_group("re:.*up_proj", true));
    accepted("compressed_packed", with_group("re:.*mlp.(gate|up)_proj$", true));
    accepted("compressed_packed", with_group("re:.*mlp.(gate|up)_proj$$", true));
    let others = "its shape is [96, 1], expected [96, 2]";
    refused("compressed_packed", with_group("re:.*gate_proj", false), others);
    refused("compressed_packed", with_group("re:.*mlp.(gate|up)_proj", false), others);
    let look_around = |changed: &mut Changed| {
        changed.quantization()["ignore"] = json!(["re:(?!.*layers).*", "re:.*(?<!proj)$"]);
    };
    accepted("compressed_packed", look_around);
    // Without a strategy.
    let whole_rows = |changed: &mut Changed| {
        let weights = &mut changed.quantization()["config_groups"]["group_1"]["weights"];
        assert_eq!(weights["strategy"], "channel");
        weights["strategy"] = Value::Null;
        weights["group_size"] = json!(-1);
    };
    accepted("compressed_packed", whole_rows);
    let block = |changed: &mut Changed| {
        for (_, group) in changed.quantization()["config_groups"].as_object_mut().unwrap() {
            if let Some([high, wide]) = group["weights"]["block_structure"].as_array().map(|sizes| &sizes[..]) {
                group["weights"]["block_structure"] = format!("{high}x{wide}").into();
            }
        }
    };
    accepted("compressed_bytes", block);
}

#[test]
fn fields_of_the_packages_that_write_folders_are_known() {
    let with = |fields: Value| {
        move |changed: &mut Changed| {
            for (field, value) in fields.as_object().unwrap() {
                changed.quantization()[field] = value.clone();
            }
        }
    };
    let of_gptqmodel = |method: &str, format: &str| {
        json!({"method": method, "format": format, "checkpoint_format": format, "pack_dtype": "int32",
               "lm_head": false, "meta": {"quantizer": ["gptqmodel:7.7.0"], "gc_mode": "interval"}})
    };
    accepted("gptq", with(of_gptqmodel("gptq", "gptq")));
    accepted("awq", with(of_gptqmodel("awq", "gemm")));
    // Its default: codes without zero points, for which it stores 8.
    accepted("awq", with(json!({"zero_point": false, "version": "gemm"})));
    let of_transformers = json!({"dequantize": false, "expert_dtype": "fp8", "modules_to_convert": ["lm_head"],
                                 "modules_to_not_convert": null, "scale_fmt": "float"});
    accepted("fp8_blocks", with(of_transformers));
    refused("fp8_blocks", with(json!({"expert_dtype": "fp4"})), "only fp8 is read");
}

#[test]
fn rules_of_gptq_are_for_single_modules() {
    let rules = |rules: Value| {
        move |changed: &mut Changed| {
            changed.quantization()["bits"] = json!(8);
            changed.quantization()["group_size"] = json!(-1);
            changed.quantization()["dynamic"] = rules;
        }
    };
    let as_packed = json!({"bits": 4, "group_size": 32, "damp_percent": 0.1});
    // The first rule for a module counts; a pattern matches from the start.
    accepted("gptq", rules(json!({"-:proj": {}, "+:.*mlp": as_packed, "model": as_packed, "+:.*gate": {"bits": 8}})));
    let of_gate = |rule: Value| rules(json!({"+:.*gate": rule, "+:.*": as_packed}));
    let excluded = format!("`{GATE}.qweight`: a rule of the config says that this module is not quantised");
    refused("gptq", rules(json!({"-:.*gate": {}, "+:.*": as_packed})), &excluded);
    refused("gptq", of_gate(json!({"bits": 8})), "its shape is [2, 96], expected [1, 96]");
    refused("gptq", of_gate(json!({"bits": 3})), "`quantization_config.dynamic.+:.*gate.bits` is 3: only integers");
    refused("gptq", of_gate(json!({"hadamard": true})), "gate.hadamard` is true: this field is unknown");
    refused("gptq", of_gate(json!(4)), "`quantization_config.dynamic.+:.*gate` is 4: expected an object");
    refused("gptq", rules(json!({"-:(": {}})), "is a pattern that is not read");
    refused("gptq", rules(json!([])), "`quantization_config.dynamic` is []: expected an object");
}

#[test]
fn scales_of_fp8_may_be_exponents() {
    let with_scales = |change: &dyn Fn(u32) -> Vec<u8>, dtype: &str| {
        let mut changed = Changed::of("fp8_blocks");
        for (_, part) in changed.tensors.iter_mut().filter(|(name, _)| name.ends_with("weight_scale_inv")) {
            let scales = part.2.as_chunks().0.iter().map(|scale| u32::from_le_bytes(*scale));
            part.2 = scales.flat_map(change).collect();
            part.0 = dtype.to_owned();
        }
        load(changed.write().path(), WeightFormat::Native).unwrap()
    };
    let floats = with_scales(&|scale| (scale & 0x7f80_0000).to_le_bytes().to_vec(), "F32");
    let exponents = with_scales(&|scale| vec![(scale >> 23) as u8], "F8_E8M0");
    for (buffer, weight) in floats.bindings.weights() {
        assert_eq!(exponents.bindings.weights()[buffer].to_f32(), weight.to_f32(), "{buffer}");
    }
}

#[test]
fn biases_of_zeros_may_be_spare_in_gptq() {
    let bias = |value: u8| {
        move |changed: &mut Changed| {
            let name = format!("{GATE}.bias");
            changed.tensors.insert(name, ("F16".to_owned(), vec![96], [vec![0; 191], vec![value]].concat()));
        }
    };
    accepted("gptq", bias(0));
    let mut changed = Changed::of("gptq");
    bias(0)(&mut changed);
    let folder = changed.write();
    let Checkpoint { config, mut tensors, .. } = Checkpoint::open(folder.path()).unwrap();
    tensors.remove_spare(&Model::used(&config, tensors.clone()).unwrap());
    assert!(!tensors.contains(&format!("{GATE}.bias")) && tensors.contains(&format!("{GATE}.weight")));
    let unused = format!("a tensor the model does not use: `{GATE}.bias`");
    refused("gptq", bias(1), &unused);
    refused("fp8_blocks", bias(0), &unused);
}

#[test]
fn a_file_that_is_cut_short_is_refused() {
    for name in ["gptq", "compressed_packed"] {
        let folder = Changed::of(name).write();
        let path = folder.path().join("model.safetensors");
        let file = std::fs::read(&path).unwrap();
        for len in [0, 7, 100, file.len() / 2, file.len() - 1] {
            std::fs::write(&path, &file[..len]).unwrap();
            let error = load(folder.path(), WeightFormat::Native).err().unwrap_or_else(|| panic!("{len} bytes load"));
            assert!(error.contains("model.safetensors: "), "{error}");
        }
    }
}

#[test]
fn compressed_tensors_can_have_an_order_of_columns() {
    // As older versions wrote for act-order: each column's group.
    let mut changed = Changed::of("compressed_packed");
    let groups: Vec<u8> = (0..64i32).flat_map(|column| (column % 2).to_le_bytes()).collect();
    let name = "model.layers.0.self_attn.q_proj.weight_g_idx".to_owned();
    changed.tensors.insert(name, ("I32".to_owned(), vec![64], groups));
    // Never set: groups of neighbours.
    changed.tensors.insert(format!("{GATE}.weight_g_idx"), ("I32".to_owned(), vec![64], vec![0xff; 256]));
    let model = load(changed.write().path(), WeightFormat::Native).unwrap();
    let weight = |model: &Model, part: &str| model.bindings.weights()[&format!("w.layers[0].{part}")].clone();
    let expected: Vec<u32> = (0..64).map(|place| place % 32 * 2 + place / 32).collect();
    assert_eq!(weight(&model, "attn.q").order(), Some(&expected[..]));
    assert_eq!(weight(&model, "mlp.gate").order(), None);
    // The same codes, but scales and zeros of the other columns.
    let plain = load(&golden("quantized/compressed_packed"), WeightFormat::Native).unwrap();
    let [ordered, plain] = [&model, &plain].map(|model| weight(model, "attn.q").row(0).to_f32().into_owned());
    assert_eq!((ordered[0], ordered[63]), (plain[0], plain[63]));
    assert_ne!(ordered[1], plain[1]);
}
