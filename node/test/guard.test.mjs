// `guardStdout`, on every kind of stdout, with readers that are slow, stand still or leave.

import assert from 'node:assert/strict';
import { closeSync, constants, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Socket } from 'node:net';
import test from './limited.mjs';
import { setTimeout as sleep } from 'node:timers/promises';
import { createFifo } from 'pipework/atomic';
import { TIMES, beside, ended, line, printed, program, run, scratch, until } from './support.mjs';

/** A program whose stdout is a socket, as Node makes them, or a pipe. Its stdout is not read yet. */
function start(t, kind, source) {
  const child = kind === 'socket' ? program(t, source, { stdio: ['ignore', 'pipe', 'pipe'] }) : piped(t, source);
  const said = printed({ stdout: child.stderr });
  return { child, out: child.stdout, said };
}

function piped(t, source) {
  const path = `${scratch(t)}/fifo`;
  createFifo(path);
  const reading = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writing = openSync(path, constants.O_WRONLY);
  const child = program(t, source, { stdio: ['ignore', writing, 'pipe'] });
  closeSync(writing);
  child.stdout = new Socket({ fd: reading, readable: true, writable: false });
  return child;
}

/** All that a program prints, with its status. */
async function whole(t, kind, source) {
  const { child, out, said } = start(t, kind, source);
  const text = await printed({ stdout: out });
  return [text, await said, await ended(child)];
}

/** Says how long a run of one letter is, in place of the run. */
const brief = (text) => text.replaceAll(/(.)\1{99,}/g, (run, letter) => `${letter}*${run.length} `);

/** Repeats what waits for most of its time, some at a time. */
async function repeated(once) {
  for (let i = 0; i < TIMES; i += 20) {
    await Promise.all(Array.from({ length: Math.min(20, TIMES - i) }, once));
  }
}

const GUARD = "import { guardStdout } from 'pipework';";
const PRINTS = `
  import { spawnSync } from 'node:child_process';
  import { writeSync } from 'node:fs';
  import { guardStdout } from 'pipework';
  console.log('before');
  const stdout = guardStdout();
  console.log('printed');
  process.stdout.write('written\\n');
  writeSync(1, 'by number\\n');
  spawnSync('echo', ['by a child'], { stdio: 'inherit' });
  stdout.write('{"id": 1}\\n');
  stdout.write('{"id": 2}\\n');
`;
const PROTOCOL = 'before\n{"id": 1}\n{"id": 2}\n';
const PRINTED = 'printed\nwritten\nby number\nby a child\n';

for (const kind of ['socket', 'pipe']) {
  test(`guardStdout on a ${kind} sends prints to stderr, and only the protocol to stdout`, async (t) => {
    assert.deepEqual(await whole(t, kind, PRINTS), [PROTOCOL, PRINTED, 0]);
    const restored = `${PRINTS} stdout.restore(); console.log('after'); writeSync(1, 'by number\\n'); stdout.restore();`;
    assert.deepEqual(await whole(t, kind, restored), [`${PROTOCOL}after\nby number\n`, PRINTED, 0]);
  });

  test(`guardStdout on a ${kind} lets what Node has not printed yet go first`, async (t) => {
    for (let i = 0; i < TIMES; i += 1) {
      const { child, out, said } = start(t, kind, `
        ${GUARD}
        import { writeSync } from 'node:fs';
        process.stdout.write('x'.repeat(300_000));
        const stdout = guardStdout();
        console.log('printed');
        console.error('guarded');
        stdout.write('end', () => {
          writeSync(1, 'by number');
          console.log(', and later');
        });
      `);
      // Its stdout is full until it is read.
      await until(() => child.exitCode === null && child.stderr.bytesRead > 0);
      if (i % 2) await sleep(20);
      assert.equal(brief(await printed({ stdout: out })), 'x*300000 end');
      assert.equal(await said, 'printed\nguarded\nby number, and later\n');
      assert.equal(await ended(child), 0);
    }
  });

  test(`restore on a ${kind} lets what waits for stdout and for stderr go first`, async (t) => {
    for (let i = 0; i < TIMES; i += 1) {
      // Before anything is written, with the stream full, and with stderr full.
      for (const [before, during, expected] of [
        ["process.stdout.write('x'.repeat(300_000));", '', ['x*300000 ', '']],
        ['', '', ['', '']],
        ['', "process.stdout.write('y'.repeat(300_000)); console.log('z');", ['', 'y*300000 z\n']],
      ]) {
        const [out, said, status] = await whole(t, kind, `
          ${GUARD}
          ${before}
          const stdout = guardStdout();
          ${during}
          stdout.write('a'.repeat(200_000));
          stdout.cork();
          stdout.write('b');
          stdout.write('c');
          stdout.restore();
          console.log('after');
          stdout.write('still in its turn');
        `);
        assert.deepEqual([brief(out), brief(said), status], [`${expected[0]}a*200000 bcafter\nstill in its turn`, expected[1], 0]);
      }
    }
  });

  test(`a guarded ${kind} gets all at process.exit by a slow reader, however long that takes`, async (t) => {
    const length = 1_100_000;
    await repeated(async function once() {
      const { child, out, said } = start(t, kind, `
        ${GUARD}
        const stdout = guardStdout();
        stdout.cork();
        for (let i = 0; i < ${length / 100}; i += 1) stdout.write(String(i).padStart(99) + '\\n');
        process.nextTick(() => process.exit(3));
      `);
      let text = '';
      let [last, longest] = [performance.now(), 0];
      for await (const chunk of out) {
        text += chunk;
        longest = Math.max(longest, performance.now() - last);
        last = performance.now();
        // Longer in all than the end of a process waits for a reader that takes nothing.
        await sleep((chunk.length / length) * 7000);
      }
      // On a machine so busy that this reader has stood still itself, it proves nothing.
      if (longest > 4000) return once();
      assert.equal(text, Array.from({ length: length / 100 }, (_, i) => `${String(i).padStart(99)}\n`).join(''));
      assert.equal(await said, '');
      assert.equal(await ended(child), 3);
    });
  });

  test(`a guarded ${kind} whose reader stands still gets nothing after a cut, and the process says what is lost`, async (t) => {
    const lines = [Array(30).fill('x'.repeat(34_999)), Array(30_000).fill('short')];
    await repeated(() => Promise.all(lines.map(async (each) => {
      const { child, out, said } = start(t, kind, `
        ${GUARD}
        const stdout = guardStdout();
        for (let i = 0; i < ${each.length}; i += 1) stdout.write(i + ' ${each[0]}\\n');
        process.on('exit', () => stdout.write('the end'));
        process.exit(0);
      `);
      // Without a listener, Node throws the rest away when the child has ended.
      out.on('readable', () => {});
      assert.equal(await ended(child), 1);
      const [text, sentence] = await Promise.all([printed({ stdout: out }), said]);
      const expected = each.map((line, i) => `${i} ${line}\n`).join('');
      assert.ok(text.length > 0);
      assert.equal(brief(text), brief(expected.slice(0, text.length)));
      assert.equal(sentence.split('\n')[0], `pipework: guard stdout: nobody reads stdout: ${expected.length - text.length} bytes are lost`);
    })));
  });

  test(`a guarded ${kind} loses nothing at process.exit, and does not block a loop`, async (t) => {
    const { child, out, said } = start(t, kind, `
      ${GUARD}
      const stdout = guardStdout();
      for (let i = 0; i < 40_000; i += 1) stdout.write(i + '\\n');
      process.on('exit', () => { stdout.write('by a listener\\n'); });
      setTimeout(() => { console.error('still alive'); process.exit(3); }, 20);
    `);
    await until(() => child.stderr.bytesRead > 0);
    const expected = `${Array.from({ length: 40_000 }, (_, i) => `${i}\n`).join('')}by a listener\n`;
    assert.equal(await printed({ stdout: out }), expected);
    assert.equal(await said, 'still alive\n');
    assert.equal(await ended(child), 3);
  });

  test(`a guarded ${kind} whose reader has left ends its process with a status and a sentence`, async (t) => {
    for (const end of ['process.exit(0)', "stdout.on('error', () => process.exit(0))", '']) {
      const { child, out, said } = start(t, kind, `
        ${GUARD}
        import { readSync } from 'node:fs';
        const stdout = guardStdout();
        stdout.write('x'.repeat(300_000));
        ${end === '' ? '' : 'console.error("written");'}
        const wait = new Int32Array(new SharedArrayBuffer(4));
        ${end};
      `);
      out.destroy();
      // The program knows of an error that it handles.
      const [sentence, status] = [await said, await ended(child)];
      if (end.startsWith('process')) assert.match(sentence, /^written\npipework: guard stdout: .*: \d+ bytes are lost\n$/);
      if (end.startsWith('stdout')) assert.equal(sentence, 'written\n');
      assert.equal(status, end.startsWith('stdout') ? 0 : 1, sentence);
    }
  });
}

test('guardStdout on a file, a terminal, a full device and a closed descriptor', async (t) => {
  const place = scratch(t);
  // An ES module that finds the package, as those beside the tests do.
  const script = beside(`.guarded-${process.pid}.mjs`);
  t.after(() => rmSync(script, { force: true }));
  const shell = async (command, source) => {
    writeFileSync(script, source);
    const child = run(t, 'sh', ['-c', command, process.execPath, script, `${place}/out`, `${place}/err`], { stdio: ['ignore', 'pipe', 'inherit'] });
    const out = await printed(child);
    return [out, await ended(child)];
  };
  const read = (name) => readFileSync(`${place}/${name}`, 'utf8');

  assert.deepEqual(await shell('exec "$0" "$1" >"$2" 2>"$3"', `${PRINTS} stdout.restore(); console.log('after');`), ['', 0]);
  assert.deepEqual([read('out'), read('err')], [`${PROTOCOL}after\n`, PRINTED]);

  const onTerminal = 'exec script -qec "\\"$0\\" \\"$1\\" 2>\\"$3\\"" /dev/null';
  const [out, status] = await shell(onTerminal, `${PRINTS} stdout.restore(); console.log('after'); writeSync(1, 'by number');`);
  assert.deepEqual([out.replaceAll('\r', ''), status, read('err')], [`${PROTOCOL}after\nby number`, 0, PRINTED]);

  for (const source of [`${GUARD} guardStdout().write('x'); process.exit(0);`, `${GUARD} const out = guardStdout(); out.cork(); out.write('x'); process.exit(0);`]) {
    assert.deepEqual(await shell('exec "$0" "$1" >/dev/full 2>"$3"', source), ['', 1]);
    assert.match(read('err'), /^pipework: .*ENOSPC.*: 1 bytes are lost\n$|^pipework: .*No space left.*: 1 bytes are lost\n$/);
  }
  // Node has /dev/null in the place of a closed one.
  assert.deepEqual(await shell('exec "$0" "$1" >&- 2>"$3"', `${PRINTS} process.exit(5);`), ['', 5]);
  assert.equal(read('err'), PRINTED);
});

test('the stream of a guard that was given back writes to no other file, and neither does its number', async (t) => {
  const file = `${scratch(t)}/other`;
  for (let i = 0; i < TIMES; i += 1) {
    writeFileSync(file, '');
    const [out, said, status] = await whole(t, 'pipe', `
      ${GUARD}
      import { openSync, writeSync } from 'node:fs';
      import { Writer } from 'pipework/atomic';
      const first = guardStdout();
      const { fd } = first;
      const writer = new Writer(fd, { autoClose: false });
      first.write('a');
      first.restore();
      const opened = Array.from({ length: 10 }, () => openSync('${file}', 'w'));
      first.write('b');
      console.error((await writer.send('c').catch((error) => error)) instanceof Error, opened.includes(fd));
      try { writeSync(fd, 'd'); } catch (error) { console.error(error.code); }
      const second = guardStdout();
      second.write('e', () => second.restore());
      console.error(second.fd === fd);
    `);
    assert.deepEqual([out, said, status], ['abe', 'true false\nEBADF\ntrue\n', 0]);
    assert.equal(readFileSync(file, 'utf8'), '');
  }
});

test('guardStdout writes nothing to a file that has got its number', async (t) => {
  const file = `${scratch(t)}/other`;
  const [out, said, status] = await whole(t, 'pipe', `
    ${GUARD}
    import { closeSync, openSync } from 'node:fs';
    const stdout = guardStdout();
    closeSync(stdout.fd);
    if (openSync('${file}', 'w') !== stdout.fd) throw new Error('it has another number');
    stdout.on('error', (error) => {
      console.log(error.message);
      try { stdout.restore(); } catch (error) { console.log(error.code); }
    });
    stdout.write('x');
  `);
  assert.deepEqual([out, status], ['', 0]);
  assert.equal(said, 'guard stdout: the program has closed the descriptor of the original stdout\nERR_PIPEWORK_INVALID\n');
  assert.equal(readFileSync(file, 'utf8'), '');
});

test('end of a guarded stdout does not send prints there, and a second guard and one in a thread are refused', async (t) => {
  const [out, said, status] = await whole(t, 'pipe', `
    ${GUARD}
    import { Worker } from 'node:worker_threads';
    const stdout = guardStdout();
    const refused = (guard) => { try { guard(); } catch (error) { console.log(error.message); } };
    refused(guardStdout);
    stdout.end('all\\n');
    stdout.on('close', () => {
      console.log('printed');
      stdout.restore();
      console.log('after');
      const url = '${import.meta.resolve('pipework')}';
      const worker = new Worker(\`import(\${JSON.stringify(url)}).then(({ guardStdout }) => {
        try { guardStdout(); } catch (error) { console.log(error.message); }
      })\`, { eval: true });
    });
  `);
  assert.deepEqual([out, said, status], [
    'all\nafter\nguard stdout: it is the stdout of the whole process: call it in the main thread\n',
    'guard stdout: it is guarded already, by the stream that the first call has returned\nprinted\n',
    0,
  ]);
});

test('prints of a program whose stderr is full wait, and lose nothing', async (t) => {
  const child = program(t, `
    ${GUARD}
    const stdout = guardStdout();
    let count = 1;
    while (process.stdout.write('p'.repeat(20_000))) count += 1;
    stdout.write(count + '\\n');
    process.stdout.once('drain', () => stdout.write('drained'));
  `, { stdio: ['ignore', 'pipe', 'pipe'] });
  const count = Number(await line(child));
  const [rest, said] = await Promise.all([printed(child), printed({ stdout: child.stderr })]);
  assert.deepEqual([rest, brief(said), await ended(child)], ['drained', `p*${count * 20_000} `, 0]);
});

test('a guarded stdout leaves its file in the mode that it had', async (t) => {
  const source = `${GUARD} const stdout = guardStdout(); console.log('x'); stdout.write('a'.repeat(200_000));`;
  const child = run(t, 'sh', ['-c', '"$0" --input-type=module --eval "$1"; grep flags: /proc/self/fdinfo/1', process.execPath, source], {
    stdio: ['ignore', 'pipe', 'ignore'],
    cwd: beside('.'),
  });
  const [flags] = (await printed(child)).slice(200_000).match(/\d+/);
  assert.equal(parseInt(flags, 8) & constants.O_NONBLOCK, 0);
});
