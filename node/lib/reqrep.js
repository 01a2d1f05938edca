'use strict';

// Module `reqrep`: requests and replies through shared memory.

const { constants: { MAX_LENGTH } } = require('node:buffer');
const { inspect, types: { isUint8Array } } = require('node:util');
const { setTimeout: sleep } = require('node:timers/promises');
const native = require('./native.js');
const { Closed, OsError, TooLong, error } = require('./errors.js');
const {
  ELSEWHERE, RECORD, REF, SPIN, Spin, TURN, calls, fast, giveUp, giveUpAll, lookSoon, numbers, payload, promise, renew, setRef, slab,
  start, turn,
} = require('./loop.js');
const {
  CALL, CLIENT, SEGMENT, SEND, SERVE, SERVER, bytes, callable, descriptor, divided, filePath, options,
  quickBytes, wrongType,
} = require('./options.js');
const { pinned } = require('./pinned.js');

const PATH = 'open one there by the path, or by the descriptor `segment.fd` with Segment.fromFd';
const PINS = {
  segment: pinned('Segment', PATH),
  client: pinned('Client', `${PATH}, and make a client of that`),
  server: pinned('Server', `${PATH}, and make a server of that`),
  request: pinned('Request', 'send its data, and answer it on this one'),
  blob: pinned('Blob', 'attach it to a message, as one of its `blobs`, or send a copy of its bytes'),
};

/** Marks a call of a constructor from this file, which comes with the compiled half. */
const MADE = Symbol('made');

/** The longest pause between two looks whether there is a server, in milliseconds. */
const LONGEST_PAUSE = 50;

class Segment {
  #native;

  constructor(path, given) {
    this.thread = PINS.segment;
    this.#native = path === MADE
      ? given
      : native.Segment.openOrCreate(filePath(path), options('reqrep segment', given, SEGMENT));
  }

  static create(path, given) {
    return new this(MADE, native.Segment.create(filePath(path), options('reqrep create', given, SEGMENT)));
  }

  static open(path, given) {
    return new this(MADE, native.Segment.open(filePath(path), options('reqrep open', given, SEGMENT)));
  }

  static anonymous(given) {
    return new this(MADE, native.Segment.anonymous(options('reqrep create', given, SEGMENT)));
  }

  static memfd(name, given) {
    return new this(MADE, native.Segment.memfd(String(name), options('reqrep create', given, SEGMENT)));
  }

  static fromFd(fd, given) {
    return new this(MADE, native.Segment.fromFd(descriptor('fd', fd), options('reqrep open', given, SEGMENT)));
  }

  get path() {
    return this.#native.path ?? undefined;
  }

  get fd() {
    return this.#native.fd;
  }

  get geometry() {
    const [slots, queue, requestBytes, replyBytes, members, blobs] = this.#native.geometry();
    return { slots, queue, requestBytes, replyBytes, members, blobs };
  }

  get waiting() {
    return this.#native.waiting;
  }

  get closed() {
    return this.#native.closed;
  }

  stats() {
    return named(this.#native.stats());
  }

  audit() {
    return named(this.#native.audit());
  }

  members() {
    return this.#native.members().map(([number, isServer, pid, since, isAlive]) =>
      ({ number, role: isServer ? 'server' : 'client', pid, since: new Date(since), isAlive }));
  }

  recover() {
    return this.#native.recover();
  }

  unlink() {
    return this.#native.unlink();
  }

  blob(byteLength) {
    if (!Number.isSafeInteger(byteLength) || byteLength < 0) throw wrongType('byteLength', 'a length in bytes', byteLength);
    return new BlobMut(MADE, this.#native.blob(byteLength));
  }

  blobFrom(data) {
    return new Blob(MADE, this.#native.blobFrom(bytes(data)));
  }

  blobStats() {
    const [held, copied] = this.#native.blobStats();
    return { held, copied };
  }

  close() {
    this.#native.close();
  }

  /** The compiled half of a segment. */
  static [MADE](segment) {
    return segment.#native;
  }

  [inspect.custom]() {
    return `Segment(${this.closed ? 'closed' : this.path ?? 'without a path'})`;
  }
}

/** Pairs of names as the core has them, as an object. */
function named(pairs) {
  return Object.fromEntries(pairs.map(([name, number]) =>
    [name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()), number]));
}

/** The segment that an end is attached to, by itself or by its path; `open` gets a path. */
function segmentOf(place, open) {
  if (place instanceof Segment) return place;
  if (typeof place === 'string' || place instanceof URL) return open(place);
  throw wrongType('segment', 'a Segment, or the path of one', place);
}

/** The memory of a blob as an `ArrayBuffer`; undefined if this runtime takes only memory of its own. */
function shown(compiled) {
  const { byteLength } = compiled;
  if (byteLength > MAX_LENGTH) {
    throw error('TooLong', 'blob buffer', `${byteLength} bytes, and an ArrayBuffer of this runtime has at most ${MAX_LENGTH}`);
  }
  const memory = byteLength === 0 ? undefined : compiled.memory();
  return memory && Object.defineProperties(memory, UNTRANSFERABLE);
}

/**
 * What moves the memory of an `ArrayBuffer` into another one. `structuredClone` and `postMessage` refuse
 * that themselves. Streams of bytes do it all the same: then the memory lives as long as the other one.
 */
const UNTRANSFERABLE = {};
for (const name of ['transfer', 'transferToFixedLength', 'transferToImmutable']) {
  if (!(name in ArrayBuffer.prototype)) continue;
  UNTRANSFERABLE[name] = {
    value() {
      const text = 'the buffer of a blob cannot be transferred: slice() makes a copy';
      throw Object.assign(new TypeError(text), { code: 'ERR_PIPEWORK_PINNED' });
    },
  };
}

class BlobMut {
  #native;
  #memory;
  #isInPlace = false;

  constructor(made, compiled) {
    if (made !== MADE) throw new TypeError('segment.blob(byteLength) makes a BlobMut');
    this.thread = PINS.blob;
    this.#native = compiled;
  }

  get byteLength() {
    return this.#native.byteLength;
  }

  get buffer() {
    if (this.#memory === undefined) {
      const memory = shown(this.#native);
      this.#isInPlace = memory !== undefined;
      this.#memory = memory ?? new ArrayBuffer(this.byteLength);
    }
    return this.#memory;
  }

  freeze() {
    if (this.#memory !== undefined && !this.#isInPlace) this.#native.fill(new Uint8Array(this.#memory));
    const frozen = this.#native.freeze(this.#shown);
    this.#memory = undefined;
    return new Blob(MADE, frozen);
  }

  close() {
    this.#native.close(this.#shown);
    this.#memory = undefined;
  }

  /** The `ArrayBuffer` that is to be emptied, so that nobody writes through it. */
  get #shown() {
    return this.#isInPlace ? this.#memory : undefined;
  }

  [inspect.custom]() {
    return `BlobMut(${this.byteLength} bytes)`;
  }
}

class Blob {
  #native;
  #memory;
  #isInPlace = false;

  constructor(made, compiled) {
    if (made !== MADE) throw new TypeError('segment.blobFrom(data) and blobMut.freeze() make a Blob');
    this.thread = PINS.blob;
    this.#native = compiled;
  }

  get byteLength() {
    return this.#native.byteLength;
  }

  get buffer() {
    if (this.#memory === undefined) {
      const memory = shown(this.#native);
      this.#isInPlace = memory !== undefined;
      this.#memory = memory ?? this.toBuffer().buffer;
    }
    return this.#memory;
  }

  get isInPlace() {
    return this.buffer !== undefined && this.#isInPlace;
  }

  get isCopied() {
    return this.#native.isCopied;
  }

  toBuffer(from = 0, to = this.byteLength) {
    const length = this.byteLength;
    if (!(Number.isInteger(from) && Number.isInteger(to) && from >= 0 && from <= to && to <= length)) {
      throw Object.assign(new RangeError(`from and to must be within the ${length} bytes of the blob, in this order`), {
        code: 'ERR_OUT_OF_RANGE',
      });
    }
    if (to - from > MAX_LENGTH) {
      throw Object.assign(new RangeError(`a Buffer has at most ${MAX_LENGTH} bytes: copy fewer at a time`), { code: 'ERR_OUT_OF_RANGE' });
    }
    return this.#native.copy(from, to);
  }

  check() {
    this.#native.check();
  }

  close() {
    this.#native.close(this.#isInPlace ? this.#memory : undefined);
    this.#memory = undefined;
  }

  static [MADE](blob) {
    return blob.#native;
  }

  [inspect.custom]() {
    return `Blob(${this.byteLength} bytes${this.isCopied ? ', copied' : ''})`;
  }
}

/** The compiled halves of the blobs that a message is to carry. */
function attached(blobs) {
  if (blobs === undefined) return undefined;
  if (typeof blobs?.[Symbol.iterator] !== 'function') throw wrongType('blobs', 'a list of Blob objects', blobs);
  return Array.from(blobs, (blob) => {
    if (blob instanceof Blob) return Blob[MADE](blob);
    throw wrongType('blobs', `a list of Blob objects${blob instanceof BlobMut ? ' (freeze() it first)' : ''}`, blob);
  });
}

const wrapped = (blobs) => blobs.map((each) => new Blob(MADE, each));

/** A message with its flags and blobs, of the three in a list. */
const message = ([data, flags, blobs]) => ({ data, flags, blobs: wrapped(blobs) });

/** Streams that nobody refers to any more cancel their calls by themselves. */
const gone = new FinalizationRegistry(({ streams, stream }) => streams.delete(stream));

class Client {
  #native;
  #number;
  #segment;
  #own;
  #isClosed = false;
  /** Its streams that have not ended, each as a `WeakRef`. */
  #streams = new Set();

  constructor(segment, given) {
    this.thread = PINS.client;
    const { timeout, ...settings } = options('reqrep client', given, CLIENT);
    this.#own = { timeout };
    this.#segment = segmentOf(segment, (path) => Segment.open(path));
    this.#native = new native.Client(calls, Segment[MADE](this.#segment), settings);
    this.#number = this.#native.number;
  }

  static async connect(segment, given) {
    const [{ connectTimeout = Infinity, signal }, rest] =
      divided('reqrep client', given, { connectTimeout: CALL.timeout, signal: CALL.signal }, CLIENT);
    const end = performance.now() + connectTimeout;
    for (let pause = 1; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      signal?.throwIfAborted();
      const found = opened(segment);
      if (found?.members().some((member) => member.role === 'server' && member.isAlive)) return new this(found, rest);
      if (found !== segment) found?.close();
      const left = end - performance.now();
      if (left <= 0) throw error('TimedOut', 'reqrep client', `there is no server yet: '${segment.path ?? segment}'`);
      await sleep(Math.min(pause, left), undefined, { signal }).catch(() => signal?.throwIfAborted());
    }
  }

  get segment() {
    return this.#segment;
  }

  get pending() {
    return this.#native.pending;
  }

  call(data, given) {
    if (given === undefined && this.#own.timeout === undefined) {
      // A call without options takes 0.15 microseconds less this way.
      try {
        const number = this.#begin(data, 0);
        if (number !== 0) return promise(this, number);
      } catch (thrown) {
        return Promise.reject(thrown);
      }
    }
    return this.#start('reqrep call', given, SEND, undefined, ({ flags = 0, blobs }) =>
      (blobs === undefined && this.#begin(data, flags)) || this.#native.call(bytes(data), flags, attached(blobs), false));
  }

  /** Begins a call that no thread watches yet. 0 if the method of the compiled half is to do it. */
  #begin(data, flags) {
    if (SPIN === 0) return 0;
    const number = fast.call(this.#number, quickBytes(data), flags);
    if (number !== 0) lookSoon();
    return number;
  }

  callMessage(data, given) {
    return this.#start('reqrep call', given, SEND, message, ({ flags = 0, blobs }) =>
      this.#native.call(bytes(data), flags, attached(blobs), true));
  }

  send(data, given) {
    return this.#start('reqrep send', given, SEND, undefined, ({ flags = 0, blobs }) =>
      this.#native.send(bytes(data), flags, attached(blobs)));
  }

  recv(ticket, given) {
    return this.#start('reqrep recv', given, CALL, undefined, () => this.#native.recv(numbered(ticket), false));
  }

  recvMessage(ticket, given) {
    return this.#start('reqrep recv', given, CALL, message, () => this.#native.recv(numbered(ticket), true));
  }

  cancel(ticket) {
    return this.#native.cancel(numbered(ticket));
  }

  forget(ticket) {
    this.#native.forget(numbered(ticket));
  }

  stream(data, given) {
    return this.#parts(data, given, false);
  }

  streamMessages(data, given) {
    return this.#parts(data, given, true);
  }

  async *#parts(data, given, whole) {
    const { flags: _flags, blobs: _blobs, ...each } = given ?? {};
    const parts = await this.#start('reqrep stream', given, SEND, undefined, ({ flags = 0, blobs }) =>
      this.#native.stream(bytes(data), flags, attached(blobs)));
    const [streams, stream] = [this.#streams, new WeakRef(parts)];
    streams.add(stream);
    gone.register(parts, { streams, stream }, parts);
    const next = () => {
      if (this.#isClosed) throw error('Invalid', 'reqrep stream', 'this client was closed');
      return parts.next(whole);
    };
    try {
      for (;;) {
        const part = await this.#start('reqrep stream', each, CALL, undefined, next);
        if (part === undefined) return;
        yield whole ? message(part) : part;
      }
    } finally {
      parts.close();
      streams.delete(stream);
      gone.unregister(parts);
    }
  }

  #start(op, given, known, convert, begin) {
    try {
      const checked = given === undefined ? this.#own : { ...this.#own, ...options(op, given, known) };
      return start(this, op, checked, () => begin(checked), convert);
    } catch (thrown) {
      return Promise.reject(thrown);
    }
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
    this.#isClosed = true;
    giveUpAll(this, error('Invalid', 'reqrep client', 'this client was closed'));
    // One of which a part is awaited ends with that.
    for (const stream of this.#streams) stream.deref()?.close();
    this.#native.close();
  }

  [inspect.custom]() {
    return `Client of ${inspect(this.#segment)}`;
  }
}

function numbered(ticket) {
  if (typeof ticket !== 'bigint') throw wrongType('ticket', 'a bigint, which `send` has returned', ticket);
  return ticket;
}

/** The segment at a path; undefined if there is none yet. */
function opened(place) {
  try {
    return segmentOf(place, (path) => Segment.open(path));
  } catch (thrown) {
    if (thrown.code === 'ENOENT') return undefined;
    throw thrown;
  }
}

class Server {
  #native;
  #number;
  #segment;
  #own;
  #partTimeout;
  #spin = new Spin();
  #closed = false;

  constructor(segment, given) {
    this.thread = PINS.server;
    const [{ timeout, ...settings }, sizes] = divided('reqrep server', given, SERVER, SEGMENT);
    if (segment instanceof Segment && Object.keys(sizes).length > 0) {
      throw new TypeError('options of a segment are for a path: this segment exists already');
    }
    this.#own = { timeout };
    this.#partTimeout = settings.partTimeout ?? PART_TIMEOUT;
    this.#segment = segmentOf(segment, (path) => new Segment(path, sizes));
    this.#native = new native.Server(calls, Segment[MADE](this.#segment), settings);
    this.#number = this.#native.number;
  }

  get segment() {
    return this.#segment;
  }

  async recv(given) {
    const checked = { ...this.#own, ...options('reqrep recv', given, CALL) };
    checked.signal?.throwIfAborted();
    const request = this.tryRecv() ?? (await this.#wait(checked));
    if (request === undefined) throw error('Closed', 'reqrep recv', 'this server was stopped');
    return request;
  }

  tryRecv() {
    const [request] = this.#take(1);
    return request?.[OWNED]();
  }

  /** Up to `most` requests that are there. */
  #take(most) {
    renew();
    const count = fast.take(this.#number, most, slab.bytes, slab.used, numbers);
    if (count === ELSEWHERE) {
      const made = this.#native.tryRecv();
      return made === undefined ? [] : [this.#made(made)];
    }
    const taken = [];
    for (let at = 0; at < count * RECORD; at += RECORD) {
      const length = numbers[at + 2];
      const data = length === ELSEWHERE ? undefined : payload(numbers[at + 1], length);
      const [flags, rest, high, low] = [numbers[at + 3], numbers[at + 4], numbers[at + 5], numbers[at + 6]];
      taken.push(new Request(MADE, this, this.#partTimeout, numbers[at], data, flags, rest >>> 1, (rest & 1) === 1, high, low));
    }
    return taken;
  }

  #made([number, flags, redeliveries, ticket]) {
    const [high, low] = [Number(ticket >> 32n), Number(ticket & 0xffff_ffffn)];
    return new Request(MADE, this, this.#partTimeout, number, undefined, flags, redeliveries, true, high, low);
  }

  /** A request; undefined once the server is stopped. */
  #wait(checked) {
    return start(this, 'reqrep recv', checked, () => this.#native.recv(), (made) =>
      made === undefined ? undefined : this.#made(made)[OWNED]());
  }

  /** Up to `most` requests, at least one; undefined once the server is stopped or closed. */
  async #next(most) {
    try {
      const taken = this.#take(most);
      if (taken.length > 0) return taken;
      const from = performance.now();
      const until = this.#spin.until(from);
      for (let now = from; now < until; now = performance.now()) {
        await turn();
        const late = this.#take(most);
        if (late.length === 0) continue;
        this.#spin.ended(now, true);
        return late;
      }
      if (until > from) this.#spin.ended(until, false);
      const request = await this.#wait(NEVER);
      return request === undefined ? undefined : [request];
    } catch (thrown) {
      if (this.#closed || thrown instanceof Closed) return undefined;
      throw thrown;
    }
  }

  [Symbol.asyncIterator]() {
    let last;
    let given = 0;
    const comeBack = () => {
      last?.[EXPIRE]();
      last = undefined;
    };
    return {
      next: async () => {
        comeBack();
        given += 1;
        if (given % TURN === 0) await turn();
        last = (await this.#next(1))?.[0];
        return last === undefined ? { done: true, value: undefined } : { done: false, value: last };
      },
      return: async (value) => {
        comeBack();
        return { done: true, value };
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  async serve(handler, given) {
    callable('handler', handler);
    const { limit = LIMIT, signal, onError = report } = options('reqrep serve', given, SERVE);
    signal?.throwIfAborted();
    if (this.#closed) throw error('Invalid', 'reqrep serve', 'this server is closed');
    const stop = () => this.stop();
    signal?.addEventListener('abort', stop);
    let working = 0;
    let freed;
    const free = () => {
      working -= 1;
      freed?.();
    };
    try {
      // How many to take at a time: one, unless handlers are done with it at once. Those that must wait
      // for one before them are left to other servers.
      let most = 1;
      let pause = 0;
      for (let taken = 0; ; ) {
        if (working >= limit) await new Promise((resolve) => { freed = resolve; });
        if (taken >= TURN) {
          taken = 0;
          await turn();
        }
        let requests;
        try {
          requests = await this.#next(Math.min(limit - working, most));
        } catch (thrown) {
          if (!isPassing(thrown)) throw thrown;
          // The requests are left to other servers, and to this one once there is enough again.
          if (pause === 0) console.error('pipework: a server cannot take a request:', thrown.message);
          pause = Math.min(2 * pause + 1, LONGEST_PAUSE);
          await sleep(pause, undefined, { ref: this[REF] !== false });
          continue;
        }
        if (requests === undefined) return;
        pause = 0;
        taken += requests.length;
        // The clock costs a tenth of a short call.
        const isTimed = most === 1 || requests.length > 1;
        const began = isTimed ? performance.now() : 0;
        for (const request of requests) {
          working += 1;
          const answering = answer(request, handler, this.#partTimeout, onError);
          if (answering === undefined) working -= 1;
          else answering.then(free, free);
        }
        if (isTimed) most = performance.now() - began < BRIEF ? Math.min(2 * most, TURN) : 1;
      }
    } finally {
      signal?.removeEventListener('abort', stop);
      while (working > 0) await new Promise((resolve) => { freed = resolve; });
    }
  }

  stop() {
    this.#native.stop();
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
    this.#closed = true;
    giveUpAll(this, error('Invalid', 'reqrep server', 'this server was closed'));
    this.#native.close();
  }

  [inspect.custom]() {
    return `Server of ${inspect(this.#segment)}`;
  }
}

/** How many requests a server works on at a time by default. */
const LIMIT = 10;

/** If handlers finish all that was taken within this many milliseconds, more is taken at a time. */
const BRIEF = 0.1;

/**
 * Whether a server can go on after it could not take a request: the process is short of descriptors, memory or
 * blobs for a while, or has no access to what this one request carries. It cannot go on without its own descriptor.
 */
const isPassing = (thrown) => thrown instanceof TooLong || (thrown instanceof OsError && thrown.code !== 'EBADF');

/** As `defaults::PART_TIMEOUT` of the core, in milliseconds. */
const PART_TIMEOUT = 10_000;

const NEVER = Object.freeze({});
const EXPIRE = Symbol('expire');
const OWNED = Symbol('owned');
const REPLY = Symbol('reply');

/** Fails a request that the program has dropped. */
const dropped = new FinalizationRegistry((number) => calls.fail(number, NOTHING));
const NOTHING = new Uint8Array(0);

class Request {
  #server;
  #partTimeout;
  #number;
  #data;
  #flags;
  #redeliveries;
  #high;
  #low;
  #blobs;
  #isOpen = true;
  /** Whether it belongs to a loop that fails it when it comes back. */
  #isLent = true;
  /** The number of a task that waits until the client has taken a part. */
  #waiting;

  constructor(made, server, partTimeout, number, data, flags, redeliveries, mayHaveBlobs, high, low) {
    if (made !== MADE) throw new TypeError('a Server makes its requests');
    this.thread = PINS.request;
    this.#server = server;
    this.#partTimeout = partTimeout;
    this.#number = number;
    this.#data = data;
    this.#flags = flags;
    this.#redeliveries = redeliveries;
    this.#high = high;
    this.#low = low;
    if (!mayHaveBlobs) this.#blobs = NO_BLOBS;
    // They are asked for at once, because an answered request has none.
    else this.#blobs = wrapped(calls.blobs(number));
    if (data === undefined) this.#data = calls.data(number);
  }

  get data() {
    return this.#data;
  }

  get flags() {
    return this.#flags;
  }

  get blobs() {
    return this.#blobs;
  }

  get redeliveries() {
    return this.#redeliveries;
  }

  get ticket() {
    return (BigInt(this.#high) << 32n) | BigInt(this.#low);
  }

  get isOpen() {
    return this.#isOpen;
  }

  get isWanted() {
    return this.#isOpen && calls.isWanted(this.#number);
  }

  reply(data, given) {
    try {
      if (given === undefined) {
        const sent = this[REPLY](quickBytes(data));
        if (sent !== ELSEWHERE) return Promise.resolve(sent === 1);
      }
      return this.#start('reqrep reply', given, this.#partTimeout, ({ flags = 0, blobs }) => {
        const begun = calls.reply(this.#number, bytes(data), flags, attached(blobs));
        // An error is a reply that is too long, for instance: the request can still be answered.
        if (typeof begun !== 'object') this.#over();
        return begun;
      });
    } catch (thrown) {
      return Promise.reject(thrown);
    }
  }

  sendPart(data, given) {
    return this.#start('reqrep part', given, undefined, ({ flags = 0, blobs }) =>
      this.#inTurn(calls.sendPart(this.#number, bytes(data), flags, attached(blobs))));
  }

  flush(given) {
    return this.#start('reqrep part', given, this.#partTimeout, () => this.#inTurn(calls.flush(this.#number)));
  }

  /** What waits for the client's step, so that `fail` can end it. */
  #inTurn(begun) {
    if (typeof begun === 'number') this.#waiting = begun;
    return begun;
  }

  fail(reason = '') {
    const given = bytes(reason instanceof Error ? reasonOf(reason) : reason);
    if (!this.#isOpen) return;
    if (this.#waiting !== undefined) {
      giveUp(this.#waiting, error('Invalid', 'reqrep part', 'this request was failed meanwhile'));
    }
    calls.fail(this.#number, given);
    this.#over();
  }

  detach() {
    this.#isLent = false;
    if (this.#isOpen) dropped.register(this, this.#number, this);
    return this;
  }

  #start(op, given, timeout, begin) {
    try {
      const checked = { timeout, ...options(op, given, SEND) };
      return start(this.#server, op, checked, () => begin(checked));
    } catch (thrown) {
      return Promise.reject(thrown);
    }
  }

  #over() {
    this.#isOpen = false;
    if (!this.#isLent) dropped.unregister(this);
  }

  /** Answers it, if that need not wait: 1 if the caller still waited, and 0 if not. */
  [REPLY](data) {
    const sent = fast.reply(this.#number, data, 0);
    if (sent !== ELSEWHERE) this.#over();
    return sent;
  }

  /** It belongs to the caller: no loop fails it. */
  [OWNED]() {
    return this.detach();
  }

  /** The loop that gave it out has come back. */
  [EXPIRE]() {
    if (this.#isLent) this.fail();
  }

  [inspect.custom]() {
    return `Request(${this.#data.length} bytes${this.#isOpen ? '' : ', answered'})`;
  }
}

const NO_BLOBS = Object.freeze([]);

/** Answers a request with the result of a handler. Undefined if that was done at once. */
function answer(request, handler, partTimeout, onError) {
  try {
    const made = handler(request);
    if (made === null || typeof made !== 'object' || isUint8Array(made)) {
      // The handler may have answered by itself.
      if (request.isOpen && request[REPLY](quickBytes(made ?? '')) === ELSEWHERE) return answerLater(request, made, partTimeout, onError);
      return undefined;
    }
    return answerLater(request, made, partTimeout, onError);
  } catch (thrown) {
    return failed(request, thrown, onError);
  }
}

async function answerLater(request, made, partTimeout, onError) {
  let hasParts = false;
  try {
    // An asynchronous function may return an iterator, too.
    const reply = isIterator(made) ? made : await made;
    if (isIterator(reply)) {
      for await (const part of reply) {
        hasParts = true;
        // The loop is left, which ends the generator, if the caller has gone.
        if (!(await request.sendPart(part, { timeout: partTimeout }))) return request.fail();
      }
      await request.reply('');
    } else if (request.isOpen && request[REPLY](quickBytes(reply ?? '')) === ELSEWHERE) {
      await request.reply(reply ?? '');
    }
  } catch (thrown) {
    // A reason does not overtake the part before it.
    if (hasParts) await request.flush().catch(() => {});
    failed(request, thrown, onError);
  }
}

function failed(request, thrown, onError) {
  request.fail(reasonOf(thrown));
  try {
    onError(thrown, request);
  } catch (another) {
    // As one that a listener of an event throws: the program ends, unless it handles that.
    setImmediate(() => { throw another; });
  }
}

function isIterator(made) {
  if (made === null || typeof made !== 'object') return false;
  return Symbol.asyncIterator in made || (Symbol.iterator in made && typeof made.next === 'function');
}

/** "RangeError: not a number": what the caller may know. A handler may throw anything. */
function reasonOf(thrown) {
  try {
    return thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown);
  } catch {
    return 'the handler has thrown a value that has no text';
  }
}

function report(thrown) {
  try {
    console.error('pipework: a request failed:', thrown);
  } catch {
    console.error('pipework: a request failed:', reasonOf(thrown));
  }
}

if (Symbol.dispose !== undefined) {
  for (const Class of [Segment, Blob, BlobMut, Client, Server]) {
    Object.defineProperty(Class.prototype, Symbol.dispose, { value: Class.prototype.close, writable: true, configurable: true });
  }
}

module.exports = { Blob, BlobMut, Client, Request, Segment, Server };
