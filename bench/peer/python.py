# Peers that carry messages and calls between processes of Python, each used as its manual shows.
#
# python python.py call|await|stream|execute|log ENGINE MESSAGES BYTES MANY. Prints one line of five
# numbers: messages, bytes that came, seconds on the clock, CPU seconds of the senders and of the
# receiver. A call is sent by this process and answered by a forked one; where it is awaited, each
# has an event loop, and MANY tasks of this one call; a stream is written by MANY forked processes
# and received by this one. A task is one of an executor with MANY processes, which returns its
# argument. MANY forked processes hand log records to a handler, and all end up in one file: the
# seconds are those until a process has got rid of its share. Making and
# ending processes is not counted. A missing peer ends with ModuleNotFoundError.
import asyncio
import concurrent.futures
import logging.handlers
import multiprocessing
import os
import signal
import socket
import struct
import sys
import tempfile
import time

FOLDER = tempfile.TemporaryDirectory()

# -------------------- calls: a function that calls, and one that answers for ever


def call_pipework(size):
    from pipework.reqrep import Client, Segment, Server

    segment = Segment.anonymous(request_bytes=size, reply_bytes=size)

    def answer():
        for request in Server(segment):
            request.reply(request.data)

    def prepare():
        return Client(segment).call

    return prepare, answer


def call_connection(size):
    here, there = multiprocessing.Pipe()
    return lambda: both(here.send_bytes, here.recv_bytes), lambda: echo(there.recv_bytes, there.send_bytes)


def call_simple_queue(size):
    requests, replies = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue()
    return lambda: both(requests.put, replies.get), lambda: echo(requests.get, replies.put)


def call_queue(size):
    requests, replies = multiprocessing.Queue(), multiprocessing.Queue()
    return lambda: both(requests.put, replies.get), lambda: echo(requests.get, replies.put)


def call_socketpair(size):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return (
        lambda: both(here.send, lambda: here.recv(size)),
        lambda: echo(lambda: there.recv(size), there.send),
    )


def call_os_pipe(size):
    (request_out, request_in), (reply_out, reply_in) = os.pipe(), os.pipe()
    return (
        lambda: both(lambda data: os.write(request_in, data), lambda: os.read(reply_out, size)),
        lambda: echo(lambda: os.read(request_out, size), lambda data: os.write(reply_in, data)),
    )


def call_zeromq(size):
    import zmq

    address = f"ipc://{FOLDER.name}/socket"

    def prepare():
        client = zmq.Context().socket(zmq.REQ)
        client.connect(address)
        return both(client.send, client.recv)

    def answer():
        server = zmq.Context().socket(zmq.REP)
        server.bind(address)
        echo(server.recv, server.send)

    return prepare, answer


def call_faster_fifo(size):
    from faster_fifo import Queue

    requests, replies = Queue(1 << 20), Queue(1 << 20)
    return lambda: both(requests.put, lambda: replies.get(timeout=60)), lambda: echo(lambda: requests.get(timeout=60), replies.put)


def call_iceoryx2(size):
    import ctypes

    import iceoryx2

    class Payload(ctypes.Structure):
        _fields_ = [("data", ctypes.c_uint8 * size)]

    iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
    name = iceoryx2.ServiceName.new(f"pipework-bench-{os.getpid()}")

    def service():
        node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        return node, node.service_builder(name).request_response(Payload, Payload).open_or_create()

    def prepare():
        node, factory = service()
        client = factory.client_builder().create()
        while client.send_copy(Payload()).number_of_server_connections == 0:
            time.sleep(0.001)

        def call(data):
            pending = client.send_copy(Payload.from_buffer_copy(data))
            while (response := pending.receive()) is None:
                pass
            return bytes(response.payload().contents.data)

        call.keep = node, factory
        return call

    def answer():
        node, factory = service()
        server = factory.server_builder().create()
        while True:
            if (request := server.receive()) is not None:
                request.send_copy(request.payload().contents)

    return prepare, answer


def both(send, receive):
    def call(data):
        send(data)
        return receive()

    return call


def echo(receive, send):
    while True:
        send(receive())


# -------------------- awaited calls: a coroutine function that makes one, and one that answers


def await_pipework(size):
    from pipework.reqrep import Client, Segment, Server

    segment = Segment.anonymous(request_bytes=size, reply_bytes=size)

    async def serve():
        async for request in Server(segment):
            request.reply(request.data)

    async def prepare():
        return Client(segment).acall

    return prepare, serve


def await_streams(size):
    """A connection for each caller, for replies bear no numbers."""
    here, there = zip(*(socket.socketpair() for _ in range(64)))

    async def prepare():
        free = [await asyncio.open_unix_connection(sock=sock) for sock in here]

        async def call(data):
            reader, writer = connection = free.pop()
            writer.write(data)
            reply = await reader.readexactly(size)
            free.append(connection)
            return reply

        return call

    async def answer(sock):
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        while True:
            writer.write(await reader.readexactly(size))

    async def serve():
        await asyncio.gather(*map(answer, there))

    return prepare, serve


def await_protocol(size):
    here, there = zip(*(socket.socketpair() for _ in range(64)))

    class Answer(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)

    class Call(Answer):
        def data_received(self, data):
            self.reply.set_result(data)

    async def prepare():
        loop = asyncio.get_running_loop()
        free = [(await loop.create_unix_connection(Call, sock=sock))[1] for sock in here]

        async def call(data):
            connection = free.pop()
            connection.reply = loop.create_future()
            connection.transport.write(data)
            reply = await connection.reply
            free.append(connection)
            return reply

        return call

    async def serve():
        loop = asyncio.get_running_loop()
        for sock in there:
            await loop.create_unix_connection(Answer, sock=sock)
        await loop.create_future()

    return prepare, serve


# -------------------- streams: a function that sends, and an iterator of the received items


def stream_pipework(size, writers):
    from pipework import atomic

    reader, writer = atomic.pair()
    return lambda: (writer.send, lambda: None), lambda: (writer.close(), reader.messages())[1]


def stream_pipework_many(size, writers):
    from pipework import atomic

    reader, writer = atomic.pair()

    def prepare():
        batch = []

        def send(data):
            batch.append(data)
            if len(batch) == 64:
                flush()

        def flush():
            writer.send_many(batch)
            batch.clear()

        return send, flush

    return prepare, lambda: (writer.close(), reader.messages())[1]


def stream_connection(size, writers):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    return lambda: (locked(sender.send_bytes, writers), lambda: None), lambda: iter(receiver.recv_bytes, None)


def stream_simple_queue(size, writers):
    queue = multiprocessing.SimpleQueue()
    return lambda: (queue.put, lambda: None), lambda: iter(queue.get, None)


def stream_queue(size, writers):
    # Bounded, as a pipe is: otherwise it measures how quickly memory is filled.
    queue = multiprocessing.Queue(max(2, (1 << 20) // size))

    def flush():
        queue.close()
        queue.join_thread()

    return lambda: (queue.put, flush), lambda: iter(queue.get, None)


def stream_socketpair(size, writers):
    here, there = socket.socketpair()
    source = here.makefile("rb", 1 << 16)
    return lambda: (locked(lambda data: there.sendall(framed(data)), writers), lambda: None), lambda: frames(source)


def stream_os_pipe(size, writers):
    read_end, write_end = os.pipe()
    source = os.fdopen(read_end, "rb", 1 << 16)

    def send(data):
        rest = memoryview(framed(data))
        while rest:
            rest = rest[os.write(write_end, rest) :]

    return lambda: (locked(send, writers), lambda: None), lambda: frames(source)


def stream_zeromq(size, writers):
    import zmq

    address = f"ipc://{FOLDER.name}/socket"

    def prepare():
        context = zmq.Context()
        sender = context.socket(zmq.PUSH)
        sender.connect(address)
        return sender.send, lambda: (sender.close(), context.term())

    def receive():
        receiver = zmq.Context().socket(zmq.PULL)
        receiver.bind(address)
        return iter(receiver.recv, None)

    return prepare, receive


def stream_faster_fifo(size, writers):
    from faster_fifo import Queue

    queue = Queue(max(1 << 20, 4 * size))

    def receive():
        while True:
            yield from queue.get_many(timeout=60)

    return lambda: (lambda data: queue.put(data, timeout=60), lambda: None), receive


# -------------------- tasks: an executor with so many processes


def execute_pipework(many):
    from pipework import Executor

    return Executor(many)


def execute_standard(many):
    return concurrent.futures.ProcessPoolExecutor(many)


def execute_loky(many):
    import loky

    return loky.ProcessPoolExecutor(many)


def same(what):
    return what


def process_cpu(_):
    time.sleep(0.001)
    return os.getpid(), time.process_time()


# -------------------- logs: a function that makes a process's handler, and one that ends it all


def log_pipework(file):
    from pipework.logging import Listener

    listener = Listener(file)
    listener.start()
    return lambda: listener.handler(timeout=PATIENCE), lambda: None, listener.stop


def log_queue(file):
    queue = multiprocessing.Queue()
    listener = logging.handlers.QueueListener(queue, file)
    listener.start()

    def flush():
        queue.close()
        queue.join_thread()

    return lambda: logging.handlers.QueueHandler(queue), flush, listener.stop


def log_concurrent(file):
    from concurrent_log_handler import ConcurrentRotatingFileHandler

    def prepare():
        handler = ConcurrentRotatingFileHandler(file.baseFilename, maxBytes=1 << 30)
        handler.setFormatter(file.formatter)
        return handler

    return prepare, lambda: None, lambda: None


LOCK = multiprocessing.Lock()


def locked(send, writers):
    """Where several write, nothing else keeps their messages apart."""
    if writers == 1:
        return send

    def send_alone(data):
        with LOCK:
            send(data)

    return send_alone


def framed(data):
    return struct.pack("=I", len(data)) + data


def frames(source):
    while head := source.read(4):
        yield source.read(struct.unpack("=I", head)[0])


# ---------------------------------------------------------------- measuring


def measure_calls(engine, calls, size, _writers):
    prepare, answer = engine(size)
    server = forked(answer)
    call, data = prepare(), os.urandom(size)
    for _ in range(calls // 20):
        call(data)
    here, there = time.process_time(), cpu_of(server)
    began = time.perf_counter()
    came = 0
    for _ in range(calls):
        came += len(call(data))
    seconds = time.perf_counter() - began
    return calls, came, seconds, time.process_time() - here, cpu_of(server) - there


def measure_await(engine, calls, size, many):
    prepare, serve = engine(size)
    server = forked(lambda: asyncio.run(serve()))

    async def measure():
        call, data = await prepare(), os.urandom(size)

        async def some(count):
            return sum([len(await call(data)) for _ in range(count)])

        await asyncio.gather(*(some(calls // 20 // many) for _ in range(many)))
        here, there = time.process_time(), cpu_of(server)
        began = time.perf_counter()
        came = sum(await asyncio.gather(*(some(calls // many) for _ in range(many))))
        seconds = time.perf_counter() - began
        return calls // many * many, came, seconds, time.process_time() - here, cpu_of(server) - there

    return asyncio.run(measure())


def measure_stream(engine, messages, size, writers):
    prepare, receive = engine(size, writers)
    (prepared, prepare_now), (told, tell), (started, start) = os.pipe(), os.pipe(), os.pipe()

    def write():
        os.read(prepared, 1)
        (send, flush), data = prepare(), os.urandom(size)
        os.write(tell, b"ready")
        os.read(started, 1)
        for _ in range(messages // writers):
            send(data)
        flush()
        signal.pause()

    pids = [forked(write) for _ in range(writers)]
    source = receive()
    os.write(prepare_now, b"p" * writers)
    for _ in pids:
        os.read(told, 5)
    here, there = time.process_time(), sum(map(cpu_of, pids))
    began = time.perf_counter()
    os.write(start, b"s" * writers)
    left, came = messages // writers * writers, 0
    for message in source:
        came += len(message)
        left -= 1
        if left == 0:
            break
    seconds = time.perf_counter() - began
    return messages // writers * writers, came, seconds, sum(map(cpu_of, pids)) - there, time.process_time() - here


def measure_execute(engine, tasks, size, many):
    with engine(many) as executor:

        def cpu():
            """CPU seconds of the processes, each as it said last."""
            return sum(dict(executor.map(process_cpu, range(20 * many))).values())

        what = os.urandom(size)
        for _ in executor.map(same, [what] * (tasks // 20)):
            pass
        here, there = time.process_time(), cpu()
        began = time.perf_counter()
        came = sum(map(len, executor.map(same, [what] * tasks)))
        seconds = time.perf_counter() - began
        here = time.process_time() - here
        return tasks, came, seconds, cpu() - there, here


def measure_log(engine, records, size, many):
    path = os.path.join(FOLDER.name, "log")
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    prepare, flush, stop = engine(file)
    results, result = multiprocessing.Pipe(duplex=False)
    text = "x" * size

    def write():
        handle = prepare().handle
        record = logging.getLogger("bench").makeRecord("bench", logging.INFO, __file__, 1, "%s", (text,), None, "write")
        cpu, began = time.process_time(), time.perf_counter()
        for _ in range(records // many):
            handle(record)
        flush()
        seconds = time.perf_counter() - began
        with LOCK:
            result.send((seconds, time.process_time() - cpu))
        signal.pause()

    here = time.process_time()
    for _ in range(many):
        forked(write)
    told = [results.recv() for _ in range(many)]
    stop()
    here = time.process_time() - here
    with open(path) as lines:
        written = sum(1 for line in lines if line.endswith(text + "\n"))
    seconds, cpu = map(sum, zip(*told))
    # As many as one process made in its time, which is the mean of all.
    return records // many, written // many * size, seconds / many, cpu / many, here / many


CHILDREN = []


def forked(work):
    """A process that does `work` until it is ended."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        signal.alarm(PATIENCE)
        try:
            work()
        except SystemExit:
            pass
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(0)
    CHILDREN.append(pid)
    return pid


def end_children():
    """Asks them first: one that is killed may leave files behind."""
    for pid in CHILDREN:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 1
    for pid in CHILDREN:
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)


def cpu_of(pid):
    """CPU seconds that a process has used so far: its clock, as clock_getcpuclockid(3) numbers
    it."""
    return time.clock_gettime(~pid << 3 | 2)


PATIENCE = 100
"""Seconds after which a hanging process is ended."""


def main():
    shape, engine, messages, size, many = sys.argv[1:]
    signal.alarm(PATIENCE)
    measure = {"call": measure_calls, "await": measure_await, "stream": measure_stream, "execute": measure_execute, "log": measure_log}[shape]
    if engine.endswith("_uvloop"):
        import uvloop

        uvloop.install()
        engine = engine.removesuffix("_uvloop")
    try:
        print("%d %d %.9f %.9f %.9f" % measure(globals()[f"{shape}_{engine}"], int(messages), int(size), int(many)), flush=True)
    finally:
        end_children()
        FOLDER.cleanup()
    # Without waiting for the peers' threads and sockets.
    os._exit(0)


if __name__ == "__main__":
    main()
