// How a program in TypeScript uses the package. It is compiled, and not run.

import { PeerDied, RemoteError, TornMessage, atomic, guardStdout, reqrep } from 'pipework';
import { type Item, Reader, Writer, pair } from 'pipework/atomic';
import { Client, Segment, Server, type Handler } from 'pipework/reqrep';

export async function calls(segment: Segment): Promise<string> {
  using client = new Client(segment, { timeout: 1000, redeliveries: 1 });
  const server: reqrep.Server = new Server('/dev/shm/x', { slots: 8, partTimeout: 5 });
  const handler: Handler = async (request) => {
    if (request.data.length === 0) throw new RangeError();
    return request.blobs[0]?.buffer;
  };
  await server.serve(handler, { limit: 10, onError: (error, request) => console.error(error, request.ticket) });
  await server.serve(async function* parts(request) {
    yield request.data;
  });
  await server.serve((request) => request.data);
  for await (const request of server) {
    const isWanted: boolean = await request.reply('x', { flags: 1, blobs: request.blobs });
    if (!isWanted) request.detach();
  }
  for await (const part of client.stream(new Float32Array(3), { signal: AbortSignal.timeout(5) })) part.toString('hex');
  const ticket: bigint = await client.send('x');
  // @ts-expect-error: a ticket is a bigint
  client.cancel(5);
  // @ts-expect-error: there is no such option
  client.call('x', { time: 5 });
  // @ts-expect-error: options of a segment are for a path
  new Server(segment, { slots: 8 });
  // @ts-expect-error: a server makes them
  new reqrep.Request();
  try {
    return (await client.recv(ticket)).toString();
  } catch (error) {
    if (error instanceof RemoteError) return error.reason.toString();
    if (error instanceof PeerDied) return error.code + error.op;
    throw error;
  }
}

export async function messages(): Promise<number> {
  const [reader, writer] = pair({ mixed: true, zstd: { level: 1 } });
  const sent: void = await writer.send(new Uint8Array(5), { timeout: 5 });
  for await (const item of reader) {
    switch (item.kind) {
      case 'message':
        return item.parts + item.data.length;
      case 'line':
        return item.text.length;
      case 'burst':
        return item.data.length;
      case 'torn':
        return item.byteLength;
    }
  }
  const last: Item = await new Reader(process.stdin).nextItem();
  if (last instanceof atomic.Message) await Writer.fifo('x');
  const stdout = guardStdout();
  stdout.end('x');
  return new TornMessageOf().torn.parts + Number(sent);
}

declare class TornMessageOf extends TornMessage {
  constructor();
}
