// Closing an end ends every wait at it: each promise settles.

import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { pair } from 'pipework/atomic';
import { Client, Segment, Server } from 'pipework/reqrep';
import { SOON } from './support.mjs';

const client = () => new Client(Segment.anonymous({ slots: 8 }));
const server = () => new Server(Segment.anonymous({ slots: 8 }));
const next = (iterable) => iterable[Symbol.asyncIterator]().next();
const peers = []; // collected, they would be closed
const one = () => {
  const [reader, writer] = pair();
  peers.push(writer);
  return { end: reader };
};
const full = () => {
  const [reader, writer] = pair();
  peers.push(reader);
  writer.send(Buffer.alloc(300_000)).catch(() => {});
  return { end: writer };
};

// How to make an end, how to wait at it, and how it is closed.
const waits = {
  'recv of a reader': [one, (end) => end.recv(), (end) => end.close()],
  'nextItem of a reader': [one, (end) => end.nextItem(), (end) => end.close()],
  'a loop over a reader': [one, next, (end) => end.close()],
  'send of a writer': [full, (end) => end.send('x'), (end) => end.destroy()],
  'flush of a writer': [full, (end) => end.flush(), (end) => end.destroy()],
  'call of a client': [() => ({ end: client() }), (end) => end.call('x'), (end) => end.close()],
  'recv of a client': [() => ({ end: client() }), async (end) => end.recv(await end.send('x')), (end) => end.close()],
  'a stream of a client': [() => ({ end: client() }), (end) => next(end.stream('x')), (end) => end.close()],
  'recv of a server': [() => ({ end: server() }), (end) => end.recv(), (end) => end.close()],
  'a loop over a server': [() => ({ end: server() }), next, (end) => end.close()],
  'serve of a server': [() => ({ end: server() }), (end) => end.serve(() => 'x'), (end) => end.close()],
  'serve of a server that is stopped': [() => ({ end: server() }), (end) => end.serve(() => 'x'), (end) => end.stop()],
};

for (const [name, [make, wait, close]] of Object.entries(waits)) {
  test(`closing ends ${name}`, { timeout: SOON }, async () => {
    const { end } = make();
    let isOver = false;
    const waiting = Promise.resolve(wait(end)).catch(() => {}).finally(() => { isOver = true; });
    await sleep(20);
    assert.ok(!isOver, 'it waits');
    close(end);
    await waiting;
  });
}
