//! The Trace Event Format of Chrome, which Perfetto opens: <https://ui.perfetto.dev>.

use super::{TaskTrace, Trace};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Processes of the timeline.
const WORKERS: u32 = 1;
const LOADERS: u32 = 2;

impl Trace {
    /// Writes the timeline: a process of workers and a process of their loaders, with a thread per
    /// worker, a slice per task, and the task's parts nested in it. Times are in microseconds.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write_chrome(&self, out: &mut dyn Write, title: &str) -> io::Result<()> {
        let origin = self.tasks.iter().map(|task| task.start.min(task.issued)).fold(0.0, f64::min);
        let mut events = Events { out, first: true, origin };
        events.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        for (process, name) in [(WORKERS, title.to_owned()), (LOADERS, format!("{title}: loaders"))] {
            events.event(&json!({"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}))?;
            for worker in 0..self.workers {
                let name = format!("worker {worker}");
                events.event(
                    &json!({"ph": "M", "pid": process, "tid": worker, "name": "thread_name", "args": {"name": name}}),
                )?;
            }
        }
        let mut issued = None;
        for task in &self.tasks {
            self.task(&mut events, task)?;
            let before = issued.filter(|&(worker, _)| worker == task.worker).map_or(task.issued, |(_, time)| time);
            issued = Some((task.worker, task.issued));
            if task.issued > before {
                self.loader(&mut events, task, before)?;
            }
        }
        events.out.write_all(b"\n]}\n")
    }

    fn task(&self, events: &mut Events<'_>, task: &TaskTrace) -> io::Result<()> {
        let op = &self.ops[task.op];
        let args = json!({
            "task": task.task.to_string(), "layer": task.layer, "writes": task.writes, "bytes": task.bytes,
            "starved_ns": task.starved.round(),
            "late_ns": task.late.round(),
            "issued_ahead_ns": (task.ready() - task.issued).round(),
        });
        events.slice(WORKERS, task.worker, op, task.start, task.end, args)?;
        for (part, from, to) in task.parts() {
            // Parts that the body does not stamp are not shown.
            if to > from {
                events.slice(WORKERS, task.worker, part, from, to, Value::Null)?;
            }
        }
        Ok(())
    }

    fn loader(&self, events: &mut Events<'_>, task: &TaskTrace, from: f64) -> io::Result<()> {
        let args = json!({
            "task": task.task.to_string(), "bytes": task.bytes, "full_ns": task.loader.full.round(),
            "landing_ns": task.loader.landing.round(), "paced_ns": task.loader.paced.round(),
        });
        events.slice(LOADERS, task.worker, &self.ops[task.op], from, task.issued, args)
    }
}

struct Events<'o> {
    out: &'o mut dyn Write,
    first: bool,
    /// The first time of the loaders, which run ahead of the step.
    origin: f64,
}

impl Events<'_> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }

    fn slice(&mut self, process: u32, thread: usize, name: &str, from: f64, to: f64, args: Value) -> io::Result<()> {
        let (from, to) = ((from - self.origin).round(), (to - self.origin).round());
        let mut event = json!({
            "ph": "X", "pid": process, "tid": thread, "name": name, "ts": from / 1e3, "dur": (to - from) / 1e3,
        });
        if !args.is_null() {
            event["args"] = args;
        }
        self.event(&event)
    }
}
