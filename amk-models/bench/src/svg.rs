//! Drawing with SVG: rectangles, lines and text, in pixels from the top left.

use core::fmt::Write as _;

/// A picture that grows downwards.
pub(crate) struct Picture {
    width: f64,
    body: String,
}

/// Where a text is, of its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Picture {
    pub(crate) fn new(width: f64) -> Self {
        Self { width, body: String::new() }
    }

    /// A filled rectangle.
    pub(crate) fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], fill: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    /// A vertical line.
    pub(crate) fn vertical(&mut self, x: f64, [top, bottom]: [f64; 2], stroke: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{stroke}\"/>"
        );
    }

    /// A line of text with further attributes, as in `font-weight="bold"`.
    pub(crate) fn text(&mut self, [x, y]: [f64; 2], anchor: Anchor, style: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ =
            writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{escaped}</text>");
    }

    /// A title at the top left.
    pub(crate) fn title(&mut self, text: &str) {
        self.text([16.0, 26.0], Anchor::Start, "font-size=\"16\" font-weight=\"bold\"", text);
    }

    /// Names of colours, in a line under the title.
    pub(crate) fn legend<'a>(&mut self, series: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut x = 16.0;
        for (name, colour) in series {
            self.rect([x, 42.0], [13.0, 13.0], colour);
            self.text([x + 19.0, 53.0], Anchor::Start, "", name);
            x += 40.0 + 7.0 * name.len() as f64;
        }
    }

    /// A bar from `from` rightwards with its label: next to the bar, or in it where there is no
    /// room left of `right`.
    pub(crate) fn bar(&mut self, from: [f64; 2], [width, height]: [f64; 2], colour: &str, label: &str, right: f64) {
        self.rect(from, [width, height], colour);
        let [x, y] = [from[0] + width, from[1] + height - 2.0];
        if x < right - 7.0 * label.chars().count() as f64 {
            self.text([x + 6.0, y], Anchor::Start, "font-size=\"11\"", label);
        } else {
            self.text([x - 6.0, y], Anchor::End, "font-size=\"11\" fill=\"#fff\"", label);
        }
    }

    /// With another one drawn over it.
    pub(crate) fn over(mut self, other: Self) -> Self {
        self.body.push_str(&other.body);
        self
    }

    /// The whole picture.
    pub(crate) fn finish(self, height: f64) -> String {
        let Self { width, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }
}
