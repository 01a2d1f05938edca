// A client of the kill storm: it checks each reply, and accepts no error but the death of a server.
// It ends with its stdin.

import { PeerDied } from 'pipework';
import { Client } from 'pipework/reqrep';

const client = await Client.connect(process.argv[2], { redeliveries: 1 });
let isOver = false;
process.stdin.on('end', () => { isOver = true; }).resume();
let calls = 0;
setInterval(() => console.log(calls), 20).unref();

async function caller(number) {
  for (let turn = 0; !isOver; turn += 1) {
    const inParts = turn % 5 === 0;
    const length = [20, 255, 256, 3000, 70_000][turn % 5];
    const data = Buffer.alloc(length, `${process.pid} ${number} ${turn} `);
    data[0] = inParts ? 1 : 0;
    try {
      if (inParts) {
        let next = 0;
        for await (const part of client.stream(data)) {
          if (part[0] !== next || !part.subarray(1).equals(data)) throw new Error('a wrong part');
          next += 1;
        }
        if (next !== 3) throw new Error(`${next} parts`);
      } else {
        const reply = await client.call(data);
        if (reply[0] !== 33 || !reply.subarray(1).equals(data)) throw new Error('a wrong reply');
      }
      calls += 1;
    } catch (error) {
      if (!(error instanceof PeerDied)) {
        console.error(error);
        process.exit(1);
      }
    }
  }
}

await Promise.all(Array.from({ length: 10 }, (_, number) => caller(number)));
process.exit(0);
