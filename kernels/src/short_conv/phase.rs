//! The phase of a short convolution: a worker has the same channels at every position, so no worker
//! waits for another's earlier inputs.

use super::group::Convolution;
use crate::attention::cache_of;
use crate::fused::{Decoder, cache_page_bytes, conv_page_bytes};
use amk::ir::program::BufferKind;
use amk::ir::{Access, Bound, BufferId, DType, Exchange, Interval, Operand, Param, Region};
use amk_cuda::image::{Encoder, Record};
use amk_cuda::plan::{PhaseKind, Plan, Planner, TaskCalls, UNIT, Work, early, even, read, rotated, same, write};
use std::ops::Range;
use std::slice::from_ref;

/// A short convolution. Each worker has some channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolve {
    /// Its number: which of [`Decoder::convolutions`].
    pub number: usize,
}

/// Buffers of a short convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvBuffers {
    /// The newest inputs.
    pub x: BufferId,
    /// The factor of the result.
    pub gate: BufferId,
    /// The inputs of all positions.
    pub inputs: BufferId,
    /// The weights of each channel.
    pub weight: BufferId,
    /// The result.
    pub to: BufferId,
}

/// Adds the phase of a convolution.
pub(super) fn plan(convolution: &Convolution, planner: &mut Planner<'_>) {
    let (number, [channels, _]) = (planner.plan.shared.entry::<Decoder>().convolutions.len(), convolution.shape);
    let shape = [planner.plan.sizes.context, channels];
    let name = format!("inputs.{number}");
    let inputs = planner.buffer(&name, BufferKind::State, DType::BF16, &shape, Exchange::Counter);
    let [x, gate, weight] = [convolution.x, convolution.gate, convolution.weight].map(|value| planner.known(value));
    let to = planner.value(convolution.result, DType::BF16);
    let decoder = planner.plan.shared.entry::<Decoder>();
    decoder.convolutions.push(ConvBuffers { x, gate, inputs, weight, to });
    decoder.convolved = convolution.shape;
    let units = rotated(even(channels / UNIT, planner.plan.schedule.workers), number * 17);
    let works = units.into_iter().map(|units| Work::Rows(units.start * UNIT..units.end * UNIT)).collect();
    planner.phase(Convolve { number }, works);
}

/// Renders the places of the inputs of a plan's convolutions as macros.
pub(crate) fn defines(plan: &Plan) -> String {
    let none = Decoder::default();
    let decoder = Decoder::of(plan).unwrap_or(&none);
    let (count, [channels, taps]) = (decoder.convolutions.len(), decoder.convolved);
    // The group of the inputs, if they are paged.
    let group = plan.group(decoder.convolved_reach(plan.sizes.context));
    let groups = decoder.groups(plan);
    let layers = decoder.layers.iter().filter(|layer| groups.get(layer.kind) == Some(&group)).count();
    let caches = cache_page_bytes(&decoder.forms, cache_of(plan), layers);
    let page = caches + conv_page_bytes(decoder.convolved, count);
    let macros = [
        ("AMK_CONVS", count.to_string()),
        ("AMK_CONV_LEN", channels.to_string()),
        ("AMK_TAPS", taps.to_string()),
        ("AMK_CONV_GROUP", group.to_string()),
        ("AMK_CACHE_PAGE", format!("{caches}ull")),
        ("AMK_KV_PAGE", format!("{page}ull")),
    ];
    macros.map(|(name, value)| format!("#define {name} ({value})\n")).concat()
}

/// Some channels of the inputs: at the last `taps` positions, which are read, or at this position,
/// which is written.
fn inputs_of(buffer: BufferId, channels: &Range<u32>, taps: Option<u32>) -> Operand {
    let positions = Interval { lo: Bound::behind(taps.map_or(0, |taps| taps - 1)), hi: Bound::at_pos(1) };
    let region = Region::new(&[positions, Interval::fixed(channels.start, channels.end)]);
    let access = if taps.is_some() { Access::Read } else { Access::Write };
    Operand { buffer, region: region.unwrap_or(Region::full(&[])), access, early: false, routed: None }
}

impl PhaseKind for Convolve {
    fn label(&self) -> String {
        format!("convolve {}", self.number)
    }

    fn calls(&self, task: &mut TaskCalls<'_>, _worker: u32, work: &Work) {
        let (Some(decoder), Work::Rows(own)) = (Decoder::of(task.plan).cloned(), work) else { return };
        let Some(&ConvBuffers { x, gate, inputs, weight, to }) = decoder.convolutions.get(self.number) else { return };
        let ([_, taps], len) = (decoder.convolved, own.end - own.start);
        let y = task.local(len);
        let operands = vec![inputs_of(inputs, own, None), read(x, from_ref(own))];
        task.call("amk_kernels::append", operands, vec![Param::Pos]);
        let weights = early(weight, &[own.clone(), 0..taps]);
        let operands = vec![inputs_of(inputs, own, Some(taps)), weights, write(y, &[0..len])];
        task.call("amk_kernels::short_conv", operands, vec![Param::Pos]);
        let operands = vec![read(gate, from_ref(own)), read(y, &[0..len]), write(to, from_ref(own))];
        task.call("amk_kernels::mul", operands, Vec::new());
    }

    fn record(&self, encoder: &mut Encoder<'_>, work: &Work) -> Record {
        let Some(decoder) = Decoder::of(encoder.plan).cloned() else { return Record::default() };
        let (Some(buffers), Work::Rows(own)) = (decoder.convolutions.get(self.number), work) else {
            return Record::default();
        };
        Record {
            input: encoder.packet(buffers.x),
            output: encoder.element(buffers.to, own.start),
            norm: encoder.constant(Some(buffers.weight)) + own.start * decoder.convolved[1],
            layer: self.number as u32,
            aux: encoder.packet(buffers.gate),
            ..encoder.of_rows("CONVOLVE", work)
        }
    }

    fn constants(&self, plan: &Plan) -> Vec<BufferId> {
        let buffers = Decoder::of(plan).and_then(|decoder| decoder.convolutions.get(self.number));
        buffers.map(|buffers| buffers.weight).into_iter().collect()
    }

    fn same(&self, other: &dyn PhaseKind) -> bool {
        same(self, other)
    }
}
