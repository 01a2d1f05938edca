import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import test from './limited.mjs';
import { inspect } from 'node:util';
import * as pipework from 'pipework';
import { Client, Segment, Server } from 'pipework/reqrep';
import { SOON, TIMES, folder, until } from './support.mjs';

const { Closed, Invalid, NoServer, OsError, PipeworkError, RemoteError, Stale, TimedOut, TooLong } = pipework;
const silent = { onError() {} };

/** A server of a new segment that answers with `handler`, and a client. */
function served(t, handler, { sizes, client: ofClient, serve = silent } = {}) {
  const segment = Segment.anonymous(sizes);
  const [server, client] = [new Server(segment), new Client(segment, ofClient)];
  const serving = server.serve(handler, serve);
  t.after(async () => {
    server.stop();
    await serving;
    client.close();
    server.close();
  });
  return { segment, server, client, serving };
}

const allFree = (segment) => segment.audit().free === segment.geometry.slots;

test('call returns what the handler returns, of every kind and size', async (t) => {
  const { client, segment } = served(t, (request) => request.data, { sizes: { requestBytes: 64, replyBytes: 64 } });
  for (const length of [0, 1, 63, 64, 65, 4096, 16383, 16384, 70_000, 3_000_000]) {
    const data = Buffer.alloc(length, length % 251);
    const reply = await client.call(data, { timeout: SOON });
    assert.ok(Buffer.isBuffer(reply) && reply.equals(data), `${length} bytes`);
  }
  assert.equal((await client.call('häßlich')).toString(), 'häßlich');
  assert.deepEqual([...(await client.call(new Float32Array([1.5]).buffer))], [0, 0, 192, 63]);
  assert.deepEqual([...(await client.call(new DataView(new ArrayBuffer(4), 1, 2)))], [0, 0]);
  assert.deepEqual([...(await client.call(new Uint8Array(new SharedArrayBuffer(3)).fill(7)))], [7, 7, 7]);
  assert.ok(allFree(segment));
});

test('shared memory can be sent, as a request and as each kind of reply', async (t) => {
  const shared = (text) => Buffer.from(new SharedArrayBuffer(text.length)).fill(text);
  const { client } = served(t, (request) => {
    const text = String(request.data);
    if (text === 'later') return Promise.resolve(shared('later'));
    if (text === 'self') return request.reply(shared('self')).then(() => undefined);
    return shared(text);
  });
  for (const text of ['at once', 'later', 'self']) {
    assert.equal(String(await client.call(shared(text))), text);
    assert.equal(String(await client.call(shared(text), { timeout: SOON })), text);
  }
});

test('small replies do not share bytes that a later reply changes', async (t) => {
  const { client } = served(t, (request) => request.data);
  const replies = [];
  for (let i = 0; i < 5000; i += 1) replies.push([i, await client.call(`number ${i}`)]);
  for (const [i, reply] of replies) assert.equal(reply.toString(), `number ${i}`);
});

test('no call gets the number 0, which stands for a failure, when numbers come again', () => {
  const native = createRequire(import.meta.url)('../lib/native.js');
  const calls = new native.Calls(new native.Inbox(() => {}, 2 ** 32 - 2));
  const client = new native.Client(calls, native.Segment.anonymous({}), {});
  const { call } = calls.functions();
  const made = Array.from({ length: 2 }, () => call(client.number, Buffer.from('x'), 0));
  assert.deepEqual([client.number, ...made], [2 ** 32 - 1, 1, 2]);
  made.forEach((number) => calls.giveUp(number));
  client.close();
});

test('calls that wait get their own replies after thousands of short ones', async (t) => {
  const held = [];
  const { client } = served(t, (request) => {
    if (request.data[0] === 120) return new Promise((resolve) => held.push(() => resolve(request.data)));
    return request.data;
  });
  const waiting = ['x1', 'x2', 'x3'].map((text) => client.call(text));
  const aborted = new AbortController();
  const given = client.call('x4', { signal: aborted.signal });
  for (let i = 0; i < 3000; i += 1) assert.equal(String(await client.call(`${i}`)), `${i}`);
  aborted.abort();
  await assert.rejects(given, { name: 'AbortError' });
  for (const answer of held) answer();
  assert.deepEqual((await Promise.all(waiting)).map(String), ['x1', 'x2', 'x3']);
});

test('handlers may be asynchronous, answer by themselves, or return nothing', async (t) => {
  const { client } = served(t, async (request) => {
    await null;
    if (request.data.toString() === 'self') {
      assert.equal(await request.reply('by itself', { flags: 9 }), true);
      await assert.rejects(request.reply('again'), Invalid);
    } else if (request.data.toString() === 'text') {
      return 'text';
    }
  });
  assert.deepEqual(await client.callMessage('self'), { data: Buffer.from('by itself'), flags: 9, blobs: [] });
  assert.equal((await client.call('text')).toString(), 'text');
  assert.equal((await client.call('nothing')).length, 0);
});

test('a handler that throws gives its caller the type and the text, and onError the error', async (t) => {
  const errors = [];
  const { client } = served(
    t,
    (request) => {
      const text = request.data.toString();
      if (text === 'sync') throw new RangeError('not a number');
      if (text === 'plain') return Promise.reject('just text');
      return Promise.reject(new TypeError('not this'));
    },
    { serve: { onError: (error, request) => errors.push([error, request.data.toString()]) } },
  );
  await assert.rejects(client.call('sync'), (error) => {
    assert.ok(error instanceof RemoteError && error instanceof PipeworkError && error instanceof Error);
    assert.equal(error.message, 'RangeError: not a number');
    assert.equal(error.reason.toString(), 'RangeError: not a number');
    assert.deepEqual([error.code, error.op, error.name], ['ERR_PIPEWORK_FAILED', 'reqrep call', 'RemoteError']);
    return true;
  });
  await assert.rejects(client.call('async'), { message: 'TypeError: not this' });
  await assert.rejects(client.call('plain'), { message: 'just text' });
  assert.deepEqual(errors.map(([error, data]) => [String(error), data]), [
    ['RangeError: not a number', 'sync'], ['TypeError: not this', 'async'], ['just text', 'plain'],
  ]);
});

/** What handlers may throw although nothing can be said of it. */
const UNSPEAKABLE = {
  'an object without a prototype': () => Object.create(null),
  'a symbol': () => Symbol('s'),
  'an error with a symbol as its text': () => Object.assign(new Error(), { message: Symbol('s') }),
  'an error whose getter throws': () => Object.defineProperty(new Error('x'), 'message', { get() { throw new Error('of a getter'); } }),
  'an error whose name has no text': () => Object.assign(new Error('x'), { name: Object.create(null) }),
  'an object whose toString throws': () => ({ toString() { throw new Error('of toString'); } }),
  'an object whose toString returns an object': () => ({ toString: () => ({}), valueOf: () => ({}) }),
  'a revoked proxy': () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return proxy;
  },
  'an object that inspect cannot show': () => ({ [inspect.custom]() { throw new Error('of inspect'); } }),
  'an error that inspect cannot show': () => Object.assign(new Error('x'), { [inspect.custom]() { throw new Error('of inspect'); } }),
  'nothing': () => undefined,
  'null': () => null,
  'a function': () => () => {},
  'a thenable that throws': () => ({ then() { throw new Error('of then'); } }),
};
const HANDLERS = {
  'throws': (make) => () => { throw make(); },
  'rejects with': (make) => () => Promise.reject(make()),
  'throws later': (make) => async () => {
    await null;
    throw make();
  },
  'throws in a generator': (make) => async function* parts() {
    yield 'part';
    throw make();
  },
  'returns': (make) => () => make(),
  'gives as the reason': (make) => (request) => request.fail(make()),
};

for (const [how, handlerOf] of Object.entries(HANDLERS)) {
  test(`a handler that ${how} something without a text leaves no caller waiting, and its server goes on`, async (t) => {
    // With the default of `onError`, too, which prints it.
    t.mock.method(console, 'error', (...given) => { inspect(given); });
    for (const serve of [silent, {}]) {
      let make;
      const { client } = served(t, (request) => (request.data.length > 0 ? request.data : handlerOf(make)(request)), { serve });
      for (let i = 0; i < TIMES; i += 1) {
        for (make of Object.values(UNSPEAKABLE)) {
          const [{ status, reason, value }] = await Promise.allSettled([client.call('')]);
          if (status === 'rejected') assert.ok(reason instanceof RemoteError, String(reason));
          else assert.ok(value.length === 0 && how !== 'throws');
          assert.equal(String(await client.call('goes on')), 'goes on');
        }
      }
    }
  });
}

test('a handler that returns something else fails its call', async (t) => {
  const { client } = served(t, () => ({ no: 'bytes' }));
  await assert.rejects(client.call(''), (error) => error instanceof RemoteError && error.message.startsWith('TypeError: data must be'));
});

test('a thousand calls in progress from one loop all get their own replies', async (t) => {
  let most = 0;
  let now = 0;
  const { client, segment } = served(
    t,
    async (request) => {
      most = Math.max(most, (now += 1));
      await new Promise(setImmediate);
      now -= 1;
      return request.data;
    },
    { sizes: { slots: 64 }, serve: { ...silent, limit: 50 } },
  );
  const replies = await Promise.all(Array.from({ length: 1000 }, (_, i) => client.call(`${i}`, { timeout: SOON })));
  assert.deepEqual(replies.map(String), Array.from({ length: 1000 }, (_, i) => `${i}`));
  assert.ok(most <= 50 && most > 1, `${most} at a time`);
  assert.ok(allFree(segment));
});

test('a time-out and an aborted signal end a call, and free its slot', async (t) => {
  const segment = Segment.anonymous({ slots: 4 });
  const client = new Client(segment, { timeout: 20 });
  t.after(() => client.close());
  await assert.rejects(client.call('a'), (error) => error instanceof TimedOut && error.op === 'reqrep call');
  await assert.rejects(client.call('b', { timeout: 0 }), TimedOut);
  await assert.rejects(client.call('c', { signal: AbortSignal.abort(new Error('no')) }), { message: 'no' });
  const controller = new AbortController();
  // More than there are slots.
  const calls = Array.from({ length: 50 }, () => client.call('d', { timeout: Infinity, signal: controller.signal }));
  setTimeout(() => controller.abort(new Error('enough')), 5);
  for (const { reason } of await Promise.allSettled(calls)) assert.equal(reason?.message, 'enough');
  await until(() => allFree(segment));
  assert.equal(client.pending, 0);
});

test('a signal that does not abort leaves nothing behind', async (t) => {
  const { client } = served(t, (request) => request.data);
  const { signal } = new AbortController();
  let listeners = 0;
  const [add, remove] = [signal.addEventListener, signal.removeEventListener];
  signal.addEventListener = (...args) => { listeners += 1; return add.apply(signal, args); };
  signal.removeEventListener = (...args) => { listeners -= 1; return remove.apply(signal, args); };
  await Promise.all(Array.from({ length: 100 }, () => client.call('', { signal })));
  assert.equal(listeners, 0);
});

test('closing an end settles all that waits for it', async () => {
  const segment = Segment.anonymous({ slots: 2 });
  const [client, server] = [new Client(segment), new Server(segment)];
  const taken = server.recv();
  const calls = Array.from({ length: 10 }, () => client.call('x'));
  const request = await taken;
  const waiting = [1, 2, 3].map(() => server.recv());
  await new Promise((resolve) => setTimeout(resolve, 10));
  client.close();
  server.close();
  for (const { status, reason } of await Promise.allSettled(calls)) {
    assert.equal(status, 'rejected');
    assert.ok(reason instanceof Invalid, String(reason));
  }
  const others = (await Promise.allSettled(waiting)).filter(({ status }) => status === 'fulfilled');
  // There is a slot for one more.
  assert.equal(others.length, 1);
  others[0].value.fail();
  assert.equal(request.isWanted, false);
  assert.equal(await request.reply('late'), false);
  client.close();
  await assert.rejects(client.call('x'), Invalid);
  await assert.rejects(server.recv(), Invalid);
  assert.throws(() => client.pending, Invalid);
  for await (const _ of server) assert.fail('it is closed');
  assert.ok(allFree(segment));
});

test('for await gives requests, and fails those that come back unanswered', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const calls = ['answer', 'forget', 'detach', 'fail', 'last'].map((data) => client.call(data));
  calls.forEach((call) => call.catch(() => {}));
  let detached;
  for await (const request of server) {
    const data = request.data.toString();
    if (data === 'answer') assert.equal(await request.reply('answered'), true);
    if (data === 'detach') detached = request.detach();
    if (data === 'fail') request.fail(Buffer.from('a reason'));
    if (data === 'last') break;
  }
  assert.equal((await calls[0]).toString(), 'answered');
  await assert.rejects(calls[1], (error) => error instanceof RemoteError && error.reason.length === 0);
  await assert.rejects(calls[3], { message: 'a reason' });
  await assert.rejects(calls[4], RemoteError);
  await detached.reply('later');
  assert.equal((await calls[2]).toString(), 'later');
  server.stop();
  for await (const _ of server) assert.fail('it is stopped');
  await assert.rejects(server.recv(), Closed);
});

test('serve answers what it has taken before it returns', async (t) => {
  const { client, server, serving } = served(t, async (request) => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    return request.data;
  });
  const call = client.call('x');
  await until(() => server.segment.audit().taken === 1);
  server.stop();
  await serving;
  assert.equal((await call).toString(), 'x');
});

test('serve on a closed server is refused', async () => {
  const server = new Server(Segment.anonymous());
  server.close();
  await assert.rejects(server.serve(() => ''), (error) => error instanceof Invalid && error.message.includes('this server is closed'));
});

test('serve ends when its signal is aborted', async () => {
  const segment = Segment.anonymous();
  const server = new Server(segment);
  const controller = new AbortController();
  const serving = server.serve(() => '', { signal: controller.signal });
  setTimeout(() => controller.abort(), 5);
  await serving;
  await assert.rejects(server.serve(() => '', { signal: AbortSignal.abort() }), { name: 'AbortError' });
});

test('a generator is a reply in parts, for those that stream and those that do not', async (t) => {
  const ends = [];
  const { client, segment } = served(t, async function* (request) {
    try {
      for (let i = 0; i < Number(request.data); i += 1) yield `part ${i}`;
      if (request.flags === 1) throw new Error('in the middle');
    } finally {
      ends.push(String(request.data));
    }
  });
  const parts = [];
  for await (const part of client.stream('3', { timeout: SOON })) parts.push(part.toString());
  assert.deepEqual(parts, ['part 0', 'part 1', 'part 2']);
  assert.equal((await client.call('2')).toString(), 'part 0part 1');
  const messages = [];
  await assert.rejects(async () => {
    for await (const message of client.streamMessages('2', { flags: 1 })) messages.push(message.data.toString());
  }, { message: 'Error: in the middle' });
  assert.deepEqual(messages, ['part 0', 'part 1']);
  // Leaving the loop cancels the call, which ends the generator.
  for await (const part of client.stream('1000000')) {
    assert.equal(part.toString(), 'part 0');
    break;
  }
  await until(() => ends.length === 4);
  assert.deepEqual(ends, ['3', '2', '2', '1000000']);
  await until(() => allFree(segment));
});

test('a stream ends with its signal, its time-out, and its client', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const endings = [
    [() => ({ timeout: 50 }), TimedOut],
    [() => ({ signal: AbortSignal.timeout(50) }), (error) => error.name === 'TimeoutError'],
    [() => ({}), Invalid],
  ];
  for (const [given, expected] of endings) {
    const parts = client.stream('x', given());
    const [first, request] = await Promise.all([parts.next(), server.recv().then(async (each) => {
      await each.sendPart('first');
      return each;
    })]);
    assert.equal(first.value.toString(), 'first');
    const second = parts.next();
    if (expected === Invalid) {
      await until(() => client.pending === 1);
      client.close();
    }
    await assert.rejects(second, expected);
    assert.deepEqual(await parts.next(), { done: true, value: undefined });
    await until(() => !request.isWanted);
    request.fail();
  }
  assert.ok(allFree(segment));
});

test('closing a client ends its streams, also between two parts', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const streams = [1, 2, 3].map(() => client.stream('x'));
  const firsts = streams.map((each) => each.next());
  const requests = [];
  for (const _each of streams) {
    const request = await server.recv();
    requests.push(request);
    assert.equal(await request.sendPart('one'), true);
  }
  for (const first of firsts) assert.equal((await first).value.toString(), 'one');
  client.close();
  assert.deepEqual(segment.members().map(({ role }) => role), ['server']);
  for (const request of requests) {
    assert.equal(request.isWanted, false);
    request.fail();
  }
  assert.ok(allFree(segment));
  for (const stream of streams) {
    await assert.rejects(stream.next(), Invalid);
    assert.deepEqual(await stream.next(), { done: true, value: undefined });
  }
});

test('a part waits for the client, and is given up with its time-out', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment, { partTimeout: 30 })];
  const parts = client.stream('x');
  const first = parts.next();
  const request = await server.recv();
  assert.equal(await request.sendPart('one'), true);
  await first;
  assert.equal(await request.sendPart('two'), true);
  await assert.rejects(request.sendPart('three', { timeout: 20 }), TimedOut);
  const third = request.sendPart('three');
  await assert.rejects(request.sendPart('four'), Invalid);
  assert.equal((await parts.next()).value.toString(), 'two');
  assert.equal(await third, true);
  // The reply waits for `partTimeout`, and then the request fails.
  await assert.rejects(request.reply('end'), TimedOut);
  await assert.rejects(parts.next(), RemoteError);
});

test('flush waits until the client has taken a part, so that a reason does not overtake it', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment, { partTimeout: 1 })];
  const parts = client.stream('x');
  const first = parts.next();
  const request = await server.recv();
  assert.equal(await request.flush(), true);
  await request.sendPart('one');
  await first;
  await request.sendPart('two');
  await assert.rejects(request.flush(), TimedOut);
  const flushed = request.flush({ timeout: SOON }).then((isWanted) => {
    request.fail('why');
    return isWanted;
  });
  assert.equal((await parts.next()).value.toString(), 'two');
  assert.equal(await flushed, true);
  await assert.rejects(parts.next(), { message: 'why' });
  assert.ok(allFree(segment));
});

test('fail ends a flush that waits, and flush is false once the client has gone', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  for (const isGone of [false, true]) {
    const parts = client.stream('x');
    const first = parts.next();
    const request = await server.recv();
    await request.sendPart('one');
    await first;
    await request.sendPart('two');
    const flushed = request.flush({ timeout: SOON });
    if (isGone) {
      await parts.return();
      assert.equal(await flushed, false);
      request.fail();
    } else {
      request.fail();
      await assert.rejects(flushed, Invalid);
      await assert.rejects(parts.next(), RemoteError);
    }
  }
  assert.ok(allFree(segment));
});

test('fail ends a part that is on its way', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const parts = client.stream('x');
  const first = parts.next();
  const request = await server.recv();
  await request.sendPart('one');
  await first;
  await request.sendPart('two');
  const third = request.sendPart('three');
  request.fail('over');
  await assert.rejects(third, Invalid);
  assert.equal(request.isOpen, false);
  await assert.rejects(parts.next(), RemoteError);
});

test('requests that were sent are received, cancelled and forgotten by their tickets', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const [a, b, c] = await Promise.all(['a', 'b', 'c'].map((data) => client.send(data, { flags: 5 })));
  assert.equal(typeof a, 'bigint');
  await assert.rejects(client.recv(a, { timeout: 10 }), TimedOut);
  assert.equal(client.cancel(b), true);
  client.forget(c);
  for (const expected of ['a', 'c']) {
    const request = await server.recv();
    assert.equal(request.data.toString(), expected);
    assert.equal(request.flags, 5);
    if (expected === 'a') assert.equal(request.ticket, a);
    await request.reply(expected.toUpperCase());
  }
  assert.equal((await client.recvMessage(a)).data.toString(), 'A');
  await assert.rejects(client.recv(a), Stale);
  assert.throws(() => client.cancel(b), Stale);
  await assert.rejects(client.recv('a'), TypeError);
  assert.throws(() => client.cancel('a'), TypeError);
  assert.ok(allFree(segment));
});

test('limits are errors that name the option', async (t) => {
  const { client, server } = served(t, () => Buffer.alloc(5000));
  const short = new Client(server.segment, { maxMessage: 4999 });
  t.after(() => short.close());
  for (const sent of [short.call(Buffer.alloc(5000)), short.send(Buffer.alloc(5000)), short.stream(Buffer.alloc(5000)).next()]) {
    await assert.rejects(sent, (error) => error instanceof TooLong && error.message.includes("5000 bytes, and the client's maxMessage is 4999"));
  }
  await assert.rejects(short.call(''), TooLong);
  const small = new Server(Segment.anonymous(), { maxMessage: 4999 });
  const call = new Client(small.segment).call('x');
  const request = await small.recv();
  await assert.rejects(request.reply(Buffer.alloc(5000)), TooLong);
  assert.equal(request.isOpen, true);
  await request.reply('short');
  assert.equal((await call).toString(), 'short');
  assert.ok(client);
});

test('a client that needs a server gets an error without one', async () => {
  const segment = Segment.anonymous();
  const client = new Client(segment, { needsServer: true });
  await assert.rejects(client.call('x'), (error) => error instanceof NoServer && error.code === 'ERR_PIPEWORK_NO_SERVER');
  const server = new Server(segment);
  const call = client.call('x');
  call.catch(() => {});
  await until(() => segment.audit().waiting === 1);
  server.close();
  await assert.rejects(call, NoServer);
});

test('clients and servers meet by a path', async (t) => {
  const path = `${folder(t)}/calls`;
  assert.throws(() => new Client(path), (error) => {
    assert.ok(error instanceof OsError);
    assert.deepEqual([error.code, error.errno, error.path, error.op], ['ENOENT', -2, path, 'reqrep open']);
    assert.ok(error.message.includes(path));
    return true;
  });
  await assert.rejects(Client.connect(path, { connectTimeout: 5 }), (error) => error instanceof TimedOut && error.message.includes(path));
  await assert.rejects(Client.connect(path, { signal: AbortSignal.timeout(5) }), { name: 'TimeoutError' });
  const connecting = Client.connect(path, { timeout: SOON });
  const server = new Server(path, { slots: 8, partTimeout: 5 });
  const client = await connecting;
  assert.equal(client.segment.geometry.slots, 8);
  assert.throws(() => new Server(path, { slots: 9 }), { code: 'ERR_PIPEWORK_INCOMPATIBLE' });
  assert.throws(() => new Server(server.segment, { slots: 8 }), TypeError);
  assert.throws(() => Segment.create(path), { code: 'EEXIST' });
  const serving = server.serve((request) => request.data);
  assert.equal((await client.call('x')).toString(), 'x');
  assert.equal((await new Client(new URL(`file://${path}`)).call('y')).toString(), 'y');
  const byFd = Segment.fromFd(client.segment.fd);
  assert.equal((await new Client(byFd).call('z')).toString(), 'z');
  assert.deepEqual(client.segment.members().map(({ role, pid, isAlive }) => [role, pid === process.pid, isAlive])[0], ['server', true, true]);
  assert.ok(client.segment.stats().requests >= 3);
  server.stop();
  await serving;
  assert.equal(client.segment.unlink(), true);
});

test('arguments that are wrong are refused by name', async () => {
  const segment = Segment.anonymous();
  const client = new Client(segment);
  const type = { name: 'TypeError' };
  const range = { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' };
  assert.throws(() => Segment.anonymous({ slot: 1 }), { ...type, message: /no option 'slot'/ });
  assert.throws(() => Segment.anonymous({ slots: 0 }), { ...range, message: /slots must be .* 1 to 1048576, not 0/ });
  assert.throws(() => Segment.anonymous({ slots: '8' }), type);
  assert.throws(() => Segment.anonymous({ spin: 2 }), range);
  assert.throws(() => Segment.anonymous(null), type);
  assert.throws(() => new Client(segment, { redeliveries: 4 }), range);
  assert.throws(() => new Client(7), type);
  assert.throws(() => new Segment('a\0b'), type);
  for (const data of [undefined, null, 7, {}, ['a'], Symbol('a')]) await assert.rejects(client.call(data), type);
  await assert.rejects(client.call('', { timeout: -1 }), range);
  await assert.rejects(client.call('', { timeout: NaN }), range);
  await assert.rejects(client.call('', { flags: 2 ** 32 }), range);
  await assert.rejects(client.call('', { signal: {} }), type);
  await assert.rejects(client.call('', { blobs: [Buffer.alloc(1)] }), type);
  await assert.rejects(new Server(segment).serve('no function'), type);
  await assert.rejects(new Server(segment).serve(() => '', { limit: 0 }), range);
  // One that is undefined is not given.
  assert.equal(Segment.anonymous({ slots: undefined }).geometry.slots, 256);
  const pastTimers = client.call('x', { timeout: 2 ** 40 });
  pastTimers.catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(client.pending, 1);
  client.close();
});

test('a request that the program drops fails at its client', { skip: globalThis.gc === undefined && 'needs --expose-gc' }, async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const call = client.call('x');
  let isOver = false;
  call.catch(() => { isOver = true; });
  await (async () => { await server.recv(); })();
  await until(async () => {
    globalThis.gc();
    await new Promise(setImmediate);
    return isOver;
  });
  await assert.rejects(call, RemoteError);
});

test('timers have their turns beside a busy client, and a server that never waits', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const ticked = () => {
    const tick = { has: false };
    setTimeout(() => { tick.has = true; }, 1);
    return tick;
  };
  // Without a turn for the timer, these go on for ever.
  let tick = ticked();
  const more = () => client.call('x').catch(() => {});
  more();
  for await (const request of server) {
    if (tick.has) break;
    more();
    await request.reply('y');
  }
  tick = ticked();
  const serving = server.serve(() => { more(); });
  while (!tick.has) await client.call('x');
  server.stop();
  await serving;
  client.close();
});

test('handles and errors describe themselves', () => {
  const segment = Segment.anonymous();
  assert.equal(inspect(segment), 'Segment(without a path)');
  assert.equal(inspect(new Client(segment)), 'Client of Segment(without a path)');
  const seen = [];
  for (const [name, Class] of Object.entries(pipework)) {
    if (typeof Class === 'function' && Class.prototype instanceof PipeworkError) seen.push(name);
  }
  assert.equal(seen.length, 17);
  segment.close();
  assert.equal(inspect(segment), 'Segment(closed)');
});
