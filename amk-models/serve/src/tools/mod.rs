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
use crate::language::{Asked, refused};
use amk_models::chat::ChatTemplate;
use amk_run::grammar::Language;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The fields of a request that concern tools.
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

/// Whether a template itself supports tools.
fn knows_tools(template: &ChatTemplate) -> bool {
    template.source().contains("tools")
}

/// The tools of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    /// The functions, each with `name`, and `description` and `parameters` if present.
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

    /// Refuses tools for an answer that is not in a chat.
    ///
    /// # Errors
    /// If there are any.
    pub(crate) fn refuse(&self) -> Result<(), ApiError> {
        match self.tools {
            Some(_) => Err(ApiError::invalid("tools", "`tools` is for chats")),
            None => Ok(()),
        }
    }

    /// The tools that the answer may call, if there are any.
    ///
    /// # Errors
    /// A tool that is not a function, or a choice that does not exist.
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
        let tools = Tools { functions, form: Form::of(&template.for_tools(true)), required, parallel };
        Ok(Some(tools).filter(|tools| !tools.functions.is_empty()))
    }
}

impl Tool {
    fn function(&self) -> Result<Value, ApiError> {
        let Self { kind, function } = self;
        if kind != "function" {
            let message = format!("a tool of type `{kind}` is not supported; expected `function`");
            return Err(ApiError::invalid("tools", message));
        }
        let missing = || ApiError::invalid("tools", "a tool of type `function` needs a `function`");
        let function = function.as_ref().ok_or_else(missing)?;
        let Some(name) = function["name"].as_str().filter(|name| !name.is_empty()) else {
            return Err(ApiError::invalid("tools", "a function needs a `name`"));
        };
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
        if !name.chars().all(plain) {
            let message = format!("the function's name `{name}` has other characters than letters, digits and _-.:/");
            return Err(ApiError::invalid("tools", message));
        }
        match &function["parameters"] {
            Value::Null => Ok(function.clone()),
            Value::Object(schema) if schema.get("type").is_none_or(|kind| kind == "object") => Ok(function.clone()),
            _ => {
                let message = format!("the `parameters` of `{name}` are not the schema of an object");
                Err(ApiError::invalid("tools", message))
            }
        }
    }
}

/// Whether keywords that cannot be enforced are refused.
fn is_strict(function: &Value) -> bool {
    function["strict"] == Value::Bool(true)
}

/// Rewrites references to a schema's root, and to everything below it, to the place where it is
/// embedded.
fn place_references(schema: &mut Value, root: &str) {
    /// Keywords with values, not schemas.
    const DATA: [&str; 4] = ["const", "default", "enum", "examples"];
    /// Keywords with schemas by name.
    const NAMED: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
    match schema {
        Value::Object(object) => {
            for (keyword, value) in object {
                match value {
                    Value::String(reference)
                        if keyword == "$ref" && (reference == "#" || reference.starts_with("#/")) =>
                    {
                        reference.replace_range(..1, root);
                    }
                    Value::Object(schemas) if NAMED.contains(&keyword.as_str()) => {
                        schemas.values_mut().for_each(|schema| place_references(schema, root));
                    }
                    _ if DATA.contains(&keyword.as_str()) => {}
                    _ => place_references(value, root),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|schema| place_references(schema, root)),
        _ => {}
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
            (name, Language::JsonSchema { schema, strict: is_strict(function) })
        })
    }

    /// The language of an answer: calls if they are required; otherwise what is `asked` for, or
    /// calls.
    ///
    /// # Errors
    /// A language that excludes calls, or a schema that cannot be enforced.
    pub(crate) fn language(&self, asked: Option<Asked>) -> Result<Option<Asked>, ApiError> {
        let answer = match asked {
            None => None,
            Some((field, Language::JsonObject)) => Some((field, json!({ "type": "object" }), true)),
            Some((field, Language::JsonSchema { schema, strict })) => Some((field, schema, strict)),
            Some((field, _)) => {
                let message = format!("`{field}` excludes `tools`; set `tool_choice` to `none`");
                return Err(ApiError::invalid(field, message));
            }
        };
        if self.required {
            return Ok(Some(("tools", Language::Lark(format!("start: calls\n{}", self.calls()?)))));
        }
        let Some((field, answer, strict)) = answer else { return Ok(None) };
        let answer = Language::json_rule(answer, strict);
        let answer = answer.map_err(|error| refused(field, None, &error))?;
        let calls = self.calls()?;
        Ok(Some((field, Language::Lark(format!("start: answer | calls\nanswer: {answer}\n{calls}")))))
    }

    /// The rules of calls.
    fn calls(&self) -> Result<String, ApiError> {
        let functions = self.functions.iter().enumerate();
        let rule = |(number, function): (usize, &Value)| {
            let rule = Language::json_rule(self.schema(function), is_strict(function));
            let rule = rule.map_err(|error| refused("tools", function["name"].as_str(), &error))?;
            Ok(format!("call{number}: {rule}\n"))
        };
        let rules = functions.clone().map(rule).collect::<Result<String, ApiError>>()?;
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
        // A function has exactly the parameters that it declares, unless its schema says otherwise,
        // or elsewhere.
        let elsewhere = ["$ref", "allOf", "anyOf", "if", "oneOf", "patternProperties"];
        let declares = |object: &Map<String, Value>| {
            object.contains_key("properties") && !elsewhere.iter().any(|keyword| object.contains_key(*keyword))
        };
        if let Some(object) = parameters.as_object_mut().filter(|object| declares(object)) {
            object.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        place_references(&mut parameters, &format!("#/properties/{arguments}"));
        json!({
            "type": "object", "required": ["name", arguments], "additionalProperties": false,
            "properties": { "name": { "const": function["name"] }, arguments: parameters },
        })
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
    fn arguments_are_the_parameters_and_their_references_are_found_where_they_are() {
        let properties = |root: &str| {
            let of = |path: &str| json!({ "$ref": format!("{root}{path}") });
            let like = json!({ "enum": ["#/a"], "properties": { "default": of("") } });
            let same = json!({ "const": { "$ref": "#/a" }, "properties": { "const": of("") } });
            let [on, then] = ["/$defs/day", "/properties/on"].map(of);
            json!({ "on": on, "then": then, "next": [of("")], "like": like, "same": same })
        };
        let parameters = json!({ "$defs": { "day": {} }, "properties": properties("#") });
        let tools = tools(json!("required"), "").unwrap().unwrap();
        let schema = tools.schema(&json!({ "name": "book", "parameters": parameters }));
        let placed = properties("#/properties/arguments");
        let arguments = json!({ "$defs": { "day": {} }, "properties": placed, "additionalProperties": false });
        assert_eq!(schema["properties"]["arguments"], arguments);
    }

    #[test]
    fn parameters_that_are_declared_in_parts_are_not_closed() {
        let tools = tools(json!("required"), "").unwrap().unwrap();
        let parameters = json!({ "properties": {}, "allOf": [{ "properties": { "b": {} }, "required": ["b"] }] });
        let schema = tools.schema(&json!({ "name": "book", "parameters": parameters }));
        assert_eq!(schema["properties"]["arguments"], parameters);
    }

    #[test]
    fn functions_that_no_call_could_name_or_give_arguments_are_refused() {
        let refused = |function: Value| {
            let tool = Tool { kind: "function".to_owned(), function: Some(function) };
            tool.function().map_err(|error| error.json()["error"]["message"].as_str().unwrap().to_owned())
        };
        let of = |parameters: Value| json!({ "name": "f", "parameters": parameters });
        assert!(refused(of(json!({ "type": "object" }))).is_ok() && refused(of(json!({}))).is_ok());
        let expected = Err("the `parameters` of `f` are not the schema of an object".to_owned());
        assert_eq!(refused(of(json!(5))), expected);
        assert_eq!(refused(of(json!({ "type": "string" }))), expected);
        assert!(refused(json!({ "name": "a\"b</tool_call>" })).unwrap_err().starts_with("the function's name `a\"b<"));
        let error = Tool { kind: "function".to_owned(), function: None }.function().unwrap_err();
        assert_eq!(error.json()["error"]["message"], "a tool of type `function` needs a `function`");
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
