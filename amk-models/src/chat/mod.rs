//! Chat templates: from a conversation to the prompt a model was trained on.
//!
//! Templates are Jinja programs that come with a checkpoint. They are rendered as transformers
//! renders them (`utils/chat_template_utils.py`): blocks trimmed, Jinja2's filters, Python's
//! methods, `raise_exception`, `strftime_now`, `generation` blocks, and a `tojson` that writes JSON
//! as Python does. A template is not trusted: it sees nothing but its arguments and runs on a
//! budget.

mod content;
mod generation_block;
mod jinja2;
mod padding;
mod percent_format;
mod python_json;
mod python_methods;
mod role;
mod strftime;

pub use content::{Content, ContentError, ContentPart};
pub use role::RoleError;

use jiff::Zoned;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use std::borrow::Cow;

/// Instructions a template may execute; a long conversation takes some thousands.
const FUEL: u64 = 2_000_000;
const NAME: &str = "chat template";

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// Further fields that a template understands, such as `tool_calls`.
    #[serde(flatten)]
    pub more: Map<String, serde_json::Value>,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), more: Map::new() }
    }
}

/// The inputs of a template other than the conversation.
#[derive(Clone, Debug, Default)]
pub struct ChatOptions {
    /// Whether to end with the opening of the assistant's turn, so that the model answers.
    pub add_generation_prompt: bool,
    /// Functions that the model may call, as OpenAI's API has them.
    pub tools: Vec<serde_json::Value>,
    /// Further variables that a template understands, such as `enable_thinking` of Qwen3.
    pub variables: Map<String, serde_json::Value>,
}

impl ChatOptions {
    /// For a prompt that the model answers.
    pub fn answer() -> Self {
        Self { add_generation_prompt: true, ..Self::default() }
    }
}

/// The texts of the special tokens that a template may write. Those that are `None` are undefined
/// in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenTexts {
    /// The token that starts a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bos_token: Option<String>,
    /// The token that ends a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos_token: Option<String>,
    /// The token for unknown text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unk_token: Option<String>,
    /// The token that fills a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_token: Option<String>,
}

/// A chat template and the special tokens it may write.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    tool_use: Option<String>,
    tokens: TokenTexts,
}

/// A template that is wrong, or that refuses a conversation.
#[derive(Debug, thiserror::Error)]
#[error("chat template: {reason}")]
pub struct ChatError {
    reason: String,
}

impl From<Error> for ChatError {
    fn from(error: Error) -> Self {
        let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        let reason = match error.line() {
            // An error raised by the template itself is meant for the user and needs no location.
            Some(line) if error.kind() != ErrorKind::InvalidOperation => format!("{message} (line {line})"),
            _ => message,
        };
        Self { reason }
    }
}

impl ChatTemplate {
    /// A template from its source, which is parsed when it is rendered: a checkpoint without chat
    /// works with a broken template.
    pub fn new(source: String, tokens: TokenTexts) -> Self {
        Self { source, tool_use: None, tokens }
    }

    /// The same with the source of a template for conversations with tools.
    #[must_use]
    pub fn with_tool_use(self, source: Option<String>) -> Self {
        Self { tool_use: source, ..self }
    }

    /// The template for a conversation with tools or without: some checkpoints have two.
    pub fn for_tools(&self, tools: bool) -> Cow<'_, Self> {
        match &self.tool_use {
            Some(source) if tools => Cow::Owned(Self::new(source.clone(), self.tokens.clone())),
            _ => Cow::Borrowed(self),
        }
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The texts of the special tokens that it may write.
    pub fn tokens(&self) -> &TokenTexts {
        &self.tokens
    }

    /// The prompt of a conversation. It contains the special tokens it needs: encode it
    /// [as written](crate::tokenizer::SpecialTokens::AsWritten).
    ///
    /// # Errors
    /// [`ChatError`] when the template does not parse, refuses the conversation, uses an undefined
    /// name, or runs too long.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, ChatError> {
        // Templates take an empty list for tools.
        let tools = if options.tools.is_empty() { Value::from(()) } else { Value::from(Serde(&options.tools)) };
        let arguments = context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => options.add_generation_prompt,
            tools,
            documents => (),
            ..context! { ..Value::from(Serde(&self.tokens)), ..Value::from(Serde(&options.variables)) }
        };
        let source = generation_block::as_scope(&self.source);
        Ok(environment()?.template_from_named_str(NAME, &source)?.render(arguments)?)
    }
}

fn environment<'a>() -> Result<Environment<'a>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(python_methods::call);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", |format: &str| strftime::format(&Zoned::now(), format));
    environment.add_filter("tojson", to_json);
    jinja2::add_to(&mut environment);
    Ok(environment)
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// `tojson` with the arguments of Python's `json.dumps` that templates use.
fn to_json(value: &Value, arguments: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    let ensure_ascii: Option<bool> = arguments.get("ensure_ascii")?;
    let sort_keys: Option<bool> = arguments.get("sort_keys")?;
    arguments.assert_all_used()?;
    let ensure_ascii = ensure_ascii == Some(true);
    let written = match sort_keys {
        Some(true) => serde_json::to_value(value).and_then(|mut json| {
            json.sort_all_objects();
            python_json::dumps(&json, indent, ensure_ascii)
        }),
        _ => python_json::dumps(value, indent, ensure_ascii),
    };
    let text = written.map_err(|error| Error::new(ErrorKind::BadSerialization, format!("tojson: {error}")))?;
    Ok(Value::from_safe_string(text))
}
