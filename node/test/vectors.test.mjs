// The byte vectors that every language reads alike.

import assert from 'node:assert/strict';
import { readFileSync, writeSync } from 'node:fs';
import { endianness } from 'node:os';
import test from './limited.mjs';
import { Closed, Corrupt } from 'pipework';
import { pair } from 'pipework/atomic';
import { SOON, beside } from './support.mjs';

const FOLDER = beside('../../vectors/atomic/');
const INDEX = JSON.parse(readFileSync(`${FOLDER}index.json`, 'utf8'));
const ENDS = { closed: Closed, corrupt: Corrupt };
const REASONS = { torn: 'Torn', too_long: 'TooLong', corrupt: 'Corrupt', incompatible: 'Incompatible' };

/** A string stands for bytes, one for each character; an object for the numbers from `count_from` on. */
function data(said) {
  if (typeof said === 'string') return Buffer.from(said, 'latin1');
  const numbers = Array.from({ length: said.len }, (_, i) => `${said.count_from + i} `).join('');
  return Buffer.from(numbers.slice(0, said.len));
}

/** The item of an index, in words. */
function item({ type, writer, parts, bytes, kind, data: said }) {
  const of = writer ? writer.join(':') : undefined;
  if (type === 'line' || type === 'burst') return { kind: type, data: data(said) };
  if (type === 'message') return { kind: type, data: data(said), writer: of, parts };
  assert.equal(type, 'torn');
  const limit = kind === 'too_long' ? { limit: 'maxMessage' } : {};
  return { kind: type, writer: of, parts, byteLength: bytes, reason: REASONS[kind], ...limit };
}

function filled(vector, readSize) {
  const { zstd } = vector;
  const [reader, writer] = pair({
    mixed: vector.mode === 'mixed',
    strict: vector.strict,
    maxMessage: vector.max_message ?? undefined,
    zstd: zstd
      ? {
          dictionary: zstd.dictionary ? readFileSync(FOLDER + zstd.dictionary) : undefined,
          acceptUnchecked: zstd.accept_unchecked,
        }
      : undefined,
    readSize,
  });
  const wire = readFileSync(`${FOLDER}${vector.name}.bin`);
  assert.equal(wire.length === 0 ? 0 : writeSync(writer.fd, wire), wire.length);
  writer.destroy();
  return reader;
}

test('the vectors are found', () => {
  assert.ok(INDEX.vectors.length > 90);
  assert.deepEqual([INDEX.byte_order, INDEX.pipe_buf], [endianness() === 'LE' ? 'little' : 'big', 4096]);
});

test('a reader decodes the vectors as the index says', async () => {
  for (const vector of INDEX.vectors) {
    for (const readSize of [1, 17, 65536]) {
      const reader = filled(vector, readSize);
      for (const expected of vector.items.map(item)) {
        const next = await reader.nextItem({ timeout: SOON });
        assert.deepEqual({ kind: next.kind, ...next }, expected, vector.name);
      }
      for (let i = 0; i < 2; i += 1) {
        await assert.rejects(reader.nextItem({ timeout: SOON }), ENDS[vector.ends], vector.name);
      }
      reader.close();
    }
  }
});

test('recv gives the messages of a plain pipe, and throws the report of a lost one', async () => {
  for (const vector of INDEX.vectors.filter(({ mode }) => mode === 'plain')) {
    const reader = filled(vector, 65536);
    for (const expected of vector.items.map(item)) {
      if (expected.kind === 'message') {
        assert.deepEqual(await reader.recv({ timeout: SOON }), expected.data);
        continue;
      }
      await assert.rejects(reader.recv({ timeout: SOON }), (error) => {
        assert.deepEqual({ kind: 'torn', ...error.torn }, expected, vector.name);
        assert.equal(error.name.replace('Message', ''), expected.reason);
        return true;
      });
    }
    await assert.rejects(reader.recv({ timeout: SOON }), (error) => error instanceof ENDS[vector.ends] && error.torn === undefined);
    reader.close();
  }
});
