"""An image of 8 MB goes through three processes without a copy, and one of them is killed on the way.

Each step reads the image where it lies, in a blob, and writes the next one into a blob of its own. The
first process that gets to the second step is killed in the middle of it, as the kernel kills where
memory is short. The other one gets the same request with the same image, and the caller gets its
reply.

    python image_steps.py
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from typing import Any

import numpy as np
from pipework.reqrep import Blob, BlobMut, Client, Request, Segment, Server

HEIGHT, WIDTH = 2160, 3840


def image(memory: Blob | BlobMut) -> Any:
    """The image that lies there, as an array."""
    return np.frombuffer(memoryview(memory), np.uint8).reshape(HEIGHT, WIDTH)


def step(request: Request, segment: Segment) -> None:
    before = image(request.blobs[0])
    with segment.blob(before.nbytes) as draft:
        if request.data == b"invert":
            np.subtract(255, before, out=image(draft))
        else:
            image(draft)[:1000] = before[::-1][:1000]
            if request.redeliveries == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            image(draft)[1000:] = before[::-1][1000:]
        request.reply(b"%d" % os.getpid(), blobs=[draft.freeze()])


def work(path: str) -> None:
    """A process that does any step."""
    server = Server(path)
    for request in server:
        step(request, server.segment)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "steps")
        segment = Segment.create(path, slots=8)
        workers = [context.Process(target=work, args=(path,), daemon=True) for _ in range(2)]
        for worker in workers:
            worker.start()
        with segment, Client(segment, redeliveries=1, timeout=60.0) as client:
            with segment.blob(HEIGHT * WIDTH) as draft:
                image(draft)[:] = np.arange(HEIGHT)[:, np.newaxis] % 200
                blob = first = draft.freeze()
            for name in ("invert", "flip"):
                reply = client.call_message(name.encode(), blobs=[blob])
                blob = reply.blobs[0]
                print(f"{name}: {blob.nbytes} bytes, by process {reply.data.decode()}")
            assert (image(blob) == 255 - image(first)[::-1]).all()
        print("killed on the way:", sum(worker.exitcode == -signal.SIGKILL for worker in workers))
        for worker in workers:
            worker.kill()
            worker.join()


if __name__ == "__main__":
    main()
