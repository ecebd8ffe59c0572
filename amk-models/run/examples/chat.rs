//! Answers a message a line of standard input; each answer is seen as it comes.
//!
//!     chat MODEL

use anyhow::{Context as _, Result};
use std::io::{Write as _, stdin, stdout};

fn main() -> Result<()> {
    let name = std::env::args().nth(1).context("usage: chat MODEL")?;
    let model = amk_run::open(&name)?;
    let mut session = model.session()?;
    session.request.max_tokens = Some(200);
    for message in stdin().lines() {
        session.answer_to(&message?, &mut |piece| {
            print!("{piece}");
            stdout().flush()
        })?;
        println!();
    }
    Ok(())
}
