import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { getEventListeners, once } from 'node:events';
import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { Socket, connect, createServer } from 'node:net';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import test from './limited.mjs';
import { Closed, Invalid, TimedOut, TornMessage } from 'pipework';
import { Line, Message, Reader, Torn, Writer, createFifo, maxCapacity, pair } from 'pipework/atomic';
import { Client, Segment } from 'pipework/reqrep';
import { SOON, TIMES, descriptors, ended, printed, program, scratch, until } from './support.mjs';

const PRINTER = `
  import { Writer } from 'pipework/atomic';
  console.log('loading...');
  const writer = Writer.stdout({ mixed: true });
  await writer.send(Buffer.alloc(100_000, 'a'));
  console.log('between');
  await writer.send('last');
`;
const PRINTED = ['loading...', 100_000, 'between', 4];
const seen = (item) => (item instanceof Line ? item.text : item.data.length);

test('any number of sends may have one signal, which has one listener', async (t) => {
  const [reader, writer] = pair();
  t.after(() => reader.close());
  const controller = new AbortController();
  const listeners = () => getEventListeners(controller.signal, 'abort').length;
  const sent = Array.from({ length: 12 }, () => writer.send(Buffer.alloc(100_000), { signal: controller.signal }));
  assert.equal(listeners(), 1);
  assert.equal((await reader.recv()).length, 100_000);
  await sent[0];
  controller.abort();
  const outcomes = await Promise.allSettled(sent);
  assert.ok(outcomes.slice(3).every(({ status }) => status === 'rejected'));
  assert.equal(listeners(), 0);
});

test('messages of all sizes arrive whole and in order', async (t) => {
  for (const options of [{}, { mixed: true }, { zstd: 3 }, { mixed: true, zstd: { level: 1, dictionary: 'like this' } }]) {
    const [reader, writer] = pair(options);
    t.after(() => reader.close());
    const lengths = [0, 1, 4080, 4081, 70_000, 3_000_000];
    const sent = (async () => {
      for (const length of lengths) await writer.send(Buffer.alloc(length, length % 251));
      await writer.close();
    })();
    const got = [];
    for await (const item of reader) {
      assert.ok(item instanceof Message && item.writer === writer_key(item) && item.parts >= 1);
      assert.ok(item.data.equals(Buffer.alloc(item.data.length, item.data.length % 251)));
      got.push(item.data.length);
    }
    assert.deepEqual(got, lengths);
    await sent;
    await assert.rejects(reader.nextItem(), Closed);
  }
});

const writer_key = ({ writer }) => /^\d+:\d+$/.exec(writer)?.[0];

test('send resolves when the message is in the pipe, and sends in the order of its calls', async () => {
  const [reader, writer] = pair();
  let done = 0;
  const sends = Array.from({ length: 100 }, (_, i) => writer.send(Buffer.alloc(10_000, i)).then(() => { done += 1; }));
  await new Promise((resolve) => setTimeout(resolve, 20));
  // A pipe holds 64 KiB, of which headers take some.
  assert.ok(done >= 4 && done <= 6, `${done} of 100 are done`);
  assert.ok(writer.pending > 0);
  for (let i = 0; i < 100; i += 1) assert.equal((await reader.recv())[0], i);
  await Promise.all(sends);
  assert.equal(writer.pending, 0);
  await writer.close();
  await writer.close();
  await assert.rejects(writer.send('x'), Invalid);
  assert.deepEqual(await Array.fromAsync?.(reader) ?? [], []);
});

test('a send that is given up before its turn sends nothing', async () => {
  const [reader, writer] = pair();
  const first = writer.send(Buffer.alloc(300_000));
  const controller = new AbortController();
  const given = [
    writer.send('a', { timeout: 10 }), writer.send('b', { signal: controller.signal }),
    writer.send('c', { signal: AbortSignal.abort(new Error('never')) }), writer.send('d'),
  ];
  given.forEach((each) => each.catch(() => {}));
  await assert.rejects(given[0], (error) => error instanceof TimedOut && error.op === 'atomic send');
  controller.abort(new Error('enough'));
  await assert.rejects(given[1], { message: 'enough' });
  await assert.rejects(given[2], { message: 'never' });
  assert.equal((await reader.recv()).length, 300_000);
  assert.equal((await reader.recv()).toString(), 'd');
  await Promise.all([first, given[3]]);
});

test('close writes what is pending, and destroy drops it', async () => {
  const [reader, writer] = pair();
  writer.send(Buffer.alloc(300_000)).catch(() => {});
  const closing = writer.close();
  assert.equal((await reader.recv()).length, 300_000);
  await closing;
  await assert.rejects(reader.recv(), Closed);

  const [other, dropped] = pair();
  const sent = dropped.send(Buffer.alloc(300_000));
  dropped.destroy();
  await assert.rejects(sent, Invalid);
  await assert.rejects(other.recv(), (error) => error instanceof TornMessage && error.torn instanceof Torn);
});

test('a writer without a reader gets Closed, and does not die of SIGPIPE', async () => {
  const [reader, writer] = pair();
  const waiting = writer.send(Buffer.alloc(300_000));
  reader.close();
  await assert.rejects(waiting, (error) => error instanceof Closed && error.code === 'ERR_PIPEWORK_CLOSED');
  await assert.rejects(writer.send('x'), Closed);
  writer.destroy();
});

test('receivers get items in the order of their calls, and one that gives up takes none', async () => {
  const [reader, writer] = pair();
  const controller = new AbortController();
  const waiting = [
    reader.recv(), reader.recv({ timeout: 10 }), reader.recv({ signal: controller.signal }), reader.recv(),
  ];
  waiting.forEach((each) => each.catch(() => {}));
  await assert.rejects(waiting[1], TimedOut);
  controller.abort();
  await assert.rejects(waiting[2], { name: 'AbortError' });
  await writer.send('a');
  await writer.send('b');
  assert.deepEqual((await Promise.all([waiting[0], waiting[3]])).map(String), ['a', 'b']);
  assert.equal(reader.tryRecv(), undefined);
  const last = reader.recv();
  reader.close();
  await assert.rejects(last, Invalid);
  await assert.rejects(reader.recv(), Invalid);
  writer.destroy();
});

test('in mixed mode lines, bursts and messages come in the order of the pipe', async () => {
  const [reader, writer] = pair({ mixed: true });
  writeSync(writer.fd, 'a line\r\ncaf');
  await writer.send('a message');
  assert.equal(writer.fitsInBurst(Buffer.alloc(4094)), true);
  assert.equal(writer.fitsInBurst(Buffer.alloc(4095)), false);
  await writer.burst('a burst');
  writeSync(writer.fd, 'é\nunfinished');
  const items = [];
  for (let i = 0; i < 4; i += 1) items.push(await reader.nextItem({ timeout: SOON }));
  assert.deepEqual(items.map(({ kind, text, data }) => [kind, text ?? data.toString()]), [
    ['line', 'a line'], ['message', 'a message'], ['burst', 'a burst'], ['line', 'café'],
  ]);
  assert.equal(items[0].data.toString(), 'a line\r\n');
  assert.equal(reader.tryNextItem(), undefined);
  assert.equal(reader.peek().toString(), 'unfinished');
  await assert.rejects(new Promise((resolve, reject) => {
    reader.recv().then(resolve, reject);
    writeSync(writer.fd, '\n');
  }), Invalid);
  reader.close();
  writer.destroy();
});

test('a line that ends in a carriage return comes without a further byte', async () => {
  const [reader, writer] = pair({ mixed: true });
  writeSync(writer.fd, 'prompt\r');
  assert.equal((await reader.nextItem({ timeout: SOON })).data.toString(), 'prompt\r');
  writer.destroy();
});

test('a dead writer leaves a report, and messages() throws it', async (t) => {
  const [reader, writer] = pair();
  const child = program(t, `
    import { Writer } from 'pipework/atomic';
    const writer = new Writer(3);
    await writer.send('whole');
    writer.send(Buffer.alloc(1_000_000));
    process.kill(process.pid, 'SIGKILL');
  `, { stdio: ['ignore', 'inherit', 'inherit', writer.fd] });
  writer.destroy();
  const got = [];
  await assert.rejects(async () => {
    for await (const data of reader.messages()) got.push(data.toString());
  }, (error) => error instanceof TornMessage && error.torn.reason === 'Torn' && error.torn.byteLength > 0);
  assert.deepEqual(got, ['whole']);
  assert.equal(await ended(child), 'SIGKILL');
});

test('items of a child that prints and sends, through a pipe of its own', async (t) => {
  const [reader, writer] = pair({ mixed: true });
  const child = program(t, PRINTER, { stdio: ['ignore', writer.fd, 'inherit'] });
  writer.destroy();
  const items = [];
  for await (const item of reader) items.push(seen(item));
  assert.deepEqual(items, PRINTED);
  assert.equal(await ended(child), 0);
});

test('items of a child with stdio pipe, whether Node has begun to read or not', async (t) => {
  for (const isLate of [false, true]) {
    const child = program(t, PRINTER);
    const closed = new Promise((resolve) => child.once('close', resolve));
    if (isLate) {
      // Without a listener, Node throws the bytes away if the child has ended by now.
      child.stdout.on('readable', () => {});
      await until(() => child.stdout.readableLength > 0);
    }
    const items = [];
    for await (const item of new Reader(child.stdout, { mixed: true })) items.push(seen(item));
    assert.deepEqual(items, PRINTED);
    assert.equal(await closed, 0);
  }
});

test('messages to a child through its stdin', async (t) => {
  const child = program(t, `
    import { Reader } from 'pipework/atomic';
    for await (const data of Reader.stdin().messages()) console.log(data.length);
  `);
  const writer = new Writer(child.stdin);
  for (const length of [5, 200_000]) await writer.send(Buffer.alloc(length));
  await writer.close();
  assert.equal(await printed(child), '5\n200000\n');
  assert.equal(await ended(child), 0);
});

test('a writer sends what its stream has queued first, whether it was ended or corked or is written to meanwhile', async (t) => {
  for (let i = 0; i < TIMES; i += 1) {
    for (const how of ['queued', 'corked', 'ended', 'written later']) {
      const child = program(t, `
        import { Reader } from 'pipework/atomic';
        for await (const item of Reader.stdin({ mixed: true })) console.log(item.kind, item.data.length);
      `);
      if (how === 'corked') child.stdin.cork();
      child.stdin.write('x'.repeat(500_000));
      child.stdin[how === 'ended' ? 'end' : 'write'](`${'x'.repeat(500_000)}\n`);
      const writer = new Writer(child.stdin, { mixed: true });
      const isEnded = how === 'ended';
      if (!isEnded) assert.deepEqual([writer.trySend('no'), writer.tryFlush()], [false, false]);
      if (how === 'written later') child.stdin.write('another line\n');
      const sent = writer.send(Buffer.alloc(100_000));
      const closed = writer.close();
      if (isEnded) {
        await assert.rejects(sent, Closed);
      } else {
        await sent;
      }
      await closed;
      const expected = ['line 1000001', how === 'written later' ? 'line 13' : [], isEnded ? [] : 'message 100000'].flat();
      assert.equal(await printed(child), expected.map((each) => `${each}\n`).join(''), how);
      assert.equal(await ended(child), 0);
    }
  }
});

test('a reader does not drop what its stream has to write', async (t) => {
  const server = createServer((socket) => {
    let length = 0;
    socket.on('data', (chunk) => { length += chunk.length; });
    socket.on('end', () => socket.end());
    socket.on('close', () => server.emit('got', length));
  });
  t.after(() => server.close());
  server.listen(`${scratch(t)}/socket`);
  const got = once(server, 'got');
  const socket = connect(server.address());
  await once(socket, 'connect');
  socket.write(Buffer.alloc(3_000_000));
  const reader = new Reader(socket);
  await until(() => socket.destroyed);
  reader.close();
  assert.deepEqual(await got, [3_000_000]);
});

test('an encrypted stream has no descriptor of its own', () => {
  const encrypted = new TLSSocket(new Socket());
  encrypted._handle.fd ??= 1;
  assert.throws(() => new Writer(encrypted), TypeError);
});

test('messages come after what Node was to print before them', async (t) => {
  for (let i = 0; i < TIMES; i += 1) {
    for (const make of ['Writer.stdout(options)', 'new Writer(process.stdout, options)', 'new Writer(1, options)']) {
      const child = program(t, `
        import { Writer } from 'pipework/atomic';
        const options = { mixed: true };
        const writer = ${make};
        for (let i = 0; i < 40; i += 1) {
          console.log(i + 'x'.repeat(5000));
          if (i % 2) await writer.send(String(i));
          else while (!writer.trySend(String(i))) await writer.flush();
          await writer.flush();
        }
      `);
      const reader = new Reader(child.stdout, { mixed: true });
      // Its stdout is full until it is read.
      await sleep(i % 2 ? 0 : 50);
      for (let j = 0; j < 40; j += 1) {
        const items = [await reader.nextItem(), await reader.nextItem()];
        assert.deepEqual(items.map(({ kind, data }) => [kind, parseInt(data, 10)]), [['line', j], ['message', j]]);
      }
      await assert.rejects(reader.nextItem(), Closed);
    }
  }
});

test('a writer of stdout does not make the stream of Node, which changes the mode of the descriptor', async (t) => {
  const child = program(t, `
    import { readFileSync } from 'node:fs';
    import { Writer } from 'pipework/atomic';
    const flags = () => parseInt(/flags:\\s*(\\d+)/.exec(readFileSync('/proc/self/fdinfo/1', 'utf8'))[1], 8);
    const before = flags();
    await Writer.stdout({ mixed: true }).send('x');
    if (flags() !== before) process.exitCode = 1;
  `);
  await printed(child);
  assert.equal(await ended(child), 0);
});

test('close waits for all that was sent, however often it is called', async () => {
  const [reader, writer] = pair();
  writer.send(Buffer.alloc(300_000)).catch(() => {});
  let done = 0;
  const closed = [1, 2, 3].map(() => writer.close().then(() => { done += 1; }));
  await sleep(10);
  assert.equal(done, 0);
  assert.equal((await reader.recv()).length, 300_000);
  await Promise.all(closed);
  await writer.close();
});

test('data that has lost its memory is refused, and not sent as an empty message', async () => {
  const [reader, writer] = pair();
  const segment = Segment.anonymous();
  const client = new Client(segment);
  const [transferred, inQueue] = [new Uint8Array(5), new Uint8Array(5)];
  structuredClone(transferred.buffer, { transfer: [transferred.buffer] });
  const shrunk = new ArrayBuffer(8, { maxByteLength: 8 });
  const outside = new Uint8Array(shrunk, 4, 4);
  shrunk.resize(2);
  for (const data of [transferred, outside]) {
    await assert.rejects(writer.send(data), { name: 'TypeError', code: 'ERR_INVALID_STATE' });
    assert.throws(() => writer.trySend(data), { code: 'ERR_INVALID_STATE' });
    await assert.rejects(client.call(data), { code: 'ERR_INVALID_STATE' });
    await assert.rejects(client.call(data, { timeout: SOON }), { code: 'ERR_INVALID_STATE' });
  }
  const first = writer.send(Buffer.alloc(300_000));
  const second = writer.send(inQueue);
  second.catch(() => {});
  structuredClone(inQueue.buffer, { transfer: [inQueue.buffer] });
  assert.equal((await reader.recv()).length, 300_000);
  await first;
  await assert.rejects(second, Invalid);
  await writer.send(new Float32Array(0));
  assert.equal((await reader.recv()).length, 0);
  client.close();
});

test('leaving the loop over a reader leaves it open', async () => {
  const [reader, writer] = pair();
  for (const data of ['a', 'b']) await writer.send(data);
  for await (const { data } of reader) {
    assert.equal(String(data), 'a');
    break;
  }
  assert.equal(String(await reader.recv()), 'b');
  reader.close();
  await assert.rejects(writer.send('c'), Closed);
});

test('process.stdin and process.stdout keep their descriptors', async (t) => {
  const child = program(t, `
    import { openSync } from 'node:fs';
    import { Reader, Writer } from 'pipework/atomic';
    const [reader, writer] = [new Reader(process.stdin), new Writer(process.stdout)];
    for await (const data of reader.messages()) await writer.send(data);
    if (openSync('/dev/null') <= 2) process.exit(1);
  `);
  const [reader, writer] = [new Reader(child.stdout), new Writer(child.stdin)];
  await writer.send('there and back');
  assert.equal((await reader.recv({ timeout: SOON })).toString(), 'there and back');
  await writer.close();
  await assert.rejects(reader.recv({ timeout: SOON }), Closed);
  assert.equal(await ended(child), 0);
});

test('any readable stream has items, and its error comes last', async () => {
  const [wire, writer] = pair();
  await writer.send('through');
  await writer.close();
  const bytes = Buffer.alloc(1000);
  const chunk = bytes.subarray(0, readSync(wire.fd, bytes));
  const reader = new Reader(Readable.from([chunk.subarray(0, 3), chunk.subarray(3)]));
  assert.equal((await reader.recv({ timeout: SOON })).toString(), 'through');
  await assert.rejects(reader.recv({ timeout: SOON }), Closed);
  const broken = new Reader(new Readable({ read() { this.destroy(new Error('the disk is gone')); } }));
  await assert.rejects(broken.recv({ timeout: SOON }), { message: 'the disk is gone' });
  assert.throws(() => new Reader({}), TypeError);
  assert.throws(() => new Writer(new Readable()), TypeError);
});

test('writers and readers meet at a FIFO', async (t) => {
  const path = `${scratch(t)}/fifo`;
  assert.throws(() => new Reader(path), (error) => error.code === 'ENOENT' && error.path === path);
  createFifo(path);
  await assert.rejects(Writer.fifo(path, { connectTimeout: 5 }), (error) => error instanceof TimedOut && error.path === path);
  await assert.rejects(Writer.fifo(path, { signal: AbortSignal.timeout(5) }), { name: 'TimeoutError' });
  const connecting = Writer.fifo(path);
  const reader = Reader.listen(path);
  for (const writer of [await connecting, await Writer.fifo(path)]) {
    await writer.send('hello');
    await writer.close();
    assert.equal((await reader.recv({ timeout: SOON })).toString(), 'hello');
  }
  // It listens on: there is no end.
  await assert.rejects(reader.recv({ timeout: 20 }), TimedOut);
  reader.close();
  const once = new Reader(path);
  const writer = await Writer.fifo(path);
  await writer.send('x');
  await writer.close();
  assert.equal((await once.recv({ timeout: SOON })).toString(), 'x');
  await assert.rejects(once.recv({ timeout: SOON }), Closed);
});

test('a descriptor is taken over, or stays with its owner', async () => {
  const before = descriptors();
  const [reader, writer] = pair();
  const lent = new Writer(writer.fd, { autoClose: false });
  await lent.send('lent');
  await lent.close();
  await writer.send('still there');
  assert.deepEqual([await reader.recv(), await reader.recv()].map(String), ['lent', 'still there']);
  const file = openSync('/dev/null', 'r+');
  assert.throws(() => new Writer(file), (error) => error instanceof Invalid && error.message.includes('a device'));
  closeSync(file);
  assert.throws(() => new Reader(-1), RangeError);
  assert.throws(() => new Reader(100_000), { errno: -9 });
  await writer.close();
  reader.close();
  // The thread that waits for descriptors has one.
  assert.ok(descriptors() <= before + 1);
});

test('a writer whose output nobody decodes refuses, or prints', async (t) => {
  const file = `${scratch(t)}/out`;
  const source = (options) => `
    import { Writer } from 'pipework/atomic';
    const writer = Writer.stdout(${options});
    await writer.send('{"id": 1}');
    console.error(writer.isPrinting);
  `;
  const run = async (options) => {
    const out = openSync(file, 'w+');
    const child = program(t, source(options), { stdio: ['ignore', out, 'pipe'] });
    child.stdout = child.stderr;
    const text = await printed(child);
    const bytes = Buffer.alloc(100);
    const written = bytes.toString('utf8', 0, readSync(out, bytes, 0, 100, 0));
    closeSync(out);
    return [await ended(child), text, written];
  };
  const [status, text, written] = await run('{ mixed: true }');
  assert.deepEqual([status, written], [1, '']);
  assert.match(text, /it is a file, where no reader decodes messages/);
  assert.deepEqual(await run('{ mixed: true, orPrint: true }'), [0, 'true\n', '{"id": 1}\n']);
});

test('timers have their turns beside a sender and a receiver that never wait', async () => {
  const [reader, writer] = pair();
  for (const busy of [() => writer.send('').then(() => reader.tryRecv()), () => writer.trySend('') && reader.recv()]) {
    let hasTicked = false;
    setTimeout(() => { hasTicked = true; }, 1);
    // Without a turn for the timer, this goes on for ever.
    while (!hasTicked) await busy();
  }
  reader.close();
  writer.destroy();
});

test('capacity can be read and set', () => {
  const [reader, writer] = pair();
  writer.capacity = 1 << 17;
  assert.deepEqual([reader.capacity, writer.capacity], [1 << 17, 1 << 17]);
  assert.ok(maxCapacity() >= 1 << 16);
  assert.throws(() => { writer.capacity = 1.5; }, RangeError);
  writer.destroy();
  reader.close();
});

test('a program that is killed with spawn left open leaves no descriptor here', async (t) => {
  const before = descriptors();
  for (let i = 0; i < 3; i += 1) {
    const child = spawn('sleep', ['1000'], { stdio: ['pipe', 'pipe', 'ignore'] });
    t.after(() => child.kill('SIGKILL'));
    const [reader, writer] = [new Reader(child.stdout), new Writer(child.stdin)];
    const waiting = reader.recv();
    waiting.catch(() => {});
    child.kill('SIGKILL');
    await ended(child);
    await assert.rejects(waiting, Closed);
    await assert.rejects(writer.send('x'), Closed);
    reader.close();
    writer.destroy();
  }
  await until(() => descriptors() <= before + 1);
});
