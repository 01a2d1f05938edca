import { Writable } from 'node:stream';
import * as atomic from './atomic.js';
import * as reqrep from './reqrep.js';

export * from './errors.js';
export { atomic, reqrep };

/** The original stdout of a program that guards it. */
export interface ProtocolStream extends Writable {
  /** Its descriptor, for `new Writer(stream.fd, { autoClose: false })`. */
  readonly fd: number;
  /** Gives stdout back: from now on what is printed goes there again. `end()` does it, too. */
  restore(): void;
}

/**
 * Keeps stdout for its caller, in a program that speaks a protocol there. Text that other code prints
 * meanwhile, to `process.stdout` or to descriptor 1, in JavaScript, in C or in a child, goes to
 * stderr. It affects the whole process: call it first.
 *
 * Writing does not block the event loop. What is not written when the program ends, by
 * `process.exit` too, is written then; for a reader that stands still it waits for 5 s.
 */
export function guardStdout(): ProtocolStream;
