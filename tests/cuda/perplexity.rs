//! Teacher-forced perplexity over 2,000 tokens against transformers (`golden/make_perplexity.py`).

use super::smollm2;
use crate::gpu;
use amk::Token;
use amk::session::Session;
use amk_cuda::{Faults, RunOptions};
use amk_run::perplexity::loss;

#[derive(serde::Deserialize)]
struct Golden {
    tokens: Vec<u32>,
    fp32: Vec<f64>,
    bf16: Vec<f64>,
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), x| (sum + x, count + 1.0));
    sum / count
}

fn golden() -> Golden {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/perplexity_smollm2.json"));
    serde_json::from_str(&text.expect("the golden file")).expect("golden losses")
}

/// The losses are within `most` times the distance of transformers in bf16 from fp32.
fn compare(ours: &[f64], Golden { fp32, bf16, .. }: &Golden, most: f64) {
    assert_eq!(ours.len(), fp32.len());
    let perplexity = |losses: &[f64]| mean(losses.iter().copied()).exp();
    let apart = |losses: &[f64]| mean(losses.iter().zip(fp32).map(|(a, b)| (a - b).powi(2))).sqrt();
    println!(
        "perplexity of {} tokens: {:.4} here, transformers {:.4} in fp32 and {:.4} in bf16; a \
        token's loss is {:.4} off fp32, {:.4} in transformers' bf16",
        ours.len(),
        perplexity(ours),
        perplexity(fp32),
        perplexity(bf16),
        apart(ours),
        apart(bf16)
    );
    assert!(apart(ours) <= most * apart(bf16));
    // The means differ by less than chance allows where each token is off by as much as
    // transformers' is.
    let bias = (perplexity(ours) / perplexity(fp32)).ln().abs();
    assert!(bias <= 3.0 * apart(bf16) / (ours.len() as f64).sqrt(), "{bias}");
}

#[test]
fn perplexity_of_smollm2_is_as_near_to_fp32_as_that_of_transformers_in_bf16() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(2048, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let golden = golden();
    let options = RunOptions { logits: true, ..RunOptions::default() };
    let mut ours = Vec::new();
    for (pos, fed) in (0..).step_by(250).zip(golden.tokens[..golden.tokens.len() - 1].chunks(250)) {
        let run = vm.run(fed, pos, fed.len() as u32, &options, &mut |_| {}).expect("the launch should end");
        let vocab = run.logits.len() / fed.len();
        let next = &golden.tokens[pos as usize + 1..];
        ours.extend(run.logits.chunks(vocab).zip(next).map(|(logits, &token)| loss(logits, Token(token))));
    }
    compare(&ours, &golden, 1.0);
}

#[test]
fn so_is_that_of_a_prompt_in_rows() {
    let _alone = gpu::alone();
    let (_, model) = match smollm2::load(2048) {
        Ok(loaded) => loaded,
        Err(why) => return println!("skipped: {why}"),
    };
    let golden = golden();
    let mut session = Session::new(smollm2::start_rows(&model, 8, 40).expect("a VM"));
    let (prompt, mut ours) = (session.add(), Vec::new());
    // Another sequence has a row of every step.
    let company = session.add();
    let tokens: Vec<Token> = golden.tokens.iter().copied().map(Token).collect();
    for (fed, number) in tokens[..tokens.len() - 1].chunks(7).zip(0..) {
        session.push(company, &tokens[number..number + 1]).expect("room");
        session.push_draft(prompt, fed).expect("room");
        session.step().expect("the step should end");
        let next = &golden.tokens[ours.len() + 1..];
        let losses: Vec<f64> =
            session.all_logits(prompt).zip(next).map(|(logits, &token)| loss(logits, Token(token))).collect();
        ours.extend(losses);
    }
    // A few tokens make most of the mean square: sums in another order move it by a tenth.
    compare(&ours, &golden, 1.2);
}
