"""The step of a decoder as a CUDA graph of the kernels in pdl.cu, chained by dependent launches."""
import ctypes
import math
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

import torch

from decoder import EPS

TOLERANCE = 5e-2
# Warps of a projection, pairs of 16 bytes that each of its threads has fetched into L2 ahead of shared memory, and in flight in attention.
WARPS, AHEAD, CACHE_DEPTH = 16, 8, 6
CACHE_WARPS, SPLIT = 8, 256  # a block of attention has so many positions, or one for each of its share of multiprocessors
STORE, RESIDUAL, GATE, LOGITS = range(4)
PDL = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
SHARED_BYTES, SHARED_PERCENT = 8, 9  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, .._PREFERRED_SHARED_MEMORY_CARVEOUT


def structure(name, **fields):
    kinds = {"p": c_void_p, "u": c_uint, "f": c_float}
    pairs = [(field, kinds[kind]) for kind, names in fields.items() for field in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": pairs})


# As pdl.cu has them.
Gemv = structure("Gemv", p="weight input norm bias out best", u="pairs pieces slices steps epilogue", f="eps")
Embed = structure("Embed", p="table token x best", u="hidden")
Attention = structure(
    "Attention", p="qkv keys values cosine sine query_norm key_norm position out parts arrived", u="context", f="eps"
)
# As cuda.h has them.
Attribute = structure("Attribute", u="id pad value " + " ".join(f"rest{i}" for i in range(15)))


class Config(ctypes.Structure):
    _fields_ = [("dims", c_uint * 6), ("shared", c_uint), ("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint)]


def checked(library, name, *arguments):
    code = getattr(library, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: error {code}")


def nvrtc():
    """The library of torch's own CUDA, else any."""
    major, root = (torch.version.cuda or "13").split(".")[0], Path(torch.__file__).parents[1]
    names = [f"libnvrtc.so.{major}", *sorted(map(str, root.glob(f"nvidia/*/lib/libnvrtc.so.{major}*"))), "libnvrtc.so"]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError(f"none of {', '.join(names)} loads")


def compiled(source, architecture, defines):
    library, program, size = nvrtc(), c_void_p(), c_size_t()
    checked(library, "nvrtcCreateProgram", byref(program), source.encode(), b"pdl.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "--use_fast_math", *(f"-D{k}={v}" for k, v in defines.items())]
    failed = library.nvrtcCompileProgram(program, len(options), (c_char_p * len(options))(*(o.encode() for o in options)))
    what = "ProgramLog" if failed else "CUBIN"
    checked(library, f"nvrtcGet{what}Size", program, byref(size))
    text = ctypes.create_string_buffer(size.value)
    checked(library, f"nvrtcGet{what}", program, text)
    if failed:
        raise RuntimeError(f"pdl.cu: {text.value.decode()}")
    return text.raw


class Gpu:
    """The kernels on the current device."""

    def __init__(self):
        self.cuda, self.about = ctypes.CDLL("libcuda.so.1"), torch.cuda.get_device_properties(torch.cuda.current_device())
        self.multiprocessors, self.kernels = self.about.multi_processor_count, {}
        # Two projections share a multiprocessor; each block takes 1 KiB besides and what it declares.
        self.shared = self.about.shared_memory_per_multiprocessor // 2 - 2048

    def load(self, source, defines):
        cubin = compiled(source, f"sm_{self.about.major}{self.about.minor}", defines)
        self.module = c_void_p()
        checked(self.cuda, "cuModuleLoadData", byref(self.module), cubin)
        for name in "gemv", "embed", "attention":
            kernel = self.kernels[name] = c_void_p()
            checked(self.cuda, "cuModuleGetFunction", byref(kernel), self.module, name.encode())
            # All memory that L1 can give: a multiprocessor that had to be divided anew would first run empty.
            checked(self.cuda, "cuFuncSetAttribute", kernel, SHARED_PERCENT, c_int(100))

    def reserve(self, name, shared):
        """Lets a kernel have `shared` bytes."""
        checked(self.cuda, "cuFuncSetAttribute", self.kernels[name], SHARED_BYTES, c_int(shared))

    def launch(self, name, grid, threads, shared, params, chained):
        attribute = Attribute(id=PDL, value=1)
        stream = torch.cuda.current_stream().cuda_stream
        dims = (c_uint * 6)(*grid, 1, threads, 1, 1)
        config = Config(dims, shared, stream, ctypes.addressof(attribute), int(chained and self.about.major >= 9))
        pointers = (c_void_p * 1)(ctypes.addressof(params))
        checked(self.cuda, "cuLaunchKernelEx", byref(config), self.kernels[name], pointers, None)


class Chain:
    """The step of `decoder` on its weights and its cache."""

    def __init__(self, decoder):
        self.decoder, self.gpu, d = decoder, Gpu(), decoder
        self.group = d.heads // d.kv_heads

        def empty(*shape, dtype=torch.float32):
            return torch.zeros(*shape, dtype=dtype, device=d.device)

        self.x, self.qkv, self.logits = empty(d.hidden), empty(d.layers[0]["qkv"].shape[0]), empty(d.table.shape[0])
        self.attended, self.gated = empty(d.heads * d.dim, dtype=torch.bfloat16), empty(d.ffn, dtype=torch.bfloat16)
        self.best, self.arrived = empty(1, dtype=torch.long), empty(d.kv_heads, dtype=torch.int)
        self.parts = empty(d.kv_heads * self.splits(d.context) * self.group * (d.dim + 2))
        # The input of a projection has room for a multiple of what its warps take.
        inputs = max(self.slices(*shape)[2] for shape in self.shapes())
        depth = min(6, (self.gpu.shared - inputs) // (WARPS * 32 * 32))
        self.ring, self.attention_shared = depth * WARPS * 32 * 32, CACHE_DEPTH * CACHE_WARPS * 32 * 32
        self.attention_shared = max(self.attention_shared, CACHE_WARPS * self.group * (d.dim + 2) * 4)
        self.gpu.load(
            (Path(__file__).parent / "pdl.cu").read_text(),
            dict(DIM=d.dim, GROUP=self.group, WARPS=WARPS, DEPTH=depth, AHEAD=AHEAD, CACHE_DEPTH=CACHE_DEPTH),
        )
        self.gpu.reserve("gemv", self.ring + inputs)
        self.gpu.reserve("attention", self.attention_shared)

    def shapes(self):
        w = self.decoder.layers[0]
        return [weight.shape for weight in (w["qkv"], w["out"], w["gate_up"], w["down"], self.decoder.table)]

    def splits(self, length):
        return max(1, min(-(-length // SPLIT), self.gpu.multiprocessors // self.decoder.kv_heads))

    def slices(self, rows, columns):
        """Of a projection: warps that share a row, the pieces of each of their lanes, bytes of the input."""
        pairs = -(-rows // 2 // self.gpu.multiprocessors)

        def steps(slices):
            return -(-columns // 8 // (32 * slices))

        slices = min((s for s in (1, 2, 4, 8, 16) if s <= WARPS), key=lambda s: (-(-pairs // (WARPS // s)) * steps(s), s))
        return slices, steps(slices), slices * steps(slices) * 512

    def projection(self, name, weight, source, out, epilogue, norm=None, bias=None):
        rows, columns = weight.shape
        slices, steps, input_bytes = self.slices(rows, columns)
        pointers = [t.data_ptr() if t is not None else None for t in (weight, source, norm, bias, out, self.best)]
        params = Gemv(*pointers, rows // 2, columns // 8, slices, steps, epilogue, EPS)
        grid = min(self.gpu.multiprocessors, rows // 2)
        return name, "gemv", (grid, 1), WARPS * 32, self.ring + input_bytes, params

    def attention(self, w, length):
        d = self.decoder
        norms = [norm.data_ptr() for norm in d.head_norms] if d.head_norms else [None, None]
        pointers = [t.data_ptr() for t in (self.qkv, w["k"], w["v"], d.cos, d.sin)]
        pointers += norms + [t.data_ptr() for t in (d.pos, self.attended, self.parts, self.arrived)]
        grid = self.splits(length), d.kv_heads
        return "attention", "attention", grid, CACHE_WARPS * 32, self.attention_shared, Attention(*pointers, d.context, EPS)

    def launches(self, length):
        """Of a step: layer, what it is, kernel, grid, threads of a block, bytes of shared memory, parameters."""
        d = self.decoder
        pointers = [t.data_ptr() for t in (d.table, d.token, self.x, self.best)]
        yield None, "embed", "embed", (math.ceil(d.hidden / 256), 1), 256, 0, Embed(*pointers, d.hidden)
        for w in d.layers:
            yield w, *self.projection("qkv", w["qkv"], self.x, self.qkv, STORE, w["attn_norm"], w["bias"])
            yield w, *self.attention(w, length)
            yield w, *self.projection("out", w["out"], self.attended, self.x, RESIDUAL)
            yield w, *self.projection("gate_up", w["gate_up"], self.x, self.gated, GATE, w["mlp_norm"])
            yield w, *self.projection("down", w["down"], self.gated, self.x, RESIDUAL)
        yield None, *self.projection("logits", d.table, self.x, self.logits, LOGITS, d.norm)

    def step(self, length):
        for layer, what, *launch in self.launches(length):
            self.gpu.launch(*launch, chained=what != "embed")

    def token(self):
        return ~self.best.item() & 0xFFFFFFFF

    def wrong(self, expected, run):
        """Why the step that `run` runs does not give the `expected` logits, or None."""
        self.logits.fill_(math.nan)
        run()
        found = error(self.logits, expected)
        if not found <= TOLERANCE:
            return f"relative error {found:.2e} of its logits"
        return None if self.token() == self.logits.argmax().item() else "its token does not have the largest logit"


def error(found, expected):
    expected = expected.flatten().float()
    return ((found.flatten().float() - expected).norm() / expected.norm()).item()


def kernel_errors(chain, length):
    """Relative error of every kernel of a step on the inputs that it had, one after another: the largest of each over the layers."""
    d, worst = chain.decoder, {}
    for w, what, *launch in chain.launches(length):
        x, qkv, attended, gated = chain.x[None].clone(), chain.qkv[None], chain.attended[None].float(), chain.gated[None].float()
        expected, out = {
            "embed": lambda: (d.table[d.token], chain.x),
            "qkv": lambda: (d.qkv(w, x), chain.qkv),
            "attention": lambda: (d.attend(w, qkv, length), chain.attended),
            "out": lambda: (x + attended @ w["out"].float().T, chain.x),
            "gate_up": lambda: (d.gated(w, x), chain.gated),
            "down": lambda: (x + gated @ w["down"].float().T, chain.x),
            "logits": lambda: (d.normed(x, d.norm) @ d.table.float().T, chain.logits),
        }[what]()
        rows = [w[name][0, :, d.pos].clone() for name in ("k", "v")] if what == "attention" else []
        for name in ("k", "v") if rows else ():
            w[name][0, :, d.pos] = math.nan
        chain.gpu.launch(*launch, chained=False)
        errors = [error(out, expected)] + [error(w[name][0, :, d.pos], row) for name, row in zip(("k", "v"), rows)]
        worst[what] = max([worst.get(what, 0.0), *(e if e == e else math.inf for e in errors)])
    return worst
