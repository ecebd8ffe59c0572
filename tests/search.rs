//! The device's search for a draw (`kernels/src/choose/search.cuh`), compiled for this machine,
//! against the CPU's sampler: the same token, or none where the rounds did not decide it. Without a
//! C++ compiler it says "skipped".

use crate::native;
use amk_run::sampler::{Sampler, SamplerConfig, philox};
use core::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The device's word for "no token".
const NOBODY: u32 = u32::MAX;

struct Case {
    config: SamplerConfig,
    logits: Vec<f32>,
}

/// Logits as of a model that is sure (`steep` high) or not.
fn logits(tokens: u32, steep: f32, seed: u64) -> Vec<f32> {
    let normal = |i| {
        let uniform = |lane| (f64::from(philox::word(seed, lane, i)) + 0.5) / 2f64.powi(32);
        ((-2.0 * uniform(1).ln()).sqrt() * (std::f64::consts::TAU * uniform(2)).cos()) as f32
    };
    // A few tokens stand out, as in text.
    (0..tokens).map(|i| steep * normal(i) + if i % 997 == 3 { 2.0 * steep } else { 0.0 }).collect()
}

fn run(cases: &[Case]) -> Option<Vec<(u32, u32)>> {
    let (_folder, program) = native::build(native::file("choose/search.cuh"), "search", &[])?;
    let mut input = String::new();
    for Case { config, logits } in cases {
        let SamplerConfig { temperature, top_k, top_p, min_p, seed, .. } = config;
        let _ = writeln!(input, "{} 7 {top_k} {top_p} {min_p} {temperature}", logits.len());
        logits.iter().for_each(|x| _ = write!(input, "{x:?} "));
        let noise = |i| -philox::exponential(*seed, 0, i).ln();
        (0..).zip(logits).for_each(|(i, x)| _ = write!(input, "{:?} ", x / temperature + noise(i)));
        input.push('\n');
    }
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it should start");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it should end");
    writer.join().expect("the writer").expect("all should be read");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
    Some(
        text.lines()
            .map(|line| {
                let mut words = line.split(' ');
                (number(words.next()), number(words.next()))
            })
            .collect(),
    )
}

#[test]
fn the_search_finds_the_samplers_draw() {
    let mut cases = Vec::new();
    for draw in 0..40 {
        for (top_k, top_p, min_p) in [
            (1, 1.0, 0.0),
            (50, 1.0, 0.0),
            (3000, 1.0, 0.0),
            (0, 0.1, 0.0),
            (0, 0.9, 0.0),
            (0, 0.999, 0.0),
            (20, 0.95, 0.0),
            (400, 0.3, 0.0),
            (0, 1.0, 0.05),
            (50, 0.9, 0.02),
        ] {
            for (steep, temperature) in [(0.3, 1.0), (1.0, 0.7), (2.5, 1.0), (4.0, 2.0)] {
                let config = SamplerConfig { temperature, top_k, top_p, min_p, seed: draw, ..SamplerConfig::default() };
                cases.push(Case { config, logits: logits(5000, steep, draw / 2) });
            }
        }
    }
    let Some(found) = run(&cases) else { return println!("skipped: no C++ compiler") };
    let (mut undecided, mut rounds) = (0, [0u32; 7]);
    for (Case { config, logits }, &(token, took)) in cases.iter().zip(&found) {
        let expected =
            Sampler::new(config.clone()).and_then(|mut sampler| sampler.sample(logits, &[])).expect("a draw");
        rounds[took as usize] += 1;
        undecided += u32::from(token == NOBODY);
        assert!(token == NOBODY || token == expected, "{config:?}: {token} is not {expected}");
    }
    println!("{} draws, {undecided} undecided; by rounds: {rounds:?}", found.len());
    assert_eq!(found.len(), cases.len());
    assert!(undecided * 500 <= cases.len() as u32, "{undecided} of {} undecided", cases.len());
}

/// Undecidable comparisons are reported, and the others are right: equal logits everywhere, and NaN
/// logits.
#[test]
fn equal_and_missing_logits_end_in_a_draw_or_in_nobody() {
    let equal = |top_k| Case {
        config: SamplerConfig { temperature: 1.0, top_k, ..SamplerConfig::default() },
        logits: vec![1.5; 5000],
    };
    let mut holes = logits(5000, 2.0, 9);
    holes.iter_mut().step_by(3).for_each(|x| *x = f32::NEG_INFINITY);
    holes[7] = f32::NAN;
    let config = SamplerConfig { temperature: 0.8, top_k: 40, top_p: 0.9, ..SamplerConfig::default() };
    let cases = [equal(2500), equal(1), Case { config, logits: holes }];
    let Some(found) = run(&cases) else { return println!("skipped: no C++ compiler") };
    for (Case { config, logits }, &(token, _)) in cases.iter().zip(&found) {
        let expected =
            Sampler::new(config.clone()).and_then(|mut sampler| sampler.sample(logits, &[])).expect("a draw");
        assert!(token == NOBODY || token == expected, "{config:?}: {token} is not {expected}");
    }
    assert_ne!(found[2].0, NOBODY);
}
