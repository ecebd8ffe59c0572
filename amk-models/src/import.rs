//! The names and values by which checkpoints describe what a family's page computes: names of
//! tensors and fields, as data beside the page.

/// One `model_type` of transformers that a page computes, and the equivalent architecture of GGUF
/// files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Import {
    /// The family: the name of the page's module.
    pub family: &'static str,
    /// The `model_type` in `config.json`.
    pub model_type: &'static str,
    /// The class that `architectures` must name.
    pub class: &'static str,
    /// The place of the text model in a larger model's config and tensors.
    pub inside: Option<Inside>,
    /// GGUF files of this kind, if llama.cpp has the architecture and the page computes it.
    pub gguf: Option<Gguf>,
    /// Other names of fields, with the usual ones. If a config has both, these take precedence.
    pub fields: &'static [(&'static str, &'static str)],
    /// Fields of published configs that the class does not read; a usual name here is one that it
    /// reads only under its other name.
    pub unread: &'static [&'static str],
    /// Sizes that configs may omit, with their values in that case.
    pub defaults: &'static [(&'static str, Absent)],
    /// `head_dim` if the config has none; otherwise `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// The field of the norms' epsilon, and its value if the config has none.
    pub eps: (&'static str, f64),
    /// How the width of the feed-forward network follows from the field, if the field is not the
    /// width itself.
    pub rounding: Option<Rounding>,
    /// The field of the activation.
    pub activation_field: &'static str,
    /// The activation that the page computes.
    pub activation: Activation,
    /// Names that mean another activation than elsewhere.
    pub activation_names: &'static [(&'static str, Activation)],
    /// Which elements of a head are rotated.
    pub rotation: Rotation,
    /// The base of the frequencies if the config has none.
    pub theta: f64,
    /// The rotary embedding of sliding-window layers, if it differs from the others'.
    pub local: Option<Local>,
    /// The meaning of `sliding_window`.
    pub window: Window,
    /// The family that computes windows, if `family` does not.
    pub windowed: Option<&'static str>,
    /// The property that distinguishes two kinds of layers.
    pub layers: Option<LayerFlag>,
    /// Whether a folder's norms are stored minus 1.
    pub norms_less_one: bool,
    /// Whether the embeddings are also the output head if the config does not say.
    pub tied: bool,
    /// Dims that only this page has.
    pub sizes: &'static [Size],
    /// Numbers of the page.
    pub numbers: &'static [Number],
    /// Flags of the page.
    pub flags: &'static [Flag],
    /// Fields that must have a certain value, because the page computes nothing else.
    pub fixed: &'static [Fixed],
    /// Other names of a folder's tensors (prefixes of names without `.weight` or `.bias`), with the
    /// page's names: first names from the start, then names below `model.layers.{l}.`.
    pub names: &'static [(&'static str, &'static str)],
    /// Tensors that are several of the page's, stacked.
    pub fused: &'static [Fused],
    /// Tensors of a folder's layers that no implementation reads, by their names below the layer.
    pub spare: &'static [&'static str],
}

/// The value of a size that a config omits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The class's own.
    Number(u32),
    /// The value of another field.
    As(&'static str),
}

/// A text model inside a larger one, of which the rest is not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The field of `config.json` with the text model's fields.
    pub field: &'static str,
    /// The `model_type` that stands there.
    pub model_type: &'static str,
    /// The prefixes of its tensors' names, and their prefixes in a standalone model.
    pub names: &'static [(&'static str, &'static str)],
    /// The prefixes of the names of all other tensors.
    pub others: &'static [&'static str],
}

/// How the width of a feed-forward network follows from the field: two thirds of it, times a
/// factor, rounded up to a multiple. Source: `FeedForward` of Meta's Llama; `Lfm2MLP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounding {
    /// The field that switches it off.
    pub switch: &'static str,
    /// The field of the factor.
    pub factor: &'static str,
    /// The field that gives the multiple, and its default.
    pub multiple: (&'static str, usize),
}

/// A kind of GGUF file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gguf {
    /// `general.architecture`, and the prefix of its keys.
    pub architecture: &'static str,
    /// The key of the norms' epsilon.
    pub eps: &'static str,
    /// The pairs of elements of a head that the file rotates.
    pub pairs: Pairs,
    /// Tensors with other names than usual: `blk.{l}.<left>` is `model.layers.{l}.<right>`, and
    /// `<left>` is `<right>` outside of the layers.
    pub names: &'static [(&'static str, &'static str)],
    /// The number of layers of the only model whose scores are scaled by `hidden_size / heads`
    /// instead of by the head size, which files do not record.
    pub scores_by_width: Option<usize>,
    /// The number of layers of the only model that has a window where files do not record one, and
    /// that window.
    pub unlisted_window: Option<(usize, usize)>,
    /// Keys that a file must have, because llama.cpp's defaults differ from a config's,
    /// or because other files of the architecture are of another kind.
    pub stated: &'static [&'static str],
    /// The special tokens behind which white space is text, if it is part of all others of a
    /// SentencePiece vocabulary, which files do not record.
    pub spaced: Option<&'static [&'static str]>,
    /// Keys that converters write for other models of the architecture or of its class, and that
    /// this one does not use.
    pub unread: &'static [&'static str],
    /// The tensors of factors of the rotary frequencies that llama.cpp reads; to it, others are
    /// tensors too many.
    pub factors: &'static [&'static str],
    /// Keys without effect in a file whose layers have a tensor, given by its name below the layer.
    pub unread_with: &'static [(&'static str, &'static str)],
    /// Keys that must be true or absent, and the feature that is not modelled.
    pub on: &'static [(&'static str, &'static str)],
}

/// The function in the feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by the error function (`gelu`).
    Gelu,
    /// GELU by the tanh approximation (`gelu_pytorch_tanh`, `gelu_new`).
    GeluTanh,
    /// `max(x, 0)^2` (`relu2`).
    ReluSquared,
}

impl Activation {
    /// Its name in a config.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_pytorch_tanh",
            Self::ReluSquared => "relu2",
        }
    }
}

/// The pairs of elements of a head that a checkpoint rotates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    /// The rotated part of a head if the config has no `partial_rotary_factor`; `None`: whole heads
    /// are rotated, and the field is refused.
    pub part: Option<f64>,
    /// Which elements are rotated with each other.
    pub pairs: Pairs,
}

/// The pairs of elements of a head that are rotated. The instruction `rope` pairs the two halves;
/// rows of projections that are stored differently are reordered when they are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Element `j` with element `j + rotary_dims / 2`.
    Halves,
    /// Element `2 j` with element `2 j + 1`.
    Neighbours,
}

/// The meaning of `sliding_window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// No such field.
    None,
    /// In use unless null; the number is the window of a config without the field.
    Stated(Option<usize>),
    /// Only in use together with `use_sliding_window`, which is refused.
    Switched,
    /// In use in the layers that [`LayerFlag`] names, unless null.
    OfLayers,
    /// Likewise; only these layers are rotated unless it is null, however long it is.
    OfRotatedLayers,
}

/// The rotary embedding of sliding-window layers, which is never scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Local {
    /// The field of its base.
    pub field: Option<&'static str>,
    /// Its base if the config has none.
    pub theta: f64,
    /// Its base if a GGUF file has none, as in llama.cpp; `None`: the other layers' base.
    pub gguf_theta: Option<f64>,
}

/// A flag of each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerFlag {
    /// The name of the `#[flag]` in the layer.
    pub name: &'static str,
    /// The field with a list of the layers' kinds.
    pub field: &'static str,
    /// The entry of a layer with the flag, and of one without.
    pub kinds: [&'static str; 2],
    /// The key of a GGUF file with a truth value for each layer, or with a period.
    pub key: Option<&'static str>,
    /// The layers that have it if there is no such list.
    pub unlisted: Unlisted,
    /// The prefixes of the names, below the layer, of tensors that only layers with the flag have,
    /// and of those that only others have. A layer of a GGUF file has the flag if it has one of the
    /// first.
    pub tensors: [&'static [&'static str]; 2],
}

/// The layers that have a flag if a config does not list their kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// All except the last of each `period` layers.
    AllButOneIn {
        /// The field with that number, if the class reads one.
        field: Option<&'static str>,
        /// The number if the config does not give it.
        period: usize,
    },
    /// Those whose numbers are in a list, or all if there is none.
    Numbered {
        /// The field with the list.
        field: &'static str,
    },
}

impl Unlisted {
    /// The field that determines them.
    pub(crate) const fn field(self) -> Option<&'static str> {
        match self {
            Self::AllButOneIn { field, .. } => field,
            Self::Numbered { field } => Some(field),
        }
    }
}

impl LayerFlag {
    /// Sliding-window layers, as listed in `layer_types`; otherwise all except the last of each
    /// `period`, or of as many as `field` gives.
    pub const fn sliding(period: usize, field: Option<&'static str>) -> Self {
        Self {
            name: "sliding",
            field: "layer_types",
            kinds: ["sliding_attention", "full_attention"],
            key: Some("attention.sliding_window_pattern"),
            unlisted: Unlisted::AllButOneIn { field, period },
            tensors: [&[], &[]],
        }
    }
}

/// A dim of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The name of the dim.
    pub dim: &'static str,
    /// The field of `config.json`.
    pub field: &'static str,
    /// The key of GGUF, below the architecture's prefix.
    pub key: &'static str,
    /// The field's default.
    pub default: usize,
}

/// A number of the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The path of the `#[param]`.
    pub path: &'static str,
    /// The field of `config.json`.
    pub field: &'static str,
    /// The key of GGUF, below the architecture's prefix; `None`: files do not have it.
    pub key: Option<&'static str>,
    /// The form in which the value is passed on.
    pub form: Form,
    /// The field's default.
    pub default: f64,
}

impl Number {
    /// A number of the config itself, under a GGUF key.
    pub const fn of(path: &'static str, field: &'static str, key: &'static str, default: f64) -> Self {
        Self { path, field, key: Some(key), form: Form::Plain, default }
    }
}

/// The conversion of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The number itself.
    Plain,
    /// `1 / x`.
    Reciprocal,
    /// `1 / sqrt(x)`.
    ReciprocalRoot,
}

impl Form {
    /// The number that the page gets.
    pub(crate) fn of(self, number: f64) -> f32 {
        match self {
            Self::Plain => number as f32,
            Self::Reciprocal => (1.0 / number) as f32,
            Self::ReciprocalRoot => (1.0 / number.sqrt()) as f32,
        }
    }
}

/// A flag of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The path of the `#[flag]`.
    pub path: &'static str,
    /// The field of `config.json`.
    pub field: &'static str,
    /// Its default.
    pub default: bool,
    /// The key of GGUF, below the architecture's prefix.
    pub key: Option<&'static str>,
    /// The tensors that a layer has only with the flag. In a GGUF file without a key their presence
    /// determines the flag.
    pub tensors: &'static [&'static str],
}

/// A field of `config.json` with one value that is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The field.
    pub field: &'static str,
    /// The value.
    pub value: Known,
    /// Whether the default for a config without the field is a different value.
    pub stated: bool,
    /// The reason why other values are refused.
    pub reason: &'static str,
}

/// A value of a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A truth value.
    Truth(bool),
    /// A text.
    Text(&'static str),
    /// A list of nothing but these texts.
    AllOf(&'static [&'static str]),
}

/// A tensor that is several of the page's, stacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    /// Its name below `model.layers.{l}.`, without `.weight` or `.bias`.
    pub name: &'static str,
    /// The names of its parts and their rows, in order.
    pub parts: &'static [(&'static str, Rows)],
    /// Whether a folder has the rows of the first head of each part, then of the second, and so on.
    pub by_head: bool,
}

/// Numbers of rows of a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Those of all query heads.
    Queries,
    /// Those of all key heads.
    Keys,
    /// The width of the residual stream.
    Hidden,
    /// The width of the feed-forward network.
    FeedForward,
}

/// One projection of queries, keys and values.
pub const FUSED_QKV: Fused = Fused {
    name: "self_attn.qkv_proj",
    parts: &[("self_attn.q_proj", Rows::Queries), ("self_attn.k_proj", Rows::Keys), ("self_attn.v_proj", Rows::Keys)],
    by_head: false,
};

/// One projection to the gate and the value of a gated MLP.
pub const FUSED_GATE_UP: Fused = Fused {
    name: "mlp.gate_up_proj",
    parts: &[("mlp.gate_proj", Rows::FeedForward), ("mlp.up_proj", Rows::FeedForward)],
    by_head: false,
};

/// The biases of the projections of queries, keys and values.
pub const QKV_BIASES: &[&str] = &["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"];

impl Import {
    /// A Llama, from which other families differ.
    pub const LLAMA: Self = Self {
        family: "llama",
        model_type: "llama",
        class: "LlamaForCausalLM",
        inside: None,
        gguf: Some(Gguf {
            pairs: Pairs::Neighbours,
            factors: &[Gguf::FACTORS, Gguf::FACTORS_SHORT, Gguf::FACTORS_LONG],
            ..Gguf::of("llama")
        }),
        fields: &[],
        unread: &[],
        defaults: &[],
        head_dim: None,
        eps: ("rms_norm_eps", 1e-6),
        rounding: None,
        activation_field: "hidden_act",
        activation: Activation::Silu,
        activation_names: &[],
        rotation: Rotation { part: None, pairs: Pairs::Halves },
        theta: 10_000.0,
        local: None,
        window: Window::None,
        windowed: None,
        layers: None,
        norms_less_one: false,
        tied: false,
        sizes: &[],
        numbers: &[],
        flags: &[],
        fixed: &[],
        names: &[],
        fused: &[],
        spare: &[],
    };
}

impl Absent {
    /// As many key and value heads as query heads.
    pub const KV_HEADS: (&'static str, Self) = ("num_key_value_heads", Self::As("num_attention_heads"));
}

impl Fixed {
    /// No biases, as stated by `use_bias`.
    pub const NO_BIASES: Self = Self {
        field: "use_bias",
        value: Known::Truth(false),
        stated: false,
        reason: "biases on all projections are not modelled here",
    };

    /// Biases on the projections of queries, keys and values.
    pub const BIASES: Self = Self {
        field: "attention_bias",
        value: Known::Truth(true),
        stated: false,
        reason: "only checkpoints with biases on queries, keys and values are modelled",
    };
}

impl Gguf {
    /// One factor for each rotated pair.
    pub const FACTORS: &'static str = "rope_freqs.weight";
    /// Likewise, for short contexts.
    pub const FACTORS_SHORT: &'static str = "rope_factors_short.weight";
    /// Likewise, for long contexts.
    pub const FACTORS_LONG: &'static str = "rope_factors_long.weight";

    /// The names of the norms of the outputs of attention and the MLP.
    pub const POST_NORMS: &'static [(&'static str, &'static str)] =
        &[("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")];

    /// [`Self::POST_NORMS`], and a norm before the MLP.
    pub const PRE_AND_POST_NORMS: &'static [(&'static str, &'static str)] = &[
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
    ];

    /// Files of an architecture with the usual names.
    pub const fn of(architecture: &'static str) -> Self {
        Self {
            architecture,
            eps: "attention.layer_norm_rms_epsilon",
            pairs: Pairs::Halves,
            names: &[],
            scores_by_width: None,
            unlisted_window: None,
            stated: &[],
            spaced: None,
            unread: &[],
            factors: &[],
            unread_with: &[],
            on: &[],
        }
    }
}
