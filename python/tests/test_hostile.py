"""Any bytes in a pipe are items, reports or errors of the package, and the memory stays within the
limits."""

from __future__ import annotations

import os

import pipework
from hypothesis import given, settings
from hypothesis import strategies as st
from pipework import atomic

# Bytes that mean something turn up more often than by chance.
PIECES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"\x0e", b"\x0f", b"\x10", b"\x0e\x10", b"\n", b"\r", b"\x28\xb5\x2f\xfd"]),
    st.builds(
        lambda pid, tid, part, size, data: b"".join(n.to_bytes(4, "little") for n in (pid, tid, part, size)) + data,
        st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 70), st.binary(max_size=70),
    ),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=30).map(b"".join), st.booleans(), st.booleans(), st.sampled_from([None, 1]))
def test_reader_returns_items_or_errors_for_any_bytes(wire: bytes, mixed: bool, strict: bool, zstd: int | None) -> None:
    reader, writer = atomic.pair(mixed=mixed, strict=strict, zstd=zstd, max_message=1000, max_unfinished=2000)
    with reader:
        if wire:
            os.write(writer.fileno(), wire)
        writer.close()
        out = 0
        try:
            for item in reader:
                if not isinstance(item, atomic.Torn):
                    out += len(item.data)
                    assert len(item.data) <= 1000
        except (pipework.Corrupt, pipework.Incompatible):
            pass
        assert zstd is not None or out <= len(wire)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=9000), max_size=6), st.booleans(), st.sampled_from([None, 1, -5]))
def test_any_messages_round_trip(messages: list[bytes], mixed: bool, zstd: int | None) -> None:
    reader, writer = atomic.pair(mixed=mixed, zstd=zstd)
    with reader, writer:
        assert writer.send_many(messages, timeout=20) == len(messages)
        writer.close()
        assert [item.data for item in reader if isinstance(item, atomic.Message)] == messages
