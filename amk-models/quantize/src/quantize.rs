//! From a checkpoint's projections to blocks.

use crate::capture::{Calibration, Input};
use crate::error::QuantizeError;
use crate::gram::Gram;
use crate::method::Method;
use crate::round::{Compensation, Rounding};
use amk::vm::Bindings;
use amk::{Encoding, Weight};
use amk_kernels::encoding::Grid;
use amk_models::model::Model;
use amk_models::weights::{Deviation, StoredTensor};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

/// A tensor and the encoding that it is to have.
#[derive(Clone, Debug)]
pub struct Task {
    /// The tensor.
    pub tensor: StoredTensor,
    /// The encoding, whose blocks divide its rows.
    pub encoding: &'static Encoding,
}

/// Quantised weights by the names of their tensors.
#[derive(Default, Debug)]
pub struct Quantized {
    /// The weights, in the model's order of rows.
    pub weights: BTreeMap<String, Weight>,
    /// How far the weights of each kind, `self_attn.q_proj`, are from the exact ones.
    pub deviations: BTreeMap<String, Deviation>,
}

impl Quantized {
    /// The model's bindings with these weights in place of its own.
    pub fn bind(&self, model: &Model) -> Bindings {
        let matrices = model.names.iter().filter_map(|(buffer, name)| Some((buffer, self.weights.get(name)?)));
        // Vectors are exact in every form, and norms may be bound in another form than stored.
        let matrices = matrices.filter(|(_, weight)| weight.shape().len() > 1);
        matrices.fold(model.bindings.clone(), |bindings, (buffer, weight)| bindings.weight(buffer, weight.clone()))
    }
}

/// The current stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// A text runs through the model.
    Calibrating,
    /// Weights become codes.
    Rounding,
}

/// Sees what is being done and the fraction of it that is.
pub type Progress<'a> = dyn FnMut(Stage, f64) + Send + 'a;

/// Quantises without a text.
///
/// # Errors
/// [`QuantizeError::NoText`], and [`QuantizeError::Block`] for a weight that is not finite.
pub fn quantize(tasks: Vec<Task>, method: Method, progress: &mut Progress<'_>) -> Result<Quantized, QuantizeError> {
    if method == Method::Gptq {
        return Err(QuantizeError::NoText { method: method.name() });
    }
    let jobs = tasks.into_iter().map(|task| Job { gram: None, tasks: vec![task] }).collect();
    let mut quantized = Quantized::default();
    run(jobs, method, &mut quantized, progress)?;
    Ok(quantized)
}

/// Quantises with the inputs that the projections have on a text.
///
/// The inputs' sums take `memory` bytes at most, or what one input's sums take. Where they take
/// more the text runs several times, and later runs use the weights quantised so far.
///
/// # Errors
/// When the run fails, and [`QuantizeError::Block`] for a weight that is not finite.
pub fn quantize_calibrated(
    tasks: Vec<Task>,
    method: Method,
    calibration: &Calibration<'_>,
    memory: usize,
    progress: &mut Progress<'_>,
) -> Result<Quantized, QuantizeError> {
    let model = calibration.model();
    let mut by_name: BTreeMap<String, Task> =
        tasks.into_iter().map(|task| (task.tensor.name().to_owned(), task)).collect();
    let held = |task: &str| by_name.contains_key(task);
    let buffers: BTreeSet<&str> =
        model.names.iter().filter(|(_, name)| held(name)).map(|(buffer, _)| buffer.as_str()).collect();
    let inputs = calibration.inputs(&buffers);
    let (mut bindings, mut quantized) = (model.bindings.clone(), Quantized::default());
    let passes = passes(&inputs, memory);
    for (number, pass) in passes.iter().enumerate() {
        let part = |done: f64| (number as f64 + done) / passes.len() as f64;
        let grams = calibration.run(&bindings, pass, &mut |done| progress(Stage::Calibrating, part(done)))?;
        let jobs = pass.iter().zip(grams).map(|(input, gram)| {
            let names = input.weights.iter().filter_map(|buffer| model.names.get(buffer));
            Job { gram: Some(gram), tasks: names.filter_map(|name| by_name.remove(name)).collect() }
        });
        run(jobs.collect(), method, &mut quantized, &mut |stage, done| progress(stage, part(done)))?;
        bindings = quantized.bind(model);
    }
    // Matrices that no projection multiplies have no inputs.
    let rest = by_name.into_values().map(|task| Job { gram: None, tasks: vec![task] }).collect();
    run(rest, method, &mut quantized, progress)?;
    Ok(quantized)
}

/// Consecutive inputs whose sums fit into the memory.
fn passes(inputs: &[Input], memory: usize) -> Vec<&[Input]> {
    let (mut passes, mut rest) = (Vec::new(), inputs);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|input| {
            bytes += Gram::bytes(input.size);
            bytes <= memory
        });
        let (pass, after) = rest.split_at(fits.count().max(1));
        passes.push(pass);
        rest = after;
    }
    passes
}

/// Tensors that multiply one input.
struct Job {
    gram: Option<Gram>,
    tasks: Vec<Task>,
}

impl Job {
    fn elements(&self) -> usize {
        self.tasks.iter().map(|task| task.tensor.elements()).sum()
    }
}

/// Works off jobs, several at a time.
fn run(
    mut jobs: Vec<Job>,
    method: Method,
    quantized: &mut Quantized,
    progress: &mut Progress<'_>,
) -> Result<(), QuantizeError> {
    let total = jobs.iter().map(Job::elements).sum::<usize>().max(1);
    jobs.reverse();
    let (jobs, done) = (Mutex::new(jobs), Mutex::new((quantized, progress, 0)));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || -> Result<(), QuantizeError> {
        while let Some(job) = { jobs.lock().unwrap_or_else(PoisonError::into_inner).pop() } {
            for rounded in rounded(&job, method) {
                // After an error the other threads need not go on.
                let stop = |_: &_| jobs.lock().unwrap_or_else(PoisonError::into_inner).clear();
                let (task, weight, deviation) = rounded.inspect_err(stop)?;
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                let (quantized, progress, elements) = &mut *done;
                *elements += task.tensor.elements();
                quantized.deviations.entry(kind(task.tensor.name())).or_default().merge(deviation);
                quantized.weights.insert(task.tensor.name().to_owned(), weight);
                progress(Stage::Rounding, *elements as f64 / total as f64);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let joined = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        [work()].into_iter().chain(joined).collect()
    })
}

/// The tensors of a job as blocks, and how far they are off.
fn rounded(job: &Job, method: Method) -> impl Iterator<Item = Result<(&Task, Weight, Deviation), QuantizeError>> {
    let columns = job.tasks.first().map_or(0, |task| task.tensor.row_len());
    let importance = match &job.gram {
        Some(gram) => gram.mean_squares(),
        None => vec![1.0; columns],
    };
    let compensation = job.gram.as_ref().filter(|_| method == Method::Gptq).map(Compensation::new);
    job.tasks.iter().filter_map(move |task| {
        let grid = Grid::of(task.encoding).filter(|_| method != Method::Rtn);
        let rounding = match (grid, &compensation) {
            (Some(grid), Some(by)) => Rounding::Compensated { grid, by },
            (Some(grid), None) => Rounding::Searched { grid, importance: &importance },
            (None, _) => Rounding::Nearest(task.encoding.encode?),
        };
        let exact = task.tensor.to_f32();
        if let Err(error) = task.tensor.all_finite(&exact, 0) {
            return Some(Err(QuantizeError::Block { tensor: task.tensor.name_in_file().to_owned(), error }));
        }
        let (weight, deviation) = round(task, exact, &rounding)?;
        Some(Ok((task, weight, deviation)))
    })
}

/// A tensor's elements as blocks, row by row.
fn round(task: &Task, mut exact: Vec<f32>, rounding: &Rounding<'_>) -> Option<(Weight, Deviation)> {
    let Task { tensor, encoding } = task;
    let row_len = tensor.row_len();
    let mut bytes = vec![0; encoding.byte_len(exact.len())?];
    let mut deviation = Deviation::default();
    let (mut row, mut decoded) = (vec![0.0; row_len], vec![0.0; row_len]);
    let rows = exact.chunks_exact_mut(row_len).zip(bytes.chunks_exact_mut(encoding.byte_len(row_len)?));
    for (exact, blocks) in rows {
        row.copy_from_slice(exact);
        rounding.row(&mut row, encoding.block, blocks);
        (encoding.decode)(blocks, &mut decoded);
        deviation.add(exact, &decoded);
    }
    Some((Weight::from_vec(encoding, tensor.shape(), bytes).ok()?, deviation))
}

/// The kind of a tensor: its name without the layer's number and `weight`.
pub(crate) fn kind(name: &str) -> String {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    let of_layer = name.split_once("layers.").and_then(|(_, rest)| rest.split_once('.'));
    of_layer.map_or(name, |(_, kind)| kind).to_owned()
}
