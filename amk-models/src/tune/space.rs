//! What a search proposes.

use amk::vm::cuda::{DeviceSchedule, GpuTarget};

/// Values of a field that are worth a trial.
type Values = (&'static [u32], fn(&mut DeviceSchedule) -> &mut u32);

const FIELDS: [Values; 6] = [
    (&[2, 4, 8, 16], |schedule| &mut schedule.run),
    (&[4, 8, 12, 16, 32, 132], |schedule| &mut schedule.splits),
    (&[2, 3, 4, 5, 6], |schedule| &mut schedule.ring_slots),
    (&[1, 2, 3], |schedule| &mut schedule.in_flight),
    (&[0, 180, 190, 195, 200, 205, 210, 215, 220, 230], |schedule| &mut schedule.pace),
    (&[0, 64, 128, 256], |schedule| &mut schedule.lookahead),
];

/// The legal schedules that differ from one in a single field. Fusion and exchange stay: without them nothing is faster.
pub fn neighbours(schedule: &DeviceSchedule, target: &GpuTarget) -> Vec<DeviceSchedule> {
    let mut found = Vec::new();
    for (values, field) in FIELDS {
        for &value in values {
            let mut next = *schedule;
            *field(&mut next) = value;
            if next != *schedule && next.check(target).is_ok() {
                found.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_legal_and_differ_in_one_field() {
        let target = GpuTarget::of_device("NVIDIA H200").expect("a record");
        let found = neighbours(&target.schedule, target);
        assert!(found.len() > 20, "{found:?}");
        for next in &found {
            assert_eq!(next.check(target), Ok(()));
            let (own, other) = (target.schedule, next);
            let same = [
                own.run == other.run,
                own.splits == other.splits,
                own.ring_slots == other.ring_slots,
                own.in_flight == other.in_flight,
                own.pace == other.pace,
                own.lookahead == other.lookahead,
            ];
            assert_eq!(same.iter().filter(|same| !**same).count(), 1, "{other:?}");
        }
    }
}
