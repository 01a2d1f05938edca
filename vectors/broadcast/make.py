#!/usr/bin/env python3
"""Makes the byte vectors of a broadcast's segment: NAME.bin and index.json, beside this file. README.md
says how to read them.

Everything is laid out by hand from BROADCAST.md and FILE.md, with Python 3.8 or later and nothing
else; run again, it writes the same bytes.
"""

import json
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
ORIGIN = "by hand from BROADCAST.md"


def up(number, to):
    return -(-number // to) * to


class Sizes:
    def __init__(self, messages=4, message=40, members=4, blobs=0, observers=0):
        self.messages, self.message, self.members = messages, message, members
        self.blobs, self.observers = blobs, observers

    def said(self):
        return {"messages": self.messages, "message_bytes": self.message, "members": self.members,
                "blobs": self.blobs, "observers": bool(self.observers)}

    handles = property(lambda self: up(32 * (self.blobs + 1), 64))
    # Where the head of the first cell is, behind its handles.
    first_cell = property(lambda self: 4096 + 128 * self.members + self.handles)
    stride = property(lambda self: self.handles + up(24 + self.message, 64))
    len = property(lambda self: self.first_cell - self.handles + self.messages * self.stride + 64)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def header(sizes, *, kind=1, flags=0, zero=0, length=None):
    length = sizes.len if length is None else length
    fixed = b"pipework" + struct.pack("<8I4Q", 5, kind, sizes.messages, sizes.message, sizes.observers, zero,
                                      sizes.members, flags, length, 0x0123456789ABCDEF, 0, 0)
    fixed += struct.pack("<I", sizes.blobs) + bytes(44)
    return fixed + struct.pack("<Q", fnv1a(fixed))


SKIPPED, WRITING, DONE, DROPPED = range(4)
PUBLISHER, SUBSCRIBER = 1, 2


def cell_word(lap, state, member):
    return lap % 2**46 << 18 | state << 16 | member


def cursor_word(position, epoch):
    return position % 2**47 << 17 | epoch % 2**16 << 1 | 1


class Image:
    """A whole segment, to be changed."""

    def __init__(self, sizes=None):
        self.sizes = sizes or Sizes()
        self.data = bytearray(header(self.sizes) + bytes(self.sizes.len - 128))

    def put(self, at, kind, *numbers):
        struct.pack_into("<" + kind, self.data, at, *numbers)
        return self

    def tail(self, position):
        return self.put(192, "Q", position % 2**64)

    def member(self, number, epoch, role, pid=0, cursor=0):
        at = 4096 + 128 * (number - 1)
        return self.put(at, "QI", epoch << 8 | role, pid).put(at + 64, "Q", cursor)

    def cell(self, position, state, member=1, data=b"", flags=0, named=0, lap=None, length=None):
        """The cell of a position, which holds the message of that position."""
        cap = self.sizes.messages
        at = self.sizes.first_cell + position % cap * self.sizes.stride
        lap = position // cap + 1 if lap is None else lap
        length = len(data) if length is None else length
        self.put(at, "QIII", cell_word(lap, state, member), length, flags, named)
        self.data[at + 24:at + 24 + len(data)] = data
        return self

    def trimmed(self):
        """The bytes up to the last that is not zero."""
        return bytes(self.data).rstrip(b"\0")


# ---------------------------------------------------------------- what a vector says

def opens(name, about, image, **more):
    sizes, data = image.sizes, image.trimmed()
    said = {"name": name, "about": about, "origin": ORIGIN, "len": sizes.len, "end": data[120:128].hex(),
            "opens": sizes.said(), "refused": None}
    return {**said, **more}, data


def refused(name, about, data, message, length):
    said = {"name": name, "about": about, "origin": ORIGIN, "len": length, "end": None, "opens": None,
            "refused": f"broadcast open: {message}"}
    return said, data


def audit(**states):
    names = ["empty", "writing", "done", "skipped", "dropped", "orphaned"]
    return {name: states.get(name, 0) for name in names}


def stats(published, skipped=0):
    return {"published": published, "skipped": skipped}


def message(number, data, flags=0):
    return {"number": number, "data": data, "flags": flags}


IMPOSSIBLE = "impossible sizes: malformed data"


def sizes():
    def empty(sizes):
        cells = audit(empty=sizes.messages)
        return {"stats": stats(0), "audit": cells, "recovered": 0, "audit_after": cells, "received": [],
                "publishes": 1}

    small = Sizes(messages=2, message=0, members=2)
    yield opens("smallest", "The smallest of everything that can publish and receive.", Image(small), **empty(small))
    usual = Sizes(messages=1024, message=1024, members=256, blobs=8)
    yield opens("usual", "The sizes that nobody asked to change.", Image(usual), **empty(usual))
    observed = Sizes(message=41, blobs=2, observers=1)
    yield opens("observed", "For processes that may only read; sizes that have to be rounded up.", Image(observed),
                **empty(observed))

    whole = Sizes()
    yield refused("kind-0", "A segment of calls.", header(whole, kind=0),
                  "unknown kind of payload: incompatible", whole.len)
    impossible = {
        "no-messages": Sizes(messages=0), "one-message": Sizes(messages=1), "messages-uneven": Sizes(messages=6),
        "too-many-messages": Sizes(messages=2**21), "message-too-large": Sizes(message=2**30 + 1),
        "no-members": Sizes(members=0), "too-many-members": Sizes(members=65536), "too-many-blobs": Sizes(blobs=9),
        "observers-2": Sizes(observers=2), "all-too-large": Sizes(messages=2**31, message=2**32 - 1),
    }
    for name, wrong in impossible.items():
        yield refused(name, "Sizes out of range, with a checksum.", header(wrong, length=wrong.len % 2**46),
                      IMPOSSIBLE, 8192)
    yield refused("fourth-size", "A size that this format does not have.", header(whole, zero=1), IMPOSSIBLE, whole.len)


def words():
    image = Image().tail(6).member(2, 7, SUBSCRIBER, 4242, cursor_word(4, 7)).member(3, 2, PUBLISHER, 4243)
    image.cell(2, DONE, data=b"third", flags=7).cell(3, SKIPPED)
    image.cell(4, WRITING, 3, b"half of the fi").cell(5, DONE, data=b"sixth", flags=2**32 - 1)
    yield opens("every-state", "A subscriber that must see all and a publisher have died; the fifth message is passed over.",
                image, stats=stats(6), audit=audit(done=2, skipped=1, writing=1, orphaned=2), recovered=2,
                audit_after=audit(done=2, skipped=2),
                received=[message(3, "third", 7), message(6, "sixth", 2**32 - 1)], publishes=7)

    image = Image().tail(4)
    image.cell(0, DONE, data=b"first").cell(1, DROPPED).cell(2, DROPPED).cell(3, DONE, data=b"fourth")
    cells = audit(done=2, dropped=2)
    yield opens("dropped", "Two messages that their publisher has taken back.", image, stats=stats(4), audit=cells,
                recovered=0, audit_after=cells, received=[message(1, "first"), {"missed": 2}, message(4, "fourth")],
                publishes=5)

    image = Image().tail(2)
    for position in range(4):
        image.cell(position, DONE, data=b"%d" % position)
    cells = audit(done=4)
    yield opens("lagging-tail", "Two publishers have died between claiming a cell and raising the tail, after their messages.",
                image, stats=stats(2), audit=cells, recovered=0, audit_after=cells,
                received=[message(p + 1, str(p)) for p in range(4)], publishes=5)

    for name, about, end in (("laps-wrap", "The last lap before laps begin again with 0.", 2**46 * 4),
                             ("positions-wrap", "The last position before those of cursors begin again with 0.", 2**47)):
        image = Image().tail(end + 1).member(2, 2**16 + 3, SUBSCRIBER, 1, cursor_word(end - 1, 3))
        for position in range(end - 3, end + 1):
            image.cell(position, DONE, data=b"%d" % (position - end), lap=(position // 4 + 1) % 2**46)
        yield opens(name, about, image, stats=stats(end + 1), audit=audit(done=4, orphaned=1), recovered=1,
                    audit_after=audit(done=4), received=[message(end + p, str(p - 1)) for p in range(-2, 2)],
                    publishes=end + 2)


def broken():
    """Opened like any other, for the first bytes are well formed; what is wrong shows where it is
    met."""
    image = Image().tail(1).cell(0, DONE, data=b"", length=41)
    cells = audit(done=1, empty=3)
    said = {"stats": stats(1), "audit": cells, "recovered": 0, "audit_after": cells}
    yield opens("too-long", "A message that says that it is longer than its cell.", image, **said,
                received=["corrupt"], publishes=2)

    image = Image().tail(1).cell(0, DONE, named=1 << 1 | 1)
    yield opens("long-without-a-blob", "The blob that is the message does not exist.", image, **said,
                received=["missing"], publishes=2)

    image = Image().tail(2**40)
    cells = audit(empty=4)
    yield opens("tail-that-leads", "The tail is where nobody has been.", image, stats=stats(2**40), audit=cells,
                recovered=0, audit_after=cells, received=[], publishes="corrupt")

    image = Image().tail(2**64 - 1)
    for idx in range(4):
        image.cell(idx, DONE, lap=2**62 + 1 & 2**46 - 1, data=b"?")
    cells = audit(done=4)
    yield opens("last-of-all", "The last position that a word of 64 bits has.", image, stats=stats(2**64 - 1),
                audit=cells, recovered=0, audit_after=cells, received=None, publishes=None)

    image = Image().tail(1).cell(0, WRITING, 65535)
    yield opens("written-by-nobody", "A member that the segment has no place for.", image, stats=stats(1),
                audit=audit(writing=1, empty=3, orphaned=1), recovered=0,
                audit_after=audit(writing=1, empty=3, orphaned=1), received=[], publishes=2)

    image = Image()
    for number in range(1, 5):
        image.member(number, 2**56 - 1, 1 + number % 2, 2**32 - 1, 2**64 - 1)
    cells = audit(empty=4)
    yield opens("members-of-nobody", "All places are taken, by members whose locks nobody holds.", image,
                stats=stats(0), audit={**cells, "orphaned": 4}, recovered=4, audit_after=cells, received=[], publishes=1)


def main():
    vectors = [*sizes(), *words(), *broken()]
    lines = ",\n".join(json.dumps(said) for said, _ in vectors)
    (HERE / "index.json").write_text(f'{{"byte_order": "little", "format": 5, "vectors": [\n{lines}\n]}}\n')
    for said, data in vectors:
        (HERE / f"{said['name']}.bin").write_bytes(data)


main()
