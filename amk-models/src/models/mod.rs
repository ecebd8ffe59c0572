//! The models: each is an annotated function of about a page, with the names of its tensors and
//! settings in checkpoints.

pub mod arcee;
pub mod cohere;
pub mod cohere2;
pub mod exaone4;
pub mod gemma;
pub mod gemma2;
pub mod gemma3;
pub mod glm4;
pub mod gpt_neox;
pub mod granite;
pub mod kv;
pub mod lfm2;
pub mod llama;
pub mod mistral;
pub mod nemotron;
pub mod olmo2;
pub mod olmo3;
pub mod parts;
pub mod phi;
pub mod qwen2;
pub mod qwen3;
pub mod smollm3;
pub mod stablelm;
pub mod starcoder2;

use crate::import::Import;

/// The kinds of checkpoints of all families.
pub fn imports() -> impl Iterator<Item = &'static Import> {
    let families = [
        llama::IMPORTS,
        qwen2::IMPORTS,
        qwen3::IMPORTS,
        olmo2::IMPORTS,
        granite::IMPORTS,
        stablelm::IMPORTS,
        starcoder2::IMPORTS,
        glm4::IMPORTS,
        gemma::IMPORTS,
        gemma2::IMPORTS,
        gemma3::IMPORTS,
        smollm3::IMPORTS,
        olmo3::IMPORTS,
        cohere2::IMPORTS,
        lfm2::IMPORTS,
        arcee::IMPORTS,
        nemotron::IMPORTS,
        cohere::IMPORTS,
        phi::IMPORTS,
        exaone4::IMPORTS,
        gpt_neox::IMPORTS,
    ];
    families.into_iter().flatten()
}
