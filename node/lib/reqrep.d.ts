/// <reference types="node" />

/** Text, or any buffer. Text is sent as UTF-8. */
export type Data = string | ArrayBufferView | ArrayBuffer | SharedArrayBuffer;

/** How one operation waits. */
export interface CallOptions {
  /** Milliseconds. Default: that of the client or server, which is for ever. 0 never waits. */
  timeout?: number | undefined;
  /** Ends the operation, which rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** How a message is sent. */
export interface SendOptions extends CallOptions {
  /** 32 bits that travel beside the bytes. */
  flags?: number | undefined;
  /** The blobs that it carries. */
  blobs?: Iterable<Blob> | undefined;
}

/**
 * The options of everything that makes a segment. A segment that is opened keeps its sizes: if sizes
 * are given, they must be the same.
 */
export interface SegmentOptions {
  /** Calls that can be in progress at the same time, in all clients together. Default 256. */
  slots?: number | undefined;
  /** Cells of the ring of waiting requests. Default twice the slots, which is enough. */
  queue?: number | undefined;
  /** Bytes of a request that a slot holds; a longer one lies in a file in memory. Default 4096. */
  requestBytes?: number | undefined;
  /** Bytes of a reply that a slot holds; a longer one lies in a file in memory. Default 4096. */
  replyBytes?: number | undefined;
  /** Clients and servers that can be attached at the same time. Default 256. */
  members?: number | undefined;
  /** Blobs that a message can carry, 0 to 8. Default 8. */
  blobs?: number | undefined;
  /** Bytes of shared memory that this process keeps for its next blobs. Default 128 MiB. */
  blobPool?: number | undefined;
  /** Bytes of all blobs that this process may hold at a time. Default no limit. */
  blobLimit?: number | undefined;
  /** Bytes of the largest segment to open. Default no cap. */
  maxBytes?: number | undefined;
  /** Permissions of the file, for instance 0o660 to share it with a group. Default 0o600. */
  mode?: number | undefined;
  /** Whether memory for payloads is taken when it is first written. Default false. */
  sparse?: boolean | undefined;
  /** Whether to open a segment that belongs to another user. Default false. */
  anyOwner?: boolean | undefined;
  /** For how many milliseconds threads of this process spin before they sleep. Default 0.02. */
  spin?: number | undefined;
}

export interface ClientOptions {
  /** Milliseconds that calls wait, unless they are given another time. Default: for ever. */
  timeout?: number | undefined;
  /** How often a request may go to another server because its own has died, 0 to 3. Default 0. */
  redeliveries?: number | undefined;
  /** Whether calls fail with `NoServer` while no server is attached. Default false. */
  needsServer?: boolean | undefined;
  /** Calls in progress at a time, so that slots are left to others; 0 for any number. Default 0. */
  maxInFlight?: number | undefined;
  /** Bytes of the longest request and reply. Default 256 MiB. */
  maxMessage?: number | undefined;
}

export interface ConnectOptions extends ClientOptions {
  /** Milliseconds to wait for a server. Default: for ever. */
  connectTimeout?: number | undefined;
  signal?: AbortSignal | undefined;
}

export interface ServerOptions {
  /** Milliseconds that `recv` waits, unless it is given another time. Default: for ever. */
  timeout?: number | undefined;
  /** Bytes of the longest request and reply. Default 256 MiB. */
  maxMessage?: number | undefined;
  /** Milliseconds that a client may take for a part before the request fails. Default 10000. */
  partTimeout?: number | undefined;
}

export interface ServeOptions {
  /**
   * Requests that are worked on at a time; those beyond are left to other servers. Default 10. If this
   * server dies, so many calls fail at most. Raise it for handlers that mostly wait, and above the number
   * of handlers that at the same time call their own channel.
   */
  limit?: number | undefined;
  /** Stops the server. */
  signal?: AbortSignal | undefined;
  /** Gets what a handler has thrown. Default: it is printed to stderr. */
  onError?: ((error: unknown, request: Request) => void) | undefined;
}

/** A reply with its flags and blobs. */
export interface Message {
  data: Buffer;
  flags: number;
  blobs: Blob[];
}

/** The sizes of a segment. They never change. */
export interface Geometry {
  slots: number;
  queue: number;
  requestBytes: number;
  replyBytes: number;
  members: number;
  blobs: number;
}

/** The counters of a segment. A process that is killed may leave a count of its last step out. */
export interface Stats {
  requests: number;
  replies: number;
  full: number;
  empty: number;
  cancelled: number;
  deadMembers: number;
  recovered: number;
  redelivered: number;
}

/** Every slot of a segment, counted by its use. */
export interface Audit {
  free: number;
  filling: number;
  waiting: number;
  taken: number;
  dropped: number;
  inParts: number;
  done: number;
  damaged: number;
  orphaned: number;
  unqueued: number;
  entries: number;
}

/** An attached client or server. */
export interface Member {
  number: number;
  role: 'client' | 'server';
  /** Its process, as numbered in its own pid namespace. For people. */
  pid: number;
  since: Date;
  /** False if it died and no member has recovered it yet. */
  isAlive: boolean;
}

/**
 * A segment that this process has opened: the shared memory in which clients and servers meet.
 * `new Segment(path)` opens the one at `path`, or makes it if there is none. A segment on /dev/shm
 * lies in memory alone.
 */
export class Segment {
  constructor(path: string | URL, options?: SegmentOptions);
  /** Makes a segment at a path where there is none. */
  static create(path: string | URL, options?: SegmentOptions): Segment;
  /** Opens the segment at a path. */
  static open(path: string | URL, options?: SegmentOptions): Segment;
  /** Makes a segment without a name, for the threads of this process and for its children. */
  static anonymous(options?: SegmentOptions): Segment;
  /** As `anonymous`; `name` shows up in /proc/PID/maps. */
  static memfd(name: string, options?: SegmentOptions): Segment;
  /** Opens the segment behind a descriptor, which stays the caller's. */
  static fromFd(fd: number, options?: SegmentOptions): Segment;

  /** The path at which it was made or opened; undefined for one without a name. */
  readonly path: string | undefined;
  /** Its descriptor, for `stdio` of a child that opens it by `fromFd`. */
  readonly fd: number;
  readonly geometry: Geometry;
  /** Requests that wait for a server. */
  readonly waiting: number;
  readonly closed: boolean;
  stats(): Stats;
  audit(): Audit;
  members(): Member[];
  /** Takes back what dead members held. Returns how many slots that were. */
  recover(): number;
  /**
   * Removes its name, and the blobs of processes that have ended. False if the name belongs to another file
   * by now.
   */
  unlink(): boolean;
  /** Memory for a blob, to be filled and frozen. */
  blob(byteLength: number): BlobMut;
  /** A blob with a copy of these bytes. */
  blobFrom(data: Data): Blob;
  /** Bytes of blobs that this process holds, and how many blobs it has received as copies. */
  blobStats(): { held: number; copied: number };
  /** Clients and servers of it go on. */
  close(): void;
  [Symbol.dispose](): void;
}

/** Memory for a blob that has to be filled. It may hold bytes of an earlier blob: fill all of it. */
export class BlobMut {
  private constructor();
  readonly byteLength: number;
  /**
   * Its memory, which cannot be transferred. `freeze` and `close` take it away: then this `ArrayBuffer`
   * is empty. Do not call them while a read into it is in progress. Throws `TooLong` if it is longer than
   * a `Buffer` can be, which in Node 20 is 4 GiB.
   */
  readonly buffer: ArrayBuffer;
  /**
   * Makes a blob of it: from now on nobody changes the bytes, and messages can carry them. Throws
   * `Invalid` if a stream of bytes has taken the memory over.
   */
  freeze(): Blob;
  /** Gives the memory back if it was not frozen. */
  close(): void;
  [Symbol.dispose](): void;
}

/**
 * Bytes in shared memory that no process changes. They are freed when nobody holds them any more, in any
 * process. The collector of this process does not know how large they are: close what you are done with.
 */
export class Blob {
  private constructor();
  readonly byteLength: number;
  /**
   * Its bytes, where they lie, if the runtime allows that (`isInPlace`), and else a copy. Do not write to
   * it: other processes would see that. `toBuffer` gives bytes of your own. It cannot be transferred, and
   * it is empty after `close()`. Throws `Invalid` then, and `TooLong` for more bytes than a `Buffer` can
   * have, which in Node 20 is 4 GiB.
   */
  readonly buffer: ArrayBuffer;
  /** Whether `buffer` is the shared memory itself. */
  readonly isInPlace: boolean;
  /** Whether this process got its own copy, because another user may change the memory. */
  readonly isCopied: boolean;
  /** A copy of its bytes, or of some of them. */
  toBuffer(from?: number, to?: number): Buffer;
  /** Throws `Corrupt` if bytes of it are lost, because another process has cut its memory short. */
  check(): void;
  /**
   * This process lets go of it. The `buffer` that it has given out is empty then; messages that carry it
   * are not affected. Do not call it while a write of that memory is in progress, to a file or a socket.
   */
  close(): void;
  [Symbol.dispose](): void;
}

/** The calling end. Any number of calls may be in progress. */
export class Client {
  /** Attaches to a segment, or to the one at a path, which is there already. */
  constructor(segment: Segment | string | URL, options?: ClientOptions);
  /** The same, as soon as the segment is there and has a server. */
  static connect(segment: Segment | string | URL, options?: ConnectOptions): Promise<Client>;

  readonly segment: Segment;
  /** Calls in progress. */
  readonly pending: number;
  /** Makes a call. The promise has the bytes of the reply. */
  call(data: Data, options?: SendOptions): Promise<Buffer>;
  /** The same; the promise has the reply with its flags and blobs. */
  callMessage(data: Data, options?: SendOptions): Promise<Message>;
  /** Makes a call whose reply comes in parts. Leaving the loop cancels it. The time is for each part. */
  stream(data: Data, options?: SendOptions): AsyncGenerator<Buffer, void, undefined>;
  /** The same, with the flags and blobs of the parts. */
  streamMessages(data: Data, options?: SendOptions): AsyncGenerator<Message, void, undefined>;
  /** Sends a request, and does not wait for the reply. The promise has the ticket of the call. */
  send(data: Data, options?: SendOptions): Promise<bigint>;
  /** Waits for the reply of a call that was sent. After a time-out the ticket is still good. */
  recv(ticket: bigint, options?: CallOptions): Promise<Buffer>;
  recvMessage(ticket: bigint, options?: CallOptions): Promise<Message>;
  /** Cancels a call that was sent. False if it is done: then it can be received. */
  cancel(ticket: bigint): boolean;
  /** Lets a call that was sent run, without a reply. */
  forget(ticket: bigint): void;
  /** What is in progress keeps the process alive. This is how it begins. */
  ref(): this;
  /** What is in progress does not keep the process alive. */
  unref(): this;
  /** Ends all that is in progress, which rejects with `Invalid`. */
  close(): void;
  [Symbol.dispose](): void;
}

/** What a handler may return: a reply, nothing, or an iterator of parts. */
export type Reply = Data | null | undefined | void | AsyncIterable<Data> | Iterator<Data>;

export type Handler = (request: Request) => Reply | Promise<Reply>;

/**
 * The answering end. Any number of servers, in any number of processes and threads, compete for the
 * requests: each request goes to one of them.
 */
export class Server implements AsyncIterable<Request> {
  /** Attaches to a segment, or to the one at a path, which is made if there is none. */
  constructor(segment: Segment, options?: ServerOptions);
  constructor(path: string | URL, options?: ServerOptions & SegmentOptions);

  readonly segment: Segment;
  /**
   * Answers each request with what `handler` returns, until the server is stopped or closed. An iterator,
   * such as a generator makes, is a reply in parts. If `handler` throws, its caller gets a `RemoteError`
   * with the type and the text. What was taken by then is answered before the promise resolves, so a
   * handler that never settles keeps it waiting. While the process is short of descriptors or memory, it
   * takes no requests and says so on stderr.
   */
  serve(handler: Handler, options?: ServeOptions): Promise<void>;
  /**
   * Requests until the server is stopped or closed. When the loop asks for the next one, the last one
   * fails if it is neither answered nor detached.
   */
  [Symbol.asyncIterator](): AsyncIterator<Request, undefined, undefined>;
  /** A request, which belongs to the caller: until it is answered, failed or dropped, its client waits. */
  recv(options?: CallOptions): Promise<Request>;
  /** A request that waits; undefined if none does. */
  tryRecv(): Request | undefined;
  /** Takes no more requests. What was taken can be answered. */
  stop(): void;
  ref(): this;
  unref(): this;
  /** Ends all that waits. What was taken can be answered. */
  close(): void;
  [Symbol.dispose](): void;
}

/** A request that this process has taken, and that no other server gets. Answer it once. */
export class Request {
  private constructor();
  readonly data: Buffer;
  readonly flags: number;
  readonly blobs: readonly Blob[];
  /** How many servers have died with it. */
  readonly redeliveries: number;
  /** The ticket that the client's `send` has returned for it. */
  readonly ticket: bigint;
  /** Whether it is neither answered nor failed. */
  readonly isOpen: boolean;
  /** Whether the client waits for the answer. */
  readonly isWanted: boolean;
  /**
   * Answers it. The promise is false if the client has gone. After a part, it waits until the client
   * has taken that, for `timeout` or else the server's `partTimeout`; then the request fails.
   */
  reply(data: Data, options?: SendOptions): Promise<boolean>;
  /** Sends a part of the reply, once the client has taken the part before. After the last part comes `reply`. */
  sendPart(data: Data, options?: SendOptions): Promise<boolean>;
  /**
   * Waits until the client has taken the part that was sent last, for `timeout` or else the server's
   * `partTimeout`. The promise is false if the client has gone.
   */
  flush(options?: CallOptions): Promise<boolean>;
  /**
   * There will be no answer: the call rejects with `RemoteError` and this reason. It overtakes a part
   * that the client has not taken, and then its reason is lost: `flush` first.
   */
  fail(reason?: Data | Error): void;
  /** Takes it out of the loop that gave it out, which would fail it. */
  detach(): this;
}
