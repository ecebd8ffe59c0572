//! Prompts: the tokens that a model gets for a completion or a chat.

use crate::error::ApiError;
use crate::request::{Completion, PromptField};
use crate::tools::{self, Tools};
use amk_models::chat::{ChatError, ChatOptions, ChatTemplate};
use amk_models::tokenizer::{SpecialTokens, Tokenizer};

/// How a model is prompted.
pub(crate) struct Prompts<'s> {
    pub(crate) tokenizer: &'s Tokenizer,
    pub(crate) template: Option<&'s ChatTemplate>,
}

impl Prompts<'_> {
    /// The prompts of a completion.
    ///
    /// # Errors
    /// No prompt, or one that cannot be encoded; tools.
    pub(crate) fn of_completion(&self, request: &mut Completion) -> Result<Vec<Vec<u32>>, ApiError> {
        request.tools.refuse()?;
        let missing = || ApiError::invalid("prompt", "a completion needs a `prompt`");
        let prompts = self.tokens("prompt", request.prompt.take().ok_or_else(missing)?)?;
        if prompts.is_empty() { Err(missing()) } else { Ok(prompts) }
    }

    /// The tokens of each text of a field.
    ///
    /// # Errors
    /// A text that cannot be encoded, or a token that does not exist.
    pub(crate) fn tokens(&self, field: &'static str, texts: PromptField) -> Result<Vec<Vec<u32>>, ApiError> {
        let encode = |text: &str| self.encode(field, text, SpecialTokens::Add);
        match texts {
            PromptField::Text(text) => Ok(vec![encode(&text)?]),
            PromptField::Tokens(tokens) => Ok(vec![self.known(field, tokens)?]),
            PromptField::Texts(texts) => texts.iter().map(|text| encode(text)).collect(),
            PromptField::TokensOfTexts(texts) => texts.into_iter().map(|tokens| self.known(field, tokens)).collect(),
        }
    }

    /// The prompt of a chat, and the tools that its answer may call.
    ///
    /// # Errors
    /// No messages, a model without a template, or one that refuses them.
    pub(crate) fn of_chat(&self, request: &mut Completion) -> Result<(Vec<u32>, Option<Tools>), ApiError> {
        let turns = request.messages.take().filter(|turns| !turns.is_empty());
        let turns = turns.ok_or_else(|| ApiError::invalid("messages", "a chat needs `messages`"))?;
        let none = || ApiError::invalid("messages", "the model has no chat template; ask for a completion");
        let template = self.template.ok_or_else(none)?;
        let tools = request.tools.tools(template)?;
        let template = &*template.for_tools(tools.is_some());
        let messages = turns.into_iter().map(|turn| turn.message(template)).collect::<Result<_, _>>()?;
        let options = ChatOptions { variables: request.variables.take().unwrap_or_default(), ..ChatOptions::answer() };
        let (messages, options) = tools::place(tools.as_ref(), template, messages, options);
        let refused = |error: ChatError| ApiError::invalid("messages", error.to_string());
        let prompt = template.render(&messages, &options).map_err(refused)?;
        Ok((self.encode("messages", &prompt, SpecialTokens::AsWritten)?, tools))
    }

    /// The tokens of a text in a field.
    ///
    /// # Errors
    /// A text that the tokenizer refuses.
    pub(crate) fn encode(&self, field: &'static str, text: &str, special: SpecialTokens) -> Result<Vec<u32>, ApiError> {
        self.tokenizer.encode(text, special).map_err(|error| ApiError::invalid(field, error.to_string()))
    }

    /// Tokens that are all in the vocabulary.
    ///
    /// # Errors
    /// One is not.
    pub(crate) fn known(&self, field: &'static str, tokens: Vec<u32>) -> Result<Vec<u32>, ApiError> {
        let count = self.tokenizer.token_count();
        match tokens.iter().find(|&&token| token as usize >= count) {
            Some(token) => Err(ApiError::invalid(field, format!("token {token} is outside the vocabulary of {count}"))),
            None => Ok(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_token_without_an_embedding_is_refused_as_text_and_as_a_number() {
        let json = r#"{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2}, "unk_token": "a"}}"#;
        let mut tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json.as_bytes()).unwrap();
        tokenizer.limit_to_vocabulary(2);
        let prompts = Prompts { tokenizer: &tokenizer, template: None };
        let tokens = |field| prompts.tokens("prompt", field).map_err(|error| error.json()["error"]["message"].clone());
        assert_eq!(tokens(PromptField::Tokens(vec![0, 1])), Ok(vec![vec![0, 1]]));
        assert_eq!(tokens(PromptField::Tokens(vec![0, 2])), Err("token 2 is outside the vocabulary of 2".into()));
        assert!(tokens(PromptField::Text("c".to_owned())).is_err());
    }
}
