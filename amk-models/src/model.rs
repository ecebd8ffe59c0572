//! A checkpoint's weights in an annotated model, for a VM or for a direct call of the function.

use crate::config::{ModelConfig, Rope, RopeFrequencies};
use crate::head;
use crate::models;
use crate::random::Random;
use crate::rounding::RoundedSource;
pub use crate::rounding::Rounding;
use crate::weights::{Deviation, Extent, StoredTensor, TensorError, TensorSet, check_blocks};
use amk::encoding::BlockError;
use amk::ir::graph::Instance;
use amk::ir::schedule::Schedule;
use amk::ir::{BufferKind, DType};
use amk::layout::{BuildError, Source, SourceError, WeightRequest, build, zeroed_in};
use amk::tensor::{Inputs, WeightError};
use amk::vm::Bindings;
use amk::{Encoding, Megakernel, MegakernelError, Pos, Tensor, Token, Weight, WeightLayout};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// An annotated model and the architecture it computes.
#[derive(Clone, Copy)]
pub struct Family {
    /// The name, which is also the module's.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// The annotated function.
    pub kernel: &'static Megakernel,
    load: Load,
}

type Load = fn(&BTreeMap<String, u32>, &mut dyn Source) -> Result<Parts, BuildError>;

/// The families, by the names of their modules.
macro_rules! families {
    ($($module:ident: $about:literal,)*) => {
        /// The models of this crate.
        pub const FAMILIES: [Family; [$($about),*].len()] = [$(Family {
            name: stringify!($module),
            about: $about,
            kernel: &models::$module::DECODE,
            load: |dims, source| parts(dims, source, models::$module::decode),
        }),*];
    };
}

families! {
    llama: "Llama 2 and 3, SmolLM2, TinyLlama, Falcon 3, Phi-3, Phi-4-mini, ERNIE 4.5, Helium, Mistral without a window",
    qwen2: "Qwen2 and Qwen2.5, dense; GLM-4-9B; Seed-OSS",
    qwen3: "Qwen3, dense",
    olmo2: "OLMo 2",
    granite: "Granite 3 and 4, dense",
    stablelm: "StableLM 2 and StableLM 3B, without a parallel residual",
    starcoder2: "StarCoder2",
    glm4: "GLM-4-0414",
    mistral: "Mistral and Phi-3-mini with a sliding window",
    gemma: "Gemma",
    gemma2: "Gemma 2",
    gemma3: "Gemma 3, text",
    smollm3: "SmolLM3",
    olmo3: "OLMo 3",
    cohere2: "Command-R7B",
    lfm2: "LFM2",
    arcee: "Arcee (AFM-4.5B)",
    nemotron: "Nemotron and Minitron, dense",
    cohere: "Command-R and Aya 23, without norms of queries and keys",
    phi: "Phi-1, Phi-1.5 and Phi-2",
    exaone4: "EXAONE 4.0",
    gpt_neox: "GPT-NeoX and Pythia",
}

/// The annotated function over loaded weights, called directly.
pub type Eager = Box<dyn FnMut(Token, Pos) -> Tensor + Send>;

/// All declared instances of all models.
pub fn all_instances() -> impl Iterator<Item = (Family, Instance)> {
    FAMILIES.into_iter().flat_map(|family| {
        let graph = family.kernel.graph().ok();
        graph.into_iter().flat_map(|graph| graph.instances.clone()).map(move |instance| (family, instance))
    })
}

/// No model has an instance of this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no instance `{name}`; known ones: {}", known.join(", "))]
pub struct UnknownInstance {
    /// The requested name.
    pub name: String,
    /// The known names.
    pub known: Vec<String>,
}

/// Returns the model and the declared instance with this name, such as `llama.llama_3_2_1b`.
///
/// # Errors
/// If there is none.
pub fn find_instance(name: &str) -> Result<(Family, Instance), UnknownInstance> {
    let named = |family: &Family, instance: &Instance| format!("{}.{}", family.name, instance.name);
    all_instances().find(|(family, instance)| named(family, instance) == name).ok_or_else(|| UnknownInstance {
        name: name.to_owned(),
        known: all_instances().map(|(family, instance)| named(&family, &instance)).collect(),
    })
}

struct Parts {
    bindings: Bindings,
    anew: Anew,
}

/// Recreates the annotated function with states kept in these element types, by path.
type Anew = Box<dyn Fn(BTreeMap<String, DType>) -> Eager + Send>;

/// How weights are held in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WeightFormat {
    /// As in the file, bit for bit.
    #[default]
    Native,
    /// Converted to an encoding: all tensors for plain floats, only matrices whose rows are whole
    /// blocks for blocks.
    As(&'static Encoding),
}

impl WeightFormat {
    /// f32, exact for all encodings.
    pub const F32: Self = Self::As(&amk::encoding::F32);
    /// bf16, rounded to nearest even.
    pub const BF16: Self = Self::As(&amk::encoding::BF16);

    /// The encoding in which a tensor is held that is stored in another; `None`: in its own.
    fn converts(self, tensor: &StoredTensor) -> Option<&'static Encoding> {
        let Self::As(encoding) = self else { return None };
        let fits = tensor.row_len().is_multiple_of(encoding.block);
        let all = encoding.float.is_some();
        (encoding != tensor.encoding() && (all || (tensor.shape().len() > 1 && fits))).then_some(encoding)
    }

    /// Whether a matrix keeps its encoding because its rows are not whole blocks.
    fn leaves(self, tensor: &StoredTensor) -> bool {
        let Self::As(encoding) = self else { return false };
        tensor.shape().len() > 1 && !tensor.row_len().is_multiple_of(encoding.block)
    }
}

/// The result of a model, which decides the weights that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Output {
    /// The logits of the next token.
    #[default]
    Logits,
    /// The [states](head::states) from which logits are made, for embeddings: a decoder alone has
    /// all that they need. Logits of such a model mean nothing.
    States,
}

/// How weights are stored, how products with them take their inputs, and what they are used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WeightUse {
    /// How they are held in memory.
    pub format: WeightFormat,
    /// The form in which products take their inputs, for encodings with such products; matrices in
    /// other encodings take theirs in f32.
    pub inputs: Inputs,
    /// The result of the model.
    pub output: Output,
}

/// For logits, with inputs in f32.
impl From<WeightFormat> for WeightUse {
    fn from(format: WeightFormat) -> Self {
        Self { format, ..Self::default() }
    }
}

/// The outcome of converting a checkpoint's weights.
#[derive(Clone, Copy, Default, Debug)]
pub struct Conversion {
    /// Tensors that were converted.
    pub tensors: usize,
    /// Matrices that keep their encoding because their rows are not whole blocks.
    pub left: usize,
    /// How far they are from the file's.
    pub deviation: Deviation,
}

/// A model ready for a VM.
pub struct Model {
    /// The annotated model.
    pub family: Family,
    /// Dims, flags and constants of the checkpoint.
    pub instance: Instance,
    /// Weights by buffer name.
    pub bindings: Bindings,
    /// The annotated function over the same weights, with states of its own.
    pub eager: Eager,
    anew: Anew,
    /// How the weights were converted at load time.
    pub conversion: Conversion,
    /// Which matrices take rounded inputs.
    pub rounding: Rounding,
    /// The name in the checkpoint of each weight, by buffer name.
    pub names: BTreeMap<String, String>,
}

/// The reasons why a checkpoint cannot become a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The requested context is longer than the model's, or none.
    #[error(
        "a context of {asked} positions is outside 1..={limit}, what the model was made for; ask for at most {limit}"
    )]
    Context {
        /// Positions asked for.
        asked: usize,
        /// Positions of the model.
        limit: usize,
    },
    /// No matrix supports products with such inputs.
    #[error("weights of {} have no products with inputs in {inputs}; {}", encodings.join(" and "), advice(*left))]
    Inputs {
        /// The inputs asked for.
        inputs: Inputs,
        /// The encodings of the model's matrices.
        encodings: Vec<&'static str>,
        /// Matrices that were not converted because their rows are not whole blocks.
        left: usize,
    },
    /// A tensor is missing, unreadable or of the wrong shape.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A tensor has no place in the model.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Family {
    /// Returns the family whose page computes a checkpoint.
    pub fn of(config: &ModelConfig) -> Self {
        let found = FAMILIES.into_iter().find(|family| family.name == config.family());
        found.expect("every import names a family, which a test checks")
    }
}

impl Model {
    /// Loads all weights. `context` is the number of positions of the KV cache; `progress` is
    /// called with the fraction of bytes done.
    ///
    /// # Errors
    /// If a tensor is missing, unused or of the wrong shape, the configuration is outside the
    /// model's range, or no matrix supports the requested inputs.
    pub fn load(
        config: &ModelConfig,
        tensors: TensorSet,
        context: usize,
        weights: impl Into<WeightUse>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, ModelError> {
        let WeightUse { format, inputs, output } = weights.into();
        let total = tensors.stored_bytes().max(1);
        let source = CheckpointSource::new(config, tensors, context, Some(format), total, progress);
        Self::from(source, inputs, output)
    }

    /// Checks whether a checkpoint would load, like [`Self::load`] but without reading a weight.
    ///
    /// # Errors
    /// As for [`Self::load`], except for weights that violate their encoding.
    pub fn check(config: &ModelConfig, tensors: TensorSet, output: Output) -> Result<Family, ModelError> {
        Ok(Self::unread(config, tensors, output)?.family)
    }

    /// The names of the tensors that a checkpoint's model uses, without reading a weight.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn used(config: &ModelConfig, tensors: TensorSet) -> Result<BTreeSet<String>, ModelError> {
        Ok(Self::unread(config, tensors, Output::Logits)?.names.into_values().collect())
    }

    fn unread(config: &ModelConfig, tensors: TensorSet, output: Output) -> Result<Self, ModelError> {
        let mut unseen = |_| {};
        let source = CheckpointSource::new(config, tensors, config.context_len, None, 1, &mut unseen);
        Self::from(source, Inputs::F32, output)
    }

    fn from(mut source: CheckpointSource<'_>, inputs: Inputs, output: Output) -> Result<Self, ModelError> {
        let (config, context) = (source.config, source.context);
        let family = Family::of(config);
        if context == 0 || context > config.context_len {
            return Err(ModelError::Context { asked: context, limit: config.context_len });
        }
        let mut dims = dims(config, context);
        let graph = family.kernel.graph().ok();
        dims.retain(|name, _| graph.is_none_or(|graph| graph.dims.contains(name)));
        if output == Output::States {
            source.unneeded = graph.map(head::fields).unwrap_or_default();
        }
        let model = Self::rounded(family, "checkpoint", dims, &mut source, inputs).map_err(|mut error| {
            if let ModelError::Inputs { left, .. } = &mut error {
                *left = source.conversion.left;
            }
            error
        })?;
        let (conversion, names) = (source.conversion, std::mem::take(&mut source.names));
        source.finish()?;
        Ok(Self { conversion, names, ..model })
    }

    /// Returns a declared instance over random weights in an encoding, for a context of `context`
    /// positions: the shapes are real, the results meaningless. The context may be longer than the
    /// instance's.
    ///
    /// # Errors
    /// If a shape does not fit in memory, or no matrix supports the requested inputs.
    pub fn random(
        family: Family,
        instance: &Instance,
        context: u32,
        encoding: &'static Encoding,
        inputs: Inputs,
    ) -> Result<Self, ModelError> {
        let mut dims = instance.dims.clone();
        dims.insert("CONTEXT".into(), context);
        let mut source = Random::new(&dims, encoding);
        Self::rounded(family, &instance.name, dims, &mut source, inputs)
    }

    /// Like [`Self::build`], with weights whose products take inputs in this form.
    fn rounded(
        family: Family,
        name: &str,
        dims: BTreeMap<String, u32>,
        source: &mut dyn Source,
        inputs: Inputs,
    ) -> Result<Self, ModelError> {
        let mut source = RoundedSource::new(source, inputs);
        let model = Self::build(family, name, dims, &mut source)?;
        let rounding = source.rounding;
        if inputs != Inputs::F32 && rounding.matrices == 0 {
            let encodings = rounding.encodings.into_iter().collect();
            return Err(ModelError::Inputs { inputs, encodings, left: 0 });
        }
        Ok(Self { rounding, ..model })
    }

    /// An instance of these dims over the weights of a source.
    ///
    /// # Errors
    /// If a shape does not fit, or the source has no such weight.
    pub fn build(
        family: Family,
        name: &str,
        dims: BTreeMap<String, u32>,
        source: &mut dyn Source,
    ) -> Result<Self, ModelError> {
        let Parts { bindings, anew } = (family.load)(&dims, source)?;
        let eager = anew(BTreeMap::new());
        let instance = bindings.complete(&Instance { name: name.to_owned(), dims, ..Instance::default() });
        let (conversion, names, rounding) = (Conversion::default(), BTreeMap::new(), Rounding::default());
        Ok(Self { family, instance, bindings, eager, anew, conversion, rounding, names })
    }

    /// Recreates the annotated function with caches kept as in a program whose schedule has this
    /// `cache`: in an element type of [`CACHES`](amk::ir::schedule::CACHES); `None`: in f32.
    ///
    /// # Errors
    /// [`MegakernelError::Lower`] if the function cannot be lowered.
    pub fn keep_caches(&mut self, cache: Option<DType>) -> Result<(), MegakernelError> {
        let schedule = Schedule { cache, ..Schedule::default() };
        let tensors = self.family.kernel.unrolled(&self.instance, &schedule)?.tensors;
        let states = tensors.into_iter().filter(|tensor| tensor.kind == BufferKind::State);
        // In a layout, paths do not include the name of the parameter.
        let kept = states.filter_map(|state| Some((state.name.split_once('.')?.1.to_owned(), state.dtype)));
        self.eager = (self.anew)(kept.collect());
        Ok(())
    }
}

/// The dims of a configuration, by the names that models declare, although not every model declares
/// all of them.
pub fn dims(config: &ModelConfig, context: usize) -> BTreeMap<String, u32> {
    let dim = |name: &str, value: usize| (name.to_owned(), u32::try_from(value).unwrap_or(u32::MAX));
    let mut dims = BTreeMap::from([
        dim("VOCAB", config.vocab_size),
        dim("HIDDEN", config.hidden_size),
        dim("LAYERS", config.layers),
        dim("HEADS", config.heads),
        dim("KV_HEADS", config.kv_heads),
        dim("HEAD_DIM", config.head_dim),
        dim("ROTARY", config.rope.rotary_dims),
        dim("FFN", config.ffn_size),
        dim("WINDOW", config.window.unwrap_or(context)),
        dim("CONTEXT", context),
    ]);
    dims.extend(config.sizes.iter().map(|(name, &value)| dim(name, value)));
    dims
}

/// The name of a page's parameter for the weights.
const LAYOUT: &str = "w";

fn parts<W: WeightLayout + Send + Sync + 'static, S: WeightLayout + Send + 'static>(
    dims: &BTreeMap<String, u32>,
    source: &mut dyn Source,
    decode: fn(Token, Pos, &W, &mut S) -> Tensor,
) -> Result<Parts, BuildError> {
    let weights: Arc<W> = Arc::new(build(dims, source)?);
    let bindings = Bindings::new().layout(LAYOUT, &*weights);
    let dims = dims.clone();
    let anew = move |kept: BTreeMap<String, DType>| -> Eager {
        // States are made when the function is first called: a VM has its own.
        let (weights, dims, mut states) = (Arc::clone(&weights), dims.clone(), None);
        let zeroed = move || zeroed_in(&dims, &kept).expect("states should have shapes that the weights had");
        Box::new(move |token, pos| decode(token, pos, &weights, states.get_or_insert_with(&zeroed)))
    };
    Ok(Parts { bindings, anew: Box::new(anew) })
}

struct CheckpointSource<'a> {
    config: &'a ModelConfig,
    tensors: TensorSet,
    /// Positions of the KV cache.
    context: usize,
    /// How weights are stored; `None`: they are not read.
    read: Option<WeightFormat>,
    /// Fields that may be absent, as nothing is computed with them.
    unneeded: BTreeSet<String>,
    loaded: HashMap<String, Weight>,
    conversion: Conversion,
    names: BTreeMap<String, String>,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(f64),
}

impl<'a> CheckpointSource<'a> {
    fn new(
        config: &'a ModelConfig,
        tensors: TensorSet,
        context: usize,
        read: Option<WeightFormat>,
        total: u64,
        progress: &'a mut dyn FnMut(f64),
    ) -> Self {
        let (loaded, conversion, names) = (HashMap::new(), Conversion::default(), BTreeMap::new());
        let unneeded = BTreeSet::new();
        Self { config, tensors, context, read, unneeded, loaded, conversion, names, done: 0, total, progress }
    }

    fn load(&mut self, name: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        if let Some(weight) = self.loaded.get(name) {
            return Ok(weight.clone());
        }
        let tensor = self.tensors.claim(name, shape)?;
        self.conversion.left += usize::from(self.read.is_some_and(|format| format.leaves(&tensor)));
        let norm = name.ends_with("norm.weight") && self.config.norms_less_one;
        let weight = match self.read.map(|format| format.converts(&tensor)) {
            None => unread(&tensor)?,
            Some(_) if norm => Weight::f32(shape, tensor.to_f32().into_iter().map(|w| 1.0 + w).collect())?,
            Some(Some(encoding)) => self.converted(&tensor, encoding)?,
            Some(None) => native(&tensor)?,
        };
        self.done += tensor.stored_len() as u64;
        (self.progress)(self.done as f64 / self.total as f64);
        self.loaded.insert(name.to_owned(), weight.clone());
        Ok(weight)
    }

    fn frequencies(&self, rope: &Rope) -> RopeFrequencies {
        rope.frequencies(self.context)
    }

    /// The weight in another encoding.
    fn converted(&mut self, tensor: &StoredTensor, encoding: &'static Encoding) -> Result<Weight, SourceError> {
        let encode = encoding.encode.ok_or_else(|| format!("nothing encodes weights as {encoding}"))?;
        let (bytes, deviation) = tensor.to_encoding(encoding, encode).map_err(|error| bad_block(tensor, &error))?;
        self.conversion.tensors += 1;
        self.conversion.deviation.merge(deviation);
        Ok(Weight::from_vec(encoding, tensor.shape(), bytes)?)
    }

    fn finish(self) -> Result<(), TensorError> {
        self.tensors.finish()
    }
}

impl Source for CheckpointSource<'_> {
    fn weight(&mut self, request: &WeightRequest<'_>) -> Result<Weight, SourceError> {
        let buffer = format!("{LAYOUT}.{}", request.path);
        let left_out = self.unneeded.contains(&buffer) && !self.tensors.contains(request.name);
        if self.config.lacks(request.name) || (left_out && request.fallback.is_none()) {
            // No call reads it.
            return Ok(Weight::f32(request.shape, vec![0.0; request.shape.iter().product()])?);
        }
        let name = match request.fallback {
            Some(original) if self.config.tied_embeddings || left_out => {
                self.tensors.claim_duplicate(request.name, original)?;
                original
            }
            _ => request.name,
        };
        self.names.insert(buffer, name.to_owned());
        self.load(name, request.shape)
    }

    fn table(&mut self, path: &str, shape: &[usize]) -> Result<Weight, SourceError> {
        match path {
            "rotary.freqs" => Ok(Weight::f32(shape, self.frequencies(&self.config.rope).inv_freq)?),
            "local.freqs" => Ok(Weight::f32(shape, self.frequencies(self.config.local()).inv_freq)?),
            _ => Err(format!("no table is computed for `{path}`").into()),
        }
    }

    fn param(&mut self, path: &str) -> Result<f32, SourceError> {
        if let Some(&number) = self.config.numbers.get(path) {
            return Ok(number);
        }
        match path {
            "eps" => Ok(self.config.norm_eps),
            "score_scale" => Ok((self.config.head_dim as f32).powf(-0.5)),
            "embedding_scale" => Ok((self.config.hidden_size as f32).sqrt()),
            "rotary.scale" => Ok(self.frequencies(&self.config.rope).attention_factor),
            "local.scale" => Ok(self.frequencies(self.config.local()).attention_factor),
            _ => Err(format!("the configuration has no number for `{path}`").into()),
        }
    }

    fn flag(&mut self, path: &str) -> Result<bool, SourceError> {
        self.config.flag(path).ok_or_else(|| format!("the configuration has no flag for `{path}`").into())
    }
}

/// A weight of the tensor's shape and encoding with any elements: its memory is not touched.
fn unread(tensor: &StoredTensor) -> Result<Weight, SourceError> {
    let encoding = tensor.encoding();
    let zeros = || Weight::from_vec(encoding, tensor.shape(), vec![0; encoding.bytes_of(tensor.elements())]);
    // Floats may not be aligned.
    Ok(tensor.mapped().map_or_else(&zeros, |extent| mapped(tensor, extent).or_else(|_| zeros()))?)
}

/// Returns a weight backed by these bytes of a file.
fn mapped(tensor: &StoredTensor, extent: &Extent) -> Result<Weight, WeightError> {
    let file = Arc::clone(&extent.file);
    Weight::from_bytes(tensor.encoding(), tensor.shape(), file, extent.range.start)
}

/// Returns the weight as stored: the file's own bytes if they are its rows in the model's order.
fn native(tensor: &StoredTensor) -> Result<Weight, SourceError> {
    let (encoding, shape) = (tensor.encoding(), tensor.shape());
    let check = |bytes: &[u8]| check_blocks(encoding, bytes).map_err(|error| bad_block(tensor, &error));
    let copied = || -> Result<Weight, SourceError> {
        let bytes = tensor.to_stored();
        check(&bytes)?;
        Ok(Weight::from_vec(encoding, shape, bytes)?)
    };
    let weight = match tensor.mapped() {
        Some(extent) => {
            check(extent.bytes())?;
            mapped(tensor, extent).or_else(|_| copied())?
        }
        None => copied()?,
    };
    match &tensor.column_order {
        Some(order) => Ok(weight.with_order(Arc::clone(order))?),
        None => Ok(weight),
    }
}

/// Advice on matrices that cannot take rounded inputs.
fn advice(left: usize) -> String {
    match left {
        0 => "convert them, as to Q8_0".to_owned(),
        _ => format!("{left} matrices were not converted, as their rows are not whole blocks"),
    }
}

fn bad_block(tensor: &StoredTensor, error: &BlockError) -> String {
    format!("tensor `{}`: {error}", tensor.name_in_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::{MappedFile, RowOrder, RowSource, StoredType};
    use half::f16;
    use std::path::Path;

    /// The tensor `x` with these bytes in a file of the folder.
    fn stored(folder: &Path, encoding: &'static Encoding, shape: [usize; 2], bytes: &[u8]) -> StoredTensor {
        let path = folder.join("x");
        std::fs::write(&path, bytes).unwrap();
        let file = Arc::new(MappedFile::open(&path).unwrap());
        StoredTensor {
            name: "x".to_owned(),
            written: None,
            stored_type: StoredType::Encoded(encoding),
            shape: shape.to_vec(),
            rows: RowSource::File(Extent { file, range: 0..bytes.len() }),
            row_order: RowOrder::Natural,
            column_order: None,
        }
    }

    #[test]
    fn a_block_that_is_none_is_named_with_its_tensor() {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = vec![0; 3 * 34];
        bytes[68..70].copy_from_slice(&f16::NAN.to_le_bytes());
        amk_kernels::link();
        let tensor = stored(folder.path(), Encoding::find("Q8_0").unwrap(), [3, 32], &bytes);
        let expected = "tensor `x`: block 2 of Q8_0 has a scale that is not finite";
        assert_eq!(native(&tensor).unwrap_err().to_string(), expected);
        let encode = amk::encoding::F32.encode.unwrap();
        let error = tensor.to_encoding(&amk::encoding::F32, encode).unwrap_err();
        assert_eq!(bad_block(&tensor, &error), expected);
        let start = tensor.part("x".to_owned(), 0..2);
        assert_eq!(native(&start).unwrap().to_f32(), [0.0; 64]);
    }

    /// Codes hide it: a block with a NaN has others that look like weights.
    #[test]
    fn an_element_that_is_not_finite_becomes_no_code() {
        let folder = tempfile::tempdir().unwrap();
        let mut elements = [0.5f32; 64];
        elements[40] = f32::NAN;
        let bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_le_bytes()).collect();
        amk_kernels::link();
        let tensor = stored(folder.path(), &amk::encoding::F32, [2, 32], &bytes);
        let encoding = Encoding::find("Q8_0").unwrap();
        let error = tensor.to_encoding(encoding, encoding.encode.unwrap()).unwrap_err();
        assert_eq!(bad_block(&tensor, &error), "tensor `x`: block 40 of f32 has an element that is not finite");
        assert!(tensor.part("x".to_owned(), 0..1).to_encoding(encoding, encoding.encode.unwrap()).is_ok());
    }
}
