"""Writes smollm2_135m.json: what transformers computes in fp32 with the dequantised SmolLM2-135M-Instruct GGUF.

    python make_smollm2.py [folder with, or for, the GGUF]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from golden import FOLDER, deterministic, exact, exact_list, greedy, min_margin, versions, write_json
from smollm2 import FILE, PACKAGE, SHA256, gguf_file, load, tokenizer

TOKENS = 64
TOP = 20
PASSAGE_TOKENS = 256

CHAT = [
    {"role": "system", "content": "You are a patient teacher. Answer in full sentences."},
    {"role": "user", "content": "Why does the moon always show us the same side? Explain it to a ten-year-old."},
]
ENGLISH = "The old lighthouse keeper had not spoken to anyone for three weeks, and when the boat finally came,"
CODE = 'def fibonacci(n: int) -> list[int]:\n    """Return the first n Fibonacci numbers."""\n'

# Abraham Lincoln, address at Gettysburg, 19 November 1863.
PASSAGE = (
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and "
    "dedicated to the proposition that all men are created equal.\n\n"
    "Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, "
    "can long endure. We are met on a great battle-field of that war. We have come to dedicate a portion of that field, "
    "as a final resting place for those who here gave their lives that that nation might live. It is altogether fitting "
    "and proper that we should do this.\n\n"
    "But, in a larger sense, we can not dedicate -- we can not consecrate -- we can not hallow -- this ground. The brave "
    "men, living and dead, who struggled here, have consecrated it, far above our poor power to add or detract. The world "
    "will little note, nor long remember what we say here, but it can never forget what they did here. It is for us the "
    "living, rather, to be dedicated here to the unfinished work which they who fought here have thus far so nobly "
    "advanced. It is rather for us to be here dedicated to the great task remaining before us -- that from these honored "
    "dead we take increased devotion to that cause for which they gave the last full measure of devotion."
)


def top_logits(row: np.ndarray) -> dict[str, list]:
    """The `TOP` largest logits of a row `[vocab]`, best first."""
    ids = np.argsort(-row, kind="stable")[:TOP]
    return {"ids": ids.tolist(), "values": exact_list(row[ids])}


def passage_nll(model: LlamaForCausalLM, ids: list[int]) -> list[float]:
    """Negative log-likelihood in nats of ids[1..], each given all ids before it."""
    logits = model(torch.tensor([ids])).logits[0, :-1]
    log_probabilities = torch.log_softmax(logits.double(), dim=-1)
    return exact_list(-log_probabilities.gather(1, torch.tensor(ids[1:])[:, None])[:, 0])


def main() -> None:
    deterministic()
    path = gguf_file(Path(sys.argv[1] if len(sys.argv) > 1 else Path.home() / ".cache/amk-golden"))
    model, tokens_of = load(path), tokenizer(path)
    texts = {
        "chat": tokens_of.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True),
        "english": ENGLISH,
        "code": CODE,
    }
    cases = []
    for name, text in texts.items():
        prompt = tokens_of(text)["input_ids"]
        tokens, logits = greedy(model, prompt, TOKENS)
        steps = [*range(0, TOKENS, 8), TOKENS - 1]
        cases.append(
            {
                "name": name,
                "text": text,
                "prompt": prompt,
                "tokens": tokens,
                "decoded": tokens_of.decode(tokens),
                "min_margin": min_margin(logits),
                "logits": [{"step": step} | top_logits(logits[step]) for step in steps],
            }
        )
    ids = tokens_of(PASSAGE)["input_ids"][:PASSAGE_TOKENS]
    nll = passage_nll(model, ids)
    mean = exact(np.mean(nll, dtype=np.float64))
    passage = {"text": tokens_of.decode(ids), "tokens": ids, "mean_nll": mean, "nll": nll}
    write_json(
        FOLDER / "smollm2_135m.json",
        {
            "source": {"package": PACKAGE, "file": FILE, "sha256": SHA256},
            "versions": versions("torch", "transformers", "tokenizers", "gguf"),
            "cases": cases,
            "passage": passage,
        },
    )


if __name__ == "__main__":
    main()
