'use strict';

// Keeps stdout for a protocol, in a program whose libraries print.
//
// What JavaScript prints is sent on to `process.stderr`. For C code and children, descriptor 1 becomes
// another name of descriptor 2. That cannot be done while Node still has printed text to write: its
// event loop watches the number 1, and would write the text to whatever has that number.

const { Writable } = require('node:stream');
const { clearTimeout, setTimeout } = require('node:timers');
const { isMainThread } = require('node:worker_threads');
const native = require('./native.js');
const { error } = require('./errors.js');
const { inbox, start } = require('./loop.js');

const OP = 'guard stdout';

/** How long the end of the process waits for a reader of stdout that takes nothing, in milliseconds. */
const LAST = 5000;

/** How many bytes the reader has to take within that time. */
const PIECE = 4096;

/** The pause between two looks whether Node has written what was printed, in milliseconds. */
const PAUSE = 5;

const NOTHING = new Uint8Array(0);

/** What belongs to the process, also if this file is loaded twice. */
const GUARDING = Symbol.for('pipework.guardStdout');

/** Replaces methods of an object until `undo`. */
class Replaced {
  #object;
  #before = [];

  constructor(object, methods) {
    this.#object = object;
    for (const [name, method] of Object.entries(methods)) {
      this.#before.push([name, method, Object.getOwnPropertyDescriptor(object, name)]);
      Object.defineProperty(object, name, { value: method, writable: true, configurable: true, enumerable: false });
    }
  }

  undo() {
    for (const [name, method, before] of this.#before) {
      // Another library may have put its own in front meanwhile, which calls this one.
      if (this.#object[name] !== method) continue;
      if (before === undefined) delete this.#object[name];
      else Object.defineProperty(this.#object, name, before);
    }
  }
}

/** What JavaScript prints to `process.stdout`, on its way to `process.stderr`. */
class Prints {
  // Made now, because its kind is that of the descriptor 1 at this time.
  #stream = process.stdout;
  #isOn = true;
  #replaced;
  /** What to call when stderr takes more. */
  #done;
  #isListening = false;

  /** Whether Node still has text to write, or watches descriptor 1. */
  get isPending() {
    return (this.#stream.writableLength > 0 && !this.#stream.destroyed) || native.isPolled(1);
  }

  /** Sends what is printed from now on to stderr. What was printed before goes its way. */
  begin() {
    const [stream, prints, { write }] = [this.#stream, this, this.#stream];
    this.#replaced = new Replaced(stream, {
      write(...given) {
        if (!prints.#isOn) return write.apply(stream, given);
        process.stderr.write(...given);
        return true;
      },
    });
  }

  /** The same, once nothing is pending: the stream can be full now. */
  settle() {
    this.#replaced?.undo();
    const { _write, _final } = this.#stream;
    const prints = this;
    this.#replaced = new Replaced(this.#stream, {
      _write(chunk, encoding, done) {
        if (!prints.#isOn) return _write.call(this, chunk, encoding, done);
        if (process.stderr.write(chunk, encoding) !== false) return done();
        prints.#waitFor(done);
      },
      _writev: null,
      _final(done) {
        // The original would shut descriptor 1 down.
        if (prints.#isOn || _final === undefined) done();
        else _final.call(this, done);
      },
    });
  }

  #waitFor(done) {
    this.#done = done;
    if (this.#isListening) return;
    this.#isListening = true;
    process.stderr.on('drain', this.#go).on('close', this.#go);
  }

  #go = () => {
    const done = this.#done;
    this.#done = undefined;
    // The stream calls `_write` with its next chunk in here.
    done?.();
  };

  /** What is printed from now on goes to stdout again. */
  end() {
    // What still waits belongs to stderr.
    while (this.#done !== undefined) this.#go();
    this.#isOn = false;
    this.#replaced.undo();
    if (this.#isListening) process.stderr.off('drain', this.#go).off('close', this.#go);
  }
}

/** The stream of the original stdout. */
class Protocol extends Writable {
  #stdout;
  #prints;
  /** "waiting" while Node writes what was printed before; then "guarding"; "over" after `restore`. */
  #state = 'waiting';
  #timer;
  /** From now on, writing waits: the process ends, or stdout is given back. */
  #isLast = false;
  /** The chunk that is being written, what is left of it, and what to call then. */
  #chunk = NOTHING;
  #rest = NOTHING;
  #done;
  /** Bytes that were written. */
  #written = 0;
  /** Bytes that `process.stdout` has got from here and has not written. */
  #handed = 0;
  /** Why no more is written, and how much of a chunk that has cost. */
  #failure;
  #lost = 0;
  #hasExited = false;
  #atExit = () => this.#finishAtExit();

  constructor(spare) {
    super({ decodeStrings: true });
    // Before the stream of Node, which changes the mode of the descriptor.
    this.#stdout = new native.Stdout(spare);
    this.#prints = new Prints();
    process.on('exit', this.#atExit);
    if (this.#prints.isPending) {
      this.#prints.begin();
      this.#wait();
    } else {
      this.#guard();
    }
  }

  get fd() {
    return this.#stdout.number;
  }

  #wait() {
    this.#timer = setTimeout(() => {
      if (this.#prints.isPending) return this.#wait();
      this.#guard();
      if (this.#done !== undefined) this.#carry();
    }, PAUSE);
    if (this.#done === undefined) this.#timer.unref();
  }

  #guard() {
    this.#prints.settle();
    this.#stdout.divert();
    this.#state = 'guarding';
  }

  _write(chunk, _encoding, done) {
    this.#chunk = this.#rest = chunk;
    this.#done = done;
    this.#go();
  }

  #go() {
    if (this.#failure !== undefined) this.#end(this.#failure);
    else if (this.#state === 'guarding') this.#carry();
    else if (this.#state === 'over') this.#hand();
    else if (this.#isLast) this.#end(error('Closed', OP, 'what was printed before was not written'));
    else this.#timer.ref();
  }

  #carry() {
    try {
      if (this.#isLast) this.#carryAll();
      else this.#carried(this.#stdout.write(this.#rest, 0));
    } catch (failure) {
      return this.#end(failure);
    }
    if (this.#rest.length === 0) return this.#end();
    start(this, OP, {}, () => this.#stdout.writable(inbox)).then(
      () => this.#done && this.#carry(),
      (failure) => this.#done && this.#end(failure),
    );
  }

  /** Waits for the reader, as long as that takes something. */
  #carryAll() {
    while (this.#rest.length > 0) {
      const unread = this.#stdout.unread();
      const taken = this.#stdout.write(this.#rest.subarray(0, PIECE), LAST);
      this.#carried(taken);
      if (taken === 0 && this.#stdout.unread() >= unread) throw error('TimedOut', OP, 'nobody reads stdout');
    }
  }

  #carried(length) {
    this.#written += length;
    this.#rest = this.#rest.subarray(length);
  }

  /** Gives the chunk to `process.stdout`, where it has its turn. */
  #hand() {
    const { length } = this.#rest;
    this.#handed += length;
    process.stdout.write(this.#rest, () => {
      this.#handed -= length;
      this.#leave();
    });
    this.#end();
  }

  #end(failure) {
    const done = this.#done;
    if (failure !== undefined) {
      this.#failure = failure;
      this.#lost += this.#rest.length;
      if (this.#hasExited) tell(this.#rest.length, failure);
    }
    this.#done = undefined;
    this.#chunk = this.#rest = NOTHING;
    // The stream calls `_write` with its next chunk in here.
    done(failure);
  }

  #uncork() {
    while (this.writableCorked > 0) this.uncork();
  }

  /** Writes all that was given. */
  #finish() {
    this.#isLast = true;
    this.#uncork();
    if (this.#done !== undefined) this.#go();
  }

  /** Nothing is lost if the program ends by `process.exit`, or stderr and the status say so. */
  #finishAtExit() {
    let lost = this.#handed;
    if (this.#failure !== undefined) {
      // If the stream is closed, the program has heard of it.
      if (!this.closed) lost += this.#lost + this.writableLength;
    } else if (!this.destroyed) {
      const due = this.writableLength - (this.#chunk.length - this.#rest.length) + this.#written;
      this.#finish();
      lost += due - this.#written;
    }
    if (lost > 0) tell(lost, this.#failure);
    this.#hasExited = true;
    if (this.#state === 'guarding') this.#stdout.resetMode();
  }

  _destroy(failure, done) {
    this.#done = undefined;
    this.#chunk = this.#rest = NOTHING;
    done(failure);
  }

  /** Gives stdout back: from now on what is printed goes there again. */
  restore() {
    if (this.#state === 'over') return;
    if (this.#state === 'guarding') {
      this.#finish();
      this.#isLast = false;
      // What is printed would follow a piece of what was to be written.
      if (this.#failure?.code === TIMED_OUT) throw this.#failure;
      if (native.isPolled(1)) throw error('Invalid', OP, 'something in this process watches descriptor 1');
      this.#stdout.restore();
    } else {
      clearTimeout(this.#timer);
      this.#stdout.close();
    }
    this.#prints.end();
    this.#state = 'over';
    spare = this.fd;
    delete process[GUARDING];
    this.#uncork();
    if (this.#done !== undefined) this.#go();
    this.#leave();
  }

  /** Once it is over, the exit of the process is no concern of it. */
  #leave() {
    if (this.#state === 'over' && this.#handed === 0) process.off('exit', this.#atExit);
  }
}

const TIMED_OUT = error('TimedOut', OP, '').code;

/** The number of the last guard, which nothing else uses. */
let spare;

/** Says on stderr, and by the status of the process, that it ends without all that it had to write. */
function tell(lost, failure) {
  const why = failure?.message ?? `${OP}: what was given back is not written`;
  try {
    native.write(2, Buffer.from(`pipework: ${why}: ${lost} bytes are lost\n`), LAST);
  } catch {
    // There is nobody to say it to. The status remains.
  }
  if (Number(process.exitCode ?? 0) === 0) process.exitCode = 1;
}

/**
 * Keeps stdout for its caller. Text that other code prints meanwhile, to `process.stdout` or to
 * descriptor 1, in JavaScript, in C or in a child, goes to stderr.
 */
function guardStdout() {
  if (!isMainThread) throw error('Invalid', OP, 'it is the stdout of the whole process: call it in the main thread');
  if (process[GUARDING]) throw error('Invalid', OP, 'it is guarded already, by the stream that the first call has returned');
  const stream = new Protocol(spare);
  Object.defineProperty(process, GUARDING, { value: true, configurable: true });
  return stream;
}

module.exports = { guardStdout };
