//! Groups projections with the calls around them.

use super::layout::cut;
use super::pointwise::Function;
use super::tile::TileKind;
use super::{blocks, phase, pointwise};
use crate::abi::{GEMV_INPUT_BIT, GEMV_TILE_BIT, MOST_DEPTH, TILE_K, WIDE_PASSES};
use crate::fused::Decoder;
use crate::residual;
use amk::ir::TensorId;
use amk::ir::program::BufferKind;
use amk_cuda::Extensions;
use amk_cuda::image::abi::{NARROW_ROWS, UNIT, WARPS};
use amk_cuda::plan::{Flow, FusedGroup, Grouping, Planner, Unsupported};
use amk_cuda::set::Fusion;

const LINEAR: &str = "amk_kernels::linear";

/// Kinds of tiles that a record can number.
const KINDS: usize = 1 << (GEMV_INPUT_BIT - GEMV_TILE_BIT);

/// A projection, or several of one input, with the norm of the input, biases and the consumer of
/// the result.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    /// The calls except the norm. The first one leads.
    pub(crate) calls: Vec<usize>,
    /// The input, before the norm.
    pub(crate) input: TensorId,
    /// Weight of the norm.
    pub(crate) norm: Option<TensorId>,
    /// Input length.
    pub(crate) k: u32,
    /// The kind of the weights' tiles.
    pub(crate) kind: &'static TileKind,
    /// The weights `[N, K]`.
    pub(crate) weights: Vec<TensorId>,
    /// Their biases.
    pub(crate) biases: Vec<Option<TensorId>>,
    /// Destination of the products.
    pub(crate) output: Delivered,
}

/// Destination of the products.
#[derive(Clone, Debug)]
pub(crate) enum Delivered {
    /// One value per weight.
    Store(Vec<TensorId>),
    /// A function of each element.
    Mapped {
        /// The value.
        value: TensorId,
        /// The number of the function.
        function: u32,
    },
    /// `after = before + product`, or plus an element-wise function of the product.
    Residual {
        /// The residual before.
        before: TensorId,
        /// The residual after.
        after: TensorId,
        /// The number of the function. 0 means none.
        function: u32,
    },
    /// A function of the elements of two products.
    Gated {
        /// The value.
        value: TensorId,
        /// The number of the function.
        function: u32,
    },
    /// The function's result.
    Logits {
        /// The number of the element-wise function. 0 means none.
        function: u32,
    },
}

/// `linear`, with an optional bias.
struct Linear {
    calls: Vec<usize>,
    x: TensorId,
    weight: TensorId,
    kind: &'static TileKind,
    bias: Option<TensorId>,
    /// Whether its rows are whole units.
    whole: bool,
}

/// Finds the projections of a function.
pub(crate) struct Projections;

impl Fusion for Projections {
    fn group(&self, grouping: &mut Grouping<'_>) {
        let mut products = Products(grouping);
        let all = products.0.calls();
        all.clone().for_each(|at| products.gated(at));
        all.clone().for_each(|at| products.residual(at));
        all.for_each(|at| products.single(at));
        products.inline_norms();
    }
}

impl FusedGroup for Product {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn packed(&self) -> Vec<TensorId> {
        vec![self.input]
    }

    fn finds(&self, _value: TensorId) -> bool {
        true
    }

    fn check(&self, flow: &Flow<'_>, seen: &mut Extensions) -> Result<(), usize> {
        let Delivered::Residual { before, after, .. } = self.output else { return Ok(()) };
        residual::add(flow, seen, self.calls[0], before, after)
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), Unsupported> {
        let kind = phase::kind(self, planner);
        let known = &planner.plan.shared.entry::<Decoder>().tiles;
        if known.len() == KINDS && !known.contains(&kind) {
            let what = format!("weights in more than {KINDS} encodings");
            return Err(Unsupported::at(planner.flow, self.calls[0], what));
        }
        blocks::check(planner, self.calls[0])?;
        if planner.plan.is_wide() && cut(self.k, kind.deep).1 > WIDE_PASSES {
            let most = WIDE_PASSES * MOST_DEPTH * WARPS * TILE_K;
            let what =
                format!("a row of weights has {} elements, and steps of over {NARROW_ROWS} rows take {most}", self.k);
            return Err(Unsupported::at(planner.flow, self.calls[0], what));
        }
        phase::plan(self, kind, planner);
        Ok(())
    }
}

/// Groups the values as products of one input, so that one pass reads it.
pub(crate) fn together(grouping: &mut Grouping<'_>, values: &[TensorId]) {
    Products(grouping).together(values);
}

/// Builds groups of products. Each call is in one group at most.
struct Products<'g, 'a>(&'g mut Grouping<'a>);

impl<'a> Products<'_, 'a> {
    fn flow(&self) -> &'a Flow<'a> {
        self.0.flow
    }

    fn together(&mut self, values: &[TensorId]) {
        let linears: Vec<Linear> = values.iter().filter_map(|&value| self.linear(value)).collect();
        let biased = linears.iter().filter(|linear| linear.bias.is_some()).count();
        let same = linears.windows(2).all(|pair| (pair[0].x, pair[0].kind) == (pair[1].x, pair[1].kind));
        // Their packets must be contiguous.
        let whole = linears.iter().all(|linear| self.flow().shape(linear.weight)[0].is_multiple_of(32));
        if linears.len() == values.len() && same && whole && (biased == 0 || biased == linears.len()) {
            self.add(linears, Delivered::Store(values.to_vec()), None);
        }
    }

    /// Groups an element-wise function of two products of one input.
    fn gated(&mut self, at: usize) {
        let Some(function) = self.function(at, 2) else { return };
        let linear = |number| {
            self.flow().operand(at, number).filter(|&y| self.flow().only_for(y, at)).and_then(|y| self.linear(y))
        };
        let (Some(gate), Some(up), Some(result)) = (linear(0), linear(1), self.flow().result(at)) else { return };
        let rows = |linear: &Linear| self.flow().shape(linear.weight)[0];
        let fits = (gate.x, gate.kind) == (up.x, up.kind)
            && rows(&gate) == rows(&up)
            && gate.whole
            && gate.bias.is_none()
            && up.bias.is_none();
        if fits
            && self.flow().kind(result) == BufferKind::Activation
            && let Some(function) = self.number(function)
        {
            self.add(vec![gate, up], Delivered::Gated { value: result, function }, Some(at));
        }
    }

    /// Returns the element-wise function of a call that is in no group yet.
    fn function(&self, at: usize, operands: usize) -> Option<Function> {
        let may = self.0.free(at) && self.0.may_lead(at);
        pointwise::function(self.flow(), at, operands).filter(|_| may)
    }

    /// Returns the number of a function in the program.
    fn number(&mut self, function: Function) -> Option<u32> {
        pointwise::number(&mut self.0.shared.entry::<Decoder>().functions, function)
    }

    /// Returns the element-wise call that is the only reader of a product, and its value.
    fn mapped(&self, value: TensorId) -> Option<(usize, TensorId, Function)> {
        let &[at] = self.flow().users(value) else { return None };
        let result = self.flow().result(at)?;
        (self.flow().only_for(value, at)).then_some((at, result, self.function(at, 1)?))
    }

    /// Groups `add` of a value and a product, with its bias and an element-wise function of it.
    fn residual(&mut self, at: usize) {
        if !self.0.free(at) || self.flow().path(at) != "amk_kernels::add" {
            return;
        }
        let (Some(before), Some(added), Some(after)) =
            (self.flow().operand(at, 0), self.flow().operand(at, 1), self.flow().result(at))
        else {
            return;
        };
        let function = self.flow().writer(added).and_then(|of| Some((of, self.function(of, 1)?)));
        let y = match function {
            Some((of, _)) => self.flow().operand(of, 0).filter(|&y| self.flow().only_for(y, of)),
            None => Some(added),
        };
        let Some(linear) = y.and_then(|y| self.linear(y)).filter(|linear| linear.whole) else { return };
        let values = [before, after].map(|value| self.flow().kind(value));
        if !self.flow().only_for(added, at) || values != [BufferKind::Activation; 2] {
            return;
        }
        if let Some(because) = blocks::unheld(self.flow().shape(linear.weight)[0], self.0.schedule) {
            return self.0.refuse(at, because);
        }
        let of = function.as_ref().map(|&(of, _)| of);
        let Some(function) = function.map_or(Some(0), |(_, function)| self.number(function)) else { return };
        self.add(vec![linear], Delivered::Residual { before, after, function }, of.into_iter().chain([at]));
    }

    /// Groups any other `linear`, with its bias and an element-wise function of the result.
    fn single(&mut self, at: usize) {
        if !self.0.free(at) || self.flow().path(at) != LINEAR {
            return;
        }
        let Some(y) = self.flow().result(at) else { return };
        let biased = match self.flow().users(y) {
            [user] if self.flow().path(*user) == "amk_kernels::add_bias" => self.flow().result(*user),
            _ => None,
        };
        let value = biased.unwrap_or(y);
        let Some(linear) = self.linear(value).or_else(|| self.linear(y)) else { return };
        let value = if linear.bias.is_some() { value } else { y };
        match self.flow().kind(value) {
            BufferKind::Output if linear.bias.is_none() => {
                self.add(vec![linear], Delivered::Logits { function: 0 }, None);
            }
            BufferKind::Activation => {
                let logits = |value| self.flow().kind(value) == BufferKind::Output;
                let fits = |&(_, value, _): &(usize, TensorId, Function)| linear.bias.is_none() || !logits(value);
                let mapped = self.mapped(value).filter(fits);
                match mapped.and_then(|(at, result, function)| Some((at, result, self.number(function)?))) {
                    Some((at, value, function)) if self.flow().kind(value) == BufferKind::Activation => {
                        self.add(vec![linear], Delivered::Mapped { value, function }, Some(at));
                    }
                    Some((at, _, function)) => {
                        self.add(vec![linear], Delivered::Logits { function }, Some(at));
                    }
                    None => self.add(vec![linear], Delivered::Store(vec![value]), None),
                }
            }
            _ => {}
        }
    }

    /// Moves norms that only products read into their groups.
    fn inline_norms(&mut self) {
        for at in self.0.calls() {
            let Some(result) = self.flow().result(at) else { continue };
            let users = self.flow().users(result);
            if self.0.free(at)
                && self.flow().kind(result) == BufferKind::Activation
                && !users.is_empty()
                && self.normed(result).is_some()
                && users.iter().all(|user| self.0.groups::<Product>().any(|product| product.calls.contains(user)))
                && users.iter().all(|&user| self.flow().path(user) == LINEAR)
            {
                self.0.take(at);
            }
        }
    }

    /// Adds a group of projections and of the calls `after` them.
    fn add(&mut self, linears: Vec<Linear>, output: Delivered, after: impl IntoIterator<Item = usize>) {
        let Some(first) = linears.first() else { return };
        let normed = self.normed(first.x);
        let (input, norm) = normed.map_or((first.x, None), |(input, weight)| (input, Some(weight)));
        let calls: Vec<usize> = linears.iter().flat_map(|linear| linear.calls.iter().copied()).chain(after).collect();
        let product = Product {
            calls,
            input,
            norm,
            k: self.flow().shape(first.weight)[1],
            kind: first.kind,
            weights: linears.iter().map(|linear| linear.weight).collect(),
            biases: linears.iter().map(|linear| linear.bias).collect(),
            output,
        };
        self.0.push(product);
    }

    /// Returns the epsilon of the norms in fused code.
    fn eps(&self) -> Option<f32> {
        self.0.shared.get::<Decoder>().map(|decoder| decoder.eps)
    }

    /// Returns input and weight of the norm that defines a value, if products compute it.
    fn normed(&self, value: TensorId) -> Option<(TensorId, TensorId)> {
        let at = self.flow().made_by(value, "amk_kernels::rms_norm")?;
        let ours = self.flow().float(at) == self.eps() && self.flow().kind(value) == BufferKind::Activation;
        ours.then_some((self.flow().operand(at, 0)?, self.flow().operand(at, 1)?))
    }

    /// Returns the projection that defines a value, if it is in no group yet and the fused code
    /// supports its shape.
    fn linear(&self, value: TensorId) -> Option<Linear> {
        let free = |at: usize| self.0.free(at) && self.0.may_lead(at);
        let mut biased = None;
        let mut y = value;
        if let Some(at) = self.flow().made_by(value, "amk_kernels::add_bias").filter(|&at| free(at)) {
            y = self.flow().operand(at, 0).filter(|&y| self.flow().only_for(y, at))?;
            biased = Some(at);
        }
        let at = self.flow().made_by(y, LINEAR).filter(|&at| free(at))?;
        let (x, weight) = (self.flow().operand(at, 0)?, self.flow().operand(at, 1)?);
        let &[rows, k] = self.flow().shape(weight) else { return None };
        let kind = TileKind::of(self.0.encoding(weight), k);
        // There is no place for a bias of rows that the last unit lacks.
        let whole = rows.is_multiple_of(UNIT);
        let fits = (whole || (biased.is_none() && kind.pads())) && k.is_multiple_of(TILE_K) && k < 1 << 20;
        if !fits {
            let name = &self.flow().tensor(weight).name;
            let units = format!("rows in units of {UNIT} and columns in units of {TILE_K}, below {}", 1 << 20);
            self.0.refuse(at, format!("`{name}` is {rows} x {k}; projections take {units}"));
        }
        let bias = biased.and_then(|at| self.flow().operand(at, 1));
        // Biases of one projection are contiguous, so no other projection may use them.
        let alone = bias.is_none_or(|bias| self.flow().users(bias).len() == 1);
        if !alone {
            self.0.refuse(at, "other projections share its bias");
        }
        let calls = [Some(at), biased].into_iter().flatten().collect();
        (fits && alone).then_some(Linear { calls, x, weight, kind, bias, whole })
    }
}
