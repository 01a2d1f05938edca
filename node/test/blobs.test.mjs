import assert from 'node:assert/strict';
import { constants } from 'node:buffer';
import { statfsSync } from 'node:fs';
import test from './limited.mjs';
import { Invalid, TooLong } from 'pipework';
import { Blob, Client, Segment, Server } from 'pipework/reqrep';
import { TIMES, ended, folder, program, until } from './support.mjs';

test('a blob is filled in place, frozen, sent, read in place and handed on', async (t) => {
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path);
  const child = program(t, `
    import { Server } from 'pipework/reqrep';
    const server = new Server(process.argv[1]);
    await server.serve(async (request) => {
      const [blob] = request.blobs;
      if (!blob.isInPlace) throw new Error('it is a copy');
      await request.reply(String(Math.max(...new Uint8Array(blob.buffer).subarray(-4))), { blobs: request.blobs });
    });
  `, { args: [path] });
  const client = await Client.connect(segment);
  const draft = segment.blob(8 << 20);
  const memory = draft.buffer;
  assert.ok(memory instanceof ArrayBuffer && memory === draft.buffer && memory.byteLength === 8 << 20);
  new Uint8Array(memory).fill(0)[memory.byteLength - 1] = 255;
  const blob = draft.freeze();
  // From now on nobody writes through it.
  assert.equal(memory.byteLength, 0);
  assert.throws(() => draft.freeze(), Invalid);
  assert.ok(blob instanceof Blob && blob.isInPlace && !blob.isCopied && blob.byteLength === 8 << 20);
  const { data, blobs: [back] } = await client.callMessage('', { blobs: [blob] });
  assert.equal(data.toString(), '255');
  assert.equal(new Uint8Array(back.buffer).at(-1), 255);
  assert.equal(back.buffer, back.buffer);
  back.check();
  assert.equal((await client.call('', { blobs: new Set([back]) })).toString(), '255');
  const parts = client.streamMessages('', { blobs: [segment.blobFrom('abc')] });
  assert.equal((await parts.next()).value.blobs[0].toBuffer(1, 3).toString(), 'bc');
  child.kill();
  await ended(child);
  client.close();
});

test('the buffer of a blob cannot be transferred', () => {
  const blob = Segment.anonymous().blobFrom('bytes');
  const { buffer } = blob;
  for (const name of ['transfer', 'transferToFixedLength', 'transferToImmutable']) {
    if (name in ArrayBuffer.prototype) assert.throws(() => buffer[name](), { name: 'TypeError', code: 'ERR_PIPEWORK_PINNED' });
  }
  const { port1, port2 } = new MessageChannel();
  for (const transfer of [() => structuredClone(buffer, { transfer: [buffer] }), () => port1.postMessage(buffer, [buffer])]) {
    // Node 20 makes a copy.
    try {
      transfer();
    } catch (error) {
      assert.equal(error.name, 'DataCloneError');
    }
    assert.equal(buffer.byteLength, 5);
  }
  port1.close();
  port2.close();
  assert.deepEqual(Object.keys(buffer), []);
});

/** What moves memory all the same: each returns where it is then. */
const MOVERS = {
  async 'a stream of bytes'(buffer) {
    const stream = new ReadableStream({
      type: 'bytes',
      start(controller) {
        controller.enqueue(new Uint8Array(buffer));
        controller.close();
      },
    });
    return (await stream.getReader().read()).value.buffer;
  },
  async 'a method of its own'(buffer) {
    return ArrayBuffer.prototype.transfer?.call(buffer);
  },
};

for (const [how, move] of Object.entries(MOVERS)) {
  test(`memory that ${how} has moved lives as long as it is used, and is frozen by nobody`, { skip: globalThis.gc === undefined && 'needs --expose-gc' }, async () => {
    const segment = Segment.anonymous();
    const length = 1 << 20;
    for (let i = 0; i < TIMES; i += 1) {
      const [draft, blob] = [segment.blob(length), segment.blobFrom(Buffer.alloc(length, 'b'))];
      new Uint8Array(draft.buffer).fill(97);
      let moved = [await move(draft.buffer), await move(blob.buffer)];
      if (moved[0] === undefined) return;
      assert.equal(blob.buffer.byteLength, 0);
      assert.throws(() => draft.freeze(), (error) => error instanceof Invalid && error.message.includes('transferred'));
      draft.close();
      blob.close();
      // These would get the memory if it were free.
      const others = [1, 2, 3].map(() => segment.blobFrom(Buffer.alloc(length, 'o')));
      for (const [at, letter] of ['a', 'b'].entries()) {
        assert.ok(Buffer.from(moved[at]).equals(Buffer.alloc(length, letter)));
        new Uint8Array(moved[at]).fill(120);
      }
      for (const other of others) {
        assert.ok(other.toBuffer().equals(Buffer.alloc(length, 'o')));
        other.close();
      }
      assert.ok(segment.blobStats().held >= 2 * length);
      moved = undefined;
      await until(async () => {
        globalThis.gc();
        await new Promise(setImmediate);
        return segment.blobStats().held === 0;
      });
    }
  });
}

test('a blob that is too long for one ArrayBuffer is an error, or has its buffer', { long: 'a blob of 4 GiB' }, (t) => {
  const length = 2 ** 32 + 1;
  const { bavail, bsize } = statfsSync('/dev/shm');
  if (bavail * bsize < 1.5 * length) return t.skip('needs 6 GiB of /dev/shm');
  const draft = Segment.anonymous().blob(length);
  for (let i = 0; i < TIMES; i += 1) {
    if (constants.MAX_LENGTH >= length) assert.equal(draft.buffer.byteLength, length);
    else assert.throws(() => draft.buffer, (error) => error instanceof TooLong && error.message.includes('4294967297 bytes'));
  }
  const blob = draft.freeze();
  if (constants.MAX_LENGTH < length) {
    assert.throws(() => blob.buffer, TooLong);
    assert.throws(() => blob.toBuffer(), RangeError);
  }
  assert.equal(blob.toBuffer(length - 5).length, 5);
  blob.close();
});

test('blobs have to be a list', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const blob = segment.blobFrom('x');
  for (const blobs of [blob, 7, {}, null, 'x', [blob, 'x'], [segment.blob(1)]]) {
    await assert.rejects(client.call('', { blobs }), TypeError);
    await assert.rejects(client.send('', { blobs }), TypeError);
    await assert.rejects(client.stream('', { blobs }).next(), TypeError);
  }
  const call = client.call('');
  const request = await server.recv();
  await assert.rejects(request.reply('', { blobs: blob }), TypeError);
  await request.reply('x');
  assert.equal(String(await call), 'x');
});

test('two blobs of the same memory have a buffer each', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const blob = segment.blobFrom('shared');
  const call = client.callMessage('', { blobs: [blob] });
  const request = await server.recv();
  await request.reply('', { blobs: request.blobs });
  const { blobs: [back] } = await call;
  const buffers = [blob, request.blobs[0], back].map(({ buffer }) => buffer);
  assert.equal(new Set(buffers).size, 3);
  for (const buffer of buffers) assert.equal(Buffer.from(buffer).toString(), 'shared');
});

test('an empty draft and a closed one', () => {
  const segment = Segment.anonymous();
  assert.equal(segment.blob(0).freeze().byteLength, 0);
  const draft = segment.blob(10);
  const { buffer } = draft;
  draft.close();
  draft.close();
  assert.equal(buffer.byteLength, 0);
  assert.throws(() => draft.freeze(), Invalid);
  assert.throws(() => draft.buffer, Invalid);
  assert.throws(() => segment.blob(1.5), TypeError);
  assert.throws(() => segment.blobFrom('abc').toBuffer(2, 1), RangeError);
  assert.throws(() => segment.blobFrom('abc').toBuffer(0, 4), RangeError);
});

test('a closed blob is freed at once, and a message that carries it goes on', async () => {
  const segment = Segment.anonymous();
  const [client, server] = [new Client(segment), new Server(segment)];
  const blob = segment.blobFrom('bytes');
  const { buffer } = blob;
  const call = client.call('', { blobs: [blob] });
  blob.close();
  blob.close();
  assert.equal(buffer.byteLength, 0);
  assert.equal(blob.byteLength, 5);
  for (const use of [() => blob.buffer, () => blob.isInPlace, () => blob.toBuffer(), () => blob.check()]) {
    assert.throws(use, Invalid);
  }
  await assert.rejects(client.call('', { blobs: [blob] }), Invalid);
  const request = await server.recv();
  const [received] = request.blobs;
  assert.equal(received.toBuffer().toString(), 'bytes');
  await request.reply('');
  await call;
  received.close();
  assert.equal(segment.blobStats().held, 0);
  const unread = segment.blobFrom('x'.repeat(1 << 20));
  assert.ok(segment.blobStats().held > 0);
  unread.close();
  assert.equal(segment.blobStats().held, 0);
});

test('what JavaScript holds is held, and what it drops is freed', { skip: globalThis.gc === undefined && 'needs --expose-gc' }, async () => {
  const segment = Segment.anonymous({ blobLimit: 3 << 20 });
  const held = [];
  for (let i = 0; i < 3; i += 1) held.push(segment.blob((1 << 20) - 4096).freeze().buffer);
  assert.throws(() => segment.blob(1 << 20), (error) => error instanceof TooLong && /are held, and \d+ more/.test(error.message));
  assert.ok(segment.blobStats().held > 2 << 20);
  held.length = 0;
  await until(async () => {
    globalThis.gc();
    await new Promise(setImmediate);
    return segment.blobStats().held === 0;
  });
  segment.blob(1 << 20).close();
});
