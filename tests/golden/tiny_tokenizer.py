"""Three tokenizers of 320 ids in the three styles that the supported checkpoints ship, trained on a few sentences."""

import json
import re
from collections.abc import Callable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

VOCAB = 320

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind: it has seen foxes before.",
    "Every task signals its counter, every consumer waits for a known count, and so the whole step is one launch.",
    "She said: \"I'm sure they'll come, won't they?\" They didn't; we've waited since 10:45.",
    "def add(a, b):\n    return a + b\n\n\nfor i in range(10):\n    print(add(i, 1))\n",
    'fn main() {\n    let total: u32 = (1..=100).sum();\n    println!("{total}");\n}\n',
]

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

LLAMA3_TEMPLATE = (
    "{{- bos_token }}{% for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)

LLAMA2_TEMPLATE = (
    "{% if messages[0]['role'] == 'system' %}{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + (system if loop.first else '') + message['content'].strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)

CHATML_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _special(*contents: str) -> list[AddedToken]:
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def _byte_level(digits: str, normalizer: normalizers.Normalizer | None, added: list[AddedToken]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT.replace("DIGITS", digits)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(added), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(added)
    return tokenizer


def _begin(tokenizer: Tokenizer, bos: str) -> processors.PostProcessor:
    return processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B:1", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )


def llama3() -> Tokenizer:
    """Byte-level BPE, digits in groups of three, begin-of-text added by the post-processor."""
    added = _special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    tokenizer = _byte_level("{1,3}", None, added)
    tokenizer.post_processor = _begin(tokenizer, "<|begin_of_text|>")
    return tokenizer


def qwen() -> Tokenizer:
    """Byte-level BPE after NFC, single digits, no begin-of-text, two added tokens that are not special."""
    added = _special("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    added += [AddedToken(content, special=False, normalized=False) for content in ("<think>", "</think>")]
    return _byte_level("", normalizers.NFC(), added)


def llama2() -> Tokenizer:
    """SentencePiece-style BPE: spaces as U+2581, a prefix space, unknown characters as byte tokens `<0x00>`..`<0xFF>`."""
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    head = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(head), show_progress=False)
    # All but lower-case letters and some punctuation is left out of the alphabet, so that byte tokens get used.
    pieces.train_from_iterator([re.sub("[^a-z,.: ]", " ", text) for text in CORPUS], trainer)
    trained = json.loads(pieces.to_str())["model"]
    ordered = sorted(trained["vocab"], key=trained["vocab"].get)
    vocab = {token: index for index, token in enumerate([*head, *ordered])}
    merges = [tuple(merge) for merge in trained["merges"]]

    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens(_special("<unk>", "<s>", "</s>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = _begin(tokenizer, "<s>")
    return tokenizer


STYLES: dict[str, tuple[Callable[[], Tokenizer], dict[str, str]]] = {
    "llama3": (
        llama3,
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": LLAMA3_TEMPLATE},
    ),
    "llama2": (
        llama2,
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": LLAMA2_TEMPLATE},
    ),
    "qwen": (qwen, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHATML_TEMPLATE}),
}
