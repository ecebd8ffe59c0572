//! Goes on from a text:
//!
//!     text MODEL TEXT
//!
//! MODEL is a folder, a GGUF file or a model of the hub, here and in the other examples.

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, text] = &args[..] else { bail!("usage: text MODEL TEXT") };
    let model = amk_run::open(name)?;
    let mut session = model.session()?;
    session.request.max_tokens = Some(40);
    println!("{text}{}", session.complete(text)?);
    Ok(())
}
