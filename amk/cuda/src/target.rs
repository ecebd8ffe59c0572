//! GPUs as data.

use super::cost::{self, CostModel};
use amk_ir::Steps;
use amk_ir::schedule::{ExchangeBy, Ring, Schedule};

/// A kind of GPU: the properties on which the image and the source depend. Checked against the live
/// device before a launch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GpuTarget {
    /// The name.
    pub name: &'static str,
    /// Lower-case substring of the driver's device name.
    pub device: &'static str,
    /// Compute capability, `(major, minor)`.
    pub capability: (u32, u32),
    /// NVRTC architecture, such as `sm_90a`.
    pub architecture: &'static str,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory available to a block, in bytes.
    pub shared_bytes: u32,
    /// Read bandwidth of the device memory from the vendor's datasheet, in GB/s.
    pub datasheet_gb_per_s: f32,
    /// The ring of the GPU's default schedule.
    pub ring: Ring,
    /// Costs of parts of a step.
    pub cost: CostModel,
}

/// A GPU that cannot run the VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The name.
    pub name: &'static str,
    /// Lower-case substring of the driver's device name.
    pub device: &'static str,
    /// The reason.
    pub reason: &'static str,
}

const KIB: u32 = 1024;

const fn target(
    name: &'static str,
    architecture: (&'static str, (u32, u32)),
    multiprocessors: u32,
    shared_kib: u32,
    datasheet_gb_per_s: f32,
    ring_slots: u32,
) -> GpuTarget {
    let (architecture, capability) = architecture;
    let shared_bytes = shared_kib * KIB;
    GpuTarget {
        name,
        device: name,
        capability,
        architecture,
        multiprocessors,
        shared_bytes,
        datasheet_gb_per_s,
        ring: Ring { slots: ring_slots, in_flight: 2, pace: 0, lookahead: 0 },
        cost: cost::unmeasured(datasheet_gb_per_s),
    }
}

const fn paced(pace: u32, target: GpuTarget) -> GpuTarget {
    GpuTarget { ring: Ring { pace, ..target.ring }, ..target }
}

const SM_80: (&str, (u32, u32)) = ("sm_80", (8, 0));
const SM_86: (&str, (u32, u32)) = ("sm_86", (8, 6));
const SM_89: (&str, (u32, u32)) = ("sm_89", (8, 9));
const SM_90: (&str, (u32, u32)) = ("sm_90a", (9, 0));
const SM_100: (&str, (u32, u32)) = ("sm_100a", (10, 0));
const SM_120: (&str, (u32, u32)) = ("sm_120a", (12, 0));

/// The supported GPUs. amk has been run on the H100 and the H200; the sources compile for the
/// others.
pub const TARGETS: [GpuTarget; 9] = [
    target("a100", SM_80, 108, 163, 2039.0, 4),
    target("a10g", SM_86, 80, 99, 600.0, 2),
    target("l40s", SM_89, 142, 99, 864.0, 2),
    target("l4", SM_89, 58, 99, 300.0, 2),
    // The bare ring's rate was measured: 3.09 TB/s.
    GpuTarget { cost: cost::H100, ..target("h100", SM_90, 132, 227, 3350.0, 6) },
    // The pace was measured: 1980 MHz, 4.69 TB/s over 132 workers are 228 cycles; a little more
    // than that is asked for, and 228 cost 1% and more.
    GpuTarget { cost: cost::H200, ..paced(205, target("h200", SM_90, 132, 227, 4800.0, 6)) },
    target("b200", SM_100, 148, 227, 8000.0, 6),
    GpuTarget { device: "rtx 4090", ..target("rtx4090", SM_89, 128, 99, 1008.0, 2) },
    GpuTarget { device: "rtx 5090", ..target("rtx5090", SM_120, 170, 99, 1792.0, 2) },
];

/// Known GPUs that are refused.
pub(super) const REFUSED: [Refused; 1] = [Refused {
    name: "t4",
    device: "tesla t4",
    reason: "it has compute capability 7.5: no bf16 tensor cores and no cp.async; 8.0 is needed",
}];

impl GpuTarget {
    /// Returns the target of this name, such as `h200`.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Returns the target of a device by its driver name.
    ///
    /// # Errors
    /// The refused GPU, or `None` if the device is unknown.
    pub fn of_device(device: &str) -> Result<&'static Self, Option<Refused>> {
        let device = device.to_lowercase();
        if let Some(refused) = REFUSED.iter().find(|refused| is_named(&device, refused.device)) {
            return Err(Some(*refused));
        }
        TARGETS.iter().find(|target| is_named(&device, target.device)).ok_or(None)
    }

    /// Returns the GPU's default schedule, for functions without a tuned one.
    pub fn schedule(&self) -> Schedule {
        Schedule {
            workers: self.multiprocessors,
            steps: Steps::Pipelined,
            splits: self.multiprocessors,
            run: 4,
            split_k: 48,
            ring: self.ring,
            exchange: ExchangeBy::Packets,
            ..Schedule::default()
        }
    }

    /// Returns the threads of a block: consumer warps, loader, watchdog and scout. The latter three
    /// form a whole warpgroup on GPUs where registers move between groups.
    pub fn threads(&self) -> u32 {
        32 * if self.capability == (9, 0) { 20 } else { 19 }
    }
}

/// Whether a device's lower-case name contains a part, which no digit follows: an L40 is not an L4.
fn is_named(device: &str, part: &str) -> bool {
    let mut rests = device.match_indices(part).map(|(at, part)| &device[at + part.len()..]);
    rests.any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_the_drivers_name() {
        let name = |device| GpuTarget::of_device(device).map(|target| target.name);
        assert_eq!(name("NVIDIA H200"), Ok("h200"));
        assert_eq!(name("NVIDIA L40S"), Ok("l40s"));
        assert_eq!(name("NVIDIA L4"), Ok("l4"));
        assert_eq!(name("NVIDIA GeForce RTX 4090"), Ok("rtx4090"));
        assert_eq!(name("Tesla T4").unwrap_err().map(|refused| refused.name), Some("t4"));
        assert_eq!(name("NVIDIA Imaginary"), Err(None));
        assert_eq!(["NVIDIA L40", "NVIDIA RTX A1000", "NVIDIA L4000"].map(name), [Err(None); 3]);
        assert_eq!(["NVIDIA GH200 480GB", "NVIDIA A100X"].map(name), [Ok("h200"), Ok("a100")]);
    }
}
