//! Where the time goes until a model is ready.

use amk_cuda::StartTimes;
use core::fmt;
use std::time::{Duration, Instant};

/// Parts of the time since the start of a command.
pub(crate) struct Start {
    began: Instant,
    parts: Vec<(&'static str, Duration)>,
}

impl Start {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), parts: Vec::new() }
    }

    /// Ends a part, which began where the last one ended.
    pub(crate) fn done(&mut self, what: &'static str) {
        let known: Duration = self.parts.iter().map(|&(_, part)| part).sum();
        self.parts.push((what, self.began.elapsed().saturating_sub(known)));
    }

    /// The parts of a VM on a GPU.
    pub(crate) fn made(&mut self, times: StartTimes) {
        let StartTimes { opened, planned, compiled, copied } = times;
        self.parts.extend([
            ("opened the GPU", opened),
            ("planned", planned),
            ("compiled", compiled),
            ("packed and copied", copied),
        ]);
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: Duration = self.parts.iter().map(|&(_, part)| part).sum();
        write!(f, "ready in {:.1} s", total.as_secs_f64())?;
        for (nth, (what, part)) in self.parts.iter().enumerate() {
            write!(f, "{} {what} {:.2} s", if nth == 0 { ":" } else { "," }, part.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_named_in_order() {
        let millis = Duration::from_millis;
        let mut start = Start { began: Instant::now(), parts: vec![("opened the files", millis(250))] };
        let (opened, planned, compiled, copied) = (millis(500), millis(1000), millis(0), millis(1440));
        start.made(StartTimes { opened, planned, compiled, copied });
        assert_eq!(
            start.to_string(),
            "ready in 3.2 s: opened the files 0.25 s, opened the GPU 0.50 s, planned 1.00 s, compiled 0.00 s, \
             packed and copied 1.44 s"
        );
    }
}
