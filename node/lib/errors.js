'use strict';

// The errors: a class for each kind that all languages share. The compiled half gives up the fields
// of an error; which class that is, is decided here alone.

const { getSystemErrorName } = require('node:util');
const native = require('./native.js');

class PipeworkError extends Error {
  constructor(message, op, code, errno, path) {
    super(path === undefined ? message : `${message}: '${path}'`);
    this.code = code;
    this.op = op;
    if (errno !== undefined) this.errno = errno;
    if (path !== undefined) this.path = path;
  }

  get name() {
    return this.constructor.name;
  }
}

class WouldBlock extends PipeworkError {}
class TimedOut extends PipeworkError {}
class Interrupted extends PipeworkError {}
class Closed extends PipeworkError {}
class TooLong extends PipeworkError {}
class Stale extends PipeworkError {}
class PeerDied extends PipeworkError {}
class NoServer extends PipeworkError {}
class TornMessage extends PipeworkError {}
class Corrupt extends PipeworkError {}
class Incompatible extends PipeworkError {}
class Unsupported extends PipeworkError {}
class Invalid extends PipeworkError {}
class OsError extends PipeworkError {}
class Failed extends PipeworkError {}
class RemoteError extends Failed {}
class Lagged extends PipeworkError {}

const CLASSES = {
  WouldBlock, TimedOut, Interrupted, Closed, TooLong, Stale, PeerDied, NoServer, Torn: TornMessage, Corrupt,
  Incompatible, Unsupported, Invalid, Os: OsError, Failed, Lagged,
};

const KINDS = native.kinds().map((kind) => ({ kind, Class: CLASSES[kind], code: codeOf(kind) }));

/** `PeerDied` is ERR_PIPEWORK_PEER_DIED. */
function codeOf(kind) {
  return `ERR_PIPEWORK_${kind.replace(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase()}`;
}

/** The error for a kind, by its number. A server's reason makes it a `RemoteError`. */
function make(number, op, errno, text, reason, path) {
  const { kind, Class, code } = KINDS[number - 1];
  if (reason !== undefined) {
    const error = new RemoteError(reason.length === 0 ? text : reason.toString(), op, code);
    error.reason = reason;
    return error;
  }
  if (errno === undefined) return new Class(text, op, code, errno, path);
  // As the errors of Node: "ENOENT", and -2.
  return new Class(text, op, kind === 'Os' ? nameOf(errno) : code, -errno, path);
}

function nameOf(errno) {
  try {
    return getSystemErrorName(-errno);
  } catch {
    return `E${errno}`;
  }
}

native.setErrorMaker((number, op, errno, text, reason, path) =>
  make(number, op, errno ?? undefined, text, reason ?? undefined, path ?? undefined));

/** The error for a kind, by its name, that has come up in JavaScript. */
function error(kind, op, text) {
  return make(KINDS.findIndex((each) => each.kind === kind) + 1, op, undefined, `${op}: ${text}`);
}

module.exports = {
  PipeworkError, WouldBlock, TimedOut, Interrupted, Closed, TooLong, Stale, PeerDied, NoServer, TornMessage, Corrupt,
  Incompatible, Unsupported, Invalid, OsError, Failed, RemoteError, Lagged,
};
Object.defineProperty(module.exports, 'error', { value: error, enumerable: false });
