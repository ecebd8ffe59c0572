//! Tools in the prompt.

use super::{Tools, knows_tools};
use amk_models::chat::{ChatOptions, ChatTemplate, Message};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Gives tools and messages to the template; one that knows no tools has them in its messages.
pub(crate) fn place(
    tools: Option<&Tools>,
    template: &ChatTemplate,
    messages: Vec<Message>,
    options: ChatOptions,
) -> (Vec<Message>, ChatOptions) {
    let functions = tools.iter().flat_map(|tools| &tools.functions);
    let tools: Vec<Value> = functions.map(|function| json!({ "type": "function", "function": function })).collect();
    if knows_tools(template) {
        return (messages, ChatOptions { tools, ..options });
    }
    let messages = written(messages);
    (if tools.is_empty() { messages } else { with_instructions(&tools, messages) }, options)
}

/// The messages with calls and their results in their text, for a template that knows none.
fn written(messages: Vec<Message>) -> Vec<Message> {
    let written = |mut message: Message| {
        if let Some(Value::Array(calls)) = message.more.remove("tool_calls") {
            for call in calls {
                let (name, arguments) = (&call["function"]["name"], json_of(&call["function"]["arguments"]));
                let separator = if message.content.is_empty() { "" } else { "\n" };
                let call = format!("{{\"name\":{name},\"arguments\":{arguments}}}");
                message.content.push_str(&format!("{separator}<tool_call>\n{call}\n</tool_call>"));
            }
        }
        if message.role == "tool" {
            message.role = "user".to_owned();
            message.content = format!("<tool_response>\n{}\n</tool_response>", message.content);
        }
        message
    };
    messages.into_iter().map(written).collect()
}

/// The JSON of arguments, which may be a text of it.
fn json_of(arguments: &Value) -> String {
    let text = arguments.as_str().filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    text.map_or_else(|| arguments.to_string(), str::to_owned)
}

fn with_instructions(tools: &[Value], mut messages: Vec<Message>) -> Vec<Message> {
    let list: String = tools.iter().map(|tool| format!("{tool}\n")).collect();
    let instructions = format!(
        "You may call these functions, given by JSON schemas:\n<tools>\n{list}</tools>\nTo call one, \
        answer with its name and arguments as JSON:\n<tool_call>\n\
        {{\"name\": <name>, \"arguments\": <arguments>}}\n</tool_call>"
    );
    match messages.first_mut().filter(|first| first.role == "system") {
        Some(system) => system.content = format!("{}\n\n{instructions}", system.content),
        None => messages.insert(0, Message::new("system", instructions)),
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Form;
    use amk_models::chat::TokenTexts;

    fn tools() -> Tools {
        let functions = vec![json!({ "name": "add", "parameters": { "type": "object" } })];
        Tools { functions, form: Form::Tagged, required: false, parallel: true }
    }

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(source.to_owned(), TokenTexts::default())
    }

    #[test]
    fn a_template_that_knows_tools_gets_them() {
        let template = template("{{ tools[0].function.name }}{{ messages[0].tool_calls[0].id }}");
        let mut asked = Message::new("assistant", "");
        asked.more.insert("tool_calls".to_owned(), json!([{ "id": "c1" }]));
        let (messages, options) = place(Some(&tools()), &template, vec![asked], ChatOptions::default());
        assert_eq!(template.render(&messages, &options).unwrap(), "addc1");
    }

    #[test]
    fn another_template_gets_them_in_its_messages() {
        let mut asked = Message::new("assistant", "");
        let call = json!({ "id": "c1", "function": { "name": "add", "arguments": { "a": 1 } } });
        asked.more.insert("tool_calls".to_owned(), json!([call]));
        let messages = vec![Message::new("system", "Be brief."), asked, Message::new("tool", "3")];
        let template = template("{{ messages }}");
        let (messages, options) = place(Some(&tools()), &template, messages, ChatOptions::default());
        assert!(options.tools.is_empty());
        assert!(messages[0].content.starts_with("Be brief.\n\nYou may call"));
        assert!(messages[0].content.contains(r#"{"type":"function","function":{"name":"add""#));
        let call = "<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}\n</tool_call>";
        assert_eq!((messages[1].content.as_str(), messages[1].more.len()), (call, 0));
        let answer = Message::new("user", "<tool_response>\n3\n</tool_response>");
        assert_eq!(messages[2], answer);
        assert_eq!(json_of(&json!("{\"a\": 18446744073709551616}")), "{\"a\": 18446744073709551616}");
        assert_eq!((json_of(&json!("a")), json_of(&Value::Null)), ("\"a\"".to_owned(), "null".to_owned()));
        let alone = with_instructions(&[], vec![Message::new("user", "hi")]);
        assert_eq!((alone.len(), alone[0].role.as_str()), (2, "system"));
    }
}
