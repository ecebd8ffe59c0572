"""Makes the tiny random checkpoints in `families/`, one or more for each family, and the logits of transformers for them.

Each folder is a Hugging Face checkpoint without a tokenizer, the same weights as a GGUF file where llama.cpp has the
architecture, and `golden.json`: the logits in fp32 at some positions of a sequence of random tokens. See README.md.
"""

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from golden import FOLDER, deterministic, exact_list, versions, write_json
from make_tiny import SEED, randomise

VOCAB = 128
WINDOW = 48


@dataclass
class Gguf:
    """How llama.cpp's converter writes the checkpoint: facts that are not in the names that gguf-py knows."""

    architecture: gguf.MODEL_ARCH
    keys: dict[str, float | int | bool | str | list[bool]] = field(default_factory=dict)
    permuted: bool = False
    """Rows of queries and keys are interleaved, for a rotation of neighbouring elements."""
    layer_norm: bool = False
    rope_factors: bool = False
    norms_plus_one: bool = False
    """Norms are stored as what they multiply with; the folder has that less 1."""


@dataclass
class Family:
    """One checkpoint: the fields of config.json as published checkpoints spell them."""

    config: dict[str, Any]
    gguf: Gguf | None = None
    positions: tuple[int, ...] = (0, 1, 63, 64, 200)


def config(model_type: str, name: str, **fields: Any) -> dict[str, Any]:
    """A config.json: two layers, 4 query heads of 16 and 2 key heads; `fields` override, and None leaves out."""
    plain = {
        "architectures": [f"{name}ForCausalLM"],
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCAB,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    return changed(plain, **fields)


def changed(config: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The config with other fields; None leaves out."""
    return {key: value for key, value in (config | fields).items() if value is not None}


ARCH = gguf.MODEL_ARCH
LONG = [1.0 + 0.5 * pair for pair in range(6)]
SHORT = [1.0 + 0.125 * pair for pair in range(6)]
PHI4 = config(
    "phi3",
    "Phi3",
    tie_word_embeddings=True,
    partial_rotary_factor=0.75,
    max_position_embeddings=1024,
    original_max_position_embeddings=256,
    sliding_window=262144,
    rope_scaling={"type": "longrope", "long_factor": LONG, "short_factor": SHORT},
)
GEMMA = {
    "attention_bias": False,
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 16,
    "rms_norm_eps": 1e-6,
    "sliding_window": WINDOW,
    "tie_word_embeddings": True,
}

STARCODER = config(
    "starcoder2",
    "Starcoder2",
    rms_norm_eps=None,
    norm_epsilon=1e-5,
    hidden_act="gelu_pytorch_tanh",
    use_bias=True,
    tie_word_embeddings=True,
    embedding_dropout=0.1,
    residual_dropout=0.1,
    mlp_type="default",
    norm_type="layer_norm",
)

EXAONE4 = config(
    "exaone4",
    "Exaone4",
    head_dim=16,
    num_hidden_layers=5,
    rope_theta=1000000,
    rope_scaling={
        "factor": 16.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    },
)
KINDS = [(layer + 1) % 4 != 0 for layer in range(5)]

GPT_NEOX = config(
    "gpt_neox",
    "GPTNeoX",
    hidden_act="gelu",
    num_key_value_heads=None,
    rms_norm_eps=None,
    layer_norm_eps=1e-5,
    rope_theta=None,
    rotary_emb_base=10000,
    pad_token_id=None,
)

LFM2 = config(
    "lfm2",
    "Lfm2",
    hidden_size=32,
    rms_norm_eps=None,
    rope_theta=1000000.0,
    num_hidden_layers=4,
    hidden_act=None,
    intermediate_size=None,
    tie_word_embeddings=None,
    norm_eps=1e-5,
    block_auto_adjust_ff_dim=True,
    block_dim=32,
    block_ff_dim=72,
    block_ffn_dim_multiplier=1.0,
    block_multiple_of=16,
    block_norm_eps=1e-5,
    block_use_swiglu=True,
    conv_L_cache=3,
    conv_bias=False,
    conv_dim=32,
    conv_dim_out=32,
    full_attn_idxs=[1, 3],
    num_heads=4,
    theta=1000000.0,
    use_pos_enc=True,
)

FAMILIES: dict[str, Family] = {
    "falcon3": Family(config("llama", "Llama", head_dim=32, rope_theta=1000042.0, mlp_bias=False, attention_bias=False)),
    "ernie4_5": Family(
        config("ernie4_5", "Ernie4_5", hidden_size=32, head_dim=24, use_bias=False, tie_word_embeddings=True, rope_theta=500000.0),
        Gguf(ARCH.ERNIE4_5),
    ),
    "helium": Family(config("helium", "Helium", hidden_size=32, head_dim=8, attention_bias=False, mlp_bias=False, rms_norm_eps=1e-8)),
    "seed_oss": Family(
        config("seed_oss", "SeedOss", hidden_size=32, attention_bias=True, attention_out_bias=False, mlp_bias=False, head_dim=24)
        | {"attention_dropout": 0.1, "residual_dropout": 0.1, "pretraining_tp": 1, "rope_theta": 10000000.0},
        Gguf(ARCH.SEED_OSS),
    ),
    "phi3": Family(config("phi3", "Phi3", sliding_window=None, original_max_position_embeddings=256), Gguf(ARCH.PHI3)),
    "phi4_mini": Family(PHI4, Gguf(ARCH.PHI3, rope_factors=True)),
    # transformers takes the long factors for the whole of a longer text.
    "phi4_mini_long": Family(PHI4, Gguf(ARCH.PHI3, rope_factors=True), (0, 1, 63, 64, 200, 300)),
    "glm": Family(config("glm", "Glm", attention_bias=True, head_dim=16, partial_rotary_factor=0.5)),
    "olmo2": Family(config("olmo2", "Olmo2", attention_bias=False), Gguf(ARCH.OLMO2)),
    "arcee": Family(
        config("arcee", "Arcee", hidden_size=32, head_dim=8, hidden_act="relu2", attention_bias=False, mlp_bias=False),
        Gguf(ARCH.ARCEE, permuted=True),
    ),
    "nemotron": Family(
        config("nemotron", "Nemotron", hidden_size=32, head_dim=16, hidden_act="relu2", rms_norm_eps=None, norm_eps=1e-5)
        | {"attention_bias": False, "mlp_bias": False, "partial_rotary_factor": 0.5},
        Gguf(ARCH.NEMOTRON, layer_norm=True, norms_plus_one=True),
    ),
    "granite": Family(
        config(
            "granite",
            "Granite",
            attention_bias=False,
            mlp_bias=False,
            tie_word_embeddings=True,
            embedding_multiplier=6.0,
            attention_multiplier=0.125,
            residual_multiplier=0.5,
            logits_scaling=4.0,
        ),
        Gguf(
            ARCH.GRANITE,
            {"embedding_scale": 6.0, "attention.scale": 0.125, "residual_scale": 0.5, "logit_scale": 4.0},
            permuted=True,
        ),
    ),
    "granite4": Family(
        config(
            "granitemoehybrid",
            "GraniteMoeHybrid",
            hidden_size=32,
            attention_bias=False,
            attention_multiplier=0.125,
            embedding_multiplier=6,
            residual_multiplier=0.5,
            logits_scaling=4,
            init_method="mup",
            intermediate_size=48,
            shared_intermediate_size=40,
            layer_types=["attention", "attention"],
            mamba_chunk_size=256,
            mamba_conv_bias=True,
            mamba_d_conv=4,
            mamba_d_head=16,
            mamba_d_state=16,
            mamba_expand=2,
            mamba_n_groups=1,
            mamba_n_heads=4,
            mamba_proj_bias=False,
            normalization_function="rmsnorm",
            num_experts_per_tok=0,
            num_local_experts=0,
            output_router_logits=False,
            position_embedding_type="rope",
            router_aux_loss_coef=0.01,
            tie_word_embeddings=True,
        )
    ),
    "stablelm": Family(
        config(
            "stablelm",
            "StableLm",
            rms_norm_eps=None,
            layer_norm_eps=1e-5,
            partial_rotary_factor=0.25,
            use_qkv_bias=True,
            qk_layernorm=False,
            use_parallel_residual=False,
        ),
        Gguf(ARCH.STABLELM, {"use_parallel_residual": False}, layer_norm=True),
    ),
    "stablelm_without_biases": Family(
        config(
            "stablelm",
            "StableLm",
            rms_norm_eps=None,
            layer_norm_eps=1e-5,
            partial_rotary_factor=0.5,
            use_qkv_bias=False,
        ),
        Gguf(ARCH.STABLELM, {"use_parallel_residual": False}, layer_norm=True),
    ),
    "starcoder2": Family(STARCODER | {"sliding_window": 4096}, Gguf(ARCH.STARCODER2, layer_norm=True)),
    # llama.cpp does not know its window.
    "starcoder2_window": Family(STARCODER | {"sliding_window": WINDOW}),
    "glm4": Family(
        config("glm4", "Glm4", attention_bias=True, head_dim=16, partial_rotary_factor=0.5),
        Gguf(ARCH.GLM4),
    ),
    "mistral": Family(config("mistral", "Mistral", sliding_window=WINDOW)),
    "phi3_window": Family(
        config("phi3", "Phi3", sliding_window=WINDOW, original_max_position_embeddings=256),
        Gguf(ARCH.PHI3, {"attention.sliding_window": WINDOW}),
    ),
    "gemma": Family(
        config("gemma", "Gemma", hidden_size=32, hidden_act="gelu", head_dim=24, attention_bias=False, tie_word_embeddings=None),
        Gguf(ARCH.GEMMA, norms_plus_one=True),
    ),
    "gemma2": Family(
        config(
            "gemma2",
            "Gemma2",
            hidden_act="gelu_pytorch_tanh",
            attn_logit_softcapping=5.0,
            final_logit_softcapping=3.0,
            num_hidden_layers=3,
        )
        | GEMMA,
        Gguf(
            ARCH.GEMMA2,
            {"attention.sliding_window": WINDOW, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
            norms_plus_one=True,
        ),
    ),
    "gemma3": Family(
        config("gemma3_text", "Gemma3", hidden_act=None, rope_theta=1000000.0, rope_local_base_freq=10000.0)
        | {"num_hidden_layers": 7, "sliding_window_pattern": 6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "cache_implementation": "hybrid"}
        | GEMMA,
        Gguf(
            ARCH.GEMMA3,
            {"attention.sliding_window": WINDOW, "rope.scaling.factor": 8.0},
            norms_plus_one=True,
        ),
    ),
    "gemma3_rope_parameters": Family(
        config("gemma3_text", "Gemma3", hidden_act=None, rope_theta=None)
        | {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "num_hidden_layers": 3}
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2000.0},
            }
        }
        | GEMMA
        | {"query_pre_attn_scalar": 24},
    ),
    "gemma3_with_images": Family(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "boi_token_index": 255999,
            "eoi_token_index": 256000,
            "eos_token_id": [1, 106],
            "image_token_index": 262144,
            "initializer_range": 0.02,
            "mm_tokens_per_image": 4,
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 32,
                "intermediate_size": 24,
                "model_type": "gemma3_text",
                "num_hidden_layers": 6,
                "head_dim": 8,
                "vocab_size": VOCAB,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": WINDOW,
            },
            "torch_dtype": "bfloat16",
            "vision_config": {
                "hidden_size": 8,
                "image_size": 28,
                "intermediate_size": 8,
                "model_type": "siglip_vision_model",
                "num_attention_heads": 1,
                "num_hidden_layers": 1,
                "patch_size": 14,
                "vision_use_head": False,
            },
        }
    ),
    "lfm2": Family(LFM2, Gguf(ARCH.LFM2, {"shortconv.l_cache": 3})),
    "lfm2_listed": Family(
        changed(
            LFM2,
            full_attn_idxs=None,
            layer_types=["full_attention", "conv", "conv", "full_attention"],
            block_auto_adjust_ff_dim=False,
            block_ff_dim=None,
            intermediate_size=48,
            conv_L_cache=5,
            tie_embedding=False,
        )
    ),
    "smollm3": Family(
        config(
            "smollm3",
            "SmolLM3",
            attention_bias=False,
            mlp_bias=False,
            no_rope_layers=[1, 1, 1, 0, 1],
            no_rope_layer_interval=4,
            num_hidden_layers=5,
            layer_types=["full_attention"] * 5,
            max_window_layers=28,
            use_sliding_window=False,
            tie_word_embeddings=True,
        ),
        Gguf(ARCH.SMOLLM3, permuted=True),
    ),
    "olmo3": Family(
        config(
            "olmo3",
            "Olmo3",
            attention_bias=False,
            num_hidden_layers=4,
            sliding_window=WINDOW,
            layer_types=["sliding_attention"] * 3 + ["full_attention"],
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4.0,
                "attention_factor": 1.125,
                "beta_fast": 32,
                "beta_slow": 1,
                "original_max_position_embeddings": 64,
            },
        ),
        Gguf(
            ARCH.OLMO2,
            {
                "attention.sliding_window": WINDOW,
                "attention.sliding_window_pattern": [True, True, True, False],
                "rope.freq_base_swa": 500000.0,
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 64,
                "rope.scaling.yarn_attn_factor": 1.125,
                "rope.scaling.yarn_beta_fast": 32.0,
                "rope.scaling.yarn_beta_slow": 1.0,
            },
        ),
    ),
    "cohere": Family(
        config(
            "cohere",
            "Cohere",
            rms_norm_eps=None,
            layer_norm_eps=1e-5,
            logit_scale=0.25,
            attention_bias=False,
            use_qk_norm=False,
            model_max_length=256,
            rope_theta=None,
            tie_word_embeddings=None,
        ),
        Gguf(ARCH.COMMAND_R, {"logit_scale": 0.25, "rope.scaling.type": "none"}, layer_norm=True),
    ),
    "phi": Family(
        config(
            "phi",
            "Phi",
            hidden_act="gelu_new",
            rms_norm_eps=None,
            layer_norm_eps=1e-5,
            partial_rotary_factor=0.25,
            qk_layernorm=False,
            embd_pdrop=0.0,
            resid_pdrop=0.1,
        ),
        Gguf(ARCH.PHI2, layer_norm=True),
    ),
    "exaone4": Family(
        changed(EXAONE4, sliding_window=WINDOW, sliding_window_pattern="LLLG")
        | {"layer_types": ["sliding_attention" if slides else "full_attention" for slides in KINDS]},
        Gguf(
            ARCH.EXAONE4,
            {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": KINDS},
        ),
    ),
    # Only layers with a window are rotated, even if it holds the context.
    "exaone4_long_window": Family(
        changed(EXAONE4, hidden_size=32, num_hidden_layers=2, sliding_window=256)
        | {"layer_types": ["full_attention", "sliding_attention"]},
        Gguf(
            ARCH.EXAONE4,
            {"attention.sliding_window": 256, "attention.sliding_window_pattern": [False, True]},
        ),
    ),
    "exaone4_without_window": Family(
        changed(EXAONE4, num_hidden_layers=2, tie_word_embeddings=True)
        | {"sliding_window": None, "sliding_window_pattern": None, "layer_types": ["full_attention"] * 2},
        Gguf(ARCH.EXAONE4),
    ),
    "gpt_neox": Family(
        changed(GPT_NEOX, rotary_pct=0.25, use_parallel_residual=True),
        Gguf(ARCH.GPTNEOX, {"use_parallel_residual": True}, layer_norm=True),
    ),
    "gpt_neox_sequential": Family(
        changed(GPT_NEOX, rotary_pct=1.0, use_parallel_residual=False),
        Gguf(ARCH.GPTNEOX, {"use_parallel_residual": False}, layer_norm=True),
    ),
    "cohere2": Family(
        config(
            "cohere2",
            "Cohere2",
            rms_norm_eps=None,
            layer_norm_eps=1e-5,
            num_hidden_layers=4,
            sliding_window=WINDOW,
            sliding_window_pattern=4,
            logit_scale=0.25,
            attention_bias=False,
            tie_word_embeddings=True,
        ),
        Gguf(ARCH.COHERE2, {"attention.sliding_window": WINDOW, "logit_scale": 0.25}, layer_norm=True),
    ),
}


def write_checkpoint(name: str, family: Family) -> Path:
    """Writes config.json and the weights, in bf16."""
    folder = FOLDER / "families" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = json.dumps(family.config, indent=2) + "\n"
    (folder / "config.json").write_text(text)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    randomise(model, torch.Generator().manual_seed(SEED))
    if family.config["model_type"].startswith(("gemma", "nemotron")):
        for tensor, parameter in model.named_parameters():
            if tensor.endswith("norm.weight"):
                parameter.sub_(1.0)
    model.to(torch.bfloat16).save_pretrained(folder)
    # As published, not as transformers writes it.
    (folder / "config.json").write_text(text)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """The rows of each head with its two halves interleaved."""
    halves = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def feed_forward_length(model: PreTrainedModel) -> int:
    """The width of the feed-forward network, which in LFM2 only follows from the config."""
    found = (values for name, values in model.named_parameters() if name.endswith("feed_forward.w1.weight"))
    return next((values.shape[0] for values in found), model.config.intermediate_size)


def write_gguf(folder: Path, family: Family, model: PreTrainedModel) -> None:
    """The checkpoint as a GGUF file, with its tensors in bf16 and vectors in f32."""
    kind, config = family.gguf, model.config
    name = gguf.MODEL_ARCH_NAMES[kind.architecture]
    writer = gguf.GGUFWriter(folder / f"{folder.name}.gguf", name)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", heads)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    rotary = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(feed_forward_length(model))
    writer.add_head_count(heads)
    kinds = getattr(config, "layer_types", None) or []
    of_layers = [0 if kind == "conv" else kv_heads for kind in kinds]
    writer.add_head_count_kv(of_layers if 0 in of_layers else kv_heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(rotary)
    writer.add_vocab_size(config.vocab_size)
    eps = next(getattr(config, key) for key in ("rms_norm_eps", "layer_norm_eps", "norm_epsilon", "norm_eps") if hasattr(config, key))
    (writer.add_layer_norm_eps if kind.layer_norm else writer.add_layer_norm_rms_eps)(eps)
    for key, value in kind.keys.items():
        types = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        add = (types | {str: writer.add_string, list: writer.add_array})[type(value)]
        add(f"{name}.{key}", value)
    if kind.rope_factors:
        original = config.original_max_position_embeddings
        writer.add_rope_scaling_orig_ctx_len(original)
        stretch = config.max_position_embeddings / original
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(stretch) / np.log(original))))
        for which in ("long", "short"):
            factors = np.array(config.rope_parameters[f"{which}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{which}.weight", factors)
    if rope["rope_type"] == "llama3":
        exponents = torch.arange(0, rotary, 2, dtype=torch.float32) / rotary
        factors = rope["rope_theta"] ** -exponents / model.model.rotary_emb.inv_freq
        writer.add_tensor("rope_freqs.weight", factors.numpy())
    names = gguf.get_tensor_name_map(kind.architecture, config.num_hidden_layers)
    for tensor, values in model.state_dict().items():
        if tensor == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = values.float().numpy()
        if values.ndim == 3:
            values = values[:, 0, :]
        if kind.norms_plus_one and tensor.endswith("norm.weight"):
            values = values + 1.0
        for part, count in (("q_proj.weight", heads), ("k_proj.weight", kv_heads)):
            if kind.permuted and tensor.endswith(part):
                values = permuted(values, count)
        if "query_key_value" in tensor:
            by_head = values.reshape(heads, 3, head_dim, *values.shape[1:])
            values = by_head.swapaxes(0, 1).reshape(values.shape)
        found = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        assert found, f"gguf-py has no name for {tensor}"
        if values.ndim == 1:
            writer.add_tensor(found, values)
        else:
            stored = gguf.quants.quantize(np.ascontiguousarray(values), gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(found, stored, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_golden(folder: Path, model: PreTrainedModel, positions: tuple[int, ...]) -> None:
    """golden.json, computed in fp32 from the files."""
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(3, VOCAB, (positions[-1] + 1,), generator=generator).tolist()
    whole = model(torch.tensor([tokens]), use_cache=False).logits[0]
    # Attention must matter: with another first token the last logits differ.
    other = model(torch.tensor([[3 + tokens[0] % 64, *tokens[1:]]]), use_cache=False).logits[0]
    assert float((whole[1] - other[1]).abs().max()) > 1e-3, "the second logits do not depend on the first token"
    logits = [{"position": at, "values": exact_list(whole[at])} for at in positions]
    made_with = versions("torch", "transformers", "safetensors", "gguf")
    write_json(folder / "golden.json", {"versions": made_with, "seed": SEED, "tokens": tokens, "logits": logits})


def main() -> None:
    deterministic()
    for name, family in FAMILIES.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        folder = write_checkpoint(name, family)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        write_golden(folder, model, family.positions)
        if family.gguf:
            write_gguf(folder, family, model)


if __name__ == "__main__":
    main()
