"""Logits on the GPU against transformers, on random weights at the true shapes of models.

    python tests/device/transformers_check.py LOGITS FOLDER [MODEL,.. [bf16|f32 [POSITION,..]]]

LOGITS is the built example `logits`. For each model: random weights are made on the GPU and saved as a checkpoint in FOLDER; the
example feeds random tokens one by one, up to the last of the positions (8,191); transformers (same weights, in fp32 and in bf16)
reads them at once. The error at a position is |x - fp32| / |fp32| over the logits. In bf16 ours must be no larger than
transformers' own; with `f32` it must be at most 1e-4.

Steps in f32 are slow, so there a token is fed at the NEAR positions up to each of those asked for and at every STRIDE-th of the others
alone; keys and values of the rest are zeros on both sides. Beside it stand the errors of both to transformers in f64.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

LLAMA = {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 16384, "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False}
MODELS = {
    "smollm2": LLAMA | {"vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "intermediate_size": 1536, "tie_word_embeddings": True},
    "tinyllama": LLAMA | {"vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 5632, "tie_word_embeddings": False},
    "qwen3_0_6b": {"model_type": "qwen3", "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 16384, "rope_theta": 1000000.0, "attention_bias": False, "vocab_size": 151936, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "tie_word_embeddings": True},
    "llama_3_2_1b": LLAMA | {"vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "tie_word_embeddings": True},
    "llama_3_1_8b": LLAMA | {"vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "tie_word_embeddings": False},
}
POSITIONS = [0, 63, 64, 1000, 8191]
NEAR, STRIDE = 64, 61  # a stride that meets every place of a block of 64


def random_model(config: dict) -> torch.nn.Module:
    fields = {key: value for key, value in config.items() if key != "model_type"}
    torch.manual_seed(11)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **fields), dtype=torch.bfloat16)
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.data.normal_(1.0, 0.1)
            else:
                weight.data.normal_(0.0, 0.02)
    # As a loaded model has them: the GPU's powers are other floats, and at position 8191 one bit of a frequency is 5e-4 of an angle.
    rotary = model.model.rotary_emb
    rotary.inv_freq.copy_(rotary.compute_default_rope_parameters(model.config)[0])
    return model.eval()


def save(model: torch.nn.Module, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def fed(tokens: list[int], positions: list[int], precision: str) -> list[int | None]:
    """None where no token is fed."""
    here = lambda at: precision != "f32" or at % STRIDE == 0 or any(wanted - NEAR < at <= wanted for wanted in positions)
    return [token if here(at) else None for at, token in enumerate(tokens)]


class Sparse(DynamicCache):
    """Gives a pass over the fed tokens the keys and values of all positions: zeros where none is fed. Keeps nothing."""

    def __init__(self, fed: torch.Tensor, length: int):
        super().__init__()
        self.fed, self.length = fed, length

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_, **__) -> tuple[torch.Tensor, torch.Tensor]:
        empty = keys.new_zeros(*keys.shape[:2], self.length, keys.shape[3])
        return empty.index_copy(2, self.fed, keys), empty.index_copy(2, self.fed, values)


@torch.no_grad()
def logits(model: torch.nn.Module, tokens: list[int | None], positions: list[int]) -> torch.Tensor:
    fed_at = [at for at, token in enumerate(tokens) if token is not None]
    at, ids = torch.tensor(fed_at, device="cuda"), torch.tensor([tokens[at] for at in fed_at], device="cuda")
    every = torch.arange(len(tokens), device="cuda")
    seen = {"position_ids": at[None], "attention_mask": (every <= at[:, None])[None, None], "past_key_values": Sparse(at, len(tokens))}
    keep = torch.tensor([fed_at.index(wanted) for wanted in positions], device="cuda")
    return model(ids[None], **seen, use_cache=True, logits_to_keep=keep).logits[0].double().cpu()


def exact(model: torch.nn.Module) -> torch.nn.Module:
    """The model in f64, its norms too, which transformers computes in f32."""
    for norm in model.modules():
        if type(norm).__name__.endswith("RMSNorm"):
            norm.forward = lambda x, norm=norm: norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon))
    return model.double()


def main() -> None:
    program, folder = sys.argv[1], Path(sys.argv[2])
    names = sys.argv[3].split(",") if len(sys.argv) > 3 else list(MODELS)
    precision = sys.argv[4] if len(sys.argv) > 4 else "bf16"
    positions = [int(text) for text in sys.argv[5].split(",")] if len(sys.argv) > 5 else POSITIONS
    torch.backends.cuda.matmul.allow_tf32 = False
    failed = False
    for name in names:
        start = time.time()
        model = random_model(MODELS[name])
        checkpoint, out, ids = folder / name, folder / f"{name}.bin", folder / f"{name}.json"
        save(model, checkpoint)
        rng = np.random.default_rng(3)
        tokens = rng.integers(0, MODELS[name]["vocab_size"], positions[-1] + 1).tolist()
        tokens = fed(tokens, positions, precision)
        ids.write_text(json.dumps(tokens))
        saved = time.time()
        half = logits(model, tokens, positions)
        full = logits(model.float(), tokens, positions)
        best = logits(exact(model), tokens, positions) if precision == "f32" else full
        del model
        torch.cuda.empty_cache()
        compared = time.time()
        told = subprocess.run([program, checkpoint, ids, ",".join(map(str, positions)), out, precision], check=True, capture_output=True, text=True).stdout.strip()
        ours = torch.from_numpy(np.fromfile(out, dtype=np.float32).reshape(len(positions), -1))
        shutil.rmtree(checkpoint)
        error = lambda x, of: ((x.double() - of).norm(dim=1) / of.norm(dim=1)).tolist()
        print(f"{name}: {told}; made in {saved - start:.1f} s, transformers {compared - saved:.1f} s", flush=True)
        rows = zip(positions, error(ours, full), error(half, full), error(ours, best), error(full, best))
        for position, mine, theirs, mine_best, full_best in rows:
            bound = 1e-4 if precision == "f32" else theirs
            failed |= not mine <= bound
            beside = f"to f64 {mine_best:.2e}, transformers' f32 {full_best:.2e}" if precision == "f32" else f"transformers' bf16 {theirs:.2e}"
            print(f"  position {position}: {mine:.2e}, {beside}{'' if mine <= bound else '  TOO LARGE'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
