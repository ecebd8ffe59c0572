"""Writes what Hugging Face tokenizers and transformers make of awkward strings and of conversations.

    python make_tokenizers.py [folder with, or for, the SmolLM2 GGUF]

For SmolLM2: tokenizer_smollm2.json and chat_smollm2.json. For the tiny checkpoints, one of each tokenizer style:
tokenizer_tiny.json and chat_tiny.json.
"""

import sys
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from golden import FOLDER, versions, write_json
from smollm2 import FILE, PACKAGE, SHA256, gguf_file, tokenizer

TINY = {"llama3": "llama", "llama2": "llama_rope_yarn", "qwen": "qwen3"}

TEXTS = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "a ",
    "Hello, world!",
    "Hello,  world!   Three spaces.",
    "    four spaces indent",
    "\ttab\t\ttabs",
    "\n",
    "\n\n\n",
    "line one\nline two\r\nline three\n\n  line four",
    "trailing spaces   ",
    "trailing newline \n",
    "\u00a0no-break\u00a0space\u2003em space\u3000ideographic",
    "1234567890",
    "In 1999, 3.14159 and 1,000,000 -- or 2e-10?",
    "x1 y22 z333",
    "٣٤٥ １２３ ⅷ ½ ²",
    "I'm you're he'll we've they'd it's 'tis I'M IT'S",
    "don't’t “quoted” ‘single’",
    "snake_case camelCase kebab-case SCREAMING_SNAKE",
    "antidisestablishmentarianism floccinaucinihilipilification",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!!!???...---===###@@@",
    "https://example.org/a/b?c=d&e=%20f#g",
    "user.name+tag@example.co.uk",
    "def f(x):\n    return x**2  # square\n\n\nprint(f(3))\n",
    'fn main() {\n\tlet v: Vec<u8> = vec![0; 16];\n\tprintln!("{v:?}");\n}\n',
    "if (a<=b && c!=d) { x->y = *p++; }",
    '{"key": [1, 2.5, null, true], "nested": {"a": "b\\n"}}',
    "Zürich, naïve café, Ångström, smørrebrød",
    "e\u0301 is not \u00e9, A\u030a is not \u00c5",
    "日本語のテキストと漢字",
    "你好，世界！",
    "Привет, мир",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "한국어 텍스트",
    "🙂",
    "family: 👨‍👩‍👧‍👦 flag: 🇨🇭 skin: 👍🏽",
    "math: ∑_{i=0}^{n} α·βᵢ ≤ ∞ ∴ 𝔸 ⊂ 𝔹",
    "zero\u200bwidth\u200djoiner\ufeffbom",
    "control \x00 \x01 \x04 \x13 \x1b[31m \x7f bytes",
    "private use \ue000 and plane 16 \U00100000 and unassigned \U000e0fff",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<|endoftext|><|endoftext|>",
    "a<|im_end|>b <|im_end|> c",
    "<|im_start <|im_start|| im_start|> <|IM_START|>",
    "<repo_name>amk<file_sep>main.rs\n<filename>",
    "<s>[INST] Hi [/INST]</s> <unk> <0x41>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<think>\nhm\n</think>\n\nYes.",
    "▁already▁marked Ġbyte Ċlevel",
    "the quick brown fox\n jumps\tover 12 lazy dogs",
]

CONVERSATIONS = [
    [{"role": "user", "content": "What is 2 + 2?"}],
    [
        {"role": "system", "content": "  You answer in one word.\n"},
        {"role": "user", "content": "Capital of France? "},
    ],
    [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": 'Write <b>bold</b> & "quoted" text.\n\nThen stop.'},
        {"role": "assistant", "content": '  <b>bold</b> & "quoted"\n'},
        {"role": "user", "content": "Danke schön 🙂"},
    ],
]


def encodings(tokenizer: PreTrainedTokenizerFast) -> list[dict[str, Any]]:
    """Ids of every text with and without the tokens that the post-processor adds, and the text that the ids decode to."""
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        row = {"text": text, "ids": ids, "decoded": tokenizer.decode(ids)}
        with_special = tokenizer.encode(text, add_special_tokens=True)
        if with_special != ids:
            row["ids_with_special"] = with_special
        rows.append(row)
    return rows


def renderings(tokenizer: PreTrainedTokenizerFast) -> list[dict[str, Any]]:
    """Every conversation as text and ids, with and without the beginning of an answer."""
    rows = []
    for messages in CONVERSATIONS:
        for generation in (False, True):
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation)
            ids = tokenizer.encode(text, add_special_tokens=False)
            rows.append({"messages": messages, "add_generation_prompt": generation, "text": text, "ids": ids})
    return rows


def main() -> None:
    path = gguf_file(Path(sys.argv[1] if len(sys.argv) > 1 else Path.home() / ".cache/amk-golden"))
    made_with = versions("transformers", "tokenizers", "gguf")
    source = {"package": PACKAGE, "file": FILE, "sha256": SHA256}
    smollm2 = tokenizer(path)
    head = {"source": source, "versions": made_with}
    write_json(FOLDER / "tokenizer_smollm2.json", head | {"cases": encodings(smollm2)})
    write_json(FOLDER / "chat_smollm2.json", head | {"cases": renderings(smollm2)})

    tiny = {style: AutoTokenizer.from_pretrained(FOLDER / "tiny" / name) for style, name in TINY.items()}
    head = {"versions": made_with, "checkpoints": TINY}
    write_json(FOLDER / "tokenizer_tiny.json", head | {"cases": {style: encodings(each) for style, each in tiny.items()}})
    write_json(FOLDER / "chat_tiny.json", head | {"cases": {style: renderings(each) for style, each in tiny.items()}})


if __name__ == "__main__":
    main()
