"""Makes the tiny random checkpoints in `tiny/` and what transformers computes with them.

Each folder is a complete Hugging Face checkpoint (config.json, safetensors, tokenizer.json, ..) plus `golden.json`: greedy
continuations and logits from transformers in fp32, read back from the files as any user would. See README.md.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from golden import FOLDER, deterministic, exact, exact_list, greedy, min_margin, versions, write_json
from tiny_tokenizer import STYLES, VOCAB

SEED = 20
TOKENS = 24
MARGIN = 0.01  # ten times what an implementation's logits may be off, so that greedy tokens are not coin tosses
PROMPTS = (5, 70)  # lengths; the second crosses the first 64 positions of a KV cache in blocks


@dataclass
class Tiny:
    """One checkpoint: the fields of config.json as published checkpoints spell them, and how the files are laid out."""

    config: dict[str, Any]
    tokenizer: str
    dtype: torch.dtype = torch.float32
    shard_bytes: int | None = None
    template_file: bool = False
    """The chat template in chat_template.jinja rather than in tokenizer_config.json."""


def llama(**fields: Any) -> dict[str, Any]:
    """A Llama config.json: 4 query heads of 16, hidden 64; `fields` override."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": VOCAB,
    } | fields


def qwen(generation: int, **fields: Any) -> dict[str, Any]:
    """A Qwen2 or Qwen3 config.json; both carry the fields of a sliding window that is switched off."""
    config = llama(rms_norm_eps=1e-6, rope_theta=1000000.0, use_sliding_window=False, max_window_layers=2)
    del config["mlp_bias"], config["attention_bias"]
    names = {"architectures": [f"Qwen{generation}ForCausalLM"], "model_type": f"qwen{generation}"}
    return config | names | fields


TINY: dict[str, Tiny] = {
    "llama": Tiny(llama(rope_scaling=None), "llama3", shard_bytes=150_000),
    "llama_rope_llama3": Tiny(
        llama(
            num_key_value_heads=1,
            tie_word_embeddings=True,
            rope_theta=500000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
        "llama3",
        dtype=torch.bfloat16,
    ),
    "llama_rope_yarn": Tiny(
        llama(
            num_key_value_heads=4,
            rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        ),
        "llama2",
        dtype=torch.bfloat16,
    ),
    "llama_rope_linear": Tiny(
        llama(head_dim=32, tie_word_embeddings=True, rope_scaling={"type": "linear", "factor": 2.0}),
        "llama2",
        dtype=torch.float16,
        template_file=True,
    ),
    "qwen2": Tiny(qwen(2, tie_word_embeddings=True, sliding_window=32), "qwen"),
    "qwen3": Tiny(
        qwen(3, head_dim=32, num_attention_heads=3, num_key_value_heads=1, attention_bias=False, sliding_window=None),
        "qwen",
    ),
    "qwen3_rope_parameters": Tiny(
        qwen(
            3,
            head_dim=32,
            attention_bias=False,
            tie_word_embeddings=True,
            layer_types=["full_attention", "full_attention"],
            rope_theta=None,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 1000000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "attention_factor": 1.25,
                "beta_fast": 8.0,
                "beta_slow": 2.0,
            },
        ),
        "qwen",
        dtype=torch.bfloat16,
        template_file=True,
    ),
}


def randomise(model: PreTrainedModel, generator: torch.Generator) -> None:
    """Weights that make every part matter: peaked attention, norms away from one, branches larger than the residual."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            value = 1 + 0.2 * noise
        elif name.endswith(".bias"):
            value = 0.5 * noise
        elif "embed_tokens" in name:
            value = 0.5 * noise
        else:
            value = 1.5 * noise / parameter.shape[-1] ** 0.5
        parameter.copy_(value)


def write_checkpoint(name: str, tiny: Tiny) -> Path:
    """Writes all files of one checkpoint but golden.json."""
    folder = FOLDER / "tiny" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    build, tokens = STYLES[tiny.tokenizer]
    tokenizer = build()
    assert tokenizer.get_vocab_size() == VOCAB
    tokenizer.save(str(folder / "tokenizer.json"))

    new_spelling = "rope_parameters" in tiny.config
    bos = tokenizer.token_to_id(tokens["bos_token"]) if "bos_token" in tokens else None
    eos = tokenizer.token_to_id(tokens["eos_token"])
    config = {key: value for key, value in tiny.config.items() if key != "rope_theta" or value is not None}
    config |= {"bos_token_id": bos, "eos_token_id": eos}
    config["dtype" if new_spelling else "torch_dtype"] = str(tiny.dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    randomise(model, torch.Generator().manual_seed(SEED))
    shards = {"max_shard_size": tiny.shard_bytes} if tiny.shard_bytes else {}
    model.to(tiny.dtype).save_pretrained(folder, **shards)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    stop = [eos] + [tokenizer.token_to_id(token) for token in ("<|end_of_text|>",) if tokenizer.token_to_id(token)]
    generation = {"bos_token_id": bos, "eos_token_id": stop, "do_sample": True, "temperature": 0.6, "top_p": 0.9}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    settings = dict(tokens)
    if tiny.template_file:
        (folder / "chat_template.jinja").write_text(settings.pop("chat_template"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | settings
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return folder


def draw_case(model: PreTrainedModel, length: int, generator: torch.Generator) -> tuple[list[int], list[int], np.ndarray]:
    """A random prompt with its greedy tokens and logits; prompts that lead to near ties or to loops are drawn again."""
    for _ in range(20):
        prompt = torch.randint(3, VOCAB - 5, (length,), generator=generator).tolist()
        tokens, logits = greedy(model, prompt, TOKENS)
        if min_margin(logits) > MARGIN and len(set(tokens)) >= TOKENS // 3:
            return prompt, tokens, logits
    raise AssertionError("no prompt leads to distinct tokens with clear margins")


def write_golden(folder: Path) -> None:
    """golden.json of a checkpoint, computed in fp32 from its files."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(SEED)
    cases = []
    for length in PROMPTS:
        prompt, tokens, logits = draw_case(model, length, generator)
        cases.append(
            {
                "prompt": prompt,
                "tokens": tokens,
                "min_margin": min_margin(logits),
                "logits": [{"step": step, "values": exact_list(logits[step])} for step in (0, TOKENS - 1)],
            }
        )
    rotary = model.model.rotary_emb
    rope = {"inv_freq": exact_list(rotary.inv_freq), "attention_scaling": exact(rotary.attention_scaling)}
    made_with = versions("torch", "transformers", "tokenizers", "safetensors")
    write_json(folder / "golden.json", {"versions": made_with, "seed": SEED, "rope": rope, "cases": cases})


def main() -> None:
    deterministic()
    for name, tiny in TINY.items():
        write_golden(write_checkpoint(name, tiny))


if __name__ == "__main__":
    main()
