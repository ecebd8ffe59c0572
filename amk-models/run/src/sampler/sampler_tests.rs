//! Properties of the sampler: filters keep what they say, frequencies follow probabilities, seeds
//! decide.

use proptest::prelude::*;

use super::*;

fn config(temperature: f32) -> SamplerConfig {
    SamplerConfig { temperature, ..SamplerConfig::default() }
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|logit| f64::from(logit - highest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Ids by probability, lower ids first among equals.
fn ranking(probabilities: &[f64]) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..probabilities.len() as u32).collect();
    ids.sort_by(|&a, &b| probabilities[b as usize].total_cmp(&probabilities[a as usize]).then(a.cmp(&b)));
    ids
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    // Quarters, so that equal logits are common.
    prop::collection::vec((-40..40_i32).prop_map(|quarter| quarter as f32 / 4.0), 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn greedy_takes_the_first_of_the_highest(logits in logits()) {
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let first = logits.iter().position(|&logit| logit == highest).unwrap();
        let mut sampler = Sampler::new(config(0.0)).unwrap();
        prop_assert_eq!(sampler.sample(&logits, &[]), Ok(first as u32));
    }

    #[test]
    fn top_k_keeps_the_k_likeliest(logits in logits(), k in 1_usize..40, seed: u64) {
        let kept = &ranking(&softmax(&logits))[..k.min(logits.len())];
        let mut sampler = Sampler::new(SamplerConfig { top_k: k, seed, ..config(2.0) }).unwrap();
        for _ in 0..8 {
            prop_assert!(kept.contains(&sampler.sample(&logits, &[]).unwrap()));
        }
    }

    #[test]
    fn top_p_keeps_the_shortest_head_that_reaches_p(logits in logits(), p in 0.01_f32..0.999, seed: u64) {
        let probabilities = softmax(&logits);
        let mut before = 0.0;
        // A token is in the head when those before it do not reach p; the margin is for rounding.
        let kept: Vec<u32> = ranking(&probabilities).into_iter().take_while(|&id| {
            let inside = before < f64::from(p) + 1e-6;
            before += probabilities[id as usize];
            inside
        }).collect();
        let mut sampler = Sampler::new(SamplerConfig { top_p: p, seed, ..config(1.0) }).unwrap();
        for _ in 0..8 {
            prop_assert!(kept.contains(&sampler.sample(&logits, &[]).unwrap()));
        }
    }

    #[test]
    fn min_p_keeps_what_is_near_the_likeliest(logits in logits(), min_p in 0.01_f32..1.0, seed: u64) {
        let probabilities = softmax(&logits);
        let highest = probabilities.iter().copied().fold(0.0, f64::max);
        let mut sampler = Sampler::new(SamplerConfig { min_p, seed, ..config(1.0) }).unwrap();
        for _ in 0..8 {
            let id = sampler.sample(&logits, &[]).unwrap();
            prop_assert!(probabilities[id as usize] >= f64::from(min_p) * highest * 0.9999);
        }
    }

    #[test]
    fn any_logits_give_a_token_or_an_error(
        logits in prop::collection::vec(any::<f32>(), 0..80),
        temperature in 0.0_f32..3.0,
        top_k in 0_usize..20,
        top_p in 0.01_f32..=1.0,
        history in prop::collection::vec(0_u32..100, 0..10),
    ) {
        let config = SamplerConfig { top_k, top_p, repetition_penalty: 1.3, ..config(temperature) };
        match Sampler::new(config).unwrap().sample(&logits, &history) {
            Ok(id) => prop_assert!((id as usize) < logits.len()),
            Err(error) => prop_assert_eq!(error, SamplerError::NoFiniteLogit { count: logits.len() }),
        }
    }

    #[test]
    fn same_seed_same_tokens(logits in logits(), seed: u64) {
        let draw = || {
            let mut sampler = Sampler::new(SamplerConfig { seed, ..config(1.5) }).unwrap();
            (0..10).map(|_| sampler.sample(&logits, &[]).unwrap()).collect::<Vec<_>>()
        };
        prop_assert_eq!(draw(), draw());
    }

    #[test]
    fn stops_do_not_depend_on_the_pieces(text in "[abc]{0,40}", cuts in prop::collection::vec(1_usize..5, 0..40)) {
        let stops = ["abc".to_owned(), "bb".to_owned()];
        let end = stops.iter().filter_map(|stop| text.find(stop)).min();
        let mut watch = StopStrings::new(stops);
        let (mut given, mut rest, mut stopped) = (String::new(), text.as_str(), false);
        for cut in cuts.into_iter().chain(std::iter::repeat(1)) {
            if rest.is_empty() || stopped {
                break;
            }
            let (piece, tail) = rest.split_at(cut.min(rest.len()));
            let out = watch.push(piece);
            given.push_str(&out.text);
            (rest, stopped) = (tail, out.stopped);
        }
        prop_assert_eq!(stopped, end.is_some());
        if !stopped {
            given.push_str(&watch.finish());
        }
        prop_assert_eq!(given, &text[..end.unwrap_or(text.len())]);
    }
}

#[test]
fn frequencies_follow_probabilities() {
    let logits = [1.0, 0.0, -1.0, 2.0];
    let temperature = 0.8;
    let scaled = logits.map(|logit: f32| logit / temperature);
    let draws = 40_000;
    let mut counts = [0_u32; 4];
    let mut sampler = Sampler::new(SamplerConfig { seed: 11, ..config(temperature) }).unwrap();
    for _ in 0..draws {
        counts[sampler.sample(&logits, &[]).unwrap() as usize] += 1;
    }
    for (count, probability) in counts.iter().zip(softmax(&scaled)) {
        let frequency = f64::from(*count) / f64::from(draws);
        let standard_error = (probability * (1.0 - probability) / f64::from(draws)).sqrt();
        assert!((frequency - probability).abs() < 4.0 * standard_error, "{frequency} for {probability}");
    }
}

#[test]
fn a_repeated_token_is_penalised_once() {
    let config = SamplerConfig { repetition_penalty: 2.0, ..config(0.0) };
    let mut sampler = Sampler::new(config).unwrap();
    // 3 / 2 is below 2; -1 * 2 is below -1.5; penalised twice, 3 would be below 1.
    assert_eq!(sampler.sample(&[3.0, 2.0], &[0, 0]), Ok(1));
    assert_eq!(sampler.sample(&[3.0, 1.0], &[0, 0]), Ok(0));
    assert_eq!(sampler.sample(&[-1.0, -1.5], &[0, 7]), Ok(1));
}

/// The token that a sampler takes greedily after a prompt of token 0.
fn taken(config: SamplerConfig, logits: &[f32], count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(config).unwrap();
    let mut history = vec![0];
    for _ in 0..count {
        let token = sampler.sample(logits, &history).unwrap();
        history.push(token);
    }
    history.split_off(1)
}

#[test]
fn presence_is_penalised_once_and_frequency_each_time_but_not_in_the_prompt() {
    let logits = [3.0, 2.0, 1.5];
    let presence = SamplerConfig { presence_penalty: 1.25, ..config(0.0) };
    // 3; then 1.75, 2, 1.5; then 1.75, 0.75, 1.5, and so it stays.
    assert_eq!(taken(presence, &logits, 5), [0, 1, 0, 0, 0]);
    let frequency = SamplerConfig { frequency_penalty: 0.75, ..config(0.0) };
    // 3; 2.25; then 1.5, 2, 1.5; then 1.5, 1.25, 1.5; then 0.75, 1.25, 1.5.
    assert_eq!(taken(frequency, &logits, 5), [0, 0, 1, 0, 2]);
    let rewarded = SamplerConfig { frequency_penalty: -2.0, logit_bias: [(2, 2.0)].into(), ..config(0.0) };
    assert_eq!(taken(rewarded, &logits, 4), [2, 2, 2, 2]);
}

#[test]
fn a_sampler_that_goes_on_knows_what_was_chosen() {
    let config = SamplerConfig { frequency_penalty: 0.75, ..config(0.0) };
    let mut after = Sampler::after(config, 2).unwrap();
    assert_eq!(after.sample(&[3.0, 2.0, 1.5], &[1, 1, 0, 0]), Ok(1));
}

#[test]
fn a_bias_is_added_to_the_logits_of_its_tokens() {
    let biased = |bias: &[(u32, f32)]| {
        let config = SamplerConfig { logit_bias: bias.iter().copied().collect(), ..config(0.0) };
        Sampler::new(config).unwrap().sample(&[1.0, 2.0, -1.0], &[])
    };
    assert_eq!(biased(&[(1, -100.0)]), Ok(0));
    assert_eq!(biased(&[(2, 3.5)]), Ok(2));
    assert_eq!(biased(&[(7, 100.0)]), Ok(1), "a token that is not there");
    let draws = SamplerConfig { logit_bias: [(1, -100.0), (0, -100.0)].into(), ..config(2.0) };
    let mut sampler = Sampler::new(draws).unwrap();
    assert!((0..100).all(|_| sampler.sample(&[1.0, 2.0, -1.0], &[]) == Ok(2)));
}

#[test]
fn impossible_logits_are_never_chosen() {
    let logits = [f32::NAN, f32::NEG_INFINITY, 0.0, f32::NAN];
    let mut sampler = Sampler::new(config(5.0)).unwrap();
    assert!((0..100).all(|_| sampler.sample(&logits, &[]) == Ok(2)));
    assert_eq!(sampler.sample(&[f32::NAN; 3], &[]), Err(SamplerError::NoFiniteLogit { count: 3 }));
    assert_eq!(sampler.sample(&[f32::NEG_INFINITY; 2], &[]), Err(SamplerError::NoFiniteLogit { count: 2 }));
}

#[test]
fn an_infinite_logit_is_named() {
    let mut sampler = Sampler::new(config(1.0)).unwrap();
    let error = sampler.sample(&[0.0, 1.0, f32::INFINITY], &[]).unwrap_err();
    assert_eq!(error.to_string(), "the logit of token 2 is infinite");
}

#[test]
fn a_penalty_that_makes_logits_infinite_is_named() {
    let sample = |penalty: f32, logits: &[f32]| {
        let penalised = SamplerConfig { repetition_penalty: penalty, ..config(0.0) };
        Sampler::new(penalised).unwrap().sample(logits, &[0, 1])
    };
    for (penalty, logits) in [(1e-39, [2.0, -1.0]), (f32::MAX, [-2.0, -3.0])] {
        assert_eq!(sample(penalty, &logits), Err(SamplerError::Penalty { penalty }));
    }
    assert_eq!(sample(1e-39, &[f32::NAN; 2]), Err(SamplerError::NoFiniteLogit { count: 2 }));
    assert_eq!(sample(f32::MAX, &[-2.0, 3.0]), Ok(1), "another token is left");
}

#[test]
fn parameters_outside_their_range_are_refused() {
    let wrong = [
        SamplerConfig { temperature: -1.0, ..config(0.0) },
        SamplerConfig { temperature: f32::NAN, ..config(0.0) },
        SamplerConfig { top_p: 0.0, ..config(0.0) },
        SamplerConfig { top_p: 1.5, ..config(0.0) },
        SamplerConfig { min_p: -0.1, ..config(0.0) },
        SamplerConfig { repetition_penalty: 0.0, ..config(0.0) },
        SamplerConfig { presence_penalty: 2.1, ..config(0.0) },
        SamplerConfig { frequency_penalty: -2.1, ..config(0.0) },
        SamplerConfig { logit_bias: [(3, 101.0)].into(), ..config(0.0) },
        SamplerConfig { logit_bias: [(3, f32::NAN)].into(), ..config(0.0) },
    ];
    for config in wrong {
        assert!(matches!(Sampler::new(config.clone()), Err(SamplerError::Parameter { .. })), "{config:?}");
    }
}
