// A server of the kill storm: each reply is its request, marked. It ends with its stdin.

import { Server } from 'pipework/reqrep';

const server = new Server(process.argv[2]);
process.stdin.on('end', () => server.stop()).resume();
let calls = 0;
setInterval(() => console.log(calls), 20).unref();
await server.serve(async (request) => {
  calls += 1;
  if (calls % 3 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
  const { data } = request;
  if (data[0] === 1) {
    return (async function* parts() {
      for (let i = 0; i < 3; i += 1) yield Buffer.concat([Buffer.from([i]), data]);
    })();
  }
  return Buffer.concat([Buffer.from('!'), data]);
}, { limit: 8, onError() {} });
process.exit(0);
