//! The picture of a benchmark: percent of the ceiling, as SVG.

use super::peers::PEERS;
use super::report::{Report, Row};
use core::fmt::Write as _;

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
const SERIES: [(&str, &str); 1 + PEERS.len()] = [
    ("amk", "#1b6ca8"),
    ("CUDA-graphed cuBLAS", "#d9822b"),
    ("PDL-chained CUDA graph", "#5b9a5b"),
    ("torch.compile in a graph", "#8a8d91"),
];

/// Bars of every model and position, with the peers that ran: percent of the ceiling and
/// microseconds.
pub fn roofline(report: &Report) -> String {
    let mut body = String::new();
    let mut y = TOP;
    let mut before = "";
    for row in &report.rows {
        if row.model != before {
            y += if before.is_empty() { 0.0 } else { MODEL_GAP };
            text(&mut body, 16.0, y + 11.0, "start", "font-weight=\"bold\"", &row.model);
            y += BAR + 4.0;
            before = &row.model;
        }
        y = group(&mut body, report, row, y) + GROUP_GAP;
    }
    let bottom = y;
    let height = bottom + 56.0;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
        width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">"
    );
    let _ = writeln!(out, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>");
    let title = format!(
        "Time of a token as percent of the read ceiling: {}, {:.0} GB/s by the bare ring, bf16, batch 1",
        report.target, report.ceiling_gb_per_s
    );
    text(&mut out, 16.0, 26.0, "start", "font-size=\"16\" font-weight=\"bold\"", &title);
    legend(&mut out, report);
    axis(&mut out, bottom);
    out.push_str(&body);
    out.push_str("</svg>\n");
    out
}

/// Draws the bars of a row; returns the start of the next.
fn group(out: &mut String, report: &Report, row: &Row, mut y: f64) -> f64 {
    let label = format!("position {}", row.position);
    text(out, LEFT - 10.0, y + 12.0, "end", "", &label);
    let peers = PEERS.map(|peer| row.peers.of(peer));
    for (us, (_, colour)) in std::iter::once(Some(row.us)).chain(peers).zip(SERIES) {
        let Some(us) = us else { continue };
        let percent = row.percent(report.ceiling_gb_per_s, us.median);
        let width = (RIGHT - LEFT) * percent.clamp(0.0, 110.0) / 100.0;
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            BAR - 2.0
        );
        let label = format!("{percent:.0}% \u{b7} {:.0} us", us.median);
        // Next to the bar, or in it where there is no room.
        if width < RIGHT - LEFT - 110.0 {
            text(out, LEFT + width + 6.0, y + 11.0, "start", "font-size=\"11\"", &label);
        } else {
            text(out, LEFT + width - 6.0, y + 11.0, "end", "font-size=\"11\" fill=\"#fff\"", &label);
        }
        y += BAR;
    }
    y
}

fn legend(out: &mut String, report: &Report) {
    let ran = PEERS.map(|peer| report.rows.iter().any(|row| row.peers.of(peer).is_some()));
    let mut x = 16.0;
    for ((name, colour), _) in SERIES.iter().zip(std::iter::once(true).chain(ran)).filter(|(_, shown)| *shown) {
        let _ = writeln!(out, "<rect x=\"{x}\" y=\"42\" width=\"13\" height=\"13\" fill=\"{colour}\"/>");
        text(out, x + 19.0, 53.0, "start", "", name);
        x += 40.0 + 7.0 * name.len() as f64;
    }
}

fn axis(out: &mut String, bottom: f64) {
    for percent in (0..=100).step_by(10) {
        let x = LEFT + (RIGHT - LEFT) * f64::from(percent) / 100.0;
        let colour = if percent == 100 { "#b00020" } else { "#ddd" };
        let top = TOP - 8.0;
        let _ =
            writeln!(out, "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{colour}\"/>");
        text(out, x, bottom + 18.0, "middle", "", &format!("{percent}%"));
    }
    let middle = (LEFT + RIGHT) / 2.0;
    text(
        out,
        middle,
        bottom + 40.0,
        "middle",
        "",
        "bytes that must move (weights and cache once) over time, of the ceiling",
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, style: &str, text: &str) {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{escaped}</text>");
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
