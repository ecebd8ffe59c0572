//! The picture of a benchmark: percent of the ceiling, as SVG.

use super::peers::PEERS;
use super::report::{Report, Row};
use super::svg::{Anchor, Picture};

const WIDTH: f64 = 960.0;
/// Where 0% is.
const LEFT: f64 = 210.0;
/// Where 100% is.
const RIGHT: f64 = 860.0;
const TOP: f64 = 86.0;
const BAR: f64 = 15.0;
const GROUP_GAP: f64 = 12.0;
const MODEL_GAP: f64 = 10.0;

/// The series of bars.
pub(crate) const SERIES: [(&str, &str); 1 + PEERS.len()] = [
    ("amk", "#1b6ca8"),
    ("CUDA-graphed cuBLAS", "#d9822b"),
    ("PDL-chained CUDA graph", "#5b9a5b"),
    ("torch.compile in a graph", "#8a8d91"),
];

/// Bars of every model and position, with the peers that ran: percent of the ceiling and
/// microseconds.
pub fn roofline(report: &Report) -> String {
    let mut picture = Picture::new(WIDTH);
    picture.title(&format!(
        "Time of a token as percent of the read ceiling: {}, {:.0} GB/s by the bare ring, bf16, batch 1",
        report.target, report.ceiling_gb_per_s
    ));
    let ran = PEERS.map(|peer| report.rows.iter().any(|row| row.peers.of(peer).is_some()));
    let shown = SERIES.into_iter().zip(std::iter::once(true).chain(ran)).filter(|(_, shown)| *shown);
    picture.legend(shown.map(|(series, _)| series));
    let mut bars = Picture::new(WIDTH);
    let mut y = TOP;
    let mut before = "";
    for row in &report.rows {
        if row.model != before {
            y += if before.is_empty() { 0.0 } else { MODEL_GAP };
            bars.text([16.0, y + 11.0], Anchor::Start, "font-weight=\"bold\"", &row.model);
            y += BAR + 4.0;
            before = &row.model;
        }
        y = group(&mut bars, report, row, y) + GROUP_GAP;
    }
    axis(&mut picture, y);
    picture.over(bars).finish(y + 56.0)
}

/// Draws the bars of a row; returns the start of the next.
fn group(picture: &mut Picture, report: &Report, row: &Row, mut y: f64) -> f64 {
    picture.text([LEFT - 10.0, y + 12.0], Anchor::End, "", &format!("position {}", row.position));
    let peers = PEERS.map(|peer| row.peers.of(peer));
    for (us, (_, colour)) in std::iter::once(Some(row.us)).chain(peers).zip(SERIES) {
        let Some(us) = us else { continue };
        let percent = row.percent(report.ceiling_gb_per_s, us.median);
        let width = (RIGHT - LEFT) * percent.clamp(0.0, 110.0) / 100.0;
        let label = format!("{percent:.0}% \u{b7} {:.0} us", us.median);
        picture.bar([LEFT, y], [width, BAR - 2.0], colour, &label, RIGHT);
        y += BAR;
    }
    y
}

fn axis(picture: &mut Picture, bottom: f64) {
    for percent in (0..=100).step_by(10) {
        let x = LEFT + (RIGHT - LEFT) * f64::from(percent) / 100.0;
        let colour = if percent == 100 { "#b00020" } else { "#ddd" };
        picture.vertical(x, [TOP - 8.0, bottom], colour);
        picture.text([x, bottom + 18.0], Anchor::Middle, "", &format!("{percent}%"));
    }
    let under = "bytes that must move (weights and cache once) over time, of the ceiling";
    picture.text([(LEFT + RIGHT) / 2.0, bottom + 40.0], Anchor::Middle, "", under);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn bars_are_as_long_as_their_percents() {
        let svg = roofline(&report());
        // 50% of 650 for our first row, 12.5% for its peer, 80% for the second.
        for width in ["width=\"325.0\"", "width=\"81.2\"", "width=\"520.0\""] {
            assert!(svg.contains(width), "{width}: {svg}");
        }
        assert_eq!(svg.matches("#d9822b").count(), 2, "its bar and the legend: {svg}");
        assert!(!svg.contains("torch.compile"), "it did not run");
        assert!(svg.contains("small &amp; quick"));
    }
}
