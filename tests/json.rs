//! JSON that users write: a field that there is not is an error that names it.

use amk_bench::tune::Saved;
use amk_cuda::TARGETS;
use amk_ir::graph::Graph;
use amk_ir::program::Limits;
use amk_ir::schedule::{FuseInto, Fusion, Schedule, Tile};
use amk_ir::text::{parse, read_json};
use amk_ir::{Param, Program};
use amk_models::model::FAMILIES;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const BOGUS: &str = "stpe";

/// The value with a bogus field in one of its objects, for each of them; of the elements of a list
/// the first of each form will do.
fn with_a_bogus_field(value: &Value) -> Vec<Value> {
    let (mut out, mut seen) = (Vec::new(), BTreeSet::new());
    let mut paths = vec![String::new()];
    while let Some(path) = paths.pop() {
        match value.pointer(&path) {
            Some(Value::Object(fields)) => {
                let form: Vec<&str> =
                    path.split('/').map(|step| if step.parse::<usize>().is_ok() { "*" } else { step }).collect();
                let keys: Vec<String> = fields.keys().cloned().collect();
                let is_new = seen.insert((form.join("/"), keys));
                // Names of fields have no character that JSON pointers escape, but names of flags
                // and tiles may have.
                paths.extend(fields.keys().map(|key| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))));
                if !is_new {
                    continue;
                }
                let mut changed = value.clone();
                if let Some(Value::Object(fields)) = changed.pointer_mut(&path) {
                    fields.insert(BOGUS.to_owned(), Value::Null);
                }
                out.push(changed);
            }
            Some(Value::Array(items)) => paths.extend((0..items.len()).map(|n| format!("{path}/{n}"))),
            _ => {}
        }
    }
    out
}

/// The number of objects, after it has been seen that a bogus field in each is an error.
fn each_object_refuses(value: &Value, read: impl Fn(&str) -> Result<(), String>) -> usize {
    read(&value.to_string()).unwrap_or_else(|error| panic!("{error}: {value}"));
    let (bogus, mut named) = (with_a_bogus_field(value), 0);
    for changed in &bogus {
        let error = read(&changed.to_string()).expect_err(&changed.to_string());
        named += usize::from(error.contains(BOGUS));
        // A map accepts any name, but the value is missing; other members next to a variant are
        // ignored.
        let other = error.starts_with("invalid type: null") || error.starts_with("expected value");
        assert!(error.contains(BOGUS) || other, "{error}");
    }
    assert!(named * 2 > bogus.len(), "{named} of {}", bogus.len());
    bogus.len()
}

fn programs() -> Vec<Program> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let folders = fs::read_dir(root).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
    let texts = files.map(|file| fs::read_to_string(file).unwrap());
    texts.filter_map(|text| parse(&text).ok()).filter(|program| program.to_json().is_ok()).collect()
}

#[test]
fn every_object_of_a_program_knows_its_fields() {
    let read = |text: &str| {
        Program::from_json(text).map(drop).map_err(|error| match error {
            amk_ir::text::JsonError::Form(form) => form.to_string(),
            other => other.to_string(),
        })
    };
    let mut objects = 0;
    for mut program in programs() {
        program.dims.insert("N".to_owned(), 4);
        program.tasks.iter_mut().flat_map(|task| &mut task.calls).for_each(|call| call.params.push(Param::F32(0.5)));
        objects += each_object_refuses(&serde_json::from_str(&program.to_json().unwrap()).unwrap(), read);
    }
    assert!(objects > 500, "{objects}");
}

#[test]
fn a_misspelt_field_is_named_with_its_line() {
    let json = parse("program @t\nsteps pipelined\ntask t0:\nworker w0: t0\n").unwrap().to_json().unwrap();
    let error = Program::from_json(&json.replace("\"steps\"", "\n\"step\"")).unwrap_err();
    let amk_ir::text::JsonError::Form(form) = error else { panic!("{error}") };
    assert!(form.to_string().starts_with("unknown field `step`, expected one of `name`, `dims`, "), "{form}");
    assert!(form.to_string().contains(" at line 2 column "), "{form}");
    let hostile = json.replace("\"steps\"", "\"st\\u001b[2Ke\\nps\"");
    let amk_ir::text::JsonError::Form(form) = Program::from_json(&hostile).unwrap_err() else { panic!("{hostile}") };
    assert!(form.to_string().starts_with(r"unknown field `st\u001b[2Ke\nps`, expected"), "{form}");
}

#[test]
fn every_object_of_a_graph_knows_its_fields() {
    let mut objects = 0;
    for family in FAMILIES {
        let graph = serde_json::to_value(family.kernel.graph().unwrap()).unwrap();
        objects += each_object_refuses(&graph, |text| {
            serde_json::from_str::<Graph>(text).map(drop).map_err(|error| error.to_string())
        });
    }
    assert!(objects > 100, "{objects}");
}

#[test]
fn every_object_of_a_schedule_knows_its_fields() {
    let schedule = Schedule {
        tiles: [("linear".to_owned(), Tile::Size(16))].into(),
        fuse: vec![Fusion { op: "add".to_owned(), into: FuseInto::Producer }],
        limits: Limits { workers: 132, ..Limits::default() },
        ..Schedule::default()
    };
    let read = |text: &str| read_json::<Schedule>(text).map(drop).map_err(|error| error.to_string());
    assert_eq!(each_object_refuses(&serde_json::to_value(schedule).unwrap(), read), 6);
    let saved = json!({ "schedule": TARGETS[0].schedule(), "model": "m", "gain": 0.1, "positions": [0] });
    let read = |text: &str| read_json::<Saved>(text).map(drop).map_err(|error| error.to_string());
    assert_eq!(each_object_refuses(&saved, read), 3);
}
