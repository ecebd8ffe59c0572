//! `generate`: what the options and the model's defaults do to the text.

use super::amk::{fails, run_with, succeeds, tiny_llama, write_json};
use serde_json::json;
use tempfile::TempDir;

const PROMPT: &str = "the cat";

/// The text of some tokens after [`PROMPT`].
fn text(model: &TempDir, arguments: &[&str]) -> String {
    succeeds("generate", model, &[&[PROMPT, "--raw", "-q", "-n", "24", "--ignore-eos"], arguments].concat())
}

/// The messages of a run, apart from the text.
fn messages(model: &TempDir, arguments: &[&str]) -> String {
    let output = run_with("", "generate", model, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_greedy_way_has_the_repetition_penalty() {
    let model = tiny_llama();
    let plain = text(&model, &["--greedy"]);
    write_json(&model, "generation_config.json", &json!({"do_sample": false, "repetition_penalty": 3.0}));
    let penalised = text(&model, &["--temperature", "0"]);
    assert_ne!(penalised, plain);
    assert_eq!(text(&model, &["--greedy"]), penalised);
    assert_eq!(text(&model, &[]), penalised);
    assert_eq!(text(&model, &["--greedy", "--repetition-penalty", "1"]), plain);
}

#[test]
fn presence_and_frequency_penalties_are_of_the_text() {
    let model = tiny_llama();
    let of = |option: &str, value: &str| text(&model, &["--greedy", option, value]);
    let plain = text(&model, &["--greedy"]);
    for option in ["--presence-penalty", "--frequency-penalty"] {
        assert_eq!(of(option, "0"), plain);
        assert_ne!(of(option, "2"), plain);
        let name = option.trim_start_matches('-').replace('-', " ");
        let refused = fails("generate", &model, &[PROMPT, option, "-2.5"]);
        assert_eq!(refused, format!("{name} is -2.5, but must be from -2 to 2"));
    }
}

#[test]
fn json_has_the_logprob_of_each_token_where_it_is_asked_for() {
    let model = tiny_llama();
    let line = |options: &[&str]| {
        let line = text(&model, &[&["--json", "--greedy"], options].concat());
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    let mut with = line(&["--logprobs"]);
    let tokens = with["tokens"].take();
    let logprobs: Vec<f64> =
        tokens.as_array().unwrap().iter().map(|token| token["logprob"].as_f64().unwrap()).collect();
    assert_eq!(with["usage"]["completion_tokens"], logprobs.len());
    assert!(logprobs.iter().all(|&logprob| logprob < 0.0), "{logprobs:?}");
    let mut without = line(&[]);
    let timings = without["timings"].take();
    with["timings"].take();
    let plain = without["tokens"].take();
    assert_eq!(with, without);
    let seconds = |field: &str| timings[field].as_f64().unwrap();
    assert!(seconds("seconds") > 0.0 && seconds("prompt_seconds") > 0.0 && timings["prompt_tokens"] == 7, "{timings}");
    let of = |tokens: &serde_json::Value, field: &str| -> Vec<serde_json::Value> {
        tokens.as_array().unwrap().iter().map(|token| token[field].clone()).collect()
    };
    assert_eq!(of(&plain, "id"), of(&tokens, "id"));
    assert!(of(&plain, "token").iter().all(serde_json::Value::is_string) && plain[0]["logprob"].is_null());
    // Guesses change nothing.
    assert_eq!(line(&["--logprobs", "--speculate", "lookup"])["tokens"], tokens);
}

#[test]
fn a_prompt_may_be_in_a_file() {
    let model = tiny_llama();
    let file = model.path().join("prompt");
    std::fs::write(&file, format!("{PROMPT}\n")).unwrap();
    let options = ["--raw", "-q", "--greedy", "-n", "9"];
    let of = |prompt: &[&str]| succeeds("generate", &model, &[prompt, &options].concat());
    assert_eq!(of(&["-f", file.to_str().unwrap()]), of(&[PROMPT]));
    let from_input = run_with(&format!("{PROMPT}\r\n"), "generate", &model, &[&["-f", "-"][..], &options].concat());
    assert_eq!(String::from_utf8(from_input.stdout).unwrap(), of(&[PROMPT]));
    assert!(fails("generate", &model, &["-f", "/nothing"]).starts_with("cannot read the prompt in /nothing"));
}

#[test]
fn a_text_is_of_the_grammar_in_a_file() {
    let model = tiny_llama();
    let file = |name: &str, text: &str| {
        std::fs::write(model.path().join(name), text).unwrap();
        model.path().join(name).display().to_string()
    };
    let schema = file(
        "schema",
        r#"{"type": "object",
        "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
        "additionalProperties": false}"#,
    );
    let prompt = [PROMPT, "--raw", "-q", "--seed", "3", "-n", "200"];
    let run = |options: &[&str]| succeeds("generate", &model, &[&prompt, options].concat());
    let json: serde_json::Value = serde_json::from_str(&run(&["--json-schema", &schema])).unwrap();
    assert!(json["n"] == 1 || json["n"] == 2, "{json}");
    let grammar = file("grammar", r#"start: ("ab" | "c"){1,9} ".""#);
    let text = run(&["--grammar", &grammar, "--speculate", "lookup"]);
    assert!(text.ends_with(".\n") && text.replace("ab", "").trim_matches(['c', '.', '\n']).is_empty(), "{text}");
    let why = messages(&model, &[PROMPT, "--raw", "--greedy", "--json-schema", &file("one", r#"{"const": 1}"#)]);
    assert!(why.ends_with("the text of the grammar is complete]\n"), "{why}");
    let wrong = file("wrong", "start = a");
    let refused = fails("generate", &model, &[PROMPT, "--grammar", &wrong]);
    assert!(refused.starts_with(&format!("{wrong}: the grammar: ")), "{refused}");
    let refused = fails("generate", &model, &[PROMPT, "--json-schema", &wrong]);
    assert!(refused.starts_with(&format!("{wrong} is not JSON: ")), "{refused}");
}

#[test]
fn a_rate_stands_only_beside_what_was_timed() {
    let model = tiny_llama();
    // An empty text is one token, the beginning-of-text token.
    let one = messages(&model, &["", "--raw", "--greedy", "-n", "3"]);
    assert!(one.starts_with("[prompt: 1 token at ") && one.contains("; text: 3 tokens at "), "{one}");
    let none = messages(&model, &[PROMPT, "--raw", "--greedy", "-n", "0"]);
    assert!(none.starts_with("[prompt: 7 tokens at ") && none.contains(" a second; text: 0 tokens; "), "{none}");
}

#[test]
fn why_a_text_ended_is_told_in_words() {
    let model = tiny_llama();
    let why = |arguments: &[&str]| {
        let messages = messages(&model, &[&[PROMPT, "--raw", "--greedy"], arguments].concat());
        messages
            .trim_end()
            .trim_end_matches(']')
            .rsplit_once("; text: ")
            .unwrap()
            .1
            .split_once("; ")
            .unwrap()
            .1
            .to_owned()
    };
    assert_eq!(why(&["-n", "5", "--ignore-eos"]), "stopped at the limit of 5 tokens; -n raises it");
    assert_eq!(why(&["-c", "9", "--ignore-eos"]), "stopped at the end of the context of 9 positions; -c raises it");
    // Every text of one token or more has the first character of the greedy one.
    let first = text(&model, &["--greedy"]).chars().next().unwrap().to_string();
    assert_eq!(why(&["--stop", &first]), "stopped at a --stop text");
    let ends = json!({"do_sample": false, "eos_token_id": (0..320).collect::<Vec<u32>>()});
    write_json(&model, "generation_config.json", &ends);
    assert_eq!(why(&[]), "the model ended the text");
}

#[test]
fn a_model_with_a_chat_template_is_prompted_by_it_unless_it_is_raw() {
    let model = tiny_llama();
    let prompt = |arguments: &[&str]| messages(&model, &[&[PROMPT, "--greedy", "-n", "4"], arguments].concat());
    let chat = prompt(&[]);
    assert!(chat.starts_with("[the model answers the prompt by its chat template; --raw goes on"), "{chat}");
    assert!(chat.contains("[prompt: 25 tokens "), "{chat}");
    assert!(prompt(&["--chat"]).starts_with("[prompt: 25 tokens "));
    assert!(prompt(&["--raw"]).starts_with("[prompt: 7 tokens "));
    assert!(!prompt(&["--system", "Be brief."]).contains("prompt: 25 tokens "));

    std::fs::remove_file(model.path().join("tokenizer_config.json")).unwrap();
    assert!(prompt(&[]).starts_with("[prompt: 7 tokens "));
    let refused = |option: &[&str]| fails("generate", &model, &[&[PROMPT], option].concat());
    assert!(refused(&["--chat"]).ends_with(" has no chat template; leave out --chat"));
    assert!(refused(&["--system", "Be brief."]).ends_with(" has no chat template; leave out --system"));
}

#[test]
fn a_seed_that_nobody_chose_is_another_each_time_and_printed() {
    let model = tiny_llama();
    let seed = |arguments: &[&str]| {
        let output =
            run_with("", "generate", &model, &[&[PROMPT, "--raw", "-n", "24", "--ignore-eos"], arguments].concat());
        let messages = String::from_utf8(output.stderr).unwrap();
        let seed = messages.strip_prefix("[--seed ").and_then(|rest| rest.split_once(" writes this text again]\n"));
        (seed.map(|(seed, _)| seed.to_owned()), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (one, text) = seed(&[]);
    let one = one.expect("a seed");
    assert_ne!(seed(&[]).0.as_ref(), Some(&one));
    assert_eq!(seed(&["--seed", &one]), (None, text));
    assert_eq!(seed(&["--greedy"]).0, None);
}

#[test]
fn where_the_model_recommends_no_sampling_the_tail_is_cut() {
    let model = tiny_llama();
    let of = |arguments: &[&str]| text(&model, &[&["--seed", "3", "-n", "200"], arguments].concat());
    write_json(&model, "generation_config.json", &json!({}));
    assert_eq!(of(&[]), of(&["--temperature", "0.6", "--top-p", "0.9"]));
    assert_ne!(of(&[]), of(&["--top-p", "1"]));
    write_json(&model, "generation_config.json", &json!({"temperature": 1.3}));
    assert_eq!(of(&[]), of(&["--temperature", "1.3", "--top-p", "1"]));
}

#[test]
fn an_unknown_field_is_allowed_by_its_name() {
    let model = tiny_llama();
    let plain = text(&model, &["--greedy"]);
    let config = std::fs::read_to_string(model.path().join("config.json")).unwrap();
    let more = config.replacen('{', r#"{"some_new_trick": 3, "another": 4,"#, 1);
    std::fs::write(model.path().join("config.json"), more).unwrap();
    let refused = fails("generate", &model, &[PROMPT, "--allow-unknown", "another"]);
    assert!(refused.ends_with("; --allow-unknown some_new_trick ignores it"), "{refused}");
    let both = ["--allow-unknown", "another", "--allow-unknown", "some_new_trick"];
    assert_eq!(text(&model, &[&["--greedy"], &both[..]].concat()), plain);
    succeeds("bench", &model, &[&["-n", "2", "--threads", "1"], &both[..]].concat());
}

#[test]
fn the_last_of_repeated_options_counts() {
    let model = tiny_llama();
    assert_eq!(text(&model, &["--greedy", "-n", "3", "-n", "5"]), text(&model, &["--greedy", "-n", "5"]));
}

#[test]
fn special_tokens_are_shown_where_they_are_asked_for() {
    let model = tiny_llama();
    let tokenizer = std::fs::read_to_string(model.path().join("tokenizer.json")).unwrap();
    let end = "<|end_of_text|>";
    assert!(tokenizer.contains(end));
    // Seeds whose texts end before the limit show the token that ended them.
    let of = |seed: &str, arguments: &[&str]| {
        succeeds("generate", &model, &[&[PROMPT, "--raw", "-q", "--seed", seed, "-t", "2"], arguments].concat())
    };
    let shown =
        (0..50).map(|seed| of(&seed.to_string(), &["--show-special"])).find(|text| text.ends_with(&format!("{end}\n")));
    assert!(shown.is_some(), "no text ended");
    assert!((0..5).all(|seed| !of(&seed.to_string(), &[]).contains(end)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_text_at_once() {
    use std::process::{Command, Stdio};
    let model = tiny_llama();
    let full = std::fs::File::create("/dev/full").unwrap();
    let mut amk = Command::new(env!("CARGO_BIN_EXE_amk"));
    amk.args(["generate", "-q", "--ignore-eos", "-n", "200", PROMPT, "-m"]).arg(model.path());
    let output = amk.stdout(full).stderr(Stdio::piped()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("error: the text cannot be written: No space left on device"), "{error}");
}

#[test]
fn one_newline_at_the_end_of_standard_input_is_not_of_the_prompt() {
    let model = tiny_llama();
    let read = |input: &str| {
        let output = run_with(input, "generate", &model, &["-", "--raw", "--greedy", "-q", "-n", "24", "--ignore-eos"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = text(&model, &["--greedy"]);
    assert_eq!(read(PROMPT), plain);
    assert_eq!(read(&format!("{PROMPT}\n")), plain);
    assert_eq!(read(&format!("{PROMPT}\r\n")), plain);
    assert_ne!(read(&format!("{PROMPT}\n\n")), plain);
}

#[test]
fn a_prompt_may_fill_the_context() {
    let model = tiny_llama();
    // Seven tokens.
    let of = |context: &str| messages(&model, &[PROMPT, "--raw", "--greedy", "--ignore-eos", "-c", context]);
    assert!(of("8").contains("; text: 2 tokens at ") && of("7").contains("; text: 1 token; "), "{}", of("7"));
    let longer = fails("generate", &model, &[PROMPT, "--raw", "-c", "6"]);
    assert!(longer.starts_with("the prompt has 7 tokens, but the context has 6 positions"), "{longer}");
}

#[test]
fn a_default_out_of_range_names_its_file_and_field() {
    let model = tiny_llama();
    write_json(&model, "generation_config.json", &json!({"temperature": 0.6}));
    let plain = text(&model, &["--seed", "3"]);
    // As in transformers: such a probability keeps all tokens.
    write_json(&model, "generation_config.json", &json!({"temperature": 0.6, "top_p": 1.5}));
    assert_eq!(text(&model, &["--seed", "3"]), plain);
    let own = fails("generate", &model, &[PROMPT, "--top-p", "2"]);
    assert_eq!(own, "top-p is 2, but must be above 0 and at most 1");
    write_json(&model, "generation_config.json", &json!({"min_p": 2}));
    let file = model.path().join("generation_config.json");
    let expected = format!("{}: `min_p` is 2: expected a number from 0 to 1", file.display());
    assert_eq!(fails("generate", &model, &[PROMPT]), expected);
}

#[test]
fn several_prompts_have_the_texts_that_each_has_alone() {
    let model = tiny_llama();
    let prompts = ["the cat", "a dog and", "the"];
    let file = model.path().join("prompts.txt");
    std::fs::write(&file, prompts.join("\n\n")).unwrap();
    let options = ["--raw", "-q", "-n", "20", "--ignore-eos", "-t", "1", "--json", "--logprobs"];
    let alone = |number: usize| {
        let seed = (7 + number).to_string();
        succeeds("generate", &model, &[&[prompts[number], "--seed", &seed], &options[..]].concat())
    };
    for parallel in ["1", "2", "8"] {
        let together = [&["--prompts", file.to_str().unwrap(), "--seed", "7", "--parallel", parallel], &options[..]];
        let lines = succeeds("generate", &model, &together.concat());
        assert_eq!(lines.lines().count(), 3);
        for (number, line) in lines.lines().enumerate() {
            let mut of = serde_json::from_str::<serde_json::Value>(line).unwrap();
            assert_eq!(of["index"].take(), number);
            let mut one = serde_json::from_str::<serde_json::Value>(&alone(number)).unwrap();
            one["index"].take();
            of["timings"].take();
            one["timings"].take();
            assert_eq!(of, one, "{parallel} at a time");
        }
    }
    let shown =
        succeeds("generate", &model, &["--prompts", file.to_str().unwrap(), "--raw", "-q", "--greedy", "-n", "3"]);
    let headings: Vec<&str> = shown.lines().filter(|line| line.starts_with("== ")).collect();
    assert_eq!(headings, ["== 1: the cat", "== 2: a dog and", "== 3: the"]);
    let from_input = ["--prompts", "-", "--raw", "-q", "--greedy", "-n", "3"];
    let from_input = run_with(&prompts.join("\n\n"), "generate", &model, &from_input);
    assert_eq!(String::from_utf8(from_input.stdout).unwrap(), shown);
}

#[test]
fn a_text_that_fails_holds_no_other_up() {
    let model = tiny_llama();
    let file = model.path().join("prompts.jsonl");
    std::fs::write(&file, "{\"prompt\": \"the cat\", \"repetition_penalty\": 1e-39}\n\"the cat\"").unwrap();
    let file = file.display().to_string();
    let run = |options: &[&str]| {
        let all = ["--prompts", &file, "--raw", "-q", "--greedy", "-n", "5", "--ignore-eos"];
        let output = run_with("", "generate", &model, &[&all, options].concat());
        let why = "a repetition penalty of 1e-39 makes logits infinite; choose one nearer to 1";
        assert!(!output.status.success());
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("error: {file}, line 1: {why}\n"));
        (String::from_utf8(output.stdout).unwrap(), why)
    };
    let alone = text(&model, &["--greedy", "-n", "5"]);
    let (lines, why) = run(&["--json"]);
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["error"], &lines[0]["finish_reason"]), (2, &json!(why), &json!(null)));
    assert_eq!(format!("{}\n", lines[1]["text"].as_str().unwrap()), alone);
    assert!(run(&[]).0.ends_with(&format!("== 2: the cat\n{alone}")));
}

#[test]
fn a_file_of_prompts_may_be_json_lines() {
    let model = tiny_llama();
    let file = model.path().join("prompts.jsonl");
    let write = |lines: &[&str]| std::fs::write(&file, lines.join("\n")).unwrap();
    let path = file.to_str().unwrap();
    let texts = |options: &[&str]| {
        succeeds("generate", &model, &[&["--prompts", path, "-q", "--greedy", "-n", "9", "--json"], options].concat())
    };
    write(&[r#""the cat""#, r#"{"prompt": "the cat"}"#, r#"{"messages": [{"role": "user", "content": "the cat"}]}"#]);
    let lines = texts(&[]);
    let texts_of: Vec<_> =
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].clone()).collect();
    assert!(texts_of.len() == 3 && texts_of.iter().all(|text| *text == texts_of[0]), "{lines}");
    let refused = fails("generate", &model, &["--prompts", path, "--raw"]);
    assert!(refused.ends_with(" has no chat template for messages, or --raw leaves it out"), "{refused}");
    let parts = r#"[{"type": "text", "text": "the"}, {"type": "text", "text": " cat"}]"#;
    write(&[&format!(r#"{{"messages": [{{"role": "user", "content": {parts}}}]}}"#)]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&texts(&[])).unwrap()["text"], texts_of[0]);
    let refusal = |line: &str| {
        write(&["\"fine\"", line]);
        fails("generate", &model, &["--prompts", path])
    };
    for wrong in ["the cat", "5", r#"{"text": "the cat"}"#, r#"{"messages": [{"role": "user", "content": 5}]}"#] {
        let refused = refusal(wrong);
        assert!(refused.contains("prompts.jsonl, line 2: expected a string, {\"prompt\": ..} or"), "{refused}");
        assert!(!refused.contains("enum"), "{refused}");
    }
    let option = refusal(r#"{"prompt": "the cat", "tools": []}"#);
    assert!(option.ends_with("prompts.jsonl, line 2: a line cannot set `tools`"), "{option}");
    let both = refusal(r#"{"prompt": "the cat", "messages": [{"role": "user", "content": "a dog"}]}"#);
    assert!(both.ends_with("prompts.jsonl, line 2: a prompt and messages; give one of them"), "{both}");
    let none = refusal(r#"{"messages": []}"#);
    assert!(none.ends_with("prompts.jsonl, line 2: no messages"), "{none}");
    let image = refusal(r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#);
    assert!(image.ends_with("prompts.jsonl, line 2: content of type `image_url` is not supported"), "{image}");
    let role = refusal(r#"{"messages": [{"role": "usr", "content": "the cat"}]}"#);
    assert!(role.contains("prompts.jsonl, line 2: no role `usr`; expected one of system, developer,"), "{role}");
    write(&["\"fine\"", "", &format!("\"{}\"", "the cat ".repeat(999))]);
    let long = fails("generate", &model, &["--prompts", path]);
    assert!(long.contains("prompts.jsonl, line 3: the prompt has "), "{long}");
    let prompts =
        ["system", "developer"].map(|role| format!(r#"{{"messages": [{{"role": "{role}", "content": "a"}}]}}"#));
    write(&prompts.each_ref().map(String::as_str));
    let lines = texts(&[]);
    let texts_of: Vec<_> =
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].clone()).collect();
    assert_eq!(texts_of[0], texts_of[1]);
    write(&[]);
    assert_eq!(fails("generate", &model, &["--prompts", path]), "there is no prompt in the file of --prompts");
}

/// Each text is what the command writes for its prompt alone with the line's options.
#[test]
fn lines_have_options_of_their_own() {
    let model = tiny_llama();
    let file = model.path().join("prompts.jsonl");
    let path = file.to_str().unwrap();
    let texts = |lines: &[&str], options: &[&str]| -> Vec<String> {
        std::fs::write(&file, lines.join("\n")).unwrap();
        let lines = succeeds("generate", &model, &[&["--prompts", path, "-q", "--raw", "--json"], options].concat());
        let text = |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().to_owned();
        lines.lines().map(text).collect()
    };
    let alone =
        |options: &[&str]| text(&model, &[&["--raw", "-q"], options].concat()).trim_end_matches('\n').to_owned();
    let prompt = |options: &str| format!(r#"{{"prompt": "{PROMPT}", {options}}}"#);
    let lines = [
        prompt(r#""max_tokens": 5, "temperature": 0"#),
        prompt(r#""seed": 7, "temperature": 0.9, "top_k": 40, "top_p": 0.8, "min_p": 0.01, "ignore_eos": true"#),
        prompt(r#""seed": null, "frequency_penalty": 1.5, "presence_penalty": 0.5, "repetition_penalty": 1.2"#),
        prompt(r#""max_completion_tokens": 30, "temperature": 0, "id": "five""#),
    ];
    let written = texts(&lines.each_ref().map(String::as_str), &["-n", "12", "--seed", "3", "-t", "0.7"]);
    assert_eq!(written[0], alone(&["--greedy", "-n", "5"]));
    let sampled = ["-n", "12", "--seed", "7", "-t", "0.9", "--top-k", "40", "--top-p", "0.8", "--min-p", "0.01"];
    assert_eq!(written[1], alone(&[&sampled[..], &["--ignore-eos"]].concat()));
    let penalties = ["--frequency-penalty", "1.5", "--presence-penalty", "0.5", "--repetition-penalty", "1.2"];
    assert_eq!(written[2], alone(&[&["-t", "0.7", "-n", "12", "--seed", "5"], &penalties[..]].concat()));
    let greedy = alone(&["--greedy", "-n", "30"]);
    assert_eq!(written[3], greedy);
    assert_eq!(texts(&[&prompt(r#""top_p": 0, "temperature": 0.9"#)], &["-n", "30"]), [&greedy[..]]);
    let all = |top: i32| texts(&[&prompt(&format!(r#""top_k": {top}, "temperature": 0.9"#))], &["--seed", "3"]);
    assert_eq!(all(-1), all(0));
    let of_stop =
        |stops: String| texts(&[&prompt(&format!(r#""stop": {stops}"#))], &["--greedy", "-n", "30"]).remove(0);
    let letters: Vec<char> = greedy.chars().skip(2).collect();
    let stop = letters.windows(2).find(|two| two.iter().all(char::is_ascii_alphabetic)).expect("two letters");
    let stop = format!("\"{}{}\"", stop[0], stop[1]);
    let ended = of_stop(stop.clone());
    assert!(ended.len() < greedy.len() && greedy.starts_with(&ended), "{ended:?} of {greedy:?}");
    assert_eq!(of_stop(format!("[{stop}]")), ended);
    let of_seed = |seed: &str, options: &[&str]| texts(&[&prompt(&format!(r#""seed": {seed}"#))], options).remove(0);
    assert_eq!(
        of_seed("-1", &["-n", "12", "-t", "0.7"]),
        of_seed("null", &["-n", "12", "-t", "0.7", "--seed", "18446744073709551615"])
    );
    for (options, error) in [
        (r#""max_tokens": "5""#, "line 1: `max_tokens` is \"5\", expected a whole number of at least 1"),
        (r#""max_tokens": 0"#, "line 1: `max_tokens` is 0, expected a whole number of at least 1"),
        (r#""seed": 9223372036854775808"#, "line 1: `seed` is 9223372036854775808, expected a whole number from -"),
        (r#""top_k": 0.5"#, "line 1: `top_k` is 0.5, expected a whole number"),
        (r#""top_p": 1.5"#, "line 1: `top_p` is 1.5, expected a number from 0 to 1"),
        (r#""temperature": -1"#, "line 1: "),
        (r#""stop": 5"#, "line 1: `stop` is 5, expected a text or "),
        (r#""stop": """#, "line 1: `stop` is \"\", expected a text or "),
        (r#""stop": ["a", ""]"#, "line 1: `stop` is [\"a\",\"\"], expected a text or "),
    ] {
        std::fs::write(&file, prompt(options)).unwrap();
        let refused = fails("generate", &model, &["--prompts", path]);
        assert!(refused.contains(error), "{refused}");
    }
}

#[test]
fn guesses_change_nothing_but_the_speed() {
    let model = tiny_llama();
    let of = |options: &[&str]| text(&model, &[&["-n", "200"], options].concat());
    let penalised = ["--greedy", "--frequency-penalty", "0.1"];
    for sampling in [&["--greedy"][..], &["--seed", "5", "-t", "0.2"], &penalised] {
        assert_eq!(of(&[sampling, &["--speculate", "lookup"]].concat()), of(sampling));
    }
    // A model guesses itself.
    let path = model.path().to_str().unwrap();
    let own = messages(&model, &[PROMPT, "--raw", "--seed", "5", "-n", "40", "--ignore-eos", "--speculate", path]);
    let guesses: Vec<&str> = own.split_once(" a second, ").expect("guesses").1.split(' ').collect();
    assert_eq!(guesses[0], guesses[2], "{own}");
    for sampling in [&["--greedy"][..], &["--seed", "5", "-t", "0.7"]] {
        assert_eq!(of(&[sampling, &["--speculate", path]].concat()), of(sampling));
    }
    let messages =
        messages(&model, &[PROMPT, "--raw", "--greedy", "-n", "200", "--ignore-eos", "--speculate", "lookup"]);
    assert!(messages.contains(" guesses right; "), "{messages}");
}
