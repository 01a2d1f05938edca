// Peers that carry calls between processes of Node, each used as its manual shows.
//
// node node.mjs call ENGINE CALLS BYTES TASKS. Prints one line of five numbers: calls, bytes that
// came, seconds on the clock, CPU seconds of the other process or thread and of this one. A call is
// sent by this process and answered by a forked one, or by a thread; TASKS of them are in progress at
// a time. Making and ending processes is not counted. A missing peer ends with "No module named".
import { fork } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';

const HERE = fileURLToPath(import.meta.url);
const ROOT = join(HERE, '../../..');
const require = createRequire(join(ROOT, 'node/package.json'));

function zeromq() {
  const folder = join(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'), 'node/peers/node_modules/zeromq');
  if (!existsSync(folder)) throw new Error('No module named zeromq');
  return require(folder);
}

/** CPU seconds of a process. */
function cpuOf(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Frames of a socket: a length of four bytes, and as many bytes. */
function frames(socket, give) {
  let chunks = [];
  let have = 0;
  socket.on('data', (chunk) => {
    chunks.push(chunk);
    have += chunk.length;
    for (;;) {
      if (have < 4) return;
      if (chunks[0].length < 4) chunks = [Buffer.concat(chunks)];
      const length = chunks[0].readUInt32LE(0);
      if (have < 4 + length) return;
      if (chunks[0].length < 4 + length) chunks = [Buffer.concat(chunks)];
      const [first] = chunks;
      give(first.subarray(4, 4 + length));
      chunks[0] = first.subarray(4 + length);
      have -= 4 + length;
      if (chunks[0].length === 0) chunks.shift();
    }
  });
}

function send(socket, data) {
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32LE(data.length);
  socket.cork();
  socket.write(head);
  socket.write(data);
  socket.uncork();
}

/** Replies come in the order of the calls. */
function inOrder(put) {
  const waiting = [];
  return {
    call: (data) => new Promise((resolve) => {
      waiting.push(resolve);
      put(data);
    }),
    give: (data) => waiting.shift()(data),
  };
}

const engines = {
  pipework: {
    async call(place, bytes) {
      const { Client, Segment } = require('pipework/reqrep');
      Segment.create(place, { requestBytes: bytes, replyBytes: bytes });
      const client = () => Client.connect(place);
      return { client: async () => { const made = await client(); return (data) => made.call(data); } };
    },
    answer(place) {
      const { Server } = require('pipework/reqrep');
      return new Server(place).serve((request) => request.data);
    },
  },
  pipework_blobs: {
    async call(place) {
      const { Client, Segment } = require('pipework/reqrep');
      Segment.create(place);
      return {
        client: async () => {
          const client = await Client.connect(place);
          return async (data) => {
            const { blobs: [blob] } = await client.callMessage('', { blobs: [client.segment.blobFrom(data)] });
            return new Uint8Array(blob.buffer);
          };
        },
      };
    },
    answer(place) {
      const { Server } = require('pipework/reqrep');
      return new Server(place).serve((request) => request.reply('', { blobs: request.blobs }).then(() => undefined));
    },
  },
  socket: {
    async call(place) {
      return {
        client: async () => {
          const socket = net.connect(place);
          const { call, give } = inOrder((data) => send(socket, data));
          frames(socket, give);
          return call;
        },
      };
    },
    answer(place) {
      return new Promise((_, reject) => {
        net.createServer((socket) => frames(socket, (data) => send(socket, data))).on('error', reject).listen(place);
      });
    },
  },
  child_process: {
    async call(_place, _bytes, child) {
      const { call, give } = inOrder((data) => child.send(data));
      child.on('message', (data) => data.ready === undefined && give(data));
      return { client: async () => call };
    },
    answer() {
      process.on('message', (data) => process.send(data));
      return new Promise(() => {});
    },
  },
  zeromq: {
    async call(place) {
      const { Dealer } = zeromq();
      return {
        client: async () => {
          const socket = new Dealer();
          socket.connect(`ipc://${place}`);
          const queue = [];
          let isSending = false;
          const { call, give } = inOrder(async (data) => {
            queue.push(data);
            if (isSending) return;
            isSending = true;
            while (queue.length > 0) await socket.send(queue.shift());
            isSending = false;
          });
          (async () => { for await (const [data] of socket) give(data); })();
          return call;
        },
      };
    },
    async answer(place) {
      const { Router } = zeromq();
      const socket = new Router();
      await socket.bind(`ipc://${place}`);
      for await (const message of socket) await socket.send(message);
    },
  },
  worker_threads: {
    async call(_place, _bytes, worker) {
      const { call, give } = inOrder((data) => worker.postMessage(data));
      worker.on('message', (data) => data.ready === undefined && give(data));
      return { client: async () => call };
    },
    answer() {
      parentPort.on('message', (data) => parentPort.postMessage(data));
      return new Promise(() => {});
    },
  },
};

async function measure(engine, calls, bytes, tasks) {
  const folder = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'bench-node-'));
  const place = join(folder, 'calls');
  try {
    const isThread = engine === 'worker_threads';
    const begin = () => (isThread
      ? new Worker(HERE, { workerData: { engine, place } })
      : fork(HERE, ['answer', engine, place], { serialization: 'advanced' }));
    let peer;
    let made;
    if (engine.startsWith('pipework')) {
      made = await engines[engine].call(place, bytes);
      peer = begin();
    } else {
      peer = begin();
      made = await engines[engine].call(place, bytes, peer);
    }
    await new Promise((resolve, reject) => {
      peer.once('message', resolve);
      peer.once('exit', () => reject(new Error('the peer has ended')));
    });
    const call = await made.client();
    const data = Buffer.alloc(bytes, 'x');
    let left = Math.ceil(calls / 10);
    let came = 0;
    const caller = async () => {
      while (left > 0) {
        left -= 1;
        const reply = await call(data);
        came += reply.length;
      }
    };
    const all = () => Promise.all(Array.from({ length: tasks }, caller));
    await all();
    [left, came] = [calls, 0];
    const there = isThread ? 0 : cpuOf(peer.pid);
    const here = process.cpuUsage();
    const began = performance.now();
    await all();
    const wall = (performance.now() - began) / 1000;
    const { user, system } = process.cpuUsage(here);
    console.log(calls, came, wall, isThread ? 0 : cpuOf(peer.pid) - there, (user + system) / 1e6);
    peer.removeAllListeners('exit');
    if (isThread) await peer.terminate();
    else peer.kill('SIGKILL');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  process.exit(0);
}

if (!isMainThread) {
  const { engine, place } = workerData;
  engines[engine].answer(place);
  parentPort.postMessage({ ready: true });
} else {
  const [shape, engine, third, ...rest] = process.argv.slice(2);
  if (shape === 'answer') {
    engines[engine].answer(third);
    setTimeout(() => process.send({ ready: true }), 200);
    process.on('disconnect', () => process.exit(0));
  } else {
    await measure(engine, Number(third), ...rest.map(Number));
  }
}
