//! A short causal convolution over the positions, channel by channel.

mod decode;
mod formula;
mod group;
mod phase;

pub(crate) use decode::CONVOLVE;
pub(crate) use group::Convolutions;
pub(crate) use phase::defines;
pub use phase::{ConvBuffers, Convolve};

use amk::prelude::*;

/// Writes a vector at this position of a state: `inputs[pos, n] = x[n]`.
///
/// `inputs: [C, N]` f32 of `C` positions; `x: [N]` f32.
///
/// # Panics
/// If the lengths do not match or the position is outside the state.
#[instruction(
    op = "append",
    shape = "inputs: [C, N], x: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: inputs[pos..pos+1, n..n+T] <- x[n..n+T]",
    cuda = "body.cuh"
)]
pub fn append(inputs: &mut State, x: &Tensor, pos: Pos) {
    assert_eq!(inputs.shape().last(), Some(&x.len()), "`append` to a state of shape {:?}", inputs.shape());
    inputs.row_mut([pos.index()]).copy_from_slice(x.data());
}

/// A depthwise causal convolution: each channel is a weighted sum of its last `L` inputs, with
/// inputs before the first position counted as 0.
///
/// ```text
/// y[n] = sum over l of w[n, l] * inputs[pos - (L - 1) + l, n]
/// ```
///
/// `inputs: [C, N]` f32, of which the last `L` positions are read; `w: [N, L]` f32, f16 or bf16;
/// `y: [N]` f32. Source: `torch.nn.Conv1d` with a group for each channel; `Lfm2ShortConv`.
///
/// # Panics
/// If the shapes do not match or the position is outside the state.
#[instruction(
    op = "short_conv",
    shape = "inputs: [C, N], w: [N, L] -> y: [N]",
    tile = "T = 16",
    task = "n in 0..N step T: y[n..n+T] <- inputs[max(0, pos-L+1)..pos+1, n..n+T], w[n..n+T, ..]",
    cuda = "body.cuh"
)]
pub fn short_conv(inputs: &State, w: &Weight, pos: Pos) -> Tensor {
    let (&[_, channels], &[rows, taps]) = (inputs.shape(), w.shape()) else {
        panic!("`short_conv` of inputs: {:?} with w: {:?}", inputs.shape(), w.shape())
    };
    assert_eq!(channels, rows, "`short_conv` of inputs: {:?} with w: {:?}", inputs.shape(), w.shape());
    let w = w.to_f32();
    let mut y = vec![0.0; channels];
    let end = pos.index() + 1;
    for (at, tap) in (end.saturating_sub(taps)..end).zip(taps.saturating_sub(end)..) {
        for ((y, x), w) in y.iter_mut().zip(inputs.row([at])).zip(w.chunks_exact(taps)) {
            *y += w[tap] * x;
        }
    }
    Tensor::from(y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_before_the_first_position_are_zero() {
        let w = Weight::f32(&[2, 3], vec![100.0, 10.0, 1.0, 0.5, 0.25, -1.0]).unwrap();
        let mut inputs = State::zeros(&[4, 2]).unwrap();
        let outputs = [[1.0, 2.0], [3.0, 4.0], [5.0, 8.0], [7.0, 16.0]].into_iter().zip(0..).map(|(x, pos)| {
            append(&mut inputs, &Tensor::from(x), Pos(pos));
            short_conv(&inputs, &w, Pos(pos)).data().to_vec()
        });
        let expected = [[1.0, -2.0], [13.0, -3.5], [135.0, -6.0], [357.0, -12.0]];
        assert_eq!(outputs.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_kernel_of_one_has_no_memory() {
        let w = Weight::f32(&[1, 1], vec![2.0]).unwrap();
        let mut inputs = State::zeros(&[2, 1]).unwrap();
        inputs.row_mut([0])[0] = 9.0;
        append(&mut inputs, &Tensor::from([3.0]), Pos(1));
        assert_eq!(short_conv(&inputs, &w, Pos(1)).data(), [6.0]);
    }

    #[test]
    #[should_panic(expected = "`short_conv` of inputs: [4, 2] with w: [3, 3]")]
    fn weights_of_other_channels_are_named() {
        let w = Weight::f32(&[3, 3], vec![0.0; 9]).unwrap();
        short_conv(&State::zeros(&[4, 2]).unwrap(), &w, Pos(0));
    }
}
