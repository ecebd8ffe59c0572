//! Checks that the blocks of a tensor can belong to a weight.

use amk::encoding::{BlockError, Encoding};

/// Bytes at least that a thread checks.
const THREAD_BYTES: usize = 1 << 20;

/// Checks every block, on all cores if there are many.
///
/// # Errors
/// The first block that cannot belong to a weight.
pub(crate) fn check_blocks(encoding: &Encoding, bytes: &[u8]) -> Result<(), BlockError> {
    if encoding.check.is_none() {
        return Ok(());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let blocks = bytes.len() / encoding.bytes;
    check_in(encoding, bytes, blocks.div_ceil((bytes.len() / THREAD_BYTES).clamp(1, cores)))
}

/// Checks parts of `blocks` blocks in parallel.
fn check_in(encoding: &Encoding, bytes: &[u8], blocks: usize) -> Result<(), BlockError> {
    let parts = bytes.chunks((blocks * encoding.bytes).max(1));
    std::thread::scope(|scope| {
        let check = move |(part, bytes)| {
            let numbered = |error: BlockError| BlockError { block: error.block + part * blocks, ..error };
            encoding.check_blocks(bytes).map_err(numbered)
        };
        let mut parts = parts.enumerate();
        let first = parts.next();
        let others: Vec<_> = parts.map(|part| scope.spawn(move || check(part))).collect();
        // The first part is checked here, so that small tensors start no thread.
        let first = first.map_or(Ok(()), check);
        let joined =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.fold(first, Result::and)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn the_first_bad_block_is_named_whatever_part_it_is_in() {
        amk_kernels::link();
        let encoding = Encoding::find("Q8_0").unwrap();
        for blocks in [1, 3, 7, 8, 100] {
            let mut bytes = vec![0; 20 * encoding.bytes];
            assert_eq!(check_in(encoding, &bytes, blocks), Ok(()));
            for block in [19, 13, 7, 6, 2, 0] {
                bytes[block * encoding.bytes..][..2].copy_from_slice(&f16::NAN.to_le_bytes());
                assert_eq!(check_in(encoding, &bytes, blocks).map_err(|error| error.block), Err(block));
            }
        }
        assert_eq!(check_blocks(encoding, &[]), Ok(()));
    }
}
