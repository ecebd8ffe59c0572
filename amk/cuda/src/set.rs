//! What a crate registers: its fused device bodies, how they are found in a function, and how their
//! tasks become records.

use super::code::DeviceCode;
use super::extensions::Extensions;
use super::image::abi::Params;
use super::image::decode::{DecodedCall, Places, Refusal, Survey, WorkerState};
use super::image::{Image, Record};
use super::plan::{Grouping, Plan, Planner};
use amk_ir::Program;

/// The fused bodies of a crate. Registered with `inventory::submit!`; the built-in bodies are such
/// a set, and use nothing that is not public here.
pub struct BodySet {
    /// The crate.
    pub name: &'static str,
    /// The bodies' CUDA C++.
    pub code: DeviceCode,
    /// What its records and code agree on, as C++.
    pub abi: fn() -> String,
    /// Members of a C++ struct: what its code keeps in a worker's shared memory.
    pub kept: &'static str,
    /// C++ that begins a launch with that memory, `s`; every thread of the worker runs it.
    pub begin_launch: &'static str,
    /// C++ that begins a step of a worker `w`; every consumer thread runs it.
    pub begin_step: &'static str,
    /// Paths of the instructions that its tasks call.
    pub instructions: &'static [&'static str],
    /// The kinds of records, in the order of their numbers.
    pub kinds: &'static [RecordKind],
    /// What finds groups of calls, in the order in which they choose.
    pub fusions: &'static [&'static dyn Fusion],
    /// How the next token is chosen; one linked crate has to say.
    pub sampling: Option<&'static dyn Sampling>,
    /// What all of its tasks share on the device.
    pub shared: &'static dyn SharedState,
}

inventory::collect!(BodySet);

/// An element-wise instruction as a function of scalars: `y[i] = f(x[i], ..)`. A body that delivers
/// its results element by element runs it before they are stored. Registered with
/// `inventory::submit!`.
pub struct Pointwise {
    /// The path of the instruction, whose tensors all have the shape of its result.
    pub instruction: &'static str,
    /// The C++ function: a `float` for each tensor and each float of the instruction, in order.
    pub function: &'static str,
    /// The text that defines it, of no file but its own.
    pub code: &'static str,
}

inventory::collect!(Pointwise);

/// Finds groups of calls that a body computes in one task.
pub trait Fusion: Sync {
    /// Takes free calls into groups ([`Grouping::push`]).
    fn group(&self, grouping: &mut Grouping<'_>);
}

/// How the workers choose the next token from the logits.
pub trait Sampling: Sync {
    /// Rows of the logits that one worker can take at most.
    fn most_rows(&self) -> u32;
    /// Adds its buffers to a program that has its weights, inputs and tokens.
    fn begin(&self, planner: &mut Planner<'_>);
    /// Adds its phases behind all others.
    fn plan(&self, planner: &mut Planner<'_>);
    /// Checks that a record may come next in its worker's queue.
    ///
    /// # Errors
    /// The field that is wrong.
    fn check_order(&self, state: &mut WorkerState, kind: Option<&str>) -> Result<(), Refusal>;
    /// Checks that a queue may end here.
    ///
    /// # Errors
    /// What is missing.
    fn check_end(&self, state: &WorkerState) -> Result<(), Refusal>;
}

/// The calls that the device runs for a record. Shares nothing with what encodes it but the ABI.
/// An error names the first field that stands for nothing.
pub type Decode = for<'p> fn(&Record, &Places<'p>, &mut WorkerState) -> Result<Vec<DecodedCall<'p>>, Refusal>;

/// A kind of record: the code that runs it and what it means.
pub struct RecordKind {
    /// Its name: `OP_NAME` in C++.
    pub name: &'static str,
    /// What a record means.
    pub decode: Decode,
    /// The C++ that runs a record `r` on a worker `w`; `None` where the plan has no such record or
    /// the kernel calls the body itself.
    pub dispatch: fn(&Plan) -> Option<String>,
    /// The C++ that feeds the loader `l` the next segment of a record `r` into `feed`.
    pub feed: fn(&Plan) -> Option<String>,
    /// Whether the kernel runs it by `project`, which the set defines: its records are read by
    /// their first words alone and take a turn for each group of units.
    pub projects: bool,
    /// The C++ condition on a worker `w` under which a step skips the records after one of this
    /// kind, and how many.
    pub skips: Option<(&'static str, u32)>,
    /// Notes what the calls of this kind say of a whole program.
    pub survey: fn(&Program, &mut Survey),
}

impl RecordKind {
    /// A kind of which the plan says no more than what its records mean.
    pub const fn new(name: &'static str, decode: Decode) -> Self {
        Self { name, decode, dispatch: |_| None, feed: |_| None, projects: false, skips: None, survey: |_, _| {} }
    }
}

/// What the tasks of a crate's bodies share on the device, beside packets and tapes.
pub trait SharedState: Sync {
    /// The macros that specialise the code for a plan, in front of it.
    fn defines(&self, _plan: &Plan) -> String {
        String::new()
    }
    /// Functions that the code calls, behind it.
    fn functions(&self, _plan: &Plan) -> String {
        String::new()
    }
    /// Adds to an image what stands behind the parameters of a launch.
    fn place(&self, _plan: &Plan, _to: &mut Extensions) {}
    /// Checks that against the verified program.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, _image: &Image, _program: &Program, _plan: &Plan) -> Result<(), Refusal> {
        Ok(())
    }
    /// The memories that an image needs, in an order that [`SharedState::bind`] knows.
    fn memories(&self, _image: &Image) -> Vec<SharedMemory> {
        Vec::new()
    }
    /// Sets the parameters of a launch; `at` has the addresses of the memories.
    fn bind(&self, _image: &Image, _at: &[u64], _params: &mut Params) {}
    /// Bytes of the states that a step at `pos` reads.
    fn state_bytes(&self, _plan: &Plan, _pos: u32) -> u64 {
        0
    }
}

/// Memory that tasks share: never written in a launch but by the bodies themselves.
pub struct SharedMemory {
    /// Its bytes.
    pub bytes: u64,
    /// A weight that it holds, and the form in which it does; zeros otherwise.
    pub content: Option<(amk_ir::BufferId, SharedForm)>,
}

/// In which form a memory has a weight's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedForm {
    /// bf16.
    BF16,
    /// f32.
    F32,
}

/// The registered sets in the order of their names.
pub fn body_sets() -> Vec<&'static BodySet> {
    let mut sets: Vec<&BodySet> = inventory::iter::<BodySet>.into_iter().collect();
    sets.sort_by_key(|set| set.name);
    sets
}

/// The kinds of records by number.
pub fn record_kinds() -> Vec<&'static RecordKind> {
    body_sets().into_iter().flat_map(|set| set.kinds).collect()
}

/// The number of a kind of record, as its records have it.
pub fn kind_number(name: &str) -> Option<u16> {
    record_kinds().iter().position(|kind| kind.name == name).map(|at| at as u16)
}

/// How the next token is chosen.
pub(super) fn sampling() -> Option<&'static dyn Sampling> {
    body_sets().into_iter().find_map(|set| set.sampling)
}

/// The code of all registered sets.
pub(super) fn codes() -> impl Iterator<Item = DeviceCode> {
    body_sets().into_iter().map(|set| set.code)
}
