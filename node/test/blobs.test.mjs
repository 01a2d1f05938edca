import assert from 'node:assert/strict';
import test from './limited.mjs';
import { Invalid, TooLong } from 'pipework';
import { Blob, Client, Segment, Server } from 'pipework/reqrep';
import { ended, folder, program, until } from './support.mjs';

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
