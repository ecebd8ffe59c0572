"""What the golden scripts share: determinism, greedy decoding, exact float32 text, versions."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

FOLDER = Path(__file__).parent


def deterministic() -> None:
    """One thread, deterministic kernels: the same packages on the same machine give the same bytes."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of the named packages."""
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def exact(value: float) -> float:
    """The shortest decimal that reads back as the same float32."""
    return float(str(np.float32(value)))


def exact_list(values: np.ndarray | torch.Tensor) -> list[float]:
    """`exact` of every element of a 1-d array."""
    return [exact(value) for value in np.asarray(values, dtype=np.float32)]


def greedy(model: PreTrainedModel, prompt: list[int], count: int) -> tuple[list[int], np.ndarray]:
    """Greedy continuation through the KV cache, end-of-text tokens taken like any other.

    Returns `count` token ids and the logits `[count, vocab]` (fp32) that chose them. The whole sequence is then run
    once more without a cache: both ways must choose the same tokens, with logits within 2e-4.
    """
    tokens: list[int] = []
    rows: list[torch.Tensor] = []
    step = model(torch.tensor([prompt]), use_cache=True)
    while True:
        rows.append(step.logits[0, -1])
        tokens.append(int(rows[-1].argmax()))
        if len(tokens) == count:
            break
        step = model(torch.tensor([tokens[-1:]]), past_key_values=step.past_key_values, use_cache=True)
    logits = torch.stack(rows)

    whole = model(torch.tensor([prompt + tokens[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
    assert whole.argmax(-1).tolist() == tokens, "cached and uncached decoding choose different tokens"
    assert float((whole - logits).abs().max()) < 2e-4, "cached and uncached logits differ"
    return tokens, logits.numpy()


def min_margin(logits: np.ndarray) -> float:
    """Smallest distance of the best from the second-best logit over the rows of `[steps, vocab]`."""
    best = np.sort(logits, axis=-1)[:, -2:]
    return exact((best[:, 1] - best[:, 0]).min())


def write_json(path: Path, value: dict[str, Any]) -> None:
    """JSON with one line per innermost list or object, so that diffs stay readable."""
    path.write_text(_format(value, 0) + "\n", encoding="utf-8")
    print(f"{path.relative_to(FOLDER)}: {path.stat().st_size} bytes")


def _format(value: Any, depth: int) -> str:
    nested = isinstance(value, dict | list) and any(
        isinstance(item, dict | list) for item in (value.values() if isinstance(value, dict) else value)
    )
    if not nested:
        return json.dumps(value, ensure_ascii=False)
    pad, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {_format(item, depth + 1)}" for key, item in value.items()]
        return "{" + pad + ("," + pad).join(items) + end + "}"
    return "[" + pad + ("," + pad).join(_format(item, depth + 1) for item in value) + end + "]"
