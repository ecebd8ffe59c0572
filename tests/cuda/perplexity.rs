//! Teacher-forced perplexity over 2,000 tokens against transformers (`golden/make_perplexity.py`).

use super::smollm2;
use crate::gpu;
use amk_cuda::{Faults, RunOptions};

#[derive(serde::Deserialize)]
struct Golden {
    tokens: Vec<u32>,
    fp32: Vec<f64>,
    bf16: Vec<f64>,
}

/// `-ln p` of a token.
fn loss(logits: &[f32], token: u32) -> f64 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - highest).exp()).sum();
    sum.ln() - f64::from(logits[token as usize] - highest)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), x| (sum + x, count + 1.0));
    sum / count
}

#[test]
fn perplexity_of_smollm2_is_as_near_to_fp32_as_that_of_transformers_in_bf16() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(2048, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/perplexity_smollm2.json"));
    let Golden { tokens, fp32, bf16 } = serde_json::from_str(&text.expect("the golden file")).expect("golden losses");
    let options = RunOptions { logits: true, ..RunOptions::default() };
    let mut ours = Vec::new();
    for (pos, fed) in (0..).step_by(250).zip(tokens[..tokens.len() - 1].chunks(250)) {
        let run = vm.run(fed, pos, fed.len() as u32, &options, &mut |_| {}).expect("the launch should end");
        let vocab = run.logits.len() / fed.len();
        let next = &tokens[pos as usize + 1..];
        ours.extend(run.logits.chunks(vocab).zip(next).map(|(logits, &token)| loss(logits, token)));
    }
    assert_eq!(ours.len(), fp32.len());
    let perplexity = |losses: &[f64]| mean(losses.iter().copied()).exp();
    let apart = |losses: &[f64]| mean(losses.iter().zip(&fp32).map(|(a, b)| (a - b).powi(2))).sqrt();
    println!(
        "perplexity of {} tokens: {:.4} here, transformers {:.4} in fp32 and {:.4} in bf16; a \
        token's loss is {:.4} off fp32, {:.4} in transformers' bf16",
        ours.len(),
        perplexity(&ours),
        perplexity(&fp32),
        perplexity(&bf16),
        apart(&ours),
        apart(&bf16)
    );
    assert!(apart(&ours) <= apart(&bf16));
    // The means differ by less than chance allows where each token is off by as much as
    // transformers' is.
    let bias = (perplexity(&ours) / perplexity(&fp32)).ln().abs();
    assert!(bias <= 3.0 * apart(&bf16) / (ours.len() as f64).sqrt(), "{bias}");
}
