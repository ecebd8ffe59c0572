//! The logits of a checkpoint on the GPU, fed with given tokens.
//!
//!     logits FOLDER TOKENS.json POSITION,.. OUT [f32]
//!
//! TOKENS.json is a list of ids; at a `null` no step is taken, and the caches hold zeros there. A
//! row of little-endian f32 `[VOCAB]` for each position is written to OUT.
//! `tests/device/transformers_check.py` compares them.

use amk_cuda::{Precision, RunOptions, Vm, VmOptions};
use amk_models::checkpoint::Checkpoint;
use amk_models::model::Model;
use amk_run::weight_format;
use anyhow::{Context as _, Result};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, tokens, positions, out, precision @ ..] = &args[..] else {
        anyhow::bail!("usage: logits FOLDER TOKENS.json POSITION,.. OUT [f32]")
    };
    let tokens: Vec<Option<u32>> = serde_json::from_str(&std::fs::read_to_string(tokens)?)?;
    let mut positions: Vec<usize> = positions.split(',').map(str::parse).collect::<Result<_, _>>()?;
    positions.sort_unstable();
    let last = *positions.last().context("no positions")?;
    let precision = match precision.first().map(String::as_str) {
        Some("f32") => Precision::F32,
        _ => Precision::default(),
    };
    let start = Instant::now();
    let checkpoint = Checkpoint::open(Path::new(folder))?;
    let model = Model::load(&checkpoint.config, checkpoint.tensors, last + 1, weight_format(precision), &mut |_| {})?;
    let cubins = std::env::temp_dir().join("amk-cubins");
    let options = VmOptions { precision, ..VmOptions::default() };
    let kernel = model.family.kernel;
    let mut vm = Vm::new(kernel, &model.instance, &model.bindings, &cubins, &options, &mut |_| {})?;
    let loaded = start.elapsed();
    let mut out = std::io::BufWriter::new(std::fs::File::create(out)?);
    let (mut pos, mut count, mut time) = (0, 0, Duration::ZERO);
    for &wanted in &positions {
        while pos <= wanted {
            let here = pos == wanted;
            let end = if here { wanted + 1 } else { wanted };
            let given = tokens.get(pos..end).with_context(|| format!("no tokens up to position {last}"))?;
            let run: Vec<u32> = given.iter().map_while(|token| *token).collect();
            anyhow::ensure!(!here || run.len() == 1, "no token at position {pos}, whose logits are asked for");
            if !run.is_empty() {
                let options = RunOptions { logits: here, ..RunOptions::default() };
                let steps = vm.run(&run, pos as u32, run.len() as u32, &options, &mut |_| {})?;
                steps.logits.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()))?;
                (count, time) = (count + run.len(), time + steps.time);
            }
            pos += run.len().max(1);
        }
    }
    out.flush()?;
    println!("loaded in {:.1} s, {count} steps in {:.2} s", loaded.as_secs_f64(), time.as_secs_f64());
    Ok(())
}
