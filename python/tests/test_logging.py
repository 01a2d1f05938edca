"""Records of many processes through one pipe."""

from __future__ import annotations

import contextlib
import enum
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    *broken, good, count = kept.texts()
    assert all("is no record" in text for text in broken) and len(broken) == 2
    assert (good, count) == ("a good one", "1 records could not be sent"), "one could not be formatted"
    errors = capsys.readouterr().err
    assert "no number" in errors and "not mine" in errors


class Stopped(Kept):
    """A handler that stands still until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        assert self.let_go.wait(SOON)


def missing(kept: Kept) -> int:
    """The number of lost records that the listener has reported."""
    texts = [text for text in kept.texts() if text.endswith(" records could not be sent")]
    return sum(int(text.split(" ")[0]) for text in texts)


def test_close_tells_how_many_records_are_lost() -> None:
    stopped = Stopped()
    with Listener(stopped) as listener:
        handler = listener.handler(timeout=0.01)
        logger = logging.Logger("test")
        logger.addHandler(handler)
        while handler.lost < 10:
            logger.info("x" * 10_000)
        sent = handler.lost
        handler._timeout = SOON
        closing = threading.Thread(target=handler.close)
        closing.start()
        stopped.let_go.set()
        closing.join(SOON)
        assert not closing.is_alive()
    assert (missing(stopped), handler.lost) == (sent, sent)


def test_flush_tells_how_many_records_are_lost() -> None:
    kept = Kept()
    listener = Listener(kept)
    with logger_to(listener.handler(timeout=0.01)) as logger:
        handler = logger.handlers[0]
        assert isinstance(handler, Handler)
        while handler.lost < 10:
            logger.info("x" * 10_000)
        handler.flush()  # there is no space
        with listener:
            until(lambda: len(kept.records) > 0)
            handler._timeout = SOON
            handler.flush()
            handler.flush()
        assert (missing(kept), handler.lost) == (10, 10)


ENDS = {
    "exits": "",
    "drops the handler": "logger.removeHandler(handler); del handler",
    "shuts logging down": "logging.shutdown()",
    "is a process of multiprocessing": """
import multiprocessing
context = multiprocessing.get_context(METHOD)
worker = context.Process(target=work)
worker.start()
worker.join()
handler.lost = handler._untold = 0
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_count_is_printed_where_the_listener_does_not_take_it(end: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import logging
from pipework.logging import Listener
METHOD = "fork"
listener = Listener()  # which is never started
handler = listener.handler(timeout=0.01)
logger = logging.Logger("test")
logger.addHandler(handler)

def work():
    while handler.lost < 7:
        logger.info("x" * 10_000)

if {end!r}.startswith("is"):
    handler.lost = 7
    while handler.lost < 8:
        logger.info("x" * 10_000)
else:
    work()
{ENDS[end]}
"""
    )
    done = subprocess.run([sys.executable, "-W", "ignore", program], stderr=subprocess.PIPE, text=True, timeout=SOON)
    assert (done.returncode, done.stderr) == (0, "pipework.logging: 7 records could not be sent\n")


def test_listener_that_stands_still_costs_a_bounded_time() -> None:
    listener = Listener()
    handler = listener.handler(timeout=0.05)
    with logger_to(handler) as logger:
        waits: list[float] = []
        now, send = time.monotonic, handler._writer.send

        class Timed:
            max_part = handler._writer.max_part

            def send(self, data: bytes, *, timeout: float) -> None:
                waits.append(timeout)
                send(data, timeout=timeout)

        writer = handler._writer
        handler._writer = Timed()  # type: ignore[assignment]
        began = now()
        while handler.lost < 2000:
            logger.info("x" * 1000)
        took = now() - began
        handler._writer = writer
        # All records before the pipe was full may wait for 0.05 s, and did not.
        vain = waits[-2000:]
        assert vain[:2] != [0.0, 0.0] and sum(vain) <= 0.05 * (5 + 0.1 * took / 0.05 + 1), "a tenth of the time"
        assert vain.count(0.0) > 1000
        handler.lost = handler._untold = 0


def test_records_wait_again_when_a_listener_goes_on() -> None:
    """Twenty processes, more than their listener takes at a time, after it has stood still."""
    stopped = Stopped()
    listener = Listener(stopped)
    begun, go = multiprocessing.get_context("fork").Semaphore(0), multiprocessing.get_context("fork").Event()

    def work() -> None:
        handler = listener.handler(timeout=0.1)
        with logger_to(handler) as logger:
            while not handler.lost:
                logger.info("x" * 10_000)
            begun.release()
            assert go.wait(SOON)
            # So long that it does not end by a miss on a busy machine.
            handler._timeout = SOON
            for _ in range(50):
                logger.info("after")
                logger.info("x" * 10_000)

    with listener, contextlib.ExitStack() as children:
        pids = [children.enter_context(forked(work)) for _ in range(20)]
        for _ in pids:
            assert begun.acquire(timeout=SOON)
        stopped.let_go.set()
        go.set()
        for pid in pids:
            until(lambda pid=pid: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))  # type: ignore[misc]
    assert stopped.texts().count("after") == 20 * 50
    assert missing(stopped) == 20, "one of each process, which waited for the listener"


class Level(enum.IntEnum):
    HIGH = 45


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError("not to be called")


class Seconds(float):
    pass


class Silent:
    def __repr__(self) -> str:
        raise ValueError("it has none")


class Odd:
    def __repr__(self) -> str:
        return Text("an odd one")


ODD: list[tuple[object, object]] = [
    (Level.HIGH, 45),
    (Text("text"), "text"),
    (Seconds(1.5), 1.5),
    (type("Bytes", (bytes,), {})(b"bytes"), b"bytes"),
    (True, True),
    (10**5000, 10**5000),
    (float("inf"), float("inf")),
    ("\ud800", "\ud800"),
    ("a\0b", "a\0b"),
    (bytearray(b"x"), "bytearray(b'x')"),
    ((1, 2), "(1, 2)"),
    (Silent(), "<Silent, whose repr raised ValueError>"),
    (Odd(), "an odd one"),
]


@pytest.mark.parametrize("value, arrives", ODD, ids=[type(value).__name__ for value, _ in ODD])
def test_record_arrives_whatever_its_fields_are(value: object, arrives: object) -> None:
    kept, given = Kept(), logging.LogRecord("name", 20, "path", 1, "text", None, None)
    fields = [name for name in vars(given) if name not in ("msg", "args", "exc_info")]
    with Listener(kept) as listener, logger_to(listener.handler()) as logger:
        for name in fields:
            record = logging.makeLogRecord({**vars(given), name: value})
            logger.handlers[0].handle(record)
        logger.handlers[0].handle(logging.makeLogRecord({**vars(given), "extra": value}))
        assert getattr(logger.handlers[0], "lost") == 0
    assert len(kept.records) == len(fields) + 1
    for name, record in zip([*fields, "extra"], kept.records):
        assert vars(record)[name] == arrives and type(vars(record)[name]) is type(arrives), name


def test_record_arrives_whatever_its_keys_and_its_level_are() -> None:
    kept = Kept()
    with Listener(kept) as listener, logger_to(listener.handler()) as logger:
        logger.log(Level.HIGH, "%s", "argument", extra={1: "one", Text("key"): 2, (1,): 3})  # type: ignore[dict-item]
        record = logging.makeLogRecord({"msg": b"bytes"})
        del record.thread
        logger.handlers[0].handle(record)
    first, second = (dict[Any, Any](vars(record)) for record in kept.records)
    assert (first["levelno"], first["msg"], first[1], first["key"], first["(1,)"]) == (45, "argument", "one", 2, 3)
    assert second["msg"] == "b'bytes'"


def test_listener_takes_a_level_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Kept()
    with Listener(kept, respect_handler_level=True) as listener, logger_to(listener.handler()) as logger:
        logger.handlers[0].handle(logging.makeLogRecord({"msg": "odd", "levelno": "high"}))
        logger.error("a good one")
    assert kept.texts() == ["a good one"] and "odd" in capsys.readouterr().err


@pytest.mark.long("many forks")
def test_workers_forked_while_threads_log_lose_nothing() -> None:
    kept = Kept()
    with Listener(kept) as listener, logger_to(listener.handler(timeout=SOON)) as logger:
        is_over = threading.Event()

        def log() -> None:
            while not is_over.is_set():
                logger.info("x" * 10_000)

        threads = [threading.Thread(target=log) for _ in range(3)]
        for thread in threads:
            thread.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
            for number in range(100):
                in_child(lambda number=number: logger.info("worker %d", number))  # type: ignore[misc]
        is_over.set()
        for thread in threads:
            thread.join()
        assert getattr(logger.handlers[0], "lost") == 0
    workers = [text for text in kept.texts() if not text.startswith("x")]
    assert workers == [f"worker {number}" for number in range(100)]


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
