//! A few steps of a decoder with few layers, for compute-sanitizer:
//!
//!     compute-sanitizer --tool racecheck --racecheck-report hazard \
//!         racecheck MODEL.INSTANCE [LAYERS] [CONTEXT] [STEPS] [POSITION,..] [ROWS] [ENCODING] \
//!         [DIM=VALUE ..] [arrivals]
//!
//! Weights are in bf16 unless an encoding is named, `Q4_0` or `int8:128` for example. A smaller
//! vocabulary, as by `VOCAB=2048`, saves most of the time.
//!
//! With ROWS, instead of one row from each position, a sequence runs a prompt of STEPS steps of
//! that many rows, and another sequence runs one token in each of them. Warps wait where they would
//! otherwise only arrive, which racecheck does not understand (see `VmOptions::no_arrivals`); with
//! `arrivals` they only arrive.

use amk::Token;
use amk::encoding::{BF16, Encoding};
use amk::ir::schedule::{PartialSchedule, RowSchedule};
use amk::rows::PAGE;
use amk::session::Session;
use amk::tensor::Inputs;
use amk_cuda::{RowsVm, RunOptions, Vm, VmOptions};
use amk_models::model::{Model, find_instance};
use anyhow::Result;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "llama.smollm2_135m".into());
    let mut number = |default| args.next().map_or(Ok(default), |text| text.parse::<u32>());
    let [layers, context, steps] = [number(2)?, number(512)?, number(2)?];
    let positions = args.next().unwrap_or_else(|| "0,126,300".into());
    let rest: Vec<_> = args.collect();
    let rows = rest.iter().find_map(|arg| arg.parse::<u32>().ok());
    let no_arrivals = !rest.iter().any(|arg| arg == "arrivals");
    let encoding = rest.iter().find_map(|arg| Encoding::find(arg)).unwrap_or(&BF16);
    let (family, mut instance) = find_instance(&name)?;
    instance.dims.insert("LAYERS".into(), layers);
    for (dim, value) in rest.iter().filter_map(|arg| arg.split_once('=')) {
        instance.dims.insert(dim.into(), value.parse()?);
    }
    let model = Model::random(family, &instance, context, encoding, Inputs::F32)?;
    let options = VmOptions { no_arrivals, ..VmOptions::default() };
    match rows {
        Some(rows) => run_rows(&model, options, steps, rows),
        None => run(&model, &options, steps, &positions),
    }
}

fn cubins() -> PathBuf {
    std::env::temp_dir().join("amk-cubins")
}

fn run(model: &Model, options: &VmOptions, steps: u32, positions: &str) -> Result<()> {
    let mut vm = Vm::new(model.family.kernel, &model.instance, &model.bindings, &cubins(), options, &mut |_| {})?;
    for pos in positions.split(',') {
        let start = Instant::now();
        let run = vm.run(&[1], pos.parse()?, steps, &RunOptions::default(), &mut |_| {})?;
        println!("{steps} steps from position {pos}: {:?} in {:.1} s", run.tokens, start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn run_rows(model: &Model, options: VmOptions, steps: u32, rows: u32) -> Result<()> {
    let most = RowSchedule { most: rows, block: None };
    let schedule = Some(PartialSchedule { rows: Some(most), ..PartialSchedule::default() });
    let options = VmOptions { schedule, ..options };
    let pages = (steps * rows) as usize / PAGE + 2; // one more for each sequence
    let Model { family, instance, bindings, .. } = model;
    let vm = RowsVm::new(family.kernel, instance, bindings, &cubins(), &options, &pages.into(), &mut |_| {})?;
    let mut session = Session::new(vm);
    session.bound_mixed(rows as usize);
    let [prompt, decoding] = [session.add(), session.add()];
    let tokens: Vec<_> = (0..(rows - 1) * steps).map(|at| Token(at % 97)).collect();
    session.push(prompt, &tokens)?;
    for step in 0..steps {
        session.push(decoding, &[Token(step % 97)])?;
        let start = Instant::now();
        session.step()?;
        println!("a step of {rows} rows in {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}
