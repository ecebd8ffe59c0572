//! The key/value cache.

mod formula;

use amk::prelude::*;

/// Writes the heads of this position into the cache: `cache[g, pos, d] = x[g * D + d]`.
///
/// `cache: [G, C, D]` f32 of `G` heads and `C` positions; `x: [G * D]` f32.
///
/// # Panics
/// If the lengths do not match or the position is outside the cache.
#[instruction(
    op = "kv_append",
    shape = "cache: [G, C, D], x: [G * D]",
    task = "g in 0..G step 1: cache[g..g+1, pos..pos+1, ..] <- x[g*D..(g+1)*D]",
    cuda = "body.cuh"
)]
pub fn kv_append(cache: &mut State, x: &Tensor, pos: Pos) {
    let &[heads, _, dim] = cache.shape() else { panic!("`kv_append` to a cache of shape {:?}", cache.shape()) };
    assert_eq!(x.len(), heads * dim, "`kv_append` of x: [{}] to a cache of shape {:?}", x.len(), cache.shape());
    for (head, x) in x.data().chunks_exact(dim).enumerate() {
        cache.row_mut([head, pos.index()]).copy_from_slice(x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_one_position_of_every_head() {
        let mut cache = State::zeros(&[2, 3, 2]).unwrap();
        kv_append(&mut cache, &Tensor::from([1.0, 2.0, 3.0, 4.0]), Pos(1));
        assert_eq!(cache.to_vec(), [0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0]);
    }

    #[test]
    #[should_panic(expected = "index 3 of dimension 1 is outside 0..3")]
    fn a_position_outside_the_context_is_named() {
        kv_append(&mut State::zeros(&[1, 3, 2]).unwrap(), &Tensor::from([1.0, 2.0]), Pos(3));
    }
}
