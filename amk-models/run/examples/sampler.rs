//! A custom sampler: the likeliest token that is not among the last eight.
//!
//!     sampler MODEL TEXT

use amk::Token;
use amk::session::Session;
use amk_models::tokenizer::SpecialTokens;
use anyhow::{Context as _, Result, bail};

const TOKENS: usize = 40;

fn choose(logits: &[f32], before: &[u32]) -> Option<u32> {
    let recent = &before[before.len().saturating_sub(8)..];
    let allowed = (0..).zip(logits).filter(|(token, _)| !recent.contains(token));
    allowed.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(token, _)| token)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, text] = &args[..] else { bail!("usage: sampler MODEL TEXT") };
    let model = amk_run::open(name)?;
    let tokenizer = model.tokenizer()?;
    let mut session = Session::new(model.vm(1)?);
    let id = session.add();
    let mut tokens = tokenizer.encode(text, SpecialTokens::Add)?;
    let prompt = tokens.len();
    session.push(id, &tokens.iter().copied().map(Token).collect::<Vec<_>>())?;
    while tokens.len() < prompt + TOKENS {
        while session.pending(id)? > 0 {
            session.step()?;
        }
        let logits = session.logits(id).context("the tokens have run")?;
        let token = choose(logits, &tokens).context("a vocabulary of more than eight tokens")?;
        tokens.push(token);
        session.push(id, &[Token(token)])?;
    }
    println!("{text}{}", tokenizer.decode(&tokens[prompt..])?);
    Ok(())
}
