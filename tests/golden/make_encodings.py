"""The values in kernels/src/encoding/tests.rs, by gguf-py 0.19.0 (pip install gguf==0.19.0).

Prints for each encoding the first and the last value of a decoded block and the FNV-1a hash of all
values' bytes, then the hash of the blocks that a ramp of 256 values is encoded to.
"""

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

# Bytes of a block and the binary16 values written over it, by their first byte.
BLOCKS = {
    "Q4_0": (18, {0: 0.37}),
    "Q4_1": (20, {0: 0.37, 2: -1.9}),
    "Q5_0": (22, {0: 0.37}),
    "Q5_1": (24, {0: 0.37, 2: -1.9}),
    "Q8_0": (34, {0: 0.37}),
    "Q4_K": (144, {0: 0.37, 2: -1.9}),
    "Q5_K": (176, {0: 0.37, 2: -1.9}),
    "Q6_K": (210, {208: 0.37}),
    "IQ4_NL": (18, {0: 0.37}),
    "MXFP4": (17, {}),
}
ENCODED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]


def fnv(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:#018x}"


def block(length: int, halves: dict[int, float]) -> np.ndarray:
    data = bytearray((31 * i * i + 73 * i + 11) % 256 for i in range(length))
    for at, value in halves.items():
        data[at : at + 2] = np.float16(value).tobytes()
    return np.frombuffer(bytes(data), np.uint8)


for name, (length, halves) in BLOCKS.items():
    values = dequantize(block(length, halves), Type[name]).astype(np.float32)
    print(name, repr(values[0]), repr(values[-1]), fnv(values.tobytes()))

ramp = np.array([(i * 37 % 256 - 100) / 64 for i in range(256)], np.float32)
for name in ENCODED:
    print(name, fnv(quantize(ramp, Type[name]).tobytes()))
