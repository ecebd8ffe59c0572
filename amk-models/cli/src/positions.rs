//! Positions that a command times, and the context that they need.

use anyhow::{Result, bail};

/// The last of `room` positions from which `--steps` steps still fit.
pub(crate) fn last_start(steps: u32, room: u32) -> Result<u32> {
    match room.checked_sub(steps) {
        Some(last) => Ok(last),
        None => bail!("--steps is {steps}, but the model's context has room for {room}"),
    }
}

/// Start positions of launches: the user's, none of which may be after `last`, or else `default`,
/// clamped to `last`.
pub(crate) fn starts(given: &[u32], default: &[u32], last: u32) -> Result<Vec<u32>> {
    if let Some(position) = given.iter().find(|&&position| position > last) {
        bail!("--positions has {position}, but the steps from there leave the model's context; use at most {last}");
    }
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let mut starts: Vec<u32> = default.iter().map(|&position| position.min(last)).collect();
    starts.dedup();
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_positions_are_limited_to_the_context() {
        let of = |limit| starts(&[], &[0, 8192], last_start(64, limit).unwrap()).unwrap();
        assert_eq!(of(8256), [0, 8192]);
        assert_eq!(of(8192), [0, 8128]);
        assert_eq!(of(64), [0]);
        assert_eq!(of(u32::MAX), [0, 8192]);
    }

    #[test]
    fn what_the_user_gave_is_taken_or_refused() {
        assert_eq!(starts(&[5, 192], &[0], 192).unwrap(), [5, 192]);
        let refused = starts(&[0, 193], &[0], 192).unwrap_err().to_string();
        assert_eq!(refused, "--positions has 193, but the steps from there leave the model's context; use at most 192");
        let refused = last_start(u32::MAX, 256).unwrap_err().to_string();
        assert_eq!(refused, "--steps is 4294967295, but the model's context has room for 256");
    }
}
