//! Tokens after the rows of a step, chosen on the device: as by the CPU's sampler from the same
//! logits, whatever the company.

use super::smollm2;
use crate::gpu;
use amk::Token;
use amk::rows::{Outcome, SequenceId};
use amk::session::Session;
use amk_cuda::RowsVm;
use amk_run::sampler::{Sampler, SamplerConfig};
use half::bf16;
use std::collections::BTreeMap;
use std::time::Duration;

/// Positions of the context.
const CONTEXT: usize = 256;
/// Tokens of a text.
const LENGTH: usize = 60;

/// How the text of row `n` is chosen; another `company` has other texts.
fn config(n: u64, company: u64) -> SamplerConfig {
    let filters = [(0, 1.0, 0.0), (1, 1.0, 0.0), (50, 1.0, 0.0), (0, 0.9, 0.0), (20, 0.95, 0.0), (50, 0.9, 0.02)];
    let (top_k, top_p, min_p) = filters[(n + company) as usize % filters.len()];
    let temperature = [0.0, 0.7, 1.0, 1.6][(n + 3 * company) as usize % 4];
    let changed = (n + company) % 3 == 1;
    SamplerConfig {
        temperature,
        top_k,
        top_p,
        min_p,
        seed: 7 << 40 | company << 20 | n,
        repetition_penalty: if changed { 1.2 } else { 1.0 },
        frequency_penalty: if changed { 0.3 } else { 0.0 },
        logit_bias: if changed { [(28, 2.5), (260, -3.0)].into() } else { BTreeMap::new() },
        ..SamplerConfig::default()
    }
}

/// A text on its way.
struct Text {
    sampler: Sampler,
    history: Vec<u32>,
}

/// Texts side by side, one a row, chosen on the device or by the host, and the time of the steps on
/// the device.
fn texts(session: &mut Session<RowsVm>, configs: &[SamplerConfig], on_device: bool) -> (Vec<Vec<u32>>, Duration) {
    let mut texts: BTreeMap<SequenceId, Text> = BTreeMap::new();
    for (config, n) in configs.iter().zip(0..) {
        let sampler = Sampler::new(config.clone()).expect("a sampler");
        texts.insert(session.add(), Text { sampler, history: vec![504 + n % 7] });
    }
    let (mut time, mut left) = (Duration::ZERO, 0);
    for _ in 0..LENGTH {
        for (&id, Text { sampler, history }) in &mut texts {
            let choices = sampler.choices(history, &[]).filter(|_| on_device).unwrap_or_default();
            session.push_choosing(id, &[Token(history[history.len() - 1])], &choices).expect("there is room");
        }
        assert_eq!(session.step().expect("a step").len(), texts.len());
        time += session.device_time().unwrap_or_default();
        for (&id, Text { sampler, history }) in &mut texts {
            let token = match session.outcomes(id).next().expect("a wanted row") {
                Outcome::Token(token) => sampler.take(token),
                Outcome::Logits(logits) => {
                    left += u32::from(on_device);
                    sampler.sample(logits, history).expect("a draw")
                }
            };
            history.push(token);
        }
    }
    assert_eq!(left, 0, "draws are decided on the device");
    let ids: Vec<SequenceId> = texts.keys().copied().collect();
    ids.into_iter().for_each(|id| session.drop(id).expect("it exists"));
    (texts.into_values().map(|text| text.history).collect(), time / LENGTH as u32)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[test]
fn tokens_after_rows_are_those_of_the_hosts_sampler_in_any_company() {
    let _alone = gpu::alone();
    let (_, model) = match smollm2::load(CONTEXT) {
        Ok(loaded) => loaded,
        Err(why) => return println!("skipped: {why}"),
    };
    let vm = smollm2::start_rows(&model, 32, 200).expect("the GPU has room");
    let mut session = Session::new(vm);
    assert!(session.chooses());
    for rows in [8, 32] {
        let of = |company| -> Vec<SamplerConfig> {
            (0..rows).map(|n| config(n, if n % 8 == 3 { 0 } else { company })).collect()
        };
        let (device, device_time) = texts(&mut session, &of(0), true);
        let (host, host_time) = texts(&mut session, &of(0), false);
        for (n, (device, host)) in device.iter().zip(&host).enumerate() {
            assert_eq!(device, host, "row {n} of {rows}: {:?}", config(n as u64, 0));
        }
        let (other, _) = texts(&mut session, &of(1), true);
        for n in (3..rows as usize).step_by(8) {
            assert_eq!(other[n], device[n], "row {n} of {rows} in another company");
        }
        assert!((0..rows as usize).any(|n| other[n] != device[n]), "the company is another");
        let greedy = vec![SamplerConfig::default(); rows as usize];
        let (_, greedy_time) = texts(&mut session, &greedy, true);
        println!(
            "{rows} rows: {:.1} us a step on the device with logits, {:.1} with greedy tokens, {:.1} with draws",
            micros(host_time),
            micros(greedy_time),
            micros(device_time)
        );
    }
    // A row to itself has a program of its own, where no logit is changed.
    for config in (0..8).filter(|n| n % 3 != 1).map(|n| config(n, 0)) {
        let of_one = [config];
        let [device, host] = [true, false].map(|on_device| texts(&mut session, &of_one, on_device));
        assert!(session.vm().ran().program().rows.is_none(), "the program of one row");
        assert_eq!(device.0, host.0, "{of_one:?} alone");
        println!(
            "a row: {:.1} us a step on the device with logits, {:.1} with tokens",
            micros(host.1),
            micros(device.1)
        );
    }
    // Kept alike, steps of up to 8 rows have one program, so a text is the one that it is alone.
    session.keep_alike(true);
    for n in 0..8 {
        let (alone, _) = texts(&mut session, &[config(n, 0)], true);
        let company: Vec<SamplerConfig> = (0..8).map(|m| config(if m == 0 { n } else { m + 8 }, 0)).collect();
        let (beside, _) = texts(&mut session, &company, true);
        assert_eq!(alone[0], beside[0], "{:?}", config(n, 0));
    }
}

/// Where all logits are equal, the search finds no level between them: the row's logits are there.
#[test]
fn a_row_whose_draw_is_not_decided_has_its_logits() {
    let _alone = gpu::alone();
    let model = match smollm2::load_flat(64) {
        Ok(model) => model,
        Err(why) => return println!("skipped: {why}"),
    };
    let mut session = Session::new(smollm2::start_rows(&model, 8, 20).expect("the GPU has room"));
    let drawn = SamplerConfig { temperature: 1.0, top_k: 12, ..SamplerConfig::default() };
    let configs = [SamplerConfig::default(), drawn, SamplerConfig { temperature: 1.0, ..SamplerConfig::default() }];
    let ids = configs.clone().map(|config| {
        let id = session.add();
        let mut sampler = Sampler::new(config).expect("a sampler");
        session.push_choosing(id, &[Token(504)], &sampler.choices(&[504], &[]).expect("a choice")).expect("room");
        id
    });
    session.step().expect("a step");
    let outcomes: Vec<Outcome<'_>> = ids.iter().filter_map(|&id| session.outcomes(id).next()).collect();
    assert_eq!(outcomes[0], Outcome::Token(Token(0)), "the lowest of equals");
    let zeros = vec![0.0; model.bindings.weights()["w.ends.lm_head"].rows()];
    let expected = |n: usize| Sampler::new(configs[n].clone()).expect("a sampler").sample(&zeros, &[504]);
    match outcomes[1] {
        Outcome::Logits(logits) => assert_eq!(logits, zeros),
        Outcome::Token(token) => assert_eq!(Ok(token.0), expected(1)),
    }
    assert!(matches!(outcomes[2], Outcome::Token(token) if Ok(token.0) == expected(2)), "{:?}", outcomes[2]);
    // The same in a step of its own.
    for (config, id) in configs.iter().zip(ids) {
        let mut sampler = Sampler::new(config.clone()).expect("a sampler");
        session.rollback(id, 0).expect("it exists");
        session.push_choosing(id, &[Token(504)], &sampler.choices(&[504], &[]).expect("a choice")).expect("room");
        session.step().expect("a step");
        assert!(session.vm().ran().program().rows.is_none(), "the program of one row");
        let expected = Sampler::new(config.clone()).expect("a sampler").sample(&zeros, &[504]);
        match session.outcomes(id).next().expect("a wanted row") {
            Outcome::Logits(logits) => assert_eq!(logits, zeros),
            Outcome::Token(token) => assert_eq!(Ok(token.0), expected),
        }
    }
}

/// In steps of one row and of two.
#[test]
fn a_row_without_finite_logits_has_them() {
    let _alone = gpu::alone();
    for weight in [bf16::NAN, bf16::INFINITY] {
        let model = match smollm2::load_with_head(64, weight) {
            Ok(model) => model,
            Err(why) => return println!("skipped: {why}"),
        };
        let mut session = Session::new(smollm2::start_rows(&model, 8, 20).expect("the GPU has room"));
        let drawn = SamplerConfig { temperature: 1.0, ..SamplerConfig::default() };
        for config in [SamplerConfig::default(), drawn.clone(), SamplerConfig { top_k: 12, top_p: 0.9, ..drawn }] {
            for rows in [1, 2] {
                let ids = [session.add(), session.add()];
                for &id in &ids[..rows] {
                    let choices = Sampler::new(config.clone()).expect("a sampler").choices(&[504], &[]);
                    session.push_choosing(id, &[Token(504)], &choices.expect("a choice")).expect("room");
                }
                session.step().expect("a step");
                assert_eq!(session.vm().ran().program().rows.is_none(), rows == 1, "the program");
                for id in &ids[..rows] {
                    match session.outcomes(*id).next().expect("a wanted row") {
                        Outcome::Logits(logits) => assert!(logits.iter().all(|logit| !logit.is_finite())),
                        Outcome::Token(token) => panic!("{token:?} of {weight}, {config:?}, {rows} rows"),
                    }
                }
                ids.into_iter().for_each(|id| session.drop(id).expect("it exists"));
            }
        }
    }
}
