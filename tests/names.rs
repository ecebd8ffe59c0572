//! Names that try to forge lines: a report has the verifier's lines only, whatever a program's
//! names are.

use amk::registry::Registry;
use amk::vm::Bindings;
use amk::vm::cpu::{Options, Vm};
use amk_ir::schedule::{Schedule, Tile};
use amk_ir::text::{Shown, parse, print};
use amk_ir::verify::verify;
use amk_ir::{Program, dot};
use amk_models::model::FAMILIES;
use std::fs;
use std::path::Path;

/// Ends its line, clears it, reverses the following text, and ends its quotation.
const HOSTILE: &str = "x\n\u{1b}[2K\r\u{9b}31m\u{202e}\u{2028}\u{e0041}` \"accepted";

fn rename(program: &mut Program) {
    let named = |n: usize| format!("{HOSTILE}{n}");
    program.name = named(0);
    program.dims = [(named(0), 1)].into();
    program.ops.iter_mut().enumerate().for_each(|(n, label)| *label = named(n));
    program.buffers.iter_mut().enumerate().for_each(|(n, buffer)| buffer.name = named(n));
    program.tables.iter_mut().enumerate().for_each(|(n, table)| table.name = named(n));
    program.events.iter_mut().enumerate().for_each(|(n, event)| event.name = named(n));
    for (n, instruction) in program.instructions.iter_mut().enumerate() {
        (instruction.name, instruction.path) = (named(n), named(n));
        instruction.operands.iter_mut().enumerate().for_each(|(n, operand)| operand.name = named(n));
        instruction.params.iter_mut().enumerate().for_each(|(n, param)| *param = named(n));
    }
}

/// The programs of the filetests, each name hostile.
fn programs() -> Vec<Program> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let folders = fs::read_dir(root).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
    let mut programs: Vec<Program> = files.filter_map(|file| parse(&fs::read_to_string(file).unwrap()).ok()).collect();
    programs.iter_mut().for_each(rename);
    programs
}

/// Fails where a name got out of its line.
fn has_our_lines(text: &str) {
    for line in text.lines() {
        let foreign = line.contains(|c: char| c.is_control() || "\u{202e}\u{2028}\u{e0041}".contains(c));
        assert!(!foreign && !line.starts_with("accepted") && !line.starts_with('\\'), "{text:?}");
    }
}

/// Fails where a name got out of its line, or out of its backticks.
fn is_ours(text: &str) {
    has_our_lines(text);
    assert!(text.lines().all(|line| line.matches('`').count() % 2 == 0), "{text}");
}

#[test]
fn the_verifier_keeps_its_lines() {
    let mut violations = 0;
    for program in programs() {
        is_ours(&print(&program));
        is_ours(&dot::dot(&program));
        if let Ok(json) = program.to_json() {
            has_our_lines(&json);
        }
        assert_eq!(parse(&print(&program)).unwrap().name, program.name);
        let Err(rejected) = verify(program) else { continue };
        is_ours(&rejected.to_string());
        for violation in &rejected.violations {
            let message = violation.message(&rejected.program);
            is_ours(&message.to_string());
            assert_eq!(message.to_string().lines().count(), 2 + message.notes.len());
            violations += 1;
        }
    }
    assert!(violations > 100, "{violations}");
}

#[test]
fn the_parser_keeps_its_lines() {
    let quoted = format!("\"{}\"", Shown(HOSTILE));
    for text in [
        format!("program @p\ndim {quoted} = 1\ndim {quoted} = 2"),
        format!("program @p\ninstruction i0 \"f\" {quoted}()\ntask t0: g()"),
        "program @p\n\u{1b}[2K".to_owned(),
        "program @p\nworker w0: \u{202e}".to_owned(),
        format!("program @p\nsteps {HOSTILE}"),
    ] {
        is_ours(&parse(&text).unwrap_err().to_string());
    }
}

#[test]
fn lowering_keeps_its_lines() {
    let (kernel, hostile) = (FAMILIES[0].kernel, HOSTILE.to_owned());
    let instance = &kernel.graph().unwrap().instances[0];
    let schedule = Schedule { tiles: [(hostile.clone(), Tile::Whole)].into(), ..Schedule::default() };
    let error = kernel.lower(instance, Some(&schedule)).unwrap_err().to_string();
    assert!(error.contains("AMK0611"), "{error}");
    let mut unknown = instance.clone();
    unknown.dims.insert(hostile, 3);
    for error in [error, kernel.lower(&unknown, None).unwrap_err().to_string()] {
        assert!(!error.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'), "{error:?}");
        assert!(!error.lines().any(|line| line.starts_with('\u{1b}')), "{error:?}");
    }
}

#[test]
fn the_cpu_vm_keeps_its_lines() {
    let text = format!(
        "program @p\ninstruction i0 \"amk_kernels::add\" add(x, y) -> (z)\n\
         buffer b0 @\"{0}\" weight f32[16]\nbuffer b1 @\"{0}\" activation f32[16]\nbuffer b2 @y output f32[16]\n\
         instruction i1 \"{0}\" lost(x) -> (y)\ninstruction i2 \"amk_kernels::add_bias\" add_bias(x, bias) -> (y)\n\
         task t0: CALL\nworker w0: t0\n",
        Shown(HOSTILE)
    );
    for call in [
        "add(b0[..], b0[..]) -> (b2[..])",
        "lost(b0[..]) -> (b2[..])",
        "add(b1[0..4], b1[0..5]) -> (b2[..])",
        "add_bias(b1[..], b0[..]) -> (b2[..])",
    ] {
        let text = text.replace("activation", if call.contains("b1") { "input" } else { "activation" });
        let verified =
            verify(parse(&text.replace("CALL", call)).unwrap()).unwrap_or_else(|rejected| panic!("{rejected}"));
        let vm = Vm::with(verified, &Bindings::new(), &Registry::linked().unwrap(), Options::default());
        is_ours(&vm.err().unwrap().to_string());
    }
}
