"""Times steps of the same shapes by their peers on the same GPU: PyTorch over cuBLAS with fused projections in one CUDA graph, a CUDA
graph of kernels chained by programmatic dependent launch, and torch.compile. The first has several rows and prompts, too.

Reads {"models": [{"name", "dims", "head_norms", "bias", "steps"}], "peers"} from standard input, a step as {"decode": {"rows", "position"}}
or {"prompt": {"tokens", "position"}}; writes a line of JSON for each model and step, times in microseconds, and why a peer has none. bf16, random
weights, from the embedding to the chosen tokens.

With --check it compares every kernel of the chain with PyTorch instead, then whole steps.
"""
import json
import sys

try:
    import torch
except ImportError:
    sys.exit("torch is not there")

from decoder import Decoder
from pdl import Chain, error, kernel_errors

SAMPLES, WARM_UP = 50, 10


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


class Decode:
    """A step of sequences that are at the same position."""

    def __init__(self, rows, position):
        self.rows, self.position, self.context = rows, position, position + 1

    def begin(self, decoder):
        decoder.pos.fill_(self.position)
        return lambda: decoder.step(self.context)


class Prompt:
    """A step of all tokens of a prompt."""

    def __init__(self, tokens, position=0):
        self.rows, self.tokens, self.position, self.context = 1, tokens, position, tokens

    def begin(self, decoder):
        if self.position:
            raise RuntimeError("its prompts begin at position 0")
        tokens = torch.zeros(self.tokens, dtype=torch.long, device=decoder.device)
        return lambda: decoder.prompt(tokens)


STEPS = {"decode": Decode, "prompt": Prompt}


def cublas(decoder, step):
    return graphed(step.begin(decoder))


def pdl(decoder, step):
    step.begin(decoder)
    decoder.chain = getattr(decoder, "chain", None) or Chain(decoder)
    replay = graphed(lambda: decoder.chain.step(step.context))
    why = decoder.chain.wrong(decoder.logits(step.context, torch.float32), replay)
    if why:
        raise RuntimeError(why)
    return replay


def compiled(decoder, step):
    torch._dynamo.reset()
    run = torch.compile(step.begin(decoder), mode="max-autotune-no-cudagraphs", fullgraph=True)
    for _ in range(3):
        run()
    return graphed(run)


PEERS = {"cublas": cublas, "pdl": pdl, "compiled": compiled}


def times(asked):
    for model in asked["models"]:
        steps = [(what, STEPS[kind](**of)) for what in model["steps"] for kind, of in what.items()]
        context = max(step.context for _, step in steps)
        decoder = Decoder(model["dims"], model["head_norms"], model["bias"], context)
        for what, step in steps:
            line = {"model": model["name"], "step": what, "missing": {}}
            for peer in asked["peers"]:
                try:
                    if len(decoder.token) != step.rows:
                        decoder.chain = None  # it holds the caches
                        decoder.hold(step.rows)
                    if peer == "pdl" and (step.rows > 1 or isinstance(step, Prompt)):
                        raise RuntimeError("the chain computes one row")
                    line[peer] = timed(PEERS[peer](decoder, step))
                except Exception as problem:  # what a compiler may throw is not listed anywhere
                    line["missing"][peer] = str(problem)
            print(json.dumps(line), flush=True)
        decoder.chain = None  # it holds the decoder
        del decoder
        torch.cuda.empty_cache()


# Heads of 64 and of 128 elements; 3, 2, 4, 7 and 8 queries a key head; columns that do and do not fill a warp.
CHECKED = [
    ((576, 9, 3, 64, 1536), False, False),
    ((1024, 16, 8, 128, 3072), True, False),
    ((4096, 32, 8, 128, 14336), False, False),
    ((896, 14, 2, 64, 4864), False, True),
    ((2048, 32, 4, 64, 5632), False, False),
]


def check(positions=(0, 1, 127, 300, 5000), replays=200):
    """Kernels one at a time, whole steps, then graphs whose every replay must give the same bits. Whether all is well."""
    well = True
    for shape, head_norms, bias in CHECKED:
        names = "HIDDEN", "HEADS", "KV_HEADS", "HEAD_DIM", "FFN"
        decoder = Decoder({**dict(zip(names, shape)), "VOCAB": 32002, "LAYERS": 3}, head_norms, bias, max(positions) + 1)
        chain = Chain(decoder)
        for position in positions:
            decoder.pos.fill_(position)
            worst = kernel_errors(chain, position + 1)
            serial, expected = chain.logits.clone(), decoder.logits(position + 1, torch.float32)
            print(shape, position, {what: f"{worst[what]:.1e}" for what in worst}, flush=True)
            replay = graphed(lambda: chain.step(position + 1))
            why = chain.wrong(expected, replay)
            other = 0
            for _ in range(replays):
                replay()
                other += not torch.equal(chain.logits, serial)
            told = why or f"step {error(chain.logits, expected):.1e}, torch in bf16 {error(decoder.logits(position + 1), expected):.1e}"
            print(f"  {told}, {other} of {replays} replays have other bits", flush=True)
            well &= not why and not other and max(worst.values()) < 1e-2
    return well


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    with torch.no_grad():
        if sys.argv[1:] == ["--check"]:
            sys.exit(0 if check() else "the chain is wrong")
        times(json.load(sys.stdin))
