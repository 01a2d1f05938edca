"""Uploads a document while it is written: no file, and never more than 64 KiB of it in memory.

A thread writes a compressed CSV table into a pipe, and `http.client` takes the other end as the
body of a request. If the thread fails, the upload fails with its exception, and no server gets half
a table for a whole one.

    python stream_upload.py [ROWS]
"""

from __future__ import annotations

import csv
import gzip
import http.client
import http.server
import io
import sys
import threading

from pipework import pipe


def write_table(sink: pipe.Writer, rows: int) -> None:
    """Writes a table row by row, compressed. Any exception in here reaches the reader."""
    with gzip.open(sink, "wb", compresslevel=1) as packed, io.TextIOWrapper(packed, "utf-8", newline="") as text:
        table = csv.writer(text)
        table.writerow(["number", "square", "cube"])
        for number in range(rows):
            table.writerow([number, number**2, number**3])


def upload(port: int, rows: int) -> str:
    """Sends the table to a server; returns the server's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with pipe.produce(lambda sink: write_table(sink, rows)) as source:
        connection.request("PUT", "/table.csv.gz", source, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        answer = connection.getresponse().read().decode()
    connection.close()
    return answer


class Receiver(http.server.BaseHTTPRequestHandler):
    """A server that adds the last column up."""

    def do_PUT(self) -> None:
        source, sink = pipe.pipe()
        summing = threading.Thread(target=self._add_up, args=(source,))
        summing.start()
        received = 0
        with sink:
            while size := int(self.rfile.readline(), 16):
                sink.write(self.rfile.read(size))
                received += size
                self.rfile.readline()
            self.rfile.readline()
        summing.join()
        answer = f"{self.rows} rows in {received} bytes; the cubes add up to {self.total}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _add_up(self, source: pipe.Reader) -> None:
        with gzip.open(io.BufferedReader(source), "rt", encoding="utf-8", newline="") as text:
            cubes = [0, 0]
            for row in csv.DictReader(text):
                cubes[0] += 1
                cubes[1] += int(row["cube"])
        self.rows, self.total = cubes

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def main(rows: int = 100_000) -> None:
    """Runs both sides."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever).start()
        answer = upload(server.server_port, rows)
        server.shutdown()
    print(answer)
    assert answer.startswith(f"{rows} rows") and answer.endswith(f" {(rows * (rows - 1) // 2) ** 2}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
