"""Interpreters in which the package is not to be imported say so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pipework

PACKAGE = str(Path(pipework.__file__).parents[1])

PROGRAM = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import sys

def make(isolated):
    if sys.version_info >= (3, 13):
        return interpreters.create("isolated" if isolated else "legacy")
    return interpreters.create(isolated=isolated)

for isolated in (False, True):
    for imported_before in range(2):
        failed = ""
        try:
            failed = interpreters.run_string(make(isolated), "import sys; sys.path[:] = %r; import pipework" % sys.path)
        except interpreters.RunFailedError as error:
            failed = error
        print(failed)
        import pipework.reqrep
segment = pipework.reqrep.Segment.anonymous()
with pipework.reqrep.Client(segment) as client, pipework.reqrep.Server(segment) as server:
    ticket = client.send(b"still here")
    server.recv().reply(b"")
    print(client.recv(ticket))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {PACKAGE!r})\n{program}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_import_in_a_subinterpreter_fails() -> None:
    done = run(PROGRAM)
    assert done.returncode == 0, done.stderr
    *refused, last = done.stdout.splitlines()
    assert len(refused) == 4 and last == "b''"
    for text in refused[:2]:
        assert "pipework can be imported in the main interpreter only" in text
    for text in refused[2:]:
        assert "ImportError" in text and "subinterpreter" in text


def test_import_without_the_interpreter_lock_fails() -> None:
    done = run("sys._is_gil_enabled = lambda: False; import pipework.atomic")
    assert done.returncode == 1 and "ImportError: pipework needs the interpreter lock" in done.stderr
    assert run("sys._is_gil_enabled = lambda: True; import pipework.atomic").returncode == 0
