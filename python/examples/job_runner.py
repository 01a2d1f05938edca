"""A job runner: a program hands out jobs, which are objects, and worker processes carry them out.

Workers are killed on the way. The job that a killed worker had goes to another one (`redeliveries`),
and a new worker takes its place. A job that raises fails alone, with its reason.

    python job_runner.py [JOBS] [WORKERS]
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
from dataclasses import dataclass
from typing import Any

from pipework import RemoteError
from pipework.reqrep import Client, Segment, Server

KILL_AFTER = 10
"""After this many results a worker is killed."""


@dataclass
class Job:
    number: int
    text: str


@dataclass
class Result:
    number: int
    words: dict[str, int]


def count(job: dict[str, Any]) -> Result:
    """Counts the words of a text. JSON has no dataclasses: a job arrives as a dict."""
    text = Job(**job).text
    if not text:
        raise ValueError("a job without a text")
    words = text.split()
    return Result(job["number"], {word: words.count(word) for word in words})


def work(segment: Segment) -> None:
    logging.getLogger("pipework").setLevel(logging.CRITICAL)  # the caller has the reason of a failure
    Server(segment).serve(count, codec="json")  # until SIGTERM


def main(jobs: int = 40, workers: int = 3) -> tuple[list[Result], list[str], int]:
    """Returns the results, the reasons of the jobs that failed, and how many workers were killed."""
    segment = Segment.anonymous(slots=64)
    spawn = multiprocessing.get_context("spawn")

    def start() -> Any:
        worker = spawn.Process(target=work, args=(segment,))
        worker.start()
        return worker

    running = [start() for _ in range(workers)]
    results: list[Result] = []
    failures: list[str] = []
    killed = 0
    try:
        with Client(segment, codec="json", redeliveries=3, timeout=60.0) as client:
            tickets = [client.send(Job(number, "la " * number + "le")) for number in range(jobs)]
            tickets.append(client.send(Job(jobs, "")))
            for _, outcome in client.as_completed():
                try:
                    results.append(Result(**outcome.result()))
                except RemoteError as error:
                    failures.append(str(error))
                if len(results) // KILL_AFTER > killed:
                    worker = running.pop(0)
                    worker.kill()
                    worker.join()
                    running.append(start())
                    killed += 1
    finally:
        for worker in running:
            worker.terminate()
        for worker in running:
            worker.join()
    return results, failures, killed


if __name__ == "__main__":
    results, failures, killed = main(*map(int, sys.argv[1:]))
    right = sum(result.words.get("la", 0) == result.number for result in results)
    print(f"{len(results)} jobs done, {right} of them right; {killed} workers were killed")
    print("refused:", *failures)
