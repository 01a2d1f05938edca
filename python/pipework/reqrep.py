"""Request and response over shared memory: many clients, many competing servers, no broker.

A `Segment` is a file in shared memory, at a path or without a name. Clients put requests into it,
each request goes to one of the servers, and each reply goes back to the client that asked. Any
process may be killed at any instruction: the others go on, a caller gets `PeerDied` within 250 ms
of the kernel closing the process's files (which comes after a core dump), and the slots of the dead
process are taken back. A client that lives and does not receive its replies keeps their slots.

>>> import multiprocessing, os, tempfile
>>> from pipework.reqrep import Client, Segment, Server
>>> def work(path):
...     Server(path).serve(bytes.upper)
>>> with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
...     path = os.path.join(folder, "segment")
...     segment = Segment.create(path, slots=8)
...     workers = [multiprocessing.get_context("fork").Process(target=work, args=(path,)) for _ in range(2)]
...     for worker in workers:
...         worker.start()
...     with Client(path) as client:
...         print(client.call(b"hello", timeout=10))
...     for worker in workers:
...         worker.terminate(); worker.join()
b'HELLO'

A server calls a function with each request: `server.serve(handler)`, in several threads if need be,
`await server.aserve(handler)` in tasks, `server.serve_batches(handler)` for work that is cheaper by
the batch. The function's result is the reply, a generator is a reply in parts, and an exception is
a `RemoteError` at the caller. Or it takes them in a loop, `for request in server`: a request is
answered, failed, or kept waiting, so take it in a `with` block: then its caller always gets a reply
or an error. A loop over a server fails the last request when it asks for the next, if nothing has
answered it; `request.detach()` hands one on to a thread or a task.

Requests and replies may be of any size, up to `max_message` of the ends: those longer than a slot
lie in a file in memory, unseen. A server can stream a reply, `request.send_part(data)`, to a client that takes it part
by part, `for part in client.stream(data)`.

In asyncio, trio and anyio: `await client.acall(data)`, `async for request in server`. The other
side need not know of it.

A `Blob` is shared memory that is filled once and read in place by every process that holds it, such
as an image or an array: `segment.blob_from(array)` makes one, `blobs=[blob]` sends it with any
message, and it costs what a short message costs, whatever its size.

Flags are 32 bits beside a payload, both ways. They are the programs' own: nothing here reads them.
"""

from __future__ import annotations

from ._core import Blob, BlobMut, Client, Request, Segment, Stream
from ._reqrep import Audit, BlobStats, Geometry, Member, Message, Options, Outcome, Stats, Ticket
from ._serving import Server

__all__ = [
    "Audit",
    "Blob",
    "BlobMut",
    "BlobStats",
    "Client",
    "Geometry",
    "Member",
    "Message",
    "Options",
    "Outcome",
    "Request",
    "Segment",
    "Server",
    "Stats",
    "Stream",
    "Ticket",
]
