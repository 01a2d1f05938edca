// What needs several processes: ends of processes, and deaths.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import test from './limited.mjs';
import { PeerDied, WouldBlock } from 'pipework';
import { Torn, pair } from 'pipework/atomic';
import { Client, Segment, Server } from 'pipework/reqrep';
import { SOON, TIMES, beside, ended, folder, line, printed, program, run, until } from './support.mjs';

const allFree = (segment) => segment.audit().free === segment.geometry.slots;

test('an open handle does not keep a process alive, and what is waited for does', async (t) => {
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path);
  const idle = program(t, `
    import { pair } from 'pipework/atomic';
    import { Client, Server } from 'pipework/reqrep';
    globalThis.kept = [new Client(process.argv[1]), new Server(process.argv[1]), ...pair()];
  `, { args: [path] });
  assert.equal(await ended(idle), 0);
  // The test fails by its time-out if these are kept alive.
  const unref = program(t, `
    import { pair } from 'pipework/atomic';
    import { Client, Server } from 'pipework/reqrep';
    const [reader] = globalThis.kept = pair();
    const late = new Client(process.argv[1]);
    reader.unref().recv({ timeout: ${SOON} });
    late.call('x', { timeout: ${SOON} });
    late.unref();
    new Server(process.argv[1], { timeout: ${SOON} }).unref().serve(() => new Promise(() => {}));
  `, { args: [path] });
  assert.equal(await ended(unref), 0);
  const waiting = program(t, `
    import { Client } from 'pipework/reqrep';
    console.log(String(await new Client(process.argv[1]).call('x')));
  `, { args: [path] });
  const server = new Server(segment);
  const request = await server.recv();
  await new Promise((resolve) => setTimeout(resolve, 100));
  await request.reply('it waited');
  assert.equal(await printed(waiting), 'it waited\n');
  server.close();
  await until(() => allFree(segment));
});

test('a process that exits in the middle leaves nothing', async (t) => {
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path, { slots: 16 });
  for (const end of ['process.exit(3)', 'process.kill(process.pid, "SIGKILL")', 'null.x', 'Promise.reject(new Error())']) {
    const child = program(t, `
      import { Client, Server } from 'pipework/reqrep';
      const [client, server] = [new Client(process.argv[1]), new Server(process.argv[1])];
      for (let i = 0; i < 30; i += 1) client.call('x').catch(() => {});
      const request = await server.recv();
      const taken = await server.recv();
      client.stream('y').next().catch(() => {});
      setTimeout(() => ${end});
    `, { args: [path], stdio: ['ignore', 'inherit', 'ignore'] });
    assert.notEqual(await ended(child), 0);
    await until(() => segment.recover() >= 0 && allFree(segment) && segment.members().length === 0, end);
  }
});

test('an error of onError ends the program, as that of any listener does, and hangs nothing', async (t) => {
  for (const handler of ['() => { throw new Error(); }', 'async () => { throw new Error(); }']) {
    const child = program(t, `
      import { Client, Segment, Server } from 'pipework/reqrep';
      const server = new Server(Segment.anonymous());
      process.on('uncaughtException', (error) => { console.log(error.message); server.stop(); });
      const serving = server.serve(${handler}, { onError() { throw new Error('of onError'); } });
      await new Client(server.segment).call('x').catch((error) => console.log(error.name));
      await serving;
      console.log('served');
    `);
    const lines = (await printed(child)).trim().split('\n');
    assert.deepEqual([lines.slice(0, 2).toSorted(), lines[2]], [['RemoteError', 'of onError'], 'served']);
    assert.equal(await ended(child), 0);
  }
});

test('a caller gets PeerDied, or another server, when a server is killed', async (t) => {
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path);
  const source = `
    import { Server } from 'pipework/reqrep';
    const server = new Server(process.argv[1]);
    console.log('ready');
    await server.serve((request) => (process.argv[2] === 'holds' ? new Promise(() => {}) : 'redelivered ' + request.redeliveries));
  `;
  const holder = program(t, source, { args: [path, 'holds'] });
  await line(holder);
  const [once, again] = [new Client(segment), new Client(segment, { redeliveries: 1 })];
  const [died, went] = [once.call('x'), again.call('x')];
  died.catch(() => {});
  const parts = once.stream('x');
  const part = parts.next();
  part.catch(() => {});
  await until(() => segment.audit().taken === 3);
  program(t, source, { args: [path, 'answers'] });
  await until(() => segment.members().filter(({ role }) => role === 'server').length === 2);
  holder.kill('SIGKILL');
  await assert.rejects(died, (error) => error instanceof PeerDied && error.code === 'ERR_PIPEWORK_PEER_DIED' && error.op === 'reqrep call');
  await assert.rejects(part, PeerDied);
  assert.equal((await went).toString(), 'redelivered 1');
});

/** Two servers whose handlers take 20 ms. They say who has answered. */
async function twoServers(t, path, wait) {
  const servers = [1, 2].map(() => program(t, `
    import { Server } from 'pipework/reqrep';
    const cell = new Int32Array(new SharedArrayBuffer(4));
    const wait = ${wait};
    console.log('ready');
    await new Server(process.argv[1]).serve(async () => {
      await wait();
      return String(process.pid);
    });
  `, { args: [path] }));
  await Promise.all(servers.map(line));
  return servers;
}
const WAITS = {
  'that wait': '() => new Promise((resolve) => setTimeout(resolve, 20))',
  'that compute': '() => Atomics.wait(cell, 0, 0, 20)',
};
const CALLS = 60;

for (const [which, wait] of Object.entries(WAITS)) {
  test(`two servers with handlers ${which} share the calls`, async (t) => {
    const path = `${folder(t)}/calls`;
    const segment = Segment.create(path);
    const servers = await twoServers(t, path, wait);
    const client = new Client(segment);
    await until(() => segment.members().length === 3);
    for (let i = 0; i < TIMES; i += 1) {
      const replies = await Promise.all(Array.from({ length: CALLS }, () => client.call('x', { timeout: SOON })));
      const counts = servers.map(({ pid }) => replies.filter((reply) => Number(reply) === pid).length);
      assert.equal(counts[0] + counts[1], CALLS);
      assert.ok(Math.min(...counts) >= CALLS / 4, `they have answered ${counts}`);
    }
    client.close();
  });

  test(`the death of one of two servers with handlers ${which} costs few calls`, async (t) => {
    const path = `${folder(t)}/calls`;
    const segment = Segment.create(path);
    const [first, second] = await twoServers(t, path, wait);
    const client = new Client(segment);
    await until(() => segment.members().length === 3);
    const calls = Array.from({ length: CALLS }, async () => {
      const pid = Number(await client.call('x', { timeout: SOON }));
      if (pid === first.pid) first.kill('SIGKILL');
      return pid;
    });
    const outcomes = await Promise.allSettled(calls);
    const lost = outcomes.filter(({ status }) => status === 'rejected');
    assert.ok(lost.every(({ reason }) => reason instanceof PeerDied));
    // As many as it worked on.
    assert.ok(lost.length <= 10, `${lost.length} calls are lost`);
    assert.ok(outcomes.some(({ value }) => value === second.pid));
    client.close();
  });
}

test('a server that runs out of descriptors goes on when it has some again', async (t) => {
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path);
  const source = `
    import { closeSync, openSync } from 'node:fs';
    import { once } from 'node:events';
    import { Server } from 'pipework/reqrep';
    const serving = new Server(process.argv[1]).serve((request) => String(request.data.length));
    const opened = [];
    const fill = () => { try { for (;;) opened.push(openSync('/dev/null')); } catch {} };
    fill();
    // Log lines need one, too, the first time.
    console.error('full');
    fill();
    console.log('full');
    await once(process.stdin, 'data');
    opened.forEach((fd) => closeSync(fd));
    await serving;
  `;
  const child = run(t, 'sh', ['-c', 'ulimit -n 64; exec "$0" --input-type=module --eval "$1" "$2"', process.execPath, source, path], {
    stdio: 'pipe', cwd: beside('.'),
  });
  let said = '';
  child.stderr.on('data', (chunk) => { said += chunk; });
  await line(child);
  const client = new Client(segment);
  const call = client.call('x'.repeat(100_000), { timeout: SOON });
  await until(() => said.includes('pipework: a server cannot take a request: '));
  child.stdin.write('go on');
  assert.equal(String(await call), '100000');
  assert.equal(String(await client.call('y'.repeat(200_000), { timeout: SOON })), '200000');
  assert.equal(said.split('cannot take a request').length, 2);
  client.close();
});

test('a server at its limit of blobs leaves requests in the queue', async (t) => {
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path);
  const server = new Server(path, { blobLimit: 300_000 });
  const said = [];
  t.mock.method(console, 'error', (...given) => said.push(given.join(' ')));
  const held = [];
  const serving = server.serve((request) => { held.push(...request.blobs); });
  const client = new Client(segment);
  let done = 0;
  const calls = [1, 2, 3, 4].map(async (i) => {
    await client.call('', { blobs: [segment.blobFrom(Buffer.alloc(200_000, i))], timeout: SOON });
    done += 1;
  });
  for (let i = 1; i <= 4; i += 1) {
    await until(() => done === i);
    assert.equal(held[i - 1].byteLength, 200_000);
    held[i - 1].close();
  }
  await Promise.all(calls);
  server.stop();
  await serving;
  assert.ok(said.every((line) => line.startsWith('pipework: a server cannot take a request: ')));
});

test('a server that exits with requests in its hands has died for their callers', async (t) => {
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path);
  const child = program(t, `
    import { Server } from 'pipework/reqrep';
    const server = new Server(process.argv[1]);
    globalThis.held = [];
    server.serve((request) => request.data.length === 0 ? process.exit() : new Promise((resolve) => held.push(resolve)));
  `, { args: [path] });
  await until(() => segment.members().length === 1);
  const [once, again] = [new Client(segment), new Client(segment, { redeliveries: 1 })];
  const calls = [once.call('x'), again.call('x')];
  calls.forEach((call) => call.catch(() => {}));
  await until(() => segment.audit().taken === 2);
  calls.push(once.call(''));
  await assert.rejects(calls[2], PeerDied);
  await assert.rejects(calls[0], PeerDied);
  const server = new Server(segment);
  const request = await server.recv();
  assert.equal(request.redeliveries, 1);
  await request.reply('y');
  assert.equal(String(await calls[1]), 'y');
  assert.equal(await ended(child), 0);
  server.close();
});

test('a client for each call, never closed, does not run out of places', async (t) => {
  const segment = Segment.create(`${folder(t)}/calls`, { members: 200 });
  const server = new Server(segment);
  const serving = server.serve((request) => request.data);
  for (let i = 0; i < 1000; i += 1) assert.equal(String(await new Client(segment.path).call('x')), 'x');
  const clients = [];
  assert.throws(() => { for (;;) clients.push(new Client(segment)); }, (error) => error instanceof WouldBlock && error.message.includes('close the clients'));
  server.stop();
  await serving;
});

test('a storm of kills: no wrong reply, and none that hangs', { long: 'a storm' }, async (t) => {
  const kills = Number(process.env.PIPEWORK_KILLS ?? 12);
  const seed = Number(process.env.PIPEWORK_SEED ?? Date.now() % 1_000_000);
  t.diagnostic(`PIPEWORK_KILLS=${kills} PIPEWORK_SEED=${seed}`);
  let state = seed;
  const random = (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % below;
  };
  const path = `${folder(t)}/calls`;
  const segment = Segment.create(path, { slots: 24, requestBytes: 256, replyBytes: 256 });
  const names = ['storm-server.mjs', 'storm-server.mjs', 'storm-client.mjs', 'storm-client.mjs'];
  const begin = async (name) => {
    const child = spawn(process.execPath, [beside(name), path], { stdio: ['pipe', 'pipe', 'inherit'] });
    t.after(() => child.kill('SIGKILL'));
    child.name = name;
    child.calls = 0;
    const lines = createInterface({ input: child.stdout });
    lines.on('line', (text) => { child.calls = Number(text); });
    await until(() => child.calls > 0 || child.exitCode !== null, `${name} works`);
    assert.equal(child.exitCode, null, `${name} has failed`);
    return child;
  };
  const children = await Promise.all(names.map(begin));
  for (let i = 0; i < kills; i += 1) {
    const at = random(children.length);
    await new Promise((resolve) => setTimeout(resolve, random(30)));
    children[at].kill('SIGKILL');
    assert.equal(await ended(children[at]), 'SIGKILL', `${children[at].name} has failed by itself`);
    children[at] = await begin(children[at].name);
  }
  // Everybody goes on, and then comes to an end.
  for (const child of children) {
    const before = child.calls;
    await until(() => child.calls > before || child.exitCode !== null, `${child.name} goes on`);
  }
  for (const child of children.toReversed()) {
    child.stdin.end();
    assert.equal(await ended(child), 0, child.name);
  }
  await until(() => segment.recover() >= 0 && allFree(segment));
  t.diagnostic(JSON.stringify(segment.stats()));
});

test('a storm of killed writers: every message is whole, or reported', { long: 'a storm' }, async (t) => {
  const kills = Math.ceil(Number(process.env.PIPEWORK_KILLS ?? 12) / 2);
  const [reader, writer] = pair();
  const counts = { message: 0, torn: 0 };
  let running = 0;
  const begin = () => {
    const child = program(t, `
      import { Writer } from 'pipework/atomic';
      const writer = new Writer(3);
      for (let i = 1; ; i += 1) await writer.send(Buffer.alloc((i * 7919) % 60_000, i));
    `, { stdio: ['ignore', 'ignore', 'inherit', writer.fd] });
    running += 1;
    child.once('exit', () => { running -= 1; });
    return child;
  };
  const children = [begin(), begin()];
  let left = kills;
  const seenSince = new Map();
  for await (const item of reader) {
    counts[item.kind] += 1;
    if (item instanceof Torn) continue;
    assert.ok(item.data.equals(Buffer.alloc(item.data.length, item.data[0])), 'a message holds bytes of another');
    const seen = (seenSince.get(item.writer) ?? 0) + 1;
    seenSince.set(item.writer, seen);
    if (left > 0 && seen % 20 === 0) {
      left -= 1;
      children.shift().kill('SIGKILL');
      if (left > 1) children.push(begin());
      if (left === 0) {
        writer.destroy();
        for (const child of children) child.kill('SIGKILL');
      }
    }
  }
  await until(() => running === 0);
  assert.ok(counts.message >= 20 * kills);
  t.diagnostic(JSON.stringify(counts));
});
