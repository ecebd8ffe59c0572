"""Draws a conversation of `amk chat` in a terminal: terminal.py AMK OUT.svg [MODEL]; needs tmux."""

import subprocess
import sys
import time
from html import escape

AMK, OUT, *MODEL = sys.argv[1:]
COLUMNS, LINES = 84, 19
COMMAND = [AMK, "chat", "-n", "60", "-t", "0", *(["-m", *MODEL] if MODEL else [])]
SAYS = ["What is a glacier?", "In one short sentence, please.", "/stats"]


def tmux(*arguments):
    return subprocess.run(["tmux", "-L", "terminal.py", *arguments], check=True, capture_output=True, text=True).stdout


def screen():
    return tmux("capture-pane", "-p", "-t", "chat").rstrip("\n").split("\n")


def settled():
    """The screen, once the last line is a prompt that waits."""
    while not screen()[-1].rstrip().endswith(">"):
        time.sleep(0.5)
    return screen()


def draw(lines):
    width, height = 8.4 * COLUMNS + 32, 19 * len(lines) + 32
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img">'
    yield "<title>A conversation with amk chat in a terminal</title>"
    yield '<rect width="100%" height="100%" rx="8" fill="#1c1f24"/>'
    yield '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="#d7dae0" xml:space="preserve">'
    for number, line in enumerate(lines):
        colour = ' fill="#7fb4ff"' if line.startswith(">") else ""
        yield f'<text x="16" y="{30 + 19 * number}"{colour}>{escape(line)}</text>'
    yield "</g></svg>"


tmux("new-session", "-d", "-s", "chat", "-x", str(COLUMNS), "-y", str(LINES * 3), *COMMAND)
try:
    for said in SAYS:
        settled()
        tmux("send-keys", "-t", "chat", "-l", said)
        tmux("send-keys", "-t", "chat", "Enter")
        time.sleep(1)
    lines = settled()[:-1]
finally:
    tmux("kill-session", "-t", "chat")
with open(OUT, "w") as file:
    file.write("\n".join(draw(lines)) + "\n")
