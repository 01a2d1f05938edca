"""Runs a separate program, `pipework-nats`, which no package of pipework holds: a bridge over NATS.

It is built from bridge/nats in the repository: `cargo install --path bridge/nats`. Here it is
started, watched and stopped.

```python
from pipework.nats import Bridge

with Bridge("attach", "/dev/shm/upper", subject="upper"):
    ...  # callers here reach workers anywhere
```

The first argument is one of the program's commands (expose, attach, join, publish, subscribe), and
the others are its own: `pipework nats --help` lists them. The environment names the server, the
credentials and the certificates to trust: `NATS_URL` and others. No secret belongs into an
argument, which everybody on the machine can read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from types import TracebackType

__all__ = ["Bridge"]

_PATIENCE = 10.0
"""Seconds that a bridge has to finish its work when its block is left."""


class Bridge:
    """A running bridge. Options are those of the program: `max_message=1000` is
    `--max-message 1000`, and True and False say whether an option without a value is there.

    It starts at once, and waits for its server if that is not there yet. When the `with` block is
    left, the bridge gets SIGTERM, finishes what it has, and is killed after ten seconds. `env` is
    added to the environment.
    """

    process: subprocess.Popen[bytes]
    """The program. Its standard error is this process's own."""

    def __init__(
        self,
        command: str,
        *arguments: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        **options: str | os.PathLike[str] | float | bool,
    ) -> None:
        program = shutil.which("pipework-nats")
        if program is None:
            message = "pipework-nats is not in PATH; in a clone of pipework: cargo install --path bridge/nats"
            raise FileNotFoundError(message)
        line: list[str | os.PathLike[str]] = [program, command]
        for name, value in options.items():
            # With an equals sign, so that no value is taken for an option.
            if value is True:
                line.append(f"--{name.replace('_', '-')}")
            elif value is not False:
                line.append(f"--{name.replace('_', '-')}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
        self.process = subprocess.Popen([*line, "--", *arguments], env={**os.environ, **(env or {})})

    def __repr__(self) -> str:
        state = self.process.poll()
        return f"<Bridge {self.process.pid}, {'running' if state is None else f'ended with {state}'}>"

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def wait(self, *, timeout: float | None = None) -> int:
        """Waits until the bridge ends by itself, as `publish` does when its pipe ends, and returns its
        exit status."""
        return self.process.wait(timeout)

    def stop(self, *, timeout: float | None = None) -> int:
        """Tells the bridge to finish its work, waits for that, and returns its exit status: 0 if
        nothing was cut short. After `timeout` seconds it raises `subprocess.TimeoutExpired`, and the
        bridge goes on finishing."""
        self.process.terminate()
        return self.process.wait(timeout)

    def __enter__(self) -> Bridge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop(timeout=_PATIENCE)
        except BaseException as ended:
            self.process.kill()
            self.process.wait()
            if not isinstance(ended, subprocess.TimeoutExpired):
                raise
