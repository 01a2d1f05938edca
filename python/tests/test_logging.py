"""Records of many processes through one pipe."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipework import atomic
from pipework.logging import Handler, Listener
from processes import forked, stop_helpers, until
from support import SOON, in_child, signal_after


class Kept(logging.Handler):
    """A handler that keeps its records."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@contextlib.contextmanager
def logger_to(handler: logging.Handler) -> Iterator[logging.Logger]:
    logger = logging.Logger("test")
    logger.addHandler(handler)
    yield logger
    handler.close()


def test_record_arrives_unchanged() -> None:
    kept = Kept()
    with Listener(kept) as listener, logger_to(listener.handler()) as logger:
        logger.info("%s of %d", "one", 2, extra={"number": 3, "thing": Path("x")}, stack_info=True)
        try:
            raise ValueError("why")
        except ValueError:
            logger.exception("it failed")
        logger.warning("é \ud800")
    first, second, third = kept.records
    assert (first.getMessage(), first.levelname, first.name, first.process) == ("one of 2", "INFO", "test", os.getpid())
    assert (first.funcName, first.filename) == ("test_record_arrives_unchanged", "test_logging.py")
    assert (first.number, first.thing) == (3, repr(Path("x")))  # type: ignore[attr-defined]
    assert "Stack" in (first.stack_info or "")
    text = logging.Formatter().format(second)
    assert text.startswith("it failed\nTraceback") and text.endswith("ValueError: why")
    assert third.getMessage() == "é \ud800"


def test_long_records_of_many_processes_arrive_whole() -> None:
    kept = Kept()

    def work(handler: Handler) -> None:
        with logger_to(handler) as logger:
            for number in range(50):
                logger.info("%d %d %s", os.getpid(), number, "x" * 100 * number)

    with Listener(kept) as listener, contextlib.ExitStack() as children:
        for _ in range(4):
            children.enter_context(forked(lambda: work(listener.handler())))
        until(lambda: len(kept.records) == 200)
    told: dict[str, list[int]] = {}
    for text in kept.texts():
        pid, number, rest = text.split(" ")
        assert rest == "x" * 100 * int(number)
        told.setdefault(pid, []).append(int(number))
    assert list(told.values()) == [list(range(50))] * 4


def log_one(handler: Handler) -> None:
    with logger_to(handler) as logger:
        logger.warning("from a process that was spawned")


def test_handler_can_be_pickled_to_a_spawned_process() -> None:
    kept = Kept()
    spawn = multiprocessing.get_context("spawn")
    with Listener(kept) as listener:
        handler = listener.handler(level=logging.WARNING)
        child = spawn.Process(target=log_one, args=(handler,))
        child.start()
        child.join()
        handler.close()
    stop_helpers()
    assert kept.texts() == ["from a process that was spawned"]


def test_programs_log_through_a_fifo(tmp_path: Path) -> None:
    path, kept = tmp_path / "log", Kept()
    program = f"""
import logging
from pipework.logging import Handler
logging.basicConfig(handlers=[Handler({str(path)!r})])
logging.warning("from another program")
"""
    with Listener(kept, path=path):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=SOON)
    assert kept.texts() == ["from another program"]
    with pytest.raises(OSError):
        Handler(path, timeout=0)
    with Listener(kept, path=path):
        pass


def test_records_logged_before_a_kill_arrive() -> None:
    kept = Kept()

    def work(handler: Handler) -> None:
        with logger_to(handler) as logger:
            for number in range(100):
                logger.info("%d", number)
            os.kill(os.getpid(), signal.SIGKILL)

    with Listener(kept) as listener:
        handler = listener.handler()
        with forked(lambda: work(handler)):
            until(lambda: len(kept.records) == 100)
        handler.close()


def test_levels_and_filters_apply() -> None:
    low, high = Kept(), Kept(logging.ERROR)
    listener = Listener(low, high, respect_handler_level=True)
    with listener, logger_to(listener.handler(level=logging.INFO)) as logger:
        logger.handlers[0].addFilter(lambda record: "secret" not in record.getMessage())
        for level in (logging.DEBUG, logging.INFO, logging.ERROR):
            logger.log(level, "%d", level)
        logger.error("a secret")
    assert (low.texts(), high.texts()) == (["20", "40"], ["40"])


def test_record_that_cannot_be_sent_is_counted_and_reported() -> None:
    kept = Kept()
    listener = Listener(kept)
    handler = listener.handler(timeout=0.05)
    with logger_to(handler) as logger:
        began, sent = time.monotonic(), 0
        while handler.lost < 10:
            logger.info("x" * 10_000)
            sent += 1
        assert time.monotonic() - began < SOON / 2, "it waits for the first of them only"
        with listener:
            until(lambda: len(kept.records) == sent - 10)
            logger.info("it goes on")
            until(lambda: len(kept.records) == sent - 10 + 2)
        assert kept.texts()[-2:] == ["it goes on", "10 records could not be sent"]
        logger.info("nobody listens")
        assert handler.lost == 11


def test_listener_continues_after_a_broken_record(capsys: pytest.CaptureFixture[str]) -> None:
    class Loud(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise ValueError("not mine")

    kept = Kept()
    with Listener(Loud(), kept) as listener, logger_to(listener.handler()) as logger:
        logger.info("%d", "no number")
        atomic.Writer(os.dup(listener._writer.fileno())).send(pickle.dumps(os.system))
        atomic.Writer(os.dup(listener._writer.fileno())).send(b"no record")
        logger.info("a good one")
    texts = kept.texts()
    assert texts[-1] == "a good one" and all("is no record" in text for text in texts[:-1]) and len(texts) == 3
    errors = capsys.readouterr().err
    assert "no number" in errors and "not mine" in errors


def test_signal_handler_may_log() -> None:
    kept = Kept()
    with Listener(kept) as listener, logger_to(listener.handler()) as logger:
        for _ in range(20):
            with signal_after(0.001, lambda: logger.info("from the signal handler")):
                for _ in range(200):
                    logger.info("x" * 2000)
    handler = logger.handlers[0]
    assert isinstance(handler, Handler)
    told = [text for text in kept.texts() if not text.startswith("x")]
    assert set(told) <= {"from the signal handler", "1 records could not be sent"} and len(kept.records) >= 4000 - handler.lost


def test_forked_child_continues_to_log() -> None:
    kept = Kept()
    with Listener(kept) as listener, logger_to(listener.handler()) as logger:
        logger.info("before")
        in_child(lambda: logger.info("in the child"))
        logger.info("after")
    assert kept.texts() == ["before", "in the child", "after"]
    assert len({record.process for record in kept.records}) == 2


def test_listener_refuses_a_second_start() -> None:
    with Listener() as listener, pytest.raises(RuntimeError):
        listener.start()
    Listener().stop()


def test_listener_that_got_no_thread_can_be_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    kept = Kept()
    listener = Listener(kept)
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="new thread"):
        patched.setattr(threading.Thread, "start", refuse)
        listener.start()
    with listener, logger_to(listener.handler()) as logger:
        logger.error("late")
    assert kept.texts() == ["late"]
