/// <reference types="node" />

/**
 * Any failure of this package. `op` names the operation, and `path` the file, where one was opened.
 */
export class PipeworkError extends Error {
  protected constructor();
  /**
   * `ERR_PIPEWORK_` and the kind, for instance `ERR_PIPEWORK_PEER_DIED`; for a refusal of the kernel
   * its own code, for instance `ENOENT`.
   */
  readonly code: string;
  /** The operation that failed, for instance `reqrep call`. */
  readonly op: string;
  /** The kernel's error number, negative as in Node's own errors, if the kernel had a part in it. */
  readonly errno?: number;
  /** The path of the file, where one was opened. */
  readonly path?: string;
}

/** It cannot be done at once, and waiting was not asked for. */
export class WouldBlock extends PipeworkError {}
/** The time was over first. Work that the operation had not done by then is not done. */
export class TimedOut extends PipeworkError {}
/** A signal handler ran. Not seen in Node. */
export class Interrupted extends PipeworkError {}
/** The other side is gone: end of file for a reader, no reader for a writer, a server that was stopped. */
export class Closed extends PipeworkError {}
/** Larger than a limit that this end was given. */
export class TooLong extends PipeworkError {}
/** The ticket belongs to a call that is over. */
export class Stale extends PipeworkError {}
/**
 * The process that had the request has died. It is noticed within 250 ms of the kernel closing its
 * files, which comes after a core dump.
 */
export class PeerDied extends PipeworkError {}
/** No server is there to take the request. */
export class NoServer extends PipeworkError {}
/** A part of the message never came. */
export class TornMessage extends PipeworkError {
  /** The report. The errors of messages that are lost for another reason have it, too. */
  readonly torn: import('./atomic.js').Torn;
}
/** Bytes that no correct peer writes. */
export class Corrupt extends PipeworkError {}
/** Made by a build or a machine that this one cannot work with. */
export class Incompatible extends PipeworkError {}
/** This kernel or this kind of descriptor cannot do it. */
export class Unsupported extends PipeworkError {}
/** The caller asked for something that has no meaning, or used a handle that is closed. */
export class Invalid extends PipeworkError {}
/** Any other refusal of the kernel: `code` is `ENOENT`, `EACCES`, `ENOSPC`, ... */
export class OsError extends PipeworkError {}
/** The other side gave up. */
export class Failed extends PipeworkError {}
/** A server gave the request up. The text is the reason that it gave, if it gave one. */
export class RemoteError extends Failed {
  /** The reason, as the server gave it; empty if it gave none. */
  readonly reason: Buffer;
}
/** Messages are gone that a subscriber had not received, because it was too slow. */
export class Lagged extends PipeworkError {}
