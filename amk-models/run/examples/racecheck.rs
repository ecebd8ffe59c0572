//! A few launches of a decoder with few layers, for compute-sanitizer:
//!
//!     compute-sanitizer --tool racecheck --racecheck-report hazard racecheck MODEL.INSTANCE [LAYERS] [CONTEXT] [STEPS] [POSITION,..] [arrivals]
//!
//! Warps wait where they would only arrive, which racecheck does not know (see
//! `VmOptions::no_arrivals`); with `arrivals` they do not.

use amk_cuda::{RunOptions, Vm, VmOptions};
use amk_models::model::{Model, find_instance};
use anyhow::Result;
use std::time::Instant;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "llama.smollm2_135m".into());
    let mut number = |default| args.next().map_or(Ok(default), |text| text.parse::<u32>());
    let [layers, context, steps] = [number(2)?, number(512)?, number(2)?];
    let positions = args.next().unwrap_or_else(|| "0,126,300".into());
    let no_arrivals = args.next().as_deref() != Some("arrivals");
    let (family, mut instance) = find_instance(&name)?;
    instance.dims.insert("LAYERS".into(), layers);
    let model = Model::random(family, &instance, context, &amk::encoding::BF16, amk::tensor::Inputs::F32)?;
    let cache = std::env::temp_dir().join("amk-cubins");
    let options = VmOptions { no_arrivals, ..VmOptions::default() };
    let mut vm = Vm::new(family.kernel, &model.instance, &model.bindings, &cache, &options, &mut |_| {})?;
    for pos in positions.split(',') {
        let start = Instant::now();
        let run = vm.run(&[1], pos.parse()?, steps, &RunOptions::default(), &mut |_| {})?;
        println!("{steps} steps from position {pos}: {:?} in {:.1} s", run.tokens, start.elapsed().as_secs_f64());
    }
    Ok(())
}
