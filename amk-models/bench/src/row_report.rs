//! Times of steps of several rows: prompts, and sequences that decode side by side.

use super::peers::{PEERS, PeerTimes, Step};
use super::report::Quantiles;
use super::roofline::SERIES;
use super::svg::{Anchor, Picture};
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

const WIDTH: f64 = 960.0;
/// Where bars begin, and where the longest ends.
const LEFT: f64 = 210.0;
const RIGHT: f64 = 860.0;
const BAR: f64 = 15.0;

/// Models, and why peers that were asked for have no time.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RowReport {
    /// Model by model.
    pub models: Vec<ModelRows>,
    /// Why peers that were asked for have no time.
    pub no_peers: Vec<String>,
}

/// A model's steps.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ModelRows {
    /// The model.
    pub model: String,
    /// Threads of a CPU, multiprocessors of a GPU.
    pub workers: u32,
    /// Prompts, then sequences that decode.
    pub steps: Vec<StepTime>,
}

/// The time of a step; a prompt may take several, in chunks.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StepTime {
    /// The timed step.
    pub step: Step,
    /// The time, with the host's part.
    pub us: Quantiles,
    /// The median of the time on a device, where it has one.
    pub device_us: Option<f64>,
    /// The medians of the same step with other ends, where the VM chooses tokens itself: `us` is
    /// with greedy tokens then.
    pub ends: Option<EndTimes>,
    /// The time as a multiple of the first number of rows at its position.
    pub of_first: Option<f64>,
    /// Peers on the same GPU.
    pub peers: PeerTimes,
}

/// The medians of a step by what is asked of its rows, in microseconds, with the host's part.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct EndTimes {
    /// Tokens drawn by temperature 0.7 and top-p 0.9.
    pub drawn_us: f64,
    /// Logits, downloaded, from which no token is chosen yet.
    pub logits_us: f64,
}

impl StepTime {
    /// Tokens that the step takes.
    pub fn tokens(&self) -> u32 {
        match self.step {
            Step::Decode { rows, .. } => rows,
            Step::Prompt { tokens, .. } => tokens,
        }
    }

    /// Its time, on the device where it has one, and its peers', in microseconds.
    fn times(&self) -> [Option<f64>; 1 + PEERS.len()] {
        let mut times = [Some(self.device_us.unwrap_or(self.us.median)); 1 + PEERS.len()];
        times[1..].copy_from_slice(&PEERS.map(|peer| self.peers.of(peer).map(|us| us.median)));
        times
    }
}

/// Milliseconds of a time in microseconds.
fn millis(us: f64) -> String {
    format!("{:.2}", us / 1e3)
}

impl RowReport {
    /// The table as text.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let steps = || self.models.iter().flat_map(|model| &model.steps);
        let peers: Vec<_> = PEERS.iter().filter(|peer| steps().any(|step| step.peers.of(**peer).is_some())).collect();
        let own = [
            "model",
            "workers",
            "step",
            "p10 ms",
            "median ms",
            "p90 ms",
            "device ms",
            "drawn ms",
            "logits ms",
            "tokens/s",
            "x first",
        ];
        let theirs = peers.iter().map(|peer| peer.name().replace(" us", " ms"));
        table.set_header(own.map(str::to_owned).into_iter().chain(theirs));
        for ModelRows { model, workers, steps } in &self.models {
            for step in steps {
                let Quantiles { p10, median, p90 } = step.us;
                let own = [
                    model.clone(),
                    workers.to_string(),
                    step.step.to_string(),
                    millis(p10),
                    millis(median),
                    millis(p90),
                    step.device_us.map(millis).unwrap_or_default(),
                    step.ends.map(|ends| millis(ends.drawn_us)).unwrap_or_default(),
                    step.ends.map(|ends| millis(ends.logits_us)).unwrap_or_default(),
                    format!("{:.1}", f64::from(step.tokens()) * 1e6 / median),
                    step.of_first.map(|times| format!("{times:.2}")).unwrap_or_default(),
                ];
                let theirs = peers.iter().map(|peer| step.peers.of(**peer).map_or("-".into(), |us| millis(us.median)));
                table.add_row(own.into_iter().chain(theirs));
            }
        }
        format!("{table}\n")
    }

    /// The picture, as SVG: a bar for each step and its peers, as long as its time.
    pub fn picture(&self) -> String {
        let ran = |peer| self.models.iter().flat_map(|model| &model.steps).any(|step| step.peers.of(peer).is_some());
        let mut picture = Picture::new(WIDTH);
        picture.title("Time of a step of several rows, and of a prompt");
        let shown = std::iter::once(true).chain(PEERS.map(ran));
        picture.legend(SERIES.into_iter().zip(shown).filter(|(_, shown)| *shown).map(|(series, _)| series));
        let bottom = self.models.iter().fold(78.0, |y, model| model.draw(&mut picture, y));
        picture.finish(bottom)
    }
}

impl ModelRows {
    /// Draws a bar for each step and its peers; returns the start of the next model.
    fn draw(&self, picture: &mut Picture, mut y: f64) -> f64 {
        picture.text([16.0, y + 11.0], Anchor::Start, "font-weight=\"bold\"", &self.model);
        y += BAR + 4.0;
        let longest = self.steps.iter().flat_map(StepTime::times).flatten().fold(f64::MIN_POSITIVE, f64::max);
        for step in &self.steps {
            picture.text([LEFT - 10.0, y + 12.0], Anchor::End, "", &step.step.to_string());
            for (us, (_, colour)) in step.times().into_iter().zip(SERIES) {
                let Some(us) = us else { continue };
                let rate = f64::from(step.tokens()) * 1e6 / us;
                let label = format!("{} ms \u{b7} {rate:.0} tokens/s", millis(us));
                picture.bar([LEFT, y], [(RIGHT - LEFT) * us / longest, BAR - 2.0], colour, &label, RIGHT);
                y += BAR;
            }
            y += 8.0;
        }
        y + 10.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> RowReport {
        let us = |median: f64| Quantiles { p10: median, median, p90: median };
        let step = |step, median, of_first, cublas: Option<f64>| StepTime {
            step,
            us: us(median),
            device_us: None,
            ends: cublas.map(|_| EndTimes { drawn_us: 4120.0, logits_us: 4250.0 }),
            of_first,
            peers: PeerTimes { cublas: cublas.map(us), ..PeerTimes::default() },
        };
        let steps = vec![
            step(Step::Prompt { tokens: 512, position: 0 }, 4000.0, None, Some(2000.0)),
            step(Step::Decode { rows: 1, position: 128 }, 1000.0, Some(1.0), None),
            step(Step::Decode { rows: 8, position: 128 }, 1250.0, Some(1.25), None),
        ];
        RowReport { models: vec![ModelRows { model: "small".into(), workers: 2, steps }], no_peers: Vec::new() }
    }

    #[test]
    fn the_table_has_rates_multiples_and_the_peers_that_ran() {
        let table = report().table();
        for cell in
            ["prompt of 512", "128000.0", "4.12", "4.25", "8 rows at 128", "6400.0", "1.25", "cuBLAS graph ms", "2.00"]
        {
            assert!(table.contains(cell), "{cell}: {table}");
        }
        assert!(!table.contains("PDL"), "{table}");
    }

    #[test]
    fn bars_are_as_long_as_their_times() {
        let picture = report().picture();
        for width in ["width=\"650.0\"", "width=\"325.0\"", "width=\"162.5\"", "width=\"203.1\""] {
            assert!(picture.contains(width), "{width}: {picture}");
        }
        assert!(picture.contains("8 rows at 128") && !picture.contains("torch.compile"), "{picture}");
    }

    #[test]
    fn the_json_names_each_step() {
        let json = serde_json::to_value(report()).expect("a report is JSON");
        assert_eq!(json["models"][0]["steps"][2]["step"]["decode"]["rows"], 8);
    }
}
