// Memory stays flat. `node/dev many` makes it a million calls and 100,000 of each object.

import assert from 'node:assert/strict';
import test from './limited.mjs';
import { pair } from 'pipework/atomic';
import { Client, Segment, Server } from 'pipework/reqrep';
import { descriptors, memory, threads, until } from './support.mjs';

const isMany = process.env.PIPEWORK_MANY === '1';
const CALLS = isMany ? 1_000_000 : 20_000;
const OBJECTS = isMany ? 100_000 : 1000;
/** Bytes of growth that the runtime's own heap may have. */
const NOISE = 32 << 20;

/** Threads of the library that the first call to wait starts, and that end with their handles. */
const WATCHERS = 4;
/** Descriptors that a process opens once, when a client of it begins to listen for deaths. */
const LISTENING = 4;

/** Runs `work` for a while, and then `times` times: nothing may have grown. */
async function flat(t, work, times, mayKeepFiles) {
  const repeat = async (count) => {
    for (let i = 0; i < count; i += 1) {
      await work(i);
      // Node frees what is behind a handle at a turn of its loop, after the collector has found it gone.
      if (i % 1000 === 0) {
        globalThis.gc();
        await new Promise(setImmediate);
      }
    }
  };
  await repeat(times / 2);
  const before = { rss: await memory(), descriptors: descriptors(), threads: threads() };
  const began = performance.now();
  await repeat(times);
  const took = Math.round(performance.now() - began);
  const most = before.descriptors + LISTENING;
  await until(() => threads() <= before.threads + WATCHERS && (mayKeepFiles || descriptors() <= most));
  const grown = (await memory()) - before.rss;
  t.diagnostic(`${times} times in ${took} ms: ${Math.round(grown / 1024)} KiB more`);
  assert.ok(grown < NOISE, `${grown} bytes more`);
}

/** A segment keeps the files of blobs for the next ones: as many as the collector left at a time. */
const test_flat = (name, make, times, mayKeepFiles = false) =>
  test(name, { skip: globalThis.gc === undefined && 'needs --expose-gc' }, async (t) => {
    const { work, close = () => {} } = make();
    await flat(t, work, times, mayKeepFiles);
    await close();
  });

/** A client and a server, which answers with `handler`. */
function served(handler) {
  const segment = Segment.anonymous({ slots: 64 });
  const [client, server] = [new Client(segment), new Server(segment)];
  const serving = server.serve(handler, { onError() {} });
  const close = async () => {
    server.stop();
    await serving;
    assert.equal(segment.audit().free, 64);
    client.close();
  };
  return { client, close };
}

const data = Buffer.alloc(100);
const TOGETHER = 10;
const together = (begin) => Promise.all(Array.from({ length: TOGETHER }, (_, i) => begin(i)));

test_flat('calls keep nothing, with or without a time-out, answered or failed, of any size', () => {
  const { client, close } = served(async (request) => {
    if (request.flags === 1) throw new Error('no');
    return request.data;
  });
  const large = Buffer.alloc(20_000);
  return {
    async work(i) {
      const options = i % 2 === 0 ? undefined : { flags: 0, timeout: 60_000 };
      await together((j) => (j > 0 ? client.call(data, options) : client.call(data, { flags: 1 }).catch(() => {})));
      if (i % 10 === 0) await client.call(large);
    },
    close,
  };
}, CALLS / TOGETHER);

test_flat('streams keep nothing, read to their end or left early', () => {
  const { client, close } = served(() => ['a', 'b', 'c'][Symbol.iterator]());
  return {
    work: () => together(async (i) => {
      for await (const _ of client.stream(data)) if (i % 2) break;
    }),
    close,
  };
}, OBJECTS / TOGETHER);

test_flat('calls that are aborted or time out keep nothing', () => {
  const { client, close } = served(async (request) => {
    await new Promise(setImmediate);
    return request.data;
  });
  const shared = new AbortController();
  return {
    work: () => together(async (i) => {
      const own = new AbortController();
      const calls = [client.call(data, { signal: own.signal }), client.call(data, { signal: shared.signal })];
      // Before a server has it, or at the same time as the reply comes.
      if (i % 2) await new Promise(setImmediate);
      own.abort();
      await Promise.allSettled(calls);
      await client.call(data, { timeout: i % 2 }).catch(() => {});
    }),
    close,
  };
}, OBJECTS / TOGETHER);

test_flat('messages keep nothing', () => {
  const [reader, writer] = pair({ mixed: true, zstd: 1 });
  const message = Buffer.alloc(5000, 'x');
  return {
    async work() {
      await writer.send(message);
      await reader.nextItem();
      const waiting = reader.nextItem();
      await writer.send(message);
      await waiting;
    },
  };
}, CALLS / 10);

test_flat('clients, servers and segments that are closed keep nothing', () => {
  const segment = Segment.anonymous({ slots: 4 });
  return {
    async work() {
      const [client, server] = [new Client(segment), new Server(segment)];
      const call = client.call('x');
      const request = await server.recv();
      await request.reply('y');
      await call;
      client.call('never').catch(() => {});
      client.close();
      server.close();
      Segment.anonymous({ slots: 1 }).close();
    },
  };
}, OBJECTS);

test_flat('readers and writers that are closed keep nothing', () => ({
  async work() {
    const [reader, writer] = pair();
    reader.recv().catch(() => {});
    await writer.send(data);
    reader.recv().catch(() => {});
    reader.close();
    writer.destroy();
  },
}), OBJECTS);

test_flat('blobs keep nothing', () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  return {
    async work(i) {
      const draft = segment.blob(100_000);
      new Uint8Array(draft.buffer)[0] = 1;
      const call = client.callMessage('', { blobs: [draft.freeze()] });
      const request = await server.recv();
      await request.reply('', { blobs: request.blobs });
      const { blobs: [blob] } = await call;
      assert.equal(new Uint8Array(blob.buffer)[0], 1);
      segment.blobFrom('dropped');
      if (i % 100 === 0) {
        globalThis.gc();
        await new Promise(setImmediate);
      }
    },
  };
}, isMany ? OBJECTS : 100, true);
