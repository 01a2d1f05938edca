// Calls and messages to and from programs in the other languages, which peers/ has.

import assert from 'node:assert/strict';
import test from './limited.mjs';
import { RemoteError } from 'pipework';
import { Reader, Writer, pair } from 'pipework/atomic';
import { Client, Server } from 'pipework/reqrep';
import { PEERS, ready } from './peers.mjs';
import { folder, printed, run } from './support.mjs';

/** Longer than a slot, so that it travels as a blob. */
const LONG = 100_000;

/** In Perl flags say that a payload is text, and the command has neither flags nor blobs. */
const hasFlags = ({ name }) => name === 'Python' || name === 'C';
const hasBlobs = ({ name }) => name !== 'Rust';

/** Runs a peer until the end of the test at the latest; undefined if the test is left out. */
function start(t, peer, ...args) {
  const command = ready(t, peer);
  return command && run(t, command[0], [...command.slice(1), ...args]);
}

for (const peer of PEERS) {
  test(`a server in ${peer.name} answers calls from Node`, async (t) => {
    const path = `${folder(t)}/calls`;
    if (start(t, peer, 'serve', path) === undefined) return;
    const client = await Client.connect(path);
    const blobs = hasBlobs(peer) ? [client.segment.blobFrom('a blob')] : [];
    const reply = await client.callMessage('abc', { flags: 40, blobs });
    assert.equal(String(reply.data), 'ABC');
    assert.equal(reply.flags, hasFlags(peer) ? 41 : 0);
    assert.deepEqual(reply.blobs.map((blob) => String(blob.toBuffer())), blobs.map(() => 'a blob'));
    assert.ok((await client.call(Buffer.alloc(LONG, 'x'))).equals(Buffer.alloc(LONG, 'X')));
    const parts = [];
    for await (const part of client.stream('parts')) if (part.length > 0) parts.push(String(part).trim());
    assert.deepEqual(parts, ['one', 'two']);
    await assert.rejects(client.call('fail'), (error) => error instanceof RemoteError && error.message === 'no: ä');
  });

  test(`a client in ${peer.name} calls a server in Node`, async (t) => {
    const path = `${folder(t)}/calls`;
    const server = new Server(path);
    t.after(() => server.close());
    const client = start(t, peer, 'call', path);
    if (client === undefined) return;
    const serving = server.serve(async (request) => {
      const text = String(request.data);
      if (text === 'parts') return ['one', 'two'][Symbol.iterator]();
      if (text === 'fail') throw new RangeError('ä');
      await request.reply(text.toUpperCase(), { flags: request.flags + 1, blobs: request.blobs });
    }, { onError() {} });
    const [reply, long, parts, reason] = (await printed(client)).trim().split('\n');
    assert.equal(reply, ['ABC', hasFlags(peer) ? '42' : [], hasBlobs(peer) ? 'a blob' : []].flat().join(' '));
    assert.equal(Number(long), LONG);
    assert.match(parts, /^one ?two ?$/);
    assert.equal(reason.replace('pipework: ', ''), 'RangeError: ä');
    server.stop();
    await serving;
  });

  test(`a program in ${peer.name} receives messages, prints and sends messages`, async (t) => {
    const ends = childEnds(t, peer, { mixed: true, zstd: 3 });
    if (ends === undefined) return;
    const [reader, writer] = ends;
    const sending = (async () => {
      for (const length of [3, LONG]) await writer.send(Buffer.alloc(length, 'x'));
      await writer.close();
    })();
    const got = [];
    for await (const item of reader) got.push(item.text ?? String(item.data).replace(/^X+$/, ({ length }) => `${length} X`));
    assert.deepEqual(got, ['loading...', '3 X', `${LONG} X`]);
    await sending;
  });
}

/** Ends of a child's stdout and stdin. Node gives a child sockets, and Perl's package takes pipes alone. */
function childEnds(t, peer, options) {
  if (peer.name !== 'Perl') {
    const child = start(t, peer, 'echo');
    return child && [new Reader(child.stdout, options), new Writer(child.stdin)];
  }
  const [[stdin, writer], [reader, stdout]] = [pair(), pair(options)];
  const command = ready(t, peer);
  if (command === undefined) return undefined;
  run(t, command[0], [...command.slice(1), 'echo'], { stdio: [stdin.fd, stdout.fd, 'inherit'] });
  stdin.close();
  stdout.destroy();
  return [reader, writer];
}
