//! The constraints that a request puts on its texts.

use crate::error::ApiError;
use crate::fields::Fields;
use amk_run::grammar::{GrammarError, Language};
use serde_json::Value;

/// The fields that constrain a text. `response_format` is OpenAI's; the others are as in llama.cpp
/// and vLLM.
#[derive(Debug)]
pub(crate) struct LanguageFields {
    response_format: Option<Value>,
    json_schema: Option<Value>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    /// In Lark's syntax.
    grammar: Option<String>,
}

/// A language, and the field that asks for it.
pub(crate) type Asked = (&'static str, Language);

impl LanguageFields {
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        Ok(Self {
            response_format: fields.take("response_format")?,
            json_schema: fields.either("json_schema", "guided_json")?,
            regex: fields.either("regex", "guided_regex")?,
            choice: fields.either("choice", "guided_choice")?,
            grammar: fields.either("grammar", "guided_grammar")?,
        })
    }

    /// The language that is asked for, if one is.
    ///
    /// # Errors
    /// More than one, or an unsupported format.
    pub(crate) fn language(&self) -> Result<Option<Asked>, ApiError> {
        let schema = |schema: &Value| Language::JsonSchema { schema: schema.clone(), strict: true };
        let format = self.response_format.as_ref().map(response_format).transpose()?.flatten();
        let fields = [
            ("response_format", format),
            ("json_schema", self.json_schema.as_ref().map(schema)),
            ("regex", self.regex.clone().map(Language::Regex)),
            ("choice", self.choice.clone().map(Language::Choice)),
            ("grammar", self.grammar.clone().map(Language::Lark)),
        ];
        let mut asked = fields.into_iter().filter_map(|(field, language)| Some((field, language?)));
        let first = asked.next();
        match asked.next() {
            Some((second, _)) => {
                let first = first.map_or("", |(field, _)| field);
                Err(ApiError::invalid(second, format!("`{second}` and `{first}` exclude each other")))
            }
            None => Ok(first),
        }
    }
}

/// The error for the language that a field, or one of its functions, asks for, with advice for the
/// client.
pub(crate) fn refused(field: &'static str, function: Option<&str>, error: &GrammarError) -> ApiError {
    let of = function.map(|name| format!("the function `{name}`: ")).unwrap_or_default();
    let may_be_lenient = ["response_format", "tools"].contains(&field);
    let remedy = match error {
        GrammarError::NotEnforced(_) if may_be_lenient => "; `strict: false` does without it",
        _ => "",
    };
    ApiError::invalid(field, format!("{of}{error}{remedy}"))
}

fn response_format(format: &Value) -> Result<Option<Language>, ApiError> {
    let invalid = |message: String| ApiError::invalid("response_format", message);
    match format.get("type").and_then(Value::as_str) {
        _ if format.is_null() => Ok(None),
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(match format.get("schema").filter(|schema| !schema.is_null()) {
            // As in llama.cpp.
            Some(schema) => Language::JsonSchema { schema: schema.clone(), strict: false },
            None => Language::JsonObject,
        })),
        Some("json_schema") => {
            let named = &format["json_schema"];
            let schema = named.get("schema");
            let missing = || invalid("`response_format.json_schema.schema` is missing".to_owned());
            let strict = named["strict"] == Value::Bool(true);
            Ok(Some(Language::JsonSchema { schema: schema.ok_or_else(missing)?.clone(), strict }))
        }
        _ => {
            let types = "`text`, `json_object` or `json_schema`";
            Err(invalid(format!("`response_format.type` is {}, expected {types}", format["type"])))
        }
    }
}
