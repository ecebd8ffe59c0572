"""perplexity_smollm2.json: teacher-forced negative log-likelihoods of this repository's licence text, by transformers in fp32 and bf16.

    python tests/golden/make_perplexity.py FOLDER      # FOLDER keeps the GGUF
"""

import json
import sys
from pathlib import Path

import smollm2
import torch

TOKENS = 2001  # 2,000 predictions
ROOT = Path(__file__).parents[2]


def losses(model: torch.nn.Module, tokens: list[int]) -> list[float]:
    """-ln p of each token but the first, nats; the softmax in fp32."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, :-1].float()
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:]), reduction="none")
    return [round(x, 6) for x in loss.tolist()]


def main() -> None:
    path = smollm2.gguf_file(Path(sys.argv[1]))
    tokenizer = smollm2.tokenizer(path)
    text = (ROOT / "LICENSE-APACHE").read_text() + (ROOT / "LICENSE-MIT").read_text()
    tokens = tokenizer.encode(text)[:TOKENS]
    assert len(tokens) == TOKENS
    model = smollm2.load(path)
    golden = {"tokens": tokens, "fp32": losses(model, tokens), "bf16": losses(model.to(torch.bfloat16), tokens)}
    (Path(__file__).parent / "perplexity_smollm2.json").write_text(json.dumps(golden) + "\n")
    for name in ["fp32", "bf16"]:
        print(name, torch.tensor(golden[name]).double().mean().exp().item())


if __name__ == "__main__":
    main()
