//! SmolLM2-135M-Instruct on the GPU, or why not.

use crate::gpu;
use amk::Weight;
use amk::ir::schedule::{PartialSchedule, RowSchedule};
use amk_cuda::{CudaError, Faults, RowsVm, Vm, VmOptions};
use amk_models::cache::{Cache, SMOLLM2_135M_INSTRUCT};
use amk_models::chain::Chain;
use amk_models::checkpoint::Checkpoint;
use amk_models::model::{Model, WeightFormat};
use half::bf16;

/// The model's text and weights in bf16, with a cache of `context` positions, where there is a GPU.
/// `AMK_SMOLLM2` names another file than the cache's.
pub(crate) fn load(context: usize) -> Result<(Checkpoint, Model), String> {
    gpu::present()?;
    let cached = || Cache::from_env().and_then(|cache| cache.resolve(&SMOLLM2_135M_INSTRUCT));
    let path = match std::env::var_os("AMK_SMOLLM2") {
        Some(path) => path.into(),
        None => cached().map_err(|error| Chain(&error).to_string())?,
    };
    let mut checkpoint = Checkpoint::open(&path).expect("the checkpoint should open");
    let tensors = std::mem::take(&mut checkpoint.tensors);
    let model = Model::load(&checkpoint.config, tensors, context, WeightFormat::BF16, &mut |_| {});
    Ok((checkpoint, model.expect("it should load")))
}

/// The same with zeros for the head's weights: all logits are equal.
pub(crate) fn load_flat(context: usize) -> Result<Model, String> {
    load_with_head(context, bf16::ZERO)
}

/// The same with one number for all weights of the head.
pub(crate) fn load_with_head(context: usize, weight: bf16) -> Result<Model, String> {
    let (_, mut model) = load(context)?;
    let head = model.bindings.weights()["w.ends.lm_head"].clone();
    let flat = Weight::bf16(head.shape(), vec![weight; head.len()]).expect("a weight");
    model.bindings = std::mem::take(&mut model.bindings).weight("w.ends.lm_head", flat);
    Ok(model)
}

/// The model on the GPU.
pub(crate) fn start(model: &Model, options: &VmOptions) -> Result<Vm, CudaError> {
    let cubins = gpu::cubins();
    Vm::new(model.family.kernel, &model.instance, &model.bindings, &cubins, options, &mut |_| {})
}

/// The model on the GPU for steps of rows, over so many pages.
pub(crate) fn start_rows(model: &Model, rows: u32, pages: usize) -> Result<RowsVm, CudaError> {
    let cubins = gpu::cubins();
    let schedule =
        PartialSchedule { rows: Some(RowSchedule { most: rows, block: None }), ..PartialSchedule::default() };
    let options = VmOptions { schedule: Some(schedule), ..VmOptions::default() };
    RowsVm::new(model.family.kernel, &model.instance, &model.bindings, &cubins, &options, &pages.into(), &mut |_| {})
}

/// The model on the GPU, with faults in the device code; without a GPU the reason to skip a test.
pub(crate) fn vm(context: usize, faults: Faults) -> Result<Vm, String> {
    let (_, model) = load(context)?;
    match start(&model, &VmOptions { faults, ..VmOptions::default() }) {
        Ok(vm) => Ok(vm),
        Err(error @ (CudaError::NoDriver | CudaError::NoDevice)) => Err(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}
