"""A web application that sends a model's text to browsers, word by word, while the model writes.

The web workers are uvicorn's, and share a port. They ask the model through shared memory, `async
for word in client.astream(prompt)`, and send each word on as a server-sent event. The model's
process works on up to 16 texts at once; what is beyond that waits in the segment.

If the model dies, the answers that it had begun end with an error event at once, and the next model
takes all the others. If a browser goes away, its worker cancels the call, and the model gives that
text up: `asend_part` returns False.

    python streaming_web.py [WORKERS] [BROWSERS]
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from pipework import Error
from pipework.reqrep import Client, Segment, Server

WORDS = "a bird crossed the river and nobody knew why it sang of rain that night".split()
SEATS = 16
LENGTH = 50
"""Words of an answer."""


def words(prompt: str) -> Iterator[str]:
    """The model: continues the prompt for ever."""
    draw = random.Random(prompt)
    return (draw.choice(WORDS) for _ in itertools.count())


def serve_model(path: str, made: Any) -> None:
    """The model's process. Each seat works on one text, and then on the next that waits."""
    server = Server(path)

    async def work() -> None:
        async for request in server:
            # A request without sense, or a browser that takes nothing, ends this text only: leaving
            # the block with an exception fails the request, and its caller hears which one it was.
            with contextlib.suppress(ValueError, LookupError, TypeError, TimeoutError), request:
                asked = json.loads(request.data)
                for word in itertools.islice(words(asked["prompt"]), asked["words"]):
                    await asyncio.sleep(0.01)  # a step of an accelerator, which all seats share
                    made.value += 1
                    if not await request.asend_part(word.encode(), timeout=10.0):
                        break  # the browser has gone
                else:
                    request.reply(b"")

    async def main() -> None:
        await asyncio.gather(*(work() for _ in range(SEATS)))

    asyncio.run(main())


def serve_web(listener: socket.socket, path: str) -> None:
    """A web worker's process."""
    # Requests that a dead model had not begun go to the next one; those that it had begun are not
    # repeated.
    client = Client(path, redeliveries=1)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        prompt = b""
        while (message := await receive())["type"] == "http.request":
            prompt += message["body"]
            if not message["more_body"]:
                break
        answering = asyncio.create_task(answer(prompt, send))
        # Cancelling the task cancels the call. (Starlette, and what stands on it, does this alone.)
        watching = asyncio.create_task(disconnected(receive))
        watching.add_done_callback(lambda _: answering.cancel())
        with contextlib.suppress(asyncio.CancelledError):
            await answering
        watching.cancel()

    async def answer(prompt: bytes, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"x-worker", b"%d" % os.getpid())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        last = b"event: end\ndata:\n\n"
        try:
            async for word in client.astream(prompt):
                await send({"type": "http.response.body", "body": b"data: %s\n\n" % word, "more_body": True})
        except Error as error:  # PeerDied when the model was killed, RemoteError with its reason
            last = b"event: error\ndata: %s\n\n" % str(error).encode()
        await send({"type": "http.response.body", "body": last})

    async def disconnected(receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    config = uvicorn.Config(application, lifespan="off", log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


def browse(port: int, prompt: str, leave_after: int | None) -> tuple[str, list[str], str, float]:
    """Acts as a browser; returns the end of its answer, its words, their sender, and their times."""
    got: list[str] = []
    end = "cut off" if leave_after is None else "left"
    asked = {"prompt": prompt, "words": LENGTH if leave_after is None else 100_000}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/", json.dumps(asked))
        with connection.getresponse() as response:
            while len(got) != leave_after and (line := response.readline()):
                name, _, value = line.decode().strip().partition(": ")
                if name == "event":
                    end = value
                elif name == "data" and end not in ("end", "error"):
                    got.append(value)
            return end, got, response.headers["X-Worker"], time.monotonic()


def main(workers: int = 3, browsers: int = 60) -> None:
    """Starts all of it and sends browsers, of which every sixth leaves early; kills the model while
    it works, and tells how it went."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "model")
        segment = Segment.create(path, slots=256)
        made = context.RawValue("L")  # words; without a lock, which a model that is killed could hold
        # A socket each, among which the kernel deals connections out: a worker would take all that
        # wait at one.
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=256, reuse_port=True)]
        address = listeners[0].getsockname()
        listeners += [socket.create_server(address, backlog=256, reuse_port=True) for _ in range(workers - 1)]
        model = context.Process(target=serve_model, args=(path, made), daemon=True)
        webs = [context.Process(target=serve_web, args=(each, path), daemon=True) for each in listeners]
        for process in (model, *webs):
            process.start()
        leaving = [5 if number % 6 == 0 else None for number in range(browsers)]
        with concurrent.futures.ThreadPoolExecutor(browsers) as pool:
            prompts = [f"prompt {number}" for number in range(browsers)]
            answers = [pool.submit(browse, address[1], *asked) for asked in zip(prompts, leaving)]
            while made.value < browsers * LENGTH // 2:
                time.sleep(0.001)
            model.kill()
            killed = time.monotonic()
            model.join()
            model = context.Process(target=serve_model, args=(path, made), daemon=True)
            model.start()
            told = [answer.result() for answer in answers]
        ends = collections.Counter(end for end, _, _, _ in told)
        whole = sum(end == "end" and len(got) == LENGTH for end, got, _, _ in told)
        right = sum(got == list(itertools.islice(words(prompt), len(got))) for prompt, (_, got, _, _) in zip(prompts, told))
        late = max((when - killed for end, _, _, when in told if end == "error"), default=0.0)
        print(f"{browsers} browsers at {len({worker for _, _, worker, _ in told})} web workers, {right} of them got the right words")
        print(f"{whole} answers whole, {ends['left']} browsers left, {ends['cut off']} answers cut off")
        print(f"{ends['error']} answers ended with an error, {1000 * late:.0f} ms after the model was killed")
        print(f"{made.value} words made, {sum(len(got) for _, got, _, _ in told)} of them read")
        for process in (model, *webs):
            process.kill()
            process.join()
        for listener in listeners:
            listener.close()
        segment.recover()
        assert segment.audit().free == segment.geometry.slots


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
