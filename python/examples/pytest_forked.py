"""A pytest plugin that runs each test in a forked process. A test that crashes is one failure, and
no test sees the leftovers of another.

A report is a message, and comes through the same pipe as printed text. (pytest itself captures
the output of a test, unless -s disables that.)

    python -m pytest -p pytest_forked
"""

from __future__ import annotations

import os
import pickle

import pytest
from _pytest.runner import runtestprotocol
from pipework import atomic


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    reader, writer = atomic.pair(mixed=True)
    pid = os.fork()
    if pid == 0:
        os.dup2(writer.fileno(), 1)
        writer.send(pickle.dumps(runtestprotocol(item, log=False, nextitem=nextitem)))
        os._exit(0)
    writer.close()
    printed: list[str] = []
    reports: list[pytest.TestReport] = []
    for received in reader:
        match received:
            case atomic.Message(data):
                reports = pickle.loads(data)
            case atomic.Line() as line:
                printed.append(line.text)
    reader.close()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not reports:
        text = f"the process ended with status {status}"
        reports = [pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call", [], 0.0)]
    for report in reports:
        if printed and report.when == "call":
            report.sections.append(("Printed to descriptor 1", "\n".join(printed)))
        item.ihook.pytest_runtest_logreport(report=report)
    return True
