//! How tasks wait for one another: images with counters and barriers are those of verified programs, and the device code has them.

use amk::ir::verify::verify;
use amk_cuda::plan::{Phase, Plan};
use amk_cuda::{
    CudaError, DeviceExchange, DeviceSchedule, GpuTarget, Image, Precision, TARGETS, VmOptions, compile, plan_for,
    source,
};
use amk_kernels::cuda::DEVICE;
use amk_models::model::FAMILIES;

const EXCHANGES: [DeviceExchange; 2] = [DeviceExchange::Counters, DeviceExchange::Barrier];

fn plan_of(target: &GpuTarget, exchange: DeviceExchange, fusion: bool) -> Plan {
    let kernel = FAMILIES[0].kernel;
    let instance = kernel.instance("smollm2_135m").expect("it is declared");
    let schedule = DeviceSchedule { exchange, fusion, ..target.schedule };
    plan_for(kernel, instance, &schedule, Precision::BF16).expect("it should be planned")
}

fn h200() -> &'static GpuTarget {
    TARGETS.iter().find(|target| target.name == "h200").expect("the target should have a record")
}

#[test]
fn a_decoders_events_are_its_publishing_phases() {
    for exchange in EXCHANGES {
        for fusion in [true, false] {
            let plan = plan_of(h200(), exchange, fusion);
            let verified = verify(plan.program.clone()).expect("it is the program of packets");
            let image = Image::build(&verified, &plan).expect("the image should be the program");
            let label = |phase: usize| plan.program.ops[phase].split(' ').next().unwrap_or_default().to_owned();
            let events: Vec<String> = image.events.list.iter().map(|event| label(event.phase)).collect();
            if fusion {
                let layer = ["project", "attend", "combine", "residual", "gated", "residual"];
                let expected: Vec<&str> = layer.repeat(30).into_iter().chain(["best"]).collect();
                assert_eq!(events, expected);
            }
            let waits = image.records.iter().filter(|record| record.counters().1 != 0).count();
            let all = plan.tasks.len();
            println!("{exchange:?}, fusion {fusion}: {} events, {waits} of {all} tasks wait", events.len());
            let looks = plan.tasks.iter().filter(|(at, ..)| matches!(plan.phases[*at], Phase::Probe { .. })).count();
            assert!(waits > 0 && waits + looks < all);
            if (exchange, fusion) == (DeviceExchange::Counters, true) {
                // Whoever reads what others publish: not who reads the token's row, nor who looks at its own logits, nor a filter's looks.
                let first = (0..).find(|&phase| label(phase) == "project");
                let reads = |phase| !["embed", "best", "probe"].contains(&&*label(phase)) && Some(phase) != first;
                assert_eq!(waits, plan.tasks.iter().filter(|(phase, ..)| reads(*phase)).count());
            }
        }
    }
}

#[test]
fn the_device_code_compiles_for_every_target_and_exchange() {
    let mut sizes = Vec::new();
    let fused = TARGETS.iter().flat_map(|target| EXCHANGES.map(|exchange| (target, exchange, true)));
    for (target, exchange, fusion) in fused.chain([(h200(), DeviceExchange::Counters, false)]) {
        let code = source::generate(DEVICE, &plan_of(target, exchange, fusion), &VmOptions::default());
        match compile(&code, target.architecture) {
            Ok(cubin) => sizes.push((target.name, exchange, fusion, cubin.bytes.len())),
            Err(CudaError::NoNvrtc) => return println!("skipped: no NVRTC"),
            Err(error) => panic!("{}: {error}", target.name),
        }
    }
    println!("{sizes:?}");
}
