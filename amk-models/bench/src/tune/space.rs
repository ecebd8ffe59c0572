//! The search space: the neighbours of a schedule.

use amk::ir::schedule::Schedule;
use amk_cuda::GpuTarget;

/// Values of a field that are worth a trial on a GPU.
type Values = (fn(&GpuTarget) -> Vec<u32>, fn(&mut Schedule) -> &mut u32);

pub(super) const FIELDS: [Values; 9] = [
    (|target| [12, 8, 4, 0].map(|fewer| target.multiprocessors.saturating_sub(fewer)).into(), |of| &mut of.workers),
    (|_| vec![2, 4, 8, 16], |of| &mut of.run),
    (|_| vec![4, 8, 12, 16, 32, 132], |of| &mut of.splits),
    (|_| vec![0, 16, 32, 64, 128, 256], |of| &mut of.late),
    (|_| vec![0, 16, 48, 128], |of| &mut of.split_k),
    (|_| vec![2, 3, 4, 5, 6], |of| &mut of.ring.slots),
    (|_| vec![1, 2, 3], |of| &mut of.ring.in_flight),
    (|_| vec![0, 180, 190, 195, 200, 205, 210, 215, 220, 230], |of| &mut of.ring.pace),
    (|_| vec![0, 64, 128, 256], |of| &mut of.ring.lookahead),
];

/// The legal schedules that differ from one in a single field. Fusion and exchange stay: without
/// them nothing is faster.
pub fn neighbours(schedule: &Schedule, target: &GpuTarget) -> Vec<Schedule> {
    let mut found = Vec::new();
    for (values, field) in FIELDS {
        for value in values(target) {
            let mut next = schedule.clone();
            *field(&mut next) = value;
            if next != *schedule && target.check(&next).is_ok() {
                found.push(next);
            }
        }
    }
    found
}

/// The field in which two schedules differ, by its number, where it is one.
pub(super) fn changed(one: &Schedule, other: &Schedule) -> Option<usize> {
    let (mut one, mut other) = (one.clone(), other.clone());
    let mut fields = (0..FIELDS.len()).filter(|&n| *FIELDS[n].1(&mut one) != *FIELDS[n].1(&mut other));
    fields.next().filter(|_| fields.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_legal_and_differ_in_one_field() {
        let target = GpuTarget::of_device("NVIDIA H200").expect("a record");
        let found = neighbours(&target.schedule(), target);
        assert!(found.len() > 20, "{found:?}");
        assert_eq!(changed(&target.schedule(), &target.schedule()), None);
        assert_eq!(changed(&found[0], &found[found.len() - 1]), None, "in two");
        for next in &found {
            assert_eq!(target.check(next), Ok(()));
            let (own, other) = (target.schedule(), next);
            let same = [
                own.workers == other.workers,
                own.run == other.run,
                own.splits == other.splits,
                own.late == other.late,
                own.split_k == other.split_k,
                own.ring.slots == other.ring.slots,
                own.ring.in_flight == other.ring.in_flight,
                own.ring.pace == other.ring.pace,
                own.ring.lookahead == other.ring.lookahead,
            ];
            assert_eq!(same.iter().filter(|same| !**same).count(), 1, "{other:?}");
            assert_eq!(changed(&own, other), same.iter().position(|same| !same));
        }
    }
}
