#!/usr/bin/env python3
"""Makes the byte vectors of the wire: NAME.bin and index.json, beside this file. README.md says how
to read them.

Python 3.8 or later and nothing else for what is laid out by hand. Two groups need the program that
their bytes come
from: a perl that finds Atomic::Pipe (PERL5LIB), and the zstd command. A group whose program is
    missing keeps the files that lie here. Run again with the same programs, it writes the same
    bytes.
"""

import json
import shutil
import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ALL_BYTES = bytes(range(256))
BY_HAND = "by hand from WIRE.md"


class Missing(Exception):
    """A program that a group needs is not here."""


# ---------------------------------------------------------------- the wire, as WIRE.md has it

class Count:
    """Data that is described, not spelled out: the numbers from `first` on, a space after each, cut
    at `len` bytes."""

    def __init__(self, length, first=0):
        self.first, self.len = first, length

    def __bytes__(self):
        return "".join(f"{number} " for number in range(self.first, self.first + self.len)).encode()[:self.len]


def raw(data):
    return data.encode("latin-1") if isinstance(data, str) else bytes(data)


def part(writer, part_id, data, mixed=False, size=None):
    data = raw(data)
    assert len(data) <= (4077 if mixed else 4080), "a part fits in one write"
    bare = struct.pack("<iiII", *writer, part_id, len(data) if size is None else size) + data
    return b"\x0e\x10" + bare + b"\x0f" if mixed else bare


def parts(writer, *datas, mixed=False):
    """One message in parts of just these data."""
    last = len(datas) - 1
    return b"".join(part(writer, last - nth, data, mixed) for nth, data in enumerate(datas))


# -------------------- what a writer of this library says of a message

FIRST = 1 << 31
FACTOR = 0x9E3779B97F4A7C15


def check(payload):
    """The check of WIRE.md, word by word."""
    payload = raw(payload)
    rows = [struct.unpack("<8I", row) for row in zip_rows(payload + bytes(32 - len(payload) % 32))]
    total = len(payload)
    for lane in range(8):
        plain = sum(row[lane] for row in rows) % 2**32
        placed = sum(row[lane] * (len(rows) - nth) for nth, row in enumerate(rows)) % 2**32
        total += (plain + (placed << 32)) * (FACTOR * (2 * lane + 1) % 2**64)
    total %= 2**64
    return 1 + ((total ^ total >> 32) * FACTOR % 2**64 >> 32) % 1023


def zip_rows(data):
    return [data[at:at + 32] for at in range(0, len(data), 32)]


def marked(writer, *datas, mixed=False, number=None):
    """One message, part by part: with its check (or `number`), its first part marked, its key even
    or odd."""
    number = check(b"".join(raw(data) for data in datas)) if number is None else number
    pid, tid, last = writer[0] | number << 22, writer[1] + (len(datas) > 1), len(datas) - 1
    key = struct.unpack("<ii", struct.pack("<Ii", pid, tid))
    return [part(key, last - nth | (FIRST if nth == 0 and last else 0), data, mixed) for nth, data in enumerate(datas)]


def cut(data, first, most):
    """Pieces of `data`: the first of `first` bytes, the others as large as they may be."""
    data = raw(data)
    return [data[:first]] + [data[at:at + most] for at in range(first, len(data), most)]


# ---------------------------------------------------------------- what a vector says

def line(data):
    return {"type": "line", "data": plain_json(data)}


def burst(data):
    return {"type": "burst", "data": plain_json(data)}


def message(data, writer, count=1):
    return {"type": "message", "data": plain_json(data), "writer": list(writer), "parts": count}


def torn(kind, writer, count, size):
    return {"type": "torn", "kind": kind, "writer": list(writer) if writer else None, "parts": count, "bytes": size}


def plain_json(data):
    if isinstance(data, Count):
        return {"count_from": data.first, "len": data.len}
    return data if isinstance(data, str) else data.decode("latin-1")


def vector(name, about, wire, items, *, origin=BY_HAND, strict=False, zstd=None, max_message=None,
           ends="closed", write=None):
    mode = name.split("-")[0]
    assert mode in ("plain", "mixed"), name
    said = {"name": name, "about": about, "origin": origin, "mode": mode, "strict": strict, "zstd": zstd,
            "max_message": max_message, "items": items, "ends": ends, "write": write}
    return said, wire


# ---------------------------------------------------------------- group: written by Atomic::Pipe

PERL = r"""
my ($r, $w) = Atomic::Pipe->pair($ARGV[0] eq 'mixed' ? (mixed_data_mode => 1) : ());
binmode STDOUT;
$r->blocking(0);
while (my $step = <STDIN>) {
    my ($pid, $call, $hex) = split /[ \n]/, $step;
    $$ = $pid;    # what Atomic::Pipe puts into the header: the same number on every run
    my $data = pack 'H*', $hex;
    $call eq 'line' ? syswrite($w->wh, $data) : $call eq 'burst' ? $w->write_burst($data) : $w->write_message($data);
    print $_ while sysread $r->rh, $_, 65536;
}
"""


def perl(mode, items):
    """The bytes that Atomic::Pipe writes for these items."""
    steps = "".join(
        f"{item.get('writer', [1])[0]} {item['type']} {undo_json(item['data']).hex()}\n" for item in items)
    return run(["perl", "-MAtomic::Pipe", "-e", PERL, mode], steps.encode())


def undo_json(data):
    if isinstance(data, dict):
        return bytes(Count(data["len"], data["count_from"]))
    return data.encode("latin-1")


def by_atomic_pipe():
    found = shutil.which("perl") and subprocess.run(
        ["perl", "-MAtomic::Pipe", "-e", "printf '%s, Perl %vd', Atomic::Pipe->VERSION, $^V"], capture_output=True)
    if not found or found.returncode != 0:
        raise Missing("a perl that finds Atomic::Pipe")
    origin = "written by Atomic::Pipe " + found.stdout.decode()
    one, two = (1001, 0), (1002, 0)

    def written(name, about, items, write="each", **options):
        return vector(name, about, perl(name.split("-")[0], items), items, origin=origin, write=write, **options)

    for mode, most in (("plain", 4080), ("mixed", 4077)):
        sizes = [*range(4076, 4082), *range(4093, 4098)]
        yield written(f"{mode}-one-byte", "The smallest message that Atomic::Pipe writes.", [message("x", one)])
        yield written(f"{mode}-every-byte", "Control bytes in a message are data.",
                      [message(ALL_BYTES + ALL_BYTES[::-1], one)])
        yield written(f"{mode}-limits", "Sizes around the largest part, PIPE_BUF less the header, and PIPE_BUF.",
                      [message(Count(size, nth), one, -(-size // most)) for nth, size in enumerate(sizes)])
        yield written(f"{mode}-long", "A message in full parts and a last part of one byte.",
                      [message(Count(3 * most + 1), one, 4)])
        full = most + (19 if mode == "mixed" else 16)
        first, second = (perl(mode, [message(Count(2 * most + 5, nth * 9), writer, 3)])
                         for nth, writer in enumerate((one, two)))
        first, second = (cut(wire, full, full) for wire in (first, second))
        dealt = [first[0], second[0], second[1], first[1], second[2], first[2]]
        yield vector(f"{mode}-interleaved", "Two writers whose parts lie between each other.", b"".join(dealt),
                     [message(Count(2 * most + 5, 9), two, 3), message(Count(2 * most + 5), one, 3)],
                     origin=origin + ", parts dealt by make.py")
    yield written("mixed-bursts", "Bursts: empty, small, with line ends and 0x10 inside, as large as they may be.",
                  [burst(""), burst("b"), burst("two\nlines\r\n"), burst("a\x10b"), burst(Count(4094))])
    around = [line("before\n"), burst("burst"), message("message", one), line("after\n"),
              message(Count(5000), one, 2), line("and the end\n")]
    yield written("mixed-between-lines", "Text, bursts and messages in turn.", around)
    yield written("mixed-between-lines-strict", "The same, strictly.", around, write=None, strict=True)
    said = [line("the line "), burst("burst"), message("message", one), line("goes on\n")]
    yield vector("mixed-inside-a-line", "Frames do not end a line.", perl("mixed", said),
                 [burst("burst"), message("message", one), line("the line goes on\n")], origin=origin)
    wire = perl("mixed", [burst("AB\x0eCD")])
    yield vector("mixed-shift-out-in-burst", "The innermost 0x0E opens the burst, what stands before it is text.",
                 wire, [burst("CD"), line("\x0eAB")], origin=origin)
    yield vector("mixed-shift-out-in-burst-strict", "Strictly, a burst may hold 0x0E.",
                 wire, [burst("AB\x0eCD")], origin=origin, strict=True)


# ---------------------------------------------------------------- group: by hand

ONE, TWO, THREE = (2001, 77), (2001, 78), (-7, -2147483648)
GOOD = part(ONE, 0, "good", mixed=True)
IS_GOOD = message("good", ONE)


def by_hand():
    yield from valid_by_hand()
    yield from by_this_library()
    yield from not_what_was_sent()
    yield from broken_sequences()
    yield from over_the_limit()
    yield from cut_short()
    yield from stray_control_bytes()


def valid_by_hand():
    for mode, most in (("plain", 4080), ("mixed", 4077)):
        mixed, over = mode == "mixed", 4096 - most
        yield vector(f"{mode}-nothing", "A pipe in which nobody wrote.", b"", [], write="each")
        yield vector(f"{mode}-empty", "Empty messages, alone and beside another.",
                     part(ONE, 0, "", mixed) * 2 + part(ONE, 0, "x", mixed) + part(ONE, 0, "", mixed),
                     [message("", ONE), message("", ONE), message("x", ONE), message("", ONE)], write="each")
        small = [Count(100, nth) for nth in range(3)]
        pieces = cut(Count(9000, 3), 4096 - 3 * (100 + over) - over, most)
        yield vector(f"{mode}-packed", "Small messages and the parts of a long one share writes.",
                     b"".join(part(ONE, 0, data, mixed) for data in small) + parts(ONE, *pieces, mixed=mixed)
                     + part(ONE, 0, "last", mixed),
                     [*(message(data, ONE) for data in small), message(Count(9000, 3), ONE, 3), message("last", ONE)],
                     write="together")
        whole = bytes(Count(most + 3))
        yield vector(f"{mode}-uneven", "Parts of any size up to the largest, empty ones too.",
                     parts(ONE, whole[:1], "", whole[1:3], whole[3:], "", mixed=mixed),
                     [message(Count(most + 3), ONE, 5)])
        yield vector(f"{mode}-keys", "Writers are told apart by both numbers, which may be negative.",
                     b"".join(part(key, 1, "a", mixed) for key in (ONE, TWO, THREE))
                     + b"".join(part(key, 0, data, mixed) for key, data in ((THREE, "3"), (ONE, "1"), (TWO, "2"))),
                     [message("a3", THREE, 2), message("a1", ONE, 2), message("a2", TWO, 2)])
    yield vector("mixed-line-ends", "LF, CR LF and CR end a line; the last one may have no end.",
                 b"lf\ncrlf\r\ncr\rcr cr\r\r\n\n\r\nend",
                 [line(text) for text in ("lf\n", "crlf\r\n", "cr\r", "cr cr\r", "\r\n", "\n", "\r\n", "end")])
    yield vector("mixed-last-cr", "A CR that nothing follows ends its line when the pipe ends.", b"a\r", [line("a\r")])
    yield vector("mixed-cr-then-frame", "A CR waits for the next byte of text; frames are none.",
                 b"a\r" + GOOD + b"\nb\r" + GOOD + b"c\n",
                 [IS_GOOD, line("a\r\n"), IS_GOOD, line("b\r"), line("c\n")])
    yield vector("mixed-any-text", "Text is any bytes but 0x0E: NUL, 0x0F, 0x10, and what is no UTF-8.",
                 b"\x00\x0f\x10\xff\xfe\x1b[0m\n", [line("\x00\x0f\x10\xff\xfe\x1b[0m\n")])
    yield vector("mixed-vt100", "A terminal's alternate character set, switched on and off, reads as a burst.",
                 b"\x0elqqqk\x0f box\n", [burst("lqqqk"), line(" box\n")])


OURS = (2001, 70000)


def by_this_library():
    for mode, most in (("plain", 4080), ("mixed", 4077)):
        mixed = mode == "mixed"
        sent = [cut(data, most, most) or [b""] for data in ("hello", "", ALL_BYTES, Count(most), Count(9000, 3), Count(40))]
        yield vector(f"{mode}-marked", "What a writer of this library writes: with a check, first parts marked.",
                     b"".join(b"".join(marked(OURS, *pieces, mixed=mixed)) for pieces in sent),
                     [message("hello", OURS), message("", OURS), message(ALL_BYTES, OURS), message(Count(most), OURS),
                      message(Count(9000, 3), OURS, 3), message(Count(40), OURS)], write="each")
        yield vector(f"{mode}-unchecked", "A writer may leave the check out.",
                     b"".join(marked(OURS, "one", mixed=mixed, number=0)
                              + marked(OURS, "t", "wo", mixed=mixed, number=0)),
                     [message("one", OURS), message("two", OURS, 2)])
        one, two = (marked(OURS, *pieces, mixed=mixed) for pieces in (("one ", "two ", "three"), ("1 ", "2 ", "3")))
        good, is_good = marked(OURS, "good", mixed=mixed)[0], message("good", OURS)

        def lost(name, about, pieces, items):
            return vector(f"{mode}-marked-{name}", about, b"".join(pieces), items)

        yield lost("first-missing", "Who reads from the middle sees that the first part is missing: one report.",
                   [*one[1:], good], [torn("torn", OURS, 1, 4), is_good])
        yield lost("last-missing", "Who goes on to another message has given up the one before.",
                   [*one[:2], good, *two[:2], *one], [torn("torn", OURS, 2, 8), is_good, torn("torn", OURS, 2, 4),
                                                      message("one two three", OURS, 3)])
        yield lost("middle-missing", "One report for what comes before and after the gap.", [one[0], one[2], good],
                   [torn("torn", OURS, 1, 4), is_good])
        yield lost("part-repeated", "A part that comes twice breaks its message.", [*one[:2], *one[1:], good],
                   [torn("torn", OURS, 2, 8), is_good])
        yield lost("first-repeated", "A first part that comes twice begins its message anew.", [one[0], *one],
                   [torn("torn", OURS, 1, 4), message("one two three", OURS, 3)])
        yield lost("spliced", "The beginning of one message and the end of the next, with ids that fit.",
                   [one[0], *two[1:], good], [torn("torn", OURS, 1, 4), torn("torn", OURS, 1, 2), is_good])
        yield lost("repeated", "A message that comes twice is given out twice.", [*one, *one, good, good],
                   [message("one two three", OURS, 3)] * 2 + [is_good] * 2)
    compressed = (OURS[0], OURS[1] | 1 << 30)
    frame = b"\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello"
    yield vector("plain-compressed", "What a writer says to have compressed is no message for a reader without zstd; a frame sent as one is.",
                 b"".join(marked(compressed, frame) + marked(compressed, frame[:9], frame[9:]) + marked(OURS, frame)),
                 [torn("incompatible", OURS, 1, 14), torn("incompatible", OURS, 2, 14), message(frame, OURS)])
    several = marked(OURS, "one ", "two ", "three")
    yield vector("plain-check-fails", "A byte was changed on the way.",
                 marked(OURS, "good")[0][:-1] + b"?" + b"".join(several)[:-1] + b"?" + marked(OURS, "good")[0],
                 [torn("corrupt", OURS, 1, 4), torn("corrupt", OURS, 3, 13), message("good", OURS)])
    wrong = marked(OURS, "good", mixed=True)[0].replace(b"good", b"goad") + b"\n"
    yield vector("mixed-check-fails", "Between text, what the check does not vouch for is no part.",
                 wrong + marked(OURS, "good", mixed=True)[0],
                 [torn("torn", OURS, 1, 4), line(wrong), message("good", OURS)])
    lengths = [b"%07d" % nth for nth in range(40)]
    small = [marked(OURS, data, mixed=True)[0] for data in lengths]
    yield vector("mixed-frames-joined", "Bytes were lost from inside one part to the same place in another.",
                 small[0] + small[1][:22] + small[2][22:] + b"\n" + small[3],
                 [message(lengths[0], OURS), torn("torn", OURS, 1, 7), line(small[1][:22] + small[2][22:] + b"\n"),
                  message(lengths[3], OURS)])


def not_what_was_sent():
    other = (2002, 70000)
    yield vector("plain-keys-alike", "An even key with several parts, an odd one with an only part: no writer does that.",
                 part(other, FIRST | 1, "one") + part((2002, 70001), 0, "one") + marked(OURS, "good")[0],
                 [torn("torn", other, 1, 3), torn("torn", other, 1, 3), message("good", OURS)])


def broken_sequences():
    one, two = b"one", b"four"
    yield vector("plain-id-skipped", "Ids that descend by two: what came before is torn, what follows counts anew.",
                 part(ONE, 3, one) + part(ONE, 1, two) + part(ONE, 0, one),
                 [torn("torn", ONE, 1, 3), message(two + one, ONE, 2)])
    yield vector("plain-id-repeated", "The same id twice.",
                 part(ONE, 2, one) + part(ONE, 2, two) + part(ONE, 1, one) + part(ONE, 0, one),
                 [torn("torn", ONE, 1, 3), message(two + one + one, ONE, 3)])
    yield vector("plain-id-rising", "An id that rises.",
                 part(ONE, 1, one) + part(ONE, 2, two) + part(ONE, 1, one) + part(ONE, 0, two),
                 [torn("torn", ONE, 1, 3), message(two + one + two, ONE, 3)])
    yield vector("plain-last-part-missing", "The next message of a writer that never finished the one before.",
                 part(ONE, 3, one) + part(ONE, 2, two) + part(ONE, 0, "next") + part(ONE, 0, "and next"),
                 [torn("torn", ONE, 2, 7), message("next", ONE), message("and next", ONE)])
    yield vector("plain-key-reused", "What only a fresh key prevents: the next id of a dead writer under its old key.",
                 part(ONE, 1, one) + part(ONE, 0, "another's"), [message("oneanother's", ONE, 2)])
    yield vector("plain-first-part-missing", "Atomic::Pipe does not say which part is the first: who reads from the middle cannot know.",
                 part(ONE, 1, one) + part(ONE, 0, two), [message(one + two, ONE, 2)])
    yield vector("plain-unfinished", "At the end what is unfinished is reported, longest waiting first.",
                 part(ONE, 2, one) + part(TWO, 1, one) + part(ONE, 1, two) + part(THREE, 0, "whole"),
                 [message("whole", THREE), torn("torn", TWO, 1, 3), torn("torn", ONE, 2, 7)])
    yield vector("plain-largest-id", "The largest id there is.", part(ONE, 0xFFFFFFFF, one),
                 [torn("torn", ONE, 1, 3)])
    yield vector("mixed-id-skipped", "Text between the parts changes nothing, strictness neither.",
                 part(ONE, 3, one, mixed=True) + b"text\n" + part(ONE, 1, two, mixed=True)
                 + part(ONE, 0, one, mixed=True), strict=True,
                 items=[line("text\n"), torn("torn", ONE, 1, 3), message(two + one, ONE, 2)])
    yield vector("mixed-unfinished", "The unfinished line comes out before the reports.",
                 part(ONE, 1, one, mixed=True) + b"line", [line("line"), torn("torn", ONE, 1, 3)])


def over_the_limit():
    yield vector("plain-at-max-message", "As long as allowed, and one byte more.",
                 parts(ONE, *cut(Count(5000), 4080, 4080)) + parts(ONE, *cut(Count(5001), 4080, 4080))
                 + part(ONE, 0, "next"),
                 [message(Count(5000), ONE, 2), torn("too_long", ONE, 2, 5001), message("next", ONE)],
                 max_message=5000)
    yield vector("plain-over-max-message", "One report, when the limit is passed; the rest is passed over.",
                 parts(ONE, *["0123456789"] * 6) + part(ONE, 0, "next"),
                 [torn("too_long", ONE, 3, 30), message("next", ONE)], max_message=25)
    yield vector("plain-huge-id", "An id promises much: nothing is set aside for it.",
                 part(ONE, 0xFFFFFFFF, "0123456789") + part(ONE, 0xFFFFFFFE, "0123456789") + part(ONE, 0, "next"),
                 [torn("too_long", ONE, 1, 10), message("next", ONE)], max_message=9)
    yield vector("mixed-over-max-message", "A line over the limit comes in pieces; its end stays with the last.",
                 b"0123456789abcdefghi\r\n" + part(ONE, 0, "too much data", mixed=True) + b"line\n",
                 [line("0123456789"), line("abcdefghi\r\n"), torn("too_long", ONE, 1, 13), line("line\n")],
                 max_message=10)


def cut_short():
    good = part(ONE, 0, "good")
    yield vector("plain-size-too-large", "One byte more than fits in PIPE_BUF: from there on nothing can be trusted.",
                 good + part(ONE, 0, "", size=4081) + good, [IS_GOOD], ends="corrupt")
    yield vector("plain-size-huge", "The largest size there is.", part(ONE, 0, "x", size=0xFFFFFFFF), [],
                 ends="corrupt")
    yield vector("plain-zeros", "No process has the number 0: zeros are no messages without end.", good + bytes(64), [IS_GOOD],
                 ends="corrupt")
    yield vector("mixed-zeros", "Nor are they between text.", b"\x0e\x10" + bytes(16) + b"\x0f\n" + GOOD,
                 [line(b"\x0e\x10" + bytes(16) + b"\x0f\n"), IS_GOOD])
    yield vector("plain-cut-in-header", "The pipe ends inside a header.", good + good[:9],
                 [IS_GOOD, torn("torn", None, 0, 9)])
    yield vector("plain-cut-in-data", "The pipe ends inside the data of a part.", good + good[:18],
                 [IS_GOOD, torn("torn", ONE, 1, 2)])
    yield vector("plain-cut-in-later-part", "The same, in a message that has begun: one report.",
                 good + part(ONE, 1, "begun ") + part(ONE, 0, "never ended")[:21], [IS_GOOD, torn("torn", ONE, 2, 11)])
    for name, length in (("after-shift-out", 1), ("after-escape", 2), ("in-header", 9), ("in-data", 20),
                         ("before-shift-in", 22)):
        wire = b"text\n" + GOOD + GOOD[:length]
        lost = [torn("torn", ONE, 1, min(length - 18, 4))] if length >= 18 else []
        yield vector(f"mixed-cut-{name}", "What is left of a frame at the end is text, and its message is lost.", wire,
                     [line("text\n"), IS_GOOD, *lost, line(GOOD[:length])])
        yield vector(f"mixed-cut-{name}-strict", "Strictly, it is an error.", wire,
                     [line("text\n"), IS_GOOD], strict=True, ends="corrupt")
    yield vector("mixed-cut-in-burst", "A burst that never ends is text.", b"\x0ehalf", [line("\x0ehalf")])
    yield vector("mixed-cut-in-burst-strict", "Strictly, it is an error.", b"\x0ehalf", [], strict=True, ends="corrupt")


def stray_control_bytes():
    too_long = b"\x0e" + bytes(Count(4095)) + b"\x0f\n"
    no_end = part(ONE, 0, "abc", mixed=True)[:-1] + b"Z\n"
    too_large = b"\x0e\x10" + part(ONE, 0, "abc", size=4078) + b"\n"
    broken = (
        ("stray-shift-out", "A stray 0x0E before a frame.", b"a\x0eb\n", []),
        ("half-burst", "A burst that another 0x0E cuts off.", b"\x0ehalf\n", []),
        ("burst-too-long", "A burst longer than PIPE_BUF.", too_long, []),
        ("no-shift-in", "A part that no 0x0F closes.", no_end, [torn("torn", ONE, 1, 3)]),
        ("size-too-large", "One byte more than fits in PIPE_BUF.", too_large, []),
        ("half-part", "A part that promises more than is there.", GOOD[:20] + b"\n", [torn("torn", ONE, 1, 4)]),
    )
    for name, about, wire, lost in broken:
        yield vector(f"mixed-{name}", about + " It is text, and the frame after it is found.",
                     wire + GOOD + b"tail\n", [*lost, line(wire), IS_GOOD, line("tail\n")])
    first, second, third = (part(ONE, nth, data, mixed=True) for nth, data in ((2, "one"), (1, "two"), (0, "three")))
    yield vector("mixed-part-damaged", "A part in the middle is none: its message is lost, and its other parts too.",
                 first + second[:-1] + b"\n" + third + GOOD,
                 [torn("torn", ONE, 2, 6), line(second[:-1] + b"\n"), IS_GOOD])
    for name, wire in (("burst-too-long", too_long), ("no-shift-in", no_end), ("size-too-large", too_large)):
        yield vector(f"mixed-{name}-strict", "Strictly, it is an error.", b"text\n" + wire + GOOD, [line("text\n")],
                     strict=True, ends="corrupt")
    yield vector("mixed-shift-out-twice", "Of two 0x0E the second opens.", b"\x0e\x0eburst\x0f\n",
                 [burst("burst"), line("\x0e\n")])
    yield vector("mixed-shift-out-then-part", "A part opens at its own 0x0E.", b"\x0e" + GOOD + b"\n",
                 [IS_GOOD, line("\x0e\n")])
    yield vector("mixed-shift-in-in-burst", "The first 0x0F closes a burst.", b"\x0eAB\x0fCD\x0f\n",
                 [burst("AB"), line("CD\x0f\n")])
    yield vector("mixed-everything-wrong", "Only stray control bytes.", b"\x0e\x10\x0e\x0e\x10\x0f\x10\x0f\x0e",
                 [line(b"\x0e\x10\x0e\x0e\x10\x0f\x10\x0f\x0e")])


# -------------------- group: compressed by the zstd command

EVENTS = b"".join(b'{"event":"%s","user":%d,"ok":true}\n' % (event, nth)
                  for nth, event in enumerate((b"start", b"stop", b"login", b"logout", b"error")))
OTHERS = b"".join(b'{"order":%d,"state":"%s","cents":%d}\n' % (nth, state, nth * 995)
                  for nth, state in enumerate((b"open", b"paid", b"packed", b"sent", b"returned")))


def by_zstd():
    found = shutil.which("zstd") and subprocess.run(["zstd", "--version"], capture_output=True).stdout.decode()
    if not found:
        raise Missing("the zstd command")
    version = next(word for word in found.split() if word[:2] in ("v1", "v2"))
    origin = f"frames by zstd {version[1:].rstrip(',')}, laid out by hand from WIRE.md"
    (HERE / "events.dict").write_bytes(EVENTS)
    (HERE / "other.dict").write_bytes(OTHERS)
    for said, wire in [*good_frames(), *bad_frames()]:
        yield {**said, "origin": origin}, wire


def frame(data, *flags, level="-3", check=False, size=True):
    """One frame; without `size` it does not say how much it holds."""
    data = raw(data)
    flags = [*flags, level, "--check" if check else "--no-check", *([f"--stream-size={len(data)}"] if size else [])]
    return run(["zstd", "-q", "-c", "--single-thread", *flags], data, cwd=HERE)


def settings(dictionary=None, unchecked=False):
    return {"dictionary": dictionary, "accept_unchecked": unchecked}


def with_dictionary(data, **options):
    return frame(data, "-D", "events.dict", **options)


def good_frames():
    bare, event = settings(), '{"event":"login","user":7,"ok":true}\n'
    for mode, most in (("plain", 4080), ("mixed", 4077)):
        mixed = mode == "mixed"
        some = [frame(Count(3000, nth), level=level) for nth, level in enumerate(("-3", "--fast=3", "-19"))]
        yield vector(f"{mode}-zstd", "Messages compressed at three levels, a negative one too.",
                     b"".join(part(ONE, 0, data, mixed) for data in some),
                     [message(Count(3000, nth), ONE) for nth in range(3)], zstd=bare)
        pieces = cut(frame(Count(40_000)), most, most)
        assert len(pieces) > 2
        yield vector(f"{mode}-zstd-parts", "One frame that takes several parts.", parts(ONE, *pieces, mixed=mixed),
                     [message(Count(40_000), ONE, len(pieces))], zstd=bare)
        yield vector(f"{mode}-zstd-empty", "An empty message is a frame that holds nothing.",
                     part(ONE, 0, frame(""), mixed), [message("", ONE)], zstd=bare)
    yield vector("plain-zstd-checked", "A checksum is welcome without a dictionary too.",
                 part(ONE, 0, frame(Count(1000), check=True)), [message(Count(1000), ONE)], zstd=bare)
    yield vector("plain-zstd-unsized", "Frames may keep to themselves how much they hold.",
                 part(ONE, 0, frame(Count(5000), size=False)), [message(Count(5000), ONE)], zstd=bare)
    yield vector("plain-zstd-dictionary", "With a raw dictionary and the checksum that must go with it.",
                 part(ONE, 0, with_dictionary(event, check=True)), [message(event, ONE)],
                 zstd=settings("events.dict"))
    yield vector("plain-zstd-unchecked", "With a dictionary and no checksum, as Atomic::Pipe writes: for who asks.",
                 part(ONE, 0, with_dictionary(event)), [message(event, ONE)],
                 zstd=settings("events.dict", unchecked=True))
    yield vector("mixed-zstd-bursts", "A compressed burst ends where its frame does: it may hold any control byte.",
                 b"".join(b"\x0e" + frame(data) + b"\x0f" for data in ("burst", ALL_BYTES, "")) + b"line\n",
                 [burst("burst"), burst(ALL_BYTES), burst(""), line("line\n")], zstd=bare)
    yield vector("mixed-zstd-text", "Text is not compressed; stray control bytes in it are text.",
                 b"a\x0eb\n\x0e" + frame("burst") + b"\x0f" + part(ONE, 0, frame("message"), mixed=True) + b"line\n",
                 [line("a\x0eb\n"), burst("burst"), message("message", ONE), line("line\n")], zstd=bare)


def bad_frames():
    bare, event, good = settings(), '{"event":"login","user":7,"ok":true}\n', frame("good")
    whole = frame(Count(1000), check=True)

    def refused(name, about, payload, kind="corrupt", zstd=bare, max_message=None):
        return vector(f"plain-zstd-{name}", about, part(ONE, 0, payload) + part(TWO, 0, good if zstd == bare else
                      with_dictionary("good", check=True)),
                      [torn(kind, ONE, 1, len(raw(payload))), message("good", TWO)], zstd=zstd, max_message=max_message)

    yield refused("garbage", "No frame at all.", "garbage")
    yield refused("nothing", "An empty payload is no frame.", "")
    yield refused("magic-only", "The first four bytes of a frame and garbage.", b"\x28\xb5\x2f\xfdgarbage")
    yield refused("cut", "A frame without its last byte.", whole[:-1])
    yield refused("trailing", "A frame and one byte more.", whole + b"\x00")
    yield refused("concatenated", "Two frames in one message.", whole + whole)
    yield refused("skippable", "A skippable frame holds no message.", b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip")
    yield refused("wrong-checksum", "The data do not fit the checksum.", whole[:-1] + bytes([whole[-1] ^ 1]))
    other = frame(OTHERS[20:60], "-D", "other.dict", check=True)
    assert subprocess.run(["zstd", "-dcq", "-D", "events.dict"], input=other, capture_output=True, cwd=HERE).returncode
    yield refused("wrong-dictionary", "The dictionary is another: the checksum tells.", other,
                  zstd=settings("events.dict"))
    yield refused("no-checksum", "With a dictionary, a frame that nothing vouches for is refused.",
                  with_dictionary(event), zstd=settings("events.dict"))
    zeros = bytes(8 << 20)
    yield refused("bomb", "8 MiB of zeros in a frame that says so.", frame(zeros), "too_long", max_message=1 << 20)
    yield refused("bomb-unsized", "8 MiB of zeros in a frame that does not say so.", frame(zeros, size=False),
                  "too_long", max_message=1 << 20)
    yield refused("frame-over-max-message", "The limit holds before decompression too.",
                  frame(Count(1000)), "too_long", max_message=200)
    imposter = b"\x0e\x28\xb5\x2f\xfdgarbage\x0f"
    yield vector("mixed-zstd-magic-only", "Bursts that begin like a frame and are none, before little and before much.",
                 imposter + bytes(Count(5000)) + b"\n" + imposter + b"line\n",
                 [torn("corrupt", None, 1, 11), line(bytes(Count(5000)) + b"\n"), torn("corrupt", None, 1, 11),
                  line("line\n")], zstd=bare)
    yield vector("mixed-zstd-refused", "A burst and a message that do not decompress are reports.",
                 b"\x0egarbage\x0f" + part(ONE, 0, "garbage", mixed=True) + b"line\n\x0e" + good + b"\x0f",
                 [torn("corrupt", None, 1, 7), torn("corrupt", ONE, 1, 7), line("line\n"), burst("good")], zstd=bare)


# ---------------------------------------------------------------- files

def run(command, stdin, **options):
    return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=True, **options).stdout


def main():
    index = HERE / "index.json"
    old = json.loads(index.read_text())["vectors"] if index.exists() else []
    made = []
    for group, mark in ((by_atomic_pipe, "written by Atomic::Pipe"), (by_hand, BY_HAND), (by_zstd, "frames by zstd")):
        try:
            for said, wire in group():
                (HERE / (said["name"] + ".bin")).write_bytes(wire)
                made.append(said)
        except Missing as program:
            kept = [said for said in old if said["origin"].startswith(mark)]
            made.extend(kept)
            print(f"make.py: {program} is not here: {len(kept)} vectors stay as they are")
    names = {said["name"] for said in made}
    assert len(names) == len(made), "names differ"
    for path in HERE.glob("*.bin"):
        if path.stem not in names:
            path.unlink()
    rows = ",\n".join(json.dumps(said) for said in made)
    index.write_text('{"byte_order": "little", "pipe_buf": 4096, "vectors": [\n%s\n]}\n' % rows)
    print(f"make.py: {len(made)} vectors")


if __name__ == "__main__":
    main()
