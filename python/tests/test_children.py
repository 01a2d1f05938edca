"""Commands that print text and send results through the same stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pipework
import pytest
from pipework import Completed, Workers, atomic, run
from processes import in_time
from support import SOON


def program(text: str, *arguments: str) -> list[str]:
    head = "import os, sys, time, pipework.atomic\nsend = pipework.atomic.Writer.stdout(mixed=True).send\n"
    return [sys.executable, "-c", head + text, *arguments]


def test_run_separates_messages_and_lines() -> None:
    command = program("send(bytes(100_000)); os.system('echo a shell; printf no-newline'); send(b'2'); sys.exit(3)")
    done = run(command, timeout=SOON)
    assert done == Completed(command, 3, [bytes(100_000), b"2"], ["a shell", "no-newline"], [])
    with pytest.raises(subprocess.CalledProcessError) as raised:
        run(command, timeout=SOON, check=True)
    assert (raised.value.returncode, raised.value.output) == (3, "a shell\nno-newline")


def test_run_takes_the_options_of_popen(tmp_path: Path) -> None:
    done = run(["sh", "-c", "pwd; echo $WORD; cat"], timeout=SOON, cwd=tmp_path, env={"WORD": "said"}, stdin=subprocess.DEVNULL)
    assert done.lines == [str(tmp_path), "said"]
    with pytest.raises(FileNotFoundError):
        run(["no such command"])


def test_run_feeds_stdin_and_reads_stderr_while_it_reads_stdout() -> None:
    # Each is longer than a pipe, and the command finishes none before the others.
    both = "for line in sys.stdin.buffer: sys.stderr.buffer.write(line); sys.stdout.buffer.write(line)"
    text = b"".join(b"%d\n" % number for number in range(50_000))
    done = run(program(both), input=text, stderr=subprocess.PIPE, timeout=SOON)
    assert done.stderr == text and "\n".join(done.lines) + "\n" == text.decode()
    done = run(program("sys.stderr.write(sys.stdin.read())"), input="caf\xe9", stderr=subprocess.PIPE, text=True, timeout=SOON)
    assert done.stderr == "caf\xe9"


def test_run_closes_unused_stdin_and_ignores_a_child_that_does_not_read() -> None:
    assert run(program("assert not sys.stdin.read()"), stdin=subprocess.PIPE, timeout=SOON).returncode == 0
    assert run(["true"], input=bytes(1_000_000), timeout=SOON).returncode == 0


def test_run_refuses_input_that_does_not_fit_the_options() -> None:
    with pytest.raises(TypeError, match="input is text if"):
        run(["cat"], input="text", timeout=SOON)
    with pytest.raises(TypeError, match="input is text if"):
        run(["cat"], input=b"bytes", text=True, timeout=SOON)
    with pytest.raises(ValueError, match="cannot be used together"):
        run(["cat"], input=b"", stdin=subprocess.DEVNULL, timeout=SOON)


def test_run_error_has_the_stderr_of_the_child() -> None:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        run(["sh", "-c", "echo why >&2; exit 1"], stderr=subprocess.PIPE, check=True, timeout=SOON)
    assert raised.value.stderr == b"why\n"
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sh", "-c", "echo why >&2; exec sleep 60"], stderr=subprocess.PIPE, timeout=0.2)


def test_run_kills_the_child_after_its_timeout() -> None:
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sleep", "60"], timeout=0.1)
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sh", "-c", "exec >&-; exec sleep 60"], timeout=0.1)
    assert time.monotonic() - began < SOON


def test_run_reports_the_torn_message_of_a_killed_child() -> None:
    done = run(program("import signal; signal.setitimer(signal.ITIMER_REAL, 0.05)\nwhile True: send(bytes(1_000_000))"), timeout=SOON)
    assert done.returncode == -signal.SIGALRM
    assert all(message == bytes(1_000_000) for message in done.messages) and len(done.lost) <= 1


def test_workers_send_at_the_same_time() -> None:
    commands = [program("os.write(1, f'working on {sys.argv[1]}\\n'.encode()); send(sys.argv[1].encode() * 10_000)", each) for each in "abc"]
    with Workers(*commands) as workers:
        items = list(workers)
    assert sorted(item.text for item in items if isinstance(item, atomic.Line)) == [f"working on {each}" for each in "abc"]
    messages = [item for item in items if isinstance(item, atomic.Message)]
    assert sorted(message.data for message in messages) == [each * 10_000 for each in (b"a", b"b", b"c")]
    assert {message.writer.pid for message in messages} == {child.pid for child in workers.children}
    assert workers.returncodes == [0, 0, 0]


def test_workers_work_in_asyncio() -> None:
    async def main() -> list[bytes]:
        async with Workers(*(program("send(sys.argv[1].encode())", each) for each in "abc")) as workers:
            beside = asyncio.create_task(asyncio.sleep(0))
            came = [item.data async for item in workers if isinstance(item, atomic.Message)]
            await beside
        assert workers.returncodes == [0, 0, 0]
        return came

    assert sorted(in_time(main())) == [b"a", b"b", b"c"]


def test_leaving_workers_ends_the_children(monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    # One that ends when it is asked to has the patience that there is: it may be slow.
    for program, patience, ended_by in (("echo ready; exec sleep 60", SOON, signal.SIGTERM), (stubborn, 0.2, signal.SIGKILL)):
        monkeypatch.setattr("pipework._children._PATIENCE", patience)
        with Workers(["sh", "-c", program]) as workers:
            assert next(iter(workers)) == atomic.Line(b"ready\n")
        assert workers.returncodes == [-ended_by]
    with pytest.raises(FileNotFoundError), Workers(["sleep", "60"], ["no such command"]) as workers:
        pass


GUARDED = """
import ctypes, os, sys
from pipework import guard_stdout

libc = ctypes.CDLL(None)
print("before")
with guard_stdout() as stdout:
    print("a print")
    os.write(1, b"a write\\n")
    libc.printf(b"from C\\n")
    os.system("echo a child")
    print('{"id": 1}', file=stdout)
    stdout.buffer.write("\\N{SNOWMAN}\\n".encode())
print("after")
"""


def test_guard_stdout_sends_other_output_to_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, timeout=SOON, check=True)
    assert done.stdout.decode().splitlines() == ["before", '{"id": 1}', "\N{SNOWMAN}", "after"]
    assert sorted(done.stderr.decode().splitlines()) == ["a child", "a print", "a write", "from C"]


SERVER = """
import os, subprocess, sys
import multiprocessing
from pipework import Executor, guard_stdout

TAKE = [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"]

def take(_):
    return len(os.read(0, 100)), len(sys.stdin.read())

if __name__ == "__main__":
    assert sys.stdin.readline() == "first\\n"  # and it has read ahead
    with guard_stdout() as stdout:
        number = sys.stdin.fileno()
        assert number > 2 and not os.get_inheritable(number)
        with Executor(2, mp_context=multiprocessing.get_context({way!r})) as executor:
            for line in sys.stdin:
                took = subprocess.run(TAKE, capture_output=True, text=True).stdout.strip()
                if not (pid := os.fork()):
                    os._exit(os.read(0, 100) != b"")
                _, status = os.waitpid(pid, 0)
                print(line.strip(), took, status, executor.submit(take, 0).result(), file=stdout)
                if line == "99\\n":
                    break
    print(os.read(0, 5), sys.stdin.fileno())
"""


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_no_child_of_a_guarded_server_takes_its_requests(way: str, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER.format(way=way))
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(tmp_path / "server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(b"first\n0\n1\n")
        for number in [*range(20), 99]:
            if number > 1:
                server.stdin.write(b"%d\n" % number)
            server.stdin.flush()
            assert server.stdout.readline() == b"%d 0 0 (0, 0)\n" % number
        server.stdin.write(b"after")
        server.stdin.flush()
        assert server.stdout.readline() == b"b'after' 0\n"


def test_guard_stdout_without_a_stdin_or_with_another_one() -> None:
    program = """
import io, os, sys, threading, time
from pipework import guard_stdout
if len(sys.argv) > 1:
    os.close(0)
else:
    sys.stdin = io.StringIO("text\\n")
with guard_stdout() as stdout:
    print(sys.stdin.readline() if len(sys.argv) == 1 else os.path.exists("/proc/self/fd/0"), end="", file=stdout)
"""
    for arguments, answer in (([], "text\n"), (["closed"], "False")):
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=SOON)
        assert (done.stdout, done.stderr) == (answer, "")


def test_thread_that_reads_stdin_when_it_is_guarded_goes_on() -> None:
    program = """
import os, sys, threading, time
from pipework import guard_stdout

def read():
    for line in sys.stdin:
        print(line, end="", file=protocol, flush=True)

with guard_stdout() as protocol:
    pass
reader = threading.Thread(target=lambda: lines.extend(sys.stdin))
lines = []
reader.start()
time.sleep(0.3)
with guard_stdout() as protocol:
    print("ready", file=protocol)
    reader.join()
    print(lines, file=protocol)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.stdin.write(b"one\ntwo\n")
        child.stdin.close()
        assert child.stdout.readline() == b"['one\\n', 'two\\n']\n"


OVERLAPPING = """
import contextlib, os, sys
from pipework import guard_stdout
assert sys.stdin.readline() == "1\\n"
with contextlib.ExitStack() as blocks:
    guards = [guard_stdout() for _ in range(3)]
    for number, guard in enumerate(guards):
        stream = guard.__enter__()
        blocks.callback(print, number, file=stream)
    blocks.pop_all().close()
    print("to stderr")
    for each in map(int, sys.argv[1]):
        guards[each].__exit__(None, None, None)
        if each != int(sys.argv[1][-1]) and each == 0:
            print("still to stderr")
print("to stdout")
print(sys.stdin.readline(), end="")
print(sys.stdin.fileno(), sorted(os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize("order", ["210", "012", "021", "102", "120", "201"])
def test_the_last_of_overlapping_guards_gives_stdout_back(order: str) -> None:
    command = [sys.executable, "-c", OVERLAPPING, order]
    done = subprocess.run(command, input="1\n2\n", capture_output=True, text=True, timeout=SOON, check=True)
    assert done.stdout == "0\nto stdout\n2\n0 ['0', '1', '2', '3']\n"
    left_early = ["still to stderr"] if order[-1] != "0" else []
    assert done.stderr.splitlines() == ["2", "1", "to stderr", *left_early]


def test_guard_stdout_refuses_a_second_thread() -> None:
    before = os.fstat(1)
    refused: list[BaseException] = []

    def use() -> None:
        try:
            with pipework.guard_stdout():
                raise AssertionError
        except RuntimeError as error:
            refused.append(error)

    with pipework.guard_stdout() as stdout, pipework.guard_stdout():
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert os.path.samestat(os.fstat(stdout.fileno()), before)
    assert "another thread" in str(refused[0])
    assert os.path.samestat(os.fstat(1), before)
    with pytest.raises(AssertionError):  # it is free again
        use()


def test_guard_stdout_ends_with_an_exception() -> None:
    before = os.fstat(1)
    with pytest.raises(ValueError), pipework.guard_stdout() as stdout:
        assert os.path.sameopenfile(1, 2) and os.path.samestat(os.fstat(stdout.fileno()), before)
        raise ValueError
    assert os.path.samestat(os.fstat(1), before)


def test_lazily_imported_names_exist() -> None:
    assert all(getattr(pipework, name) for name in pipework.__all__)
    with pytest.raises(AttributeError):
        pipework.nothing  # type: ignore[attr-defined]
