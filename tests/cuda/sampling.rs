//! Drawn tokens: the device chooses as the CPU's sampler does from the same logits, in one launch.

use super::smollm2;
use crate::gpu;
use amk::ir::schedule::PartialSchedule;
use amk_cuda::{CudaError, Faults, Run, RunOptions, Vm, VmOptions};
use amk_kernels::fused::Draw;
use amk_run::generate::{generate, generate_on_device};
use amk_run::sampler::{Sampler, SamplerConfig};
use amk_run::text::Request;
use std::collections::HashMap;

fn options(config: &SamplerConfig, draw: u32) -> RunOptions {
    let SamplerConfig { temperature, top_k, top_p, min_p, seed, .. } = *config;
    RunOptions::default().sampled(Draw { temperature, top_k: top_k as u32, top_p, min_p, seed, draw })
}

const FILTERS: [(usize, f32, f32); 9] = [
    (0, 1.0, 0.0),
    (1, 1.0, 0.0),
    (50, 1.0, 0.0),
    (5000, 1.0, 0.0),
    (0, 0.9, 0.0),
    (0, 0.1, 0.0),
    (20, 0.95, 0.0),
    (0, 1.0, 0.05),
    (50, 0.9, 0.02),
];

/// The tokens after row `first` are the CPU sampler's, from the logits of each step.
fn assert_drawn(run: &Run, steps: u32, first: usize, config: &SamplerConfig) {
    let vocab = run.logits.len() / steps as usize;
    let mut sampler = Sampler::new(config.clone()).expect("a sampler");
    for (row, &token) in run.tokens.iter().enumerate().skip(first) {
        let expected = sampler.sample(&run.logits[row * vocab..(row + 1) * vocab], &[]).expect("a draw");
        assert_eq!(token, expected, "after row {row} by {config:?}");
    }
}

#[test]
fn draws_on_the_device_are_those_of_the_cpus_sampler() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(512, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let prompt = [1, 504, 260];
    let (steps, mut undecided) = (130u32, 0);
    let greedy = vm.run(&prompt, 0, steps, &RunOptions::default(), &mut |_| {}).expect("the launch should end");
    println!("greedy: {:.1} us a step", greedy.time.as_secs_f64() * 1e6 / f64::from(steps));
    for (top_k, top_p, min_p) in FILTERS {
        for temperature in [0.7, 1.0, 1.6] {
            let config =
                SamplerConfig { temperature, top_k, top_p, min_p, seed: 7 << 40 | 3, ..SamplerConfig::default() };
            let run = vm
                .run(&prompt, 0, steps, &RunOptions { logits: true, ..options(&config, 0) }, &mut |_| {})
                .expect("the launch should end");
            undecided += u32::from(run.undecided.is_some());
            assert_drawn(&run, steps, prompt.len() - 1, &config);
            let drawn = &run.tokens[prompt.len() - 1..];
            // The same without the logits of every step.
            let again = vm.run(&prompt, 0, steps, &options(&config, 0), &mut |_| {}).expect("the launch should end");
            assert_eq!(again.tokens, run.tokens);
            let seen: std::collections::HashSet<&u32> = drawn.iter().collect();
            let (tokens, micros) = (seen.len(), again.time.as_secs_f64() * 1e6 / f64::from(steps));
            println!(
                "k {top_k} p {top_p} min-p {min_p} at {temperature}: {} draws of {tokens} tokens, \
                {micros:.1} us a step",
                drawn.len()
            );
        }
    }
    println!("{undecided} launches ended undecided");
    assert_eq!(undecided, 0);
}

/// A worker has 6,144 rows of the head, and its scratch room for the noise of fewer.
#[test]
fn workers_draw_from_more_tokens_than_their_scratch_has_room_for() {
    let _alone = gpu::alone();
    let (_, model) = match smollm2::load(512) {
        Ok(loaded) => loaded,
        Err(why) => return println!("skipped: {why}"),
    };
    let schedule = PartialSchedule { workers: Some(8), ..PartialSchedule::default() };
    let mut vm = smollm2::start(&model, &VmOptions { schedule: Some(schedule), ..VmOptions::default() }).expect("a VM");
    let (prompt, steps) = ([1, 504, 260], 20);
    for (top_k, top_p, min_p) in FILTERS {
        let config = SamplerConfig { temperature: 1.3, top_k, top_p, min_p, seed: 9, ..SamplerConfig::default() };
        let run = vm
            .run(&prompt, 0, steps, &RunOptions { logits: true, ..options(&config, 0) }, &mut |_| {})
            .expect("the launch should end");
        assert_eq!(run.undecided, None, "{config:?}");
        assert_drawn(&run, steps, prompt.len() - 1, &config);
    }
}

/// Draws of one step with other seeds, against the exact probabilities after top-k and top-p:
/// Pearson's chi-square.
#[test]
fn frequencies_of_draws_on_the_device_follow_the_probabilities() {
    let _alone = gpu::alone();
    let mut vm = match smollm2::vm(64, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let (top_k, top_p, temperature) = (30, 0.9f32, 1.0);
    let config = SamplerConfig { temperature, top_k, top_p, ..SamplerConfig::default() };
    let logits = vm.step(504, 0).expect("a step").to_vec();
    let mut ranking: Vec<u32> = (0..logits.len() as u32).collect();
    ranking.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    ranking.truncate(top_k);
    let weight = |&token: &u32| f64::from((logits[token as usize] - logits[ranking[0] as usize]) / temperature).exp();
    let wanted = f64::from(top_p) * ranking.iter().map(weight).sum::<f64>();
    let mut mass = 0.0;
    let kept: Vec<(u32, f64)> = ranking
        .iter()
        .map(|token| (*token, weight(token)))
        .take_while(|(_, weight)| {
            let goes_on = mass < wanted;
            mass += weight;
            goes_on
        })
        .collect();
    let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
    let draws = 4000u32;
    let mut counts: HashMap<u32, u32> = HashMap::new();
    for seed in 0..draws {
        let config = SamplerConfig { seed: u64::from(seed) << 20, ..config.clone() };
        let run = vm.run(&[504], 0, 1, &options(&config, 0), &mut |_| {}).expect("the launch should end");
        *counts.entry(run.tokens[0]).or_default() += 1;
    }
    let mut square = 0.0;
    for (token, weight) in &kept {
        let expected = weight / total * f64::from(draws);
        let count = f64::from(counts.remove(token).unwrap_or(0));
        square += (count - expected).powi(2) / expected;
    }
    assert!(counts.is_empty(), "tokens outside the nucleus: {counts:?}");
    // The square's mean is the degrees of freedom, its variance twice that; 5 deviations are beyond
    // chance.
    let freedom = (kept.len() - 1) as f64;
    println!("{draws} draws of {} tokens: chi-square {square:.1} with {freedom} degrees of freedom", kept.len());
    assert!(kept.len() > 5 && (square - freedom).abs() < 5.0 * (2.0 * freedom).sqrt());
}

/// Where all logits are equal, the search finds no level between them.
#[test]
fn a_draw_that_is_not_decided_is_said() {
    let _alone = gpu::alone();
    let model = match smollm2::load_flat(64) {
        Ok(model) => model,
        Err(why) => return println!("skipped: {why}"),
    };
    let mut vm = match smollm2::start(&model, &VmOptions::default()) {
        Ok(vm) => vm,
        Err(error @ (CudaError::NoDriver | CudaError::NoDevice)) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let config = SamplerConfig { temperature: 1.0, top_k: 12, ..SamplerConfig::default() };
    let run = vm.run(&[504], 0, 40, &options(&config, 0), &mut |_| {}).expect("the launch should end");
    let logits = run.undecided.expect("the draw of one in thousands");
    assert_eq!(logits, vec![0.0; model.bindings.weights()["w.ends.lm_head"].rows()]);
    println!("undecided after {} draws", run.tokens.len());
    let mut sampler = Sampler::new(config).expect("a sampler");
    let expected: Vec<u32> = run.tokens.iter().map(|_| sampler.sample(&logits, &[]).expect("a draw")).collect();
    assert_eq!(run.tokens, expected);
}

/// One launch gives the text that sampling on the host gives, token by token.
#[test]
fn texts_of_one_launch_are_those_of_the_host() {
    let _alone = gpu::alone();
    let (checkpoint, _) = match smollm2::load(64) {
        Ok(model) => model,
        Err(why) => return println!("skipped: {why}"),
    };
    let mut vm: Vm = match smollm2::vm(512, Faults::default()) {
        Ok(vm) => vm,
        Err(why) => return println!("skipped: {why}"),
    };
    let tokenizer = checkpoint.tokenizer().expect("a tokenizer");
    for (top_k, top_p, temperature) in [(50, 0.9, 0.8), (0, 0.95, 1.2), (12, 1.0, 50.0)] {
        let sampler = SamplerConfig { temperature, top_k, top_p, seed: 5, ..SamplerConfig::default() };
        let request = Request { sampler, max_tokens: Some(60), stop_tokens: vec![2], ..Request::default() };
        let prompt = [504, 260, 3575];
        let host = generate(&mut vm, tokenizer, &prompt, request.clone(), &mut |_| Ok(())).expect("a text");
        let device = generate_on_device(&mut vm, tokenizer, &prompt, request, &mut |_| Ok(())).expect("a text");
        assert_eq!((device.tokens, device.ended), (host.tokens, host.ended));
    }
}
