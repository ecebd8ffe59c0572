use super::*;
use crate::choose::Choosing;
use crate::plan::{Precision, Sizes, Work};
use crate::schedule::DeviceSchedule;
use crate::target::TARGETS;
use amk_ir::{Buffer, BufferKind, Call, Constants, DType, InstructionId, OpId, Region, Task};

/// Packets of each buffer, all of which the counters are behind.
const PACKETS: u32 = 48;

fn operand(buffer: u32, access: Access) -> Operand {
    Operand { buffer: BufferId(buffer), region: Region::full(&[8]), access, early: false, routed: None }
}

/// Three workers. Attention of layer 0 is a task of workers 0 and 1 and writes `b0`; its merge, of worker 2, reads that and writes `b1`;
/// all read that and write their best, `b2`; a look reads that and writes `b3`; the choice reads both.
fn plan(exchange: DeviceExchange) -> Plan {
    let phases = vec![
        Phase::Attend { layer: 0 },
        Phase::Combine { layer: 0 },
        Phase::Best,
        Phase::Probe { round: 0 },
        Phase::Choose,
    ];
    let reads: [&[u32]; 5] = [&[], &[0], &[1], &[2], &[2, 3]];
    let workers: [&[u32]; 5] = [&[0, 1], &[2], &[0, 1, 2], &[0, 1, 2], &[0, 1, 2]];
    let buffer = |at: u32| Buffer {
        name: format!("b{at}"),
        kind: BufferKind::Activation,
        dtype: DType::F32,
        shape: vec![8],
        exchange: Exchange::Packet { slots: 1 },
        place: None,
    };
    let mut program = Program { buffers: (0..4).map(buffer).collect(), ..Program::default() };
    let mut tasks = Vec::new();
    for phase in 0..phases.len() {
        for &worker in workers[phase] {
            let read = reads[phase].iter().map(|&buffer| operand(buffer, Access::Read));
            let written = (phase < 4).then(|| operand(phase as u32, Access::Write));
            let operands = read.chain(written).collect();
            let calls = vec![Call { instruction: InstructionId(0), operands, params: Vec::new() }];
            program.tasks.push(Task { op: Some(OpId::from(phase)), calls, ..Task::default() });
            tasks.push((phase, worker, Work::Own));
        }
    }
    Plan {
        program,
        constants: Constants::default(),
        phases,
        tasks,
        layers: Vec::new(),
        bodies: Vec::new(),
        sizes: Sizes::default(),
        schedule: DeviceSchedule { workers: 3, exchange, ..TARGETS[0].schedule },
        precision: Precision::BF16,
        embedding: None,
        token: BufferId(0),
        choosing: Choosing::default(),
        freqs: None,
        logits: BufferId(0),
        eps: 0.0,
        rope_scale: 1.0,
        score_scale: 1.0,
    }
}

/// The image's records, worker by worker.
fn image(plan: &Plan) -> Image {
    let mut packets = PACKETS;
    let events = Events::place(plan, &mut packets);
    let (mut records, mut record_at) = (Vec::new(), vec![0]);
    for worker in 0..3 {
        let mut before = 0;
        for (task, (phase, ..)) in (0..).zip(&plan.tasks).filter(|(_, (_, of, _))| *of == worker) {
            let mut record = Record { task, ..Record::default() };
            events.encode(plan, *phase, &mut before, &mut record);
            records.push(record);
        }
        record_at.push(records.len() as u32);
    }
    Image { records, record_at, packets, events, ..Image::empty(3) }
}

/// Signal, wait and arrivals by worker, then task.
fn words(image: &Image) -> Vec<Vec<(u32, u32, u32)>> {
    let of = |bounds: &[u32]| &image.records[bounds[0] as usize..bounds[1] as usize];
    image.record_at.windows(2).map(|bounds| of(bounds).iter().map(Record::counters).collect()).collect()
}

const ATTENDED: u32 = PACKETS;
const MERGED: u32 = ATTENDED + ALIGN;
const CHOSEN: u32 = MERGED + ALIGN;
const NONE: (u32, u32, u32) = (0, 0, 0);

#[test]
fn packets_need_no_counters() {
    let plan = plan(DeviceExchange::Packets);
    let image = image(&plan);
    assert_eq!((image.packets, image.events.list.len()), (PACKETS, 0));
    assert!(words(&image).concat().iter().all(|&words| words == NONE));
    image.check_events(&plan).expect("nobody waits");
}

#[test]
fn tasks_signal_what_they_publish_and_wait_for_what_they_read() {
    let plan = plan(DeviceExchange::Counters);
    let image = image(&plan);
    assert_eq!(image.packets, PACKETS + 3 * ALIGN);
    // Two tasks attend, one merges, three have a best; the look keeps to packets, and the choice waits for the bests.
    let end = [(CHOSEN, MERGED, 1), NONE, (0, CHOSEN, 3)];
    let attends: Vec<_> = [(ATTENDED, 0, 0)].into_iter().chain(end).collect();
    let merges: Vec<_> = [(MERGED, ATTENDED, 2)].into_iter().chain(end).collect();
    assert_eq!(words(&image), [attends.clone(), attends, merges]);
    image.check_events(&plan).expect("every wait ends");
}

#[test]
fn every_worker_passes_every_barrier() {
    let plan = plan(DeviceExchange::Barrier);
    let image = image(&plan);
    // The third worker has no part in the attention: it comes to that barrier before it merges, the others to both before their bests.
    let end = [NONE, (CHOSEN, CHOSEN, 3)];
    let attends: Vec<_> = [NONE, (ATTENDED, MERGED, 3)].into_iter().chain(end).collect();
    let merges: Vec<_> = [(ATTENDED, ATTENDED, 3), (MERGED, MERGED, 3)].into_iter().chain(end).collect();
    assert_eq!(words(&image), [attends.clone(), attends, merges]);
    image.check_events(&plan).expect("all come to every barrier");
}

#[test]
fn waits_that_would_not_end_are_refused() {
    let changes: [fn(&mut Record); 4] = [
        |record| record.signal ^= ATTENDED,
        |record| record.wait = CHOSEN + ALIGN,
        |record| record.arrivals += 1,
        |record| (record.signal, record.wait, record.arrivals) = NONE,
    ];
    for exchange in [DeviceExchange::Packets, DeviceExchange::Counters, DeviceExchange::Barrier] {
        let plan = plan(exchange);
        let whole = image(&plan);
        for at in 0..whole.records.len() {
            for change in changes {
                let mut image = whole.clone();
                change(&mut image.records[at]);
                let refused = matches!(image.check_events(&plan), Err(CudaError::Image { .. }));
                assert_eq!(refused, image.records[at] != whole.records[at], "{exchange:?}, {:?}", image.records[at]);
            }
        }
    }
}
