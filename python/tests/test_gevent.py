"""Calls of greenlets, where gevent is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import SOON

pytest.importorskip("gevent")

PROGRAM = """
import threading
import gevent
from pipework.reqrep import Client, Segment, Server

segment = Segment.anonymous()
together = threading.Barrier(10)  # ten handlers meet here: none is alone

def meet(data):
    together.wait(30)
    return data

server = Server(segment)
threading.Thread(target=server.serve, args=(meet,), kwargs={"threads": 10}, daemon=True).start()
client = Client(segment, timeout=40.0)
call = gevent.get_hub().threadpool.apply
jobs = [gevent.spawn(call, client.call, (b"%d" % number,)) for number in range(10)]
gevent.joinall(jobs)
print(sorted(job.get() for job in jobs) == [b"%d" % number for number in range(10)])
"""


def test_greenlets_call_at_the_same_time_from_the_pool_of_threads() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, timeout=SOON)
    assert (done.returncode, done.stdout) == (0, "True\n")
