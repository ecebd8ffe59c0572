"""Makes the tiny random folders in `quantized/`, packed by the packages of their formats, and what transformers computes.

Each folder has config.json, model.safetensors and golden.json: logits of transformers in fp32 over the weights that the
packed numbers are, exactly: integers less their zeros, or e4m3, times scales in fp32. Packing is compressed-tensors',
GPTQModel's and AutoAWQ's own; that of DeepSeek's fp8, which has no package, is written here as its README describes it. See README.md.
"""

import importlib.util
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.utils import calculate_qparams
from compressed_tensors.utils.match import match_name
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from golden import FOLDER, deterministic, exact_list, versions, write_json
from make_families import FAMILIES
from make_tiny import llama, qwen, randomise

SEED = 21
VOCAB = 64
POSITIONS = (0, 1, 19)
SIZES = {"intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": VOCAB, "max_position_embeddings": 64, "tie_word_embeddings": True}

Tensors = dict[str, torch.Tensor]
Packed = tuple[Tensors, torch.Tensor]
"""The tensors of a module, and its exact weight in fp32."""


def spread(weight: torch.Tensor) -> torch.Tensor:
    """Rows and groups of 32 columns of different sizes, some with a bias, so that scales and zeros matter."""
    rows, columns = weight.shape
    size = 1 + torch.arange(rows).remainder(5)[:, None] + torch.arange(columns).div(32, rounding_mode="floor")
    return weight * size / 3 + 0.05 * torch.arange(rows).remainder(3)[:, None]


def groups(weight: torch.Tensor, strategy: str, size: int | list[int] | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the largest element of what shares a scale, in the shape that scales have."""
    rows, columns = weight.shape
    match strategy:
        case "tensor":
            return weight.amin().reshape(1), weight.amax().reshape(1)
        case "channel":
            return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
        case "group":
            parts = weight.reshape(rows, -1, size)
            return parts.amin(2), parts.amax(2)
    high, wide = size
    padded = torch.nn.functional.pad(weight, (0, -columns % wide, 0, -rows % high))
    parts = padded.unflatten(0, (-1, high)).unflatten(2, (-1, wide))
    return parts.amin((1, 3)), parts.amax((1, 3))


def compressed(config: QuantizationConfig, name: str, weight: torch.Tensor, scale_dtype: torch.dtype) -> Packed:
    schemes = config.config_groups.values()
    scheme = next(scheme for scheme in schemes if any(match_name(name, target) for target in scheme.targets))
    args = scheme.weights
    low, high = groups(weight, args.strategy, args.block_structure or args.group_size)
    scale, zero = calculate_qparams(low, high, args)
    state = {"weight": weight, "weight_scale": scale.to(scale_dtype), "weight_zero_point": zero.to(torch.int8)}
    compressor = BaseCompressor.get_value_from_registry(scheme.format)
    state = compressor.compress(state, scheme)
    # As it stands in the file, but with a scale in fp32, so that the library rounds no product to fewer bits.
    wide = state | {"weight_scale": state["weight_scale"].float()}
    return state, compressor.decompress(wide, scheme)["weight"].float()


def compressed_config(groups: dict[str, tuple[list[str], str, dict[str, Any]]], activations: bool) -> QuantizationConfig:
    inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True} if activations else None
    schemes = {
        name: {"targets": targets, "format": form, "weights": weights, "input_activations": inputs}
        for name, (targets, form, weights) in groups.items()
    }
    return QuantizationConfig(
        config_groups=schemes, ignore=["lm_head"], format="mixed-precision", quantization_status="compressed"
    )


def weights(bits: int, kind: str, strategy: str, symmetric: bool = True, **fields: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": symmetric} | fields


def fp8(block: list[int]) -> Callable[[str, torch.Tensor], Packed]:
    def pack(_: str, weight: torch.Tensor) -> Packed:
        low, high = groups(weight, "block", block)
        scale = torch.maximum(-low, high) / 448
        wide = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[: weight.shape[0], : weight.shape[1]]
        codes = (weight / wide).to(torch.float8_e4m3fn)
        return {"weight": codes, "weight_scale_inv": scale}, codes.float() * wide

    return pack


def without_init(package: str, *inner: str) -> None:
    """Makes modules of a package importable without its `__init__`, which imports what needs a GPU."""
    spec = importlib.util.find_spec(package)
    assert spec and spec.submodule_search_locations, f"pip install {package}"
    root = Path(spec.submodule_search_locations[0])
    for name in (package, *(f"{package}.{part}" for part in inner)):
        module = types.ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module


def affine(weight: torch.Tensor, bits: int, group: int, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales in f16 and zeros of groups of columns, `[rows, groups]` each."""
    low, high = groups(weight, "group", group)
    low, high = low.clamp(max=0), high.clamp(min=0)
    most = 2**bits - 1
    if symmetric:
        high = torch.maximum(-low, high)
        low = -high
    scale = ((high - low) / most).half().float()
    zero = torch.full_like(scale, 2 ** (bits - 1)) if symmetric else (-low / scale).round().clamp(0, most)
    return scale, zero


def awq(group: int) -> Callable[[str, torch.Tensor], Packed]:
    without_init("awq", "modules", "modules.linear", "utils")
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    def pack(_: str, weight: torch.Tensor) -> Packed:
        scale, zero = affine(weight, 4, group, symmetric=False)
        columns = torch.arange(weight.shape[1]) // group
        codes = (weight / scale[:, columns] + zero[:, columns]).round().clamp(0, 15)
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        # What AutoAWQ rounds again is on the grid already.
        linear.weight.data = (codes - zero[:, columns]) * scale[:, columns]
        packed = WQLinear_GEMM.from_linear(linear, 4, group, scales=scale.T.contiguous(), zeros=zero.T.contiguous())
        wide = dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, group).T
        assert torch.equal(wide, linear.weight), "the packed weight is another one"
        return {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}, wide

    return pack


def gptq(bits: int, group: int, symmetric: bool, order: bool, v2: bool) -> Callable[[str, torch.Tensor], Packed]:
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module

    def pack(_: str, weight: torch.Tensor) -> Packed:
        rows, columns = weight.shape
        size = columns if group == -1 else group
        generator = torch.Generator().manual_seed(columns)
        permutation = torch.randperm(columns, generator=generator) if order else torch.arange(columns)
        # Groups are of columns that are neighbours in the order.
        g_idx = torch.empty(columns, dtype=torch.int32)
        g_idx[permutation] = (torch.arange(columns) // size).int()
        scale, zero = affine(weight[:, permutation], bits, size, symmetric)
        most = 2**bits - 1
        codes = (weight / scale[:, g_idx] + zero[:, g_idx]).round().clamp(0, most)
        wide = (codes - zero[:, g_idx]) * scale[:, g_idx]
        linear = torch.nn.Linear(columns, rows, bias=False)
        linear.weight.data = wide
        packed = TorchLinear(bits, group, symmetric, order, columns, rows)
        packed.pack_original(linear, scale, zero, g_idx)
        # Its products are in f16; the integers are exact, and so are these.
        found = packed.dequantize_weight().T.float()
        assert torch.equal(found, wide.half().float()), "the packed weight is another one"
        if not v2:
            convert_gptq_v2_to_v1_format_module(packed, packed)
        return {part: getattr(packed, part) for part in ("qweight", "qzeros", "scales", "g_idx")}, wide

    return pack


def gptq_config(bits: int, group: int, symmetric: bool, order: bool, v2: bool) -> dict[str, Any]:
    return {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "sym": symmetric,
        "desc_act": order,
        "checkpoint_format": "gptq_v2" if v2 else "gptq",
        "pack_dtype": "int32",
        "true_sequential": True,
    }


PACKED = compressed_config(
    {
        "group_0": (["re:.*self_attn.(q|k|v)_proj$"], "pack-quantized", weights(4, "int", "group", False, group_size=32)),
        "group_1": (["model.layers.0.self_attn.o_proj"], "pack-quantized", weights(8, "int", "channel", False)),
        "group_2": (["re:.*mlp.(gate|up)_proj$"], "pack-quantized", weights(4, "int", "group", group_size=64)),
        "group_3": (["model.layers.0.mlp.down_proj"], "pack-quantized", weights(8, "int", "tensor")),
    },
    activations=False,
)
BYTES = compressed_config(
    {
        "group_0": (["re:.*self_attn.(q|k)_proj$"], "int-quantized", weights(8, "int", "channel")),
        "group_1": (["re:.*v_proj$"], "int-quantized", weights(8, "int", "tensor", False)),
        "group_2": (["re:.*o_proj$"], "int-quantized", weights(8, "int", "channel", False)),
        "group_3": (["re:.*gate_proj$"], "float-quantized", weights(8, "float", "channel")),
        "group_4": (["re:.*up_proj$"], "float-quantized", weights(8, "float", "tensor")),
        "group_5": (["re:.*down_proj$"], "float-quantized", weights(8, "float", "block", block_structure=[32, 64])),
    },
    activations=True,
)
E2M1 = weights(4, "float", "group", group_size=32, scale_dtype="torch.uint8")
MXFP4 = compressed_config({"group_0": (["re:.*_proj$"], "mxfp4-pack-quantized", E2M1)}, activations=False)


def of_config(config: QuantizationConfig, dtypes: dict[str, torch.dtype]) -> tuple[dict[str, Any], Callable[[str, torch.Tensor], Packed]]:
    def pack(name: str, weight: torch.Tensor) -> Packed:
        scheme = next(dtype for part, dtype in dtypes.items() if name.endswith(part))
        return compressed(config, name, weight, scheme)

    return config.model_dump(mode="json"), pack


def of_gptq(*args: Any) -> tuple[dict[str, Any], Callable[[], Callable[[str, torch.Tensor], Packed]]]:
    return gptq_config(*args), gptq(*args)


def folders() -> dict[str, tuple[dict[str, Any], tuple[dict[str, Any], Callable[[str, torch.Tensor], Packed]]]]:
    """For each folder the config without quantisation, what it says about that, and the packing of a module."""
    qwen2, qwen3 = qwen(2, sliding_window=32), qwen(3, head_dim=32, attention_bias=False, sliding_window=None)
    deepseek = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [32, 64]}
    gemm = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm", "modules_to_not_convert": None}
    dtypes = {"up_proj": torch.float16, "gate_proj": torch.float16, "down_proj": torch.float32, "": torch.bfloat16}
    return {
        "compressed_packed": (llama(), of_config(PACKED, dtypes)),
        "compressed_bytes": (qwen3, of_config(BYTES, dtypes)),
        "mxfp4": (llama(), of_config(MXFP4, {"": torch.float32})),
        "fp8_blocks": (qwen2, (deepseek, fp8([32, 64]))),
        "awq": (qwen2, (gemm, awq(32))),
        "gptq": (llama(), of_gptq(4, 32, False, True, False)),
        "gptq_v2": (FAMILIES["phi3"].config, of_gptq(8, -1, True, False, True)),
        "gptq_pairs": (FAMILIES["glm4"].config, of_gptq(4, 32, True, True, False)),
    }


def write(name: str, config: dict[str, Any], quantization: dict[str, Any], pack: Callable[[str, torch.Tensor], Packed]) -> None:
    folder = FOLDER / "quantized" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = config | SIZES
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32, attn_implementation="eager").eval()
    randomise(model, torch.Generator().manual_seed(SEED))
    tensors: Tensors = {}
    for module_name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if isinstance(module, torch.nn.Linear) and module_name != "lm_head":
            packed, wide = pack(module_name, spread(own.pop("weight")))
            module.weight.data = wide
            tensors |= {f"{module_name}.{part}": values.contiguous() for part, values in packed.items()}
        for part, values in own.items():
            if module_name != "lm_head":
                values.data = values.bfloat16().float()
                tensors[f"{module_name}.{part}"] = values.bfloat16()
    save_file(tensors, folder / "model.safetensors")
    write_json(folder / "config.json", config | {"quantization_config": quantization})
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(3, VOCAB, (POSITIONS[-1] + 1,), generator=generator).tolist()
    logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
    found = [{"position": at, "values": exact_list(logits[at])} for at in POSITIONS]
    made_with = versions("torch", "transformers", "safetensors", "compressed-tensors")
    write_json(folder / "golden.json", {"versions": made_with, "seed": SEED, "tokens": tokens, "logits": found})


def main() -> None:
    deterministic()
    for name, (config, (quantization, pack)) in folders().items():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            write(name, config, quantization, pack)


if __name__ == "__main__":
    main()
