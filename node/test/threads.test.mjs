import assert from 'node:assert/strict';
import { once } from 'node:events';
import test from './limited.mjs';
import { MessageChannel, Worker } from 'node:worker_threads';
import { PeerDied } from 'pipework';
import { pair } from 'pipework/atomic';
import { Client, Segment, Server } from 'pipework/reqrep';
import { SOON, TIMES, beside, folder, threads, until } from './support.mjs';

/** A thread that runs an ES module beside the tests. */
function thread(t, source, workerData) {
  const name = `data:text/javascript,${encodeURIComponent(source.replaceAll(/'(pipework[^']*)'/g, (_, name) => `'${import.meta.resolve(name)}'`))}`;
  const worker = new Worker(new URL(name), { workerData });
  t.after(() => worker.terminate());
  return worker;
}

test('each thread has clients and servers of its own', async (t) => {
  const path = `${folder(t)}/calls`;
  const server = new Server(path, { slots: 16 });
  const serving = server.serve((request) => request.data);
  const source = `
    import { parentPort, workerData } from 'node:worker_threads';
    import { Client } from 'pipework/reqrep';
    const client = new Client(workerData);
    const replies = await Promise.all(Array.from({ length: 500 }, (_, i) => client.call(String(i))));
    parentPort.postMessage(replies.every((reply, i) => reply.toString() === String(i)));
    client.close();
  `;
  const workers = [1, 2, 3].map(() => thread(t, source, path));
  for (const [said] of await Promise.all(workers.map((worker) => once(worker, 'message')))) assert.equal(said, true);
  // Nothing of ours keeps a thread alive.
  await Promise.all(workers.map((worker) => worker.threadId === -1 || once(worker, 'exit')));
  server.stop();
  await serving;
});

test('a thread that is terminated in the middle leaves nothing', async (t) => {
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path, { slots: 8 });
  const source = `
    import { parentPort, workerData } from 'node:worker_threads';
    import { pair } from 'pipework/atomic';
    import { Client, Server, Segment } from 'pipework/reqrep';
    const segment = new Segment(workerData);
    const client = new Client(segment);
    for (let i = 0; i < 20; i += 1) client.call('unanswered');
    const [reader] = (globalThis.kept = pair());
    reader.recv();
    const other = Segment.anonymous();
    const server = new Server(other);
    server.serve(() => '');
    new Client(other).call('x').then(() => parentPort.postMessage('busy'));
  `;
  const before = threads();
  for (let i = 0; i < 5; i += 1) {
    const worker = thread(t, source, path);
    await once(worker, 'message');
    await until(() => segment.audit().free === 0);
    await worker.terminate();
    await until(() => segment.members().length === 0, 'its client leaves');
    assert.equal(segment.audit().free, 8);
  }
  // The thread that waits for descriptors is one of the process.
  await until(() => threads() <= before + 1, 'its threads end');
});

test('a thread that is terminated with requests in its hands has died for their callers', async (t) => {
  for (let i = 0; i < TIMES; i += 1) {
    const path = `${folder(t)}/calls`;
    const segment = Segment.create(path);
    const worker = thread(t, `
      import { parentPort, workerData } from 'node:worker_threads';
      import { Server } from 'pipework/reqrep';
      const server = new Server(workerData);
      const request = (globalThis.kept = await server.recv());
      await request.sendPart('one');
      globalThis.held = [];
      server.serve(() => new Promise((resolve) => held.push(resolve)));
      parentPort.postMessage('ready');
    `, path);
    const [once_, again] = [new Client(segment), new Client(segment, { redeliveries: 1 })];
    const parts = again.stream('x');
    assert.equal(String((await parts.next()).value), 'one');
    const calls = [once_.call('x'), again.call('x')];
    calls.forEach((call) => call.catch(() => {}));
    await until(() => segment.audit().taken === 3);
    const part = parts.next();
    part.catch(() => {});
    await worker.terminate();
    await assert.rejects(calls[0], PeerDied);
    await assert.rejects(part, PeerDied);
    const server = new Server(segment);
    const request = await server.recv();
    assert.equal(request.redeliveries, 1);
    await request.reply('y');
    assert.equal(String(await calls[1]), 'y');
    server.close();
  }
});

test('a handle that is posted or cloned says what to do instead', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const call = client.call('x');
  const request = await server.recv();
  const [reader, writer] = pair();
  const { port1, port2 } = new MessageChannel();
  const blob = segment.blobFrom('x');
  for (const [name, handle] of Object.entries({ Segment: segment, Client: client, Server: server, Request: request, Reader: reader, Writer: writer, Blob: blob })) {
    for (const attempt of [() => port1.postMessage(handle), () => structuredClone({ deep: [handle] })]) {
      assert.throws(attempt, (error) => {
        assert.ok(error.message.startsWith(`a ${name} cannot be sent to another thread: `), error.message);
        return error.code === 'ERR_PIPEWORK_PINNED';
      });
    }
    // A log of it is no error.
    assert.equal(JSON.stringify({ handle }), '{"handle":{}}');
  }
  port1.close();
  port2.close();
  assert.equal(structuredClone(request.data).toString(), Uint8Array.from([120]).toString());
  await request.reply('y');
  await call;
  writer.destroy();
  reader.close();
});

test('modules that are loaded twice in one thread do not disturb each other', async () => {
  const { createRequire } = await import('node:module');
  const require = createRequire(import.meta.url);
  const [first, errors] = [require('pipework/reqrep'), require('pipework')];
  for (const name of Object.keys(require.cache)) if (name.includes('/node/lib/')) delete require.cache[name];
  const [second, others] = [require('pipework/reqrep'), require('pipework')];
  assert.notEqual(first.Client, second.Client);
  for (const [{ Client: C, Segment: S }, { TimedOut }] of [[second, others], [first, errors]]) {
    await assert.rejects(new C(S.anonymous()).call('x', { timeout: 1 }), TimedOut);
  }
});

test('a thread of a channel without a path opens it by its descriptor', async (t) => {
  const segment = Segment.memfd('calls');
  const server = new Server(segment);
  const serving = server.serve((request) => request.data);
  const worker = thread(t, `
    import { parentPort, workerData } from 'node:worker_threads';
    import { Client, Segment } from 'pipework/reqrep';
    parentPort.postMessage(await new Client(Segment.fromFd(workerData)).call('x', { timeout: ${SOON} }));
  `, segment.fd);
  const [reply] = await once(worker, 'message');
  assert.equal(Buffer.from(reply).toString(), 'x');
  server.stop();
  await serving;
  assert.ok(beside('.'));
});
