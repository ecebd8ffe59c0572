//! Functions that a model may ask its client to call.
//!
//! ```text
//! tools, tool_choice ─► Tools ─► prompt: the chat template's own way, or a system message
//!                         ├────► language: where a call is required, the text is one
//!                         └────► Reader: text and calls of an answer
//! ```

mod prompt;
mod reader;

pub(crate) use prompt::place;
pub(crate) use reader::{Call, Part, Reader};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::language::Asked;
use amk_models::chat::ChatTemplate;
use amk_run::grammar::{GrammarError, Language};
use serde::Deserialize;
use serde_json::{Value, json};

/// The fields of a request that are about tools.
#[derive(Debug)]
pub(crate) struct ToolFields {
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Choice>,
    parallel_tool_calls: Option<bool>,
}

/// A tool in the form of OpenAI's API.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a tool")]
struct Tool {
    #[serde(rename = "type")]
    kind: String,
    function: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected `none`, `auto`, `required` or a function")]
enum Choice {
    Mode(String),
    Named { function: Named },
}

#[derive(Clone, Debug, Deserialize)]
struct Named {
    name: String,
}

/// How a model writes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// `<tool_call>{"name": .., "arguments": ..}</tool_call>`, as Hermes and Qwen.
    Tagged,
    /// `{"name": .., "parameters": ..}` and nothing else, as Llama 3.
    Bare,
}

impl Form {
    /// The form that a template asks for.
    fn of(template: &ChatTemplate) -> Self {
        let source = template.source();
        let bare = source.contains("\"parameters\"") && !source.contains("<tool_call>");
        if knows_tools(template) && bare { Self::Bare } else { Self::Tagged }
    }

    /// The field with the arguments.
    fn arguments(self) -> &'static str {
        match self {
            Self::Tagged => "arguments",
            Self::Bare => "parameters",
        }
    }
}

/// Whether a template writes tools itself.
fn knows_tools(template: &ChatTemplate) -> bool {
    template.source().contains("tools")
}

/// The tools of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    /// The functions, each with `name`, and `description` and `parameters` where it has them.
    functions: Vec<Value>,
    form: Form,
    /// Whether the answer is a call.
    required: bool,
    /// Whether it may be several.
    parallel: bool,
}

impl ToolFields {
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        Ok(Self {
            tools: fields.take("tools")?,
            tool_choice: fields.take("tool_choice")?,
            parallel_tool_calls: fields.take("parallel_tool_calls")?,
        })
    }

    /// Refuses tools where the answer is none in a chat.
    ///
    /// # Errors
    /// There are some.
    pub(crate) fn refuse(&self) -> Result<(), ApiError> {
        match self.tools {
            Some(_) => Err(ApiError::invalid("tools", "`tools` is for chats")),
            None => Ok(()),
        }
    }

    /// The tools that the answer may call, if there are any.
    ///
    /// # Errors
    /// A tool that is not a function, or a choice that is not there.
    pub(crate) fn tools(&self, template: &ChatTemplate) -> Result<Option<Tools>, ApiError> {
        let functions: Vec<Value> = self.tools.iter().flatten().map(Tool::function).collect::<Result<_, _>>()?;
        let (functions, required) = match &self.tool_choice {
            Some(Choice::Mode(mode)) if mode == "none" => return Ok(None),
            Some(_) if functions.is_empty() => {
                return Err(ApiError::invalid("tool_choice", "`tool_choice` needs `tools`"));
            }
            Some(Choice::Mode(mode)) if mode == "required" => (functions, true),
            Some(Choice::Mode(mode)) if mode != "auto" => {
                let expected = "`none`, `auto`, `required` or a function";
                return Err(ApiError::invalid(
                    "tool_choice",
                    format!("`tool_choice` is `{mode}`, expected {expected}"),
                ));
            }
            Some(Choice::Named { function: Named { name } }) => {
                let named = functions.into_iter().find(|function| function["name"] == **name);
                let unknown = || ApiError::invalid("tool_choice", format!("`tools` has no function `{name}`"));
                (vec![named.ok_or_else(unknown)?], true)
            }
            _ => (functions, false),
        };
        let parallel =
            self.parallel_tool_calls != Some(false) && !matches!(self.tool_choice, Some(Choice::Named { .. }));
        let tools = Tools { functions, form: Form::of(template), required, parallel };
        Ok(Some(tools).filter(|tools| !tools.functions.is_empty()))
    }
}

impl Tool {
    fn function(&self) -> Result<Value, ApiError> {
        let Self { kind, function } = self;
        let function = function.as_ref().filter(|_| kind == "function").ok_or_else(|| {
            ApiError::invalid("tools", format!("a tool of type `{kind}` is not supported; expected `function`"))
        })?;
        match function["name"].as_str() {
            Some(name) if !name.is_empty() => Ok(function.clone()),
            _ => Err(ApiError::invalid("tools", "a function needs a `name`")),
        }
    }
}

impl Tools {
    /// The reader of an answer's text.
    pub(crate) fn reader(&self) -> Reader {
        let names = self.functions.iter().filter_map(|function| function["name"].as_str()).map(str::to_owned);
        Reader::new(self.form, names.collect(), self.parallel)
    }

    /// The name of each function, and the language of its calls.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = (&str, Language)> {
        let named = self.functions.iter().filter_map(|function| Some((function, function["name"].as_str()?)));
        named.map(|(function, name)| {
            let schema = self.schema(function);
            (name, Language::JsonSchema { schema, strict: false })
        })
    }

    /// The language of an answer: calls where they are required; else what is `asked` for, or
    /// calls.
    ///
    /// # Errors
    /// A language that excludes calls.
    pub(crate) fn language(&self, asked: Option<Asked>) -> Result<Option<Asked>, ApiError> {
        let invalid = |error: GrammarError| ApiError::invalid("tools", error.to_string());
        let calls = self.calls().map_err(invalid)?;
        let (field, answer) = match asked {
            _ if self.required => return Ok(Some(("tools", Language::Lark(format!("start: calls\n{calls}"))))),
            None => return Ok(None),
            Some((field, Language::JsonObject)) => (field, json!({ "type": "object" })),
            Some((field, Language::JsonSchema { schema, .. })) => (field, schema),
            Some((field, _)) => {
                let message = format!("`{field}` excludes `tools`; set `tool_choice` to `none`");
                return Err(ApiError::invalid(field, message));
            }
        };
        let answer = Language::json_rule(answer).map_err(|error| ApiError::invalid(field, error.to_string()))?;
        Ok(Some((field, Language::Lark(format!("start: answer | calls\nanswer: {answer}\n{calls}")))))
    }

    /// The rules of calls.
    fn calls(&self) -> Result<String, GrammarError> {
        let functions = self.functions.iter().enumerate();
        let rule = |(number, function)| {
            let schema = self.schema(function);
            Language::json_rule(schema).map(|rule| format!("call{number}: {rule}\n"))
        };
        let rules = functions.clone().map(rule).collect::<Result<String, GrammarError>>()?;
        let calls: Vec<String> = functions.map(|(number, _)| format!("call{number}")).collect();
        let calls = calls.join(" | ");
        Ok(match self.form {
            Form::Tagged => {
                let more = if self.parallel { " (\"\\n\" tagged)*" } else { "" };
                format!("calls: tagged{more}\ntagged: \"<tool_call>\\n\" ({calls}) \"\\n</tool_call>\"\n{rules}")
            }
            Form::Bare => format!("calls: {calls}\n{rules}"),
        })
    }

    /// The schema of a call of a function.
    fn schema(&self, function: &Value) -> Value {
        let arguments = self.form.arguments();
        // A function that declares none has no parameters.
        let mut parameters = match function.get("parameters").filter(|parameters| parameters.is_object()) {
            Some(parameters) => parameters.clone(),
            None => json!({ "type": "object", "properties": {} }),
        };
        // A function has the parameters that it declares, unless it says otherwise.
        if let Some(object) = parameters.as_object_mut().filter(|object| object.contains_key("properties")) {
            object.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        let mut schema = json!({
            "type": "object", "required": ["name", arguments], "additionalProperties": false,
            "properties": { "name": { "const": function["name"] } },
        });
        // References begin at the root.
        for definitions in ["$defs", "definitions"] {
            if let Some(definitions_of) = parameters.as_object_mut().and_then(|object| object.remove(definitions)) {
                schema[definitions] = definitions_of;
            }
        }
        schema["properties"][arguments] = parameters;
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amk_models::chat::TokenTexts;

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(source.to_owned(), TokenTexts::default())
    }

    fn tools(choice: Value, template_source: &str) -> Result<Option<Tools>, String> {
        let function = |name: &str| json!({ "type": "function", "function": { "name": name } });
        let mut fields = Fields::of(json!({ "tools": [function("add"), function("mul")], "tool_choice": choice }));
        let read = ToolFields::read(&mut fields).and_then(|fields| fields.tools(&template(template_source)));
        read.map_err(|error| error.json()["error"]["message"].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_choice_says_which_functions_there_are_and_whether_one_is_called() {
        let of = |choice: Value| {
            tools(choice, "").map(|tools| tools.map(|tools| (tools.functions.len(), tools.required, tools.parallel)))
        };
        assert_eq!(of(Value::Null), Ok(Some((2, false, true))));
        assert_eq!(of(json!("auto")), Ok(Some((2, false, true))));
        assert_eq!(of(json!("required")), Ok(Some((2, true, true))));
        assert_eq!(of(json!("none")), Ok(None));
        let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
        assert_eq!(of(named("mul")), Ok(Some((1, true, false))));
        assert_eq!(of(named("div")), Err("`tools` has no function `div`".to_owned()));
        assert!(of(json!("any")).unwrap_err().starts_with("`tool_choice` is `any`, expected"));
    }

    #[test]
    fn a_template_says_how_calls_are_written() {
        let form = |source: &str| tools(Value::Null, source).unwrap().unwrap().form;
        assert_eq!(form(""), Form::Tagged);
        assert_eq!(form("{{ tools }}<tool_call>{{ tool.parameters }}"), Form::Tagged);
        assert_eq!(form(r#"{{ tools }} {"name": function name, "parameters": dictionary}"#), Form::Bare);
    }

    #[test]
    fn arguments_are_the_parameters_and_their_definitions_are_found_from_the_root() {
        let properties = json!({ "on": { "$ref": "#/$defs/day" } });
        let parameters = json!({ "$defs": { "day": {} }, "properties": properties });
        let tools = tools(json!("required"), "").unwrap().unwrap();
        let schema = tools.schema(&json!({ "name": "book", "parameters": parameters }));
        assert_eq!(schema["$defs"], json!({ "day": {} }));
        let arguments = json!({ "properties": properties, "additionalProperties": false });
        assert_eq!(schema["properties"]["arguments"], arguments);
    }

    #[test]
    fn a_function_that_declares_no_parameters_has_none() {
        let tools = tools(json!("required"), "").unwrap().unwrap();
        let arguments = |function: Value| tools.schema(&function)["properties"]["arguments"].clone();
        let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        assert_eq!(arguments(json!({ "name": "now" })), none);
        assert_eq!(arguments(json!({ "name": "now", "parameters": null })), none);
        let any = json!({ "type": "object" });
        assert_eq!(arguments(json!({ "name": "now", "parameters": any })), any);
    }
}
