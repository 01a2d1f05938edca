"""Each example does what it says, as a program and warning about nothing."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_tried() -> None:
    tried = {"batching_web.py", "printing_workers.py", "stream_upload.py", "tool_server.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tried


def test_printing_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("printing_workers.py", "2", "3").endswith(" printed lines from 2 workers, through one stdout\n")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import printing_workers

    results, printed = printing_workers.main(workers=4, numbers_each=10)
    assert sorted(results) == list(range(10**9, 10**9 + 40))
    assert all(math.prod(factors) == number for number, factors in results.items())
    lines = r"working on \d{10}|  found \d+, \d+ is left|a shell's word: the worker from \d{10} on is done"
    assert [line for line in printed if not re.fullmatch(lines, line)] == []
    divisions = sum(len(factors) - 1 for factors in results.values())
    assert 40 + 4 + divisions <= len(printed) <= 40 + 4 + divisions + 40


def test_batching_web() -> None:
    out = run("batching_web.py", "2", "200")
    assert out.startswith("200 requests answered, 200 of them right, by 2 web workers and a model that was killed once\n")
    each = re.search(r"([\d.]+) requests each", out)
    assert each is not None and float(each[1]) > 1.5, "requests are answered by the batch"


def test_stream_upload() -> None:
    assert run("stream_upload.py", "20000").startswith("20000 rows in ")


def test_tool_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("tool_server.py").startswith("2 + 40 = 42\n")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import tool_server

    with tool_server.Host() as host:
        assert [host.call("add", i, 1) for i in range(200)] == list(range(1, 201))
        assert host.printed == ["DEBUG: in add(), and this line was to be removed"] * 200
        with pytest.raises(RuntimeError, match="KeyError"):
            host.call("no such tool")
