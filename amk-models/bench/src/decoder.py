"""A decode step in PyTorch: bf16, batch 1, random weights, fused q/k/v and gate/up. In f32 it is the reference of the other peers."""
import torch
import torch.nn.functional as F

EPS = 1e-5


def linear(x, weight, bias=None):
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


class Decoder:
    def __init__(self, dims, head_norms, bias, context, device="cuda"):
        def weight(*shape):
            return (torch.randn(*shape, device=device) * 0.02).bfloat16()

        def norm(n):
            return (1 + torch.randn(n, device=device) * 0.1).bfloat16()

        d = dims
        self.hidden, self.heads, self.kv_heads, self.dim = d["HIDDEN"], d["HEADS"], d["KV_HEADS"], d["HEAD_DIM"]
        self.ffn, self.context, self.device = d["FFN"], context, device
        rows = (self.heads + 2 * self.kv_heads) * self.dim
        self.head_norms = (norm(self.dim), norm(self.dim)) if head_norms else None
        self.table = weight(d["VOCAB"], self.hidden)
        self.norm = norm(self.hidden)
        cache = (1, self.kv_heads, context, self.dim)
        self.layers = [
            {
                "attn_norm": norm(self.hidden),
                "qkv": weight(rows, self.hidden),
                "bias": weight(rows) if bias else None,
                "out": weight(self.hidden, self.heads * self.dim),
                "mlp_norm": norm(self.hidden),
                "gate_up": weight(2 * self.ffn, self.hidden),
                "down": weight(self.hidden, self.ffn),
                "k": torch.randn(cache, device=device, dtype=torch.bfloat16),
                "v": torch.randn(cache, device=device, dtype=torch.bfloat16),
            }
            for _ in range(d["LAYERS"])
        ]
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.pos = torch.zeros(1, dtype=torch.long, device=device)
        freqs = 500000.0 ** (-torch.arange(0, self.dim, 2, device=device).float() / self.dim)
        angles = torch.outer(torch.arange(context, device=device).float(), freqs)
        self.cos = torch.cat([angles.cos()] * 2, -1).bfloat16()
        self.sin = torch.cat([angles.sin()] * 2, -1).bfloat16()

    def normed(self, x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), EPS)

    def rotate(self, x):
        cos, sin = self.cos[self.pos][:, None, :].to(x.dtype), self.sin[self.pos][:, None, :].to(x.dtype)
        half = self.dim // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def qkv(self, w, x):
        return linear(self.normed(x, w["attn_norm"]), w["qkv"], w["bias"])

    def attend(self, w, qkv, length):
        """Over a cache of `length` positions, the step's own with them."""
        q, k, v = qkv.view(1, -1, self.dim).split([self.heads, self.kv_heads, self.kv_heads], 1)
        if self.head_norms:
            q, k = self.normed(q, self.head_norms[0]), self.normed(k, self.head_norms[1])
        for cache, new in (w["k"], self.rotate(k)), (w["v"], v):
            cache.index_copy_(2, self.pos, new.view(1, self.kv_heads, 1, self.dim).to(cache.dtype))
        q = self.rotate(q).view(1, self.heads, 1, self.dim)
        keys, values = w["k"][:, :, :length].to(q.dtype), w["v"][:, :, :length].to(q.dtype)
        return F.scaled_dot_product_attention(q, keys, values, enable_gqa=True).reshape(1, -1)

    def gated(self, w, x):
        gate, up = linear(self.normed(x, w["mlp_norm"]), w["gate_up"]).chunk(2, -1)
        return F.silu(gate) * up

    def logits(self, length, dtype=torch.bfloat16):
        """Of one step at `pos`, which is `length - 1`."""
        x = self.table[self.token].to(dtype)
        for w in self.layers:
            x = x + linear(self.attend(w, self.qkv(w, x), length), w["out"])
            x = x + linear(self.gated(w, x), w["down"])
        return linear(self.normed(x, self.norm), self.table)

    def step(self, length):
        return self.logits(length).argmax(-1)
