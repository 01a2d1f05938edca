"""A message through a pipe, and a call that a thread answers."""

import os
import threading

from pipework import atomic, reqrep

reader, writer = atomic.pair()
with writer:
    writer.send(b"whole")
print(reader.recv().decode())

path = f"/dev/shm/first-{os.getpid()}"
server = reqrep.Server(path)


def answer() -> None:
    request = server.recv(timeout=5)
    request.reply(request.data.upper())


threading.Thread(target=answer).start()
print(reqrep.Client(path).call(b"hello", timeout=5).decode())
os.unlink(path)
