'use strict';

// Promises for tasks of the compiled half.
//
// A task that is not ready has a number. When tasks are woken, in any thread, the inbox calls
// `settle` once, on this thread, and gives their results out. A task that is given up, because its
// time is over, its signal is aborted or its handle is closed, is dropped at once: what it waited
// for is not taken. So every promise settles.
//
// A call that was just made is not watched by a thread: that would cost two wake-ups. For a moment,
// `lookAgain` looks for its reply at every turn of the event loop, and then a thread watches it.

const { clearTimeout, setImmediate, setInterval, setTimeout } = require('node:timers');
const { availableParallelism } = require('node:os');
const { markAsUntransferable } = require('node:worker_threads');
const native = require('./native.js');
const { PipeworkError, error } = require('./errors.js');

/** The longest time that a timer of Node takes, in milliseconds. */
const LONGEST = 2 ** 31 - 1;

const inbox = new native.Inbox(settle);
const calls = new native.Calls(inbox);

/** Those four functions are fast, and leave rare cases to the methods of the compiled halves. */
const fast = calls.functions();

/** What they return where a method is to do it, and in place of a length. */
const ELSEWHERE = 2 ** 32 - 1;

/** Numbers of one record that they write, and of all together; behind them are two counts. */
const RECORD = 7;
const numbers = new Uint32Array(RECORD * 256 + 2);
const LEFT = numbers.length - 2;
const FRESH = numbers.length - 1;

/** Where they put small payloads, as `Buffer.from` does: views of it are given out. */
const SLAB = 64 * 1024;
const slab = { bytes: new Uint8Array(0), memory: undefined, used: SLAB };

/** Makes sure that there is space for a small payload. */
function renew() {
  // It has no bytes if the program has transferred it, which some versions of Node allow.
  if (SLAB - slab.used >= SLAB / 4 && slab.bytes.length > 0) return;
  slab.memory = new ArrayBuffer(SLAB);
  markAsUntransferable?.(slab.memory);
  slab.bytes = new Uint8Array(slab.memory);
  slab.used = 0;
}

/** The payload of a record. Further ones go behind it, and views of larger numbers fit there. */
function payload(offset, length) {
  slab.used = (offset + length + 7) & ~7;
  return Buffer.from(slab.memory, offset, length);
}

/** For how many milliseconds replies and requests are looked for at every turn of the loop. */
const SPIN = availableParallelism() > 1 ? 0.05 : 0;

/** The longest time without such looks, in milliseconds. */
const LONGEST_REST = 5;

/**
 * Decides whether to look at every turn. It helps if the other side runs on another CPU, and otherwise
 * keeps it from running. So after a spin that has found nothing there is a rest, which each further one
 * doubles.
 */
class Spin {
  #rest = 0;
  #from = 0;

  /** Until when to look, in a wait that begins at `now`. */
  until(now) {
    return now < this.#from ? now : now + SPIN;
  }

  ended(now, hasFound) {
    this.#rest = hasFound ? 0 : Math.min(2 * this.#rest + 2 * SPIN, LONGEST_REST);
    this.#from = now + this.#rest;
  }
}

const spin = new Spin();

/** After so many milliseconds a thread watches all calls: it also looks for deaths. */
const FRESH_FOR = 5;

let isLooking = false;
let hasNew = false;
let lookFrom = 0;
let lookUntil = 0;
let parkAt = 0;

/** Begins to look for the reply of a new call. */
function lookSoon() {
  hasNew = true;
  if (isLooking) return;
  isLooking = true;
  parkAt = performance.now() + FRESH_FOR;
  setImmediate(lookAgain);
}

function lookAgain() {
  const ended = settle();
  const now = performance.now();
  if (ended > 0) spin.ended(now, true);
  if (ended > 0 || hasNew) {
    lookFrom = now;
    lookUntil = spin.until(now);
  }
  hasNew = false;
  if (numbers[FRESH] > 0 && (now >= lookUntil || now >= parkAt)) {
    if (now >= lookUntil && lookUntil > lookFrom) spin.ended(now, false);
    calls.park();
    parkAt = now + FRESH_FOR;
    settle();
  }
  // Promises that were settled run their reactions before the next turn, and may make new calls.
  isLooking = numbers[FRESH] > 0 || ended > 0;
  if (isLooking) setImmediate(lookAgain);
}

/**
 * The tasks in progress, by their numbers: each in the place of a ring that the last bits of its number
 * name, or in the map if that place is taken. Most tasks are short, and numbers follow each other. For
 * those a map alone costs 0.15 microseconds more.
 */
const ring = new Array(1024).fill(undefined);
const others = new Map();

const taskOf = (number) => {
  const task = ring[number % ring.length];
  return task !== undefined && task.number === number ? task : others.get(number);
};

function* allTasks() {
  for (const task of ring) if (task !== undefined) yield task;
  yield* others.values();
}

/** Keeps the event loop alive while `kept` tasks are in progress whose handles ask for that. */
let keeper;
let kept = 0;

function keep(count) {
  const before = kept;
  kept += count;
  if (before === 0 && kept > 0) {
    keeper ??= setInterval(() => {}, LONGEST);
    keeper.ref();
  } else if (before > 0 && kept === 0) {
    keeper.unref();
  }
}

/**
 * Calls `begin`, which returns a result of the compiled half or the number of a task. The promise
 * has the result, or the result of `convert`. `owner` is the handle: `close` ends its tasks.
 */
function start(owner, op, options, begin, convert) {
  const { timeout, signal } = options;
  try {
    signal?.throwIfAborted();
    const value = begin();
    if (typeof value !== 'number') {
      return value instanceof PipeworkError ? Promise.reject(value) : Promise.resolve(convert ? convert(value) : value);
    }
    return new Promise((resolve, reject) => {
      const settled = convert ? (result) => resolve(convert(result)) : resolve;
      watch(owner, value, settled, reject);
      if (signal !== undefined) abortable(value, signal);
      if (timeout < LONGEST) expireIn(timeout, value, op);
    });
  } catch (thrown) {
    return Promise.reject(thrown);
  }
}

/** The promise of a task without options. */
function promise(owner, number) {
  return new Promise((resolve, reject) => watch(owner, number, resolve, reject));
}

/** Has one of the functions called when the task has ended. */
function watch(owner, number, resolve, reject) {
  const isRef = owner[REF] !== false;
  const task = { number, owner, resolve, reject, isRef, timer: undefined, signal: undefined, abort: undefined };
  const place = number % ring.length;
  if (ring[place] === undefined) ring[place] = task;
  else others.set(number, task);
  if (isRef) keep(1);
}

/** A handle's property: false once it is `unref`. */
const REF = Symbol('ref');

function expireIn(timeout, number, op) {
  const expire = () => giveUp(number, error('TimedOut', op, 'the deadline has passed'));
  if (timeout <= 0) return expire();
  const task = taskOf(number);
  task.timer = setTimeout(expire, timeout);
  if (!task.isRef) task.timer.unref();
}

function abortable(number, signal) {
  const task = taskOf(number);
  task.signal = signal;
  task.abort = () => giveUp(number, signal.reason);
  onAbort(signal, task.abort);
}

/** What each signal ends. One listener does for all of it: Node warns of more than ten. */
const aborting = new WeakMap();

/** Has `act` called when the signal is aborted, unless `offAbort` comes first. */
function onAbort(signal, act) {
  let aborted = aborting.get(signal);
  if (aborted === undefined) {
    const acts = new Set();
    aborted = { acts, listener: () => acts.forEach((each) => each()) };
    aborting.set(signal, aborted);
  }
  if (aborted.acts.size === 0) signal.addEventListener('abort', aborted.listener);
  aborted.acts.add(act);
}

function offAbort(signal, act) {
  const { acts, listener } = aborting.get(signal);
  acts.delete(act);
  if (acts.size === 0) signal.removeEventListener('abort', listener);
}

/** Takes a task out of the table. */
function end(number) {
  const task = taskOf(number);
  if (task === undefined) return undefined;
  const place = number % ring.length;
  if (ring[place] === task) ring[place] = undefined;
  else others.delete(number);
  if (task.isRef) keep(-1);
  if (task.timer !== undefined) clearTimeout(task.timer);
  if (task.abort !== undefined) offAbort(task.signal, task.abort);
  return task;
}

/** Gives out the results of the tasks that have ended. Returns how many there were. */
function settle() {
  renew();
  const count = fast.look(slab.bytes, slab.used, numbers);
  const left = numbers[LEFT];
  for (let at = 0; at < count * RECORD; at += RECORD) {
    end(numbers[at])?.resolve(payload(numbers[at + 1], numbers[at + 2]));
  }
  if (left > 0) settleLeft();
  return count + left;
}

function settleLeft() {
  const ended = inbox.take();
  for (let i = 0; i < ended.length; i += 2) {
    const task = end(ended[i]);
    const value = ended[i + 1];
    if (value instanceof PipeworkError) task?.reject(value);
    else task?.resolve(value);
  }
}

/** Ends a task: what it waits for is not taken. */
function giveUp(number, reason) {
  drop(number)?.reject(reason);
}

/** The same, without a word to its promise. */
function drop(number) {
  const task = end(number);
  if (task !== undefined && !inbox.giveUp(number)) calls.giveUp(number);
  return task;
}

/** Ends all tasks of a handle that is closed. */
function giveUpAll(owner, reason) {
  for (const task of allTasks()) {
    if (task.owner === owner) giveUp(task.number, reason);
  }
}

/** Whether tasks of a handle, those in progress too, keep the event loop alive. */
function setRef(owner, isRef) {
  owner[REF] = isRef;
  for (const task of allTasks()) {
    if (task.owner !== owner || task.isRef === isRef) continue;
    task.isRef = isRef;
    keep(isRef ? 1 : -1);
    if (isRef) task.timer?.ref();
    else task.timer?.unref();
  }
}

/** Lets timers and other events of the loop have their turn. */
function turn() {
  return new Promise(setImmediate);
}

/** After this many results without a wait, others have their turn. */
const TURN = 64;

module.exports = {
  ELSEWHERE, RECORD, REF, SPIN, Spin, TURN, calls, drop, fast, giveUp, giveUpAll, inbox, lookSoon, numbers, offAbort, onAbort,
  payload, promise, renew, setRef, slab, start, turn, watch,
};
