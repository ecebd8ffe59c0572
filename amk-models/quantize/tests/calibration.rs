//! The inputs of projections are those that the annotated function has.

use super::support::{folder, load, schedule, text};
use amk::Token;
use amk_kernels::{embed, rms_norm};
use amk_quantize::{Calibration, Gram, Input};
use std::collections::BTreeSet;

const WEIGHTS: [&str; 5] =
    ["w.layers[0].attn.q", "w.layers[0].attn.k", "w.layers[0].attn.v", "w.layers[1].mlp.down", "w.layers[1].attn.o"];

fn weights() -> BTreeSet<&'static str> {
    WEIGHTS.into()
}

#[test]
fn projections_of_one_value_share_their_input() {
    let folder = folder();
    let model = load(folder.path());
    let text = text(3);
    let calibration = Calibration::new(&model, &schedule(2, 8), &text).unwrap();
    let found: Vec<(usize, Vec<String>)> =
        calibration.inputs(&weights()).into_iter().map(|Input { size, weights, .. }| (size, weights)).collect();
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        found,
        [
            (64, owned(&["w.layers[0].attn.q", "w.layers[0].attn.k", "w.layers[0].attn.v"])),
            (64, owned(&["w.layers[1].attn.o"])),
            (128, owned(&["w.layers[1].mlp.down"])),
        ]
    );
}

/// The sums over a text by a schedule.
fn grams(text: &[Token], workers: u32, rows: u32) -> Vec<Gram> {
    let folder = folder();
    let model = load(folder.path());
    let calibration = Calibration::new(&model, &schedule(workers, rows), text).unwrap();
    let inputs = calibration.inputs(&weights());
    let mut seen = 0.0;
    let grams = calibration.run(&model.bindings, &inputs, &mut |done| seen = done).unwrap();
    assert_eq!(seen, 1.0);
    grams
}

#[test]
fn inputs_of_all_tokens_are_summed() {
    let text = text(150);
    let grams = grams(&text, 3, 16);
    assert!(grams.iter().all(|gram| gram.rows() == text.len()));
    // The input of the first layer follows from the token alone.
    let folder = folder();
    let model = load(folder.path());
    let bound = model.bindings.weights();
    let mut expected = Gram::new(64);
    for &token in &text {
        let x = embed(&bound["w.ends.embed"], token);
        expected.add(rms_norm(&x, &bound["w.layers[0].norms.attn"], 1e-5).data());
    }
    for (found, expected) in grams[0].mean_squares().iter().zip(expected.mean_squares()) {
        assert!((found - expected).abs() <= 1e-4 * expected, "{found} instead of {expected}");
    }
}

#[test]
fn sums_do_not_depend_on_workers() {
    let text = text(40);
    assert_eq!(grams(&text, 1, 16), grams(&text, 4, 16));
}
