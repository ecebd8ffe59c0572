"""How fast a server writes: speed.py URL [CLIENTS,.. [TOKENS [ROUNDS]]]

Each number of clients runs as many greedy streams side by side, begun at the same time. Each round
prints a line, with medians over its streams.
"""

import asyncio
import json
import sys
import time
from statistics import median
from urllib.parse import urlsplit

ADDRESS = urlsplit(sys.argv[1])
CLIENTS = [int(clients) for clients in (sys.argv[2] if len(sys.argv) > 2 else "1,8,32").split(",")]
TOKENS = int(sys.argv[3]) if len(sys.argv) > 3 else 128
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 2


async def stream(number):
    """When the pieces of an answer came, in seconds from the request on."""
    reader, writer = await asyncio.open_connection(ADDRESS.hostname, ADDRESS.port)
    body = {"prompt": f"stream {number}", "max_tokens": TOKENS, "temperature": 0, "stream": True}
    body = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: amk\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    start, pieces = time.monotonic(), []
    status = await reader.readline()
    assert b" 200 " in status, status
    while (line := await reader.readline()).strip() != b"data: [DONE]":
        assert line, "the server closed the connection"
        if line.startswith(b"data: {"):
            pieces.append((time.monotonic() - start, line))
    writer.close()
    ended = [json.loads(line[6:])["choices"][0]["finish_reason"] for _, line in pieces]
    return [at for (at, _), reason in zip(pieces, ended) if reason is None]


async def measure(clients):
    start = time.monotonic()
    streams = await asyncio.gather(*(stream(number) for number in range(clients)))
    took = time.monotonic() - start
    written = sum(len(times) for times in streams)
    first = median(times[0] for times in streams)
    gaps = [(times[-1] - times[0]) / max(1, len(times) - 1) for times in streams]
    print(
        f"{clients:4} clients: {written / took:8.0f} tokens/s, {1000 * median(gaps):7.3f} ms a token"
        f" (worst {1000 * max(gaps):7.3f}), first after {1000 * first:6.1f} ms"
        f" (worst {1000 * max(times[0] for times in streams):6.1f}), {written / clients:.0f} each"
    )


async def main():
    for clients in CLIENTS:
        for _ in range(ROUNDS):
            await measure(clients)


asyncio.run(main())
