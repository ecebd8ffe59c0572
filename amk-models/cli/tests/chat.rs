//! `chat`: conversations by scripts of turns.

use super::amk::{run_with, tiny_llama};
use serde_json::{Value, json};
#[cfg(unix)]
use std::{
    io::{Read, Write as _},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// The answers and messages of a script.
fn talk(model: &TempDir, script: &str, arguments: &[&str]) -> (String, String) {
    let all = [&["--greedy", "-n", "12"], arguments].concat();
    let output = run_with(script, "chat", model, &all);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (answers, messages) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{script}: {messages}");
    (answers, messages)
}

/// The answer that `generate` gives to a conversation.
fn generated(model: &TempDir, messages: &Value) -> String {
    let prompts = model.path().join("conversation.jsonl");
    std::fs::write(&prompts, json!({ "messages": messages }).to_string()).unwrap();
    let prompts = prompts.display().to_string();
    let output = run_with("", "generate", model, &["--prompts", &prompts, "--greedy", "-n", "12", "-q"]);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_answer_is_the_one_to_the_whole_conversation_of_which_only_new_tokens_run() {
    let model = tiny_llama();
    let user = |text: &str| json!({ "role": "user", "content": text });
    let (first, _) = talk(&model, "the cat\n", &["-q"]);
    assert_eq!(first, generated(&model, &json!([user("the cat")])));
    let answered = json!({ "role": "assistant", "content": first.strip_suffix('\n').unwrap() });
    let second = generated(&model, &json!([user("the cat"), answered, user("sat")]));
    let (both, _) = talk(&model, "the cat\nsat\n/stats\n", &["-q"]);
    let stats = both.strip_prefix(&(first + &second)).unwrap_or_else(|| panic!("{both}"));
    let numbers: Vec<usize> = stats.split([' ', '\n']).filter_map(|word| word.parse().ok()).collect();
    // What this model writes has other tokens when it is read again; its first prompt has not.
    let (prompt, new) = (numbers[0], numbers[1]);
    assert!(new > 0 && new + 25 <= prompt, "{stats}");
    assert!(stats.contains("\nanswer: 12 tokens at "), "{stats}");
}

#[test]
fn commands_change_the_conversation() {
    let model = tiny_llama();
    let file = model.path().join("saved.json").display().to_string();
    let script =
        format!("/system Be brief.\nthe \\\ncat\n/save {file}\n/clear\n/retry\n/load {file}\n/retry\n/exit\nno\n");
    let (answers, messages) = talk(&model, &script, &["-q"]);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let roles: Vec<&str> = saved.as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!((roles, &saved[1]["content"]), (vec!["system", "user", "assistant"], &json!("the \ncat")));
    let answer = saved[2]["content"].as_str().unwrap();
    assert_eq!(answers, format!("{answer}\n{answer}\n"));
    assert_eq!(messages, "there is no message to answer\n");
    let (again, _) = talk(&model, "/retry\n", &["-q", "--load", &file]);
    assert_eq!(again, format!("{answer}\n"));
}

#[test]
fn a_mistake_does_not_end_the_conversation() {
    let model = tiny_llama();
    let long = "word ".repeat(300);
    let script = format!("/sing\n/load nowhere.json\n/stats\n{long}\nthe cat\n");
    let (answers, messages) = talk(&model, &script, &[]);
    let expected = format!("no answer has ended yet\n{}", talk(&model, "the cat\n", &["-q"]).0);
    assert_eq!(answers, expected);
    for part in
        ["/help lists commands; Ctrl-D ends\n", "there is no command /sing", "nowhere.json", "shorten the prompt"]
    {
        assert!(messages.contains(part), "{part}: {messages}");
    }
}

#[test]
fn an_answer_that_fails_does_not_end_the_conversation() {
    let model = tiny_llama();
    let (_, messages) = talk(&model, "the cat\nsat\n", &["-q", "--repetition-penalty", "1e-39"]);
    let failed = "a repetition penalty of 1e-39 makes logits infinite; choose one nearer to 1\n";
    assert_eq!(messages, failed.repeat(2));
}

/// Reads output until it has what is waited for.
#[cfg(unix)]
fn read_until(output: &mut impl Read, there: impl Fn(&str) -> bool) {
    let mut shown = Vec::new();
    while !there(&String::from_utf8_lossy(&shown)) {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        shown.extend(byte);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_a_chat_without_a_terminal() {
    let model = tiny_llama();
    // Whoever runs the tests in the background may ignore the signal, which processes inherit.
    let mut amk = Command::new("env");
    amk.args(["--default-signal=INT", env!("CARGO_BIN_EXE_amk"), "chat", "-q", "--greedy", "-m"]).arg(model.path());
    let mut chat = amk.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (chat.stdin.take().unwrap(), chat.stdout.take().unwrap());
    writeln!(input, "the cat").unwrap();
    read_until(&mut output, |shown| !shown.is_empty());
    Command::new("kill").args(["-INT", &chat.id().to_string()]).status().unwrap();
    assert!(!chat.wait().unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn a_chat_in_a_terminal_keeps_its_history() {
    let model = tiny_llama();
    let (file, cache) = (model.path().join("saved.json"), model.path().join("cache"));
    let chat = format!("{} chat -q --greedy -m {}", env!("CARGO_BIN_EXE_amk"), model.path().display());
    let mut script = Command::new("script");
    script.args(["-qec", &chat, "/dev/null"]).env("AMK_CACHE", &cache);
    let Ok(mut terminal) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("skipped: there is no `script` to make a terminal");
        return;
    };
    let (mut keys, mut screen) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
    read_until(&mut screen, |shown| shown.contains("> "));
    write!(keys, "the cat\r").unwrap();
    read_until(&mut screen, |shown| shown.split_once('\n').is_some_and(|(_, answer)| answer.contains("> ")));
    // What is typed ahead of a prompt is lost.
    write!(keys, "/save {}\r", file.display()).unwrap();
    read_until(&mut screen, |shown| shown.contains("> "));
    write!(keys, "/exit\r").unwrap();
    std::io::copy(&mut screen, &mut std::io::sink()).unwrap();
    assert!(terminal.wait().unwrap().success());
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(saved[1]["role"], "assistant");
    let history = std::fs::read_to_string(cache.join("chat_history")).unwrap();
    assert!(history.contains("the cat"), "{history}");
}
