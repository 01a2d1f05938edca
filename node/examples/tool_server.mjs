// A tool server, as MCP has them: JSON in lines on stdin and stdout. A library that it uses prints,
// which would break the protocol. With `guardStdout`, prints go to stderr.
//
//   printf '{"id":1,"method":"add","params":[2,3]}\n' | node tool_server.mjs
// @ts-check

import { createInterface } from 'node:readline';
import { guardStdout } from 'pipework';

const stdout = guardStdout(); // before the libraries, which may print as soon as they are loaded

/** @type {Record<string, (...params: any[]) => any>} */
const tools = {
  add: (a, b) => a + b,
  chatty(text) {
    console.log('debug: the library is at work'); // to stderr
    return text.toUpperCase();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  const tool = tools[method];
  const answer = tool ? { id, result: tool(...params) } : { id, error: `there is no tool ${method}` };
  stdout.write(`${JSON.stringify(answer)}\n`);
}
