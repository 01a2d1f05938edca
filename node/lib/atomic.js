'use strict';

// Module `atomic`: whole messages over one pipe, also between printed text.

const { closeSync } = require('node:fs');
const { clearTimeout, setImmediate, setTimeout } = require('node:timers');
const { inspect } = require('node:util');
const { finished } = require('node:stream');
const { isMainThread } = require('node:worker_threads');
const { setTimeout: sleep } = require('node:timers/promises');
const native = require('./native.js');
const { Closed, PipeworkError, TimedOut, error } = require('./errors.js');
const { REF, TURN, drop, inbox, offAbort, onAbort, setRef, start, turn, watch } = require('./loop.js');
const { ATOMIC, CALL, bytes, descriptor, filePath, options, wrongType } = require('./options.js');
const { pinned } = require('./pinned.js');

const PINS = {
  reader: pinned('Reader', 'open the descriptor or the FIFO there'),
  writer: pinned('Writer', 'open the descriptor or the FIFO there'),
};

/** Marks a call of a constructor from this file, which comes with the compiled half. */
const MADE = Symbol('made');

/** The longest pause between two looks whether a FIFO has a reader, in milliseconds. */
const LONGEST_PAUSE = 50;

/** How many items one call of the compiled half gets. */
const BATCH = 64;

class Message {
  constructor(data, writer, parts, compressed) {
    this.data = data;
    this.writer = writer;
    this.parts = parts;
    if (compressed !== undefined) this.compressed = compressed;
  }

  get kind() {
    return 'message';
  }
}

class Burst {
  constructor(data, compressed) {
    this.data = data;
    if (compressed !== undefined) this.compressed = compressed;
  }

  get kind() {
    return 'burst';
  }
}

class Line {
  #length;

  constructor(data, length) {
    this.data = data;
    this.#length = length;
  }

  get kind() {
    return 'line';
  }

  get content() {
    return this.data.subarray(0, this.#length);
  }

  get text() {
    return this.content.toString();
  }
}

/** Names of options, as the core has them. */
const LIMITS = { max_message: 'maxMessage', max_unfinished: 'maxUnfinished', memory: 'memory' };

class Torn {
  constructor(writer, parts, byteLength, reason, limit) {
    this.writer = writer;
    this.parts = parts;
    this.byteLength = byteLength;
    this.reason = reason;
    if (limit !== undefined) this.limit = LIMITS[limit];
  }

  get kind() {
    return 'torn';
  }
}

const ITEMS = { message: Message, burst: Burst, line: Line, torn: Torn };

/** An item, of its kind and its fields; an error is thrown. */
function item(made) {
  if (made instanceof PipeworkError) throw made;
  const [kind, ...fields] = made;
  return new ITEMS[kind](...fields);
}

/** The result of a step that is not done, and waits for the descriptor. */
const NOT_YET = Symbol('not yet');

/**
 * Steps of a handle, one after the other. Each is a promise with a time-out and a signal of its own;
 * one that is given up leaves the queue. While the first one is not done, its descriptor is waited
 * for.
 */
class Steps {
  #queue = [];
  #owner;
  #op;
  #step;
  #ready;
  #due;
  /** How many steps were done at once. */
  #given = 0;
  /** The task that waits for the descriptor, and the timer of the next step. */
  #number;
  #timer;

  /**
   * `step` takes the first of the queue, and returns its result or `NOT_YET`. `ready` begins a task
   * that waits for the descriptor; it returns nothing if `wake` will be called. `due` returns after how many
   * milliseconds to try at the latest.
   */
  constructor(owner, op, step, ready, due = () => undefined) {
    this.#owner = owner;
    this.#op = op;
    this.#step = step;
    this.#ready = ready;
    this.#due = due;
  }

  add({ timeout, signal }, entry) {
    try {
      signal?.throwIfAborted();
      if (this.#queue.length === 0) {
        const done = this.#step(entry);
        // Promises that are there already would keep all other events of the loop waiting.
        if (done !== NOT_YET) return ++this.#given % TURN === 0 ? turn().then(() => done) : Promise.resolve(done);
      }
    } catch (thrown) {
      return Promise.reject(thrown);
    }
    return new Promise((resolve, reject) => {
      Object.assign(entry, { resolve, reject, signal, abort: undefined, timer: undefined });
      const leave = (reason) => {
        this.#end(entry);
        reject(reason);
        this.#run();
      };
      if (signal !== undefined) {
        entry.abort = () => leave(signal.reason);
        onAbort(signal, entry.abort);
      }
      if (timeout < 2 ** 31) {
        entry.timer = setTimeout(() => leave(error('TimedOut', this.#op, 'the deadline has passed')), timeout);
        if (this.#owner[REF] === false) entry.timer.unref();
      }
      this.#queue.push(entry);
      if (this.#queue.length === 1) this.#wait();
    });
  }

  /** Fails all steps: the handle is closed. */
  close(reason) {
    this.#stop();
    for (const entry of this.#queue.splice(0)) {
      this.#end(entry);
      entry.reject(reason);
    }
  }

  /** What the first step waited for has happened. */
  wake() {
    if (this.#queue.length > 0) this.#run();
  }

  #run() {
    this.#stop();
    while (this.#queue.length > 0) {
      const entry = this.#queue[0];
      let done;
      try {
        done = this.#step(entry);
        if (done === NOT_YET) return this.#wait();
      } catch (thrown) {
        this.#end(entry);
        entry.reject(thrown);
        continue;
      }
      this.#end(entry);
      entry.resolve(done);
    }
  }

  /** Takes one out of the queue. */
  #end(entry) {
    const at = this.#queue.indexOf(entry);
    if (at >= 0) this.#queue.splice(at, 1);
    clearTimeout(entry.timer);
    if (entry.abort !== undefined) offAbort(entry.signal, entry.abort);
  }

  #wait() {
    let number;
    try {
      number = this.#ready();
    } catch (thrown) {
      number = thrown;
    }
    if (number === undefined) return;
    if (typeof number !== 'number') return void setImmediate(() => this.#fail(number));
    this.#number = number;
    watch(this.#owner, number, () => this.#run(), (reason) => this.#fail(reason));
    const due = this.#due();
    if (due !== undefined && due < 2 ** 31) {
      this.#timer = setTimeout(() => this.#run(), Math.ceil(due));
      if (this.#owner[REF] === false) this.#timer.unref();
    }
  }

  /** The descriptor cannot be waited for, which concerns the first step. */
  #fail(reason) {
    this.#number = undefined;
    const entry = this.#queue[0];
    if (entry === undefined) return;
    this.#end(entry);
    entry.reject(reason);
    this.#run();
  }

  #stop() {
    clearTimeout(this.#timer);
    if (this.#number !== undefined) drop(this.#number);
    this.#number = this.#timer = undefined;
  }
}

class Reader {
  #native;
  #steps;
  /** Items that were read and not given out. */
  #items = [];
  /** What a stream ended with that is no end. */
  #failure;

  constructor(source, given) {
    this.thread = PINS.reader;
    this.#native = source === MADE ? given : this.#opened(source, given);
    this.#steps = new Steps(
      this,
      'atomic recv',
      ({ convert }) => {
        const next = this.#take();
        return next === undefined ? NOT_YET : convert(next);
      },
      () => this.#native.ready(),
      () => this.#native.nextTimeout() ?? undefined,
    );
  }

  #opened(source, given) {
    const { autoClose = true, ...settings } = options('atomic reader', given, END);
    if (typeof source === 'number') return native.AtomicReader.fromFd(inbox, descriptor('fd', source), autoClose, settings);
    if (typeof source === 'string' || source instanceof URL) return native.AtomicReader.fifo(inbox, filePath(source), settings);
    if (typeof source?.on !== 'function' || typeof source.read !== 'function') {
      throw wrongType('source', 'a descriptor, the path of a FIFO, or a readable stream', source);
    }
    const copy = source.bytesRead === 0 ? takenFrom(source) : undefined;
    if (copy !== undefined) return made(copy, () => native.AtomicReader.fromFd(inbox, copy, true, settings));
    const [reader, writer] = native.pair(inbox, settings);
    carry(source, writer).catch((failure) => { this.#failure = failure; }).finally(() => writer.close());
    return reader;
  }

  static listen(path, given) {
    return new this(MADE, native.AtomicReader.listen(inbox, filePath(path), options('atomic reader', given, ATOMIC)));
  }

  static stdin(given) {
    return new this(MADE, native.AtomicReader.stdin(inbox, options('atomic reader', given, ATOMIC)));
  }

  nextItem(given) {
    return this.#add(given, (next) => next);
  }

  recv(given) {
    return this.#add(given, onlyMessage);
  }

  #add(given, convert) {
    try {
      return this.#steps.add(options('atomic recv', given, CALL), { convert });
    } catch (thrown) {
      return Promise.reject(thrown);
    }
  }

  tryNextItem() {
    return this.#take();
  }

  tryRecv() {
    const next = this.#take();
    return next === undefined ? undefined : onlyMessage(next);
  }

  /** An item that is there. */
  #take() {
    if (this.#items.length === 0) {
      this.#items = this.#native.tryItems(BATCH).reverse();
      if (this.#items.length === 0) return undefined;
    }
    try {
      return item(this.#items.pop());
    } catch (thrown) {
      if (thrown instanceof Closed && this.#failure !== undefined) throw this.#failure;
      throw thrown;
    }
  }

  [Symbol.asyncIterator]() {
    return this.#iterate((next) => next);
  }

  messages() {
    return this.#iterate(onlyMessage);
  }

  async *#iterate(convert) {
    for (;;) {
      try {
        yield await this.#add(undefined, convert);
      } catch (thrown) {
        if (thrown instanceof Closed) return;
        throw thrown;
      }
    }
  }

  peek() {
    return this.#native.peek();
  }

  get fd() {
    return this.#native.fd;
  }

  get mixed() {
    return this.#native.mixed;
  }

  get capacity() {
    return this.#native.capacity;
  }

  set capacity(bytes) {
    this.#native.capacity = ATOMIC.maxMessage('capacity', bytes);
  }

  ref() {
    setRef(this, true);
    return this;
  }

  unref() {
    setRef(this, false);
    return this;
  }

  close() {
    this.#items = [];
    this.#steps.close(error('Invalid', 'atomic recv', 'this reader was closed'));
    this.#native.close();
  }

  [inspect.custom]() {
    return 'Reader';
  }
}

/** Options of an end that is made from a descriptor. */
const END = { ...ATOMIC, autoClose: ATOMIC.mixed };

/** What has happened to a message that is lost. */
const LOSSES = {
  Torn: 'a part of the message never came',
  TooLong: 'the message is larger than the limit',
  Corrupt: 'the message is malformed',
  Incompatible: 'the message is compressed, and this reader has no zstd',
};

/** The bytes of a message; throws the report of a loss, and refuses anything else. */
function onlyMessage(next) {
  if (next instanceof Message) return next.data;
  if (next instanceof Torn) {
    throw Object.assign(error(next.reason, 'atomic recv', LOSSES[next.reason]), { torn: next });
  }
  throw error('Invalid', 'atomic recv', `a ${next.kind} has come: in mixed mode use nextItem, or loop over the reader`);
}

/** Calls `make` with a descriptor that is closed if that fails. */
function made(fd, make) {
  try {
    return make();
  } catch (thrown) {
    closeSync(fd);
    throw thrown;
  }
}

/**
 * A duplicate of a stream's descriptor; undefined if it has none, or none that can be had. The
 * stream is destroyed, as soon as all that was written to it is in the descriptor. Those of the process
 * are only stopped, because another file must not get their numbers.
 */
function takenFrom(stream) {
  const fd = stream._handle?.fd;
  // The descriptor of an encrypted stream has the bytes in their encrypted form.
  if (!Number.isInteger(fd) || fd < 0 || stream.encrypted) return undefined;
  const copy = native.duplicate(fd);
  // Node has begun to read, but has not come to it.
  stream._handle.readStop?.();
  if (fd <= 2) stream.pause?.();
  else {
    while (stream.writableCorked > 0) stream.uncork();
    whenWritten(stream, () => stream.destroy());
  }
  return copy;
}

/** Whether a stream has bytes that it has not written. */
const isWriting = (stream) =>
  !stream.destroyed && (stream.writableLength > 0 || (stream.writableEnded === true && !stream.writableFinished));

/** Calls `then` once a stream has written all that it had to, or has failed. */
function whenWritten(stream, then) {
  if (!isWriting(stream)) return then();
  const again = () => whenWritten(stream, then);
  if (stream.writableEnded) finished(stream, { readable: false }, then);
  // An empty write is done after those before it.
  else stream.write('', again);
}

/** Carries the bytes of a stream into a pipe. */
async function carry(stream, writer) {
  for await (const chunk of stream) {
    let rest = bytes(chunk);
    while (rest.length > 0) {
      const done = native.write(writer.fd, rest, 0);
      rest = rest.subarray(done);
      if (rest.length > 0) await start(writer, 'atomic recv', {}, () => writer.ready());
    }
  }
}

class Writer {
  #native;
  #steps;
  #closing;
  /** A stream of Node that writes to the same file. What was written there before comes first. */
  #stream;
  /** Whether that is one whose descriptor was taken. */
  #isTaken = false;
  /** The number of stdout or stderr, if this is one of them and its stream is not known yet. */
  #printed;
  #isWaiting = false;

  constructor(target, given, printed) {
    this.thread = PINS.writer;
    if (target === MADE) {
      this.#native = given;
    } else if (typeof target?.write === 'function') {
      this.#isTaken = target._handle?.fd > 2;
      this.#native = opened(target, given);
      this.#stream = target;
    } else {
      this.#native = opened(target, given);
    }
    const number = target === MADE ? printed : target;
    if (isMainThread && Object.hasOwn(PRINTED, number)) this.#printed = number;
    this.#steps = new Steps(this, 'atomic send', (entry) => this.#step(entry), () => this.#ready());
  }

  static async fifo(path, given) {
    const { connectTimeout = Infinity, signal, ...settings } = options('atomic writer', given, FIFO);
    const file = filePath(path);
    const end = performance.now() + connectTimeout;
    for (let pause = 1; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      signal?.throwIfAborted();
      try {
        return new this(MADE, native.AtomicWriter.fifo(inbox, file, settings));
      } catch (thrown) {
        const left = end - performance.now();
        if (!(thrown instanceof TimedOut) || left <= 0) throw thrown;
        await sleep(Math.min(pause, left), undefined, { signal }).catch(() => signal?.throwIfAborted());
      }
    }
  }

  static stdout(given) {
    return new this(MADE, native.AtomicWriter.stdout(inbox, options('atomic writer', given, ATOMIC)), 1);
  }

  send(data, given) {
    return this.#add('atomic send', given, { data, put: (compiled, sent) => compiled.trySend(sent) });
  }

  burst(data, given) {
    return this.#add('atomic burst', given, { data, put: (compiled, sent) => compiled.tryBurst(sent) });
  }

  flush(given) {
    return this.#add('atomic flush', given, { data: '', put: undefined });
  }

  #add(op, given, entry) {
    try {
      entry.data = bytes(entry.data);
      entry.length = entry.data.length;
      return this.#steps.add(options(op, given, CALL), entry);
    } catch (thrown) {
      return Promise.reject(thrown);
    }
  }

  /** What was sent before is in the pipe, then this is, and then it is done. */
  #step(entry) {
    if (this.#isBehind || !this.#native.tryFlush()) return NOT_YET;
    if (entry.put === undefined) return undefined;
    if (entry.data.length !== entry.length) throw error('Invalid', 'atomic send', 'the data was transferred or resized before it was sent');
    if (!entry.put(this.#native, entry.data)) return NOT_YET;
    entry.put = undefined;
    return this.#native.tryFlush() ? undefined : NOT_YET;
  }

  /** Begins to wait for what a step waits for. */
  #ready() {
    if (!this.#isBehind) return this.#native.ready();
    if (this.#isWaiting) return undefined;
    this.#isWaiting = true;
    whenWritten(this.#stream, () => {
      this.#isWaiting = false;
      this.#steps.wake();
    });
    return undefined;
  }

  /** Whether a stream of Node has bytes that come first. */
  get #isBehind() {
    if (this.#stream === undefined) {
      // Asking for the stream would make it. If it is there, it has left its mark.
      if (this.#printed === undefined || !native.isNonblocking(this.#printed)) return false;
      this.#stream = PRINTED[this.#printed]();
    }
    return isWriting(this.#stream);
  }

  trySend(data) {
    const sent = bytes(data);
    return !this.#isBehind && this.#native.trySend(sent);
  }

  tryFlush() {
    return !this.#isBehind && this.#native.tryFlush();
  }

  fitsInBurst(data) {
    return this.#native.fitsInBurst(bytes(data));
  }

  get pending() {
    return this.#native.pending;
  }

  get key() {
    return this.#native.key;
  }

  get fd() {
    return this.#native.fd;
  }

  get mixed() {
    return this.#native.mixed;
  }

  get isPrinting() {
    return this.#native.isPrinting;
  }

  get capacity() {
    return this.#native.capacity;
  }

  set capacity(bytes) {
    this.#native.capacity = ATOMIC.maxMessage('capacity', bytes);
  }

  ref() {
    setRef(this, true);
    return this;
  }

  unref() {
    setRef(this, false);
    return this;
  }

  close(given) {
    // A second call waits for the first.
    this.#closing ??= this.flush(given).finally(() => this.destroy());
    return this.#closing;
  }

  destroy() {
    this.#closing ??= Promise.resolve();
    this.#steps.close(error('Invalid', 'atomic send', 'this writer was closed'));
    this.#native.close();
    // It may still have bytes, for which nobody waits any more.
    if (this.#isTaken) this.#stream.destroy();
  }

  [inspect.custom]() {
    return 'Writer';
  }
}

/** The streams of what is printed. */
const PRINTED = { 1: () => process.stdout, 2: () => process.stderr };

const FIFO = { ...ATOMIC, connectTimeout: CALL.timeout, signal: CALL.signal };

function opened(target, given) {
  const { autoClose = true, ...settings } = options('atomic writer', given, END);
  if (typeof target === 'number') return native.AtomicWriter.fromFd(inbox, descriptor('fd', target), autoClose, settings);
  const copy = typeof target?.write === 'function' ? takenFrom(target) : undefined;
  if (copy === undefined) {
    throw wrongType('target', 'a descriptor, or a writable stream that is a pipe or a socket (a FIFO: Writer.fifo)', target);
  }
  return made(copy, () => native.AtomicWriter.fromFd(inbox, copy, true, settings));
}

function pair(given) {
  const [reader, writer] = native.pair(inbox, options('atomic pair', given, ATOMIC));
  return [new Reader(MADE, reader), new Writer(MADE, writer)];
}

function createFifo(path) {
  native.createFifo(filePath(path));
}

function maxCapacity() {
  return native.maxCapacity();
}

if (Symbol.dispose !== undefined) {
  const hidden = (value) => ({ value, writable: true, configurable: true });
  Object.defineProperty(Reader.prototype, Symbol.dispose, hidden(Reader.prototype.close));
  Object.defineProperty(Writer.prototype, Symbol.asyncDispose, hidden(Writer.prototype.close));
}

module.exports = { Burst, Line, Message, Reader, Torn, Writer, createFifo, maxCapacity, pair };
