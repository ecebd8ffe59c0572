"""Times a decode step of the same shapes in PyTorch: cuBLAS with fused projections in one CUDA graph, and torch.compile.

Reads {"models": [{"name", "dims", "head_norms", "positions"}], "compile"} from standard input; writes a line of JSON for each model and
position, times in microseconds. bf16, batch 1, random weights, from the embedding to the chosen token.
"""
import json
import sys

asked = json.load(sys.stdin)
try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("torch is not there")
if not torch.cuda.is_available():
    sys.exit("torch sees no GPU")

SAMPLES, WARM_UP = 50, 10


class Decoder:
    def __init__(self, dims, head_norms, context):
        def weight(*shape):
            return (torch.randn(*shape, device="cuda") * 0.02).bfloat16()

        def ones(n):
            return torch.ones(n, device="cuda", dtype=torch.bfloat16)

        d = dims
        self.hidden, self.heads, self.kv_heads, self.dim = d["HIDDEN"], d["HEADS"], d["KV_HEADS"], d["HEAD_DIM"]
        self.head_norms = (ones(self.dim), ones(self.dim)) if head_norms else None
        self.table = weight(d["VOCAB"], self.hidden)
        self.norm = ones(self.hidden)
        cache = (1, self.kv_heads, context, self.dim)
        self.layers = [
            {
                "attn_norm": ones(self.hidden),
                "qkv": weight((self.heads + 2 * self.kv_heads) * self.dim, self.hidden),
                "out": weight(self.hidden, self.heads * self.dim),
                "mlp_norm": ones(self.hidden),
                "gate_up": weight(2 * d["FFN"], self.hidden),
                "down": weight(self.hidden, d["FFN"]),
                "k": torch.randn(cache, device="cuda", dtype=torch.bfloat16),
                "v": torch.randn(cache, device="cuda", dtype=torch.bfloat16),
            }
            for _ in range(d["LAYERS"])
        ]
        self.token = torch.zeros(1, dtype=torch.long, device="cuda")
        self.pos = torch.zeros(1, dtype=torch.long, device="cuda")
        freqs = 500000.0 ** (-torch.arange(0, self.dim, 2, device="cuda").float() / self.dim)
        angles = torch.outer(torch.arange(context, device="cuda").float(), freqs)
        self.cos = torch.cat([angles.cos()] * 2, -1).bfloat16()
        self.sin = torch.cat([angles.sin()] * 2, -1).bfloat16()

    def rotate(self, x, cos, sin):
        half = self.dim // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def step(self, length):
        """One step over a cache of `length` positions, the step's own with them."""
        x = self.table[self.token]
        cos, sin = self.cos[self.pos][:, None, :], self.sin[self.pos][:, None, :]
        for w in self.layers:
            h = F.rms_norm(x, (self.hidden,), w["attn_norm"], 1e-5)
            q, k, v = F.linear(h, w["qkv"]).view(1, -1, self.dim).split([self.heads, self.kv_heads, self.kv_heads], 1)
            if self.head_norms:
                q = F.rms_norm(q, (self.dim,), self.head_norms[0], 1e-5)
                k = F.rms_norm(k, (self.dim,), self.head_norms[1], 1e-5)
            w["k"].index_copy_(2, self.pos, self.rotate(k, cos, sin).view(1, self.kv_heads, 1, self.dim))
            w["v"].index_copy_(2, self.pos, v.view(1, self.kv_heads, 1, self.dim))
            q = self.rotate(q, cos, sin).view(1, self.heads, 1, self.dim)
            a = F.scaled_dot_product_attention(q, w["k"][:, :, :length], w["v"][:, :, :length], enable_gqa=True)
            x = x + F.linear(a.reshape(1, -1), w["out"])
            h = F.rms_norm(x, (self.hidden,), w["mlp_norm"], 1e-5)
            gate, up = F.linear(h, w["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, w["down"])
        return F.linear(F.rms_norm(x, (self.hidden,), self.norm, 1e-5), self.table).argmax(-1)


def graphed(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def timed(replay):
    for _ in range(WARM_UP):
        replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(SAMPLES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    times.sort()
    return {"p10": times[SAMPLES // 10], "median": times[SAMPLES // 2], "p90": times[SAMPLES * 9 // 10]}


def compiled(decoder, length):
    torch._dynamo.reset()
    step = torch.compile(lambda: decoder.step(length), mode="max-autotune-no-cudagraphs", fullgraph=True)
    for _ in range(3):
        step()
    return graphed(step)


with torch.no_grad():
    for model in asked["models"]:
        decoder = Decoder(model["dims"], model["head_norms"], max(model["positions"]) + 1)
        for position in model["positions"]:
            decoder.pos.fill_(position)
            line = {"model": model["name"], "position": position, "cublas": None, "compiled": None}
            line["cublas"] = timed(graphed(lambda: decoder.step(position + 1)))
            if asked["compile"]:
                try:
                    line["compiled"] = timed(compiled(decoder, position + 1))
                except Exception as error:  # what a compiler may throw is not listed anywhere
                    print(f"torch.compile: {error}", file=sys.stderr)
            print(json.dumps(line), flush=True)
        del decoder
        torch.cuda.empty_cache()
