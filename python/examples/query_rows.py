"""A query whose rows come in parts, so that no side ever holds more of them than a part.

A process with a database answers queries through shared memory. It sends rows as it finds them,
some sixty at a time, through slots of 64 KiB; the client has each part as soon as it is sent. A
client that stops reading stops the query: `send_part` returns False. Here the rows make a gigabyte,
and the memory of both processes stays where it was.

    python query_rows.py [MEBIBYTES]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipework import RemoteError
from pipework.reqrep import Client, Segment, Server

TEXT = "Tell me, o Muse, of the reader that tore no line, and of the writer that died in one. " * 25
ROW = 1000
"""Characters of a row's text."""
PART = 60
"""Rows of a part."""

QUERY = f"""
    WITH RECURSIVE numbers (number) AS
        (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number + 1 < :rows)
    SELECT number, substr(:text, 1 + number % 997, {ROW}) FROM numbers
"""


def serve(path: str) -> None:
    """The process with the database."""
    database = sqlite3.connect(":memory:")
    for request in Server(path):
        try:
            sql, parameters = json.loads(request.data)
            rows = database.execute(sql, parameters)
            while part := rows.fetchmany(PART):
                if not request.send_part(json.dumps(part).encode(), timeout=10.0):
                    break  # the client has gone
            else:
                request.reply(b"")
        except (ValueError, sqlite3.Error) as error:
            request.fail(str(error))


def query(client: Client, sql: str, **parameters: Any) -> Iterator[list[Any]]:
    """The rows of a query, as they are found."""
    for part in client.stream(json.dumps((sql, parameters)).encode(), timeout=10.0):
        yield from json.loads(part)


def memory(pid: int, which: str) -> int:
    """Bytes of a process in memory: "VmRSS" now, "VmHWM" at most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(which))


def main(mebibytes: int = 1024) -> None:
    """Asks for that many bytes in rows, checks each, and returns the memory used."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "database")
        segment = Segment.create(path, slots=4, request_bytes=65536, reply_bytes=65536)
        server = context.Process(target=serve, args=(path,), daemon=True)
        server.start()
        with Client(segment) as client:
            processes = (os.getpid(), server.pid or 0)
            try:
                list(query(client, "SELECT nothing"))
            except RemoteError as error:
                print("refused:", error)
            wanted = mebibytes * 1024 * 1024 // ROW
            before, number = [0, 0], -1
            began = time.monotonic()
            for number, (counted, text) in enumerate(query(client, QUERY, rows=wanted, text=TEXT)):
                assert number == counted and text == TEXT[number % 997 :][:ROW]
                if number == 20 * PART:
                    before = [memory(pid, "VmRSS") for pid in processes]
            assert number == wanted - 1
            grown = [memory(pid, "VmHWM") - was for pid, was in zip(processes, before)]
            seconds = time.monotonic() - began
            print(f"{wanted} rows in {seconds:.1f} s, {wanted * ROW / seconds / 1e6:.0f} MB/s")
            print(f"memory grew by {grown[0] // 1024} KiB in the client, by {grown[1] // 1024} KiB in the server")
            for number, _row in query(client, QUERY, rows=10**12, text=TEXT):
                if number == 100:
                    break  # which stops the query
            assert list(query(client, "SELECT 1, 'is next'")) == [[1, "is next"]]
        server.kill()
        server.join()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
