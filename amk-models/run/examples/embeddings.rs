//! How alike texts are to the first, by the cosines of their embeddings.
//!
//!     embeddings MODEL TEXT..

use amk_models::tokenizer::SpecialTokens;
use amk_run::embedding::{Embedder, Pooling};
use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let model = amk_run::open(&args.next().context("usage: embeddings MODEL TEXT..")?)?;
    let mut embedder = Embedder::new(&model, Pooling::Mean)?;
    let mut embed =
        |text: &str| -> Result<Vec<f32>> { Ok(embedder.embed(&model.tokenizer()?.encode(text, SpecialTokens::Add)?)?) };
    let first = embed(&args.next().context("a text")?)?;
    for text in args {
        let cosine: f32 = embed(&text)?.iter().zip(&first).map(|(a, b)| a * b).sum();
        println!("{cosine:.3} {text}");
    }
    Ok(())
}
