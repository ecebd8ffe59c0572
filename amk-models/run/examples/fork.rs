//! Three answers to one question: the question runs once, and the answers fork from it.
//!
//!     fork FOLDER_OR_GGUF QUESTION

use amk::Token;
use amk::ir::schedule::{RowSchedule, Schedule};
use amk::registry::Registry;
use amk::rows::SequenceId;
use amk::session::Session;
use amk::vm::cpu::{Options, Vm};
use amk_models::chat::{ChatOptions, Message};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat};
use amk_models::tokenizer::{SpecialTokens, Tokenizer};
use amk_run::sampler::{Sampler, SamplerConfig};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::path::Path;

const CONTEXT: usize = 512;
const ANSWER: usize = 40;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, question] = &args[..] else { anyhow::bail!("usage: fork FOLDER_OR_GGUF QUESTION") };
    let mut checkpoint = Checkpoint::open(Path::new(path))?;
    let tensors = std::mem::take(&mut checkpoint.tensors);
    let model = Model::load(&checkpoint.config, tensors, CONTEXT, WeightFormat::Native, &mut |_| {})?;
    let tokenizer = checkpoint.tokenizer()?;

    let rows = Some(RowSchedule { most: 64, block: None });
    let verified =
        model.family.kernel.verified(&model.instance, Some(&Schedule { workers: 2, rows, ..Schedule::default() }))?;
    let options = Options { pages: Some(32), ..Options::default() };
    let mut session = Session::new(Vm::with(verified, &model.bindings, &Registry::linked()?, options)?);

    // The question, once.
    let prompt = prompt(&checkpoint, tokenizer, question)?;
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
            go_on(&mut session, id, &mut answers, &checkpoint.config.eos)?;
        }
    }
    for (number, (_, tokens)) in answers.values().enumerate() {
        println!("{}: {}", number + 1, tokenizer.decode(tokens)?);
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

fn prompt(checkpoint: &Checkpoint, tokenizer: &Tokenizer, question: &str) -> Result<Vec<Token>> {
    let tokens = match &checkpoint.chat_template {
        Some(template) => {
            let options = ChatOptions::answer();
            let text = template.render(&[Message::new("user", question)], &options)?;
            tokenizer.encode(&text, SpecialTokens::AsWritten)?
        }
        None => tokenizer.encode(question, SpecialTokens::Add)?,
    };
    Ok(tokens.into_iter().map(Token).collect())
}
