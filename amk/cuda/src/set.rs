//! Registration of fused device bodies: how they are found in a function, and how their tasks
//! become records.

use super::code::DeviceCode;
use super::extensions::Extensions;
use super::image::declare::Struct;
use super::image::decode::{DecodedCall, Places, Refusal, Survey, WorkerState};
use super::image::{Image, Record};
use super::params::Params;
use super::plan::{Grouping, Plan, Planner};
use super::run::RunOptions;
use amk::rows::Choice;
use amk_ir::Program;
use amk_ir::rows::Reach;

/// The fused bodies of a crate, registered with `inventory::submit!`. The built-in bodies are such
/// a set and use only public interfaces.
pub struct BodySet {
    /// The crate.
    pub name: &'static str,
    /// The bodies' CUDA C++.
    pub code: DeviceCode,
    /// The ABI between its records and its code, as C++.
    pub abi: fn() -> String,
    /// Its parameters of a launch: what [`SharedState::bind`] and [`Sampling::bind`] append, in
    /// this order. Each begins with a field of 8 bytes.
    pub params: &'static [Struct],
    /// C++ that `kept` uses, before all other code of the VM.
    pub types: DeviceCode,
    /// Members of a C++ struct: the state that its code keeps in a worker's shared memory. Its code
    /// declares nothing else `__shared__`: wide steps use the memory that this struct leaves.
    pub kept: &'static str,
    /// C++ run by every thread of a worker at the start of a launch, with that memory as `s`.
    pub begin_launch: &'static str,
    /// C++ run by every consumer thread of a worker `w` at the start of a step.
    pub begin_step: &'static str,
    /// C++ run by the copying warps of a worker in a launch with wide steps, each with its number
    /// `warp` among them. `s` is the shared memory, and the ring's begins at the shared
    /// address `data`.
    pub copy: &'static str,
    /// C++ run by every consumer thread of a worker `w` when a generic task has `len` logits
    /// `values` from number `first` on.
    pub see_logits: &'static str,
    /// Paths of the instructions that its tasks call.
    pub instructions: &'static [&'static str],
    /// The kinds of records, in the order of their numbers.
    pub kinds: &'static [RecordKind],
    /// Finders of groups of calls, in order of precedence.
    pub fusions: &'static [&'static dyn Fusion],
    /// The choice of the next token. Exactly one linked crate must register it.
    pub sampling: Option<&'static dyn Sampling>,
    /// The additional code and parameters of programs with rows.
    pub rows: RowCode,
    /// Device state shared by all of its tasks.
    pub shared: &'static dyn SharedState,
}

inventory::collect!(BodySet);

/// The code that only programs with rows have.
pub struct RowCode {
    /// Structs of its ABI.
    pub structs: &'static [Struct],
    /// Its parameters of a launch, which follow the parameters of all sets and are appended by
    /// [`Sampling::bind_rows`]. Each begins with a field of 8 bytes.
    pub params: &'static [Struct],
    /// CUDA C++ that follows all other code of the bodies.
    pub code: DeviceCode,
}

impl RowCode {
    /// No such code.
    pub const NONE: Self = Self { structs: &[], params: &[], code: DeviceCode { files: &[] } };
}

/// Finds groups of calls that a body computes in one task.
pub trait Fusion: Sync {
    /// Takes free calls into groups ([`Grouping::push`]).
    fn group(&self, grouping: &mut Grouping<'_>);
}

/// The choice of the next token from the logits.
pub trait Sampling: Sync {
    /// Adds its buffers to a program that already has weights, inputs and tokens.
    fn begin(&self, planner: &mut Planner<'_>);
    /// Adds its phases after all others.
    fn plan(&self, planner: &mut Planner<'_>);
    /// Whether a launch with these options needs the logits in memory.
    fn keeps_logits(&self, _options: &RunOptions) -> bool {
        false
    }
    /// Appends its parameters of a launch whose first `forced` tokens are given.
    fn bind(&self, _options: &RunOptions, _forced: u32, _to: &mut Params) {}
    /// Adds its phases to a program with rows, after all others. They write the chosen tokens to an
    /// output in addition to the logits.
    fn plan_rows(&self, planner: &mut Planner<'_>);
    /// Appends the data that the device reads for the choices of a step, by row. A row without a
    /// choice is left to the host.
    fn put_choices(&self, choices: &[Option<&Choice>], to: &mut Params);
    /// The options of a one-row launch that makes this choice; `None` if such a launch cannot.
    fn launch_of(&self, _choice: &Choice) -> Option<RunOptions> {
        None
    }
    /// Appends its parameters of a step: the address of its choices, and the address of mapped host
    /// memory with a word per row for the token, or `u32::MAX` if the host chooses.
    fn bind_rows(&self, choices: u64, chosen: u64, to: &mut Params);
    /// Checks that a record may come next in its worker's queue.
    ///
    /// # Errors
    /// The offending field.
    fn check_order(&self, state: &mut WorkerState, kind: Option<&str>) -> Result<(), Refusal>;
    /// Checks that a queue may end here.
    ///
    /// # Errors
    /// The missing record.
    fn check_end(&self, state: &WorkerState) -> Result<(), Refusal>;
}

/// Decodes a record to the calls that the device runs. It shares nothing with the encoder except
/// the ABI. An error names the first invalid field.
pub type Decode = for<'p> fn(&Record, &Places<'p>, &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal>;

/// A kind of record: the code that runs it and its meaning.
pub struct RecordKind {
    /// Its name: `OP_NAME` in C++.
    pub name: &'static str,
    /// The meaning of a record.
    pub decode: Decode,
    /// The C++ that runs a record `r` on a worker `w`; `None` if the plan has no such record or the
    /// kernel calls the body itself.
    pub dispatch: fn(&Plan) -> Option<String>,
    /// The C++ that feeds the loader `l` the next segment of a record `r` into `feed`.
    pub feed: fn(&Plan) -> Option<String>,
    /// Whether the kernel runs it with the set's `project`: only the leading words of such records
    /// are read, unless it `reads_all`, and they repeat the loop for each group of units.
    pub projects: bool,
    /// Whether the code of projections also needs a record's other words.
    pub reads_all: fn(&Plan) -> bool,
    /// The C++ condition on a worker `w` under which a step skips the records after one of this
    /// kind, and their number.
    pub skips: Option<(&'static str, u32)>,
    /// Whether the body itself waits for the record's counter, with `before_task`: its work before
    /// that touches nothing that another task writes.
    pub awaits: fn(&Plan) -> bool,
    /// Whether the body itself gives the record's signal, with `signal` or `signal_nothing`.
    pub signals: fn(&Plan) -> bool,
    /// Gathers facts about a whole program from the calls of this kind.
    pub survey: fn(&Program, &mut Survey),
}

impl RecordKind {
    /// Returns a kind with only a name and a meaning.
    pub const fn new(name: &'static str, decode: Decode) -> Self {
        Self {
            name,
            decode,
            dispatch: |_| None,
            feed: |_| None,
            projects: false,
            reads_all: |_| false,
            skips: None,
            awaits: |_| false,
            signals: |_| false,
            survey: |_, _| {},
        }
    }
}

/// Device state shared by the tasks of a crate's bodies, in addition to packets and tapes.
pub trait SharedState: Sync {
    /// The macros that specialise the code for a plan, placed before it.
    fn defines(&self, _plan: &Plan) -> String {
        String::new()
    }
    /// Functions called by the code, placed after it.
    fn functions(&self, _plan: &Plan) -> String {
        String::new()
    }
    /// Adds the parameters of a launch to an image.
    fn place(&self, _plan: &Plan, _to: &mut Extensions) {}
    /// Checks these against the verified program.
    ///
    /// # Errors
    /// The mismatch.
    fn check(&self, _image: &Image, _program: &Program, _plan: &Plan) -> Result<(), Refusal> {
        Ok(())
    }
    /// Returns the memories that an image needs, in the order of [`SharedState::bind`].
    fn memories(&self, _image: &Image) -> Vec<SharedMemory> {
        Vec::new()
    }
    /// Appends its parameters, the same for all launches; `at` holds the addresses of the memories.
    fn bind(&self, _image: &Image, _at: &[u64], _to: &mut Params) {}
    /// Returns how many positions a row of a plan without rows reads of each of its states.
    fn reaches(&self, _plan: &Plan) -> Vec<Reach> {
        Vec::new()
    }
    /// Whether the narrow steps of a plan take less time than wide ones of as many rows.
    fn suits_narrow(&self, _plan: &Plan) -> bool {
        true
    }
    /// Returns the bytes of the states that a step at `pos` reads.
    fn state_bytes(&self, _plan: &Plan, _pos: u32) -> u64 {
        0
    }
}

/// Memory shared by tasks, written in a launch only by the bodies themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// Size in bytes of the part that is not paged.
    pub bytes: u64,
    /// The weights that it holds, one after the other, and their formats; zeros without any.
    pub content: Vec<(amk_ir::BufferId, SharedForm)>,
    /// The bytes of its states in a page of each group, if these are paged.
    pub pages: Vec<u64>,
}

/// The format of a weight's elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedForm {
    /// bf16.
    BF16,
    /// f32.
    F32,
}

/// Returns the registered sets in order of their names.
pub fn body_sets() -> Vec<&'static BodySet> {
    let mut sets: Vec<&BodySet> = inventory::iter::<BodySet>.into_iter().collect();
    sets.sort_by_key(|set| set.name);
    sets
}

/// Returns the kinds of records by number.
pub fn record_kinds() -> Vec<&'static RecordKind> {
    body_sets().into_iter().flat_map(|set| set.kinds).collect()
}

/// Returns the number of a kind of record.
pub fn kind_number(name: &str) -> Option<u16> {
    record_kinds().iter().position(|kind| kind.name == name).map(|at| at as u16)
}

/// Returns the choice of the next token.
pub(super) fn sampling() -> Option<&'static dyn Sampling> {
    body_sets().into_iter().find_map(|set| set.sampling)
}

/// Returns the structs of the code for rows: all, and those that are parameters.
pub(super) fn row_structs() -> (Vec<&'static Struct>, Vec<&'static Struct>) {
    let params = || body_sets().into_iter().flat_map(|set| set.rows.params);
    (body_sets().into_iter().flat_map(|set| set.rows.structs).chain(params()).collect(), params().collect())
}

/// Returns the code of all registered sets.
pub(super) fn codes() -> impl Iterator<Item = DeviceCode> {
    body_sets().into_iter().map(|set| set.code)
}
