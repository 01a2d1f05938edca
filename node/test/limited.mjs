// node:test with a time limit for each test: one that takes longer has failed, and the rest of its file goes on. A test
// with the option `long`, which says why, is left to `make test-all`.

import test from 'node:test';

// Long runs, which ask for it, take hours.
const isLong = ['PIPEWORK_MANY', 'PIPEWORK_KILLS', 'PIPEWORK_TIMES'].some((name) => process.env[name] !== undefined);
const timeout = isLong ? Infinity : 1000 * Number(process.env.PIPEWORK_TEST_LIMIT ?? 300);

export default function limited(name, options, body) {
  if (body === undefined) return test(name, { timeout }, options);
  const { long, ...others } = options;
  const skip = long && process.env.PIPEWORK_SHORT ? { skip: `long: ${long}` } : {};
  return test(name, { timeout, ...others, ...skip }, body);
}
