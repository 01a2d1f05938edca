"""Bridges as a program starts them. The tests in bridge/nats cover the messages that they carry."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from pipework.nats import Bridge
from support import SOON

PROGRAM = """#!/bin/sh
trap 'exit 7' TERM
case $1 in stubborn) trap '' TERM;; done) exit 0;; esac
printf '%s\\n' "$@" "url $NATS_URL" >said.new
mv said.new said
while :; do sleep 0.05; done
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pipework-nats"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def said() -> list[str]:
    began = time.monotonic()
    while not Path("said").exists():
        assert time.monotonic() - began < SOON
        time.sleep(0.01)
    return Path("said").read_text().splitlines()


def test_arguments_and_environment_reach_the_program() -> None:
    bridge = Bridge(
        "publish", Path("inbox"), env={"NATS_URL": "nats://there"}, subject="-s", max_message=10, mixed=True, lines=False
    )
    with bridge as itself:
        assert itself is bridge
        expected = ["publish", "--subject=-s", "--max-message=10", "--mixed", "--", "inbox", "url nats://there"]
        assert said() == expected
        assert bridge.running and repr(bridge) == f"<Bridge {bridge.process.pid}, running>"
    assert not bridge.running and repr(bridge).endswith("ended with 7>")


def test_bridge_stops_or_ends_by_itself() -> None:
    bridge = Bridge("expose")
    said()
    assert bridge.stop(timeout=SOON) == 7
    assert Bridge("done").wait(timeout=SOON) == 0


def test_bridge_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipework.nats._PATIENCE", 0.2)
    with Bridge("stubborn") as bridge:
        said()
        with pytest.raises(subprocess.TimeoutExpired):
            bridge.stop(timeout=0.1)
        assert bridge.running
    assert bridge.wait() == -9


def test_exception_in_the_block_stops_the_bridge() -> None:
    with pytest.raises(ZeroDivisionError), Bridge("expose") as bridge:
        said()
        raise ZeroDivisionError
    assert not bridge.running


def test_bridge_without_its_program_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(FileNotFoundError, match="cargo install --path bridge/nats"):
        Bridge("expose")
