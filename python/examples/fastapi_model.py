"""A FastAPI application whose worker processes share one model by the batch, streams included.

The model's process is one function behind `serve_batches`. A web worker asks it for the next word
of a text, `await client.acall(text)`, and streams a story by asking again and again: so what runs
in one batch is the next step of every story in progress, in any worker. The model may be killed and started again in the middle: with `redeliveries`, a step that it had begun
is begun again, and a browser sees no more than a pause.

    python fastapi_model.py [WORKERS] [BROWSERS]
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import multiprocessing
import os
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from pipework.reqrep import Client, Segment, Server

WORDS = b"a bird crossed the river and nobody knew why it sang of rain that night".split()
LENGTH = 40
"""Words of a story."""


def next_words(texts: list[bytes]) -> list[bytes]:
    """The model: the next word of each text. A batch costs as much as one text."""
    time.sleep(0.002)
    return [WORDS[zlib.crc32(text) % len(WORDS)] for text in texts]


def serve_model(path: str, sizes: Any) -> None:
    """The model's process. After SIGTERM it finishes its requests."""

    def run(texts: list[bytes]) -> list[bytes]:
        sizes.append(len(texts))
        return next_words(texts)

    with Server(path) as server:
        server.serve_batches(run, max_batch=32)


def application(path: str) -> FastAPI:
    app, client = FastAPI(), Client(path, redeliveries=1)

    @app.post("/word")
    async def word(request: Request) -> Response:
        return Response(await client.acall(await request.body(), timeout=10.0), headers=worker)

    @app.post("/story")
    async def story(request: Request) -> StreamingResponse:
        return StreamingResponse(words(await request.body()), headers=worker)

    async def words(text: bytes) -> AsyncIterator[bytes]:
        for _ in range(LENGTH):
            word = await client.acall(text, timeout=10.0)
            yield word + b"\n"
            text += b" " + word

    worker = {"X-Worker": str(os.getpid())}
    return app


def serve_web(listener: socket.socket, path: str) -> None:
    """A web worker's process."""
    config = uvicorn.Config(application(path), lifespan="off", log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


def browse(port: int, page: str, text: str) -> tuple[list[bytes], str]:
    """Acts as a browser; returns its words and the worker that sent them."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", page, text)
        with connection.getresponse() as response:
            return response.read().split(), response.headers["X-Worker"]


def expected(page: str, text: str) -> list[bytes]:
    told: list[bytes] = []
    for _ in range(LENGTH if page == "/story" else 1):
        told += next_words([b" ".join([text.encode(), *told])])
    return told


def main(workers: int = 4, browsers: int = 100) -> None:
    """Starts all of it and sends browsers, of which every fifth asks for one word; kills the model
    while it works, then has another take its place, and tells how it went."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, context.Manager() as manager:
        path = os.path.join(folder, "model")
        segment = Segment.create(path, slots=256)
        sizes = manager.list()
        # A socket each, among which the kernel deals connections out.
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=256, reuse_port=True)]
        address = listeners[0].getsockname()
        listeners += [socket.create_server(address, backlog=256, reuse_port=True) for _ in range(workers - 1)]

        def start_model() -> Any:
            model = context.Process(target=serve_model, args=(path, sizes), daemon=True)
            model.start()
            return model

        model = start_model()
        webs = [context.Process(target=serve_web, args=(each, path), daemon=True) for each in listeners]
        for web in webs:
            web.start()
        asked = [("/story" if number % 5 else "/word", f"text {number}") for number in range(browsers)]
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            answers = [pool.submit(browse, address[1], *each) for each in asked]
            while len(sizes) < 50:
                time.sleep(0.001)
            model.kill()
            model = start_model()
            told = [answer.result() for answer in answers]
        seconds = time.monotonic() - began
        model.terminate()
        model.join()
        right = sum(words == expected(*each) for each, (words, _) in zip(asked, told))
        print(f"{browsers} browsers at {len({worker for _, worker in told})} web workers, {right} of them got the right words")
        print(f"{sum(sizes)} words in {len(sizes)} runs of a model that was killed once, {sum(sizes) / len(sizes):.1f} words each")
        print(f"{sum(sizes) / seconds:.0f} words/s; the model ended with status {model.exitcode}")
        for web in webs:
            web.kill()
            web.join()
        for listener in listeners:
            listener.close()
        segment.recover()
        assert segment.audit().free == segment.geometry.slots


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
