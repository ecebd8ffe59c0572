"""Many clients at a time: load.py URL PID [SECONDS [CLIENTS [GRACE]]]

Each greedy answer has to be the one that its prompt has alone, while a tenth of the clients leave
in the middle of an answer and others send what is malformed, slow or too large. The memory of the
process has to stay, and SIGTERM under load has to end it in the grace time.
"""

import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

ADDRESS = urlsplit(sys.argv[1])
PID = int(sys.argv[2])
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 5
CLIENTS = int(sys.argv[4]) if len(sys.argv) > 4 else 32
GRACE = float(sys.argv[5]) if len(sys.argv) > 5 else 30
SLOW = b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
PROMPTS = [f"{word} {number}" for word in ["the cat sat on", "one two three"] for number in range(8)]

lock = threading.Lock()
ending = threading.Event()
wrong, first_tokens, gaps, rates = [], [], [], []
counts = {"answers": 0, "left": 0, "refused": 0, "hostile": 0}


def count(what):
    with lock:
        counts[what] += 1


def connect():
    return http.client.HTTPConnection(ADDRESS.hostname, ADDRESS.port, timeout=60)


def stream(prompt, leave_after=None):
    """The text of an answer and the times of its pieces; None for one that has to come again."""
    connection = connect()
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "stream": True}
    start = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status == 429:
        connection.close()
        return None
    assert response.status == 200, response.read()
    text, times = "", []
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        choice = json.loads(line[6:])["choices"][0]
        text += choice["text"]
        times.append(time.monotonic() - start)
        if leave_after is not None and len(times) >= leave_after:
            connection.close()
            return None
    connection.close()
    return text, times


def client(number, alone):
    draw = random.Random(number)
    written, begun = 0, time.monotonic()
    while not ending.is_set():
        prompt = draw.choice(PROMPTS)
        leaves = draw.random() < 0.1
        try:
            answer = stream(prompt, draw.randrange(1, 6) if leaves else None)
        except (AssertionError, OSError, ValueError, http.client.HTTPException) as error:
            if not ending.is_set():
                with lock:
                    wrong.append(repr(error))
            return
        if answer is None:
            count("left" if leaves else "refused")
            time.sleep(0 if leaves else 0.05)
            continue
        text, times = answer
        count("answers")
        written += len(times)
        with lock:
            if text != alone[prompt]:
                wrong.append((prompt, text, alone[prompt]))
            first_tokens.append(times[0])
            gaps.extend(after - before for before, after in zip(times, times[1:]))
    with lock:
        rates.append(written / (time.monotonic() - begun))


def hostile():
    """Bodies that are no requests, and connections that say little."""
    slow = []
    while not ending.is_set():
        for body in [b"{", b"\xff" * 99, b"[" * 9999, b'{"prompt": 3}', b'{"prompt": "' + b"a" * (5 << 20) + b'"}']:
            try:
                connection = connect()
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                status = connection.getresponse().status
                if not 400 <= status < 500:
                    with lock:
                        wrong.append((body[:99], status))
            except (OSError, http.client.HTTPException):
                pass  # A body that is refused may not be read to its end.
            connection.close()
            count("hostile")
        for head in [b"GET / HTTP/1.1\r\n", SLOW, b"\0" * 99]:
            try:
                connection = socket.create_connection((ADDRESS.hostname, ADDRESS.port))
                connection.sendall(head)
                slow.append(connection)
            except OSError:
                return  # The server has ended.
        while len(slow) > 30:
            slow.pop(0).close()
        time.sleep(0.1)


def memory():
    with open(f"/proc/{PID}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def percentile(values, share):
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


alone = {prompt: stream(prompt)[0] for prompt in PROMPTS}
threads = [threading.Thread(target=client, args=(number, alone), daemon=True) for number in range(CLIENTS)]
threads.append(threading.Thread(target=hostile, daemon=True))
for thread in threads:
    thread.start()
time.sleep(SECONDS / 3)
before = memory()
time.sleep(2 * SECONDS / 3)
after = memory()
os.kill(PID, signal.SIGTERM)
ending.set()
start = time.monotonic()
while time.monotonic() - start < GRACE + 5:
    try:
        # A child of another process stays as a zombie.
        with open(f"/proc/{PID}/stat") as stat:
            if stat.read().rsplit(") ", 1)[1][0] == "Z":
                break
    except FileNotFoundError:
        break
    time.sleep(0.05)
took = time.monotonic() - start
for thread in threads:
    thread.join(10)
print(counts, f"ended in {took:.1f} s, memory {before} -> {after} kB")
print(f"first token p50 {percentile(first_tokens, 0.5):.1f} ms, p99 {percentile(first_tokens, 0.99):.1f} ms")
print(f"token p50 {percentile(gaps, 0.5):.2f} ms, p99 {percentile(gaps, 0.99):.2f} ms")
mean = sum(rates) / len(rates)
print(f"{sum(rates):.1f} tokens/s, {mean:.2f} a client; the slowest has {min(rates) / mean:.2f} of the mean")
assert not wrong, wrong[:3]
assert counts["answers"] > 0 and counts["left"] > 0 and counts["hostile"] > 0, counts
assert after < 1.1 * before + 8192, (before, after)
assert took < GRACE + 1, took
