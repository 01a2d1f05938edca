"""Each example runs as a program and without a warning."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipework import atomic

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_has_a_test() -> None:
    tried = ["batching_web", "data_loader", "decoded_frames", "fastapi_model", "image_steps", "job_runner"]
    tried += ["printing_workers", "pytest_forked", "query_rows", "stream_upload", "streaming_web", "tool_server"]
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == tried


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


def test_data_loader() -> None:
    out = run("data_loader.py", "40")
    assert re.fullmatch(r"40 batches used, a mean of 0\.08\d\d, 4 loaders killed, [0-4] batches loaded again\n", out)


def test_streaming_web() -> None:
    out = run("streaming_web.py", "3", "48")
    counts = re.fullmatch(
        r"48 browsers at 3 web workers, 48 of them got the right words\n"
        r"(\d+) answers whole, 8 browsers left, 0 answers cut off\n"
        r"(\d+) answers ended with an error, (\d+) ms after the model was killed\n"
        r"(\d+) words made, (\d+) of them read\n",
        out,
    )
    assert counts is not None, out
    whole, failed, late, made, read = map(int, counts.groups())
    assert whole + failed == 40 and 1 <= failed <= 16, "what the model had in hand fails, and all else goes on"
    assert late < 2000, out
    # Browsers that leave ask for 100,000 words each.
    assert made - read < 1000, "the model works although no caller waits"


def test_decoded_frames() -> None:
    out = run("decoded_frames.py")
    counts = re.fullmatch(r"120 frames, 120 of them right, by (\d+) workers; 3 were killed\nmemory for (\d+) frames\n", out)
    assert counts is not None, out
    assert int(counts[1]) > 1, "all workers get frames"
    assert int(counts[2]) < 20, "a freed frame's memory is used for the next"


def test_image_steps() -> None:
    out = run("image_steps.py")
    pids = re.fullmatch(
        r"invert: 8294400 bytes, by process (\d+)\nflip: 8294400 bytes, by process (\d+)\nkilled on the way: 1\n", out
    )
    assert pids is not None, out


def test_job_runner() -> None:
    out = run("job_runner.py", "40", "2")
    refused = "refused: ValueError: a job without a text\n"
    assert out == "40 jobs done, 40 of them right; 4 workers were killed\n" + refused


def test_fastapi_model() -> None:
    out = run("fastapi_model.py", "4", "60")
    counts = re.fullmatch(
        r"60 browsers at (\d) web workers, 60 of them got the right words\n"
        r"(\d+) words in \d+ runs of a model that was killed once, ([\d.]+) words each\n"
        r"\d+ words/s; the model ended with status 0\n",
        out,
    )
    assert counts is not None, out
    assert int(counts[1]) > 1, "the kernel deals connections out"
    assert 12 + 48 * 40 <= int(counts[2]) <= 12 + 48 * 40 + 64, "what a killed model had begun is begun again, and no more"
    assert float(counts[3]) > 1.5, "steps are made by the batch"


TESTS = """
import os, signal

def test_good():
    os.system("echo from a shell")

def test_bad():
    os.write(1, b"printed before")
    assert "this" == "that"

def test_crash():
    os.kill(os.getpid(), signal.SIGKILL)

def test_exit():
    os._exit(3)
"""


@pytest.mark.parametrize("capture", ["fd", "no"])
def test_pytest_forked(capture: str, tmp_path: Path) -> None:
    (tmp_path / "test_crashes.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_forked", "-p", "no:cacheprovider", f"--capture={capture}", "-q"]
    folders = [str(EXAMPLES), str(EXAMPLES.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "3 failed, 1 passed" in done.stdout, done.stdout
    for text in ("assert 'this' == 'that'", "printed before", "ended with status -9", "ended with status 3"):
        assert text in done.stdout, done.stdout


@pytest.mark.long("a gigabyte")
def test_query_rows() -> None:
    """A gigabyte, in parts of 60 KB."""
    out = run("query_rows.py")
    assert out.startswith('refused: near "nothing": syntax error\n1073741 rows in ')
    grown = re.search(r"memory grew by (-?\d+) KiB in the client, by (-?\d+) KiB in the server\n", out)
    assert grown is not None, out
    assert max(map(int, grown.groups())) < 4096, out


def test_stream_upload() -> None:
    assert run("stream_upload.py", "20000").startswith("20000 rows in ")


def test_tool_server_works_on_a_socket() -> None:
    """As Node starts its children."""
    near, far = socket.socketpair()
    with near, far:
        command = [sys.executable, str(EXAMPLES / "tool_server.py"), "--serve"]
        with far, subprocess.Popen(command, stdin=far.fileno(), stdout=far.fileno()) as server:
            far.close()
            near.sendall(b'{"id": 1, "method": "add", "params": [2, 40]}\n{"id": 2, "method": "no", "params": []}\n')
            with atomic.Reader(near.dup().detach(), mixed=True) as reader:
                line, first, second = (reader.next_item(timeout=60) for _ in range(3))
                assert isinstance(line, atomic.Line) and "this line was to be removed" in line.text
                assert isinstance(first, atomic.Message) and json.loads(first.data)["result"] == 42
                assert isinstance(second, atomic.Message) and "error" in json.loads(second.data)
                near.shutdown(socket.SHUT_WR)
                assert list(reader) == []
        assert server.returncode == 0


def test_tool_server_on_a_terminal_answers_in_lines(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        command = [sys.executable, str(EXAMPLES / "tool_server.py"), "--serve"]
        subprocess.run(command, input=b'{"id": 1, "method": "add", "params": [2, 40]}\n', stdout=file, check=True, timeout=60)
    printed, answer = out.read_text().splitlines()
    assert "this line was to be removed" in printed and json.loads(answer)["result"] == 42


def test_tool_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("tool_server.py").startswith("2 + 40 = 42\n")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import tool_server

    with tool_server.Host() as host:
        assert [host.call("add", i, 1) for i in range(200)] == list(range(1, 201))
        assert host.printed == ["DEBUG: in add(), and this line was to be removed"] * 200
        with pytest.raises(RuntimeError, match="KeyError"):
            host.call("no such tool")
