//! Folders of quantised weights, packed by the packages of their formats, against Hugging Face
//! transformers over the exactly decoded weights.

use crate::families::checkpoints;
use crate::models::load;
use amk::encoding::F32;
use amk::{Encoding, Pos, Token};
use amk_cuda::{Precision, WeightForms};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat};

checkpoints!(quantized: awq, compressed_bytes, compressed_packed, fp8_blocks, gptq, gptq_pairs, gptq_v2, mxfp4);

#[test]
fn memory_has_the_codes_of_the_file() {
    let held = |name: &str| {
        let model = load(&folder(name), 8);
        let of = |weight: &str| model.bindings.weights()[&format!("w.layers[0].{weight}")].encoding().name;
        ["attn.q", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down"].map(of)
    };
    assert_eq!(held("awq"), ["int4:32:zero"; 6]);
    assert_eq!(held("gptq"), ["int4:32:zero"; 6]);
    assert_eq!(held("gptq_pairs"), ["int4:32"; 6]);
    // Whole rows of 64 and of 96 columns.
    assert_eq!(held("gptq_v2"), ["int8:64", "int8:64", "int8:64", "int8:64", "int8:64", "int8:32"]);
    let [four, eight] = ["int4:32:zero:bf16", "int8:64:zero:bf16"];
    assert_eq!(held("compressed_packed"), [four, four, eight, "int4:64", "int4:64", "int8:32:f32"]);
    let [q, v, o] = ["int8:64:bf16", "int8:64:zero:bf16", "int8:128:zero:bf16"];
    assert_eq!(held("compressed_bytes"), [q, v, o, "fp8:64:f16", "fp8:64:f16", "fp8:32"]);
    assert_eq!(held("mxfp4"), ["MXFP4"; 6]);
    assert_eq!(held("fp8_blocks"), ["fp8:64", "fp8:64", "fp8:64", "fp8:64", "fp8:64", "fp8:32"]);
}

fn converted(name: &str, encoding: &'static Encoding) -> Model {
    let Checkpoint { config, tensors, .. } = Checkpoint::open(&folder(name)).expect("the folder should open");
    Model::load(&config, tensors, 8, WeightFormat::As(encoding), &mut |_| {}).expect("it should load")
}

#[test]
fn decoded_weights_have_their_columns_in_place() {
    for &name in CHECKPOINTS {
        let (native, decoded) = (load(&folder(name), 8), converted(name, &F32));
        let mut ordered = 0;
        for (buffer, weight) in native.bindings.weights() {
            assert_eq!(weight.to_f32(), decoded.bindings.weights()[buffer].to_f32(), "{name}: {buffer}");
            ordered += usize::from(weight.order().is_some());
        }
        // Act-order: all projections of the layer.
        let expected = if ["gptq", "gptq_pairs"].contains(&name) { 7 } else { 0 };
        assert_eq!(ordered, expected, "{name}");
        // In order, sums equal the decoded floats'.
        let (mut native, mut decoded) = (native, decoded);
        let [a, b] = [&mut native, &mut decoded].map(|model| (model.eager)(Token(5), Pos(0)));
        assert_eq!(a == b, ordered == 0, "{name}");
    }
}

#[test]
fn a_gpu_takes_columns_out_of_order_as_floats() {
    let forms = |name: &str| WeightForms::of(Precision::BF16, &load(&folder(name), 8).bindings);
    assert_eq!(forms("gptq").encodings.len(), 0);
    let blocks = forms("compressed_packed");
    assert_eq!(blocks.encoding("w.layers[0].mlp.gate").map(|encoding| encoding.name), Some("int4:64"));
}

#[test]
fn quantised_activations_are_noted() {
    let noted = |name: &str| {
        let config = Checkpoint::open(&folder(name)).expect("the folder should open").config;
        config.quantises_activations()
    };
    let expected = |name: &str| ["compressed_bytes", "fp8_blocks"].contains(&name);
    assert!(CHECKPOINTS.iter().all(|name| noted(name) == expected(name)));
}
