//! Filetests: each `.amk` file states the expected violations on its lines.
//!
//! `; error: AMK0302 race on ..` at the end of a line expects a violation of that code at the line,
//! with that text in its headline; a text that cannot be read says `; error: ` and a part of the
//! cause. A file without such a comment is accepted.
//!
//! A file that starts with `; test lower` or `; test schedule` is a graph. It is checked and
//! lowered for each of its instances. Findings stand at the line of their call, or at the instance.
//! Without any, the programs or the decisions of the schedule stand as comments behind
//! `; expected:`.
//!
//! `AMK_BLESS=1 cargo test -p amk-tests filetests::` writes the comments anew.

use amk_ir::explain::pages;
use amk_ir::graph_error::GraphError;
use amk_ir::lower::{Lowered, lower};
use amk_ir::shapes;
use amk_ir::text::{GraphLines, JsonError, Lines, parse, parse_graph, parse_graph_with_lines, parse_with_lines, print};
use amk_ir::verify::{Capacity, Reference, Shaped, Violation, check, verify};
use amk_ir::{Program, Queues};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A line, from 1, and its violation.
type Finding = (u32, String);

const MARK: &str = "; error: ";
const EXPECTED: &str = "; expected:\n";

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let folders = fs::read_dir(root).unwrap().map(|folder| folder.unwrap().path());
    let mut files: Vec<PathBuf> =
        folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// The pass that a graph file tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tested {
    Lower,
    Schedule,
}

fn tested(text: &str) -> Option<Tested> {
    match text.lines().next()?.strip_prefix("; test ")? {
        "lower" => Some(Tested::Lower),
        "schedule" => Some(Tested::Schedule),
        other => panic!("`; test {other}`: expected `lower` or `schedule`"),
    }
}

/// The text without its expected output, and that.
fn split(text: &str) -> (&str, &str) {
    text.split_once(EXPECTED).unwrap_or((text, ""))
}

fn expected(text: &str) -> Vec<Finding> {
    let (text, _) = split(text);
    let lines = (1..).zip(text.lines());
    lines.flat_map(|(n, line)| line.split(MARK).skip(1).map(move |finding| (n, finding.trim().to_owned()))).collect()
}

fn without_marks(text: &str) -> String {
    text.lines().map(|line| line.split(MARK).next().unwrap_or("").trim_end().to_owned() + "\n").collect()
}

/// Returns the findings on a text, and a graph's output.
fn found(text: &str) -> (Vec<Finding>, String) {
    match tested(text) {
        Some(tested) => found_in_graph(split(text).0, tested),
        None => (found_in_program(text), String::new()),
    }
}

fn found_in_graph(text: &str, tested: Tested) -> (Vec<Finding>, String) {
    let (mut graph, lines) = match parse_graph_with_lines(text) {
        Ok(read) => read,
        Err(error) => return (vec![(error.line, error.cause.to_string())], String::new()),
    };
    let finding = |error: &GraphError, instance: u32, lines: &GraphLines| {
        let line = error.site.and_then(|site| lines.sites.get(&site).copied());
        (line.unwrap_or(instance), format!("{} {}", error.code, error.headline))
    };
    let errors = shapes::check(&mut graph);
    let mut found: Vec<Finding> = errors.iter().map(|error| finding(error, lines.graph, &lines)).collect();
    let mut output = String::new();
    for (instance, &line) in graph.instances.iter().zip(&lines.instances).filter(|_| errors.is_empty()) {
        match lower(&graph, instance) {
            Ok(lowered) => {
                let violations = check(&lowered.program);
                let messages = violations.iter().map(|violation| violation.message(&lowered.program));
                found.extend(messages.map(|message| (line, format!("{} {}", message.code, message.headline))));
                output.push_str(&shown(&lowered, tested));
            }
            Err(errors) => found.extend(errors.iter().map(|error| finding(error, line, &lines))),
        }
    }
    found.sort();
    (found, output)
}

fn shown(lowered: &Lowered, tested: Tested) -> String {
    if tested == Tested::Lower {
        return print(&lowered.program);
    }
    let mut text = lowered.decided.to_string();
    for line in lowered.decided.unfused() {
        text.push_str(&format!("{line}\n"));
    }
    match &lowered.program.queues {
        Queues::Static(queues) => {
            let tasks: Vec<String> = queues.iter().map(|queue| queue.len().to_string()).collect();
            text.push_str(&format!("tasks of the workers: {}\n", tasks.join(", ")));
        }
        Queues::Ticket { workers, order } => {
            text.push_str(&format!("{} tasks for any of {workers} workers\n", order.len()));
        }
    }
    text
}

fn found_in_program(text: &str) -> Vec<Finding> {
    let (program, lines) = match parse_with_lines(text) {
        Ok(read) => read,
        Err(error) => return vec![(error.line, error.cause.to_string())],
    };
    let violations = check(&program);
    let mut found: Vec<Finding> = violations
        .iter()
        .map(|violation| {
            let message = violation.message(&program);
            (line_of(violation, &lines), format!("{} {}", message.code, message.headline))
        })
        .collect();
    found.sort();
    found
}

/// The line that a violation is about: of party (2) where there are two.
fn line_of(violation: &Violation, lines: &Lines) -> u32 {
    let of = |table: &[u32], index: usize| table.get(index).copied().unwrap_or(lines.program);
    match violation {
        Violation::Missing { from: None, what: Reference::Task(_) } => of(&lines.queues, 0),
        Violation::Deadlock { cycle, .. } => {
            cycle.first().map_or(lines.program, |link| of(&lines.tasks, link.task.index()))
        }
        Violation::TicketOrder { task, .. } | Violation::Queued { task, .. } => of(&lines.tasks, task.index()),
        Violation::NoWorkers { .. } => of(&lines.queues, 0),
        Violation::Shape(Shaped::EmptyEvent { event, .. }) => of(&lines.events, event.index()),
        Violation::Shape(Shaped::Rank { buffer, .. } | Shaped::EmptyBuffer { buffer, .. })
        | Violation::Packet { buffer, .. }
        | Violation::OutputNotWritten { buffer, .. }
        | Violation::Misaligned { buffer, .. }
        | Violation::SharedPlace { buffer, .. }
        | Violation::PlacedLocal { buffer } => of(&lines.buffers, buffer.index()),
        Violation::Table { table, .. } | Violation::RoutedSteps { table } => of(&lines.tables, table.index()),
        Violation::RoutedCounter { event, .. } => of(&lines.events, event.index()),
        Violation::Capacity(Capacity::Workers { .. } | Capacity::Memory { .. }) => lines.limits,
        other => other.parties().last().map_or(lines.program, |task| of(&lines.tasks, task.index())),
    }
}

/// The output behind its mark, each line a comment.
fn commented(output: &str) -> String {
    output.lines().map(|line| format!("; {line}").trim_end().to_owned() + "\n").collect()
}

fn bless(file: &Path, text: &str, found: &[Finding], output: &str) {
    let mut blessed = String::new();
    for (n, line) in (1..).zip(without_marks(split(text).0).lines()) {
        blessed.push_str(line);
        for (_, finding) in found.iter().filter(|(at, _)| *at == n) {
            let space = if blessed.ends_with('\n') || blessed.is_empty() { "" } else { " " };
            blessed.push_str(&format!("{space}{MARK}{finding}"));
        }
        blessed.push('\n');
    }
    if found.is_empty() && !output.is_empty() {
        blessed.push_str(EXPECTED);
        blessed.push_str(&commented(output));
    }
    fs::write(file, blessed).unwrap();
}

#[test]
fn files_have_the_violations_they_say() {
    let blessing = std::env::var_os("AMK_BLESS").is_some();
    let mut wrong = Vec::new();
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        let (found, output) = found(&text);
        if blessing {
            bless(&file, &text, &found, &output);
            continue;
        }
        let expected = expected(&text);
        let fits = |want: &Finding, have: &Finding| want.0 == have.0 && have.1.contains(want.1.as_str());
        let missing: Vec<&Finding> =
            expected.iter().filter(|want| !found.iter().any(|have| fits(want, have))).collect();
        let surplus: Vec<&Finding> =
            found.iter().filter(|have| !expected.iter().any(|want| fits(want, have))).collect();
        if !missing.is_empty() || !surplus.is_empty() {
            wrong.push(format!("{}\n  missing: {missing:?}\n  not expected: {surplus:?}", file.display()));
        }
        let output = if found.is_empty() { commented(&output) } else { String::new() };
        if split(&text).1 != output {
            wrong.push(format!("{}\n  the output is\n{output}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\nAMK_BLESS=1 writes the comments anew", wrong.join("\n"));
}

#[test]
fn the_comparison_can_fail() {
    let text = "program @x\ntask t0: ; error: AMK0108 is in no\nworker w0: t0\n";
    assert_eq!(expected(text), vec![(2, "AMK0108 is in no".to_owned())]);
    assert_eq!(found(text).0, vec![]);
    assert!(!found(&text.replace("w0: t0", "w0:")).0.is_empty());
    let graph = "; test lower\ngraph @x\ninstance one()\nfn () {\n}\n; expected:\n; nothing\n";
    let (findings, output) = found(graph);
    assert!(findings.is_empty() && commented(&output) != split(graph).1, "{output}");
    assert!(!found(&graph.replace("one()", "one(N = 1)")).0.is_empty());
}

#[test]
fn every_code_of_a_program_or_a_graph_has_a_file() {
    let texts: Vec<String> = files().iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let codes: BTreeSet<String> = texts
        .iter()
        .flat_map(|text| expected(text))
        .filter_map(|(_, finding)| finding.get(..7).map(str::to_owned))
        .collect();
    // 2^30 signals do not fit in a file.
    let of_programs = |code: u16| code < 600 && code != 504 || (601..617).contains(&code) || (630..640).contains(&code);
    for page in pages().filter(|page| of_programs(page.code)) {
        let code = format!("AMK{:04}", page.code);
        assert!(codes.contains(&code), "no file has {code}");
    }
    let known: BTreeSet<String> = pages().map(|page| format!("AMK{:04}", page.code)).collect();
    let unknown: Vec<&String> =
        codes.iter().filter(|code| code.starts_with("AMK")).filter(|code| !known.contains(*code)).collect();
    assert!(unknown.is_empty(), "no page explains {unknown:?}");
}

#[test]
fn files_read_back() {
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        if let Ok(graph) = parse_graph(&text) {
            assert_eq!(parse_graph(&graph.to_string()).unwrap(), graph, "{}", file.display());
            assert_eq!(parse_graph(&graph.to_string()).unwrap().to_string(), graph.to_string());
        }
        let Ok(program) = parse(&text) else { continue };
        let printed = print(&program);
        // A parameter that is not a number is not equal to itself.
        assert!(parse(&printed).unwrap() == program || printed.contains("nan"), "{}", file.display());
        assert_eq!(print(&parse(&printed).unwrap()), printed, "{}", file.display());
        match program.to_json() {
            Ok(json) => assert_eq!(Program::from_json(&json).unwrap(), program, "{}", file.display()),
            Err(error) => assert!(matches!(error, JsonError::NotFinite), "{}: {error}", file.display()),
        }
    }
}

/// Names of the verifier's own types and of Rust's, which say nothing to a user.
const INTERNAL: [&str; 20] = [
    "Violation",
    "TaskId",
    "BufferId",
    "EventId",
    "WorkerId",
    "Operand",
    "Region",
    "Interval",
    "Access",
    "EventTensor",
    "Some(",
    "None",
    "Ok(",
    "usize",
    "u32",
    "Vec",
    "::",
    "{",
    "amk_ir",
    "Unordered",
];

#[test]
fn wording_keeps_the_rules_of_the_house() {
    let mut headlines = 0;
    for file in files() {
        let Ok(program) = parse(&fs::read_to_string(&file).unwrap()) else { continue };
        let Err(rejected) = verify(program) else { continue };
        for violation in &rejected.violations {
            let message = violation.message(&rejected.program);
            let place = format!("{}: {message}", file.display());
            headlines += 1;
            // 90 where names are short: one that a user may well have written stays whole.
            assert!(message.headline.chars().count() <= 120, "{} columns: {place}", message.headline.chars().count());
            let first = message.headline.chars().next();
            assert!(first.is_some_and(|c| c.is_lowercase() || c.is_ascii_digit() || c == '`'), "{place}");
            assert!(!message.headline.ends_with('.') && !message.help.ends_with('.'), "{place}");
            assert!(!message.help.is_empty() && !message.help.contains('\n'), "{place}");
            for text in message.notes.iter().chain([&message.headline, &message.help]) {
                assert_eq!(text.matches('`').count() % 2, 0, "{place}");
                // Text in backticks is the user's.
                let own: String = text.split('`').step_by(2).collect();
                let named = INTERNAL.iter().find(|name| own.contains(*name));
                assert!(named.is_none(), "{named:?} in {place}");
            }
            if matches!(violation, Violation::Race(_)) {
                assert!(message.headline.contains("(1)") && message.headline.contains("(2)"), "{place}");
            }
        }
    }
    assert!(headlines > 60, "{headlines}");
}

#[test]
fn reports_read_well() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    for name in [
        "order/amk0302_partial_wait",
        "order/amk0202_queues_and_waits",
        "order/amk0302_several",
        "memory/amk0502_slot_reuse",
    ] {
        let text = fs::read_to_string(folder.join(name).with_extension("amk")).unwrap();
        let Err(rejected) = verify(parse(&text).unwrap()) else { panic!("{name} should be refused") };
        insta::assert_snapshot!(name.replace('/', "_"), rejected.to_string());
    }
}
