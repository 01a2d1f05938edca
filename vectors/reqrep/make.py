#!/usr/bin/env python3
"""Makes the byte vectors of the segment: NAME.bin and index.json, beside this file. README.md says
how to read them.

Everything is laid out by hand from SEGMENT.md, with Python 3.8 or later and nothing else; run
again, it writes the same bytes.
"""

import json
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
ORIGIN = "by hand from SEGMENT.md"


# ---------------------------------------------------------------- the segment, as SEGMENT.md has it

def up(number, to):
    return -(-number // to) * to


def place(at, size):
    """Behind that if it ends in the same line of 64, else on the next."""
    at = up(at, 4)
    return at if at % 64 + size <= 64 else up(at, 64)


class Sizes:
    def __init__(self, slots=3, queue=8, request=100, reply=50, members=4, blobs=0):
        self.slots, self.queue = slots, queue
        self.request, self.reply, self.members, self.blobs = request, reply, members, blobs

    def said(self):
        return {"slots": self.slots, "queue": self.queue,
                "request_bytes": self.request, "reply_bytes": self.reply, "members": self.members, "blobs": self.blobs}

    ring = property(lambda self: 4096 + 128 * self.members)
    handles = property(lambda self: up(2 * 32 * (self.blobs + 1), 64))
    # Where the head of the first slot is, behind its handles.
    first_slot = property(lambda self: up(self.ring + 8 * self.queue, 64) + self.handles)
    reply_at = property(lambda self: place(32 + self.request, self.reply))
    stride = property(lambda self: self.handles + up(self.reply_at + self.reply, 64))
    len = property(lambda self: self.first_slot - self.handles + self.slots * self.stride + 64)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def header(sizes, *, magic=b"pipework", version=5, kind=0, flags=0, length=None, random=0x0123456789ABCDEF, file=(0, 0), order="<"):
    length = sizes.len if length is None else length
    fixed = magic + struct.pack(order + "8I4Q", version, kind, sizes.slots, sizes.queue, sizes.request,
                                sizes.reply, sizes.members, flags, length, random, *file)
    fixed += struct.pack(order + "I", sizes.blobs) + bytes(44)
    return fixed + struct.pack(order + "Q", fnv1a(fixed))


FREE, FILL, SENT, TAKEN, DROPPED, ANSWERED, FAILED, DIED, PART, FORGOTTEN = range(10)


def slot_word(generation, owner, state, delivery=0, waiter=0, begun=0):
    return generation << 24 | owner << 8 | begun << 7 | delivery << 5 | waiter << 4 | state


def cell(lap, slot=None, generation=1):
    return lap << 25 | (0 if slot is None else 1 << 24 | generation % 16 << 20 | slot)


class Image:
    """A whole segment, to be changed."""

    def __init__(self, sizes):
        self.sizes = sizes
        self.data = bytearray(header(sizes) + bytes(sizes.len - 128))

    def put(self, at, kind, *numbers):
        struct.pack_into("<" + kind, self.data, at, *numbers)
        return self

    def hints(self, head, tail):
        return self.put(192, "Q", head).put(256, "Q", tail)

    def ring(self, *cells):
        return self.put(self.sizes.ring, f"{len(cells)}Q", *cells)

    def member(self, number, epoch, role, pid=0, replies=0):
        at = 4096 + 128 * (number - 1)
        return self.put(at, "QI", epoch << 8 | role, pid).put(at + 88, "Q", replies)

    def slot(self, idx, word, client=0, redeliveries=0, server=0, request=b"", flags=0, reply=b"", reply_flags=0,
             blobs=0, long=0):
        at = self.sizes.first_slot + idx * self.sizes.stride
        # The marks of both sides are zero; the request names so many blobs, and may be the first of them.
        self.put(at, "QHBBHH", word, client, redeliveries, blobs << 4 | long << 3, server, 0)
        self.put(at + 16, "4I", len(request), flags, len(reply), reply_flags)
        self.data[at + 32:at + 32 + len(request)] = request
        self.data[at + self.sizes.reply_at:at + self.sizes.reply_at + len(reply)] = reply
        return self

    def trimmed(self):
        """The bytes up to the last that is not zero."""
        return bytes(self.data).rstrip(b"\0")


# ---------------------------------------------------------------- what a vector says

def opens(name, about, sizes, data, **more):
    said = {"name": name, "about": about, "origin": ORIGIN, "len": sizes.len, "end": data[120:128].hex(),
            "opens": sizes.said(), "refused": None}
    return {**said, **more}, data


def refused(name, about, data, message, length=None):
    said = {"name": name, "about": about, "origin": ORIGIN, "len": len(data) if length is None else length,
            "end": None, "opens": None, "refused": f"reqrep open: {message}"}
    return said, data


NOT_OURS = "not a segment: incompatible"
SHORT = "too short for a segment: incompatible"
VERSION = "another format: incompatible"
FLAGS = "unknown flags: incompatible"
ELSEWHERE = "it is a copy, or was made through another path or mount"
KIND = "unknown kind of payload: incompatible"
DAMAGED = "damaged header: malformed data"
IMPOSSIBLE = "impossible sizes: malformed data"
LENGTH = "cut short or grown: malformed data"


def audit(**places):
    names = ["free", "filling", "waiting", "taken", "dropped", "in_parts", "done", "damaged", "orphaned", "unqueued",
             "entries"]
    return {name: places.get(name, 0) for name in names}


def good():
    small = Sizes(slots=1, queue=2, request=0, reply=0, members=1)
    yield opens("smallest", "The smallest of everything.", small, header(small))
    usual = Sizes(slots=64, queue=128, request=4096, reply=4096, members=256, blobs=8)
    yield opens("usual", "The sizes that nobody asked to change.", usual, header(usual))
    uneven = Sizes()
    yield opens("uneven", "Sizes that have to be rounded up.", uneven, header(uneven, random=2**64 - 1))
    many = Sizes(slots=2**20, queue=2**21, request=1, reply=0, members=65535)
    sparse = Sizes(request=5000)
    yield opens("sparse", "Payloads have pages when they are first written.", sparse, header(sparse, flags=1))
    yield opens("most", "As many slots and members as there can be; the file is sparse.", many, header(many))


def evil():
    sizes = Sizes()
    whole = header(sizes)
    yield refused("nothing", "An empty file.", b"", SHORT)
    yield refused("one-byte-short", "A byte less than what is read.", whole[:127], SHORT)
    yield refused("text", "A file of another program.", b"# pipework settings\n" * 20, NOT_OURS)
    yield refused("zeros", "A file of the right length that nobody has filled in.", b"", NOT_OURS, sizes.len)
    yield refused("ones", "All bits set.", b"\xff" * 128, NOT_OURS, sizes.len)
    yield refused("other-magic", "Another magic.", header(sizes, magic=b"Pipework"), NOT_OURS, sizes.len)
    for version in (0, 4, 6, 2**32 - 1):
        yield refused(f"format-{version}", "Another format, well formed otherwise.",
                      header(sizes, version=version), VERSION, sizes.len)
    yield refused("big-endian", "From a machine with the other byte order.", header(sizes, order=">"), NOT_OURS, sizes.len)
    for at in (16, 36, 48, 56, 64, 100, 120, 127):
        data = bytearray(whole)
        data[at] ^= 0x10
        yield refused(f"bit-at-{at}", "One bit has changed.", bytes(data), DAMAGED, sizes.len)
    for kind in (1, 2):
        yield refused(f"kind-{kind}", "A kind of payload that is not known.", header(sizes, kind=kind), KIND, sizes.len)
    yield refused("flag-2", "A flag that is not known.", header(sizes, flags=2), FLAGS, sizes.len)
    yield refused("elsewhere", "Made as another file.", header(sizes, file=(1, 2)), ELSEWHERE, sizes.len)
    yield refused("no-end", "All is well but for the last eight bytes.", whole, LENGTH, sizes.len)
    impossible = {
        "no-slots": Sizes(slots=0), "too-many-slots": Sizes(slots=2**20 + 1, queue=2**22),
        "slots-that-wrap": Sizes(slots=2**31, queue=2**31), "ring-too-small": Sizes(queue=4),
        "ring-uneven": Sizes(queue=12), "ring-too-large": Sizes(queue=2**23), "no-ring": Sizes(queue=0),
        "request-too-large": Sizes(request=2**30 + 1), "reply-too-large": Sizes(reply=2**32 - 1),
        "no-members": Sizes(members=0), "too-many-blobs": Sizes(blobs=9),
        "too-many-members": Sizes(members=65536), "all-too-large": Sizes(slots=2**20, queue=2**22, request=2**30),
    }
    for name, wrong in impossible.items():
        yield refused(name, "Sizes out of range, with a checksum.", header(wrong, length=wrong.len % 2**64), IMPOSSIBLE, 8192)
    yield refused("length-too-small", "The header says less than its sizes need.",
                  header(sizes, length=sizes.len - 64), LENGTH, sizes.len - 64)
    yield refused("length-too-large", "The header says more than its sizes need.",
                  header(sizes, length=2**46), LENGTH, sizes.len)
    for name, length in (("header-only", 4096), ("fixed-only", 128), ("cut", sizes.len - 1), ("grown", sizes.len + 1)):
        yield refused(name, "The file has another length than its header says.", whole, LENGTH, length)


def states():
    sizes = Sizes(slots=11, queue=32, members=8)
    image = Image(sizes).hints(3, 5).member(2, 7, 1, 4242).member(5, 1, 2, 4243, replies=10)
    # Positions 0 to 2 were emptied; 3 and 4 are waiting, of which the second is stale.
    image.ring(cell(1), cell(1), cell(1), cell(0, 2, 9), cell(0, 8, 5))
    image.slot(1, slot_word(4, 2, FILL), client=2)
    image.slot(2, slot_word(9, 2, SENT), client=2, request=b"never taken")
    image.slot(3, slot_word(1, 5, TAKEN), client=2)
    image.slot(4, slot_word(2, 5, DROPPED), client=2)
    image.slot(5, slot_word(3, 2, ANSWERED), client=2, reply=b"never read")
    image.slot(6, slot_word(3, 2, FAILED), client=2)
    image.slot(7, slot_word(3, 2, DIED), client=2)
    image.slot(8, slot_word(5, 0, FREE), client=2)
    image.slot(9, slot_word(1, 2, PART, begun=1), client=2, server=5, reply=b"never taken")
    image.slot(10, slot_word(1, 5, FORGOTTEN), client=2)
    yield opens("every-state", "A client and a server have died, with a slot in every state; recovery takes all back.", sizes,
                image.trimmed(),
                audit=audit(free=2, filling=1, waiting=1, taken=2, dropped=1, in_parts=1, done=3, orphaned=9,
                            entries=2),
                recovered=2, audit_after=audit(free=11, entries=2), stats={"requests": 32, "replies": 10})

    image = Image(Sizes()).hints(8, 9).member(3, 1, 2)
    image.ring(cell(2), *[cell(1)] * 7)
    image.slot(0, slot_word(5, 3, TAKEN), client=4, redeliveries=1, request=b"once more", flags=7)
    yield opens("redelivery", "A server has died with a request that may go to another.", Sizes(), image.trimmed(),
                audit=audit(free=2, taken=1, orphaned=1), recovered=1,
                audit_after=audit(free=2, waiting=1, orphaned=1, entries=1), stats={"requests": 5, "replies": 0},
                recv={"data": "once more", "flags": 7, "redeliveries": 1})

    image = Image(Sizes()).hints(0, 0).ring(*[cell(1)] * 2, cell(0, 1, 2**40 - 1))
    image.slot(1, slot_word(2**40 - 1, 4, SENT, waiter=1), client=4, request=b"lagging hints", flags=2**32 - 1)
    yield opens("lagging-hints", "Head and tail are where they were long ago; a cell tells its own position.", Sizes(),
                image.trimmed(), audit=audit(free=2, waiting=1, orphaned=1, entries=1), recovered=0,
                audit_after=audit(free=2, waiting=1, orphaned=1, entries=1), stats={"requests": 2**40 - 1, "replies": 0},
                recv={"data": "lagging hints", "flags": 2**32 - 1, "redeliveries": 0})

    image = Image(Sizes()).hints(2**42 - 1, 2**42 - 1).ring(*[cell(0)] * 7, cell(2**39 - 1, 0))
    image.slot(0, slot_word(1, 4, SENT), client=4, request=b"the last lap")
    yield opens("laps-wrap", "The last position before laps begin anew; the cells before it have gone on.", Sizes(),
                image.trimmed(), audit=audit(free=2, waiting=1, orphaned=1, entries=1), recovered=0,
                audit_after=audit(free=2, waiting=1, orphaned=1, entries=1), stats={"requests": 1, "replies": 0},
                recv={"data": "the last lap", "flags": 0, "redeliveries": 0})

    image = Image(Sizes()).hints(0, 3).ring(cell(0, 1), cell(0, 0), cell(0, 1, 2))
    image.slot(0, slot_word(1, 4, SENT), client=4, request=b"the first")
    image.slot(1, slot_word(2, 4, SENT), client=4, request=b"the second")
    yield opens("entry-of-an-earlier-call", "The first entry is of a call that is over; the slot's next call has its own.",
                Sizes(), image.trimmed(), audit=audit(free=1, waiting=2, orphaned=2, entries=3), recovered=0,
                audit_after=audit(free=1, waiting=2, orphaned=2, entries=3), stats={"requests": 3, "replies": 0},
                recv={"data": "the first", "flags": 0, "redeliveries": 0})


def broken():
    """Opened like any other, for the first bytes are well formed; what is wrong shows where it is
    met."""
    free = audit(free=3)
    said = {"recovered": 0, "stats": {"requests": 0, "replies": 0}}

    image = Image(Sizes()).ring(*[cell(lap << 37, 0) for lap in range(4)] * 2)
    yield opens("ring-in-a-circle", "Each cell is ahead of the one before it.", Sizes(), image.trimmed(),
                audit={**free, "entries": None}, audit_after={**free, "entries": None}, recv="corrupt", **said)

    image = Image(Sizes()).hints(2**40, 2**40)
    yield opens("hints-that-lead", "Head and tail are where nobody has been.", Sizes(), image.trimmed(),
                audit=free, audit_after=free, recv="corrupt", **said)

    image = Image(Sizes()).hints(0, 1).ring(cell(0, 2**20 - 1))
    yield opens("entry-of-no-slot", "An entry of a slot that does not exist is stale.", Sizes(), image.trimmed(),
                audit={**free, "entries": 1}, audit_after={**free, "entries": 1}, recv=None, **said)

    image = Image(Sizes()).hints(0, 1).ring(cell(0, 1))
    image.slot(1, slot_word(1, 4, SENT), client=4).put(Sizes().first_slot + Sizes().stride + 16, "I", 101)
    waiting = audit(free=2, waiting=1, orphaned=1, entries=1)
    yield opens("request-too-long", "A request that says that it is longer than its place; it fails.", Sizes(),
                image.trimmed(), audit=waiting, audit_after=waiting, recv=None, recovered=0,
                stats={"requests": 1, "replies": 0})

    image = Image(Sizes()).hints(0, 1).ring(cell(0, 1))
    image.slot(1, slot_word(1, 4, SENT), client=4, blobs=1, long=1)
    yield opens("long-request-without-a-blob", "The blob that is its payload does not exist; it fails.", Sizes(),
                image.trimmed(), audit=waiting, audit_after=waiting, recv=None, recovered=0,
                stats={"requests": 1, "replies": 0})

    image = Image(Sizes())
    for idx, state in enumerate((10, 11, 15)):
        image.slot(idx, slot_word(1, 1, state))
    damaged = audit(damaged=3, orphaned=3)
    yield opens("states-of-nobody", "States that do not exist; nobody touches them.", Sizes(), image.trimmed(),
                audit=damaged, audit_after=damaged, recv=None, recovered=0, stats={"requests": 3, "replies": 0})

    image = Image(Sizes())
    for number in range(1, 5):
        image.member(number, 2**56 - 1, 1 + number % 2).put(4096 + 128 * (number - 1) + 8, "IIQQ", *[2**32 - 1] * 2, *[2**64 - 1] * 2)
    yield opens("members-of-nobody", "All places are taken, by members whose locks nobody holds.", Sizes(),
                image.trimmed(), audit=free, audit_after=free, recv=None, recovered=4,
                stats={"requests": 0, "replies": 0})


def main():
    vectors = [*good(), *evil(), *states(), *broken()]
    lines = ",\n".join(json.dumps(said) for said, _ in vectors)
    (HERE / "index.json").write_text(f'{{"byte_order": "little", "format": 5, "vectors": [\n{lines}\n]}}\n')
    for said, data in vectors:
        (HERE / f"{said['name']}.bin").write_bytes(data)


main()
