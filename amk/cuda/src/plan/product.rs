//! Projections with what surrounds them.

use super::UNIT;
use super::flow::Flow;
use crate::schedule::DeviceSchedule;
use crate::source::TILE_K;
use amk_ir::BufferId;
use amk_ir::program::BufferKind;
use std::collections::HashSet;

const LINEAR: &str = "amk_kernels::linear";
const MOST_OWN_ROWS: u32 = 512;

/// A projection, or several of one input, with the norm of the input, biases and what takes the result.
#[derive(Clone, Debug)]
pub(super) struct Product {
    /// The calls, without the norm; the first leads.
    pub(super) calls: Vec<usize>,
    /// What comes in, before the norm.
    pub(super) input: BufferId,
    /// Weight of the norm.
    pub(super) norm: Option<BufferId>,
    /// Elements of the input.
    pub(super) k: u32,
    /// The weights `[N, K]`.
    pub(super) weights: Vec<BufferId>,
    /// Their biases.
    pub(super) biases: Vec<Option<BufferId>>,
    /// What happens to the products.
    pub(super) output: Delivered,
}

/// What happens to the products.
#[derive(Clone, Debug)]
pub(super) enum Delivered {
    /// They are values, one a weight.
    Store(Vec<BufferId>),
    /// `after = before + product`.
    Residual {
        /// The residual before.
        before: BufferId,
        /// The residual after.
        after: BufferId,
    },
    /// `silu(gate) * up`.
    Gated(BufferId),
    /// The function's result.
    Logits,
}

/// `linear`, perhaps with a bias.
struct Linear {
    calls: Vec<usize>,
    x: BufferId,
    weight: BufferId,
    bias: Option<BufferId>,
}

/// Collects products; each call goes into one at most.
pub(super) struct Products<'a> {
    flow: &'a Flow<'a>,
    schedule: &'a DeviceSchedule,
    eps: f32,
    without: &'a HashSet<usize>,
    pub(super) taken: Vec<bool>,
    pub(super) list: Vec<Product>,
}

impl<'a> Products<'a> {
    pub(super) fn new(flow: &'a Flow<'a>, schedule: &'a DeviceSchedule, eps: f32, without: &'a HashSet<usize>) -> Self {
        let taken = vec![false; flow.unrolled.calls.len()];
        Self { flow, schedule, eps, without, taken, list: Vec::new() }
    }

    pub(super) fn take(&mut self, calls: &[usize]) {
        calls.iter().for_each(|&at| self.taken[at] = true);
    }

    /// The values as products of one input, so that one pass reads it.
    pub(super) fn together(&mut self, values: &[BufferId]) {
        let linears: Vec<Linear> = values.iter().filter_map(|&value| self.linear(value)).collect();
        let biased = linears.iter().filter(|linear| linear.bias.is_some()).count();
        let same = linears.windows(2).all(|pair| pair[0].x == pair[1].x);
        // Their packets follow one another without a gap.
        let whole = linears.iter().all(|linear| self.flow.shape(linear.weight)[0].is_multiple_of(32));
        if linears.len() == values.len() && same && whole && (biased == 0 || biased == linears.len()) {
            self.add(linears, Delivered::Store(values.to_vec()));
        }
    }

    /// `silu_mul` of two products of one input.
    pub(super) fn gated(&mut self, at: usize) {
        if self.taken[at] || self.flow.path(at) != "amk_kernels::silu_mul" {
            return;
        }
        let linear =
            |number| self.flow.operand(at, number).filter(|&y| self.flow.only_for(y, at)).and_then(|y| self.linear(y));
        let (Some(gate), Some(up), Some(result)) = (linear(0), linear(1), self.flow.result(at)) else { return };
        let rows = |linear: &Linear| self.flow.shape(linear.weight)[0];
        let fits = gate.x == up.x && rows(&gate) == rows(&up) && gate.bias.is_none() && up.bias.is_none();
        if fits && self.flow.kind(result) == BufferKind::Activation {
            self.add(vec![gate, up], Delivered::Gated(result));
            self.also(at);
        }
    }

    /// `add` of a value and a product.
    pub(super) fn residual(&mut self, at: usize) {
        if self.taken[at] || self.flow.path(at) != "amk_kernels::add" {
            return;
        }
        let (Some(before), Some(y), Some(after)) =
            (self.flow.operand(at, 0), self.flow.operand(at, 1), self.flow.result(at))
        else {
            return;
        };
        let Some(linear) = self.linear(y).filter(|linear| linear.bias.is_none()) else { return };
        let rows = self.flow.shape(linear.weight)[0];
        let owned = (rows / UNIT).div_ceil(self.schedule.workers) * UNIT;
        let values = [before, after].map(|value| self.flow.kind(value));
        if self.flow.only_for(y, at) && owned <= MOST_OWN_ROWS && values == [BufferKind::Activation; 2] {
            self.add(vec![linear], Delivered::Residual { before, after });
            self.also(at);
        }
    }

    /// Any other `linear`, with its bias.
    pub(super) fn single(&mut self, at: usize) {
        if self.taken[at] || self.flow.path(at) != LINEAR {
            return;
        }
        let Some(y) = self.flow.result(at) else { return };
        let biased = match self.flow.users(y) {
            [user] if self.flow.path(*user) == "amk_kernels::add_bias" => self.flow.result(*user),
            _ => None,
        };
        let value = biased.unwrap_or(y);
        let Some(linear) = self.linear(value).or_else(|| self.linear(y)) else { return };
        let value = if linear.bias.is_some() { value } else { y };
        match self.flow.kind(value) {
            BufferKind::Output if linear.bias.is_none() => self.add(vec![linear], Delivered::Logits),
            BufferKind::Activation => self.add(vec![linear], Delivered::Store(vec![value])),
            _ => {}
        }
    }

    /// Norms that nothing but products reads are computed by these.
    pub(super) fn inline_norms(&mut self) {
        for at in 0..self.taken.len() {
            let Some(result) = self.flow.result(at) else { continue };
            let users = self.flow.users(result);
            if !self.taken[at]
                && self.flow.kind(result) == BufferKind::Activation
                && !users.is_empty()
                && self.normed(result).is_some()
                && users.iter().all(|user| self.list.iter().any(|product| product.calls.contains(user)))
                && users.iter().all(|&user| self.flow.path(user) == LINEAR)
            {
                self.taken[at] = true;
            }
        }
    }

    fn add(&mut self, linears: Vec<Linear>, output: Delivered) {
        let Some(first) = linears.first() else { return };
        let normed = self.normed(first.x);
        let (input, norm) = normed.map_or((first.x, None), |(input, weight)| (input, Some(weight)));
        let calls: Vec<usize> = linears.iter().flat_map(|linear| linear.calls.iter().copied()).collect();
        self.take(&calls);
        self.list.push(Product {
            calls,
            input,
            norm,
            k: self.flow.shape(first.weight)[1],
            weights: linears.iter().map(|linear| linear.weight).collect(),
            biases: linears.iter().map(|linear| linear.bias).collect(),
            output,
        });
    }

    /// The last product takes in one more call.
    fn also(&mut self, at: usize) {
        self.taken[at] = true;
        if let Some(product) = self.list.last_mut() {
            product.calls.push(at);
        }
    }

    /// Input and weight of the norm that makes a value, where it is one that products compute.
    fn normed(&self, value: BufferId) -> Option<(BufferId, BufferId)> {
        let at = self.flow.made_by(value, "amk_kernels::rms_norm")?;
        let ours = self.flow.float(at) == Some(self.eps) && self.flow.kind(value) == BufferKind::Activation;
        ours.then_some((self.flow.operand(at, 0)?, self.flow.operand(at, 1)?))
    }

    /// The projection that makes a value, where it is free and of a shape that the fast code computes.
    fn linear(&self, value: BufferId) -> Option<Linear> {
        let free = |at: usize| !self.taken[at] && !self.without.contains(&at);
        let mut biased = None;
        let mut y = value;
        if let Some(at) = self.flow.made_by(value, "amk_kernels::add_bias").filter(|&at| free(at)) {
            y = self.flow.operand(at, 0).filter(|&y| self.flow.only_for(y, at))?;
            biased = Some(at);
        }
        let at = self.flow.made_by(y, LINEAR).filter(|&at| free(at))?;
        let (x, weight) = (self.flow.operand(at, 0)?, self.flow.operand(at, 1)?);
        let &[rows, k] = self.flow.shape(weight) else { return None };
        let fits = rows.is_multiple_of(UNIT) && k.is_multiple_of(TILE_K) && k < 1 << 20;
        let bias = biased.and_then(|at| self.flow.operand(at, 1));
        // The biases of one projection lie side by side, so each belongs to one.
        let alone = bias.is_none_or(|bias| self.flow.users(bias).len() == 1);
        let calls = [Some(at), biased].into_iter().flatten().collect();
        (fits && alone).then_some(Linear { calls, x, weight, bias })
    }
}
