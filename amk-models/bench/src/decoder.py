"""A decode step and a prompt in PyTorch: bf16, random weights, fused q/k/v and gate/up. In f32 a step of one row is the reference of the
other peers.

Run by itself it compares prompts and steps of several rows with steps of one, on a CPU.
"""
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
        self.layers = [
            {
                "attn_norm": norm(self.hidden),
                "qkv": weight(rows, self.hidden),
                "bias": weight(rows) if bias else None,
                "out": weight(self.hidden, self.heads * self.dim),
                "mlp_norm": norm(self.hidden),
                "gate_up": weight(2 * self.ffn, self.hidden),
                "down": weight(self.hidden, self.ffn),
            }
            for _ in range(d["LAYERS"])
        ]
        self.pos = torch.zeros(1, dtype=torch.long, device=device)
        self.hold(1)
        freqs = 500000.0 ** (-torch.arange(0, self.dim, 2, device=device).float() / self.dim)
        angles = torch.outer(torch.arange(context, device=device).float(), freqs)
        self.cos = torch.cat([angles.cos()] * 2, -1).bfloat16()
        self.sin = torch.cat([angles.sin()] * 2, -1).bfloat16()

    def hold(self, rows):
        """Caches for so many sequences, and a token of each."""
        cache = (rows, self.kv_heads, self.context, self.dim)
        for w in self.layers:
            w.pop("k", None), w.pop("v", None)
            w["k"] = torch.randn(cache, device=self.device, dtype=torch.bfloat16)
            w["v"] = torch.randn(cache, device=self.device, dtype=torch.bfloat16)
        self.token = torch.zeros(rows, dtype=torch.long, device=self.device)

    def normed(self, x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), EPS)

    def rotate(self, x, positions):
        cos, sin = self.cos[positions][:, None, :].to(x.dtype), self.sin[positions][:, None, :].to(x.dtype)
        half = self.dim // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def qkv(self, w, x):
        return linear(self.normed(x, w["attn_norm"]), w["qkv"], w["bias"])

    def turned(self, w, qkv, positions):
        """Queries, keys and values of each row, normed and rotated."""
        q, k, v = qkv.view(len(qkv), -1, self.dim).split([self.heads, self.kv_heads, self.kv_heads], 1)
        if self.head_norms:
            q, k = self.normed(q, self.head_norms[0]), self.normed(k, self.head_norms[1])
        return self.rotate(q, positions), self.rotate(k, positions), v

    def attend(self, w, qkv, length):
        """Over caches of `length` positions, the step's own with them."""
        q, k, v = self.turned(w, qkv, self.pos)
        rows = len(q)
        for cache, new in (w["k"], k), (w["v"], v):
            cache.index_copy_(2, self.pos, new.view(rows, self.kv_heads, 1, self.dim).to(cache.dtype))
        q = q.view(rows, self.heads, 1, self.dim)
        keys, values = w["k"][:, :, :length].to(q.dtype), w["v"][:, :, :length].to(q.dtype)
        return F.scaled_dot_product_attention(q, keys, values, enable_gqa=True).reshape(rows, -1)

    def attend_prompt(self, w, qkv):
        """Each row over the rows before it, which become the beginning of the first cache."""
        q, k, v = (x.transpose(0, 1) for x in self.turned(w, qkv, torch.arange(len(qkv), device=self.device)))
        for cache, new in (w["k"], k), (w["v"], v):
            cache[0, :, :len(qkv)] = new.to(cache.dtype)
        a = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)
        return a[0].transpose(0, 1).reshape(len(qkv), -1)

    def gated(self, w, x):
        gate, up = linear(self.normed(x, w["mlp_norm"]), w["gate_up"]).chunk(2, -1)
        return F.silu(gate) * up

    def last_layer(self, tokens, attend, dtype):
        x = self.table[tokens].to(dtype)
        for w in self.layers:
            x = x + linear(attend(w, self.qkv(w, x)), w["out"])
            x = x + linear(self.gated(w, x), w["down"])
        return x

    def head(self, x):
        return linear(self.normed(x, self.norm), self.table)

    def logits(self, length, dtype=torch.bfloat16):
        """Of one step at `pos`, which is `length - 1`, for each row."""
        return self.head(self.last_layer(self.token, lambda w, qkv: self.attend(w, qkv, length), dtype))

    def prompt_logits(self, tokens, dtype=torch.bfloat16):
        """Of the last token of a prompt."""
        return self.head(self.last_layer(tokens, self.attend_prompt, dtype)[-1:])

    def step(self, length):
        return self.logits(length).argmax(-1)

    def prompt(self, tokens):
        return self.prompt_logits(tokens).argmax(-1)


def check(length=9, rows=3):
    """Whether a prompt has the logits of its steps, and each of several rows those that it has alone; in f32, but for bf16 caches."""
    dims = {"VOCAB": 50, "HIDDEN": 32, "LAYERS": 2, "HEADS": 4, "KV_HEADS": 2, "HEAD_DIM": 16, "FFN": 48}
    for head_norms, bias in (False, False), (True, True):
        decoder = Decoder(dims, head_norms, bias, length, "cpu")
        texts = torch.randint(dims["VOCAB"], (rows, length))
        decoder.hold(rows)
        for position in range(length):
            decoder.pos.fill_(position)
            decoder.token.copy_(texts[:, position])
            together = decoder.logits(position + 1, torch.float32)
        for text, expected in zip(texts, together):
            decoder.hold(1)
            prompt = decoder.prompt_logits(text, torch.float32)[0]
            assert torch.allclose(prompt, expected, rtol=2e-2, atol=2e-2 * expected.abs().max().item()), (prompt, expected)
            assert (prompt - expected).abs().max() < 0.2 * (together[0] - together[1]).abs().max()


if __name__ == "__main__":
    with torch.no_grad():
        check()
    print("a prompt and rows agree with steps")
