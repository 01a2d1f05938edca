"""The examples in the texts run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import SOON

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", ROOT / "python/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    pytest.param(example, id=f"{text.relative_to(ROOT)}-{number}")
    for text in TEXTS
    for number, example in enumerate(re.findall(r"^```python\n(.*?)^```$", text.read_text(), re.DOTALL | re.MULTILINE))
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", example], check=True, timeout=SOON, stdout=subprocess.DEVNULL)
