"""The examples in the texts run as they stand there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import SOON

from pipework.reqrep import Client

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", ROOT / "python/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    pytest.param(example, id=f"{text.relative_to(ROOT)}-{number}")
    for text in TEXTS
    for number, example in enumerate(re.findall(r"^```python\n(.*?)^```$", text.read_text(), re.DOTALL | re.MULTILINE))
]


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", example], check=True, timeout=SOON, stdout=subprocess.DEVNULL)


def test_systemd_example_finishes_its_requests_after_sigterm(tmp_path: Path) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/recipes/systemd.md").read_text(), re.DOTALL | re.MULTILINE)
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(tmp_path)}
    server = subprocess.Popen([sys.executable, "-W", "error", "-c", program], env=environment)
    with Client(tmp_path / "calls", connect_timeout=SOON) as client:
        assert client.call(b"how many words", timeout=SOON) == b"3"
    assert (tmp_path / "calls").stat().st_mode & 0o777 == 0o660
    server.send_signal(signal.SIGTERM)
    assert server.wait(SOON) == 0
