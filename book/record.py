"""Records three terminals: a worker is killed, and the next one answers. record.py [PIPEWORK]

Types SCENE into three shells, each on a terminal of its own, runs PIPEWORK there (the command in
target/debug unless another one is named), and writes what the terminals showed, and when, into
docs/kill.svg. That drawing plays by CSS alone, so that it also plays in the README on a forge.
Pauses of more than PAUSE seconds are cut short.
"""

from __future__ import annotations

import html
import os
import pty
import re
import select
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

WORK = """#!/bin/sh
echo "worker $PPID has it" >&2
sleep 5
tr a-z A-Z
"""
# The lines typed into each terminal, and the text that must appear before the next line is typed.
# `{}` is the number of the worker that has the call.
LEFT, RIGHT, BELOW = range(3)
SCENE = [
    (BELOW, "cat work", "A-Z\r\n$ "),
    (LEFT, "pipework serve -q calls -- ./work", "\n"),
    (RIGHT, "pipework serve -q calls -- ./work", "\n"),
    (BELOW, "pipework call --wait --retries 1 calls hello &", "worker "),
    (BELOW, "kill -9 {}; wait", "Done"),
]
KEY, PAUSE, END = 0.04, 1.4, 6.0  # seconds: between two keys, of a pause, of the last picture

# In characters: where each terminal stands, how wide and how high it is.
PANES = [(0, 0, 42, 4), (43, 0, 42, 4), (0, 4, 85, 11)]
TITLES = ["worker", "worker", "caller"]
WIDTH, HEIGHT, MARGIN = 8.4, 19, 14  # of a character, of a line, and around a terminal, in pixels
COLOURS = {"HELLO": "good", "Killed": "bad", "worker ": "soft"}


class Terminal:
    def __init__(self, folder: str, command: Path) -> None:
        self.shown: list[tuple[float, str]] = []  # when, and what
        self.shell, self.end = pty.fork()
        if self.shell == 0:
            os.chdir(folder)
            environment = {"PATH": f"{command.parent}:/usr/bin:/bin", "TERM": "dumb", "PS1": "$ ", "COLUMNS": "200"}
            os.execve("/bin/bash", ["bash", "--noprofile", "--norc", "-i"], environment)
        os.set_inheritable(self.end, False)

    def text(self) -> str:
        return "".join(text for _, text in self.shown)

    def leave(self) -> None:
        os.close(self.end)  # which ends the shell and its jobs by SIGHUP
        os.waitpid(self.shell, 0)


def record(command: Path) -> list[list[tuple[float, str]]]:
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        work = Path(folder) / "work"
        work.write_text(WORK)
        work.chmod(0o755)
        terminals = [Terminal(folder, command) for _ in PANES]

        def look(seconds: float) -> None:
            limit = time.monotonic() + seconds
            while (left := limit - time.monotonic()) > 0:
                for end in select.select([each.end for each in terminals], [], [], left)[0]:
                    [terminal] = [each for each in terminals if each.end == end]
                    terminal.shown.append((time.monotonic(), os.read(end, 65536).decode()))

        look(0.5)
        for place, line, text in SCENE:
            terminal, known = terminals[place], [len(each.text()) for each in terminals]
            line = line.format(*re.findall(r"worker (\d+) has it", "".join(each.text() for each in terminals)))
            for key in line:
                os.write(terminal.end, key.encode())
                look(KEY)
            look(0.3)
            os.write(terminal.end, b"\n")
            limit = time.monotonic() + 30
            while not any(text in each.text()[before:] for each, before in zip(terminals, known)):
                if time.monotonic() > limit:
                    raise SystemExit(f"record: {text!r} did not come: {[each.text() for each in terminals]}")
                look(0.1)
            look(0.8)
        for terminal in terminals:
            terminal.leave()
        return [terminal.shown for terminal in terminals]


def pieces(shown: list[list[tuple[float, str]]]) -> list[tuple[float, int, int, int, str]]:
    """A change of the screen: its time, terminal, line, column and text."""
    moments = sorted(moment for terminal in shown for moment, _ in terminal)
    at, now = {}, 0.0
    for before, moment in zip([moments[0], *moments], moments):
        now += min(moment - before, PAUSE)
        at[moment] = now
    found = []
    for place, terminal in enumerate(shown):
        line, column = 0, 0
        for moment, text in terminal:
            for piece in re.findall(r"\n|[^\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)):
                if piece == "\n":
                    line, column = line + 1, 0
                else:
                    found.append((at[moment], place, line, column, piece))
                    column += len(piece)
    return sorted(found)


def drawn(found: list[tuple[float, int, int, int, str]]) -> str:
    end = found[-1][0] + END
    edges = [(x * WIDTH + 2 * MARGIN * (x > 0), y * HEIGHT + (2 * MARGIN + WIDTH) * (y > 0)) for x, y, *_ in PANES]
    sizes = [(columns * WIDTH + 2 * MARGIN, lines * HEIGHT + 2 * MARGIN) for *_, columns, lines in PANES]
    sizes[BELOW] = (edges[RIGHT][0] + sizes[RIGHT][0], sizes[BELOW][1])
    width, height = (round(max(edge[n] + size[n] for edge, size in zip(edges, sizes))) for n in (0, 1))

    share = {moment: round(moment / end * 100, 2) for moment, *_ in found}
    names = {at: f"a{number}" for number, at in enumerate(sorted(set(share.values())))}
    rules = [f"@keyframes {name}{{0%,{at}%{{opacity:0}}{at + 0.01:.2f}%,to{{opacity:1}}}}.{name}{{animation-name:{name}}}"
             for at, name in names.items() if at]  # fmt: skip
    body = []
    for (x, y), (w, h), title in zip(edges, sizes, TITLES):
        body.append(f'<rect x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{w - 1:.1f}" height="{h - 1:.1f}" rx="8"/>'
                    f'<text class="title" x="{x + w - MARGIN:.1f}" y="{y + h - MARGIN:.1f}">{title}</text>')  # fmt: skip
    for moment, place, line, column, text in found:
        text, indent = text.strip(), len(text) - len(text.lstrip())
        if text:
            x = edges[place][0] + MARGIN + (column + indent) * WIDTH
            y = edges[place][1] + MARGIN + line * HEIGHT + 14
            colour = next((f" {colour}" for word, colour in COLOURS.items() if text.startswith(word)), "")
            size = f' textLength="{len(text) * WIDTH:.1f}"' if len(text) > 1 else ""
            body.append(f'<text class="{names[share[moment]]}{colour}" x="{x:.1f}" y="{y:.1f}"{size}>{html.escape(text, quote=False)}</text>')
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="about">',
        '<title id="about">Two workers serve a channel. The one that has a call is killed with kill -9; the other one gets the call and answers it.</title>',
        "<!-- Written by book/record.py from a real run. -->",
        "<style>",
        f"text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre;animation:{end:.2f}s linear infinite}}",
        "rect{fill:#0d1117;stroke:#30363d}.title{fill:#768390;text-anchor:end;animation:none}",
        ".good{fill:#56d364;font-weight:700}.bad{fill:#ff7b72;font-weight:700}.soft{fill:#79c0ff}",
        *rules,
        "@media(prefers-reduced-motion:reduce){text{animation:none}}",
        "</style>",
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/debug/pipework").resolve()
    (ROOT / "docs/kill.svg").write_text(drawn(pieces(record(command))))
