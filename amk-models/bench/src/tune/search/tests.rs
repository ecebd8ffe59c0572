use super::super::space::{FIELDS, neighbours};
use super::*;
use amk::ir::schedule::Schedule;
use amk_cuda::GpuTarget;

/// Times that depend on the pace and the ring alone; a pace of 0 fails a gate.
struct Fake {
    compared: Vec<Schedule>,
    /// Fails at this comparison, as when a process is ended.
    ends_at: usize,
}

fn h200() -> &'static GpuTarget {
    GpuTarget::of_device("NVIDIA H200").expect("a record")
}

fn time(schedule: &Schedule) -> f64 {
    // Best at a pace of 190; half a percent for each step of 5 away from it. A ring of 5 slots
    // costs 3%.
    1000.0 + f64::from(schedule.ring.pace.abs_diff(190)) + if schedule.ring.slots == 6 { 0.0 } else { 30.0 }
}

impl Measure for Fake {
    type Error = LogError;

    fn positions(&self) -> &[u32] {
        &[0, 8192]
    }

    fn neighbours(&self, schedule: &Schedule) -> Vec<Schedule> {
        let all = neighbours(schedule, h200());
        all.into_iter()
            .filter(|next| (next.workers, next.ring.lookahead, next.ring.in_flight) == (132, 0, 2))
            .filter(|next| (next.run, next.splits, next.late) == (4, 132, 0))
            .collect()
    }

    fn predict(&mut self, schedule: &Schedule) -> Option<f64> {
        Some(f64::from(schedule.ring.pace))
    }

    fn compare(&mut self, incumbent: &Schedule, candidate: &Schedule) -> Result<Outcome, LogError> {
        if self.compared.len() == self.ends_at {
            return Err(LogError { path: "fake".into(), cause: std::io::ErrorKind::Interrupted.into() });
        }
        self.compared.push(candidate.clone());
        if candidate.ring.pace == 0 {
            return Ok(Outcome::Refused("the logits differ".into()));
        }
        let both = |schedule| vec![time(schedule), 2.0 * time(schedule)];
        Ok(Outcome::Timed { incumbent: both(incumbent), candidate: both(candidate) })
    }
}

fn fake() -> Fake {
    Fake { compared: Vec::new(), ends_at: usize::MAX }
}

#[test]
fn the_search_keeps_what_is_faster_and_reverts_the_rest() {
    let mut measure = fake();
    let start = h200().schedule();
    let mut seen = Vec::new();
    let found = search(start, &mut measure, &mut Log::default(), 100, &mut |row, _| seen.push(row.clone()))
        .expect("nothing fails");
    // Prices ask for the slowest pace first; 0 was refused. 205 -> 190 is 1.5%, at once or in steps
    // of at least 1%.
    assert_eq!(seen[0].refused.as_deref(), Some("the logits differ"));
    assert!(!seen[0].kept);
    assert_eq!((found.best.ring.pace, found.best.ring.slots), (190, 6), "{seen:?}");
    // From 205 to 190 at once: half a percent to 180 was not kept.
    assert!((found.gain - 0.015).abs() < 1e-9, "{found:?}");
    assert_eq!(seen.iter().filter(|row| row.kept).count(), 1);
    assert_eq!(found.trials, found.measured);
    let mut unique = measure.compared.clone();
    unique.sort_by_key(|schedule| (schedule.ring.pace, schedule.ring.slots));
    unique.dedup();
    assert_eq!(unique.len(), measure.compared.len(), "each is tried once");
}

/// Nothing is faster than anything else, and the cost model sees the pace alone.
struct Flat;

impl Measure for Flat {
    type Error = LogError;

    fn positions(&self) -> &[u32] {
        &[0]
    }

    fn neighbours(&self, schedule: &Schedule) -> Vec<Schedule> {
        neighbours(schedule, h200())
    }

    fn predict(&mut self, schedule: &Schedule) -> Option<f64> {
        Some(1000.0 - f64::from(schedule.ring.pace))
    }

    fn compare(&mut self, _: &Schedule, _: &Schedule) -> Result<Outcome, LogError> {
        Ok(Outcome::Timed { incumbent: vec![1.0], candidate: vec![1.0] })
    }
}

#[test]
fn every_field_has_its_turn_before_one_has_a_second() {
    let start = h200().schedule();
    let mut fields = Vec::new();
    let mut see = |row: &Row, _| fields.extend(changed(&row.incumbent, &row.candidate));
    search(start, &mut Flat, &mut Log::default(), 2 * FIELDS.len(), &mut see).expect("nothing fails");
    for round in fields.chunks(FIELDS.len()) {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert!(round.iter().copied().eq(0..FIELDS.len()), "{fields:?}");
    }
}

#[test]
fn a_search_that_was_stopped_goes_on_without_measuring_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log.jsonl");
    let start = h200().schedule();
    let whole = search(start.clone(), &mut fake(), &mut Log::default(), 8, &mut |_, _| {}).expect("nothing fails");
    let mut stopped = Fake { ends_at: 5, ..fake() };
    let mut log = Log::open(&path).expect("a log");
    search(start.clone(), &mut stopped, &mut log, 8, &mut |_, _| {}).expect_err("it is ended");
    drop(log);
    // The last line was cut in the middle.
    let text = std::fs::read_to_string(&path).expect("lines");
    std::fs::write(&path, &text[..text.len() - 20]).expect("it should be written");
    let mut log = Log::open(&path).expect("a log");
    assert_eq!(log.rows().len(), 4);
    let mut again = fake();
    let found = search(start.clone(), &mut again, &mut log, 8, &mut |_, _| {}).expect("nothing fails");
    assert_eq!((found.measured, again.compared.len()), (4, 4));
    assert_eq!((found.best, found.trials), (whole.best.clone(), whole.trials));
    // A third run measures nothing.
    let mut third = fake();
    let found = search(start, &mut third, &mut Log::open(&path).expect("a log"), 8, &mut |_, _| {});
    assert_eq!(found.map(|found| (found.best, found.measured)).ok(), Some((whole.best, 0)));
}

#[test]
fn rows_at_other_positions_do_not_count() {
    let start = h200().schedule();
    let mut log = Log::default();
    search(start.clone(), &mut fake(), &mut log, 3, &mut |_, _| {}).expect("nothing fails");
    let row = &log.rows()[0];
    assert!(log.find(&row.incumbent, &row.candidate, &[0, 8192]).is_some());
    assert!(log.find(&row.incumbent, &row.candidate, &[0]).is_none());
}
