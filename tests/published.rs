//! GGUF files that Python packages ship, against Hugging Face transformers in fp32 on the same
//! weights. `tests/golden/make_published.py` joins them from their parts; a file that is not in
//! `$AMK_PUBLISHED`, else `~/.cache/amk-golden`, is skipped.

use crate::models::{Case, compare, golden_folder, load, vm};
use amk::Token;
use amk::ir::schedule::{RowSchedule, Schedule};
use amk::session::Session;
use amk::vm::cpu::Mode;
use amk_run::perplexity::{Windows, perplexity};
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Golden {
    models: Vec<Published>,
}

#[derive(Deserialize)]
struct Published {
    file: String,
    cases: Vec<Case>,
    passage: Passage,
}

#[derive(Deserialize)]
struct Passage {
    tokens: Vec<u32>,
    mean_nll: f64,
}

#[test]
fn gemma_3_270m_gives_the_tokens_and_losses_of_transformers() {
    gives_the_tokens_and_losses("gemma-3-270m-q4_k_m.gguf");
}

#[test]
fn qwen2_5_coder_0_5b_gives_the_tokens_and_losses_of_transformers() {
    gives_the_tokens_and_losses("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
}

fn gives_the_tokens_and_losses(file: &str) {
    let Some(path) = found(file) else {
        println!("skipped: {file} is not there");
        return;
    };
    let text = std::fs::read_to_string(golden_folder().join("published.json")).expect("the golden file");
    let golden: Golden = serde_json::from_str(&text).expect("models");
    let published = golden.models.iter().find(|published| published.file == file).expect("the file's results");
    let model = load(&path, 128);
    for case in &published.cases {
        compare(&mut vm(&model, &Schedule { workers: 2, ..Schedule::default() }, Mode::Threads), case);
    }
    let rows = Some(RowSchedule { most: 64, block: None });
    let schedule = Schedule { workers: 2, rows, ..Schedule::default() };
    let tokens: Vec<Token> = published.passage.tokens.iter().copied().map(Token).collect();
    let mut session = Session::new(vm(&model, &schedule, Mode::Threads));
    let windows = Windows { context: tokens.len(), stride: tokens.len() - 1 };
    let mean = perplexity(&mut session, &tokens, windows, &mut |_| {}).expect("the steps should run").mean();
    let expected = published.passage.mean_nll;
    assert!((mean - expected).abs() < 1e-5, "{mean} nats, transformers {expected}");
}

fn found(file: &str) -> Option<PathBuf> {
    let cache = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/amk-golden"));
    let folder = std::env::var_os("AMK_PUBLISHED").map(PathBuf::from).or_else(cache)?;
    Some(folder.join(file)).filter(|path| path.exists())
}
