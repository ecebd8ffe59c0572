//! Methods against each other.

use super::support::{folder, load, open, quantized, schedule, tasks, text};
use amk::Token;
use amk_quantize::{Calibration, Method, Quantized, Recipe, quantize_calibrated};
use std::collections::{BTreeMap, BTreeSet};

fn calibrated(text: &[Token], method: Method, memory: usize) -> Quantized {
    let folder = folder();
    let (source, model) = (open(folder.path()), load(folder.path()));
    let recipe = Recipe::new(&["int4:64"], method).unwrap();
    let calibration = Calibration::new(&model, &schedule(2, 16), text).unwrap();
    quantize_calibrated(tasks(&source, &recipe), method, &calibration, memory, &mut |_, _| {}).unwrap()
}

/// The mean squared errors of the outputs of each projection, on a text.
fn output_errors(text: &[Token], quantized: &Quantized) -> BTreeMap<String, f64> {
    let folder = folder();
    let model = load(folder.path());
    let calibration = Calibration::new(&model, &schedule(2, 16), text).unwrap();
    let buffers: BTreeSet<&str> = model.names.keys().map(String::as_str).collect();
    let inputs = calibration.inputs(&buffers);
    let grams = calibration.run(&model.bindings, &inputs, &mut |_| {}).unwrap();
    let mut errors = BTreeMap::new();
    for (input, gram) in inputs.iter().zip(&grams) {
        for buffer in &input.weights {
            let Some(weight) = quantized.weights.get(&model.names[buffer]) else { continue };
            let exact = model.bindings.weights()[buffer].to_f32();
            let off: Vec<f32> = exact.iter().zip(weight.to_f32()).map(|(a, b)| a - b).collect();
            let error = off.chunks(input.size).map(|row| gram.mean_square_of(row)).sum();
            errors.insert(buffer.clone(), error);
        }
    }
    assert_eq!(errors.len(), 14);
    errors
}

#[test]
fn each_method_is_closer_than_the_one_before() {
    let (text, folder) = (text(256), folder());
    let source = open(folder.path());
    let nearest = quantized(&source, &["int4:64"], Method::Rtn);
    let searched = quantized(&source, &["int4:64"], Method::Search);
    for (kind, deviation) in &searched.deviations {
        assert!(deviation.relative() < nearest.deviations[kind].relative(), "{kind}");
    }
    let compensated = calibrated(&text, Method::Gptq, usize::MAX);
    let [nearest, searched, compensated] =
        [&nearest, &searched, &compensated].map(|quantized| output_errors(&text, quantized));
    for (buffer, error) in &compensated {
        assert!(*error < searched[buffer], "{buffer}: {error} and {}", searched[buffer]);
    }
    let total = |errors: &BTreeMap<String, f64>| errors.values().sum::<f64>();
    assert!(total(&compensated) < 0.9 * total(&searched), "{} and {}", total(&compensated), total(&searched));
    assert!(total(&searched) < total(&nearest), "{} and {}", total(&searched), total(&nearest));
}

#[test]
fn weighted_scales_are_closer_for_the_text() {
    let (text, folder) = (text(256), folder());
    let plain = quantized(&open(folder.path()), &["int4:64"], Method::Search);
    let weighted = calibrated(&text, Method::Search, usize::MAX);
    let total = |quantized| output_errors(&text, quantized).values().sum::<f64>();
    assert!(total(&weighted) < total(&plain));
}

#[test]
fn little_memory_takes_several_runs() {
    let text = text(48);
    let at_once = calibrated(&text, Method::Gptq, usize::MAX);
    let one_by_one = calibrated(&text, Method::Gptq, 1);
    assert_eq!(at_once.weights.keys().collect::<Vec<_>>(), one_by_one.weights.keys().collect::<Vec<_>>());
    let bytes = |quantized: &Quantized, name: &str| quantized.weights[name].row_bytes(0).to_vec();
    // Nothing is quantised before the first input; later runs see what is.
    let first = "model.layers.0.self_attn.q_proj.weight";
    assert_eq!(bytes(&at_once, first), bytes(&one_by_one, first));
    let last = "model.layers.1.mlp.down_proj.weight";
    assert_ne!(bytes(&at_once, last), bytes(&one_by_one, last));
}
