"""Workers that print to stdout, and send their results through the same stdout.

Each worker is a child process whose stdout is one pipe that all of them share. They print as they
like, a library and a shell that they call do so too, and nothing of it gets between the bytes of a
result: printed text comes out as lines, sent results as whole messages.

    python printing_workers.py [WORKERS]
"""

from __future__ import annotations

import json
import subprocess
import sys

from pipework import atomic


def factors(number: int) -> list[int]:
    """The prime factors of a number; it talks while it works, as libraries do."""
    found: list[int] = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
            print(f"  found {divisor}, {number} is left")
        divisor += 1
    return [*found, number] if number > 1 else found


def work(first: int, count: int) -> None:
    """The child: its stdout is the pipe."""
    results = atomic.Writer.stdout(mixed=True)
    # Each line is one write then, and comes out whole, and before the result that is sent after it.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    for number in range(first, first + count):
        print(f"working on {number}")
        result = {"number": number, "factors": factors(number), "padding": "." * 10_000}
        results.send(json.dumps(result).encode())
    subprocess.run(["echo", f"a shell's word: the worker from {first} on is done"], check=True)


def main(workers: int = 4, numbers_each: int = 25) -> tuple[dict[int, list[int]], list[str]]:
    """The parent: starts workers and gives all that they send and print."""
    reader, writer = atomic.pair(mixed=True)
    children: list[subprocess.Popen[bytes]] = []
    with writer:
        for worker in range(workers):
            command = [sys.executable, __file__, "--work", str(10**9 + worker * numbers_each), str(numbers_each)]
            children.append(subprocess.Popen(command, stdout=writer.fileno()))
    results: dict[int, list[int]] = {}
    printed: list[str] = []
    with reader:
        for item in reader:
            match item:
                case atomic.Message(data):
                    result = json.loads(data)
                    results[result["number"]] = result["factors"]
                case atomic.Line():
                    printed.append(item.text)
    for child in children:
        child.wait()
    for number, primes in sorted(results.items())[:3]:
        print(number, "=", " * ".join(map(str, primes)))
    print(f"{len(results)} results and {len(printed)} printed lines from {workers} workers, through one stdout")
    return results, printed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
