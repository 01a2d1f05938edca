import { Writable } from 'node:stream';
import * as atomic from './atomic.js';
import * as reqrep from './reqrep.js';

export * from './errors.js';
export { atomic, reqrep };

/** The original stdout of a program that guards it. */
export interface ProtocolStream extends Writable {
  /**
   * Its descriptor, for `new Writer(stream.fd, { autoClose: false })`. After `restore()` the number belongs
   * to no file, so writing to it is an error.
   */
  readonly fd: number;
  /**
   * Gives stdout back: from now on what is printed goes there again, and so does what is written to this
   * stream. What was written before goes first: `restore()` blocks until the reader has taken it. It throws
   * `TimedOut`, and gives nothing back, if the reader takes nothing for 5 s.
   *
   * `end()` and `destroy()` do not give stdout back: prints still go to stderr.
   */
  restore(): void;
}

/**
 * Keeps stdout for its caller, in a program that speaks a protocol there. Text that other code prints
 * meanwhile, to `process.stdout` or to descriptor 1, in JavaScript, in C or in a child, goes to
 * stderr. It affects the whole process: call it first, and in the main thread. A second call throws
 * `Invalid` until `restore()` is called.
 *
 * If Node still has text to write that was printed before, that goes first. Until then, descriptor 1 is not
 * diverted: what C code and children print goes to stdout.
 *
 * Writing does not block the event loop. What is not written when the program ends, by `process.exit` too,
 * is written then, however long the reader takes. If the reader takes nothing for 5 s, has gone, or there is
 * another error, nothing more is written, stderr says how many bytes are lost, and a status of 0 becomes 1.
 */
export function guardStdout(): ProtocolStream;
