//! The device's choice of the tokens after rows (`kernels/src/choose/rows.cuh`), compiled for this
//! machine, against the CPU's sampler: the same tokens, or none where the search did not decide.
//! Without a C++ compiler it says "skipped".

use crate::native;
use amk::rows::Choice;
use amk_cuda::set::body_sets;
use amk_cuda::{Params, source};
use amk_run::sampler::{Sampler, SamplerConfig, philox};
use core::fmt::Write as _;

/// The word of a row that is left to the host.
const LEFT: u32 = u32::MAX;
const VOCAB: usize = 3000;

/// The worker of `device/rows.cpp`, between the structs and the code.
const WORKER: &str = "
struct Kept {
    float2 running[AMK_WARPS][8];
    float best_value[AMK_WARPS];
    u32 best_index[AMK_WARPS];
    float top_value[TOPS];
    u32 top_index[TOPS];
    Search search;
    Found found[16];
    float scratch[SCRATCH_FLOATS];
    RowWords rows[16];
    u32 token, leave, abandoned;
};
struct Params : DrawParams, RowParams {
    u32 vocab, row_count, forced_count, stop_count, *tokens;
    u32 logit_stride, stops[8];
    const u32* forced;
    float* logits;
    u64* packets;
};
static Params params;
static Kept shared;
struct Worker {
    const Params& p;
    Kept& s;
    u32 warp, lane, epoch;
    u32 thread() const { return warp * 32 + lane; }
    u32 step() const { return 0; }
    float* logits() const { return p.logits; }
    void sync() const { of_block.wait(); }
    void stamp(int) const {}
    void publish(u32, u32) const {}
    u32 read(u32) const { return 0; }
    bool missing(u32, u32) const { return false; }
};
";

struct Row {
    config: SamplerConfig,
    history: Vec<u32>,
    /// Draws before it.
    draws: u64,
    logits: Vec<f32>,
}

impl Row {
    fn sampler(&self) -> Sampler {
        Sampler::after(self.config.clone(), self.draws).expect("a sampler")
    }

    fn choice(&self) -> Choice {
        self.sampler().choices(&self.history, &[]).expect("a choice").remove(0)
    }

    /// The sampler's token, `LEFT` where there is none.
    fn expected(&self) -> u32 {
        self.sampler().sample(&self.logits, &self.history).unwrap_or(LEFT)
    }
}

/// The tokens of steps of rows. A row without a choice keeps its word.
fn run(steps: &[Vec<Option<Row>>]) -> Option<Vec<Vec<u32>>> {
    let (_folder, program) = native::build(&code(), "rows", &["AMK_WORKER_LOGITS=0"])?;
    let sampling = body_sets().into_iter().find_map(|set| set.sampling).expect("the choice of tokens");
    let mut input = String::new();
    for rows in steps {
        let choices: Vec<Option<Choice>> = rows.iter().map(|row| row.as_ref().map(Row::choice)).collect();
        let mut params = Params::default();
        sampling.put_choices(&choices.iter().map(Option::as_ref).collect::<Vec<_>>(), &mut params);
        let words = params.words();
        let _ = writeln!(input, "{} {VOCAB} {}", rows.len(), words.len());
        words.iter().for_each(|word| _ = write!(input, "{word} "));
        let none = vec![0.0; VOCAB];
        for row in rows.iter().rev() {
            let logits = row.as_ref().map_or(&none, |row| &row.logits);
            logits.iter().for_each(|x| _ = write!(input, "{} ", x.to_bits()));
        }
        input.push('\n');
    }
    let text = native::answer(&program, input);
    let words = |line: &str| line.split_whitespace().map(|word| word.parse().expect("a word")).collect();
    Some(text.lines().map(words).collect())
}

/// The code with what it needs of the ABI.
fn code() -> String {
    let abi = format!("{}{}", source::registered_abi(), source::row_abi());
    let [types, bodies]: [String; 2] =
        [&["choose/random.cuh", "choose/search.cuh"][..], &["choose/race.cuh", "choose/fused.cuh", "choose/rows.cuh"]]
            .map(|files| files.iter().map(|file| native::text(file)).collect());
    format!("{abi}{types}{WORKER}{bodies}")
}

/// Logits as of a model that is sure (`steep` high) or not.
fn logits(steep: f32, seed: u64) -> Vec<f32> {
    let normal = |i| {
        let uniform = |lane| (f64::from(philox::word(seed, lane, i)) + 0.5) / 2f64.powi(32);
        ((-2.0 * uniform(1).ln()).sqrt() * (std::f64::consts::TAU * uniform(2)).cos()) as f32
    };
    (0..VOCAB as u32).map(|i| steep * normal(i) + if i % 997 == 3 { 2.0 * steep } else { 0.0 }).collect()
}

#[test]
fn rows_have_the_tokens_of_the_sampler() {
    let filters = [(0, 1.0, 0.0), (1, 1.0, 0.0), (50, 1.0, 0.0), (0, 0.9, 0.0), (20, 0.95, 0.0), (50, 0.9, 0.02)];
    let row = |n: usize, draw: u64| {
        let (top_k, top_p, min_p) = filters[n % filters.len()];
        let temperature = [0.7, 1.6, 0.0][n / filters.len()];
        let changed = n % 2 == draw as usize % 2;
        let config =
            SamplerConfig { temperature, top_k, top_p, min_p, seed: draw << 33 | 5, ..SamplerConfig::default() };
        let penalised = SamplerConfig {
            repetition_penalty: 1.3,
            presence_penalty: 0.4,
            frequency_penalty: 0.2,
            logit_bias: [(17, 3.5), (2999, -4.0), (3, -100.0)].into(),
            ..config.clone()
        };
        let history = (0..300).map(|i| (i * 7 + n as u32) % 997).chain([3, 3, 1000]).collect();
        Row {
            config: if changed { penalised } else { config },
            history,
            draws: draw + 3,
            logits: logits([0.3, 2.5][draw as usize % 2], n as u64 + draw),
        }
    };
    // A row in five is left to the host.
    let step = |draw| (0..18).map(|n| (n % 5 != 4).then(|| row(n, draw))).collect::<Vec<_>>();
    let steps: Vec<_> = (0..3).map(step).collect();
    let Some(found) = run(&steps) else { return println!("skipped: no C++ compiler") };
    let mut drawn = std::collections::BTreeSet::new();
    for (rows, tokens) in steps.iter().zip(&found) {
        assert_eq!(rows.len(), tokens.len());
        for (row, &token) in rows.iter().zip(tokens) {
            let Some(row) = row else { continue };
            assert_eq!(token, row.expected(), "{:?}", row.config);
            drawn.insert(token);
        }
    }
    assert_eq!(found.len(), steps.len());
    assert!(drawn.len() > 10, "{drawn:?}");
}

#[test]
fn the_host_chooses_where_a_logit_is_infinite_none_is_a_number_or_thousands_are_equal() {
    let with = |config: SamplerConfig, logits| Some(Row { config, history: vec![1], draws: 0, logits });
    let greedy = SamplerConfig::default;
    let drawn = |top_k| SamplerConfig { temperature: 1.0, top_k, ..greedy() };
    let mut infinite = logits(1.0, 1);
    infinite[70] = f32::INFINITY;
    let mut holes = logits(2.0, 9);
    holes.iter_mut().step_by(3).for_each(|x| *x = f32::NEG_INFINITY);
    holes.iter_mut().step_by(4).for_each(|x| *x = f32::NAN);
    let steps = [vec![
        with(greedy(), infinite.clone()),
        with(drawn(5), infinite),
        with(greedy(), vec![f32::NAN; VOCAB]),
        with(drawn(0), vec![f32::NEG_INFINITY; VOCAB]),
        with(greedy(), vec![1.5; VOCAB]),
        with(drawn(0), vec![1.5; VOCAB]),
        with(drawn(2500), vec![1.5; VOCAB]),
        with(greedy(), holes.clone()),
        with(drawn(40), holes.clone()),
        with(drawn(0), holes),
    ]];
    let Some(found) = run(&steps) else { return println!("skipped: no C++ compiler") };
    let expected: Vec<u32> = steps[0].iter().flatten().map(Row::expected).collect();
    assert_eq!(expected[..4], [LEFT; 4]);
    let undecided = 6;
    assert!(found[0][undecided] == LEFT || found[0][undecided] == expected[undecided]);
    for (n, (token, expected)) in found[0].iter().zip(&expected).enumerate().filter(|(n, _)| *n != undecided) {
        assert_eq!(token, expected, "row {n}");
    }
}
