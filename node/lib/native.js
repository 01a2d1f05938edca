'use strict';

// The compiled half for this machine: a file beside this one, or a package of its own.

const { existsSync } = require('node:fs');
const { join } = require('node:path');

function name() {
  if (process.platform !== 'linux') {
    throw new Error(`pipework runs on Linux only, and this is ${process.platform}`);
  }
  // musl's loader is the mark that needs no other program, and no report of a runtime.
  const arch = { x64: 'x86_64', arm64: 'aarch64' }[process.arch] ?? process.arch;
  const isMusl = existsSync(`/lib/ld-musl-${arch}.so.1`) && !existsSync('/lib64/ld-linux-x86-64.so.2') && !existsSync('/lib/ld-linux-aarch64.so.1');
  return `linux-${process.arch}-${isMusl ? 'musl' : 'gnu'}`;
}

function load() {
  const here = name();
  const file = join(__dirname, `pipework.${here}.node`);
  if (existsSync(file)) return require(file);
  try {
    return require(`pipework-${here}`);
  } catch (cause) {
    throw new Error(`pipework has no binary for ${here}: neither ${file} nor the package pipework-${here}`, { cause });
  }
}

module.exports = load();
