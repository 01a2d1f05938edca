// Memory stays flat. PIPEWORK_MANY=1 makes it a million calls and 100,000 of each object.

import assert from 'node:assert/strict';
import test from 'node:test';
import { pair } from 'pipework/atomic';
import { Client, Segment, Server } from 'pipework/reqrep';
import { descriptors, memory, threads, until } from './support.mjs';

const isMany = process.env.PIPEWORK_MANY === '1';
const CALLS = isMany ? 1_000_000 : 20_000;
const OBJECTS = isMany ? 100_000 : 1000;
/** Bytes of growth that the runtime's own heap may have. */
const NOISE = 48 << 20;

/** Runs `work` for a while, and then again: the second time nothing may grow. */
async function flat(t, work, times, mayKeepFiles) {
  for (let i = 0; i < times / 2; i += 1) await work(i);
  const before = { rss: await memory(), descriptors: descriptors(), threads: threads() };
  for (let i = 0; i < times; i += 1) await work(i);
  await until(() => threads() <= before.threads && (mayKeepFiles || descriptors() <= before.descriptors));
  const grown = (await memory()) - before.rss;
  t.diagnostic(`${times} times: ${Math.round(grown / 1024)} KiB`);
  assert.ok(grown < NOISE, `${grown} bytes more`);
}

/** A segment keeps the files of blobs for the next ones: as many as the collector left at a time. */
const test_flat = (name, make, times, mayKeepFiles = false) =>
  test(name, { skip: globalThis.gc === undefined && 'needs --expose-gc' }, async (t) => {
    const { work, close = () => {} } = make();
    await flat(t, work, times, mayKeepFiles);
    await close();
  });

test_flat('calls, their time-outs, errors and parts keep nothing', () => {
  const segment = Segment.anonymous({ slots: 64 });
  const [client, server] = [new Client(segment), new Server(segment)];
  const serving = server.serve(async function (request) {
    if (request.flags === 1) throw new Error('no');
    if (request.flags === 2) return ['a', 'b'][Symbol.iterator]();
    if (request.flags === 3) await new Promise((resolve) => setTimeout(resolve, 3));
    return request.data;
  }, { onError() {} });
  const data = Buffer.alloc(100);
  const large = Buffer.alloc(20_000);
  return {
    async work(i) {
      await Promise.all(Array.from({ length: 10 }, (_, j) => client.call(data, { flags: 0, timeout: 60_000 })));
      await client.call(data, { flags: 1 }).catch(() => {});
      for await (const _ of client.stream(data, { flags: 2 })) if (i % 2) break;
      if (i % 10 === 0) await client.call(data, { flags: 3, timeout: 1 }).catch(() => {});
      if (i % 10 === 0) await client.call(large);
    },
    async close() {
      server.stop();
      await serving;
      assert.equal(segment.audit().free, 64);
      client.close();
    },
  };
}, CALLS / 10);

test_flat('messages keep nothing', () => {
  const [reader, writer] = pair({ mixed: true, zstd: 1 });
  const data = Buffer.alloc(5000, 'x');
  return {
    async work() {
      await writer.send(data);
      await reader.nextItem();
      const waiting = reader.nextItem();
      await writer.send(data);
      await waiting;
    },
  };
}, CALLS / 4);

test_flat('handles that are closed keep nothing', () => {
  const segment = Segment.anonymous({ slots: 4 });
  return {
    async work() {
      const [client, server] = [new Client(segment), new Server(segment)];
      const call = client.call('x');
      const request = await server.recv();
      await request.reply('y');
      await call;
      client.call('never').catch(() => {});
      const [reader, writer] = pair();
      reader.recv().catch(() => {});
      reader.close();
      writer.destroy();
      client.close();
      server.close();
      Segment.anonymous({ slots: 1 }).close();
    },
  };
}, OBJECTS);

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
