'use strict';

// Keeps stdout for a protocol, in a program whose libraries print.

const { Writable } = require('node:stream');
const { closeSync } = require('node:fs');
const native = require('./native.js');
const { error } = require('./errors.js');
const { inbox, start } = require('./loop.js');

/** How long the end of the process waits for the reader of stdout, in milliseconds. */
const LAST = 5000;

const NOTHING = new Uint8Array(0);

/** The stream of the original stdout. */
class Protocol extends Writable {
  #fd;
  #isOver = false;
  /** From now on, writing waits: the process ends, or stdout is given back. */
  #isLast = false;
  /** What is not written yet of the chunk that is being written, and what to call then. */
  #rest = NOTHING;
  #done;
  #atExit = () => this.#finish();

  constructor(fd) {
    super({ decodeStrings: true });
    this.#fd = fd;
    process.on('exit', this.#atExit);
  }

  get fd() {
    return this.#fd;
  }

  _write(chunk, _encoding, done) {
    this.#rest = chunk;
    this.#done = done;
    this.#carry();
  }

  #carry() {
    try {
      this.#rest = this.#rest.subarray(native.write(this.#fd, this.#rest, this.#isLast ? LAST : 0));
    } catch (failure) {
      return this.#end(failure);
    }
    if (this.#rest.length === 0) return this.#end();
    if (this.#isLast) return this.#end(error('TimedOut', 'guard stdout', 'nobody reads stdout'));
    start(this, 'guard stdout', {}, () => native.writable(inbox, this.#fd)).then(
      () => this.#done && this.#carry(),
      (failure) => this.#end(failure),
    );
  }

  #end(failure) {
    const done = this.#done;
    this.#done = undefined;
    this.#rest = NOTHING;
    // The stream calls `_write` with its next chunk in here.
    done?.(failure);
  }

  /** Writes all that was given, so that nothing is lost if the program ends by process.exit. */
  #finish() {
    this.#isLast = true;
    if (this.#done !== undefined) this.#carry();
  }

  _destroy(failure, done) {
    this.restore();
    done(failure);
  }

  /** Gives stdout back: from now on what is printed goes there again. */
  restore() {
    if (this.#isOver) return;
    this.#finish();
    this.#isOver = true;
    process.off('exit', this.#atExit);
    native.restoreStdout(this.#fd);
    closeSync(this.#fd);
  }
}

/**
 * Keeps stdout for its caller. Text that other code prints meanwhile, to `process.stdout` or to
 * descriptor 1, in JavaScript, in C or in a child, goes to stderr.
 */
function guardStdout() {
  const fd = native.duplicate(1);
  native.sendStdoutToStderr();
  return new Protocol(fd);
}

module.exports = { guardStdout };
