//! Generic tasks on the GPU: every call by its instruction's own device body. Plans, images and device code need no GPU; the rest
//! says "skipped" without one.

use amk::ir::verify::verify;
use amk::vm::cuda::plan::{Phase, Plan};
use amk::vm::cuda::{CudaError, GpuTarget, Image, Precision, TARGETS, VmOptions, compile, plan_for, source};
use amk_kernels::cuda::DEVICE;
use amk_models::model::FAMILIES;

fn target(name: &str) -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == name).expect("the target should have a record")
}

fn plans(precision: Precision) -> impl Iterator<Item = (String, Plan)> {
    FAMILIES.iter().flat_map(move |family| {
        let graph = family.kernel.graph().expect("a graph");
        graph.instances.iter().map(move |instance| {
            let plan = plan_for(family.kernel, instance, &target("h200").schedule, precision);
            let name = format!("{}.{}", family.name, instance.name);
            let plan = plan.unwrap_or_else(|error| panic!("{name} should be planned: {error}"));
            (name, plan)
        })
    })
}

#[test]
fn plans_of_all_declared_instances_are_safe_and_their_images_mean_the_same_tasks() {
    for precision in [Precision::BF16, Precision::F32] {
        for (name, plan) in plans(precision) {
            let generic = plan.phases.iter().filter(|phase| matches!(phase, Phase::Generic(_))).count();
            println!(
                "{name} {precision:?}: {} tasks, {generic} of {} phases generic",
                plan.tasks.len(),
                plan.phases.len()
            );
            assert_eq!(
                generic > 0,
                precision == Precision::F32,
                "{name}: only with f32 every call is a task of its own"
            );
            let verified = verify(plan.program.clone()).unwrap_or_else(|rejected| panic!("{name}: {rejected}"));
            let image = Image::build(&verified, &plan).expect("the image should be the program");
            assert_eq!(image.records.len(), plan.program.tasks.len());
        }
    }
}

#[test]
fn an_image_with_another_tile_is_refused() {
    let (_, mut plan) = plans(Precision::F32).next().expect("an instance");
    let verified = verify(plan.program.clone()).expect("it should be safe");
    for phase in &mut plan.phases {
        if let Phase::Generic(generic) = phase
            && generic.tiles.len() > 1
        {
            generic.tiles.swap(0, 1);
            break;
        }
    }
    assert!(matches!(Image::build(&verified, &plan), Err(CudaError::Image { .. })));
}

#[test]
fn generic_device_code_compiles_for_every_target() {
    let (name, plan) = plans(Precision::F32).find(|(name, _)| name.starts_with("qwen3")).expect("qwen3");
    let code = source::generate(DEVICE, &plan, &VmOptions { precision: Precision::F32, ..VmOptions::default() });
    for target in &TARGETS {
        match compile(&code, target.architecture) {
            Ok(cubin) => println!("{name} on {}: {} bytes", target.name, cubin.bytes.len()),
            Err(CudaError::NoNvrtc) => return println!("skipped: no NVRTC"),
            Err(error) => panic!("{}: {error}", target.name),
        }
    }
}
