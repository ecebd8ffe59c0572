//! Streams: the weight matrices of generic tasks that come through the ring, and their tile
//! layouts.
//!
//! A crate registers a [`Stream`] with [`stream!`](crate::stream!) for an operand of its
//! instruction. The planner then distributes the rows over all workers in whole units, one task per
//! worker, and packs each task's rows in the [`Layout`].

use super::image::abi::CHUNK;
use super::layout::Layout;
use super::plan::UNIT;
use amk::registry::Registry;
use amk_ir::signature::{ParamKind, Signature, Span, TensorClass};

/// An operand that streams through the ring.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Path of the instruction.
    pub instruction: &'static str,
    /// Name of the parameter: a weight `[N, K]` whose rows the instruction's `task` clause tiles.
    pub operand: &'static str,
    /// Rows that are distributed as a unit, a multiple of 8.
    pub unit: u32,
    /// Whether the body supports a matrix of `rows` rows and `columns` columns; others use plain
    /// loads.
    pub takes: fn(rows: u32, columns: u32) -> bool,
    /// The bytes that one `acquire` returns, for rows of `columns` columns: a multiple of 16, at
    /// most a ring slot of 32 KiB, that divides the bytes of a unit.
    pub block: fn(columns: u32) -> u32,
    /// Parameters `[K]`, read whole, whose bf16 packets the body itself loads into registers: views
    /// `Input` instead of `In`.
    pub arrives: &'static [&'static str],
    /// The order of a task's rows on the tape: whole blocks.
    pub layout: Layout,
}

inventory::collect!(Stream);

/// Registers a [`Stream`].
///
/// ```ignore
/// amk_cuda::stream!(Stream { instruction: "my_crate::project", operand: "w", unit: 16, .. });
/// ```
#[macro_export]
macro_rules! stream {
    ($stream:expr) => {
        $crate::inventory::submit! { $stream }
    };
}

/// The reasons why a registered stream cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The instruction is not linked.
    #[error("the stream of `{instruction}` names an instruction that is not linked")]
    Instruction {
        /// Its path.
        instruction: &'static str,
    },
    /// The operand is not a weight matrix.
    #[error("the stream of `{instruction}` names `{operand}`, which is not a weight `[N, K]` of it")]
    Operand {
        /// The instruction's path.
        instruction: &'static str,
        /// The operand.
        operand: &'static str,
    },
    /// An operand that is to arrive in packets is not a tensor of rank 1 that every task reads
    /// whole.
    #[error("the stream of `{instruction}` lets `{operand}` arrive, which is not a tensor `[K]` of it, read whole")]
    Arrives {
        /// The instruction's path.
        instruction: &'static str,
        /// The operand.
        operand: &'static str,
    },
    /// An instruction has two streams.
    #[error("`{instruction}` has two streams, of `{first}` and of `{second}`")]
    Twice {
        /// The instruction's path.
        instruction: &'static str,
        /// The operand of one.
        first: &'static str,
        /// The operand of the other.
        second: &'static str,
    },
    /// The unit is not a multiple of 8.
    #[error("the stream of `{instruction}` has units of {unit} rows, expected a multiple of 8")]
    Unit {
        /// The instruction's path.
        instruction: &'static str,
        /// Rows of a unit.
        unit: u32,
    },
    /// The unit does not divide the rows of a matrix that the stream takes.
    #[error("the stream of `{instruction}` takes {rows} rows, which its units of {unit} do not divide")]
    Rows {
        /// The instruction's path.
        instruction: &'static str,
        /// Rows of the matrix.
        rows: u32,
        /// Rows of a unit.
        unit: u32,
    },
    /// A block does not fit a ring slot, or is not in whole 16 bytes.
    #[error("the stream of `{instruction}` has blocks of {block} bytes, expected a multiple of 16 up to {CHUNK}")]
    Block {
        /// The instruction's path.
        instruction: &'static str,
        /// Bytes of a block.
        block: u32,
    },
    /// The bytes of a unit are not whole blocks.
    #[error("the stream of `{instruction}` has blocks of {block} bytes, which do not divide a unit of {bytes}")]
    Blocks {
        /// The instruction's path.
        instruction: &'static str,
        /// Bytes of a block.
        block: u32,
        /// Bytes of a unit.
        bytes: u64,
    },
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        (self.instruction, self.operand) == (other.instruction, other.operand)
    }
}

impl Eq for Stream {}

impl Stream {
    /// The stream of an instruction.
    pub fn of(instruction: &str) -> Option<&'static Self> {
        inventory::iter::<Self>.into_iter().find(|stream| stream.instruction == instruction)
    }

    /// Checks every linked stream against its instruction's signature.
    ///
    /// # Errors
    /// The first that does not fit.
    pub fn check_linked() -> Result<(), StreamError> {
        let registry = Registry::linked().ok();
        let signature = |path: &str| registry.as_ref()?.get(path).ok()?.signature().ok();
        Self::check_all(inventory::iter::<Self>, signature)
    }

    fn check_all<'s>(
        streams: impl IntoIterator<Item = &'s Self>,
        signature: impl Fn(&str) -> Option<Signature>,
    ) -> Result<(), StreamError> {
        let mut seen: Vec<&Self> = Vec::new();
        for stream in streams {
            let instruction = stream.instruction;
            if let Some(first) = seen.iter().find(|known| known.instruction == instruction) {
                return Err(StreamError::Twice { instruction, first: first.operand, second: stream.operand });
            }
            seen.push(stream);
            stream.check(&signature(instruction).ok_or(StreamError::Instruction { instruction })?)?;
        }
        Ok(())
    }

    /// Checks the properties that depend only on the instruction.
    ///
    /// # Errors
    /// [`StreamError::Operand`], [`StreamError::Arrives`] or [`StreamError::Unit`].
    pub fn check(&self, signature: &Signature) -> Result<(), StreamError> {
        let &Self { instruction, operand, unit, .. } = self;
        let class = |name: &str| {
            let param = signature.params.iter().find(|param| param.name == name)?;
            if let ParamKind::Tensor { class, shape, .. } = &param.kind { Some((*class, shape.len())) } else { None }
        };
        if class(operand) != Some((TensorClass::Weight, 2)) {
            return Err(StreamError::Operand { instruction, operand });
        }
        if let Some(&operand) = self.arrives.iter().find(|name| !is_whole_vector(signature, name)) {
            return Err(StreamError::Arrives { instruction, operand });
        }
        if unit == 0 || !unit.is_multiple_of(UNIT) {
            return Err(StreamError::Unit { instruction, unit });
        }
        Ok(())
    }

    /// Checks the properties that depend on the matrix: `rows` rows of `columns` bf16 elements.
    ///
    /// # Errors
    /// [`StreamError::Rows`], [`StreamError::Block`] or [`StreamError::Blocks`].
    pub fn check_shape(&self, rows: u32, columns: u32) -> Result<(), StreamError> {
        let &Self { instruction, unit, .. } = self;
        if unit == 0 || !rows.is_multiple_of(unit) {
            return Err(StreamError::Rows { instruction, rows, unit });
        }
        let (block, bytes) = ((self.block)(columns), (self.layout.bytes)(unit, columns));
        if block == 0 || !block.is_multiple_of(16) || block > CHUNK {
            return Err(StreamError::Block { instruction, block });
        }
        if !bytes.is_multiple_of(u64::from(block)) {
            return Err(StreamError::Blocks { instruction, block, bytes });
        }
        Ok(())
    }
}

/// Whether a parameter is a tensor of rank 1 of which every task reads all elements.
fn is_whole_vector(signature: &Signature, name: &str) -> bool {
    let param = signature.params.iter().find(|param| param.name == name);
    param.is_some_and(|param| match &param.kind {
        ParamKind::Tensor { class: TensorClass::Tensor, region, .. } => region[..] == [Span::Full],
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::ROWS;
    use amk::prelude::*;

    /// A projection, with a vector besides.
    #[instruction(
        op = "project",
        shape = "x: [K], w: [N, K], b: [N] -> y: [N]",
        tile = "T = 16",
        task = "n in 0..N step T: y[n..n+T] <- x[..], w[n..n+T, ..], b[n..n+T]"
    )]
    fn project(x: &Tensor, w: &Weight, b: &Weight) -> Tensor {
        let row = |n| w.row(n).to_f32().iter().zip(x.data()).map(|(w, x)| w * x).sum::<f32>() + b.to_f32()[n];
        (0..w.rows()).map(row).collect()
    }

    const PATH: &str = "amk_cuda::project";

    const RIGHT: Stream = Stream {
        instruction: PATH,
        operand: "w",
        unit: 16,
        takes: |_, _| true,
        block: |columns| 32 * columns,
        arrives: &["x"],
        layout: ROWS,
    };

    fn linked(streams: &[Stream]) -> Result<(), StreamError> {
        let registry = Registry::linked().expect("the registry");
        Stream::check_all(streams, |path| registry.get(path).ok()?.signature().ok())
    }

    #[test]
    fn a_stream_names_a_weight_matrix_of_a_linked_instruction_once() {
        let instruction = PATH;
        assert_eq!(linked(&[RIGHT]), Ok(()));
        let of_another = Stream { instruction: "amk_cuda::nothing", ..RIGHT };
        assert_eq!(linked(&[of_another]), Err(StreamError::Instruction { instruction: "amk_cuda::nothing" }));
        for operand in ["x", "b", "y", "v"] {
            let wrong = Stream { operand, ..RIGHT };
            assert_eq!(linked(&[wrong]), Err(StreamError::Operand { instruction, operand }));
        }
        let wrong = Stream { arrives: &["x", "w"], ..RIGHT };
        assert_eq!(linked(&[wrong]), Err(StreamError::Arrives { instruction, operand: "w" }));
        // `Input` counts from the first element of the vector, not from a task's first row.
        let registry = Registry::linked().expect("the registry");
        let mut cut = registry.get(PATH).expect("linked").signature().expect("a signature");
        let rows = cut.results[0].region.clone();
        assert_eq!(RIGHT.check(&cut), Ok(()));
        if let ParamKind::Tensor { region, .. } = &mut cut.params[0].kind {
            *region = rows;
        }
        assert_eq!(RIGHT.check(&cut), Err(StreamError::Arrives { instruction, operand: "x" }));
        assert_eq!(linked(&[Stream { unit: 12, ..RIGHT }]), Err(StreamError::Unit { instruction, unit: 12 }));
        let twice = StreamError::Twice { instruction, first: "w", second: "w" };
        assert_eq!(linked(&[RIGHT, RIGHT]), Err(twice.clone()));
        assert_eq!(twice.to_string(), "`amk_cuda::project` has two streams, of `w` and of `w`");
    }

    #[test]
    fn units_and_blocks_fit_the_matrix_and_the_ring() {
        let instruction = PATH;
        assert_eq!(RIGHT.check_shape(64, 512), Ok(()));
        assert_eq!(RIGHT.check_shape(72, 512), Err(StreamError::Rows { instruction, rows: 72, unit: 16 }));
        let block = 64 * 1024;
        let error = RIGHT.check_shape(64, 2048).expect_err("a block of two slots");
        assert_eq!(error, StreamError::Block { instruction, block });
        assert!(error.to_string().contains("blocks of 65536 bytes, expected a multiple of 16 up to 32768"), "{error}");
        let odd = Stream { block: |_| 24, ..RIGHT };
        assert_eq!(odd.check_shape(64, 512), Err(StreamError::Block { instruction, block: 24 }));
        let uneven = Stream { block: |_| 48, ..RIGHT };
        let bytes = 16 * 512 * 2;
        assert_eq!(uneven.check_shape(64, 512), Err(StreamError::Blocks { instruction, block: 48, bytes }));
    }
}
