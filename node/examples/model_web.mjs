// A web server that asks a model in another process, which is written in Python: model.py. Any number
// of web servers share it. If it is killed, callers get an answer at once, and the next one goes on.
//
//   python model.py /dev/shm/model &
//   node model_web.mjs /dev/shm/model 8080
//   curl --data 'how many words' http://127.0.0.1:8080
// @ts-check

import { createServer } from 'node:http';
import { NoServer, PeerDied, TimedOut } from 'pipework';
import { Client } from 'pipework/reqrep';

const [path = '/dev/shm/model', port = '8080'] = process.argv.slice(2);
const client = await Client.connect(path, { timeout: 5000, needsServer: true });

const web = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  // A browser that goes away cancels its call.
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  try {
    response.end(await client.call(Buffer.concat(chunks), { signal: gone.signal }));
  } catch (error) {
    if (gone.signal.aborted) return;
    const isPassing = error instanceof PeerDied || error instanceof NoServer || error instanceof TimedOut;
    response.writeHead(isPassing ? 503 : 500).end(`${error}\n`);
  }
});
web.listen(Number(port), '127.0.0.1', () => console.log(web.address()));
