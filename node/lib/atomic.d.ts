/// <reference types="node" />

import { Readable, Writable } from 'node:stream';
import type { CallOptions, Data } from './reqrep.js';

export type { CallOptions, Data };

/** How to compress: a level from -131072 (fastest) to 22 (smallest), and a dictionary. */
export interface Zstd {
  /** Default 3. */
  level?: number | undefined;
  /** Raw bytes that resemble the messages. Both ends must have the same. */
  dictionary?: Data | undefined;
  /** Whether a reader that has a dictionary also takes frames without a checksum. Default false. */
  acceptUnchecked?: boolean | undefined;
}

/** The options of everything that makes an end. Both ends must agree on `mixed` and `zstd`. */
export interface Options {
  /** Whether text may lie between the messages. Default false. */
  mixed?: boolean | undefined;
  /** Reader, mixed mode: whether bursts are looked for. Default true. */
  bursts?: boolean | undefined;
  /** Reader, mixed mode: whether a control byte that opens no part or burst is an error. Default false. */
  strict?: boolean | undefined;
  /** How each message is compressed: a level, or more. Default: not. */
  zstd?: number | Zstd | undefined;
  /** Reader: whether messages and bursts come with the zstd frame that held them. Default false. */
  keepCompressed?: boolean | undefined;
  /** Reader: bytes of the largest message, and of the longest line that comes in one piece. Default 256 MiB. */
  maxMessage?: number | undefined;
  /** Reader: bytes of all unfinished messages together. Default 8 times `maxMessage`, at least 1 GiB. */
  maxUnfinished?: number | undefined;
  /** Reader: bytes that one read asks for. Default 64 KiB. */
  readSize?: number | undefined;
  /** Reader, mixed mode: milliseconds to wait for the rest of a part; Infinity: until the end. Default 5000. */
  frameTimeout?: number | undefined;
  /** Writer: bytes that may be pending before `trySend` takes no more. Default 1 MiB. */
  maxPending?: number | undefined;
  /** Writer: whether to print messages as lines where no reader decodes them. Default false. */
  orPrint?: boolean | undefined;
  /** Reader: for how many milliseconds it spins before it sleeps. Not used in Node. */
  spin?: number | undefined;
}

export interface EndOptions extends Options {
  /** Whether a descriptor is closed with the end. Default true. */
  autoClose?: boolean | undefined;
}

export interface FifoOptions extends Options {
  /** Milliseconds to wait for a reader. Default: for ever. */
  connectTimeout?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** A message, whole. */
export class Message {
  private constructor();
  readonly kind: 'message';
  readonly data: Buffer;
  /** Names its writer, as PID:NUMBER. */
  readonly writer: string;
  /** In how many parts it came. */
  readonly parts: number;
  readonly compressed?: Buffer;
}

/** Bytes that were sent in one write, without a writer's name. */
export class Burst {
  private constructor();
  readonly kind: 'burst';
  readonly data: Buffer;
  readonly compressed?: Buffer;
}

/** A line of ordinary text. */
export class Line {
  private constructor();
  readonly kind: 'line';
  /** The text with its terminator. The last line may have none. */
  readonly data: Buffer;
  /** The text without its terminator. */
  readonly content: Buffer;
  /** The same as a string. */
  readonly text: string;
}

/** The report of a message or burst that is lost. */
export class Torn {
  private constructor();
  readonly kind: 'torn';
  readonly writer: string | undefined;
  /** Parts and bytes that had come. */
  readonly parts: number;
  readonly byteLength: number;
  readonly reason: 'Torn' | 'TooLong' | 'Corrupt' | 'Incompatible';
  /** Which limit of the reader a message that is too long has passed. */
  readonly limit?: 'maxMessage' | 'maxUnfinished' | 'memory';
}

/** Anything that comes out of a pipe. */
export type Item = Message | Burst | Line | Torn;

/**
 * The receiving end of a pipe, FIFO or Unix stream socket. `for await` gives items until the end of
 * the pipe.
 */
export class Reader implements AsyncIterable<Item> {
  /**
   * Reads from a descriptor, which belongs to the reader from now on; from the FIFO at a path; or from
   * a stream, such as `child.stdout`. A stream that has a descriptor and was not read yet gives that
   * up, and is destroyed.
   */
  constructor(source: number | string | URL | Readable, options?: EndOptions);
  /** Reads from the FIFO at a path, and goes on when its last writer has left. */
  static listen(path: string | URL, options?: Options): Reader;
  static stdin(options?: Options): Reader;

  /** The pipe's descriptor. */
  readonly fd: number;
  readonly mixed: boolean;
  /** Bytes that the pipe holds before a writer waits. */
  capacity: number;
  /** Items until the end of the pipe. Leaving the loop does not close the reader: it can go on. */
  [Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined>;
  /** The bytes of messages until the end of the pipe; a lost one is thrown. Not in mixed mode. */
  messages(): AsyncGenerator<Buffer, void, undefined>;
  /** The next item. Rejects with `Closed` at the end of the pipe. */
  nextItem(options?: CallOptions): Promise<Item>;
  /** The bytes of the next message. Rejects with `TornMessage` for a lost one. Not in mixed mode. */
  recv(options?: CallOptions): Promise<Buffer>;
  tryNextItem(): Item | undefined;
  tryRecv(): Buffer | undefined;
  /** The text of a line that has begun and not ended: a prompt, for instance. */
  peek(): Buffer | undefined;
  ref(): this;
  unref(): this;
  /** Ends all that waits. */
  close(): void;
  [Symbol.dispose](): void;
}

/** The sending end of a pipe, FIFO or Unix stream socket. */
export class Writer {
  /**
   * Writes to a descriptor, which belongs to the writer from now on; or to a stream that has one, such
   * as `child.stdin`. What was written to the stream before is sent first, and then the stream is destroyed.
   * A writer on stdout or stderr also lets text go first that Node has not printed yet.
   */
  constructor(target: number | Writable, options?: EndOptions);
  /** Writes to the FIFO at a path, as soon as it has a reader. */
  static fifo(path: string | URL, options?: FifoOptions): Promise<Writer>;
  /** Writes to the stdout of this process. */
  static stdout(options?: Options): Writer;

  /** Bytes that were taken and are not in the pipe yet. */
  readonly pending: number;
  /** The name under which the next message goes out. */
  readonly key: string;
  readonly fd: number;
  readonly mixed: boolean;
  /** Whether messages are printed as lines: the option `orPrint`. */
  readonly isPrinting: boolean;
  capacity: number;
  /**
   * Sends one message, after those before it. Resolves when all of it is in the pipe. Do not change a
   * buffer before that.
   */
  send(data: Data, options?: CallOptions): Promise<void>;
  /** Sends a few bytes in one write, without a writer's name. */
  burst(data: Data, options?: CallOptions): Promise<void>;
  /** Resolves when all that was taken is in the pipe. */
  flush(options?: CallOptions): Promise<void>;
  /**
   * Sends without waiting. False if nothing was taken, as while a stream's bytes go first; what the pipe has no
   * space for is pending.
   */
  trySend(data: Data): boolean;
  /** Writes what the pipe has space for. Returns whether nothing is pending. */
  tryFlush(): boolean;
  /** Whether these bytes fit in one write. */
  fitsInBurst(data: Data): boolean;
  ref(): this;
  unref(): this;
  /** Writes what is pending, and closes the end. A second call waits for the first. */
  close(options?: CallOptions): Promise<void>;
  /** Drops what is pending, and closes the end. */
  destroy(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A new pipe: both of its ends. */
export function pair(options?: Options): [Reader, Writer];
/** Makes a FIFO, for this user alone. */
export function createFifo(path: string | URL): void;
/** Bytes that a pipe of this user may hold at most. */
export function maxCapacity(): number;
