//! Answers several questions in one batch; each answer is the same as if its question ran alone.
//!
//!     batch MODEL QUESTION..

use amk_models::chat::Message;
use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let model = amk_run::open(&args.next().context("usage: batch MODEL QUESTION..")?)?;
    let questions: Vec<String> = args.collect();
    let mut session = model.session_of(questions.len())?;
    session.request.max_tokens = Some(40);
    let prompt = |question: &String| model.prompt(&[Message::new("user", question)]);
    let prompts = questions.iter().map(prompt).collect::<Result<Vec<_>, _>>()?;
    let written = session.write(&prompts, &mut |_, _| Ok(()))?;
    for (question, written) in questions.iter().zip(written) {
        println!("{question}\n  {}", written.text);
    }
    Ok(())
}
