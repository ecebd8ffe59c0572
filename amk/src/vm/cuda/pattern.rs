//! What an annotated decoder is made of: the calls around each projection and each attention, found by following the data.

use amk_ir::graph::Graph;
use amk_ir::lower::unroll::{PlannedCall, Unrolled};
use amk_ir::program::{BufferKind, Param};
use amk_ir::{Access, BufferId};
use std::collections::HashMap;

/// A decoder, as the device computes it. Buffers are those of the unrolled calls.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// Embedding table `[VOCAB, HIDDEN]`.
    pub embedding: BufferId,
    /// The layers.
    pub layers: Vec<DecoderLayer>,
    /// Weight of the last norm.
    pub norm: BufferId,
    /// Output head `[VOCAB, HIDDEN]`.
    pub head: BufferId,
    /// The logits.
    pub logits: BufferId,
    /// Rotary frequencies, radians a position.
    pub freqs: BufferId,
    /// Factor on rotated values.
    pub rope_scale: f32,
    /// Factor on the attention scores.
    pub score_scale: f32,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Elements of a head.
    pub head_dim: u32,
}

/// A projection: a weight `[N, K]` and perhaps a bias `[N]`.
#[derive(Clone, Copy, Debug)]
pub struct Projection {
    /// The weight.
    pub weight: BufferId,
    /// The bias.
    pub bias: Option<BufferId>,
}

/// A layer of a [`Decoder`].
#[derive(Clone, Debug)]
pub struct DecoderLayer {
    /// Norm before attention.
    pub attn_norm: BufferId,
    /// Query, key and value projections.
    pub qkv: [Projection; 3],
    /// Norms of queries and keys, head by head.
    pub head_norms: Option<[BufferId; 2]>,
    /// The key cache; its shape is `[KV_HEADS, CONTEXT, HEAD_DIM]`.
    pub cache: BufferId,
    /// Output projection.
    pub out: BufferId,
    /// Norm before the MLP.
    pub mlp_norm: BufferId,
    /// Gate projection.
    pub gate: BufferId,
    /// Up projection.
    pub up: BufferId,
    /// Down projection.
    pub down: BufferId,
}

/// The function has a form that the device code does not compute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the CUDA VM has no code for this form: {what}, at `{at}`; the CPU VM computes it")]
pub struct Unsupported {
    /// What was found or expected.
    pub what: String,
    /// The call.
    pub at: String,
}

struct Flow<'a> {
    graph: &'a Graph,
    unrolled: &'a Unrolled,
    /// The call that wrote each buffer last.
    writer: HashMap<BufferId, usize>,
}

impl<'a> Flow<'a> {
    fn name(&self, call: &PlannedCall) -> &'a str {
        self.graph.signatures.get(call.signature).map_or("", |signature| signature.name.as_str())
    }

    /// The call `name` that computes a buffer.
    fn made_by(&self, buffer: BufferId, name: &str) -> Result<&'a PlannedCall, Unsupported> {
        let call = self.writer.get(&buffer).and_then(|&at| self.unrolled.calls.get(at));
        match call {
            Some(call) if self.name(call) == name => Ok(call),
            Some(call) => Err(Unsupported { what: format!("expected a result of `{name}`"), at: call.label.clone() }),
            None => Err(Unsupported { what: format!("expected a result of `{name}`"), at: self.buffer_name(buffer) }),
        }
    }

    fn buffer_name(&self, buffer: BufferId) -> String {
        self.unrolled.buffers.get(buffer.index()).map(|buffer| buffer.name.clone()).unwrap_or_default()
    }

    /// Through an optional call `name` with one tensor before it: its weight and its input.
    fn through(&self, buffer: BufferId, name: &str) -> Result<(Option<BufferId>, BufferId), Unsupported> {
        match self.made_by(buffer, name) {
            Ok(call) => Ok((Some(operand(call, 1)?), operand(call, 0)?)),
            Err(_) => Ok((None, buffer)),
        }
    }

    /// `linear` with an optional bias: the projection and its input.
    fn projection(&self, buffer: BufferId) -> Result<(Projection, BufferId), Unsupported> {
        let (bias, product) = self.through(buffer, "add_bias")?;
        let linear = self.made_by(product, "linear")?;
        Ok((Projection { weight: operand(linear, 1)?, bias }, operand(linear, 0)?))
    }

    /// `linear` without a bias: its weight and its input.
    fn plain(&self, buffer: BufferId) -> Result<(BufferId, BufferId), Unsupported> {
        let linear = self.made_by(buffer, "linear")?;
        Ok((operand(linear, 1)?, operand(linear, 0)?))
    }

    /// `rms_norm`: its weight and its input.
    fn norm(&self, buffer: BufferId, eps: f32) -> Result<(BufferId, BufferId), Unsupported> {
        let norm = self.made_by(buffer, "rms_norm")?;
        if float(norm)? != eps {
            return Err(Unsupported { what: "norms with different epsilons".into(), at: norm.label.clone() });
        }
        Ok((operand(norm, 1)?, operand(norm, 0)?))
    }
}

fn operand(call: &PlannedCall, at: usize) -> Result<BufferId, Unsupported> {
    let missing = || Unsupported { what: format!("operand {at} is missing"), at: call.label.clone() };
    call.operands.get(at).map(|operand| operand.buffer).ok_or_else(missing)
}

fn float(call: &PlannedCall) -> Result<f32, Unsupported> {
    let found = call.params.iter().find_map(|param| if let Param::F32(value) = param { Some(*value) } else { None });
    found.ok_or_else(|| Unsupported { what: "a float parameter is missing".into(), at: call.label.clone() })
}

impl Decoder {
    /// Finds the decoder in the calls of an instance.
    ///
    /// # Errors
    /// [`Unsupported`] with the first call that is of another form.
    pub fn find(graph: &Graph, unrolled: &Unrolled) -> Result<Self, Unsupported> {
        let mut writer = HashMap::new();
        for (at, call) in unrolled.calls.iter().enumerate() {
            for operand in call.operands.iter().filter(|operand| operand.access != Access::Read) {
                writer.insert(operand.buffer, at);
            }
        }
        let flow = Flow { graph, unrolled, writer };
        let output =
            |buffer: &BufferId| unrolled.buffers.get(buffer.index()).is_some_and(|b| b.kind == BufferKind::Output);
        let none = || Unsupported { what: "there is no output of `linear`".into(), at: graph.name.clone() };
        let logits = flow.writer.keys().copied().find(output).ok_or_else(none)?;
        let (head, normed) = flow.plain(logits)?;
        let eps = float(flow.made_by(normed, "rms_norm")?)?;
        let (norm, mut x) = flow.norm(normed, eps)?;
        let mut layers = Vec::new();
        let mut rotary = None;
        while flow.made_by(x, "embed").is_err() {
            let (layer, before, turn) = find_layer(&flow, x, eps)?;
            if rotary.is_some_and(|known| known != turn) {
                return Err(Unsupported {
                    what: "layers with different rotary embeddings".into(),
                    at: flow.buffer_name(x),
                });
            }
            rotary = Some(turn);
            layers.push(layer);
            x = before;
        }
        layers.reverse();
        let embedding = operand(flow.made_by(x, "embed")?, 0)?;
        let none = || Unsupported { what: "there are no layers".into(), at: graph.name.clone() };
        let Turn { freqs, rope_scale, score_scale, head_dim } = rotary.ok_or_else(none)?;
        Ok(Self { embedding, layers, norm, head, logits, freqs, rope_scale, score_scale, eps, head_dim })
    }
}

#[derive(Clone, Copy, PartialEq)]
struct Turn {
    freqs: BufferId,
    rope_scale: f32,
    score_scale: f32,
    head_dim: u32,
}

/// The layer whose result is `x`, its input, and what its attention turns by.
fn find_layer(flow: &Flow<'_>, x: BufferId, eps: f32) -> Result<(DecoderLayer, BufferId, Turn), Unsupported> {
    let add = flow.made_by(x, "add")?;
    let (middle, (down, gated)) = (operand(add, 0)?, flow.plain(operand(add, 1)?)?);
    let gated = flow.made_by(gated, "silu_mul")?;
    let (gate, normed) = flow.plain(operand(gated, 0)?)?;
    let (up, also) = flow.plain(operand(gated, 1)?)?;
    same(normed, also, gated)?;
    let (mlp_norm, residual) = flow.norm(normed, eps)?;
    same(residual, middle, add)?;

    let add = flow.made_by(middle, "add")?;
    let (before, (out, attended)) = (operand(add, 0)?, flow.plain(operand(add, 1)?)?);
    let attention = flow.made_by(attended, "attention")?;
    let cache = operand(attention, 1)?;
    let key = flow.made_by(cache, "kv_append")?;
    let value = flow.made_by(operand(attention, 2)?, "kv_append")?;
    let query_turn = flow.made_by(operand(attention, 0)?, "rope")?;
    let key_turn = flow.made_by(operand(key, 1)?, "rope")?;
    let (q_norm, q) = flow.through(operand(query_turn, 0)?, "head_norm")?;
    let (k_norm, k) = flow.through(operand(key_turn, 0)?, "head_norm")?;
    let ((q, from), (k, also), (v, third)) =
        (flow.projection(q)?, flow.projection(k)?, flow.projection(operand(value, 1)?)?);
    same(from, also, attention)?;
    same(from, third, attention)?;
    let (attn_norm, residual) = flow.norm(from, eps)?;
    same(residual, before, add)?;
    let head_norms = match (q_norm, k_norm) {
        (Some(q), Some(k)) => Some([q, k]),
        (None, None) => None,
        _ => {
            return Err(Unsupported {
                what: "only one of queries and keys is normalised".into(),
                at: attention.label.clone(),
            });
        }
    };
    let head_dim = key_turn
        .params
        .iter()
        .find_map(|param| if let Param::U32(value) = param { Some(*value) } else { None })
        .unwrap_or(0);
    let turn =
        Turn { freqs: operand(key_turn, 1)?, rope_scale: float(key_turn)?, score_scale: float(attention)?, head_dim };
    let layer = DecoderLayer { attn_norm, qkv: [q, k, v], head_norms, cache, out, mlp_norm, gate, up, down };
    Ok((layer, before, turn))
}

fn same(a: BufferId, b: BufferId, at: &PlannedCall) -> Result<(), Unsupported> {
    if a == b {
        Ok(())
    } else {
        Err(Unsupported { what: "its inputs come from different values".into(), at: at.label.clone() })
    }
}
