//! A server over a VM that counts: what clients see.

mod client;
mod http;
mod typewriter;

use amk::rows::{PageEdit, PlacedRow, RowLimits, RowVm};
use amk_models::chat::{ChatTemplate, TokenTexts};
use amk_models::tokenizer::Tokenizer;
use amk_run::embedding::{Embedder, Pooling};
use amk_run::text::Request;
use amk_serve::{Embeddings, Engine, EngineOptions, ServeOptions, Served, serve};
use client::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TOKENS: usize = 50;

/// A VM whose next token is one more than the last, and whose steps take some time.
struct Count {
    logits: Vec<Vec<f32>>,
    step: Duration,
    defect: Option<Defect>,
}

/// An event at a token.
#[derive(Clone, Copy)]
enum Defect {
    Fails(u32),
    Panics(u32),
    HasNoLogits(u32),
}

#[derive(Debug, thiserror::Error)]
#[error("the machine is broken")]
struct Broken;

impl RowVm for Count {
    type Error = Broken;

    fn limits(&self) -> RowLimits {
        RowLimits::new(4, 2000, 100)
    }

    fn edit_page(&mut self, _: PageEdit) -> Result<(), Self::Error> {
        Ok(())
    }

    fn step_rows(&mut self, rows: Vec<PlacedRow>) -> Result<(), Self::Error> {
        std::thread::sleep(self.step);
        let has = |token: u32| rows.iter().any(|row| row.token.0 == token);
        match self.defect {
            Some(Defect::Fails(token)) if has(token) => return Err(Broken),
            Some(Defect::Panics(token)) if has(token) => panic!("a step panics"),
            _ => {}
        }
        let next = |row: &PlacedRow| {
            let mut logits = vec![0.0; TOKENS];
            logits[(row.token.0 as usize + 1) % TOKENS] = 100.0;
            if matches!(self.defect, Some(Defect::HasNoLogits(token)) if row.token.0 == token) {
                logits.fill(f32::NAN);
            }
            logits
        };
        self.logits = rows.iter().map(next).collect();
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.logits[row]
    }
}

fn tokenizer() -> Arc<Tokenizer> {
    let vocab: Vec<String> = (0..TOKENS).map(|id| format!("\"t{id}\": {id}")).collect();
    let json = format!(
        r#"{{"version": "1.0", "added_tokens": [], "pre_tokenizer": {{"type": "WhitespaceSplit"}},
        "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "t0"}}}}"#,
        vocab.join(", ")
    );
    Arc::new(Tokenizer::from_json(Path::new("tokenizer.json"), json.as_bytes()).expect("a tokenizer"))
}

/// A server of a VM whose steps take `millis` milliseconds.
fn server(millis: u64, most: usize, options: ServeOptions) -> Server {
    broken_server(millis, most, options, None)
}

/// A server whose texts have limits of their own.
fn limited_server(millis: u64, request: Request) -> Server {
    counting_server(millis, 8, ServeOptions::default(), None, request)
}

fn broken_server(millis: u64, most: usize, options: ServeOptions, defect: Option<Defect>) -> Server {
    counting_server(millis, most, options, defect, Request::default())
}

fn counting_server(
    millis: u64,
    most: usize,
    options: ServeOptions,
    defect: Option<Defect>,
    request: Request,
) -> Server {
    let vm = Count { logits: Vec::new(), step: Duration::from_millis(millis), defect };
    let template = "{% for m in messages %}{{ m.content }} {% endfor %}".to_owned();
    let served = Served {
        name: "count".into(),
        tokenizer: tokenizer(),
        template: Some(ChatTemplate::new(template, TokenTexts::default())),
        request: Request { stop_tokens: vec![49], ..request },
        context: 2000,
        embeddings: Some(Embeddings::start(
            Embedder::of(Count { logits: Vec::new(), step: Duration::ZERO, defect }, Pooling::Last),
            4,
        )),
    };
    let engine = Engine::start(vm, tokenizer(), EngineOptions { texts: most, kept: 4, ..EngineOptions::default() });
    Server::start(move |listener, end| serve(listener, engine, served, options, end))
}

/// The logprob of the token that the VM counts to, and of every other one.
fn logprobs() -> (f64, f64) {
    let log_sum = (100_f64.exp() + (TOKENS - 1) as f64).ln();
    (100.0 - log_sum, -log_sum)
}

fn ask(prompt: &str) -> Value {
    json!({ "model": "count", "prompt": prompt, "max_tokens": 3, "temperature": 0 })
}

#[test]
fn a_completion_has_the_form_of_openais() {
    let server = server(0, 8, ServeOptions::default());
    let answer = server.post("/v1/completions", &ask("t3 t7"));
    assert_eq!(answer.status, 200);
    let answer = answer.json();
    assert_eq!(answer["choices"][0]["text"], " t8 t9 t10");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(
        answer["usage"],
        json!({
            "prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5, "prompt_tokens_details": { "cached_tokens": 0 },
        })
    );
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!("count")));
    let several = json!({ "prompt": ["t1", "t20"], "n": 2, "max_tokens": 2, "temperature": 0 });
    let answer = server.post("/v1/completions", &several).json();
    let texts: Vec<&Value> =
        answer["choices"].as_array().expect("a list").iter().map(|choice| &choice["text"]).collect();
    assert_eq!(texts, [" t2 t3", " t2 t3", " t21 t22", " t21 t22"]);
    assert_eq!(answer["usage"]["prompt_tokens"], 2);
    let tokens = json!({ "prompt": [47], "max_tokens": 9, "temperature": 0 });
    let choice = server.post("/v1/completions", &tokens).json()["choices"][0].clone();
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(" t48"), &json!("stop")));
}

#[test]
fn a_chat_is_streamed_piece_by_piece() {
    let server = server(0, 8, ServeOptions::default());
    let parts = json!([{ "type": "text", "text": "t5" }]);
    let mut request = json!({
        "messages": [{ "role": "system", "content": "t1" }, { "role": "user", "content": parts }],
        "max_completion_tokens": 4, "temperature": 0, "stop": ["t8"],
    });
    let answer = server.post("/v1/chat/completions", &request).json();
    assert_eq!(answer["choices"][0]["message"], json!({ "role": "assistant", "content": "t6 t7 ", "refusal": null }));
    request["stream"] = json!(true);
    request["stream_options"] = json!({ "include_usage": true });
    let chunks = server.post("/v1/chat/completions", &request).events();
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!((text.as_str(), &chunks[0]["choices"][0]["delta"]["role"]), ("t6 t7 ", &json!("assistant")));
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
    let (last, others) = chunks.split_last().expect("chunks");
    assert_eq!((&last["usage"]["prompt_tokens"], &last["choices"]), (&json!(2), &json!([])));
    assert!(others.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()), "{others:?}");
    request["stream_options"] = Value::Null;
    let chunks = server.post("/v1/chat/completions", &request).events();
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()), "{chunks:?}");
}

#[test]
fn a_completion_has_the_logprobs_of_its_tokens() {
    let server = server(0, 8, ServeOptions::default());
    let (likeliest, other) = logprobs();
    let mut request = json!({ "prompt": ["t3 t7", "t1"], "max_tokens": 3, "temperature": 0, "logprobs": 2 });
    let answer = server.post("/v1/completions", &request).json();
    let by_name = |name: &str| json!({ name: likeliest, " t0": other });
    let expected = json!({
        "tokens": [" t8", " t9", " t10"], "token_logprobs": [likeliest, likeliest, likeliest],
        "top_logprobs": [by_name(" t8"), by_name(" t9"), by_name(" t10")],
        // Counted from the beginning of the prompt.
        "text_offset": [5, 8, 11],
    });
    assert_eq!(answer["choices"][0]["logprobs"], expected);
    assert_eq!(answer["choices"][1]["logprobs"]["text_offset"], json!([2, 5, 8]));
    request["stream"] = json!(true);
    let chunks = server.post("/v1/completions", &request).events();
    let streamed = |field: &str| -> Vec<Value> {
        let first = chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|choice| choice["index"] == 0);
        first.filter_map(|choice| choice["logprobs"][field].as_array()).flatten().cloned().collect()
    };
    for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(json!(streamed(field)), expected[field]);
    }
    request = json!({ "prompt": "t3", "max_tokens": 1, "temperature": 0, "logprobs": 0 });
    let answer = server.post("/v1/completions", &request).json();
    assert_eq!(answer["choices"][0]["logprobs"]["top_logprobs"], json!([{ " t4": likeliest }]));
    assert_eq!(server.post("/v1/completions", &ask("t3")).json()["choices"][0]["logprobs"], Value::Null);
}

#[test]
fn an_answer_in_a_chat_has_the_logprobs_of_its_tokens_up_to_a_stop() {
    let server = server(0, 8, ServeOptions::default());
    let (likeliest, other) = logprobs();
    let mut request = json!({
        "messages": [{ "role": "user", "content": "t5" }],
        "max_tokens": 9, "temperature": 0, "stop": ["t8 t9"], "logprobs": true, "top_logprobs": 2,
    });
    let token = |text: &str, logprob: f64| json!({ "token": text, "logprob": logprob, "bytes": text.as_bytes() });
    let expected: Vec<Value> = [" t6", " t7", " t8"]
        .map(|text| {
            let mut drawn = token(text, likeliest);
            drawn["top_logprobs"] = json!([token(text, likeliest), token(" t0", other)]);
            drawn
        })
        .into();
    let choice = server.post("/v1/chat/completions", &request).json()["choices"][0].clone();
    assert_eq!(choice["message"]["content"], "t6 t7 ");
    assert_eq!(choice["logprobs"], json!({ "content": expected, "refusal": null }));
    request["stream"] = json!(true);
    let chunks = server.post("/v1/chat/completions", &request).events();
    let streamed = chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(streamed.flatten().cloned().collect::<Vec<_>>(), expected);
    request["stream"] = json!(false);
    request["top_logprobs"] = json!(0);
    let choice = server.post("/v1/chat/completions", &request).json()["choices"][0].clone();
    assert_eq!(choice["logprobs"]["content"][0]["top_logprobs"], json!([]));
}

#[test]
fn penalties_and_biases_change_what_is_drawn_but_not_its_logprobs() {
    let server = server(0, 8, ServeOptions::default());
    let (likeliest, other) = logprobs();
    let biased = json!({
        "prompt": "t3", "max_tokens": 2, "temperature": 0, "logprobs": 1, "logit_bias": { "4": -100, "20": 1 },
    });
    let choice = server.post("/v1/completions", &biased).json()["choices"][0].clone();
    assert_eq!(choice["text"], " t20 t21");
    assert_eq!(choice["logprobs"]["token_logprobs"], json!([other, likeliest]));
    assert_eq!(choice["logprobs"]["top_logprobs"][0], json!({ " t4": likeliest, " t20": other }));
    // The VM counts on to t8, which is taken out: t7 is one above all others.
    let mut penalised = json!({
        "prompt": "t7", "max_tokens": 3, "temperature": 0, "logit_bias": { "8": -100, "7": 1 },
    });
    let text = |request: &Value| server.post("/v1/completions", request).json()["choices"][0]["text"].clone();
    assert_eq!(text(&penalised), " t7 t7 t7");
    penalised["presence_penalty"] = json!(1.5);
    assert_eq!(text(&penalised), " t7 t0 t1");
    penalised["presence_penalty"] = json!(0);
    penalised["frequency_penalty"] = json!(0.75);
    assert_eq!(text(&penalised), " t7 t7 t0");
}

#[test]
fn mistakes_are_told_with_their_field() {
    let server = server(0, 8, ServeOptions { body: 2000, ..ServeOptions::default() });
    let cases = [
        (json!({}), 400, "prompt", "needs a `prompt`"),
        (json!({ "prompt": "t1", "tools": [] }), 400, "tools", "is for chats"),
        (json!({ "prompt": "t1", "temperature": "hot" }), 400, "temperature", "`temperature`: invalid type"),
        (json!({ "prompt": "t1", "logprobs": 6 }), 400, "logprobs", "`logprobs` is 6, expected 0 to 5"),
        (json!({ "prompt": "t1", "logprobs": true }), 400, "logprobs", "expected 0 to 5"),
        (json!({ "prompt": "t1", "top_logprobs": 2 }), 400, "top_logprobs", "is for chats"),
        (
            json!({ "prompt": "t1", "presence_penalty": 3 }),
            400,
            "presence_penalty",
            "presence penalty is 3, but must be from -2 to 2",
        ),
        (json!({ "prompt": "t1", "frequency_penalty": -3 }), 400, "frequency_penalty", "frequency penalty is -3"),
        (json!({ "prompt": "t1", "logit_bias": { "t1": 1 } }), 400, "logit_bias", "has `t1`, expected the id of one"),
        (json!({ "prompt": "t1", "logit_bias": { "50": 1 } }), 400, "logit_bias", "`50`, expected the id of one of 50"),
        (json!({ "prompt": "t1", "logit_bias": { "5": 101 } }), 400, "logit_bias", "logit bias is 101"),
        (json!({ "prompt": "t1", "suffix": "t2" }), 400, "suffix", "not supported"),
        (json!({ "prompt": "t1", "echo": true }), 400, "echo", "not supported"),
        (json!({ "prompt": "t1", "min_tokens": 2 }), 400, "min_tokens", "not supported"),
        (
            json!({ "prompt": "t1", "structured_outputs": { "choice": ["a"] } }),
            400,
            "structured_outputs",
            "not supported",
        ),
        (json!({ "prompt": "t1", "stop_token_ids": [5] }), 400, "stop_token_ids", "not supported"),
        (json!({ "prompt": "t1", "use_beam_search": true }), 400, "use_beam_search", "not supported"),
        (json!({ "prompt": "t1", "chat_template": "{{ 1 }}" }), 400, "chat_template", "not supported"),
        (json!({ "prompt": "t1", "skip_special_tokens": false }), 400, "skip_special_tokens", "where it is false"),
        (json!({ "prompt": "t1", "modalities": ["text", "audio"] }), 400, "modalities", "has `audio`, expected `text`"),
        (json!({ "prompt": "t1", "max_tokens": 1.5 }), 400, "max_tokens", "expected a whole number of at least 1"),
        (json!({ "prompt": "t1", "best_of": 2 }), 400, "best_of", "not supported"),
        (json!({ "prompt": "t1", "stream_options": {} }), 400, "stream_options", "needs `stream`"),
        (json!({ "prompt": ["t1", [2]] }), 400, "prompt", "expected a text, texts, or their token ids"),
        (json!({ "prompt": "t1", "stop": 5 }), 400, "stop", "expected a text or up to 16 texts"),
        (json!({ "prompt": "t1", "max_completion_tokens": 0 }), 400, "max_completion_tokens", "at least 1"),
        // It can never be answered, so it is not one to send again.
        (json!({ "prompt": "t1", "n": 9 }), 400, "", "is for 9 texts, but the server takes 8"),
        (json!({ "prompt": "t1", "n": 0 }), 400, "n", "expected 1 to"),
        (json!({ "prompt": "t1", "n": -1 }), 400, "n", "`n` is -1, expected 1 to"),
        (json!({ "prompt": [77] }), 400, "prompt", "token 77 is outside the vocabulary of 50"),
        (json!({ "prompt": "t1", "temperature": -1 }), 400, "temperature", "temperature"),
        (json!({ "prompt": "t1", "max_tokens": 0 }), 400, "max_tokens", "at least 1"),
        (
            json!({ "prompt": "t1", "max_tokens": -1 }),
            400,
            "max_tokens",
            "`max_tokens` is -1, expected a whole number of at least 1",
        ),
        (json!({ "prompt": "t1", "seed": u64::MAX }), 400, "seed", "-9223372036854775808 to 9223372036854775807"),
        (json!({ "prompt": "t1", "stop": [""] }), 400, "stop", "none of them empty"),
        (json!({ "prompt": "t1", "stop": "" }), 400, "stop", "none of them empty"),
        (json!({ "prompt": "t1", "model": "other" }), 404, "model", "this server has `count`"),
        (json!({ "prompt": "t1 ".repeat(900) }), 413, "", "too large"),
        (json!("text"), 400, "", "not a request"),
    ];
    for (request, status, param, message) in cases {
        let answer = server.post("/v1/completions", &request);
        let error = answer.json()["error"].clone();
        assert_eq!(answer.status, status, "{request}: {error}");
        assert_eq!(error["param"].as_str().unwrap_or_default(), param, "{request}: {error}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(message)), "{request}: {error}");
    }
    let chat = json!([{ "role": "user", "content": "t1" }]);
    for (fields, param) in [
        (json!({ "logprobs": 3 }), "logprobs"),
        (json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs"),
        (json!({ "top_logprobs": 2 }), "top_logprobs"),
    ] {
        let mut request = fields;
        request["messages"] = chat.clone();
        let answer = server.post("/v1/chat/completions", &request);
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{request}");
    }
    for (messages, why) in [
        (json!([]), "needs `messages`"),
        (json!("t1"), "invalid type"),
        (json!([{ "content": "t1" }]), "missing field `role`"),
        (json!([{ "role": "usr", "content": "t1" }]), "no role `usr`; expected one of system, developer, user"),
        (json!([{ "role": "user", "content": null }]), "the role `user` has no `content`"),
        (json!([{ "role": "user", "content": 5 }]), "expected `content` to be a text or a list of parts"),
        (json!([{ "role": "user", "content": [{ "type": "image_url" }] }]), "type `image_url` is not supported"),
        (json!([{ "role": "assistant", "tool_calls": [5] }]), "`tool_calls` has 5, expected the call of a function"),
        (
            json!([{ "role": "assistant", "tool_calls": [{ "function": { "arguments": "{}" } }] }]),
            "the call of a function",
        ),
    ] {
        let answer = server.post("/v1/chat/completions", &json!({ "messages": messages }));
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["param"]), (400, &json!("messages")), "{messages}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(why)), "{messages}: {error}");
    }
}

#[test]
fn what_asks_for_nothing_is_left_alone() {
    let server = server(0, 8, ServeOptions::default());
    let nothing = json!({
        "messages": [
            { "role": "developer", "content": [] },
            { "role": "user", "content": [{ "type": "text", "text": "t1" }, { "type": "text", "text": " t2" }] },
            { "role": "assistant", "content": null, "tool_calls": null },
            { "role": "assistant", "content": [{ "type": "refusal", "refusal": "t3" }] },
            { "role": "user", "content": "t4", "name": "someone" },
        ],
        "max_tokens": null, "max_completion_tokens": 2, "temperature": null, "top_p": 0, "top_k": -1, "stop": [],
        "n": null, "seed": -1, "logit_bias": {}, "logprobs": null, "top_logprobs": null, "tools": [], "tool_choice": null,
        "response_format": null, "functions": [], "stream": false, "stream_options": null, "user": "someone",
        "metadata": {}, "store": false, "service_tier": "auto", "modalities": ["text"], "parallel_tool_calls": true,
    });
    let answer = server.post("/v1/chat/completions", &nothing);
    assert_eq!((answer.status, &answer.json()["choices"][0]["message"]["content"]), (200, &json!("t5 t6")));
    let nothing = json!({
        "prompt": ["t1"], "max_tokens": 2, "temperature": 0, "best_of": 1, "echo": false, "suffix": "", "stop": null,
        "logprobs": false, "min_tokens": 0, "ignore_eos": false, "structured_outputs": null, "stop_token_ids": [],
        "use_beam_search": false, "skip_special_tokens": true, "add_generation_prompt": true, "documents": [],
    });
    assert_eq!(server.post("/v1/completions", &nothing).json()["choices"][0]["text"], " t2 t3");
}

#[test]
fn a_text_goes_on_after_the_models_end_where_it_is_asked_for() {
    let server = server(0, 8, ServeOptions::default());
    let request = json!({ "prompt": "t47", "max_tokens": 4, "temperature": 0, "ignore_eos": true });
    let choice = server.post("/v1/completions", &request).json()["choices"][0].clone();
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(" t48 t49 t0 t1"), &json!("length")));
}

#[test]
fn texts_have_the_limits_of_the_server() {
    let request = json!({ "prompt": "t1", "max_tokens": 40, "temperature": 0 });
    let texts = |server: &Server| {
        let choice = server.post("/v1/completions", &request).json()["choices"][0].clone();
        assert_eq!(choice["finish_reason"], "length");
        choice["text"].as_str().expect("a text").split_whitespace().count()
    };
    assert_eq!(texts(&limited_server(0, Request { max_tokens: Some(5), ..Request::default() })), 5);
    let in_time = Request { max_time: Some(Duration::from_millis(300)), ..Request::default() };
    let written = texts(&limited_server(25, in_time));
    assert!((1..15).contains(&written), "{written} tokens of 25 ms in 300 ms");
}

#[test]
fn prompts_beyond_the_context_are_refused_whether_streamed_or_not() {
    let server = server(0, 8, ServeOptions::default());
    for stream in [false, true] {
        let request = json!({ "prompt": vec![1; 2001], "stream": stream });
        let answer = server.post("/v1/completions", &request);
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["code"]), (400, &json!("context_length_exceeded")));
        // Clients know it by these words of OpenAI's.
        let message = error["message"].as_str().expect("a text");
        assert!(message.starts_with("this model's maximum context length is 2000 tokens, but the prompt has 2001"));
        assert_eq!(error["param"], "prompt");
        let request = json!({ "messages": [{ "role": "user", "content": "t1 ".repeat(2001) }], "stream": stream });
        assert_eq!(server.post("/v1/chat/completions", &request).json()["error"]["param"], "messages");
        let empty = server.post("/v1/completions", &json!({ "prompt": "", "stream": stream }));
        assert_eq!((empty.status, &empty.json()["error"]["param"]), (400, &json!("prompt")), "{}", empty.text);
    }
}

#[test]
fn embeddings_have_the_form_of_openais() {
    let server = server(0, 8, ServeOptions::default());
    // The VM's states point to the next token.
    let vector = |token: usize| (0..TOKENS).map(|at| f64::from(u8::from(at == token))).collect::<Vec<_>>();
    let answer = server.post("/v1/embeddings", &json!({ "model": "count", "input": ["t1 t2", "t7"] })).json();
    let data =
        |index: usize, token: usize| json!({ "object": "embedding", "index": index, "embedding": vector(token) });
    assert_eq!(answer["data"], json!([data(0, 3), data(1, 8)]));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("count")));
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 3, "total_tokens": 3 }));
    let encoded = json!({ "input": [0], "encoding_format": "base64" });
    let encoded = server.post("/v1/embeddings", &encoded).json()["data"][0]["embedding"].clone();
    // 0.0 and 1.0 are the first two of 50.
    assert!(
        encoded.as_str().is_some_and(|text| text.starts_with("AAAAAAAAgD8AAAAA") && text.len() == 268),
        "{encoded}"
    );
    for (request, status, param) in [
        (json!({}), 400, "input"),
        (json!({ "input": [] }), 400, "input"),
        (json!({ "input": "" }), 400, "input"),
        (json!({ "input": 5 }), 400, "input"),
        (json!({ "input": [77] }), 400, "input"),
        (json!({ "input": "t1", "dimensions": 5 }), 400, "dimensions"),
        (json!({ "input": "t1", "encoding_format": "int8" }), 400, "encoding_format"),
        (json!({ "input": "t1", "model": "other" }), 404, "model"),
    ] {
        let answer = server.post("/v1/embeddings", &request);
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (status, &json!(param)), "{request}");
    }
    let long = server.post("/v1/embeddings", &json!({ "input": vec![1; 2001] }));
    assert_eq!((long.status, &long.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert!(long.text.contains("the text has 2001 tokens, but the context has 2000 positions"), "{}", long.text);
    let broken = broken_server(0, 8, ServeOptions::default(), Some(Defect::Fails(30)));
    let status = |token: u32| broken.post("/v1/embeddings", &json!({ "input": [token] })).status;
    assert_eq!([status(1), status(30), status(1)], [200, 503, 503]);
}

#[test]
fn a_key_is_asked_for_where_there_is_one() {
    let server = server(0, 8, ServeOptions { key: Some("secret".into()), ..ServeOptions::default() });
    let refused = server.get("/v1/models");
    assert_eq!((refused.status, refused.header("www-authenticate").as_deref()), (401, Some("Bearer")));
    assert_eq!(server.with_key("secreT").get("/v1/models").status, 401);
    let models = server.with_key("secret").get("/v1/models").json();
    assert_eq!((&models["data"][0]["id"], &models["object"]), (&json!("count"), &json!("list")));
    let status = |header: &str| server.ask("GET /v1/models", &[header], "").status;
    assert_eq!(status("Authorization: bearer secret"), 200);
    assert_eq!(status("Authorization: Basic secret"), 401);
    assert_eq!(server.get("/health").json(), json!({ "status": "ok" }));
}

#[test]
fn beyond_the_queue_clients_are_asked_to_come_again() {
    let server = server(20, 2, ServeOptions::default());
    let long = json!({ "prompt": "t1", "max_tokens": 40, "stream": true, "temperature": 0 });
    let streams = [server.stream("/v1/completions", &long), server.stream("/v1/completions", &long)];
    let refused = server.post("/v1/completions", &ask("t1"));
    assert_eq!((refused.status, refused.header("retry-after").as_deref()), (429, Some("1")));
    drop(streams);
    server.eventually("amk_texts_cancelled_total 2");
    server.eventually("amk_texts_open 0");
    assert_eq!(server.post("/v1/completions", &ask("t1")).status, 200, "there is room again");
}

#[test]
fn many_clients_have_the_answers_that_each_has_alone() {
    let server = server(1, 64, ServeOptions::default());
    std::thread::scope(|scope| {
        for client in 0..24u32 {
            let server = &server;
            scope.spawn(move || {
                let first = client % 20;
                let request = json!({ "prompt": [first], "max_tokens": 9, "temperature": 0 });
                let answer = server.post("/v1/completions", &request).json();
                let expected: Vec<String> = (1..10).map(|n| format!("t{}", first + n)).collect();
                assert_eq!(answer["choices"][0]["text"], format!(" {}", expected.join(" ")));
            });
        }
    });
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains("amk_texts_total 24\n") && metrics.contains("amk_tokens_total 216\n"), "{metrics}");
}

#[test]
fn a_body_that_does_not_come_in_time_is_refused() {
    let options = ServeOptions { body_time: Duration::from_millis(50), ..ServeOptions::default() };
    let answer = server(0, 8, options).post_bytes("/v1/completions", b"{", 99);
    assert_eq!((answer.status, answer.text.contains("did not come in 50ms")), (408, true));
}

#[test]
fn no_body_brings_the_server_down() {
    let server = server(0, 8, ServeOptions::default());
    let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]);
    let requests = [
        json!({ "prompt": ["t1", [2]], "n": 2, "max_tokens": 3, "stop": ["t9"], "logit_bias": { "3": 1.5 }, "seed": 1 }),
        json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "t1" }] }], "max_tokens": 3,
            "tools": tools, "tool_choice": "auto", "logprobs": true, "top_logprobs": 2, "stream": true }),
        json!({ "messages": [{ "role": "user", "content": "t1" }], "max_tokens": 3,
            "response_format": { "type": "json_schema", "json_schema": { "schema": { "type": "object" } } } }),
    ];
    // Bytes of requests, each with a few changed, by a plain generator of numbers.
    let mut state = 1_u64;
    let mut number = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    for turn in 0..300 {
        let mut body = requests[turn % requests.len()].to_string().into_bytes();
        for _ in 0..1 + number(3) {
            let (at, byte) = (number(body.len()), b"{}[]\",:0-9eE.tfn \\\xff\0"[number(20)]);
            match number(3) {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ => drop(body.remove(at)),
            }
        }
        let path = ["/v1/completions", "/v1/chat/completions"][number(2)];
        let status = server.post_bytes(path, &body, body.len()).status;
        assert!(matches!(status, 200 | 400 | 404 | 429), "{status}: {}", String::from_utf8_lossy(&body));
    }
    assert_eq!(server.post("/v1/completions", &ask("t1")).status, 200);
}

#[test]
fn a_prompt_goes_on_from_an_earlier_text() {
    let server = server(0, 8, ServeOptions::default());
    let ask = |prompt: Vec<u32>| {
        let request = json!({ "prompt": prompt, "max_tokens": 3, "temperature": 0 });
        let answer = server.post("/v1/completions", &request).json();
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
        (answer["choices"][0]["text"].as_str().expect("a text").to_owned(), cached)
    };
    let whole = || (1..13).collect::<Vec<u32>>();
    assert_eq!(ask(whole()), (" t13 t14 t15".to_owned(), json!(0)));
    assert_eq!(ask(whole()), (" t13 t14 t15".to_owned(), json!(11)));
    assert_eq!(ask([whole(), vec![13, 14, 20]].concat()), (" t21 t22 t23".to_owned(), json!(14)));
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains("amk_prompt_tokens_shared_total 25\n"), "{metrics}");
    // The first two are the beginning of the third.
    assert!(metrics.contains("amk_texts_kept 1\n") && metrics.contains("amk_texts_live 0\n"), "{metrics}");
}

#[test]
fn the_page_is_there_without_a_key_and_asks_nothing_of_others() {
    let server = server(0, 8, ServeOptions { key: Some("secret".into()), ..ServeOptions::default() });
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type").as_deref()), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'self'")));
    for path in ["/page.css", "/page.js"] {
        assert!(page.text.contains(path));
        assert_eq!(server.get(path).status, 200);
    }
}

#[test]
fn a_broken_vm_is_an_error_for_clients_and_for_health() {
    let server = broken_server(5, 8, ServeOptions::default(), Some(Defect::Fails(30)));
    let request = json!({ "prompt": "t20", "max_tokens": 40, "stream": true, "temperature": 0 });
    let chunks = server.post("/v1/completions", &request).events();
    let last = &chunks[chunks.len() - 1]["error"];
    assert!(last["message"].as_str().is_some_and(|text| text.contains("the machine is broken")), "{last}");
    assert_eq!(server.get("/health").status, 503);
    assert_eq!(server.post("/v1/completions", &ask("t1")).status, 503);
}

#[test]
fn a_text_that_cannot_go_on_is_an_error_for_its_client_alone() {
    let server = broken_server(0, 8, ServeOptions::default(), Some(Defect::HasNoLogits(30)));
    let failed = server.post("/v1/completions", &ask("t29"));
    let error = json!({
        "message": "the text failed: none of the 50 logits is a finite number", "type": "server_error", "param": null,
        "code": null,
    });
    assert_eq!((failed.status, failed.json()["error"].clone()), (500, error));
    // The likeliest token is in the prompt.
    let mut penalised = ask("t5 t4");
    penalised["repetition_penalty"] = json!(1e-39);
    let refused = server.post("/v1/completions", &penalised);
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    penalised["stream"] = json!(true);
    assert_eq!(server.post("/v1/completions", &penalised).status, 400);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.post("/v1/completions", &ask("t1")).json()["choices"][0]["text"], " t2 t3 t4");
}

#[test]
fn an_engine_that_panics_leaves_no_answer_that_seems_complete() {
    let server = broken_server(5, 8, ServeOptions::default(), Some(Defect::Panics(47)));
    let request = json!({ "prompt": "t30", "max_tokens": 40, "stream": true, "temperature": 0 });
    let answer = server.post("/v1/completions", &request);
    let chunks = answer.events();
    assert!(chunks[chunks.len() - 1]["error"]["message"].as_str().is_some_and(|why| why.contains("not complete")));
    assert!(!answer.text.contains("[DONE]"), "{}", answer.text);
    // The thread may still be on its way.
    for _ in 0..100 {
        if server.get("/health").status == 503 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(server.get("/health").text.contains("it panicked"));
    assert_eq!(server.post("/v1/completions", &ask("t1")).status, 503);
}

#[test]
fn the_end_waits_for_no_head() {
    let mut server = server(5, 8, ServeOptions { grace: Duration::from_secs(25), ..ServeOptions::default() });
    let half = server.half(b"GET /heal");
    let next = server.half(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\nGET /heal");
    // The server has read both.
    server.get("/health");
    std::thread::sleep(Duration::from_millis(100));
    let request = json!({ "prompt": "t1", "max_tokens": 30, "stream": true, "temperature": 0 });
    let stream = server.stream("/v1/completions", &request);
    let start = Instant::now();
    server.end();
    assert!(stream.rest().ends_with("data: [DONE]\n\n"));
    server.join();
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    drop((half, next));
}

#[test]
fn the_end_waits_for_open_answers_as_long_as_its_grace() {
    let mut server = server(5, 8, ServeOptions { grace: Duration::from_secs(20), ..ServeOptions::default() });
    let request = json!({ "prompt": "t1", "max_tokens": 30, "stream": true, "temperature": 0 });
    let stream = server.stream("/v1/completions", &request);
    server.end();
    let text = stream.rest();
    assert!(text.contains("t31") && text.ends_with("data: [DONE]\n\n"), "{text}");
    server.join();
    let mut server = broken_server(50, 8, ServeOptions { grace: Duration::ZERO, ..ServeOptions::default() }, None);
    let stream = server.stream("/v1/completions", &json!({ "prompt": "t1", "max_tokens": 1000, "stream": true }));
    let start = Instant::now();
    server.end();
    server.join();
    assert!(start.elapsed() < Duration::from_secs(10));
    drop(stream);
}
