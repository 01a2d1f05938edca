// node:test with a time limit for each test: one that takes longer has failed, and the rest of its file goes on.

import test from 'node:test';

// Long runs, which ask for it, take hours.
const isLong = ['PIPEWORK_MANY', 'PIPEWORK_KILLS', 'PIPEWORK_TIMES'].some((name) => process.env[name] !== undefined);
const timeout = isLong ? Infinity : 1000 * Number(process.env.PIPEWORK_TEST_LIMIT ?? 300);

export default function limited(name, options, body) {
  return body === undefined ? test(name, { timeout }, options) : test(name, { timeout, ...options }, body);
}
