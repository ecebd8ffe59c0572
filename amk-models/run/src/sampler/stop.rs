//! Strings that end a text, found across the pieces it arrives in.

/// Watches a streamed text for strings that end it.
///
/// Text that could be the beginning of a stop string is held back until it is known not to be one.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
}

/// The part of a text piece to print, and whether to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Text to print: without the stop string and the text after it.
    pub text: String,
    /// Whether a stop string was found, so that the text ends here.
    pub stopped: bool,
}

impl StopStrings {
    /// Watches for any of `stops`; empty strings are not stops.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        Self { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), held: String::new() }
    }

    /// Whether there are no stop strings.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, piece: &str) -> Stopped {
        self.held.push_str(piece);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            self.held.truncate(at);
            return Stopped { text: std::mem::take(&mut self.held), stopped: true };
        }
        let keep_from = self.held.len() - self.longest_beginning();
        let kept = self.held.split_off(keep_from);
        Stopped { text: std::mem::replace(&mut self.held, kept), stopped: false }
    }

    /// Ends the text; returns the held-back text.
    pub fn finish(self) -> String {
        self.held
    }

    /// Bytes at the end of the held text that begin a stop string.
    fn longest_beginning(&self) -> usize {
        let begins_stop = |at: usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[at..]));
        let start = self.held.char_indices().map(|(at, _)| at).find(|&at| begins_stop(at));
        start.map_or(0, |at| self.held.len() - at)
    }
}
