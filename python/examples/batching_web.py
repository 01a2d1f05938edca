"""A web application with several worker processes that share one model, which works by the batch.

The web workers take HTTP requests from one listening socket and ask the model through shared
memory: `await client.acall(text)`. The model process takes all waiting requests, up to 32 at
once, and answers all of them with one run. It may die and be started again: no other process
notices more than a delay.

    python batching_web.py [WORKERS] [REQUESTS]
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import concurrent.futures
import http.client
import math
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from typing import Any

from pipework import PeerDied
from pipework.reqrep import Client, Segment, Server

SAMPLES = {
    "English": "the quick brown fox jumps over the lazy dog and then it sleeps all day in the warm sun while the others are working",
    "German": "der schnelle braune fuchs springt über den faulen hund und schläft dann den ganzen tag in der warmen sonne",
    "French": "le rapide renard brun saute par dessus le chien paresseux et dort ensuite toute la journée sous le soleil",
    "Spanish": "el rápido zorro marrón salta sobre el perro perezoso y luego duerme todo el día bajo el sol de la tarde",
}


class Model:
    """Tells languages apart by their groups of three letters."""

    def __init__(self) -> None:
        self._known = {name: self._vector(sample) for name, sample in SAMPLES.items()}

    def run(self, batch: list[str]) -> list[str]:
        """The language of each text. A batch costs little more than one text: that is why they are
        collected."""
        time.sleep(0.002)  # the cost of a call of an accelerator, for any size of batch
        vectors = [self._vector(text) for text in batch]
        return [max(self._known, key=lambda name: self._likeness(vector, self._known[name])) for vector in vectors]

    @staticmethod
    def _vector(text: str) -> collections.Counter[str]:
        text = f" {text.lower()} "
        return collections.Counter(text[i : i + 3] for i in range(len(text) - 2))

    @staticmethod
    def _likeness(one: collections.Counter[str], other: collections.Counter[str]) -> float:
        lengths = math.hypot(*one.values()) * math.hypot(*other.values())
        return sum(count * other[group] for group, count in one.items()) / lengths if lengths else 0.0


def serve_model(path: str, sizes: Any) -> None:
    """The model's process."""
    model, server = Model(), Server(path)
    while True:
        batch = server.recv_many(32)
        with contextlib.ExitStack() as open_ones:  # an unanswered request fails at its caller
            for request in batch:
                open_ones.enter_context(request)
            answers = model.run([request.data.decode(errors="replace") for request in batch])
            for request, answer in zip(batch, answers):
                request.reply(answer.encode())
        sizes.append(len(batch))


def serve_web(listener: socket.socket, path: str) -> None:
    """A web worker's process."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        body = await reader.readexactly(int(lengths[0]))
        try:
            status, answer = "200 OK", await client.acall(body, timeout=5.0)
        except (PeerDied, TimeoutError):
            status, answer = "503 Service Unavailable", b""
        header = f"HTTP/1.1 {status}\r\nContent-Length: {len(answer)}\r\nConnection: close\r\nX-Worker: {os.getpid()}\r\n\r\n"
        writer.write(header.encode() + answer)
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(handle, sock=listener)
        await server.serve_forever()

    # A request may run twice: if the model dies with it, the next model gets it.
    client = Client(path, redeliveries=1)
    asyncio.run(main())


def ask(port: int, text: str) -> tuple[str, str]:
    """Acts as a browser; returns the answer and the worker that gave it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/language", text.encode())
    response = connection.getresponse()
    answer = response.read().decode()
    connection.close()
    return answer, response.headers["X-Worker"]


def main(workers: int = 3, requests: int = 400) -> None:
    """Starts all of it, sends requests, kills the model in between, and tells how it went."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, context.Manager() as manager:
        path = os.path.join(folder, "model")
        segment = Segment.create(path, slots=256)
        sizes = manager.list()
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        model = context.Process(target=serve_model, args=(path, sizes), daemon=True)
        webs = [context.Process(target=serve_web, args=(listener, path), daemon=True) for _ in range(workers)]
        for process in (model, *webs):
            process.start()
        texts = [sample[start : start + 40] for sample in SAMPLES.values() for start in (0, 10, 20, 30)]
        asked = [texts[i % len(texts)] for i in range(requests)]
        port = listener.getsockname()[1]
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(32) as browsers:
            answers = [browsers.submit(ask, port, text) for text in asked]
            while sum(answer.done() for answer in answers) < requests // 2:
                time.sleep(0.001)
            model.kill()
            model = context.Process(target=serve_model, args=(path, sizes), daemon=True)
            model.start()
            told = [answer.result() for answer in answers]
        seconds = time.monotonic() - began
        right = sum(answer == language(text) for text, (answer, _) in zip(asked, told))
        print(f"{requests} requests answered, {right} of them right, by {len({worker for _, worker in told})} web workers and a model that was killed once")
        print(f"{len(sizes)} runs of the model, {sum(sizes) / len(sizes):.1f} requests each; {requests / seconds:.0f} requests/s")
        for process in (model, *webs):
            process.kill()
            process.join()
        listener.close()
        segment.recover()
        assert segment.audit().free == segment.geometry.slots


def language(text: str) -> str:
    """The language of the sample that a text was cut from."""
    return next(name for name, sample in SAMPLES.items() if text in sample)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
