//! Decode steps on a GPU, compared with peers.

use super::{Bench, write, write_json};
use crate::options::{Device, GpuSchedule, cuda_vm, print};
use crate::subject::{Subject, Which};
use amk_bench::peers::{Shapes, Step};
use amk_bench::{Gate, PeerTimes, Quantiles, Report, Row, roofline};
use amk_cuda::{Ceiling, CostModel, RunOptions, Vm, VmOptions};
use amk_models::cache::Cache;
use amk_models::model::Model;
use anyhow::{Context as _, Result, bail};

/// Weights above this make the annotated function slow, bytes: fewer of its steps are compared.
const LARGE: u64 = 2 << 30;
/// That many.
const LARGE_GATE_STEPS: usize = 2;

impl Bench {
    pub(super) fn cuda(&self) -> Result<()> {
        let schedule = self.schedule.for_gpu()?;
        let ceiling = Ceiling::new(&Cache::from_env()?.compiled())?;
        let (mut rates, mut rows, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
        let mut target = "";
        for which in self.subjects.all(Device::Cuda)? {
            let mut bench = Timed::new(self, &which, &schedule)?;
            target = bench.vm.target().name;
            rows.extend(bench.rows(self, &ceiling, &mut rates)?);
            shapes.push(bench.shapes()?);
        }
        drop(ceiling);
        let median = Quantiles::of(rates).context("no launch was timed")?.median;
        let mut report = Report {
            target: target.to_owned(),
            ceiling_gb_per_s: median / 1e9,
            steps: self.steps,
            samples: self.samples(),
            no_peers: Vec::new(),
            rows,
        };
        self.add_peers(&mut report, &shapes);
        self.show(&report)
    }

    fn add_peers(&self, report: &mut Report, shapes: &[Shapes]) {
        let peers = self.peer_times(shapes);
        for row in &mut report.rows {
            row.peers = peers.of(&row.model, Step::Decode { rows: 1, position: row.position });
        }
        report.no_peers = peers.missing;
    }

    fn show(&self, report: &Report) -> Result<()> {
        if self.shows_text() {
            let Report { target, ceiling_gb_per_s, steps, samples, .. } = report;
            print(&format!(
                "{target}: bare ring {ceiling_gb_per_s:.0} GB/s; time of a token in launches of \
                {steps} steps, {samples} of each in turn\n"
            ))?;
            print(&report.table())?;
            for why in &report.no_peers {
                print(&format!("peers: {why}\n"))?;
            }
        }
        if let Some(path) = &self.svg {
            write(path, &roofline(report))?;
        }
        write_json(self.json.as_deref(), report)
    }
}

/// A model on the GPU that has passed the gate.
pub(super) struct Timed {
    pub(super) name: String,
    pub(super) model: Model,
    pub(super) vm: Vm,
    schedule: String,
    gate: Gate,
    pub(super) positions: Vec<u32>,
}

impl Timed {
    pub(super) fn new(bench: &Bench, which: &Which, schedule: &GpuSchedule) -> Result<Self> {
        let opened = which.open()?;
        let limit = opened.positions();
        let positions = bench.positions(opened.name(), limit)?;
        let last = positions.iter().copied().max().unwrap_or(0);
        let context = (last + bench.steps).max(bench.gate_positions()).min(limit);
        let precision = bench.weights.precision();
        let Subject { name, mut model, mut gate } = opened.load(context, bench.weight_use())?;
        let options = VmOptions { precision, ..VmOptions::default() };
        let (mut vm, schedule) = cuda_vm(&model, schedule, options, !bench.shows_text())?;
        if vm.weight_bytes() > LARGE {
            gate.truncate(LARGE_GATE_STEPS);
        }
        model.keep_caches(vm.schedule().cache)?;
        let gate = Gate::of(&mut vm, &mut model, &gate)?;
        let refused = format!(
            "{name}: schedule {schedule}; logits of {} steps within {:.4} of the annotated function's\n",
            gate.steps, gate.error
        );
        if !gate.passed() {
            bail!("{}: no time is shown", refused.trim_end());
        }
        if bench.shows_text() {
            print(&refused)?;
        }
        Ok(Self { name, model, vm, schedule, gate, positions })
    }

    fn rows(&mut self, bench: &Bench, ceiling: &Ceiling, rates: &mut Vec<f64>) -> Result<Vec<Row>> {
        let mut times = vec![Vec::new(); self.positions.len()];
        for _ in 0..bench.samples() {
            for (&position, times) in self.positions.iter().zip(&mut times) {
                let run = self.vm.run(&[1], position, bench.steps, &RunOptions::default(), &mut |_| {})?;
                times.push(run.time.as_secs_f64() * 1e6 / f64::from(bench.steps));
            }
            rates.push(ceiling.sample()?);
        }
        // The memory of one card is a little faster than another's of the same kind.
        let read = Quantiles::of(rates.clone()).map_or(f64::NAN, |rates| rates.median / 1e9);
        let cost = CostModel { read, ..self.vm.target().cost };
        let row = |(&position, times): (&u32, Vec<f64>)| -> Result<Row> {
            let middle = position + bench.steps / 2;
            Ok(Row {
                model: self.name.clone(),
                position,
                schedule: self.schedule.clone(),
                gate_error: self.gate.error,
                bytes: self.vm.weight_bytes() + self.vm.cache_bytes(middle),
                us: Quantiles::of(times).context("no launch was timed")?,
                predicted_us: cost.predict(self.vm.plan(), middle).step / 1e3,
                peers: PeerTimes::default(),
            })
        };
        self.positions.iter().zip(times).map(row).collect()
    }

    fn shapes(&self) -> Result<Shapes> {
        let steps = self.positions.iter().map(|&position| Step::Decode { rows: 1, position }).collect();
        Ok(Shapes::of(&self.name, &self.model, steps)?)
    }
}
