"""A data loader: processes prepare batches of images for one that uses them, and one is killed.

Each batch is an array of some megabytes. It is copied once, into shared memory, and the process that
uses it reads it there. The processes come from `multiprocessing`; the program differs in one
import. Here a loader is killed again and again: the batch that it had in its hands is loaded once
more, and all others come as if nothing had happened.

    python data_loader.py [BATCHES]
"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
import numpy.typing as npt

from pipework import PeerDied, multiprocessing

Batch = npt.NDArray[np.float32]

LOADERS = 2
KILL_EVERY = 10
"""Batches from one kill to the next."""


def load(number: int) -> Batch:
    """In a loader: reads, decodes and augments the images of a batch. Here they are noise."""
    images = np.random.default_rng(number).random((16, 3, 128, 128), dtype=np.float32)
    images -= images.mean()
    return images


def use(batch: Batch) -> float:
    """In the process with the model."""
    return float(np.square(batch).mean())


def main(batches: int) -> str:
    killed = reloaded = 0
    total = 0.0
    with multiprocessing.get_context("forkserver").Pool(LOADERS) as pool:
        waiting = deque(pool.apply_async(load, (number,)) for number in range(batches))
        for number in range(batches):
            try:
                batch = waiting.popleft().get()
            except PeerDied:
                reloaded += 1
                batch = pool.apply(load, (number,))
            total += use(batch)
            if number % KILL_EVERY == KILL_EVERY - 1:
                multiprocessing.active_children()[0].kill()
                killed += 1
    mean = total / batches
    return f"{batches} batches used, a mean of {mean:.4f}, {killed} loaders killed, {reloaded} batches loaded again"


if __name__ == "__main__":
    print(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
