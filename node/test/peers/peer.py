"""The other end of languages.test.mjs in Python: opens PATH, serve PATH, call PATH or echo."""

from __future__ import annotations

import sys

from pipework import RemoteError
from pipework.atomic import Reader, Writer
from pipework.reqrep import Client, Segment, Server


def serve(path: str) -> None:
    for request in Server(path):
        if request.data == b"fail":
            request.fail("no: ä")
        elif request.data == b"parts":
            request.send_part(b"one")
            request.send_part(b"two")
            request.reply(b"")
        else:
            request.reply(request.data.upper(), flags=request.flags + 1, blobs=request.blobs)


def call(path: str) -> None:
    client = Client(path, timeout=60.0)
    blob = client.segment.blob_from(b"a blob")
    reply = client.call_message(b"abc", flags=41, blobs=[blob])
    print(reply.data.decode(), reply.flags, reply.blobs[0].tobytes().decode())
    print(client.call(b"x" * 100_000).count(b"X"))
    print(*(part.decode() for part in client.stream(b"parts")))
    try:
        client.call(b"fail")
    except RemoteError as error:
        print(error)


def echo() -> None:
    print("loading...", flush=True)
    with Writer.stdout(mixed=True, zstd=3) as writer:
        for message in Reader.stdin().messages():
            writer.send(message.upper())


sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
{"opens": Segment.open, "serve": serve, "call": call, "echo": echo}[sys.argv[1]](*sys.argv[2:])
