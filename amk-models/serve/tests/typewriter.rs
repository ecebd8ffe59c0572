//! Answers of a VM that wants to type a certain text: what languages and tools make of it.

use super::client::Server;
use amk::rows::{PageEdit, PlacedRow, RowLimits, RowVm};
use amk_models::chat::{ChatTemplate, TokenTexts};
use amk_models::tokenizer::Tokenizer;
use amk_run::text::Request;
use amk_serve::{Engine, EngineOptions, ServeOptions, Served, serve};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;

/// Tokens: a newline and the printable characters of ASCII; the last ends a text.
const TOKENS: u32 = 97;
const CALL: &str = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";

/// A VM that types a text after a prompt of one token.
struct Typewriter {
    text: Vec<u32>,
    logits: Vec<Vec<f32>>,
}

impl RowVm for Typewriter {
    type Error = core::convert::Infallible;

    fn limits(&self) -> RowLimits {
        RowLimits::new(4, 1000, 100)
    }

    fn edit_page(&mut self, _: PageEdit) -> Result<(), Self::Error> {
        Ok(())
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
        let next = |row: &PlacedRow| {
            let mut logits = vec![0.0; TOKENS as usize];
            let token = self.text.get(row.pos.0 as usize).copied().unwrap_or(TOKENS - 1);
            logits[token as usize] = 100.0;
            logits
        };
        self.logits = rows.iter().map(next).collect();
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.logits[row]
    }
}

fn token(character: char) -> u32 {
    if character == '\n' { 0 } else { u32::from(character) - u32::from(' ') + 1 }
}

fn tokenizer() -> Arc<Tokenizer> {
    let written = |character: char| match character {
        '\n' => '\u{10a}',
        ' ' => '\u{120}',
        character => character,
    };
    let characters = std::iter::once('\n').chain(' '..='~');
    let vocab: Map<String, Value> =
        characters.map(|character| (written(character).to_string(), token(character).into())).collect();
    let end = json!({ "id": TOKENS - 1, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true });
    let json = json!({
        "version": "1.0", "added_tokens": [end],
        "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "model": { "type": "BPE", "vocab": vocab, "merges": [] },
    });
    Arc::new(Tokenizer::from_json(Path::new("tokenizer.json"), json.to_string().as_bytes()).expect("a tokenizer"))
}

fn types(text: &str) -> Server {
    let vm = Typewriter { text: text.chars().map(token).collect(), logits: Vec::new() };
    // It knows tools, and leaves them out.
    let template = "{% if tools %}{% endif %}{{ messages[-1].content }}".to_owned();
    let served = Served {
        name: "typewriter".into(),
        tokenizer: tokenizer(),
        template: Some(ChatTemplate::new(template, TokenTexts::default())),
        request: Request { stop_tokens: vec![TOKENS - 1], ..Request::default() },
        context: 1000,
        embeddings: None,
    };
    let engine = Engine::start(vm, tokenizer(), EngineOptions::default());
    Server::start(move |listener, end| serve(listener, engine, served, ServeOptions::default(), end))
}

/// A request for an answer, with more fields.
fn chat(fields: Value) -> Value {
    let mut request = json!({ "messages": [{ "role": "user", "content": "?" }], "max_tokens": 300 });
    let fields = fields.as_object().expect("fields").clone();
    request.as_object_mut().expect("an object").extend(fields);
    request
}

fn answer(server: &Server, fields: Value) -> Value {
    let answer = server.post("/v1/chat/completions", &chat(fields));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["choices"][0].clone()
}

fn add() -> Value {
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"],
        "additionalProperties": false });
    json!({ "type": "function", "function": { "name": "add", "description": "Adds.", "parameters": parameters } })
}

#[test]
fn an_answer_is_of_the_language_that_is_asked_for() {
    let server = types("yes, of course");
    let content = |fields: Value| answer(&server, fields)["message"]["content"].as_str().unwrap().to_owned();
    assert_eq!(content(json!({})), "yes, of course");
    assert_eq!(content(json!({ "response_format": { "type": "text" } })), "yes, of course");
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"],
        "additionalProperties": false });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "ok", "strict": true, "schema": schema } });
    for fields in [
        json!({ "response_format": format }),
        json!({ "json_schema": schema }),
        json!({ "guided_json": schema }),
        json!({ "grammar": r#"start: "{\"ok\":" ("true" | "false") "}""# }),
    ] {
        let value: Value = serde_json::from_str(&content(fields)).unwrap();
        assert!(value["ok"].is_boolean() && value.as_object().unwrap().len() == 1, "{value}");
    }
    assert_eq!(content(json!({ "regex": "[a-y]{1,3}" })), "yes");
    assert_eq!(content(json!({ "guided_choice": ["no", "yes"] })), "yes");
    assert_eq!(
        types("{}!")
            .post("/v1/chat/completions", &chat(json!({ "response_format": { "type": "json_object" } })))
            .json()["choices"][0]["message"]["content"],
        "{}"
    );
    // It ends without a further token.
    let whole = server.post("/v1/completions", &json!({ "prompt": "?", "choice": ["yes"] })).json();
    assert_eq!(
        (&whole["choices"][0]["finish_reason"], &whole["usage"]["completion_tokens"]),
        (&json!("stop"), &json!(3))
    );
}

#[test]
fn a_language_that_is_none_is_told_with_its_field() {
    let server = types("yes");
    for (fields, param) in [
        (json!({ "response_format": { "type": "xml" } }), "response_format"),
        (json!({ "response_format": { "type": "json_schema" } }), "response_format"),
        (json!({ "grammar": "start = a" }), "grammar"),
        (json!({ "regex": "(" }), "regex"),
        (json!({ "regex": "a", "choice": ["a"] }), "choice"),
        (json!({ "tools": [{ "type": "web_search" }] }), "tools"),
        (json!({ "tools": [add()], "tool_choice": "any" }), "tool_choice"),
        (json!({ "tools": [add()], "regex": "a" }), "regex"),
        (json!({ "tools": [add()], "tool_choice": "required", "choice": ["a"] }), "choice"),
        (json!({ "tool_choice": "auto" }), "tool_choice"),
        (json!({ "functions": [{}] }), "functions"),
    ] {
        let answer = server.post("/v1/chat/completions", &chat(fields.clone()));
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{fields}");
    }
}

#[test]
fn an_object_may_have_a_schema() {
    let server = types("yes, of course");
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"],
        "additionalProperties": false });
    let of = |schema: Value| answer(&server, json!({ "response_format": { "type": "json_object", "schema": schema } }));
    let value: Value = serde_json::from_str(of(schema.clone())["message"]["content"].as_str().unwrap()).unwrap();
    assert!(value["ok"].is_boolean() && value.as_object().unwrap().len() == 1, "{value}");
    // It is not strict.
    let mut lenient = schema;
    lenient["uniqueItems"] = json!(true);
    assert_eq!(of(lenient)["finish_reason"], "stop");
    let wrong = chat(json!({ "response_format": { "type": "json_object", "schema": { "type": "strin" } } }));
    let error = server.post("/v1/chat/completions", &wrong);
    assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("response_format")), "{}", error.text);
}

#[test]
fn what_a_client_can_do_about_a_strict_schema_is_told() {
    let server = types("yes");
    let refused = |fields: Value| {
        let answer = server.post("/v1/chat/completions", &chat(fields));
        assert_eq!(answer.status, 400, "{}", answer.text);
        answer.json()["error"]["message"].as_str().expect("a message").to_owned()
    };
    let overlapping = json!({ "oneOf": [{ "type": "integer" }, { "type": "integer", "minimum": 3 }] });
    let schema = |strict: bool| json!({ "name": "a", "strict": strict, "schema": overlapping });
    let format = |strict: bool| json!({ "type": "json_schema", "json_schema": schema(strict) });
    let message = refused(json!({ "response_format": format(true) }));
    assert!(message.contains("`anyOf` can; `strict: false` does without it"), "{message}");
    answer(&server, json!({ "response_format": format(false) }));
    let message = refused(json!({ "json_schema": overlapping }));
    assert!(message.ends_with("`anyOf` can"), "{message}");
    let mut elsewhere = add();
    elsewhere["function"]["strict"] = json!(true);
    elsewhere["function"]["parameters"]["properties"]["a"] = json!({ "$ref": "https://example.com/a.json" });
    let message = refused(json!({ "tools": [add(), elsewhere], "tool_choice": "required" }));
    assert!(message.starts_with("the function `add`: the grammar: `$ref` cannot be enforced: "), "{message}");
    assert!(message.ends_with("; `strict: false` does without it"), "{message}");
    // Where no call is required there is nothing to enforce.
    assert_eq!(answer(&server, json!({ "tools": [elsewhere] }))["message"]["content"], "yes");
}

#[test]
fn a_wrong_schema_of_a_function_is_told_with_its_name() {
    let server = types("yes");
    let mut wrong = add();
    wrong["function"]["name"] = json!("wrong");
    wrong["function"]["parameters"]["properties"]["a"]["type"] = json!("strin");
    let request = chat(json!({ "tools": [add(), wrong], "tool_choice": "required" }));
    let error = server.post("/v1/chat/completions", &request).json()["error"].clone();
    let message = error["message"].as_str().expect("a message");
    assert!(message.starts_with("the function `wrong`: ") && message.contains("strin"), "{message}");
    assert!(!message.contains("call1"), "{message}");
    let format = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": { "type": "strin" } } });
    let request = chat(json!({ "tools": [add()], "response_format": format }));
    let error = server.post("/v1/chat/completions", &request).json()["error"].clone();
    let message = error["message"].as_str().expect("a message");
    assert!(error["param"] == "response_format" && !message.contains("call0"), "{error}");
}

#[test]
fn calls_of_tools_are_told_from_text() {
    let called = |choice: &Value| {
        assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
        let calls = choice["message"]["tool_calls"].as_array().expect("calls").clone();
        calls.iter().for_each(|call| assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_"))));
        calls.into_iter().map(|call| call["function"].clone()).collect::<Vec<_>>()
    };
    let expected = json!({ "name": "add", "arguments": "{\"a\": 1}" });
    let server = types(&format!("I add.\n{CALL}"));
    let choice = answer(&server, json!({ "tools": [add()] }));
    assert_eq!((called(&choice), &choice["message"]["content"]), (vec![expected.clone()], &json!("I add.\n")));
    let none = answer(&server, json!({ "tools": [add()], "tool_choice": "none" }));
    assert_eq!((&none["finish_reason"], none["message"]["tool_calls"].is_null()), (&json!("stop"), true));
    // Where one is required there is no text before it.
    for tool_choice in [json!("required"), json!({ "type": "function", "function": { "name": "add" } })] {
        let choice = answer(&server, json!({ "tools": [add()], "tool_choice": tool_choice }));
        assert_eq!(choice["message"]["content"], Value::Null);
        assert!(called(&choice).iter().all(|call| call["name"] == "add"), "{choice}");
    }
    let two = types(&format!("{CALL}\n{CALL}"));
    assert_eq!(called(&answer(&two, json!({ "tools": [add()] }))), [expected.clone(), expected.clone()]);
    assert_eq!(called(&answer(&two, json!({ "tools": [add()], "tool_choice": "required" }))).len(), 2);
    let one = json!({ "tools": [add()], "parallel_tool_calls": false });
    assert_eq!(called(&answer(&two, one)), [expected]);
}

#[test]
fn arguments_are_what_the_model_wrote() {
    let written = r#"{"a": 123456789012345678901234567890, "b": 1.10}"#;
    let server = types(&format!("<tool_call>\n{{\"name\": \"add\", \"arguments\": {written}}}\n</tool_call>"));
    let choice = answer(&server, json!({ "tools": [add()] }));
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], written);
    let request = chat(json!({ "tools": [add()], "stream": true }));
    let chunks = server.post("/v1/chat/completions", &request).events();
    let calls = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0].as_object());
    assert_eq!(calls.map(|call| call["function"]["arguments"].clone()).collect::<Vec<_>>(), [json!(written)]);
}

#[test]
fn calls_of_tools_are_streamed() {
    let server = types(&format!("I add.\n{CALL}"));
    let request = chat(json!({ "tools": [add()], "stream": true, "logprobs": true }));
    let chunks = server.post("/v1/chat/completions", &request).events();
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    let text: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    let calls: Vec<&Value> = deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
    assert_eq!((text.as_str(), calls.len()), ("I add.\n", 1));
    assert_eq!((&calls[0]["index"], &calls[0]["type"]), (&json!(0), &json!("function")));
    assert_eq!(calls[0]["function"], json!({ "name": "add", "arguments": "{\"a\": 1}" }));
    assert_eq!(chunks[chunks.len() - 1]["choices"][0]["finish_reason"], "tool_calls");
    let logprobs = chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(logprobs.map(Vec::len).sum::<usize>(), "I add.\n".len() + CALL.len());
}

#[test]
fn an_answer_of_a_schema_may_be_a_call_instead() {
    let schema = json!({ "type": "object", "properties": { "sum": { "type": "integer" } }, "required": ["sum"] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "sum", "schema": schema } });
    let fields = json!({ "tools": [add()], "response_format": format });
    assert_eq!(answer(&types(CALL), fields.clone())["finish_reason"], "tool_calls");
    let choice = answer(&types("{\"sum\": 3}"), fields);
    assert_eq!(choice["message"]["content"], "{\"sum\": 3}");
}

#[test]
fn tokens_become_text_and_back() {
    let server = types("");
    let tokens = server.post("/tokenize", &json!({ "content": "ab" })).json();
    assert_eq!(tokens, json!({ "count": 2, "tokens": [token('a'), token('b')] }));
    assert_eq!(server.post("/detokenize", &tokens).json(), json!({ "content": "ab" }));
    assert_eq!(server.post("/detokenize", &json!({ "tokens": [99] })).json()["error"]["param"], "tokens");
    assert_eq!(server.post("/tokenize", &json!({})).json()["error"]["param"], "content");
    assert_eq!(server.post("/v1/embeddings", &json!({ "input": "ab" })).status, 404);
}
