"""The interpreters in which the package can be imported."""

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


def test_import_takes_no_interpreter_lock() -> None:
    before = "is_on = getattr(sys, '_is_gil_enabled', lambda: True); before = is_on()"
    done = run(f"{before}; import pipework.multiprocessing, pipework.logging, pipework.pipe; print(is_on() == before)")
    assert (done.stdout, done.stderr) == ("True\n", "")
