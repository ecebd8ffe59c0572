"""Writes rope.json: rotary tables at the parameters of published models, and vectors rotated with them.

Whole-model goldens exercise short positions only; these reach the end of each model's context, and the partial rotary
that no `llama`, `qwen2` or `qwen3` checkpoint can ask transformers for.
"""

from typing import Any

import torch
from transformers import LlamaConfig, Phi3Config, PreTrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as apply_partial

from golden import FOLDER, deterministic, exact, exact_list, versions, write_json

SEED = 20

PARAMETERS: dict[str, dict[str, Any]] = {
    "smollm2": {"head_dim": 64, "context": 8192, "rope_type": "default", "rope_theta": 100000.0},
    "qwen3": {"head_dim": 128, "context": 40960, "rope_type": "default", "rope_theta": 1000000.0},
    "linear": {"head_dim": 64, "context": 8192, "rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama_3_2": {
        "head_dim": 64,
        "context": 131072,
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "qwen3_yarn": {
        "head_dim": 128,
        "context": 131072,
        "rope_type": "yarn",
        "rope_theta": 1000000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    },
    "partial": {
        "head_dim": 64,
        "context": 8192,
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
    },
}


def configuration(parameters: dict[str, Any]) -> PreTrainedConfig:
    """A configuration with one head and these rotary parameters, of a model that knows partial rotary if it is needed."""
    rope = {key: value for key, value in parameters.items() if key not in ("head_dim", "context")}
    fields = {
        "hidden_size": parameters["head_dim"],
        "num_attention_heads": 1,
        "max_position_embeddings": parameters["context"],
        "rope_parameters": rope,
    }
    return Phi3Config(pad_token_id=0, **fields) if "partial_rotary_factor" in rope else LlamaConfig(**fields)


def rotate(parameters: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """The tables, and one random head vector a position rotated, positions from 0 to the last of the context."""
    config = configuration(parameters)
    partial = isinstance(config, Phi3Config)
    rotary = (Phi3RotaryEmbedding if partial else LlamaRotaryEmbedding)(config)
    positions = [0, 1, 63, 64, 1000, parameters["context"] - 1]
    x = torch.randn(1, 1, len(positions), parameters["head_dim"], generator=generator)
    cos, sin = rotary(x, torch.tensor([positions]))
    y, _ = (apply_partial if partial else apply_rotary_pos_emb)(x, x, cos, sin)
    rows = zip(positions, x[0, 0], y[0, 0], strict=True)
    return {
        "parameters": parameters,
        "inv_freq": exact_list(rotary.inv_freq),
        "attention_scaling": exact(rotary.attention_scaling),
        "rows": [{"position": position, "x": exact_list(before), "y": exact_list(after)} for position, before, after in rows],
    }


def main() -> None:
    deterministic()
    generator = torch.Generator().manual_seed(SEED)
    cases = {name: rotate(parameters, generator) for name, parameters in PARAMETERS.items()}
    write_json(FOLDER / "rope.json", {"versions": versions("torch", "transformers"), "seed": SEED, "cases": cases})


if __name__ == "__main__":
    main()
