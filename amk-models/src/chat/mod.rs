//! Chat templates: from a conversation to the prompt format that a model was trained on.
//!
//! Templates are Jinja programs that come with a checkpoint. They are rendered as transformers
//! renders them (`utils/chat_template_utils.py`): blocks trimmed, Jinja2's filters, Python's
//! methods, `raise_exception`, `strftime_now`, `generation` blocks, and numbers and JSON written as
//! Python writes them. A template is not trusted: it sees nothing but its arguments, its source has
//! limits, and it runs on a budget.

mod bounded;
mod budget;
mod checks;
mod content;
mod jinja2;
mod limits;
mod padding;
mod percent_format;
mod python_float;
mod python_json;
mod python_methods;
mod python_text;
mod role;
mod source;
mod strftime;
mod tags;

pub use content::{Content, ContentError, ContentPart};
pub use role::RoleError;

use budget::Budget;
use jiff::Zoned;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::Builder;

/// Maximum number of instructions that a template may execute, including checks. A thousand
/// messages take a few millions if a template searches all of them for each one.
const FUEL: u64 = 10_000_000;
const NAME: &str = "chat template";
/// Several times what the deepest template within the limits needs.
const STACK_SIZE: usize = 16 << 20;

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
    /// Further ones, by the names that templates have for them (`sep_token`, `image_token`).
    #[serde(flatten)]
    pub more: BTreeMap<String, String>,
}

/// A chat template and the special tokens it may write.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
    tool_use: Option<String>,
    tokens: TokenTexts,
}

/// A template that is invalid, or that refuses a conversation.
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

impl From<limits::LimitError> for ChatError {
    fn from(error: limits::LimitError) -> Self {
        Self { reason: error.to_string() }
    }
}

impl ChatTemplate {
    /// A template from its source, which is parsed when it is rendered: a checkpoint without chat
    /// works with a broken template.
    pub fn new(source: String, tokens: TokenTexts) -> Self {
        Self { source, tool_use: None, tokens }
    }

    /// Returns the same with the source of a template for conversations with tools.
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

    /// Returns the prompt of a conversation. It contains the special tokens that it needs, so
    /// encode it [as written](crate::tokenizer::SpecialTokens::AsWritten).
    ///
    /// # Errors
    /// [`ChatError`] if the template does not parse, refuses the conversation, uses an undefined
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
        let source = source::prepared(&self.source)?;
        let budget = Budget::for_arguments(&arguments)?;
        let environment = environment(budget)?;
        on_large_stack(|| Ok(environment.template_from_named_str(NAME, &source)?.render(arguments)?))
    }
}

/// Runs `render` on a separate thread: minijinja recurses over a template, and it panics if nothing
/// remains after slicing from the end, as in `''[::-1]`.
fn on_large_stack(render: impl FnOnce() -> Result<String, ChatError> + Send) -> Result<String, ChatError> {
    std::thread::scope(|scope| {
        let thread = Builder::new().name(NAME.to_owned()).stack_size(STACK_SIZE).spawn_scoped(scope, render);
        let thread = thread.map_err(|error| ChatError { reason: format!("it has no thread: {error}") })?;
        thread.join().unwrap_or_else(|_| Err(ChatError { reason: "it makes minijinja panic".to_owned() }))
    })
}

fn environment<'a>(budget: Budget) -> Result<Environment<'a>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    // It writes all variables, and Jinja2 has no such function.
    environment.remove_global("debug");
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", |format: &str| strftime::format(&Zoned::now(), format));
    jinja2::add_to(&mut environment);
    add_budgeted(&mut environment, &Arc::new(budget));
    Ok(environment)
}

/// Adds the functions and filters that create values of any size.
fn add_budgeted(environment: &mut Environment<'_>, budget: &Arc<Budget>) {
    bounded::add_to(environment, budget);
    let of = || Arc::clone(budget);
    let budget = of();
    environment.set_formatter(move |output, _, value| {
        budget.check(value)?;
        let text = python_text::str(value);
        budget.take(text.len())?;
        Ok(output.write_str(&text)?)
    });
    let budget = of();
    environment.set_unknown_method_callback(move |state, value, method, arguments| {
        bounded::check_method(&budget, value, method, arguments)?;
        bounded::checked(&budget, python_methods::call(state, value, method, arguments)?)
    });
    let budget = of();
    environment
        .add_filter("tojson", move |value: &Value, arguments: Kwargs| python_json::filter(&budget, value, arguments));
    let budget = of();
    environment.add_filter(checks::CHECKED, move |values: &Value, text: usize, new: bool| -> Result<bool, Error> {
        let size = budget.check(values)?;
        budget.take(if new { text + size } else { text })?;
        Ok(false)
    });
    let budget = of();
    environment.add_filter(checks::NO_NAMESPACE, move |value: Value| {
        budget.check(&value)?;
        budget::without_namespace(value)
    });
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}
