"""A tool server on stdin and stdout (JSON-RPC, one object a line) whose libraries may print.

A print on stdout is what breaks such servers: the host takes it for a broken answer. Here the
answers go through stdout as messages, in mixed mode, and whatever else is printed, by Python, by C,
by a program that a tool starts, comes out as lines beside them. The host shows those to whom they
concern.

The host may be any program that gives the server a pipe, or as Node does a socket, for its stdout.
Where the server is run by hand, the answers are lines, too.

    python tool_server.py            a host that starts the server, calls its tools, and shows what they print
    python tool_server.py --serve    the server alone: try {"id": 1, "method": "add", "params": [2, 40]}
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from pipework import atomic


def add(one: float, other: float) -> float:
    """Adds. It was debugged in a hurry."""
    print("DEBUG: in add(), and this line was to be removed")
    return one + other


def disk_usage(path: str) -> int:
    """Bytes below a path. The program that it runs prints on the stdout that it inherits."""
    subprocess.run(["sh", "-c", 'echo "progress: looking at $0"', path], check=True)
    return int(subprocess.check_output(["du", "-sb", path]).split()[0])


TOOLS: dict[str, Callable[..., Any]] = {"add": add, "disk_usage": disk_usage}


def serve() -> None:
    """The server: requests come by the line, answers go as messages."""
    answers = atomic.Writer.stdout(mixed=True, or_print=True)
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            answer["result"] = TOOLS[request["method"]](*request["params"])
        except Exception as error:
            answer["error"] = {"code": -32000, "message": repr(error)}
        answers.send(json.dumps(answer).encode())


class Host:
    """A server that runs as a child process."""

    def __init__(self) -> None:
        self._reader, writer = atomic.pair(mixed=True)
        with writer:
            command = [sys.executable, __file__, "--serve"]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writer.fileno(), text=True)
        self._last = 0
        self.printed: list[str] = []

    def call(self, tool: str, *arguments: object) -> Any:
        """The result of the tool. Raises RuntimeError if it fails."""
        assert self._child.stdin is not None
        self._last += 1
        request = {"jsonrpc": "2.0", "id": self._last, "method": tool, "params": arguments}
        self._child.stdin.write(json.dumps(request) + "\n")
        self._child.stdin.flush()
        for item in self._reader:
            match item:
                case atomic.Line():
                    self.printed.append(item.text)
                case atomic.Message(data):
                    answer = json.loads(data)
                    assert answer["id"] == self._last
                    if "error" in answer:
                        raise RuntimeError(answer["error"]["message"])
                    return answer["result"]
        raise RuntimeError("the server has ended")

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()
        self._reader.close()


def main() -> None:
    """Calls some tools."""
    with Host() as host:
        print("2 + 40 =", host.call("add", 2, 40))
        print("this folder:", host.call("disk_usage", ".") > 0)
        try:
            host.call("add", 2)
        except RuntimeError as error:
            print("refused:", error)
        print("printed meanwhile:", *host.printed, sep="\n  ")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
