//! Times chains of projections of the shapes of an 8B model on the first GPU, by `capped_linear`
//! and by `amk_kernels::linear` in turn, and compares the logits of each with its function on the
//! CPU.
//!
//! ```text
//! chain [LAYERS] [ROUNDS] [CUBINS]        32, 15, a folder that keeps compiled device code
//! chain compile CUBINS TARGET [LAYERS]    fills that folder for a GPU that is not here
//! chain trace FOLDER [LAYERS]             writes timelines of both for Perfetto, and prints where
//!                                         the time of their tasks goes
//! ```

use amk::ir::graph::Instance;
use amk::layout::{Source, SourceError, WeightRequest, build, zeroed};
use amk::prelude::*;
use amk::vm::Bindings;
use amk_cuda::nvrtc::compile_cached;
use amk_cuda::source::generate;
use amk_cuda::{RunOptions, TARGETS, Vm, VmOptions, plan_for};
use amk_fast_instruction::{CAPPED_CHAIN, Chain, LINEAR_CHAIN, Seen, capped_chain, linear_chain};
use half::bf16;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Steps of a timed launch.
const STEPS: u32 = 32;
/// The largest relative error of logits: bf16 between some hundred projections.
const TOLERANCE: f64 = 0.05;

/// Random weights with products as large as their inputs. Layers share their elements on the host
/// and have their own on the device.
#[derive(Default)]
struct Random {
    made: Vec<(Vec<usize>, Weight)>,
}

impl Source for Random {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        if let Some((_, weight)) = self.made.iter().find(|(shape, _)| shape == request.shape) {
            return Ok(weight.clone());
        }
        let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ self.made.len() as u64;
        let columns = request.shape.last().copied().unwrap_or(1);
        let scale = (3.0 / columns as f32).sqrt();
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bf16::from_f32(scale * ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0))
        };
        let weight = Weight::bf16(request.shape, (0..request.shape.iter().product()).map(|_| draw()).collect())?;
        self.made.push((request.shape.to_vec(), weight.clone()));
        Ok(weight)
    }

    fn table(&mut self, name: &str, _: &[usize]) -> Result<Weight, SourceError> {
        Err(format!("a chain has no table `{name}`").into())
    }

    fn param(&mut self, _: &str) -> Result<f32, SourceError> {
        Ok(30.0)
    }

    fn flag(&mut self, _: &str) -> Result<bool, SourceError> {
        Ok(false)
    }
}

type Function = fn(Token, Pos, &Chain, &mut Seen) -> Tensor;

/// A chain on the GPU and the times of its launches, microseconds a step.
struct Timed {
    name: &'static str,
    vm: Vm,
    times: Vec<f64>,
}

impl Timed {
    fn new(
        (name, kernel): (&'static str, &Megakernel),
        instance: &Instance,
        weights: &Chain,
        cubins: &Path,
        trace: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let bindings = Bindings::new().layout("w", weights);
        let instance = bindings.complete(instance);
        let vm =
            Vm::new(kernel, &instance, &bindings, cubins, &VmOptions { trace, ..VmOptions::default() }, &mut |_| {})?;
        Ok(Self { name, vm, times: Vec::new() })
    }

    /// The relative error of the logits at position 0.
    fn error(&mut self, function: Function, weights: &Chain, seen: &mut Seen) -> Result<f64, Box<dyn Error>> {
        let found = self.vm.step(1, 0)?;
        let expected = function(Token(1), Pos(0), weights, seen);
        let sums = found.iter().zip(expected.data()).fold((0f64, 0f64), |(difference, norm), (a, b)| {
            (difference + f64::from(a - b).powi(2), norm + f64::from(*b).powi(2))
        });
        Ok((sums.0 / sums.1).sqrt())
    }

    fn time(&mut self) -> Result<(), Box<dyn Error>> {
        let run = self.vm.run(&[1], 0, STEPS, &RunOptions::default(), &mut |_| {})?;
        self.times.push(run.time.as_secs_f64() * 1e6 / f64::from(STEPS));
        Ok(())
    }

    /// Writes a timeline and prints medians of the parts of tasks, microseconds.
    fn trace(&mut self, folder: &Path) -> Result<(), Box<dyn Error>> {
        let trace = self.vm.trace(0, STEPS)?;
        let path = folder.join(format!("{}.json", self.name));
        trace.write_chrome(&mut BufWriter::new(File::create(&path)?), self.name)?;
        println!(
            "{}: {}\n{:<28} {:>5} {:>7} {:>7} {:>7} {:>7} {:>7} | full landing paced",
            self.name,
            path.display(),
            "",
            "tasks",
            "wait",
            "starved",
            "compute",
            "gather",
            "deliver"
        );
        for op in trace.summary(self.vm.verified().program()).ops {
            let parts = [op.median.wait, op.median.starved, op.median.compute, op.median.gather, op.median.epilogue];
            let [wait, starved, compute, gather, epilogue] = parts.map(|ns| ns / 1e3);
            let [full, landing, paced] = [op.loader.full, op.loader.landing, op.loader.paced].map(|ns| ns / 1e3);
            println!(
                "{:<28} {:>5} {wait:>7.2} {starved:>7.2} {compute:>7.2} {gather:>7.2} {epilogue:>7.2} | \
                 {full:.1} {landing:.1} {paced:.1}",
                op.op, op.tasks
            );
        }
        Ok(())
    }

    fn print(&mut self, error: f64) -> f64 {
        self.times.sort_by(f64::total_cmp);
        let median = self.times[self.times.len() / 2];
        let bytes = self.vm.weight_bytes() as f64;
        println!(
            "{:<14} {median:>9.1} us a step  fastest {:>9.1}  slowest {:>9.1}  {:>6.0} GB/s  error {error:.1e}",
            self.name,
            self.times[0],
            self.times[self.times.len() - 1],
            bytes / median / 1e3
        );
        median
    }
}

/// Compiles both chains for a target and prints what the compiler says of their registers.
fn compile(mut args: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let (Some(cubins), Some(name)) = (args.next(), args.next()) else {
        return Err("`compile` needs a folder and a target".into());
    };
    let target = TARGETS.iter().find(|target| target.name == name).ok_or("there is no such target")?;
    let layers: u32 = args.next().map_or(Ok(32), |text| text.parse())?;
    for kernel in [&CAPPED_CHAIN, &LINEAR_CHAIN] {
        let instance = Bindings::new().complete(&instance(layers)?);
        let options = VmOptions::default();
        let plan = plan_for(kernel, &instance, &target.schedule(), options.precision)?;
        let source = generate(&plan, &options);

        let cubin = compile_cached(&source, target.architecture, Path::new(&cubins))?;
        println!("{}: {} bytes\n{}", plan.program.name, cubin.bytes.len(), cubin.log);
    }
    Ok(())
}

/// The chain of so many layers.
fn instance(layers: u32) -> Result<Instance, Box<dyn Error>> {
    let mut instance = CAPPED_CHAIN.instance("of_8b")?.clone();
    instance.dims.insert("LAYERS".to_owned(), layers);
    Ok(instance)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if(|first| first == "compile").is_some() {
        return compile(args);
    }
    let folder = args.next_if(|first| first == "trace").and_then(|_| args.next());
    let layers: u32 = args.next().map_or(Ok(32), |text| text.parse())?;
    let rounds: u32 = args.next().map_or(Ok(15), |text| text.parse())?;
    let cubins = args.next().unwrap_or_else(|| std::env::temp_dir().join("amk-cubins").display().to_string());
    let instance = instance(layers)?;
    let weights: Chain = build(&instance.dims, &mut Random::default())?;
    let mut seen: Seen = zeroed(&instance.dims)?;
    let cubins = Path::new(&cubins);
    let mut capped = Timed::new(("capped_linear", &CAPPED_CHAIN), &instance, &weights, cubins, folder.is_some())?;
    let mut linear = Timed::new(("linear", &LINEAR_CHAIN), &instance, &weights, cubins, folder.is_some())?;
    if let Some(folder) = folder {
        return capped.trace(Path::new(&folder)).and_then(|()| linear.trace(Path::new(&folder)));
    }
    let errors = [capped.error(capped_chain, &weights, &mut seen)?, linear.error(linear_chain, &weights, &mut seen)?];
    for _ in 0..rounds.max(1) {
        capped.time()?;
        linear.time()?;
    }
    println!("{layers} layers of 4096x4096, 14336x4096 and 4096x14336 on {}:", capped.vm.target().name);
    let speed = linear.print(errors[1]) / capped.print(errors[0]);
    println!("capped_linear has {:.1}% of the speed of linear", 100.0 * speed);
    match errors.iter().all(|&error| error < TOLERANCE) {
        true => Ok(()),
        false => Err(format!("the relative errors {errors:?} are above {TOLERANCE}").into()),
    }
}
