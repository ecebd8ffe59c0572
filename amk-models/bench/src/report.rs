//! The table of a benchmark.

use super::peers::PeerTimes;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

/// Times in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, serde::Deserialize)]
pub struct Quantiles {
    /// The tenth percentile.
    pub p10: f64,
    /// The median.
    pub median: f64,
    /// The ninetieth percentile.
    pub p90: f64,
}

impl Quantiles {
    /// Of samples in any order; `None` without one.
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let last = samples.len().checked_sub(1)?;
        let at = |q: f64| samples[(last as f64 * q) as usize];
        Some(Self { p10: at(0.1), median: at(0.5), p90: at(0.9) })
    }
}

/// A benchmark on a GPU.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The GPU's record.
    pub target: String,
    /// Rate of the bare ring in the same run, GB/s.
    pub ceiling_gb_per_s: f64,
    /// Steps per launch; a token's time is the launch's time over its steps.
    pub steps: u32,
    /// Launches timed of each row, in turn with the model's other rows.
    pub samples: usize,
    /// Why peers that were asked for have no time.
    pub no_peers: Vec<String>,
    /// Model by model.
    pub rows: Vec<Row>,
}

/// A model at a position.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The model.
    pub model: String,
    /// First position of the launches.
    pub position: u32,
    /// Which schedule it ran with.
    pub schedule: String,
    /// Largest relative error of the logits against the annotated function.
    pub gate_error: f64,
    /// Bytes a step must move: every weight and the cache once.
    pub bytes: u64,
    /// Time of a token.
    pub us: Quantiles,
    /// Time predicted by the cost model.
    pub predicted_us: f64,
    /// Peers on the same GPU.
    pub peers: PeerTimes,
}

impl Row {
    /// The rate at which the bytes moved, in GB/s.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.us.median / 1e3
    }

    /// Percent of a ceiling in GB/s that a time in microseconds means.
    pub fn percent(&self, ceiling_gb_per_s: f64, us: f64) -> f64 {
        100.0 * self.bytes as f64 / us / 1e3 / ceiling_gb_per_s
    }
}

impl Report {
    /// The table as text.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let mut header = vec![
            "model",
            "position",
            "p10 us",
            "median us",
            "p90 us",
            "tokens/s",
            "GB/s",
            "% of ceiling",
            "predicted us",
            "error",
        ];
        let peers: Vec<_> = super::peers::PEERS
            .iter()
            .filter(|peer| self.rows.iter().any(|row| row.peers.of(**peer).is_some()))
            .collect();
        header.extend(peers.iter().map(|peer| peer.name()));
        table.set_header(header);
        for row in &self.rows {
            let Quantiles { p10, median, p90 } = row.us;
            let own = [
                row.model.clone(),
                row.position.to_string(),
                format!("{p10:.1}"),
                format!("{median:.1}"),
                format!("{p90:.1}"),
                format!("{:.0}", 1e6 / median),
                format!("{:.0}", row.gb_per_s()),
                format!("{:.1}", row.percent(self.ceiling_gb_per_s, median)),
                format!("{:.1}", row.predicted_us),
                format!("{:+.1}%", 100.0 * (row.predicted_us / median - 1.0)),
            ];
            let theirs =
                peers.iter().map(|peer| row.peers.of(**peer).map_or("-".into(), |us| format!("{:.1}", us.median)));
            table.add_row(own.into_iter().chain(theirs));
        }
        format!("{table}\n")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples = (0..=10).rev().map(f64::from).collect();
        assert_eq!(Quantiles::of(samples), Some(Quantiles { p10: 1.0, median: 5.0, p90: 9.0 }));
        assert_eq!(Quantiles::of(Vec::new()), None);
    }

    pub(crate) fn report() -> Report {
        let us = |median: f64| Quantiles { p10: median - 1.0, median, p90: median + 1.0 };
        let row = |model: &str, position, bytes, median, cublas: Option<f64>| Row {
            model: model.into(),
            position,
            schedule: "default".into(),
            gate_error: 0.01,
            bytes,
            us: us(median),
            predicted_us: median * 0.9,
            peers: PeerTimes { cublas: cublas.map(us), ..PeerTimes::default() },
        };
        Report {
            target: "h200".into(),
            ceiling_gb_per_s: 4000.0,
            steps: 64,
            samples: 15,
            no_peers: Vec::new(),
            rows: vec![
                row("small & quick", 0, 400_000_000, 200.0, Some(800.0)),
                row("small & quick", 8192, 800_000_000, 250.0, None),
            ],
        }
    }

    #[test]
    fn the_table_has_percents_and_the_peers_that_ran() {
        let report = report();
        assert_eq!((report.rows[0].gb_per_s(), report.rows[0].percent(4000.0, 200.0)), (2000.0, 50.0));
        let text = report.table();
        assert!(text.contains("cuBLAS graph us") && !text.contains("torch.compile"), "{text}");
        assert!(text.contains("-10.0%") && text.contains("800.0"), "{text}");
    }
}
