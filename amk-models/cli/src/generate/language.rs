//! What the texts of `amk generate` may be.

use super::prompts::without_mark;
use amk_models::checkpoint::Checkpoint;
use amk_run::grammar::{Grammar, Grammars, Language};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

/// A language from a file.
#[derive(clap::Args)]
pub(super) struct LanguageArgs {
    /// Write JSON that fits the schema in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "grammar")]
    json_schema: Option<PathBuf>,
    /// Write a text of the grammar in this file, in Lark's syntax.
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
}

impl LanguageArgs {
    /// The language that is asked for, and its file.
    fn language(&self) -> Result<Option<(&Path, Language)>> {
        let read = |file: &Path| {
            std::fs::read_to_string(file).with_context(|| format!("cannot read the file {}", file.display()))
        };
        match (&self.json_schema, &self.grammar) {
            (Some(file), _) => {
                let schema = serde_json::from_str(without_mark(&read(file)?));
                let schema = schema.with_context(|| format!("{} is not JSON", file.display()))?;
                Ok(Some((file, Language::JsonSchema { schema, strict: true })))
            }
            (None, Some(file)) => Ok(Some((file, Language::Lark(read(file)?)))),
            (None, None) => Ok(None),
        }
    }

    /// The grammar of the language that is asked for, in the model's tokens.
    pub(super) fn grammar(&self, checkpoint: &Checkpoint) -> Result<Option<Grammar>> {
        let Some((file, language)) = self.language()? else { return Ok(None) };
        let grammars = Grammars::new(checkpoint.tokenizer()?.clone(), checkpoint.stop_tokens());
        Ok(Some(grammars.compile(&language).with_context(|| file.display().to_string())?))
    }
}
