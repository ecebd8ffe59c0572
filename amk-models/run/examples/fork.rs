//! Three answers to one question: the question runs once, and the answers fork from it.
//!
//!     fork FOLDER_OR_GGUF QUESTION

use amk::Token;
use amk::rows::SequenceId;
use amk::session::Session;
use amk::vm::cpu::Vm;
use amk_models::chat::Message;
use amk_run::sampler::{Sampler, SamplerConfig};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

const ANSWER: usize = 40;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, question] = &args[..] else { anyhow::bail!("usage: fork FOLDER_OR_GGUF QUESTION") };
    let model = amk_run::open(path)?;
    let mut session = Session::new(model.vm(4)?);

    // The question, once.
    let prompt = model.prompt(&[Message::new("user", question)])?;
    let prompt: Vec<Token> = prompt.into_iter().map(Token).collect();
    let first = session.add();
    session.push(first, &prompt)?;
    while session.pending(first)? > 0 {
        session.step()?;
    }
    let logits = session.logits(first).context("the question has run")?.to_vec();

    // Three answers, each with a seed of its own.
    let mut answers = BTreeMap::new();
    for seed in 0..3 {
        let id = session.fork(first, prompt.len())?;
        let mut sampler = Sampler::new(SamplerConfig { temperature: 0.9, seed, ..SamplerConfig::default() })?;
        let token = sampler.sample(&logits, &[])?;
        session.push(id, &[Token(token)])?;
        answers.insert(id, (sampler, vec![token]));
    }
    session.drop(first)?;
    while session.ids().next().is_some() {
        for id in session.step()? {
            go_on(&mut session, id, &mut answers, &model.request().stop_tokens)?;
        }
    }
    for (number, (_, tokens)) in answers.values().enumerate() {
        println!("{}: {}", number + 1, model.tokenizer()?.decode(tokens)?);
    }
    Ok(())
}

/// Chooses the next token of an answer, or ends it.
fn go_on(
    session: &mut Session<Vm>,
    id: SequenceId,
    answers: &mut BTreeMap<SequenceId, (Sampler, Vec<u32>)>,
    ends: &[u32],
) -> Result<()> {
    let (sampler, tokens) = answers.get_mut(&id).context("an answer")?;
    let token = sampler.sample(session.logits(id).context("it has run")?, tokens)?;
    if ends.contains(&token) || tokens.len() == ANSWER {
        return Ok(session.drop(id)?);
    }
    tokens.push(token);
    Ok(session.push(id, &[Token(token)])?)
}
