"""Frames go from a decoder to three workers without a copy, and workers are killed meanwhile.

The decoder writes each frame into a blob, and sends the blob with the frame's number. A free worker reads
the frame where it lies, and answers where the bright square in it is. Every fortieth frame kills the first
worker that takes it, in the middle of its work, as the kernel kills where memory is short. The next
worker gets the same request with the same frame, and a new worker takes the place of the killed one.

    python decoded_frames.py [FRAMES]
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from typing import Any

import numpy as np
from pipework.reqrep import Blob, BlobMut, Client, Segment, Server

HEIGHT, WIDTH, SQUARE = 1080, 1920, 64
AHEAD = 6
"""How many frames wait for an answer while the next one is decoded. This limits the memory, too."""


def frame(memory: Blob | BlobMut) -> Any:
    """The frame that lies there, as an array."""
    return np.frombuffer(memoryview(memory), np.uint8).reshape(HEIGHT, WIDTH)


def place(number: int) -> tuple[int, int]:
    """Where the square is in this frame: its first row and column."""
    return number * 7 % (HEIGHT - SQUARE), number * 11 % (WIDTH - SQUARE)


def decode(number: int, into: Any) -> None:
    row, column = place(number)
    into.fill(0)
    into[row : row + SQUARE, column : column + SQUARE] = 255


def work(path: str) -> None:
    """A worker's process."""
    for request in Server(path):
        pixels = frame(request.blobs[0])
        row = pixels.any(axis=1).argmax()
        if int(request.data) % 40 == 20 and request.redeliveries == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        column = pixels[row].argmax()
        request.reply(b"%d %d %d" % (row, column, os.getpid()))


class Workers:
    """Three processes. A new one takes the place of each that was killed."""

    def __init__(self, path: str) -> None:
        self._path, self.killed = path, 0
        self._all = [self._start() for _ in range(3)]

    def _start(self) -> Any:
        process = multiprocessing.get_context("spawn").Process(target=work, args=(self._path,), daemon=True)
        process.start()
        return process

    def replace(self) -> None:
        """Starts one for each that has ended."""
        for i, process in enumerate(self._all):
            if process.exitcode is not None:
                self.killed += process.exitcode == -signal.SIGKILL
                self._all[i] = self._start()

    def stop(self) -> None:
        self.replace()
        for process in self._all:
            process.kill()
            process.join()


def main(frames: int = 120) -> None:
    """The decoder's process."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "frames")
        with Segment.create(path, slots=2 * AHEAD) as segment, Client(segment, redeliveries=3, timeout=60.0) as client:
            workers = Workers(path)
            numbers: dict[int, int] = {}
            right, pids = 0, set[int]()
            for number in range(frames + AHEAD):
                workers.replace()
                if number < frames:
                    with segment.blob(HEIGHT * WIDTH) as draft:
                        decode(number, frame(draft))
                        numbers[client.send(b"%d" % number, blobs=[draft.freeze()])] = number
                if number >= AHEAD:
                    ticket, outcome = next(client.as_completed())
                    row, column, pid = map(int, outcome.result().split())
                    right += (row, column) == place(numbers.pop(ticket))
                    pids.add(pid)
            workers.stop()
            memory = sum(file.stat().st_size for name in os.scandir(folder) if name.is_dir() for file in os.scandir(name))
            print(f"{frames} frames, {right} of them right, by {len(pids)} workers; {workers.killed} were killed")
            print(f"memory for {memory // (HEIGHT * WIDTH)} frames")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
