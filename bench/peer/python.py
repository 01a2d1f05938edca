# Peers that carry messages and calls between processes of Python, each used as its manual shows.
#
# python python.py call|threads|await|idle|stream|queue|execute|map|log|hand|chain|array|submit|result
# ENGINE MESSAGES BYTES MANY. Prints one line of five numbers: messages, bytes that came, seconds on the
# clock, CPU seconds of the senders and of the receiver. A call is sent by this process and answered by a
# forked one; where it is awaited, each has an event loop, and MANY tasks of this one call; each of MANY
# threads sends, takes, answers and receives. Of two idle event loops, one waits for requests, which do
# not come, and MANY tasks of the other for replies; a message is a second. A stream is written by MANY
# forked processes and received by this one. A task is one of an executor with MANY processes, which
# returns its argument; a map gets them in chunks. MANY forked processes hand log records to a handler,
# and all end up in one file: the seconds are those until a process has got rid of its share. In a chain
# this process sends bytes to a second one, which passes them on to a third, and they come back the same
# way, beside MANY processes that only compute. An array goes from this process to another, or as argument
# or result of a task of an executor with MANY processes; a word of each of its pages is written before
# and read afterwards. Making and ending processes is not counted. A missing peer ends with
# ModuleNotFoundError.
import asyncio
import concurrent.futures
import contextlib
import functools
import logging.handlers
import multiprocessing
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import types

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


def call_pipe(size, of=multiprocessing):
    """The same with objects."""
    here, there = of.Pipe()
    return lambda: both(here.send, here.recv), lambda: echo(there.recv, there.send)


def call_pipework_pipe(size):
    return call_pipe(size, ours())


def ours():
    from pipework import multiprocessing

    return multiprocessing


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


def call_zeromq(size, send="send", receive="recv"):
    import zmq

    address = f"ipc://{FOLDER.name}/socket"

    def prepare():
        client = zmq.Context().socket(zmq.REQ)
        client.connect(address)
        return both(getattr(client, send), getattr(client, receive))

    def answer():
        server = zmq.Context().socket(zmq.REP)
        server.bind(address)
        echo(getattr(server, receive), getattr(server, send))

    return prepare, answer


def call_zeromq_objects(size):
    return call_zeromq(size, "send_pyobj", "recv_pyobj")


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


# -------------------- calls of threads, each of which sends, takes, answers and receives


def threads_pipework(size):
    from pipework.reqrep import Client, Segment, Server

    segment = Segment.anonymous(request_bytes=size, reply_bytes=size)
    client, server = Client(segment), Server(segment)

    def call(data):
        ticket = client.send(data)
        request = server.recv()
        request.reply(request.data)
        return client.recv(ticket)

    return call


def measure_threads(make, calls, size, many):
    call, data = make(size), b"x" * size
    start = threading.Barrier(many + 1)
    came = []

    def work():
        start.wait()
        came.append(sum(len(call(data)) for _ in range(calls // many)))

    threads = [threading.Thread(target=work) for _ in range(many)]
    for thread in threads:
        thread.start()
    start.wait()
    began, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.join()
    return calls // many * many, sum(came), time.perf_counter() - began, time.process_time() - cpu, 0.0


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
    return of_queue(multiprocessing.Queue(bound(size)))


def stream_queue_unbounded(size, writers):
    return of_queue(multiprocessing.Queue())


def stream_pipework_queue(size, writers):
    return of_queue(ours().Queue(bound(size)))


def stream_pipework_queue_unbounded(size, writers):
    return of_queue(ours().Queue())


def bound(size):
    """Of a megabyte, as a pipe has one: without it, what is measured is how quickly memory is filled."""
    return max(2, min(1024, (1 << 20) // size))


def of_queue(queue):
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


def stream_zeromq_objects(size, writers):
    return stream_zeromq(size, writers, "send_pyobj", "recv_pyobj")


def stream_zeromq(size, writers, send="send", receive="recv"):
    import zmq

    address = f"ipc://{FOLDER.name}/socket"

    def prepare():
        context = zmq.Context()
        sender = context.socket(zmq.PUSH)
        sender.connect(address)
        return getattr(sender, send), lambda: (sender.close(), context.term())

    def take():
        receiver = zmq.Context().socket(zmq.PULL)
        receiver.bind(address)
        return iter(getattr(receiver, receive), None)

    return prepare, take


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


# -------------------- pools, with an executor's methods


def execute_pipework_pool(many):
    return execute_pool(many, ours())


@contextlib.contextmanager
def execute_pool(many, of=multiprocessing):
    with of.Pool(many) as pool:
        yield types.SimpleNamespace(
            map=pool.map, submit=lambda *call: types.SimpleNamespace(result=pool.apply_async(call[0], call[1:]).get)
        )


@contextlib.contextmanager
def execute_ray(many):
    import ray
    import ray.util.multiprocessing

    ray.init(num_cpus=many, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=FOLDER.name)
    functions = functools.cache(ray.remote)

    def submit(work, *arguments):
        reference = functions(work).remote(*arguments)
        return types.SimpleNamespace(result=lambda: ray.get(reference))

    try:
        yield types.SimpleNamespace(map=ray.util.multiprocessing.Pool(many).map, submit=submit)
    finally:
        ray.shutdown()


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


# -------------------- chains: a function that sends bytes and gets them back, and two that pass them on


def chain_pipework(size):
    """Payloads that are longer than a slot."""
    from pipework.reqrep import Client, Segment, Server

    first, second = Segment.anonymous(), Segment.anonymous()

    def middle():
        client = Client(second)
        for request in Server(first):
            request.reply(client.call(looked_at(request.data)))

    def last():
        for request in Server(second):
            request.reply(looked_at(request.data))

    return lambda: Client(first).call, middle, last


def chain_pipework_blobs(size):
    """One segment for all steps, because a blob belongs to a segment. Its flags say the step."""
    from pipework.reqrep import Client, Segment, Server

    segment = Segment.anonymous()

    def step():
        client = Client(segment)
        for request in Server(segment):
            looked_at(memoryview(request.blobs[0]))
            blobs = client.call_message(b"", flags=1, blobs=request.blobs).blobs if request.flags == 0 else request.blobs
            request.reply(b"", blobs=blobs)

    def prepare():
        client = Client(segment)
        return lambda data: bytes(client.call_message(b"", blobs=[segment.blob_from(data)]).blobs[0])

    return prepare, step, step


def chain_queue(size):
    there, further, nearer, here = (multiprocessing.Queue() for _ in range(4))
    return lambda: both(there.put, here.get), lambda: passing(there.get, both(further.put, nearer.get), here.put), lambda: passing(further.get, looked_at, nearer.put)


def chain_connection(size):
    (first, second), (third, fourth) = multiprocessing.Pipe(), multiprocessing.Pipe()
    return (
        lambda: both(first.send_bytes, first.recv_bytes),
        lambda: passing(second.recv_bytes, both(third.send_bytes, third.recv_bytes), second.send_bytes),
        lambda: passing(fourth.recv_bytes, looked_at, fourth.send_bytes),
    )


def chain_zeromq(size):
    import zmq

    first, second = (f"ipc://{FOLDER.name}/{name}" for name in ("first", "second"))

    def client(address):
        socket = zmq.Context().socket(zmq.REQ)
        socket.connect(address)
        return both(socket.send, socket.recv)

    def serve(address, work):
        socket = zmq.Context().socket(zmq.REP)
        socket.bind(address)
        passing(socket.recv, work, socket.send)

    return lambda: client(first), lambda: serve(first, client(second)), lambda: serve(second, looked_at)


def chain_shared_memory(size):
    """One piece of memory, used in turns, and two pipes that say whose turn it is."""
    memory = shared_memory(size)
    (first, second), (third, fourth) = multiprocessing.Pipe(), multiprocessing.Pipe()

    def prepare():
        def call(data):
            memory.buf[:size] = data
            first.send_bytes(b"-")
            first.recv_bytes()
            return bytes(memory.buf[:size])

        return call

    def look(turn):
        looked_at(memory.buf[:size])
        return turn

    def middle(turn):
        third.send_bytes(look(turn))
        return third.recv_bytes()

    return prepare, lambda: passing(second.recv_bytes, middle, second.send_bytes), lambda: passing(fourth.recv_bytes, look, fourth.send_bytes)


def shared_memory(size):
    from multiprocessing.shared_memory import SharedMemory

    memory = SharedMemory(create=True, size=size)
    # It stays mapped, here and in forked processes, as long as the object is there.
    memory.unlink()
    KEPT[memory.name] = memory
    return memory


def looked_at(data):
    """What each process does with the bytes."""
    if data[0] != data[-1]:
        raise ValueError("other bytes came")
    return data


def passing(receive, work, send):
    while True:
        send(work(looked_at(receive())))


# -------------------- arrays: a function that hands one over and returns the other process's sum of
# it, and one that answers with sums for ever


def array_pipework(size):
    from pipework.reqrep import Segment

    segment = Segment.anonymous()
    return lambda: blob_giver(segment, segment.blob_from), lambda: blob_taker(segment)


def array_pipework_in_place(size):
    """The same, computed where it will be read."""
    import numpy
    from pipework.reqrep import Segment

    segment = Segment.anonymous()

    def blob(array):
        with segment.blob(size) as draft:
            numpy.frombuffer(draft, numpy.uint8)[::PAGE] = array[0]
            return draft.freeze()

    return lambda: blob_giver(segment, blob), lambda: blob_taker(segment)


def blob_giver(segment, blob):
    from pipework.reqrep import Client

    client = Client(segment)
    return lambda array: int(client.call(b"", blobs=[blob(array)]))


def blob_taker(segment):
    import numpy
    from pipework.reqrep import Server

    for request in Server(segment):
        request.reply(b"%d" % total(numpy.frombuffer(request.blobs[0], numpy.uint8)))


def array_queue(size):
    return arrays_by_queues(multiprocessing)


def array_pipework_queue(size):
    return arrays_by_queues(ours())


def arrays_by_queues(of):
    arrays, totals = of.Queue(), of.Queue()
    return lambda: both(arrays.put, totals.get), lambda: answer_totals(arrays.get, totals.put)


def array_connection(size):
    return arrays_by_pipe(multiprocessing)


def array_pipework_pipe(size):
    return arrays_by_pipe(ours())


def arrays_by_pipe(of):
    here, there = of.Pipe()
    return lambda: both(here.send, here.recv), lambda: answer_totals(there.recv, there.send)


def array_zeromq(size):
    """As its manual sends arrays."""
    import numpy
    import zmq

    address = f"ipc://{FOLDER.name}/socket"

    def prepare():
        client = zmq.Context().socket(zmq.REQ)
        client.connect(address)
        return both(lambda array: client.send(array, copy=False), lambda: int(client.recv()))

    def answer():
        server = zmq.Context().socket(zmq.REP)
        server.bind(address)
        answer_totals(lambda: numpy.frombuffer(server.recv(copy=False), numpy.uint8), lambda sum: server.send(b"%d" % sum))

    return prepare, answer


def array_shared_memory(size):
    return by_hand(size, lambda there, array: there.__setitem__(slice(None), array), total)


def hand_shared_memory(size):
    """Computed where it will be read."""
    return by_hand(size, lambda there, number: there[::PAGE].fill(number), total)


def hand_untouched(size):
    return by_hand(size, lambda there, number: None, lambda there: 0)


def by_hand(size, put, take):
    import numpy

    there = numpy.frombuffer(shared_memory(size).buf, numpy.uint8, size)
    first, second = multiprocessing.Pipe()

    def send(what):
        put(there, what)
        first.send_bytes(b"-")

    def answer():
        while second.recv_bytes():
            second.send_bytes(b"%d" % take(there))

    return lambda: both(send, lambda: int(first.recv_bytes())), answer


PAGE = 4096


def total(array):
    """The sum of the first bytes of its pages."""
    return int(array[::PAGE].sum())


def answer_totals(receive, send):
    while True:
        send(total(receive()))


# -------------------- tasks with arrays, of the executors and pools above


def kept_array(size, number):
    """An array that its process has made before."""
    import numpy

    if size not in KEPT:
        KEPT[size] = numpy.ones(size, numpy.uint8)
    KEPT[size][::PAGE] = number
    return KEPT[size]


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


def measure_call(engine, calls, size, _writers):
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


def measure_idle(engine, seconds, size, many):
    # The two have nothing to do with each other, and both stay open.
    (_, serve), (prepare, _) = _open = engine(size), engine(size)
    server = forked(lambda: asyncio.run(serve()))

    async def measure():
        call, data = await prepare(), os.urandom(size)
        waiting = [asyncio.ensure_future(call(data)) for _ in range(many)]
        await asyncio.sleep(1)
        here, there = time.process_time(), cpu_of(server)
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        passed = time.perf_counter() - began
        assert not any(each.done() for each in waiting)
        return seconds, seconds * size, passed, time.process_time() - here, cpu_of(server) - there

    return asyncio.run(measure())


def measure_queue(engine, objects, size, writers):
    """The same, of what many objects cost: a process allocates the memory that it uses again before."""
    return measure_stream(engine, objects, size, writers, max(3, objects // 20 // writers))


def measure_stream(engine, messages, size, writers, before=0):
    prepare, receive = engine(size, writers)
    (prepared, prepare_now), (told, tell), (started, start) = os.pipe(), os.pipe(), os.pipe()

    def write():
        os.read(prepared, 1)
        (send, flush), data = prepare(), os.urandom(size)
        for _ in range(before):
            send(data)
        os.write(tell, b"ready")
        os.read(started, 1)
        for _ in range(messages // writers):
            send(data)
        flush()
        signal.pause()

    pids = [forked(write) for _ in range(writers)]
    source = receive()
    os.write(prepare_now, b"p" * writers)
    for _ in range(before * writers):
        next(source)
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
    return measure_tasks(engine, [os.urandom(size)] * tasks, many, 1)


def measure_map(engine, tasks, size, many):
    """In chunks, as `Pool.map` makes them, of items that differ: a pickle has equal ones once."""
    chunk = -(-tasks // (4 * many))
    return measure_tasks(engine, [bytes([number % 256]) * size for number in range(tasks)], many, chunk)


def measure_tasks(engine, items, many, chunk):
    tasks = len(items)
    with engine(many) as executor:
        # All processes start, and each allocates the memory that it uses again.
        for before in (items[: max(4 * many, tasks // 20)], 1), (items[: tasks // 4], chunk):
            for _ in executor.map(same, before[0], chunksize=before[1]):
                pass
        there, here = cpu_of_others(), time.process_time()
        began = time.perf_counter()
        came = sum(map(len, executor.map(same, items, chunksize=chunk)))
        seconds = time.perf_counter() - began
        here = time.process_time() - here
        return tasks, came, seconds, cpu_of_others() - there, here


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


def measure_chain(engine, calls, size, many):
    prepare, *passers = engine(size)
    pids = [forked(passer) for passer in passers]
    for _ in range(many):
        forked(compute)
    call, data = prepare(), bytes([7]) * size
    return measured(pids, calls, lambda number: len(looked_at(call(data))))


def compute():
    while True:
        pass


def measure_array(engine, calls, size, _many):
    prepare, answer = engine(size)
    server = forked(answer)
    give = prepare()

    def hand_over(number):
        check(give(kept_array(size, number)), number, size)
        return size

    return measured([server], calls, hand_over)


def measure_hand(engine, calls, size, many):
    """On MANY CPUs, one or two; 0 where the scheduler likes."""
    prepare, answer = engine(size)
    cpus = sorted(os.sched_getaffinity(0))
    if many:
        os.sched_setaffinity(0, cpus[many - 1 : many])
    server = forked(answer)
    if many:
        os.sched_setaffinity(0, cpus[:1])
    give = prepare()

    def hand_over(number):
        check(give(number), 0 if engine is hand_untouched else number, size)
        return size

    return measured([server], calls, hand_over)


def measure_submit(engine, tasks, size, many):
    def hand_over(number):
        check(executor.submit(total, kept_array(size, number)).result(), number, size)
        return size

    with engine(many) as executor:
        return measured([], tasks, hand_over, cpu_of_others)


def measure_result(engine, tasks, size, many):
    def hand_over(number):
        array = executor.submit(kept_array, size, number).result()
        check(total(array), number, size)
        return len(array)

    with engine(many) as executor:
        return measured([], tasks, hand_over, cpu_of_others)


def check(sum, number, size):
    if sum != number * (size // PAGE):
        raise ValueError(f"the sum is {sum}, of {number}")


def measured(pids, calls, call, cpu_there=None):
    """Calls with numbers from 1 to 255."""
    cpu_there = cpu_there or (lambda: sum(map(cpu_of, pids)))
    for number in range(max(3, calls // 20)):
        call(number % 255 + 1)
    there, here = cpu_there(), time.process_time()
    began = time.perf_counter()
    came = sum(call(number % 255 + 1) for number in range(calls))
    seconds = time.perf_counter() - began
    here = time.process_time() - here
    return calls, came, seconds, cpu_there() - there, here


def cpu_of_others():
    """CPU seconds of all processes that this one has started, and of theirs."""
    parents = {}
    for each in os.listdir("/proc"):
        with contextlib.suppress(ValueError, OSError):
            pid = int(each)
            with open(f"/proc/{pid}/stat") as stat:
                parents[pid] = int(stat.read().rpartition(")")[2].split()[1])

    def is_ours(pid):
        return pid in parents and (parents[pid] == os.getpid() or is_ours(parents[pid]))

    seconds = 0.0
    for pid in filter(is_ours, parents):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            seconds += cpu_of(pid)
    return seconds


KEPT = {}
"""Memory that is used again."""

ENGINES = {"idle": "await", "queue": "stream", **dict.fromkeys(["map", "submit", "result"], "execute")}
"""What is measured by another's functions."""

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
    if engine.endswith("_uvloop"):
        import uvloop

        uvloop.install()
        engine = engine.removesuffix("_uvloop")
    try:
        measure = globals()[f"measure_{shape}"]
        engine = globals()[f"{ENGINES.get(shape, shape)}_{engine}"]
        print("%d %d %.9f %.9f %.9f" % measure(engine, int(messages), int(size), int(many)), flush=True)
    finally:
        end_children()
        FOLDER.cleanup()
    # Without waiting for the peers' threads and sockets.
    os._exit(0)


if __name__ == "__main__":
    main()
