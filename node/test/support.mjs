// What the tests share: places, programs, and conditions.

import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

/** A guard against hanging, in milliseconds. No test waits for it to pass. */
export const SOON = 180_000;

/** How often tests of rare faults are repeated. */
export const TIMES = Number(process.env.PIPEWORK_TIMES ?? 2);

/** A folder in shared memory, which is removed when the test has ended. */
export function folder(t) {
  const made = mkdtempSync(join('/dev/shm', 'pipework-node-'));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

export function scratch(t) {
  const made = mkdtempSync(join(tmpdir(), 'pipework-node-'));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** The path of a file beside the tests. */
export const beside = (name) => fileURLToPath(new URL(name, import.meta.url));

/** Runs a program until the end of the test at the latest. */
export function run(t, command, args, options) {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'], ...options });
  t.after(() => child.kill('SIGKILL'));
  return child;
}

/** The same for a program of JavaScript, an ES module. */
export function program(t, source, { args = [], ...options } = {}) {
  return run(t, process.execPath, ['--input-type=module', '--eval', source, ...args], { cwd: beside('.'), ...options });
}

/** How a child has ended: its status, or the signal that ended it. */
export function ended(child) {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve(child.exitCode ?? child.signalCode);
  return new Promise((resolve) => child.once('exit', (code, signal) => resolve(code ?? signal)));
}

/** All that a child prints to its stdout. */
export async function printed(child) {
  let text = '';
  child.stdout.setEncoding('utf8');
  for await (const chunk of child.stdout) text += chunk;
  return text;
}

/** The next line that a child prints. */
export function line(child) {
  return new Promise((resolve) => {
    let text = '';
    child.stdout.on('data', function more(chunk) {
      text += chunk;
      const end = text.indexOf('\n');
      if (end < 0) return;
      child.stdout.off('data', more);
      resolve(text.slice(0, end));
    });
  });
}

/** Waits until a condition holds. */
export async function until(condition, what) {
  const end = performance.now() + SOON;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`it never came: ${what ?? condition}`);
    await sleep(2);
  }
}

/** How many descriptors are open, except the inotify instance that the library keeps once a client has waited. */
export const descriptors = () =>
  readdirSync('/proc/self/fd').filter((number) => {
    try {
      return readlinkSync(`/proc/self/fd/${number}`) !== 'anon_inode:inotify';
    } catch {
      return false; // the listing's own
    }
  }).length;

/** The number of threads. */
export const threads = () => readdirSync('/proc/self/task').length;

/** Bytes of memory in use, after the garbage is gone, and what its end frees. */
export async function memory() {
  for (let before = Infinity; ; ) {
    for (let i = 0; i < 3; i += 1) {
      globalThis.gc();
      await sleep(10);
    }
    const { rss } = process.memoryUsage();
    if (rss >= before) return before;
    before = rss;
  }
}
