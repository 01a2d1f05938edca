// Programs in the other languages, which the tests exchange calls and messages with. Each is called as
// `opens PATH`, `serve PATH`, `call PATH` or `echo`.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Segment } from 'pipework/reqrep';
import { beside, folder, scratch } from './support.mjs';

const ROOT = beside('../..');
const TARGET = resolve(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'));
const program = (ending) => beside(`peers/peer.${ending}`);

export const PYTHON = {
  name: 'Python',
  build: 'python/dev build',
  stands: process.env.PIPEWORK_PYTHON ?? join(TARGET, 'python-venv/bin/python'),
  command: () => [PYTHON.stands, program('py')],
};
const PERL = {
  name: 'Perl',
  build: 'perl/dev build',
  stands: join(ROOT, 'perl/blib/arch/auto/Pipework/Pipework.so'),
  command: () => [process.env.PERL ?? 'perl', `-Mblib=${join(ROOT, 'perl')}`, program('pl')],
};
const C = {
  name: 'C',
  build: 'cargo build -p pipework-c',
  stands: join(TARGET, 'debug/libpipework_c.a'),
  command(t) {
    const made = join(scratch(t), 'peer');
    const header = join(ROOT, 'crates/pipework-c/include');
    const flags = ['-std=c11', '-pedantic', '-Wall', '-Wextra', '-Werror', '-D_POSIX_C_SOURCE=200809L'];
    const parts = ['-I', header, program('c'), C.stands, '-lm', '-lpthread', '-ldl', '-o', made];
    spawnSync('cc', [...flags, ...parts], { stdio: 'inherit' });
    return [made];
  },
};
const RUST = {
  name: 'Rust',
  build: 'cargo build -p pipework-cli',
  stands: process.env.PIPEWORK_COMMAND ?? join(TARGET, 'debug/pipework'),
  command: () => ['env', `PIPEWORK=${RUST.stands}`, 'sh', program('sh')],
};

/** The languages: what a program in each stands on, what builds that, and the command that runs it. */
export const PEERS = [PYTHON, PERL, C, RUST];

/** The command of a peer. Undefined if the peer is not built: then the test is left out, except in CI. */
export function ready(t, { name, build, stands, command }) {
  if (existsSync(stands)) {
    const path = join(folder(t), 'opened');
    Segment.create(path).close();
    const made = command(t);
    const { status } = spawnSync(made[0], [...made.slice(1), 'opens', path], { stdio: 'ignore' });
    // It may have been built before the format changed, or before functions came.
    if (status === 0) return made;
  }
  const text = `left out: ${name} is not built (${build})`;
  if (process.env.CI === 'true') throw new Error(text);
  t.skip(text);
  return undefined;
}
